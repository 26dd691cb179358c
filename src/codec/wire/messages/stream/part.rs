//! Block writer of a messages stream: the output state of one block.

use bytes::{BufMut, BytesMut};

use super::super::arguments::ArgumentsRepair;
use super::super::{citation, content};
use crate::canonical::answer::CitationOwned;
use crate::canonical::seal::UNSIGNED;
use crate::canonical::{BlockKind, Delta, ToolKind};
use crate::wire::codec::ReplyOptions;
use json::{JsonStr, RawJson, Writer};

/// Kind of a block in this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockForm {
    Text,
    Thinking,
    Redacted,
    Call,
    /// Block that only this format has. It has no deltas: its start event is the whole block.
    Opaque,
    /// This format cannot carry the block, or the client does not want it.
    Nothing,
}

/// Block with its output state and buffered content.
#[derive(Debug)]
pub(super) struct EncodedBlock {
    pub(super) what: BlockForm,
    /// Whether its stop event has arrived.
    pub(super) stopped: bool,
    /// Whether the block is open in the output.
    open: bool,
    /// Whether the block was closed in the output. Later text opens a new block.
    done: bool,
    /// Beginning of the frame of a delta, up to its text.
    prefix: Vec<u8>,
    /// Byte offset of the delta object in `prefix`.
    head: usize,
    /// Text or arguments waiting for output, escaped; or the JSON of an opaque block.
    held: String,
    seal: String,
    id: String,
    name: String,
    arguments: Option<Box<ArgumentsRepair>>,
    citations: Vec<CitationOwned>,
}

/// End of the frame of a delta.
const SUFFIX: &[u8] = b"\"}}\n\n";

impl EncodedBlock {
    /// Creates the writer of a block. Blocks of other choices are ignored, because the format has only one.
    pub(super) fn new(kind: BlockKind<'_>, first_choice: bool, show_thinking: bool) -> Self {
        let what = match kind {
            // The format has only one choice.
            _ if !first_choice => BlockForm::Nothing,
            BlockKind::Text | BlockKind::Refusal => BlockForm::Text,
            BlockKind::Reasoning if show_thinking => BlockForm::Thinking,
            BlockKind::HiddenReasoning if show_thinking => BlockForm::Redacted,
            BlockKind::ToolUse { .. } => BlockForm::Call,
            // Opaque blocks of other formats have no counterpart here.
            BlockKind::Opaque { name, .. } if content::is_own(name) => BlockForm::Opaque,
            _ => BlockForm::Nothing,
        };
        let mut part = EncodedBlock {
            what,
            stopped: false,
            open: false,
            done: false,
            prefix: Vec::new(),
            head: 0,
            held: String::new(),
            seal: String::new(),
            id: String::new(),
            name: String::new(),
            arguments: None,
            citations: Vec::new(),
        };
        if let BlockKind::ToolUse { id, name, kind, .. } = kind
            && first_choice
        {
            part.id = id.escaped().to_owned();
            part.name = name.escaped().to_owned();
            let arguments = match kind {
                ToolKind::Function => ArgumentsRepair::new(),
                ToolKind::Custom => ArgumentsRepair::free(),
            };
            part.arguments = Some(Box::new(arguments));
        }
        if let (BlockForm::Opaque, BlockKind::Opaque { raw, .. }) = (what, kind) {
            raw.text().clone_into(&mut part.held);
        }
        part
    }

    /// Returns whether its arguments end inside an unfinished object.
    pub(super) fn is_cut(&self) -> bool {
        self.arguments.as_ref().is_some_and(|arguments| arguments.is_cut())
    }

    /// Returns whether another block may replace it in the output before it ends.
    pub(super) fn may_yield(&self) -> bool {
        match self.what {
            BlockForm::Text => true,
            BlockForm::Call => self.arguments.as_ref().is_some_and(|arguments| arguments.is_complete()),
            _ => false,
        }
    }

    /// Returns whether it has content to output or still needs to be opened.
    pub(super) fn needs_output(&self) -> bool {
        match self.what {
            BlockForm::Nothing => false,
            BlockForm::Text => {
                !self.held.is_empty() || !self.citations.is_empty() || !(self.done || self.stopped)
            }
            BlockForm::Thinking | BlockForm::Redacted | BlockForm::Call | BlockForm::Opaque => !self.done,
        }
    }

