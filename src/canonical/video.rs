//! Videos that are to be made, how a provider wants to be asked for them, and how far they are.

use std::borrow::Cow;

use super::request::Extra;

/// What is to be made, borrowed from the request's body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Video<'a> {
    /// What is to be seen.
    pub prompt: Option<Cow<'a, str>>,
    /// What is not.
    pub negative: Option<Cow<'a, str>>,
    /// Pictures to begin from, to end with, or to keep to; in the order of the request.
    pub pictures: Vec<Picture<'a>>,
    /// Its length.
    pub seconds: Option<u64>,
    /// Its length in frames, where a provider counts these.
    pub frames: Option<u64>,
    /// Width and height, of the remix-capable family. Others have a resolution and a ratio.
    pub size: Option<(u64, u64)>,
    /// `720p`.
    pub resolution: Option<Cow<'a, str>>,
    /// `16:9`.
    pub ratio: Option<Cow<'a, str>>,
    /// The id of the video that it is made from, as the client knows it.
    pub remix: Option<Cow<'a, str>>,
    /// With sound.
    pub audio: Option<bool>,
    /// How many are made.
    pub samples: Option<u64>,
    /// Which people may be seen.
    pub people: Option<Cow<'a, str>>,
    /// With a mark that tells who made it.
    pub watermark: Option<bool>,
    /// What chance begins with.
    pub seed: Option<u64>,
    /// Things that it is made from and that have no place above: videos, sounds. Each is an object.
    pub content: Vec<crate::json::RawJson<'a>>,
    /// Members that have no place above, with their names and in their order.
    pub extra: Vec<Extra<'a>>,
    /// The paths of settings in the client's request, by the name that they have here.
    pub paths: Vec<(&'static str, String)>,
}

impl<'a> Video<'a> {
    /// The first picture of a role.
    pub fn picture(&self, role: PictureRole) -> Option<&Picture<'a>> {
        self.pictures.iter().find(|picture| picture.role == role)
    }

    /// Whether the client names a setting.
    pub fn is_said(&self, name: &'static str) -> bool {
        self.paths.iter().any(|(known, _)| *known == name)
    }

    /// The client's path of a setting.
    pub fn path_of(&self, name: &'static str) -> &str {
        self.paths.iter().find(|(known, _)| *known == name).map_or(name, |(_, path)| path)
    }
}

/// A picture that a video is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// What it is for.
    pub role: PictureRole,
    /// Where it is.
    pub source: PictureSource<'a>,
    /// The client's field.
    pub field: Cow<'a, str>,
}

/// What a picture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureRole {
    /// The video begins with it.
    First,
    /// It ends with it.
    Last,
    /// What is seen on it is seen in the video.
    Reference,
}

impl PictureRole {
    /// The word for it in requests.
    pub const fn name(self) -> &'static str {
        match self {
            PictureRole::First => "first_frame",
            PictureRole::Last => "last_frame",
            PictureRole::Reference => "reference_image",
        }
    }
}

/// Where a picture is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureSource<'a> {
    /// Behind an address.
    Link(Cow<'a, str>),
    /// In the request.
    Data {
        /// Its type.
        media: Cow<'a, str>,
        /// It, in base64.
        base64: Cow<'a, str>,
    },
}

/// How a request for a video is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoShape {
    /// `{model, prompt, seconds, size}`; a video can be made from another one (the remix-capable family).
    Remix,
    /// `{instances, parameters}` (the fast-preview family).
    Preview,
    /// `{model, input, parameters}`.
    Nested,
    /// `{model, content}` with all that is said in a list (the bundled-prompt family).
    Bundled,
}

/// Which lengths there are, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seconds {
    /// These.
    OneOf(&'static [u64]),
    /// From one to another.
    Range(u64, u64),
}

impl Seconds {
    /// Whether there is this one.
    pub fn has(self, seconds: u64) -> bool {
        match self {
            Seconds::OneOf(all) => all.contains(&seconds),
            Seconds::Range(least, most) => (least..=most).contains(&seconds),
        }
    }
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seconds::Range(least, most) => write!(f, "from {least} to {most}"),
            Seconds::OneOf([one]) => write!(f, "{one}"),
            Seconds::OneOf(all) => {
                let (last, others) = all.split_last().unwrap_or((&0, &[]));
                let others: Vec<String> = others.iter().map(u64::to_string).collect();
                write!(f, "{} or {last}", others.join(", "))
            }
        }
    }
}

/// What a model does about sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sound {
    /// It is not told: it has none, or always the same.
    Untold,
    /// It is told what the client wants, or this.
    Told(bool),
    /// It is told this, whatever the client wants.
    Fixed(bool),
}

/// What a model can be asked for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoDialect {
    /// The form of the request.
    pub shape: VideoShape,
    /// Lengths.
    pub seconds: Seconds,
    /// The length where nothing is said.
    pub usual_seconds: u64,
    /// Resolutions, or, of the remix-capable family, sizes.
    pub resolutions: &'static [&'static str],
    /// The one where nothing is said.
    pub usual_resolution: &'static str,
    /// The only length that there is in the highest resolutions, and from a first to a last image.
    pub seconds_in_full: Option<u64>,
    /// Ratios of the sides.
    pub ratios: &'static [&'static str],
    /// It can do without a picture.
    pub text: bool,
    /// It takes a picture to begin with.
    pub first: bool,
    /// It takes a picture to end with.
    pub last: bool,
    /// It takes pictures to keep to.
    pub reference: bool,
    /// Videos of one request.
    pub samples: u64,
    /// Sound.
    pub sound: Sound,
    /// It takes a seed, and what is said about marks.
    pub particular: bool,
    /// Pictures are given as a list with their roles, where others have a member for each.
    pub listed: bool,
    /// The provider brings pictures from an address itself.
    pub links: bool,
}

/// How far a video is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It waits.
    #[default]
    Queued,
    /// It is being made.
    Running,
    /// It is there.
    Done,
    /// It will never be.
    Failed,
}

impl Stage {
    /// Whether nothing more will happen.
    pub const fn is_end(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed)
    }
}

/// What a provider says about a video.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How far it is.
    pub stage: Stage,
    /// In percent.
    pub progress: Option<u64>,
    /// Why there is none: a word for programs, and a text for people.
    pub fault: Option<(String, String)>,
    /// Where the videos are.
    pub media: Vec<Medium>,
    /// Its length, in thousandths of a second.
    pub millis: Option<u64>,
    /// Its resolution.
    pub resolution: Option<String>,
    /// Tokens that it is billed for.
    pub tokens: Option<u64>,
}

/// Where a video is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Behind an address that everybody may read for some time.
    Public(String),
    /// Behind an address of the provider's that wants its credential.
    Keyed(String),
    /// Behind the provider's address for the content of the task.
    Content,
    /// In the report, as base64.
    Inline,
}
