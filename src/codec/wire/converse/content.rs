//! Blocks of a response while they are read, which streams and whole responses share.

use crate::canonical::answer::CitationOwned;
use crate::canonical::{BlockKind, Delta, Event, ToolKind};
use crate::wire::codec::{is_object, make_id};
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Open block of a response.
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
    /// Nothing of the block has arrived that tells its kind.
    Unknown,
    Text,
    Reasoning,
    Hidden,
    Call,
    Image,
    /// Tool that the provider runs, or its result: emitted at its end.
    Server(Box<ServerBlock>),
}

/// Call of a tool that the provider runs, or the result of one, while it arrives.
#[derive(Debug)]
struct ServerBlock {
    /// `toolUse` or `toolResult`.
    member: &'static str,
    /// Members of the start, without its braces.
    head: String,
    /// Whether the start has the input or content itself.
    is_whole: bool,
    /// Input of a call: text of JSON, escaped. Content of a result: elements of the array.
    body: String,
}

impl OpenBlock {
    /// Creates a block whose kind the first delta tells. `from` is the number of text characters before it.
    pub(super) fn unknown(from: u64) -> Self {
        OpenBlock { index: 0, kind: Kind::Unknown, sealed: false, from, length: 0, citations: Vec::new() }
    }

    /// Returns the number of text characters so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Emits the start of the block, once.
    fn begin(&mut self, kind: Kind, event: BlockKind<'_>, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if matches!(self.kind, Kind::Unknown) {
            self.index = *next;
            *next += 1;
            self.kind = kind;
            sink(Event::BlockStart { index: self.index, choice: 0, kind: event });
        }
    }

    /// Reads the value of `start`. Returns whether the block is a call to a tool of the client.
    pub(super) fn start(
        &mut self,
        start: RawJson<'_>,
        seed: &str,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, JsonError> {
        let mut called = false;
        members(&mut Cursor::new(start.text()), |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "toolUse" => called = self.call(value, seed, next, sink)?,
                "toolResult" => self.server("toolResult", value)?,
                "image" => {
                    let format = format_of(value)?;
                    let mime = super::media::MediaKind::Image.media_type(format.escaped());
                    let mime = JsonStr::from_escaped(if mime.is_empty() { "image/png" } else { mime });
                    self.begin(Kind::Image, BlockKind::Media { mime }, next, sink);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(called)
    }

    /// Reads a tool call: its start in a stream, or the whole block. Returns whether the tool is one of the client.
    pub(super) fn call(
        &mut self,
        value: RawJson<'_>,
        seed: &str,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, JsonError> {
        let (mut id, mut name, mut kind) = (JsonStr::default(), JsonStr::default(), JsonStr::default());
        let mut input = None;
        members(&mut Cursor::new(value.text()), |key, json| {
            let value = json.raw()?;
            let text = value.as_str().unwrap_or_default();
            match key.escaped() {
                "toolUseId" => id = text,
                "name" => name = text,
                "type" => kind = text,
                "input" => input = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        // The service also writes `tool_use`, for calls of the client's own tools.
        if kind.is("server_tool_use") {
            self.server("toolUse", value)?;
            return Ok(false);
        }
        if name.is_empty() {
            return Ok(false);
        }
        let made_id = make_id("tooluse_", seed, u64::from(*next));
        let id = if id.is_empty() { JsonStr::from_escaped(&made_id) } else { id };
        let event = BlockKind::ToolUse { id, name, kind: ToolKind::Function, namespace: JsonStr::default() };
        self.begin(Kind::Call, event, next, sink);
        if let Some(input) = input.filter(|input| input.text().starts_with('{')) {
            sink(Event::Delta { index: self.index, delta: Delta::Object(input) });
        }
        Ok(true)
    }

    /// Opens a block of a tool that the provider runs.
    pub(super) fn server(&mut self, member: &'static str, value: RawJson<'_>) -> Result<(), JsonError> {
        if !matches!(self.kind, Kind::Unknown) {
            return Ok(());
        }
        let mut is_whole = false;
        members(&mut Cursor::new(value.text()), |key, json| {
            is_whole |= matches!(key.escaped(), "input" | "content");
            json.skip()
        })?;
        let head = inside(value.text(), '{', '}').to_owned();
        self.kind = Kind::Server(Box::new(ServerBlock { member, head, is_whole, body: String::new() }));
        Ok(())
    }

    /// Emits a block that only this format has.
    pub(super) fn opaque(
        name: JsonStr<'_>,
        raw: RawJson<'_>,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let index = *next;
        *next += 1;
        sink(Event::BlockStart { index, choice: 0, kind: BlockKind::Opaque { name, raw } });
        sink(Event::BlockStop { index });
    }

    /// Emits text. An empty text does not open a block: some models send one before their reasoning.
    #[inline]
    pub(super) fn text(
        &mut self,
        text: JsonStr<'_>,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) -> u64 {
        if text.is_empty() {
            return 0;
        }
        self.begin(Kind::Text, BlockKind::Text, next, sink);
        if !matches!(self.kind, Kind::Text) {
            return 0;
        }
        sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
        let count = text.char_count();
        self.length += count;
        count
    }

    /// Emits reasoning text.
    pub(super) fn reasoning(&mut self, text: JsonStr<'_>, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if text.is_empty() {
            return;
        }
        self.begin(Kind::Reasoning, BlockKind::Reasoning, next, sink);
        if matches!(self.kind, Kind::Reasoning) {
            sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
        }
    }

    /// Emits the signature of reasoning, or with `hidden` the reasoning that the provider withheld.
    pub(super) fn signature(
        &mut self,
        seal: JsonStr<'_>,
        hidden: bool,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if seal.is_empty() {
            return;
        }
        match hidden {
            true => self.begin(Kind::Hidden, BlockKind::HiddenReasoning, next, sink),
            false => self.begin(Kind::Reasoning, BlockKind::Reasoning, next, sink),
        }
        let takes = matches!(self.kind, Kind::Reasoning | Kind::Hidden);
        if takes && !std::mem::replace(&mut self.sealed, true) {
            sink(Event::Delta { index: self.index, delta: Delta::Signature(seal) });
        }
    }

    /// Emits a fragment of a call's input.
    #[inline]
    pub(super) fn input(&mut self, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        match &mut self.kind {
            Kind::Call if !text.is_empty() => {
                sink(Event::Delta { index: self.index, delta: Delta::Arguments(text) });
            }
            Kind::Server(server) => server.body.push_str(text.escaped()),
            _ => {}
        }
    }

    /// Emits bytes of an image, in base64.
    pub(super) fn image(&mut self, data: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if matches!(self.kind, Kind::Image) && !data.is_empty() {
            sink(Event::Delta { index: self.index, delta: Delta::Data(data) });
        }
    }

    /// Emits a whole image block.
    pub(super) fn whole_image(
        &mut self,
        value: RawJson<'_>,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let format = format_of(value)?;
        let mime = super::media::MediaKind::Image.media_type(format.escaped());
        let mime = JsonStr::from_escaped(if mime.is_empty() { "image/png" } else { mime });
        if let Some(data) = bytes_of(value)? {
            self.begin(Kind::Image, BlockKind::Media { mime }, next, sink);
            self.image(data, sink);
        }
        Ok(())
    }

    /// Stores parts of the result of a tool that the provider ran: an array of blocks.
    pub(super) fn result(&mut self, content: RawJson<'_>) {
        if let Kind::Server(server) = &mut self.kind {
            let inside = inside(content.text(), '[', ']');
            if !server.body.is_empty() && !inside.is_empty() {
                server.body.push(',');
            }
            server.body.push_str(inside);
        }
    }

    /// Stores a citation. A citation without text before it opens a text block: some models cite in a block of its own.
    pub(super) fn cite(&mut self, citation: CitationOwned, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        self.begin(Kind::Text, BlockKind::Text, next, sink);
        if matches!(self.kind, Kind::Text) {
            self.citations.push(citation);
        }
    }

    /// Closes the block.
    pub(super) fn end(mut self, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        match &self.kind {
            Kind::Unknown => return,
            Kind::Server(server) => {
                let raw = server.raw();
                let name = JsonStr::from_escaped(server.member);
                return OpenBlock::opaque(name, RawJson::from_text(&raw), next, sink);
            }
            _ => {}
        }
        for citation in &mut self.citations {
            // A citation covers the text of its block; one in a block of its own covers the text before it.
            let from = if self.length == 0 { 0 } else { self.from };
            citation.span = Some((from, self.from + self.length)).filter(|(from, to)| from < to);
            sink(Event::Delta { index: self.index, delta: Delta::Citation(citation.borrow()) });
        }
        sink(Event::BlockStop { index: self.index });
    }
}

impl ServerBlock {
    /// Returns the block with its input or content.
    fn raw(&self) -> String {
        let mut out = Vec::with_capacity(self.head.len() + self.body.len() + 48);
        let mut json = Writer::new(&mut out);
        json.begin_object().key(self.member);
        let comma = if self.head.is_empty() { "" } else { "," };
        let input = JsonStr::from_escaped(&self.body).decode();
        let member = match self.member {
            _ if self.is_whole => String::new(),
            "toolUse" if is_object(&input) => format!("{comma}\"input\":{}", input.trim()),
            "toolUse" => format!("{comma}\"input\":{{}}"),
            _ => format!("{comma}\"content\":[{}]", self.body),
        };
        let value = format!("{{{}{member}}}", self.head);
        json.raw(RawJson::from_text(&value)).end_object();
        String::from_utf8(out).unwrap_or_default()
    }
}

/// Returns the inside of an object or array. Empty for any other value.
fn inside(text: &str, open: char, close: char) -> &str {
    let inside = text.trim().strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    inside.unwrap_or_default().trim()
}

/// Returns the member `format` of a media block.
fn format_of(value: RawJson<'_>) -> Result<JsonStr<'_>, JsonError> {
    let mut format = JsonStr::default();
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        if key.is("format") {
            format = value.as_str().unwrap_or_default();
        }
        Ok(())
    })?;
    Ok(format)
}

/// Returns the bytes of a media block, in base64. `None` if its source is another one.
pub(super) fn bytes_of(value: RawJson<'_>) -> Result<Option<JsonStr<'_>>, JsonError> {
    let mut data = None;
    members(&mut Cursor::new(value.text()), |key, json| {
        if !key.is("source") {
            return json.skip();
        }
        members(json, |key, json| {
            let value = json.raw()?;
            if key.is("bytes") {
                data = value.as_str();
            }
            Ok(())
        })
    })?;
    Ok(data)
}

/// Returns whether an opaque block belongs to this format. `name` is its member.
pub(super) fn is_own(name: &str) -> bool {
    matches!(
        name,
        "toolUse" | "toolResult" | "document" | "video" | "audio" | "searchResult" | "guardContent"
    )
}
