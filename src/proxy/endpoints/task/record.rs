//! Task records: the facts and the state of a task, as they are stored.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use codec::canonical::video::{Medium, Stage, VideoReport, VideoShape};
use codec::wire::video::answer::InlineVideoFrame;

/// Facts of a task, which never change.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct TaskFacts {
    /// Start time, in Unix milliseconds.
    pub(super) time: i64,
    /// Id of the request that started the task.
    pub(super) request: String,
    /// Account that is charged. Empty for a key without an account.
    pub(super) account: String,
    pub(super) key: String,
    /// Id of the model that the client named.
    pub(super) model: String,
    /// Name of the provider; `target` is the model's name there.
    pub(super) provider: String,
    pub(super) target: String,
    /// Endpoint, for the usage record.
    pub(super) endpoint: String,
    /// Format of the provider's responses.
    pub(super) form: Form,
    /// Estimated cost, in nano-units.
    pub(super) cost: i64,
    /// Requested length of all videos together, in milliseconds.
    pub(super) millis: u64,
    /// Number of requested videos. Zero, which counts as one, in older records.
    #[serde(default)]
    pub(super) videos: u64,
    pub(super) resolution: String,
    /// Size from the client's request.
    pub(super) size: String,
    pub(super) prompt: String,
    pub(super) remixed: Option<String>,
}

/// Format of a provider's responses. The stored counterpart of [`VideoShape`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Form {
    #[default]
    Remix,
    Preview,
    Nested,
    Bundled,
    /// Task group of another gateway.
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

/// State of a task, which changes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct TaskState {
    /// The provider's task id. `None` until the provider has answered.
    pub(super) upstream: Option<String>,
    pub(super) stage: Option<StoredStage>,
    pub(super) progress: Option<u64>,
    pub(super) fault: Option<(String, String)>,
    pub(super) media: Vec<StoredMedia>,
    /// Time of the last poll, in Unix milliseconds.
    pub(super) asked: i64,
    /// Time of the end, in Unix milliseconds.
    pub(super) ended: Option<i64>,
    /// True from the end of the task until its charge is confirmed. A process that ends in between leaves it set, and
    /// the task due.
    #[serde(default)]
    pub(super) uncharged: bool,
    /// Length that the provider reports, in milliseconds.
    pub(super) millis: Option<u64>,
    pub(super) tokens: Option<u64>,
    /// Resolution that the provider reports. Older records lack the field.
    #[serde(default)]
    pub(super) resolution: Option<String>,
    /// Stored response of an image request that its client waited for.
    #[serde(default)]
    pub(super) answer: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum StoredStage {
    Queued,
    Running,
    Done,
    Failed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum StoredMedia {
    Public(String),
    Keyed(String),
    Content,
    Inline,
}

impl TaskState {
    /// Returns the stage. `None` before the first report of the provider.
    pub(super) fn stage(&self) -> Option<Stage> {
        self.stage.map(|word| match word {
            StoredStage::Queued => Stage::Queued,
            StoredStage::Running => Stage::Running,
            StoredStage::Done => Stage::Done,
            StoredStage::Failed => Stage::Failed,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage().is_some_and(Stage::is_end)
    }

    pub(super) fn media(&self) -> impl Iterator<Item = Medium> {
        self.media.iter().map(|place| match place {
            StoredMedia::Public(url) => Medium::Public(url.clone()),
            StoredMedia::Keyed(url) => Medium::Keyed(url.clone()),
            StoredMedia::Content => Medium::Content,
            StoredMedia::Inline => Medium::Inline,
        })
    }

    /// Applies a provider's report; `now` is in Unix milliseconds.
    pub(super) fn update(&mut self, report: VideoReport, now: i64) {
        let VideoReport { stage, progress, fault, media, millis, resolution, tokens } = report;
        self.stage = Some(match stage {
            Stage::Queued => StoredStage::Queued,
            Stage::Running => StoredStage::Running,
            Stage::Done => StoredStage::Done,
            Stage::Failed => StoredStage::Failed,
        });
        self.progress = progress.or(self.progress).filter(|_| !stage.is_end());
        self.fault = fault;
        self.media = media
            .into_iter()
            .map(|medium| match medium {
                Medium::Public(url) => StoredMedia::Public(url),
                Medium::Keyed(url) => StoredMedia::Keyed(url),
                Medium::Content => StoredMedia::Content,
                Medium::Inline => StoredMedia::Inline,
            })
            .collect();
        self.millis = millis.map(|millis| plausible("length", millis, LONGEST));
        self.tokens = tokens.map(|tokens| plausible("tokens", tokens, MOST_TOKENS));
        self.resolution = resolution;
        self.ended = stage.is_end().then_some(now);
    }
}

/// Maximum length of a video in milliseconds: documented models make less than a minute (2026-11).
const LONGEST: u64 = 3_600_000;
/// Maximum tokens of a video: an hour in 1080p has fewer, as Ark counts them.
const MOST_TOKENS: u64 = 1 << 28;

/// Limits a reported figure to its maximum: one absurd figure must not empty an account.
fn plausible(what: &str, reported: u64, most: u64) -> u64 {
    if reported > most {
        tracing::error!(
            what,
            reported,
            most,
            "a provider reported a longer video than possible; the charge is limited to the maximum"
        );
    }
    reported.min(most)
}

/// Serializes a record for the store.
pub(super) fn pack(note: &impl Serialize) -> Bytes {
    // Serialization of these types cannot fail.
    serde_json::to_vec(note).unwrap_or_default().into()
}

/// Deserializes a record. `None` if it is not valid.
pub(super) fn unpack<T: for<'d> Deserialize<'d>>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// Response format of a video.
pub(super) enum VideoEncoding {
    /// JSON that contains the video once, in base64.
    Whole(InlineVideoFrame),
    /// Response to a download: JSON that contains the video twice.
    Download(String),
    /// The bytes of the video with this index.
    Plain(usize),
}
