//! Video requests, the capabilities of video models, and the state of a video task.

use std::borrow::Cow;

use super::request::Extra;

/// Video request, borrowed from the request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Video<'a> {
    /// Prompt.
    pub prompt: Option<Cow<'a, str>>,
    /// Negative prompt.
    pub negative: Option<Cow<'a, str>>,
    /// First frame, last frame and reference images, in the order of the request.
    pub pictures: Vec<VideoInputImage<'a>>,
    /// Length in seconds.
    pub seconds: Option<u64>,
    /// Length in frames, for providers that count frames.
    pub frames: Option<u64>,
    /// Width and height in pixels, for the remix-capable family. Other families have a resolution and a ratio.
    pub size: Option<(u64, u64)>,
    /// Resolution, for example `720p`.
    pub resolution: Option<Cow<'a, str>>,
    /// Aspect ratio, for example `16:9`.
    pub ratio: Option<Cow<'a, str>>,
    /// Id of the source video of a remix, as the client knows it.
    pub remix: Option<Cow<'a, str>>,
    /// Whether the video has sound.
    pub audio: Option<bool>,
    /// Number of videos.
    pub samples: Option<u64>,
    /// Person generation policy: which people may appear.
    pub people: Option<Cow<'a, str>>,
    /// Whether the video gets a watermark.
    pub watermark: Option<bool>,
    /// Random seed.
    pub seed: Option<u64>,
    /// Source material without a field above (videos, audio), as JSON objects.
    pub content: Vec<json::RawJson<'a>>,
    /// Members without a field above, in the order of the request.
    pub extra: Vec<Extra<'a>>,
    /// Path of each setting in the client's request, by its name here.
    pub paths: Vec<(&'static str, String)>,
}

impl<'a> Video<'a> {
    /// Returns the first picture of a role; `None` if there is none.
    pub fn picture(&self, role: PictureRole) -> Option<&VideoInputImage<'a>> {
        self.pictures.iter().find(|picture| picture.role == role)
    }

    /// Returns true if the client gave the setting.
    pub fn is_set(&self, name: &'static str) -> bool {
        self.paths.iter().any(|(known, _)| *known == name)
    }

    /// Returns the client's path of a setting, or `name` if the client did not give it.
    pub fn path_of(&self, name: &'static str) -> &str {
        self.paths.iter().find(|(known, _)| *known == name).map_or(name, |(_, path)| path)
    }
}

/// Input image of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoInputImage<'a> {
    /// Role of the image.
    pub role: PictureRole,
    /// Location of the image.
    pub source: PictureSource<'a>,
    /// Field of the client's request that holds the image.
    pub field: Cow<'a, str>,
}

/// Role of an input image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureRole {
    /// First frame.
    First,
    /// Last frame.
    Last,
    /// Reference image: its subject appears in the video.
    Reference,
}

impl PictureRole {
    /// All roles.
    pub const ALL: [PictureRole; 3] = [PictureRole::First, PictureRole::Last, PictureRole::Reference];

    /// Returns the name of the role in requests.
    pub const fn name(self) -> &'static str {
        match self {
            PictureRole::First => "first_frame",
            PictureRole::Last => "last_frame",
            PictureRole::Reference => "reference_image",
        }
    }
}

/// Location of an input image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureSource<'a> {
    /// Remote address.
    Link(Cow<'a, str>),
    /// Bytes in the request.
    Data {
        /// Media type.
        media: Cow<'a, str>,
        /// Content, in base64.
        base64: Cow<'a, str>,
    },
}

/// Shape of a provider's video request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoShape {
    /// `{model, prompt, seconds, size}`; supports remixes of other videos (the remix-capable family).
    Remix,
    /// `{instances, parameters}` (the fast-preview family).
    Preview,
    /// `{model, input, parameters}`.
    Nested,
    /// `{model, content}` with prompt and images in one list (the bundled-prompt family).
    Bundled,
}

/// Supported lengths, in whole seconds up to [`Seconds::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(u64);

impl Seconds {
    /// Longest length, in seconds.
    pub const MAX: u64 = 63;

