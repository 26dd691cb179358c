//! What is noted of a task, as it is kept.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::canonical::video::{Medium, Report, Stage, VideoShape};

/// What never changes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct TaskFacts {
    /// When it began, in Unix milliseconds.
    pub(super) time: i64,
    /// The request that began it.
    pub(super) request: String,
    /// Who pays; empty for a key without an account.
    pub(super) account: String,
    pub(super) key: String,
    /// The model, as the client named it.
    pub(super) model: String,
    /// Who makes it: the provider's name, and the model's name there.
    pub(super) provider: String,
    pub(super) target: String,
    /// What was asked for.
    pub(super) endpoint: String,
    /// The form of the provider's words.
    pub(super) form: Form,
    /// What it may cost, in nano-units.
    pub(super) cost: i64,
    /// The length that was asked for, of all videos together.
    pub(super) millis: u64,
    pub(super) resolution: String,
    /// The size as the client knows it.
    pub(super) size: String,
    pub(super) prompt: String,
    pub(super) remixed: Option<String>,
}

/// The form of a provider's words.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Form {
    #[default]
    Remix,
    Preview,
    Nested,
    Bundled,
    /// Another gateway's task group.
    Group,
}

impl Form {
    pub(super) fn of(shape: VideoShape) -> Form {
        match shape {
            VideoShape::Remix => Form::Remix,
            VideoShape::Preview => Form::Preview,
            VideoShape::Nested => Form::Nested,
            VideoShape::Bundled => Form::Bundled,
        }
    }

    pub(super) fn shape(self) -> Option<VideoShape> {
        match self {
            Form::Remix => Some(VideoShape::Remix),
            Form::Preview => Some(VideoShape::Preview),
            Form::Nested => Some(VideoShape::Nested),
            Form::Bundled => Some(VideoShape::Bundled),
            Form::Group => None,
        }
    }
}

/// What changes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct TaskState {
    /// The provider's id of it; nothing while the provider has not answered.
    pub(super) upstream: Option<String>,
    pub(super) stage: Option<Word>,
    pub(super) progress: Option<u64>,
    pub(super) fault: Option<(String, String)>,
    pub(super) media: Vec<Place>,
    /// When the provider was asked last, in Unix milliseconds.
    pub(super) asked: i64,
    /// When it ended, in Unix milliseconds.
    pub(super) ended: Option<i64>,
    /// Its length, as the provider says it.
    pub(super) millis: Option<u64>,
    pub(super) tokens: Option<u64>,
    /// Its resolution, as the provider says it. Older notes have none.
    #[serde(default)]
    pub(super) resolution: Option<String>,
    /// The answer, of pictures that a client waited for.
    #[serde(default)]
    pub(super) answer: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum Word {
    Queued,
    Running,
    Done,
    Failed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Place {
    Public(String),
    Keyed(String),
    Content,
    Inline,
}

impl TaskState {
    /// How far it is; nothing while the provider has not been asked.
    pub(super) fn stage(&self) -> Option<Stage> {
        self.stage.map(|word| match word {
            Word::Queued => Stage::Queued,
            Word::Running => Stage::Running,
            Word::Done => Stage::Done,
            Word::Failed => Stage::Failed,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage().is_some_and(Stage::is_end)
    }

    pub(super) fn media(&self) -> impl Iterator<Item = Medium> {
        self.media.iter().map(|place| match place {
            Place::Public(url) => Medium::Public(url.clone()),
            Place::Keyed(url) => Medium::Keyed(url.clone()),
            Place::Content => Medium::Content,
            Place::Inline => Medium::Inline,
        })
    }

    /// Takes over what a provider says.
    pub(super) fn update(&mut self, report: Report, now: i64) {
        let Report { stage, progress, fault, media, millis, resolution, tokens } = report;
        self.stage = Some(match stage {
            Stage::Queued => Word::Queued,
            Stage::Running => Word::Running,
            Stage::Done => Word::Done,
            Stage::Failed => Word::Failed,
        });
        self.progress = progress.or(self.progress).filter(|_| !stage.is_end());
        self.fault = fault;
        self.media = media
            .into_iter()
            .map(|medium| match medium {
                Medium::Public(url) => Place::Public(url),
                Medium::Keyed(url) => Place::Keyed(url),
                Medium::Content => Place::Content,
                Medium::Inline => Place::Inline,
            })
            .collect();
        self.millis = millis.map(|millis| plausible("length", millis, LONGEST));
        self.tokens = tokens.map(|tokens| plausible("tokens", tokens, MOST_TOKENS));
        self.resolution = resolution;
        self.ended = stage.is_end().then_some(now);
    }
}

/// Milliseconds of a video at most: documented models make less than a minute (2026-11).
const LONGEST: u64 = 3_600_000;
/// Tokens of a video at most: an hour in 1080p has fewer, as Ark counts them.
const MOST_TOKENS: u64 = 1 << 28;

/// What a provider reports, within its bound: one absurd figure must not empty an account.
fn plausible(what: &str, reported: u64, most: u64) -> u64 {
    if reported > most {
        tracing::error!(
            what,
            reported,
            most,
            "a provider reported more of a video than there can be; it is charged within bounds"
        );
    }
    reported.min(most)
}

/// As it is kept.
pub(super) fn pack(note: &impl Serialize) -> Bytes {
    // Nothing in a note can fail to be written.
    serde_json::to_vec(note).unwrap_or_default().into()
}

/// The other way.
pub(super) fn unpack<T: for<'d> Deserialize<'d>>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}
