//! Decoder of content blocks, whole or growing, which streams and whole responses share; helpers to write them.

use std::ops::Range;

use super::citation;
use crate::canonical::answer::CitationOwned;
use crate::canonical::seal::{RenamedCallId, SignedCallId};
use crate::canonical::{BlockKind, Delta, Event, SealedSignature, ToolKind};
use crate::wire::codec::{ReplyOptions, make_id};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, push_escaped};

/// Members of a content block.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    raw: RawJson<'a>,
    kind: JsonStr<'a>,
    text: JsonStr<'a>,
    thinking: JsonStr<'a>,
    signature: JsonStr<'a>,
    data: JsonStr<'a>,
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    input: Option<RawJson<'a>>,
    /// End of the input in the block's text, as byte offset.
    input_end: usize,
    citations: Option<RawJson<'a>>,
}

impl<'a> Content<'a> {
    /// Parses a block.
    pub(super) fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut content = Content {
            raw,
            kind: JsonStr::default(),
            text: JsonStr::default(),
            thinking: JsonStr::default(),
            signature: JsonStr::default(),
            data: JsonStr::default(),
            id: JsonStr::default(),
            name: JsonStr::default(),
            input: None,
            input_end: 0,
            citations: None,
        };
        members(&mut Cursor::new(raw.text()), |key, json| {
            let value = json.raw()?;
            let text = value.as_str().unwrap_or_default();
            match key.escaped() {
                "type" => content.kind = text,
                "text" => content.text = text,
                "thinking" => content.thinking = text,
                "signature" => content.signature = text,
                "data" => content.data = text,
                "id" => content.id = text,
                "name" => content.name = text,
                "input" => (content.input, content.input_end) = (Some(value), json.offset()),
                "citations" => content.citations = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(content)
    }

    /// Returns whether the block is a call to a tool of the client.
    pub(super) fn is_call(&self) -> bool {
        self.kind.escaped() == "tool_use" && !self.name.is_empty()
    }

    /// Returns whether the block is a web search that the provider runs.
    pub(super) fn is_search(&self) -> bool {
        self.kind.escaped() == "server_tool_use" && self.name.escaped() == "web_search"
    }

    /// Returns the input. `None` unless it is an object with a member.
    fn full_input(&self) -> Option<RawJson<'a>> {
        let inside = self.input?.text().strip_prefix('{')?.strip_suffix('}')?;
        self.input.filter(|_| !inside.trim_ascii().is_empty())
    }

    fn input_at(&self) -> Option<Range<usize>> {
        self.input.map(|input| self.input_end.saturating_sub(input.text().len())..self.input_end)
    }
}

/// Open block of a stream.
#[derive(Debug)]
pub(super) struct OpenBlock {
    /// Index of the block's events.
    index: u32,
    kind: Kind,
    sealed: bool,
    /// Start of its text within the whole text, and the length of its text, in characters.
    from: u64,
    length: u64,
    /// Citations, which are emitted at the end of the block, when the length of its text is known.
    citations: Vec<CitationOwned>,
}

#[derive(Debug)]
enum Kind {
    Text,
    Reasoning,
    Hidden,
    Call {
        /// Whether the input arrived as an object.
        whole: bool,
    },
    /// Block of a kind that only this format has. `Some` while its input arrives in pieces: then it is emitted at its
    /// end.
    Foreign(Option<Box<Grown>>),
    /// Block that is ignored.
    Nothing,
}

/// Call of a tool that the provider runs, while its input arrives.
#[derive(Debug)]
struct Grown {
    name: String,
    raw: String,
    input_at: Option<Range<usize>>,
    input: String,
}

impl OpenBlock {
    /// Opens a block and emits its first events. `next` is the index of the next event block, `from` the number of text
    /// characters before it.
    pub(super) fn begin(
        content: &Content<'_>,
        seed: &str,
        next: &mut u32,
        from: u64,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<Self, JsonError> {
        let made_id;
        let kind = match content.kind.escaped() {
            "text" => BlockKind::Text,
            "thinking" => BlockKind::Reasoning,
            "redacted_thinking" => BlockKind::HiddenReasoning,
            // Some providers send an empty block if no tool is called.
            "" | "tool_use" if content.name.is_empty() => {
                return Ok(OpenBlock::new(*next, Kind::Nothing, from));
            }
            "tool_use" => {
                made_id = make_id("toolu_", seed, u64::from(*next));
                let id = if content.id.is_empty() { JsonStr::from_escaped(&made_id) } else { content.id };
                let kind = ToolKind::Function;
                BlockKind::ToolUse { id, name: content.name, kind, namespace: JsonStr::default() }
            }
            "server_tool_use" | "mcp_tool_use" if content.full_input().is_none() => {
                let grown = Grown {
                    name: content.kind.escaped().to_owned(),
                    raw: content.raw.text().to_owned(),
                    input_at: content.input_at(),
                    input: String::new(),
                };
                // The input follows in deltas. An opaque block is emitted as one event, so it waits for its end.
                return Ok(OpenBlock::new(*next, Kind::Foreign(Some(Box::new(grown))), from));
            }
            _ => BlockKind::Opaque { name: content.kind, raw: content.raw },
        };
        let mut open = OpenBlock::begin_bare(kind, next, from, sink);
        match open.kind {
            Kind::Text => {
                open.text(content.text, sink);
                if let Some(citations) = content.citations {
                    elements(&mut Cursor::new(citations.text()), |json| open.cite(json.raw()?))?;
                }
            }
            Kind::Reasoning => {
                open.thinking(content.thinking, sink);
                open.signature(content.signature, sink);
            }
            Kind::Hidden => open.signature(content.data, sink),
            Kind::Call { ref mut whole } => {
                if let Some(input) = content.full_input() {
                    *whole = true;
                    sink(Event::Delta { index: open.index, delta: Delta::Object(input) });
                }
            }
            Kind::Foreign(_) | Kind::Nothing => {}
        }
        Ok(open)
    }

    /// Opens a block of which only the kind is known.
    pub(super) fn begin_bare(
        kind: BlockKind<'_>,
        next: &mut u32,
        from: u64,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Self {
        let index = *next;
        *next += 1;
        sink(Event::BlockStart { index, choice: 0, kind });
        let kind = match kind {
            BlockKind::Text => Kind::Text,
            BlockKind::Reasoning => Kind::Reasoning,
            BlockKind::HiddenReasoning => Kind::Hidden,
            BlockKind::ToolUse { .. } => Kind::Call { whole: false },
            _ => Kind::Foreign(None),
        };
        OpenBlock::new(index, kind, from)
    }

    fn new(index: u32, kind: Kind, from: u64) -> Self {
        OpenBlock { index, kind, sealed: false, from, length: 0, citations: Vec::new() }
    }

    /// Returns the number of text characters so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Emits text. Returns its number of characters.
    #[inline]
    pub(super) fn text(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) -> u64 {
        if text.is_empty() || !matches!(self.kind, Kind::Text) {
            return 0;
        }
        sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
        let count = text.char_count();
        self.length += count;
        count
    }

    /// Emits reasoning text.
    #[inline]
    pub(super) fn thinking(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if !text.is_empty() && matches!(self.kind, Kind::Reasoning) {
            sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
        }
    }

    /// Emits a part of a call's input.
    #[inline]
    pub(super) fn arguments(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        match &mut self.kind {
            Kind::Call { whole: false } if !text.is_empty() => {
                sink(Event::Delta { index: self.index, delta: Delta::Arguments(text) });
            }
            Kind::Foreign(Some(grown)) => grown.input.push_str(text.escaped()),
            _ => {}
        }
    }

    /// Emits a provider signature. Only the first one counts.
    pub(super) fn signature(&mut self, seal: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let takes = matches!(self.kind, Kind::Reasoning | Kind::Hidden);
        if takes && !seal.is_empty() && !std::mem::replace(&mut self.sealed, true) {
            sink(Event::Delta { index: self.index, delta: Delta::Signature(seal) });
        }
    }

    /// Stores a citation.
    pub(super) fn cite(&mut self, citation: RawJson<'_>) -> Result<(), JsonError> {
        if matches!(self.kind, Kind::Text) {
            self.citations.push(citation::read(citation)?);
        }
        Ok(())
    }

    /// Closes the block.
    pub(super) fn end(mut self, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if let Kind::Foreign(Some(grown)) = &self.kind {
            // The index is assigned now: blocks that began meanwhile have taken the earlier ones.
            self.index = *next;
            *next += 1;
            let raw = grown.raw();
            let kind =
                BlockKind::Opaque { name: JsonStr::from_escaped(&grown.name), raw: RawJson::from_text(&raw) };
            sink(Event::BlockStart { index: self.index, choice: 0, kind });
        }
        if matches!(self.kind, Kind::Nothing) {
            return;
        }
        for citation in &mut self.citations {
            // A citation covers its whole block: the provider starts a new block for each cited passage.
            citation.span = Some((self.from, self.from + self.length));
            sink(Event::Delta { index: self.index, delta: Delta::Citation(citation.borrow()) });
        }
        sink(Event::BlockStop { index: self.index });
    }
}

impl Grown {
    /// Returns the block with the complete input inserted.
    fn raw(&self) -> String {
        let object = super::arguments::object_of(JsonStr::from_escaped(&self.input));
        match (object, &self.input_at) {
            (Some(object), Some(at)) if self.raw.get(at.clone()).is_some() => {
                let mut raw = self.raw.clone();
                raw.replace_range(at.clone(), &object);
                raw
            }
            _ => self.raw.clone(),
        }
    }
}

/// Returns whether an opaque block belongs to this format. `name` is its type.
pub(super) fn is_own(name: JsonStr<'_>) -> bool {
    let name = name.escaped();
    matches!(name, "server_tool_use" | "mcp_tool_use" | "container_upload" | "fallback")
        || name.ends_with("_tool_result")
}

/// Returns a call's id for the client, with the provider signature that it carries.
pub(super) fn call_id(id: &str, seal: &str, reply: &ReplyOptions) -> String {
    let mut out = Vec::with_capacity(id.len() + seal.len() + 32);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.bytes().all(fits) {
        out.extend_from_slice(id.as_bytes());
    } else {
        // Clients of this format keep ids that its own provider would refuse.
        let legal: String = id.chars().map(|c| if c.is_ascii() && fits(c as u8) { c } else { '_' }).collect();
        let own = SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(id) };
        RenamedCallId::write(&legal, own, &mut out);
    }
    if !seal.is_empty() {
        SignedCallId::write(
            SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) },
            &mut out,
        );
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Returns a provider signature in its envelope, for the client.
pub(super) fn envelope(seal: &str, reply: &ReplyOptions) -> String {
    let mut out = Vec::new();
    SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) }.write(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns JSON text as the inside of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    push_escaped(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}
