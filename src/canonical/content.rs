//! Content of a conversation: turns and their blocks.

use super::seal::ProviderSignature;
use super::{Input, ToolKind};
use crate::json::{JsonStr, RawJson};

/// Role of a turn's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions of the application (`system`).
    System,
    /// The same, under the newer name `developer` in formats that have both.
    Developer,
    /// The user. Tool results are in turns of this role.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Returns true for instructions of either name.
    pub fn is_system(self) -> bool {
        matches!(self, Role::System | Role::Developer)
    }
}

/// Message, as the client sent it. Adjacent messages of the same role are not merged here.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn<'a> {
    /// Role of the author.
    pub role: Role,
    /// Content, in order.
    pub blocks: Vec<Block<'a>>,
    /// Name of the author; usually empty.
    pub name: JsonStr<'a>,
    /// Phase of the response that the turn was part of, in formats that name it; usually empty.
    pub phase: JsonStr<'a>,
    /// Whether the turn is marked as a prefill: the beginning of a response that the model is to continue.
    pub prefix: bool,
}

impl<'a> Turn<'a> {
    /// Creates a turn from its blocks.
    pub fn new(role: Role, blocks: Vec<Block<'a>>) -> Self {
        Turn { role, blocks, name: JsonStr::default(), phase: JsonStr::default(), prefix: false }
    }
}

/// Number of turns that a decoder reserves room for. A conversation that grows from nothing is moved at every doubling.
pub const TYPICAL_TURNS: usize = 16;

/// Prompt-cache breakpoint: how long the provider is to cache the prompt up to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheBreakpoint {
    /// 5 minutes.
    Short,
    /// 1 hour.
    Long,
}

/// Content block of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Block<'a> {
    /// Text block.
    Text {
        /// The text.
        text: JsonStr<'a>,
        /// Prompt-cache breakpoint behind this block.
        cache: Option<CacheBreakpoint>,
        /// Provider signature of the text. Some providers sign plain text.
        signature: Option<ProviderSignature<'a>>,
    },
    /// Image.
    Image {
        /// Location of the image.
        source: MediaSource<'a>,
        /// Level of detail (`auto`, `low`, `high`, `original`); empty if the client gave none.
        detail: JsonStr<'a>,
        /// Prompt-cache breakpoint behind this block.
        cache: Option<CacheBreakpoint>,
        /// Provider signature, as in `Text`.
        signature: Option<ProviderSignature<'a>>,
    },
    /// Document.
    File {
        /// Location of the document.
        source: MediaSource<'a>,
        /// File name or title; may be empty.
        name: JsonStr<'a>,
        /// Prompt-cache breakpoint behind this block.
        cache: Option<CacheBreakpoint>,
    },
    /// Audio.
    Audio {
        /// Location of the audio.
        source: MediaSource<'a>,
    },
    /// Video.
    Video {
        /// Location of the video.
        source: MediaSource<'a>,
    },
    /// Reasoning of an earlier response.
    Reasoning {
        /// Reasoning text, in the parts that it arrived in; may be empty.
        text: Vec<JsonStr<'a>>,
        /// Provider signature, which the provider requires to accept the block.
        signature: Option<ProviderSignature<'a>>,
        /// Whether the provider withheld the text, so that the signature is the only content.
        hidden: bool,
    },
    /// Refusal in an earlier response.
    Refusal {
        /// Text of the refusal.
        text: JsonStr<'a>,
    },
    /// Tool call in an earlier response.
    ToolUse {
        /// Id of the call, without the signature that the gateway may have appended to it
        /// ([`SignedCallId`](super::seal::SignedCallId)).
        id: JsonStr<'a>,
        /// Name of the tool.
        name: JsonStr<'a>,
        /// Input of the call.
        input: Input<'a>,
        /// Function or custom tool.
        kind: ToolKind,
        /// Namespace of the tool; usually empty.
        namespace: JsonStr<'a>,
        /// Provider signature of the call.
        signature: Option<ProviderSignature<'a>>,
        /// Prompt-cache breakpoint behind this block.
        cache: Option<CacheBreakpoint>,
    },
    /// Result of a tool call.
    ToolResult {
        /// Id of the call, without an appended signature.
        id: JsonStr<'a>,
        /// Name of the tool, if the format has it here; may be empty.
        name: JsonStr<'a>,
        /// Result as blocks: text, images, files.
        content: Vec<Block<'a>>,
        /// Result as one JSON object, in formats that carry it so.
        object: Option<RawJson<'a>>,
        /// Whether the tool failed.
        error: bool,
        /// Function or custom tool.
        kind: ToolKind,
        /// Prompt-cache breakpoint behind this block.
        cache: Option<CacheBreakpoint>,
    },
    /// Block that only its own format can represent.
    Opaque {
        /// Type of the block, as its format names it.
        name: JsonStr<'a>,
        /// Whole JSON value of the block.
        raw: RawJson<'a>,
    },
}

impl<'a> Block<'a> {
    /// Creates a text block without cache breakpoint and signature.
    pub fn text(text: JsonStr<'a>) -> Self {
        Block::Text { text, cache: None, signature: None }
    }
}

/// Location of an image, a document, audio or a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaSource<'a> {
    /// Bytes in the request.
    Base64 {
        /// Media type, for example `image/png`.
        mime: JsonStr<'a>,
        /// Content, in base64.
        data: JsonStr<'a>,
    },
    /// Remote address.
    Url {
        /// The address.
        url: JsonStr<'a>,
        /// Media type; empty if the client gave none.
        mime: JsonStr<'a>,
    },
    /// File stored at the provider. The id means nothing to another provider.
    Id {
        /// Id of the file.
        id: JsonStr<'a>,
    },
    /// Plain text in the request.
    Text {
        /// The text.
        text: JsonStr<'a>,
    },
}

impl<'a> MediaSource<'a> {
    /// Parses an address. A base64 data URL (RFC 2397) becomes [`MediaSource::Base64`]; every other address stays a
    /// [`MediaSource::Url`].
    pub fn from_url(url: JsonStr<'a>) -> Self {
        let plain = MediaSource::Url { url, mime: JsonStr::default() };
        let text = url.escaped();
        let Some(rest) =
            text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).map(|_| &text[5..])
        else {
            return plain;
        };
        let Some((head, data)) = rest.split_once(',') else { return plain };
        let Some(head) = head.strip_suffix(";base64") else { return plain };
        let mime = head.split(';').next().unwrap_or_default();
        MediaSource::Base64 { mime: JsonStr::from_escaped(mime), data: JsonStr::from_escaped(data) }
    }
}