    /// Returns a set of lengths. Lengths above [`Seconds::MAX`] are left out.
    pub const fn of(lengths: &[u64]) -> Seconds {
        let (mut set, mut rest) = (0, lengths);
        while let [length, behind @ ..] = rest {
            set |= if *length > Seconds::MAX { 0 } else { 1 << *length };
            rest = behind;
        }
        Seconds(set)
    }

    /// Returns the lengths from `least` to `most`, both included.
    pub const fn range(least: u64, most: u64) -> Seconds {
        let (mut set, mut length) = (0, least);
        while length <= most && length <= Seconds::MAX {
            set |= 1 << length;
            length += 1;
        }
        Seconds(set)
    }

    /// Returns true if the length is supported.
    pub const fn has(self, seconds: u64) -> bool {
        seconds <= Seconds::MAX && self.0 >> seconds & 1 == 1
    }

    /// Returns true if no length is supported.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn all(self) -> Vec<u64> {
        (0..=Seconds::MAX).filter(|seconds| self.has(*seconds)).collect()
    }
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.all().as_slice() {
            [] => Ok(()),
            [one] => write!(f, "{one}"),
            [least, .., most] if most - least > 1 && *self == Seconds::range(*least, *most) => {
                write!(f, "from {least} to {most}")
            }
            [others @ .., last] => {
                let others: Vec<String> = others.iter().map(u64::to_string).collect();
                write!(f, "{} or {last}", others.join(", "))
            }
        }
    }
}

/// Sound setting of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioSetting {
    /// Not sent: the model always has sound, or never.
    Omitted,
    /// The client's setting is sent, or this default.
    Configurable(bool),
    /// This value is sent, whatever the client wants.
    Fixed(bool),
}

/// Video capabilities of a model at a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoDialect {
    /// Shape of the request.
    pub shape: VideoShape,
    /// Supported lengths, in seconds.
    pub seconds: Seconds,
    /// Default length, in seconds.
    pub default_seconds: u64,
    /// Supported resolutions; for the remix-capable family, supported sizes.
    pub resolutions: &'static [&'static str],
    /// Default resolution.
    pub default_resolution: &'static str,
    /// Only supported length (seconds) at the highest resolutions and with a last frame; `None` for no such limit.
    pub seconds_in_full: Option<u64>,
    /// Supported aspect ratios.
    pub ratios: &'static [&'static str],
    /// Whether text to video (no input image) is supported.
    pub text: bool,
    /// Whether a first frame is supported.
    pub first: bool,
    /// Whether a last frame is supported.
    pub last: bool,
    /// Whether reference images are supported.
    pub reference: bool,
    /// Maximum number of videos per request.
    pub samples: u64,
    /// Sound setting.
    pub sound: AudioSetting,
    /// Whether a seed and a watermark setting are supported.
    pub seed_and_watermark: bool,
    /// Whether images are sent as a list with roles instead of in a member for each role.
    pub listed: bool,
    /// Whether the provider fetches images from an address itself.
    pub fetches_urls: bool,
}

/// Stage of a video task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Queued.
    #[default]
    Queued,
    /// In progress.
    Running,
    /// Completed.
    Done,
    /// Failed.
    Failed,
}

impl Stage {
    /// Returns true if the stage is final.
    pub const fn is_end(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed)
    }
}

/// State of a video task, as the provider reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VideoReport {
    /// Stage of the task.
    pub stage: Stage,
    /// Progress in percent.
    pub progress: Option<u64>,
    /// Error of a failed task: code and message.
    pub fault: Option<(String, String)>,
    /// Locations of the videos.
    pub media: Vec<Medium>,
    /// Length in milliseconds.
    pub millis: Option<u64>,
    /// Resolution.
    pub resolution: Option<String>,
    /// Billed tokens.
    pub tokens: Option<u64>,
}

/// Location of a generated video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Public address, valid for a limited time.
    Public(String),
    /// Address at the provider that requires its credential.
    Keyed(String),
    /// Content endpoint of the task at the provider.
    Content,
    /// Bytes in the task report, in base64.
    Inline,
}