    /// Buffers a delta while another block is open in the output.
    pub(super) fn buffer(&mut self, delta: Delta<'_>) {
        if self.what == BlockForm::Opaque {
            return;
        }
        match delta {
            Delta::Signature(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Text(text) if self.what != BlockForm::Nothing => self.held.push_str(text.escaped()),
            Delta::Arguments(text) if !self.done => self.held.push_str(text.escaped()),
            Delta::Object(object) if !self.done => self.held.push_str(&content::escaped(object.text())),
            Delta::Citation(citation) if self.what == BlockForm::Text => {
                self.citations.push(CitationOwned::own(&citation));
            }
            _ => {}
        }
    }

    /// Writes the buffered content. Called when the block becomes the current one.
    pub(super) fn release(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        if self.what == BlockForm::Opaque {
            return self.close(false, next, reply, out);
        }
        let held = std::mem::take(&mut self.held);
        let text = JsonStr::from_escaped(&held);
        if !held.is_empty() {
            let delta = if self.what == BlockForm::Call { Delta::Arguments(text) } else { Delta::Text(text) };
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
        match delta {
            Delta::Text(text) => {
                if !text.is_empty() {
                    self.open(next, reply, out);
                    // One reservation and three copies per delta: JSON is not written anew.
                    out.reserve(self.prefix.len() + text.escaped().len() + SUFFIX.len());
                    out.put_slice(&self.prefix);
                    out.put_slice(text.escaped().as_bytes());
                    out.put_slice(SUFFIX);
                }
            }
            Delta::Arguments(text) => self.arguments(text.escaped(), next, reply, out),
            Delta::Object(object) => self.arguments(&content::escaped(object.text()), next, reply, out),
            // The signature is written when the block ends, because it must be the last delta of a block.
            Delta::Signature(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Citation(citation) if citation::has_form(&citation) => {
                self.open(next, reply, out);
                self.put_delta(out, |out| {
                    let mut json = Writer::new(out);
                    json.begin_object().key("type").string("citations_delta").key("citation");
                    citation::write(&citation, &mut json);
                    json.end_object();
                });
            }
            Delta::Citation(_) | Delta::Data(_) | Delta::Url(_) | Delta::Logprobs(_) => {}
        }
    }

    fn arguments(&mut self, text: &str, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        self.open(next, reply, out);
        if let Some(arguments) = &mut self.arguments {
            out.reserve(self.prefix.len() + text.len() + SUFFIX.len());
            framed(&self.prefix, out, |out| arguments.push(text, out));
        }
    }

    /// Opens the block in the output if it is not open.
    #[inline]
    fn open(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        if !self.open {
            self.put_start(next, reply, out);
        }
    }

    #[cold]
    fn put_start(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        let index = *next;
        *next += 1;
        self.open = true;
        let delta = match self.what {
            BlockForm::Thinking => r#""thinking_delta","thinking":""#,
            BlockForm::Call => r#""input_json_delta","partial_json":""#,
            _ => r#""text_delta","text":""#,
        };
        self.prefix.clear();
        self.prefix
            .put_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
        self.prefix.put_slice(itoa::Buffer::new().format(index).as_bytes());
        self.prefix.put_slice(b",\"delta\":");
        self.head = self.prefix.len();
        self.prefix.put_slice(b"{\"type\":");
        self.prefix.put_slice(delta.as_bytes());
        put_start(index, out, |json| {
            json.begin_object();
            match self.what {
                BlockForm::Thinking => {
                    json.key("type").string("thinking");
                    json.key("thinking").string("").key("signature").string("");
                }
                BlockForm::Redacted => {
                    json.key("type").string("redacted_thinking");
                    json.key("data").string(&content::envelope(&self.seal, reply));
                }
                BlockForm::Call => {
                    let id = content::call_id(&self.id, &self.seal, reply);
                    json.key("type").string("tool_use").key("id").paste(JsonStr::from_escaped(&id));
                    json.key("name").paste(JsonStr::from_escaped(&self.name));
                    json.key("input").begin_object().end_object();
                }
                BlockForm::Text | BlockForm::Opaque | BlockForm::Nothing => {
                    json.key("type").string("text").key("text").string("");
                }
            }
            json.end_object();
        });
    }

    /// Closes the block in the output. With `cut`, the response was cut off inside it, and the finish reason reports
    /// that.
    pub(super) fn close(&mut self, cut: bool, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        match self.what {
            BlockForm::Call if !self.done => {
                self.open(next, reply, out);
                // Leave truncated arguments as they are: the finish reason reports the limit, and clients handle it.
                if let Some(mut arguments) = self.arguments.take().filter(|open| !(cut && open.is_cut())) {
                    framed(&self.prefix, out, |out| arguments.close(cut, out));
                }
            }
            // A redacted block has no deltas: its data is part of `content_block_start`.
            BlockForm::Redacted if !self.seal.is_empty() => self.open(next, reply, out),
            BlockForm::Thinking if self.open || !self.seal.is_empty() => {
                self.open(next, reply, out);
                let seal = match self.seal.is_empty() {
                    true => UNSIGNED.to_owned(),
                    false => content::envelope(&self.seal, reply),
                };
                self.put_delta(out, |out| {
                    let mut json = Writer::new(out);
                    json.begin_object().key("type").string("signature_delta");
                    json.key("signature").string(&seal).end_object();
                });
            }
            BlockForm::Opaque if !self.done => {
                let raw = std::mem::take(&mut self.held);
                put_start(*next, out, |json| {
                    json.raw(RawJson::from_text(&raw));
                });
                *next += 1;
                self.open = true;
            }
            _ => {}
        }
        self.done = true;
        if std::mem::take(&mut self.open) {
            put_stop(next.saturating_sub(1), out);
        }
    }

    /// Writes a frame with an infrequent kind of delta.
    fn put_delta(&self, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        out.put_slice(self.prefix.get(..self.head).unwrap_or_default());
        write(out);
        out.put_slice(b"}\n\n");
    }
}

/// Writes the frame of a delta. Removes it again if `write` adds nothing.
#[inline]
fn framed(prefix: &[u8], out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(prefix);
    let empty = out.len();
    write(out);
    // The repair may hold back the whole fragment; an empty delta would be noise.
    if out.len() == empty {
        out.truncate(start);
    } else {
        out.put_slice(SUFFIX);
    }
}

/// Writes `content_block_start`.
pub(super) fn put_start(index: u32, out: &mut BytesMut, block: impl FnOnce(&mut Writer<'_, BytesMut>)) {
    out.put_slice(b"event: content_block_start\ndata: ");
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("content_block_start");
    json.key("index").number(index).key("content_block");
    block(&mut json);
    json.end_object();
    out.put_slice(b"\n\n");
}

/// Writes `content_block_stop`.
pub(super) fn put_stop(index: u32, out: &mut BytesMut) {
    out.put_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    out.put_slice(itoa::Buffer::new().format(index).as_bytes());
    out.put_slice(b"}\n\n");
}
