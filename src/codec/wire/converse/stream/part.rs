//! Block writer of a Converse stream: the output state of one block.

use base64_simd::STANDARD;
use bytes::BytesMut;

use super::super::citation;
use super::super::media::MediaKind;
use crate::canonical::answer::CitationOwned;
use crate::canonical::seal::UNSIGNED;
use crate::canonical::{BlockKind, Delta, SealedSignature, ToolKind};
use crate::wire::codec::{ReplyOptions, is_object};
use crate::wire::encoded_twice::object_in;
use crate::wire::watch::members;
use framing::event_stream::MessageWriter;
use json::{Cursor, JsonStr, RawJson, Sink, Writer, push_escaped, with_whole_characters};

/// Headers of an event, in Bedrock's order. The number in front of the name is its length.
macro_rules! headers {
    ($length:literal, $name:literal) => {
        concat!(
            "\x0b:event-type\x07\x00",
            $length,
            $name,
            "\x0d:content-type\x07\x00\x10application/json\x0d:message-type\x07\x00\x05event"
        )
        .as_bytes()
    };
}

/// Event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageStop,
    Metadata,
}

/// Headers of the message of a content delta, byte for byte as Bedrock writes them.
pub const DELTA_HEADERS: &[u8] = EventType::BlockDelta.headers();

impl EventType {
    /// Returns the headers of a message with this event.
    const fn headers(self) -> &'static [u8] {
        match self {
            EventType::MessageStart => headers!("\x0c", "messageStart"),
            EventType::BlockStart => headers!("\x11", "contentBlockStart"),
            EventType::BlockDelta => headers!("\x11", "contentBlockDelta"),
            EventType::BlockStop => headers!("\x10", "contentBlockStop"),
            EventType::MessageStop => headers!("\x0b", "messageStop"),
            EventType::Metadata => headers!("\x08", "metadata"),
        }
    }

    /// Writes a message whose payload `write` appends.
    #[inline]
    pub(super) fn write(self, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        let message = MessageWriter::begin(self.headers(), out);
        write(out);
        message.end(out);
    }
}

/// Kind of a block in this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockForm {
    Text,
    Reasoning,
    Redacted,
    Call(ToolKind),
    /// Image of this format.
    Image(&'static str),
    /// Block of a tool that the provider ran: written at once.
    Server,
    /// This format cannot carry the block, or the client does not want it.
    Nothing,
}

/// Block with its output state and buffered content.
#[derive(Debug)]
pub(super) struct EncodedBlock {
    pub(super) form: BlockForm,
    /// Whether its stop event has arrived.
    pub(super) stopped: bool,
    /// Index of the block in the output while it is open there.
    open: Option<u32>,
    /// Whether the block was closed in the output. Later text opens a new block.
    done: bool,
    /// Whether a call has had any input in the output.
    has_input: bool,
    /// Text, input or image bytes waiting for output, escaped; or the JSON of a block that is written at once.
    held: String,
    seal: String,
    id: String,
    name: String,
    citations: Vec<CitationOwned>,
}

impl EncodedBlock {
    /// Creates the writer of a block. Blocks of other choices are ignored, because the format has only one.
    pub(super) fn new(kind: BlockKind<'_>, first_choice: bool, show_thinking: bool) -> Self {
        let form = match kind {
            _ if !first_choice => BlockForm::Nothing,
            BlockKind::Text | BlockKind::Refusal => BlockForm::Text,
            BlockKind::Reasoning if show_thinking => BlockForm::Reasoning,
            BlockKind::HiddenReasoning if show_thinking => BlockForm::Redacted,
            BlockKind::ToolUse { kind, .. } => BlockForm::Call(kind),
            BlockKind::Media { mime } => {
                MediaKind::Image.format(&mime.decode()).map_or(BlockForm::Nothing, BlockForm::Image)
            }
            BlockKind::Opaque { name, .. } if matches!(name.escaped(), "toolUse" | "toolResult") => {
                BlockForm::Server
            }
            _ => BlockForm::Nothing,
        };
        let mut block = EncodedBlock {
            form,
            stopped: false,
            open: None,
            done: false,
            has_input: false,
            held: String::new(),
            seal: String::new(),
            id: String::new(),
            name: String::new(),
            citations: Vec::new(),
        };
        match kind {
            BlockKind::ToolUse { id, name, .. } if form != BlockForm::Nothing => {
                block.id = id.escaped().to_owned();
                block.name = name.escaped().to_owned();
            }
            BlockKind::Opaque { raw, .. } if form == BlockForm::Server => {
                raw.text().clone_into(&mut block.held);
            }
            _ => {}
        }
        block
    }

