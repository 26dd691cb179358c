//! Content of a conversation: turns and their blocks.

use super::seal::ProviderSignature;
use super::{Input, ToolKind};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

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
    /// Search result that the client supplies, so that the response can cite it.
    SearchResult(Box<SearchResult<'a>>),
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
        /// Result as one JSON value, in formats that carry it so.
        object: Option<ResultObject<'a>>,
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

/// Search result that the client supplies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchResult<'a> {
    /// Title; may be empty.
    pub title: JsonStr<'a>,
    /// Where it is from: an address or another name; may be empty.
    pub source: JsonStr<'a>,
    /// Its texts.
    pub texts: Vec<JsonStr<'a>>,
    /// Whether the response is to cite it.
    pub cites: bool,
    /// Prompt-cache breakpoint behind this block.
    pub cache: Option<CacheBreakpoint>,
}

/// Result of a tool as one JSON value: mostly an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultObject<'a> {
    raw: RawJson<'a>,
    wrapped: Option<JsonStr<'a>>,
    reports_error: bool,
}

/// Names of the only member of an object that wraps a text.
const WRAPPERS: [&str; 3] = ["output", "result", "error"];

impl<'a> ResultObject<'a> {
    /// Reads a value of any kind. Its members are looked at while they are skipped: results are long, and encoders would have
    /// to scan them once more.
    ///
    /// # Errors
    /// Returns an error if the text is not JSON.
    pub fn read(json: &mut Cursor<'a>) -> Result<Self, JsonError> {
        if json.kind()? != ValueKind::Object {
            return Ok(ResultObject { raw: json.raw()?, wrapped: None, reports_error: false });
        }
        let from = json.offset();
        let (mut members, mut wrapped, mut reports_error) = (0usize, None, false);
        json.begin_object()?;
        while let Some(name) = json.next_key()? {
            members += 1;
            let kind = json.kind()?;
            reports_error |= kind != ValueKind::Null && name.is("error");
            if kind == ValueKind::String {
                let text = json.string()?;
                wrapped = WRAPPERS.iter().any(|known| name.is(known)).then_some(text);
            } else {
                json.skip()?;
            }
        }
        let wrapped = wrapped.filter(|_| members == 1);
        Ok(ResultObject { raw: json.since(from), wrapped, reports_error })
    }

    /// The value as it arrived.
    pub fn raw(self) -> RawJson<'a> {
        self.raw
    }

    /// Text of an object with a single text member `output`, `result` or `error`, such as `{"output":"..."}`. Formats that
    /// require an object for a tool result wrap plain text this way. `None` for any other value.
    pub fn wrapped_text(self) -> Option<JsonStr<'a>> {
        self.wrapped
    }

    /// Whether the only member is a text `error`.
    pub fn wraps_error(self) -> bool {
        self.wrapped.is_some() && self.reports_error
    }

    /// Whether an object has a member `error` that is not `null`, among others or alone.
    pub fn reports_error(self) -> bool {
        self.reports_error
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a value that others follow. Returns its wrapped text, whether it wraps an error, and whether it reports one.
    fn read(value: &str) -> (Option<&str>, bool, bool) {
        let text = format!("[ {value} ,7]").leak();
        let mut json = Cursor::new(text);
        json.begin_array().unwrap();
        assert!(json.next_element().unwrap());
        let object = ResultObject::read(&mut json).unwrap();
        assert_eq!(object.raw().text(), value);
        assert!(json.next_element().unwrap());
        assert_eq!(json.u64_or_skip().unwrap(), Some(7));
        (object.wrapped_text().map(JsonStr::escaped), object.wraps_error(), object.reports_error())
    }

    #[test]
    fn result_object_wraps_a_text_if_it_is_the_only_member() {
        assert_eq!(read(r#"{"output":"a\n\"b"}"#), (Some(r#"a\n\"b"#), false, false));
        assert_eq!(read(r#"{ "r\u0065sult" : "" }"#), (Some(""), false, false));
        assert_eq!(read(r#"{"error":"late"}"#), (Some("late"), true, true));
        assert_eq!(read(r#"{"output":"a","output":"b"}"#), (None, false, false));
        assert_eq!(read(r#"{"output":"a","exit":1}"#), (None, false, false));
        assert_eq!(read(r#"{"exit":1,"output":"a"}"#), (None, false, false));
        assert_eq!(read(r#"{"text":"a"}"#), (None, false, false));
        assert_eq!(read(r#"{"output":{"output":"a"}}"#), (None, false, false));
    }

    #[test]
    fn result_object_reports_an_error_that_is_not_null() {
        assert_eq!(read(r#"{"exit":1,"error":{"code":5}}"#), (None, false, true));
        assert_eq!(read(r#"{"error":null,"output":"a"}"#), (None, false, false));
        assert_eq!(read(r#"{"output":{"error":"a"}}"#), (None, false, false));
        assert_eq!(read("[1,{\"error\":2}]"), (None, false, false));
        assert_eq!(read("5"), (None, false, false));
    }

    #[test]
    fn result_object_that_is_broken_is_an_error() {
        for broken in
            ["", "{", r#"{"output""#, r#"{"output":}"#, r#"{"output":"a"#, r#"{"output":"a"]"#, "{5}"]
        {
            assert!(ResultObject::read(&mut Cursor::new(broken)).is_err(), "{broken}");
        }
    }
}
