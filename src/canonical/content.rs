//! What is said in a conversation: turns, and the blocks that they consist of.

use super::seal::Seal;
use super::{Input, ToolKind};
use crate::json::{JsonStr, RawJson};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whoever runs the application.
    System,
    /// The same, in the newer word of formats that know both.
    Developer,
    /// The user. Results of tools stand in turns of the user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Instructions, in either word.
    pub fn is_system(self) -> bool {
        matches!(self, Role::System | Role::Developer)
    }
}

/// One message, as the client sent it: neighbours of the same role are not joined here.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn<'a> {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block<'a>>,
    /// The speaker's name; usually empty.
    pub name: JsonStr<'a>,
    /// Which phase of an answer it was, in formats that say so; usually empty.
    pub phase: JsonStr<'a>,
    /// The turn is a beginning that the model is to continue (a prefill), where the format marks it.
    pub prefix: bool,
}

impl<'a> Turn<'a> {
    /// A turn of these blocks.
    pub fn new(role: Role, blocks: Vec<Block<'a>>) -> Self {
        Turn { role, blocks, name: JsonStr::default(), phase: JsonStr::default(), prefix: false }
    }
}

/// How long the provider is asked to keep the prompt up to here in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMark {
    /// 5 minutes.
    Short,
    /// 1 hour.
    Long,
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Block<'a> {
    /// Text.
    Text {
        /// The text.
        text: JsonStr<'a>,
        /// The prompt is cached up to here.
        cache: Option<CacheMark>,
        /// What the provider wants to see again with it (it signs plain text now and then).
        seal: Option<Seal<'a>>,
    },
    /// An image.
    Image {
        /// Where it is.
        source: Source<'a>,
        /// How closely to look (`auto`, `low`, `high`, `original`); empty when not said.
        detail: JsonStr<'a>,
        /// The prompt is cached up to here.
        cache: Option<CacheMark>,
        /// As in `Text`.
        seal: Option<Seal<'a>>,
    },
    /// A document.
    File {
        /// Where it is.
        source: Source<'a>,
        /// Its name or title; may be empty.
        name: JsonStr<'a>,
        /// The prompt is cached up to here.
        cache: Option<CacheMark>,
    },
    /// A sound.
    Audio {
        /// Where it is.
        source: Source<'a>,
    },
    /// A video.
    Video {
        /// Where it is.
        source: Source<'a>,
    },
    /// Reasoning of an earlier answer.
    Reasoning {
        /// Its text, in the parts that it came in; may be empty.
        text: Vec<JsonStr<'a>>,
        /// What the provider wants to see again.
        seal: Option<Seal<'a>>,
        /// The text was withheld by the provider: the seal is all there is.
        hidden: bool,
    },
    /// A refusal in an earlier answer.
    Refusal {
        /// The model's words.
        text: JsonStr<'a>,
    },
    /// A tool was called.
    ToolUse {
        /// The call's id. What a carrier added to it has been taken off.
        id: JsonStr<'a>,
        /// The tool's name.
        name: JsonStr<'a>,
        /// What it was called with.
        input: Input<'a>,
        /// What kind of tool.
        kind: ToolKind,
        /// The group that the tool stands in; usually empty.
        namespace: JsonStr<'a>,
        /// What the provider wants to see again with the call.
        seal: Option<Seal<'a>>,
        /// The prompt is cached up to here.
        cache: Option<CacheMark>,
    },
    /// What a tool answered.
    ToolResult {
        /// The call's id, without what a carrier added to it.
        id: JsonStr<'a>,
        /// The tool's name, where the format says it; may be empty.
        name: JsonStr<'a>,
        /// What it answered: text, images, files.
        content: Vec<Block<'a>>,
        /// What it answered, where the format has it as one object.
        object: Option<RawJson<'a>>,
        /// It failed.
        error: bool,
        /// What kind of tool.
        kind: ToolKind,
        /// The prompt is cached up to here.
        cache: Option<CacheMark>,
    },
    /// Something that only the format it came in has a word for.
    Opaque {
        /// Its type, in that format's word.
        name: JsonStr<'a>,
        /// All of it.
        raw: RawJson<'a>,
    },
}

impl<'a> Block<'a> {
    /// A text without marks.
    pub fn text(text: JsonStr<'a>) -> Self {
        Block::Text { text, cache: None, seal: None }
    }
}

/// Where an image, a file, a sound or a video is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the request.
    Base64 {
        /// Its media type (`image/png`).
        mime: JsonStr<'a>,
        /// Its bytes, base64.
        data: JsonStr<'a>,
    },
    /// At an address.
    Url {
        /// The address.
        url: JsonStr<'a>,
        /// The media type, where it is said; may be empty.
        mime: JsonStr<'a>,
    },
    /// With the provider, under an id that means nothing to another provider.
    Id {
        /// The id.
        id: JsonStr<'a>,
    },
    /// In the request, as plain text.
    Text {
        /// The text.
        text: JsonStr<'a>,
    },
}

impl<'a> Source<'a> {
    /// What an address says: a data URL is taken apart (RFC 2397; only base64 ones are media).
    pub fn from_url(url: JsonStr<'a>) -> Self {
        let plain = Source::Url { url, mime: JsonStr::default() };
        let text = url.escaped();
        let Some(rest) =
            text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).map(|_| &text[5..])
        else {
            return plain;
        };
        let Some((head, data)) = rest.split_once(',') else { return plain };
        let Some(head) = head.strip_suffix(";base64") else { return plain };
        let mime = head.split(';').next().unwrap_or_default();
        Source::Base64 { mime: JsonStr::from_escaped(mime), data: JsonStr::from_escaped(data) }
    }
}