    /// Returns whether another block may replace it in the output before it ends.
    pub(super) fn may_yield(&self) -> bool {
        self.form == BlockForm::Text
    }

    /// Returns whether it has content to output or still needs to be opened.
    pub(super) fn needs_output(&self) -> bool {
        match self.form {
            BlockForm::Nothing => false,
            BlockForm::Text => !self.held.is_empty() || !self.citations.is_empty(),
            _ => !self.done,
        }
    }

    /// Buffers a delta while another block is open in the output.
    pub(super) fn buffer(&mut self, delta: Delta<'_>) {
        match delta {
            _ if matches!(self.form, BlockForm::Nothing | BlockForm::Server) => {}
            Delta::Text(text) | Delta::Arguments(text) | Delta::Data(text) => {
                self.held.push_str(text.escaped());
            }
            Delta::Object(object) => self.held.push_str(&escaped(object.text())),
            Delta::Signature(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Citation(citation) => self.citations.push(CitationOwned::own(&citation)),
            Delta::Url(_) | Delta::Logprobs(_) => {}
        }
    }

    /// Writes the buffered content. Called when the block becomes the current one.
    pub(super) fn release(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        if matches!(self.form, BlockForm::Server | BlockForm::Image(_)) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let text = JsonStr::from_escaped(&held);
        if !held.is_empty() {
            let is_call = matches!(self.form, BlockForm::Call(_));
            let delta = if is_call { Delta::Arguments(text) } else { Delta::Text(text) };
            self.delta(delta, next, reply, out);
        }
        for citation in std::mem::take(&mut self.citations) {
            self.delta(Delta::Citation(citation.borrow()), next, reply, out);
        }
    }

    /// Writes a delta.
    #[inline]
    pub(super) fn delta(
        &mut self,
        delta: Delta<'_>,
        next: &mut u32,
        reply: &ReplyOptions,
        out: &mut BytesMut,
    ) {
        match (delta, self.form) {
            (Delta::Text(text), BlockForm::Text) if !text.is_empty() => {
                let index = self.open(next, reply, out);
                put_delta(index, br#","delta":{"text":""#, br#""}}"#, text.escaped().as_bytes(), out);
            }
            (Delta::Text(text), BlockForm::Reasoning) if !text.is_empty() => {
                let index = self.open(next, reply, out);
                let head = br#","delta":{"reasoningContent":{"text":""#;
                put_delta(index, head, br#""}}}"#, text.escaped().as_bytes(), out);
            }
            (Delta::Arguments(text), BlockForm::Call(kind)) if !text.is_empty() => match kind {
                ToolKind::Function => self.input(text.escaped(), next, reply, out),
                // Free text is a member of the object that this format requires. It gets one more level of escapes.
                ToolKind::Custom => {
                    let begin = if self.has_input { "" } else { r#"{\"input\":\""# };
                    let text = [begin, &escaped(text.escaped())].concat();
                    self.input(&text, next, reply, out);
                }
            },
            (Delta::Object(object), BlockForm::Call(_)) => {
                self.input(&escaped(object.text()), next, reply, out);
            }
            (Delta::Citation(citation), BlockForm::Text) => {
                let index = self.open(next, reply, out);
                EventType::BlockDelta.write(out, |out| {
                    put_index(index, br#","delta":{"citation":"#, out);
                    citation::write(&citation, &mut Writer::new(out));
                    out.put_slice(b"}}");
                });
            }
            (Delta::Data(_) | Delta::Signature(_), _) => self.buffer(delta),
            _ => {}
        }
    }

    fn input(&mut self, text: &str, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        let index = self.open(next, reply, out);
        self.has_input = true;
        put_delta(index, br#","delta":{"toolUse":{"input":""#, br#""}}}"#, text.as_bytes(), out);
    }

    /// Opens the block in the output if it is not open. Returns its index.
    #[inline]
    fn open(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) -> u32 {
        match self.open {
            Some(index) => index,
            None => self.put_start(next, reply, out),
        }
    }

    /// Opens the block. Only calls and images have an event for it.
    #[cold]
    fn put_start(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) -> u32 {
        if matches!(self.form, BlockForm::Call(_)) && !self.seal.is_empty() {
            let envelope = envelope_of_call(&self.seal, reply);
            let head = br#","delta":{"reasoningContent":{"signature":""#;
            put_delta(*next, head, br#""}}}"#, envelope.as_bytes(), out);
            EventType::BlockStop.write(out, |out| put_index(*next, b"}", out));
            *next += 1;
        }
        let index = *next;
        *next += 1;
        self.open = Some(index);
        match self.form {
            BlockForm::Call(_) => EventType::BlockStart.write(out, |out| {
                put_index(index, br#","start":"#, out);
                let mut json = Writer::new(out);
                json.begin_object().key("toolUse").begin_object();
                json.key("toolUseId").paste(JsonStr::from_escaped(&self.id));
                json.key("name").paste(JsonStr::from_escaped(&self.name));
                json.end_object().end_object();
                out.put_u8(b'}');
            }),
            BlockForm::Image(format) => EventType::BlockStart.write(out, |out| {
                put_index(index, br#","start":"#, out);
                let mut json = Writer::new(out);
                json.begin_object().key("image").begin_object().key("format").string(format);
                json.end_object().end_object();
                out.put_u8(b'}');
            }),
            _ => {}
        }
        index
    }

    /// Closes the block in the output.
    pub(super) fn close(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        match self.form {
            BlockForm::Call(kind) if !self.done => {
                self.open(next, reply, out);
                match (kind, self.has_input) {
                    (ToolKind::Custom, true) => self.input(r#"\"}"#, next, reply, out),
                    // Applications parse the concatenated input, and no text is no JSON.
                    (_, false) => self.input("{}", next, reply, out),
                    _ => {}
                }
            }
            BlockForm::Reasoning if self.open.is_some() || !self.seal.is_empty() => {
                let index = self.open(next, reply, out);
                let envelope = match self.seal.is_empty() {
                    true => UNSIGNED.to_owned(),
                    false => envelope(&self.seal, reply),
                };
                let head = br#","delta":{"reasoningContent":{"signature":""#;
                put_delta(index, head, br#""}}}"#, envelope.as_bytes(), out);
            }
            BlockForm::Redacted if !self.seal.is_empty() => {
                let index = self.open(next, reply, out);
                let envelope = blob(&self.seal, reply);
                let head = br#","delta":{"reasoningContent":{"redactedContent":""#;
                put_delta(index, head, br#""}}}"#, envelope.as_bytes(), out);
            }
            BlockForm::Image(_) if !self.held.is_empty() => {
                let index = self.open(next, reply, out);
                let held = std::mem::take(&mut self.held);
                let head = br#","delta":{"image":{"source":{"bytes":""#;
                put_delta(index, head, br#""}}}}"#, held.as_bytes(), out);
            }
            BlockForm::Server if !self.done => {
                let index = self.open(next, reply, out);
                put_server(index, &self.held, out);
            }
            _ => {}
        }
        self.done = true;
        if let Some(index) = self.open.take() {
            EventType::BlockStop.write(out, |out| put_index(index, b"}", out));
        }
    }
}

/// Writes the beginning of a payload: the index of the block and what follows it.
#[inline]
pub(super) fn put_index(index: u32, then: &[u8], out: &mut BytesMut) {
    out.put_slice(b"{\"contentBlockIndex\":");
    out.put_slice(itoa::Buffer::new().format(index).as_bytes());
    out.put_slice(then);
}

/// Writes a delta whose content is a string that is already escaped, between the two parts of the payload: `head` is
/// what follows the index, `tail` is what follows the string.
#[inline]
pub(super) fn put_delta(index: u32, head: &[u8], tail: &[u8], text: &[u8], out: &mut BytesMut) {
    out.reserve(text.len() + 256);
    EventType::BlockDelta.write(out, |out| {
        put_index(index, head, out);
        out.put_slice(text);
        out.put_slice(tail);
    });
}

/// Writes start and delta of a block of a tool that the provider ran. `raw` is `{"toolUse":{...}}` or
/// `{"toolResult":{...}}`.
fn put_server(index: u32, raw: &str, out: &mut BytesMut) {
    let (mut start, mut delta) = (Vec::new(), Vec::new());
    // The text is one that the decoder has made: it is valid.
    let _ = members(&mut Cursor::new(raw), |member, json| {
        let mut head = Writer::new(&mut start);
        head.begin_object().paste_key(member).begin_object();
        members(json, |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "input" => {
                    delta.put_slice(br#"{"toolUse":{"input":"#);
                    Writer::new(&mut delta).string(value.text());
                    delta.put_slice(b"}}");
                }
                "content" => {
                    Writer::new(&mut delta).begin_object().key("toolResult").raw(value).end_object();
                }
                _ => {
                    head.paste_key(key).raw(value);
                }
            }
            Ok(())
        })?;
        head.end_object().end_object();
        Ok(())
    });
    if start.is_empty() {
        return;
    }
    EventType::BlockStart.write(out, |out| {
        put_index(index, b",\"start\":", out);
        out.put_slice(&start);
        out.put_u8(b'}');
    });
    if !delta.is_empty() {
        EventType::BlockDelta.write(out, |out| {
            put_index(index, b",\"delta\":", out);
            out.put_slice(&delta);
            out.put_u8(b'}');
        });
    }
}

/// Returns a text as the inside of a JSON string.
pub(in super::super) fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    push_escaped(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the envelope of a call's signature, for the reasoning before the call: an id has at most 64 characters.
pub(in super::super) fn envelope_of_call(seal: &str, reply: &ReplyOptions) -> String {
    let mut out = Vec::new();
    SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) }.write_of_call(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns a provider signature in its envelope, for the client.
pub(in super::super) fn envelope(seal: &str, reply: &ReplyOptions) -> String {
    let mut out = Vec::new();
    SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(seal) }.write(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the envelope as a member of type blob, which has base64.
pub(in super::super) fn blob(seal: &str, reply: &ReplyOptions) -> String {
    STANDARD.encode_to_string(envelope(seal, reply))
}

/// Writes the input of a whole call as an object. Text that is none becomes its member `_raw`.
pub(in super::super) fn put_input<B: Sink>(
    kind: ToolKind,
    text: &str,
    object: Option<&str>,
    json: &mut Writer<'_, B>,
) {
    let plain = JsonStr::from_escaped(text).decode();
    match (kind, object) {
        (_, Some(object)) => {
            json.raw(RawJson::from_text(object));
        }
        (ToolKind::Custom, None) => {
            json.begin_object().key("input").paste(JsonStr::from_escaped(text)).end_object();
        }
        (ToolKind::Function, None) if is_object(&plain) => {
            json.raw(RawJson::from_text(&with_whole_characters(plain.trim())));
        }
        (ToolKind::Function, None) => {
            if let Some(object) = object_in(text) {
                json.raw(RawJson::from_text(&object));
                return;
            }
            json.begin_object();
            if !matches!(plain.trim(), "" | "null") {
                json.key("_raw").paste(JsonStr::from_escaped(text));
            }
            json.end_object();
        }
    }
}
