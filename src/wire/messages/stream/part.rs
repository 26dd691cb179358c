//! One block on its way to the wire of a messages stream.

use bytes::{BufMut, BytesMut};

use super::super::arguments::Arguments;
use super::super::content;
use crate::canonical::answer::CitationOwned;
use crate::canonical::{BlockKind, Delta, ToolKind};
use crate::json::{JsonStr, Writer};
use crate::wire::codec::ReplyOptions;

/// What a block becomes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Text,
    Thinking,
    Redacted,
    Call,
    /// It has no place in this format, or the client does not want it.
    Nothing,
}

/// A block of the hub, and what is kept of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) what: What,
    /// The hub says that it is complete.
    pub(super) stopped: bool,
    /// It stands on the wire, open.
    open: bool,
    /// It had its turn; text that still comes opens another block.
    done: bool,
    /// The frame of a delta up to its text.
    prefix: Vec<u8>,
    /// Where in it the delta itself begins.
    head: usize,
    /// Text or arguments that wait for the wire, escaped.
    held: String,
    seal: String,
    id: String,
    name: String,
    arguments: Option<Box<Arguments>>,
    citations: Vec<CitationOwned>,
}

/// The end of the frame of a delta.
const SUFFIX: &[u8] = b"\"}}\n\n";

impl Part {
    /// A block begins.
    pub(super) fn new(kind: BlockKind<'_>, first_choice: bool, show_thinking: bool) -> Self {
        let what = match kind {
            _ if !first_choice => What::Nothing,
            BlockKind::Text | BlockKind::Refusal => What::Text,
            BlockKind::Reasoning if show_thinking => What::Thinking,
            BlockKind::HiddenReasoning if show_thinking => What::Redacted,
            BlockKind::ToolUse { .. } => What::Call,
            _ => What::Nothing,
        };
        let mut part = Part {
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
                ToolKind::Function => Arguments::new(),
                ToolKind::Custom => Arguments::free(),
            };
            part.arguments = Some(Box::new(arguments));
        }
        part
    }

    /// Its arguments stop in the middle.
    pub(super) fn is_cut(&self) -> bool {
        self.arguments.as_ref().is_some_and(|arguments| arguments.is_cut())
    }

    /// Whether it may leave the wire before it is complete.
    pub(super) fn may_yield(&self) -> bool {
        match self.what {
            What::Text => true,
            What::Call => self.arguments.as_ref().is_some_and(|arguments| arguments.is_complete()),
            _ => false,
        }
    }

    /// Whether it waits for the wire.
    pub(super) fn wants_wire(&self) -> bool {
        match self.what {
            What::Nothing => false,
            What::Text => !self.held.is_empty() || !self.citations.is_empty() || !(self.done || self.stopped),
            What::Thinking | What::Redacted | What::Call => !self.done,
        }
    }

    /// Keeps a delta until the block has the wire.
    pub(super) fn hold(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Seal(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Text(text) if self.what != What::Nothing => self.held.push_str(text.escaped()),
            Delta::Arguments(text) if !self.done => self.held.push_str(text.escaped()),
            Delta::Object(object) if !self.done => self.held.push_str(&content::escaped(object.text())),
            Delta::Citation(citation) if self.what == What::Text => {
                self.citations.push(CitationOwned::own(&citation));
            }
            _ => {}
        }
    }

    /// The block has the wire: writes what was kept.
    pub(super) fn release(&mut self, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        let held = std::mem::take(&mut self.held);
        let text = JsonStr::from_escaped(&held);
        if !held.is_empty() {
            let delta = if self.what == What::Call { Delta::Arguments(text) } else { Delta::Text(text) };
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
                    out.reserve(self.prefix.len() + text.escaped().len() + SUFFIX.len());
                    out.put_slice(&self.prefix);
                    out.put_slice(text.escaped().as_bytes());
                    out.put_slice(SUFFIX);
                }
            }
            Delta::Arguments(text) => self.arguments(text.escaped(), next, reply, out),
            Delta::Object(object) => self.arguments(&content::escaped(object.text()), next, reply, out),
            // Written when the block ends: it is the last word of a block.
            Delta::Seal(seal) => seal.escaped().clone_into(&mut self.seal),
            Delta::Citation(citation) if !citation.url.is_empty() => {
                self.open(next, reply, out);
                self.put_delta(out, |out| {
                    let mut json = Writer::new(out);
                    json.begin_object().key("type").string("citations_delta").key("citation");
                    content::put_citation(&citation, &mut json);
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

    /// Opens the block on the wire, if it is not.
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
            What::Thinking => r#""thinking_delta","thinking":""#,
            What::Call => r#""input_json_delta","partial_json":""#,
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
                What::Thinking => {
                    json.key("type").string("thinking");
                    json.key("thinking").string("").key("signature").string("");
                }
                What::Redacted => {
                    json.key("type").string("redacted_thinking");
                    json.key("data").string(&content::envelope(&self.seal, reply));
                }
                What::Call => {
                    let id = content::call_id(&self.id, &self.seal, reply);
                    json.key("type").string("tool_use").key("id").paste(JsonStr::from_escaped(&id));
                    json.key("name").paste(JsonStr::from_escaped(&self.name));
                    json.key("input").begin_object().end_object();
                }
                What::Text | What::Nothing => {
                    json.key("type").string("text").key("text").string("");
                }
            }
            json.end_object();
        });
    }

    /// Ends the block on the wire. `cut` says that the whole answer was cut short in it, and that the client is told.
    pub(super) fn close(&mut self, cut: bool, next: &mut u32, reply: &ReplyOptions, out: &mut BytesMut) {
        match self.what {
            What::Call if !self.done => {
                self.open(next, reply, out);
                // Arguments that the limit cut off stay cut off: the reason says so.
                if let Some(mut arguments) = self.arguments.take().filter(|open| !(cut && open.is_cut())) {
                    framed(&self.prefix, out, |out| arguments.close(cut, out));
                }
            }
            What::Redacted if !self.seal.is_empty() => self.open(next, reply, out),
            What::Thinking if !self.seal.is_empty() => {
                self.open(next, reply, out);
                let seal = content::envelope(&self.seal, reply);
                self.put_delta(out, |out| {
                    let mut json = Writer::new(out);
                    json.begin_object().key("type").string("signature_delta");
                    json.key("signature").string(&seal).end_object();
                });
            }
            _ => {}
        }
        self.done = true;
        if std::mem::take(&mut self.open) {
            put_stop(next.saturating_sub(1), out);
        }
    }

    /// A frame with a delta that is none of the many.
    fn put_delta(&self, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        out.put_slice(self.prefix.get(..self.head).unwrap_or_default());
        write(out);
        out.put_slice(b"}\n\n");
    }
}

/// A frame of a delta, unless nothing is written into it.
#[inline]
fn framed(prefix: &[u8], out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(prefix);
    let empty = out.len();
    write(out);
    if out.len() == empty {
        out.truncate(start);
    } else {
        out.put_slice(SUFFIX);
    }
}

/// `content_block_start`
pub(super) fn put_start(index: u32, out: &mut BytesMut, block: impl FnOnce(&mut Writer<'_, BytesMut>)) {
    out.put_slice(b"event: content_block_start\ndata: ");
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("content_block_start");
    json.key("index").number(index).key("content_block");
    block(&mut json);
    json.end_object();
    out.put_slice(b"\n\n");
}

/// `content_block_stop`
pub(super) fn put_stop(index: u32, out: &mut BytesMut) {
    out.put_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    out.put_slice(itoa::Buffer::new().format(index).as_bytes());
    out.put_slice(b"}\n\n");
}
