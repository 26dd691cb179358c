//! A block of an answer, whole or growing: what its members mean in the hub. Streams and whole answers share it.

use std::ops::Range;

use bytes::BufMut;

use crate::canonical::answer::CitationOwned;
use crate::canonical::seal::Carried;
use crate::canonical::{self, BlockKind, Delta, Event, Sealed, ToolKind};
use crate::json::{Cursor, JsonError, JsonStr, RawJson, Writer, push_escaped};
use crate::wire::codec::{ReplyOptions, make_id};
use crate::wire::watch::{elements, members};

/// A block, as it was written.
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
    /// Where the input ends in the block's text.
    input_end: usize,
    citations: Option<RawJson<'a>>,
}

impl<'a> Content<'a> {
    /// Reads a block.
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

    /// The client is to run a tool.
    pub(super) fn is_call(&self) -> bool {
        self.kind.escaped() == "tool_use" && !self.name.is_empty()
    }

    /// The provider searches the web.
    pub(super) fn is_search(&self) -> bool {
        self.kind.escaped() == "server_tool_use" && self.name.escaped() == "web_search"
    }

    /// The input, if it is an object with something in it.
    fn full_input(&self) -> Option<RawJson<'a>> {
        let inside = self.input?.text().strip_prefix('{')?.strip_suffix('}')?;
        self.input.filter(|_| !inside.trim_ascii().is_empty())
    }

    fn input_at(&self) -> Option<Range<usize>> {
        self.input.map(|input| self.input_end.saturating_sub(input.text().len())..self.input_end)
    }
}

/// A block that grows.
#[derive(Debug)]
pub(super) struct Open {
    /// Its index in the hub.
    index: u32,
    kind: Kind,
    sealed: bool,
    /// Where its text begins in the whole text, and how long it is: characters.
    from: u64,
    length: u64,
    /// They are told when it is known how far the text goes.
    citations: Vec<CitationOwned>,
}

#[derive(Debug)]
enum Kind {
    Text,
    Reasoning,
    Hidden,
    Call {
        /// Its input came as an object.
        whole: bool,
    },
    /// Of the provider's own. `grown` is for those whose input grows: they are told when they are complete.
    Foreign(Option<Box<Grown>>),
    /// Nothing that can be told.
    Nothing,
}

/// A tool that the provider runs, while its input arrives.
#[derive(Debug)]
struct Grown {
    name: String,
    raw: String,
    input_at: Option<Range<usize>>,
    input: String,
}

impl Open {
    /// A block begins. `next` is the index of the next block in the hub, `from` the characters of text before it.
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
            // A shell that some providers send when there was nothing to call.
            "" | "tool_use" if content.name.is_empty() => return Ok(Open::new(*next, Kind::Nothing, from)),
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
                return Ok(Open::new(*next, Kind::Foreign(Some(Box::new(grown))), from));
            }
            _ => BlockKind::Opaque { name: content.kind, raw: content.raw },
        };
        let mut open = Open::bare(kind, next, from, sink);
        match open.kind {
            Kind::Text => {
                open.text(content.text, sink);
                if let Some(citations) = content.citations {
                    elements(&mut Cursor::new(citations.text()), |json| open.cite(json.raw()?))?;
                }
            }
            Kind::Reasoning => {
                open.thinking(content.thinking, sink);
                open.seal(content.signature, sink);
            }
            Kind::Hidden => open.seal(content.data, sink),
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

    /// A block of which nothing more is known than its kind.
    pub(super) fn bare(
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
        Open::new(index, kind, from)
    }

    fn new(index: u32, kind: Kind, from: u64) -> Self {
        Open { index, kind, sealed: false, from, length: 0, citations: Vec::new() }
    }

    /// Characters of text so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// More text; returns how many characters.
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

    /// More reasoning.
    #[inline]
    pub(super) fn thinking(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if !text.is_empty() && matches!(self.kind, Kind::Reasoning) {
            sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
        }
    }

    /// More of a call's input.
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

    /// A signature.
    pub(super) fn seal(&mut self, seal: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let takes = matches!(self.kind, Kind::Reasoning | Kind::Hidden);
        if takes && !seal.is_empty() && !std::mem::replace(&mut self.sealed, true) {
            sink(Event::Delta { index: self.index, delta: Delta::Seal(seal) });
        }
    }

    /// Where its text is from.
    pub(super) fn cite(&mut self, citation: RawJson<'_>) -> Result<(), JsonError> {
        let mut cited = CitationOwned::default();
        members(&mut Cursor::new(citation.text()), |key, json| {
            let value = json.raw()?;
            let set = |slot: &mut String| {
                if let Some(text) = value.as_str() {
                    text.escaped().clone_into(slot);
                }
            };
            match key.escaped() {
                "url" => set(&mut cited.url),
                "title" | "document_title" => set(&mut cited.title),
                "cited_text" => set(&mut cited.quote),
                _ => {}
            }
            Ok(())
        })?;
        if matches!(self.kind, Kind::Text) {
            self.citations.push(cited);
        }
        Ok(())
    }

    /// The block is complete.
    pub(super) fn end(mut self, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if let Kind::Foreign(Some(grown)) = &self.kind {
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
            // A citation is of the whole block: that is why there is a block of its own.
            citation.span = Some((self.from, self.from + self.length));
            sink(Event::Delta { index: self.index, delta: Delta::Citation(citation.borrow()) });
        }
        sink(Event::BlockStop { index: self.index });
    }
}

impl Grown {
    /// The block with the input in its place.
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

/// Whether a block of the hub that no other format has a word for is one of this format.
pub(super) fn is_own(name: JsonStr<'_>) -> bool {
    let name = name.escaped();
    matches!(name, "server_tool_use" | "mcp_tool_use" | "container_upload" | "fallback")
        || name.ends_with("_tool_result")
}

/// A call's id as the client gets it, with what it must carry.
pub(super) fn call_id(id: &str, seal: &str, reply: &ReplyOptions) -> String {
    let mut out = id.as_bytes().to_vec();
    if !seal.is_empty() {
        Carried::write(Sealed { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) }, &mut out);
    }
    String::from_utf8(out).unwrap_or_default()
}

/// A seal as the client gets it.
pub(super) fn envelope(seal: &str, reply: &ReplyOptions) -> String {
    let mut out = Vec::new();
    Sealed { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) }.write(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Writes where a text is from. Only what has an address can be said here without the document that it stands in.
pub(super) fn put_citation<B: BufMut>(citation: &canonical::Citation<'_>, json: &mut Writer<'_, B>) {
    json.begin_object().key("type").string("web_search_result_location");
    json.key("url").paste(citation.url).key("title");
    if citation.title.is_empty() {
        json.null();
    } else {
        json.paste(citation.title);
    }
    json.key("cited_text").paste(citation.quote).key("encrypted_index").string("").end_object();
}

/// JSON text as the inside of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    push_escaped(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}
