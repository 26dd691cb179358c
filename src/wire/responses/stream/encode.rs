//! Events, written as frames of a responses stream, or collected into one whole response.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::super::shell::{Shell, Status};
use super::super::text::{as_text, put_as_string};
use super::frames::{ARGUMENTS, CUSTOM_INPUT, Frames, OUTPUT_TEXT, REFUSAL, SUMMARY_TEXT, put_item};
use super::item::{Item, Kind, PartKind};
use crate::canonical::answer::{CitationOwned, FinishOwned};
use crate::canonical::seal::Carried;
use crate::canonical::{BlockKind, Delta, Event, Sealed, Start, ToolKind, Usage};
use crate::error::{self, ApiError};
use crate::json::{JsonStr, RawJson};
use crate::wire::codec::{ReplyOptions, make_id};
use crate::wire::error::ProviderError;
use crate::wire::{Format, filler};

/// Writes a stream.
#[derive(Debug)]
pub struct Encoder {
    pub(super) reply: Arc<ReplyOptions>,
    pub(super) shell: Shell,
    pub(super) frames: Frames,
    started: bool,
    pub(super) over: bool,
    /// What became of each block of the answer.
    pub(super) blocks: Vec<Slot>,
    pub(super) items: Vec<Item>,
    /// The message that takes the next part.
    pub(super) message: Option<usize>,
    /// A call that has begun, and is held back because its seal may follow.
    pending: Option<Pending>,
    /// Characters in the texts that are complete.
    pub(super) characters: u64,
    pub(super) refused: bool,
    pub(super) usage: Usage,
    pub(super) finish: Option<FinishOwned>,
    /// The response as a whole, where it is to be kept and has come to its end.
    pub(super) document: Option<Bytes>,
}

/// What becomes of a block.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing, or nothing more.
    Closed,
    /// A part of a message, which is opened with its first text.
    Part { kind: PartKind, item: Option<usize>, seal: Vec<u8> },
    /// Reasoning that is shown.
    Reasoning { item: Option<usize>, seal: Vec<u8> },
    /// Reasoning that is not shown: an item only if it has a seal.
    Hidden { seal: Vec<u8> },
    /// A call that is held back.
    Pending,
    /// A call.
    Call { item: usize },
    /// An image: its media type's last word, its bytes, its address, its seal.
    Media { format: Option<&'static str>, data: Vec<u8>, url: Vec<u8>, seal: Vec<u8> },
}

/// A call that is held back.
#[derive(Debug)]
struct Pending {
    index: u32,
    kind: ToolKind,
    id: Vec<u8>,
    name: String,
    namespace: String,
}

impl Encoder {
    /// For one stream.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        Encoder {
            reply,
            shell: Shell::default(),
            frames: Frames::default(),
            started: false,
            over: false,
            blocks: Vec::new(),
            items: Vec::new(),
            message: None,
            pending: None,
            characters: 0,
            refused: false,
            usage: Usage::default(),
            finish: None,
            document: None,
        }
    }

    /// What it was told has changed: another provider goes on with the answer.
    pub fn retell(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// The response that is to be kept, once, as soon as its end has been written.
    pub fn take_document(&mut self) -> Option<Bytes> {
        self.document.take()
    }

    /// For one whole response: nothing is written before the end, and then the response alone.
    pub(in crate::wire::responses) fn collecting(reply: &ReplyOptions) -> Self {
        let mut encoder = Encoder::new(Arc::new(reply.clone()));
        encoder.frames = Frames::silent();
        encoder
    }

    /// Writes what an event means.
    pub fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        if self.over {
            return;
        }
        match *event {
            Event::Delta { index, delta } => self.delta(index, delta, out),
            Event::BlockStart { index, choice, kind } => {
                self.release(out);
                let slot = if choice == 0 { self.begin(index, kind, out) } else { Slot::Closed };
                self.blocks.push(slot);
            }
            Event::BlockStop { index } => {
                self.release(out);
                self.end_block(index, out);
            }
            Event::Start(start) => self.start(&start, out),
            Event::Usage(usage) => self.usage.update(&usage),
            Event::Finish { choice: 0, finish } => {
                self.release(out);
                self.finish(finish, out);
            }
            Event::Finish { .. } => {}
            Event::Ping => self.keep_alive(out),
            Event::Error(error) => {
                let provider = ProviderError::decode(error.text().as_bytes());
                let message = match provider.message {
                    empty if empty.is_empty() => "The upstream provider failed.".to_owned(),
                    message => message,
                };
                self.fail(&ApiError::new(error::Kind::UpstreamFailed, message), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Ends the stream with an error.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if self.over {
            return;
        }
        self.start(&Start::default(), out);
        // The words that the format has; clients try again on the first two and give up on the third.
        let code = match error.kind {
            error::Kind::UpstreamRateLimit => "rate_limit_exceeded",
            error::Kind::UpstreamRejected | error::Kind::Unsupported | error::Kind::InvalidField => {
                error.code.as_deref().unwrap_or("invalid_prompt")
            }
            _ => "server_error",
        };
        self.terminal(Status::Failed(code, &error.message), out);
    }

    /// A comment, which every reader of this format steps over.
    pub fn keep_alive(&mut self, out: &mut BytesMut) {
        if !self.frames.is_silent() {
            out.extend_from_slice(filler(Format::Responses).as_bytes());
        }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut BytesMut) {
        if self.started {
            return;
        }
        self.started = true;
        self.shell = Shell::new(&self.reply, start);
        for name in ["response.created", "response.in_progress"] {
            let shell = &self.shell;
            self.frames.write(name, out, |out| {
                out.put_slice(b",\"response\":");
                shell.write(Status::InProgress, None, out, |_| {});
            });
        }
    }

    fn begin(&mut self, index: u32, kind: BlockKind<'_>, out: &mut BytesMut) -> Slot {
        match kind {
            BlockKind::Text => Slot::Part { kind: PartKind::Text, item: None, seal: Vec::new() },
            BlockKind::Refusal => {
                self.refused = true;
                Slot::Part { kind: PartKind::Refusal, item: None, seal: Vec::new() }
            }
            BlockKind::Reasoning if self.reply.show_thinking => {
                Slot::Reasoning { item: None, seal: Vec::new() }
            }
            BlockKind::Reasoning | BlockKind::HiddenReasoning => Slot::Hidden { seal: Vec::new() },
            BlockKind::ToolUse { id, name, kind, namespace } => {
                self.pending = Some(Pending {
                    index,
                    kind,
                    id: id.escaped().as_bytes().to_vec(),
                    name: name.escaped().to_owned(),
                    namespace: namespace.escaped().to_owned(),
                });
                Slot::Pending
            }
            BlockKind::Media { mime } => {
                let format = match mime.decode().split_once('/') {
                    Some(("image", "jpeg" | "jpg")) => Some("jpeg"),
                    Some(("image", "webp")) => Some("webp"),
                    Some(("image", _)) => Some("png"),
                    // The format has no item for a sound.
                    _ => None,
                };
                Slot::Media { format, data: Vec::new(), url: Vec::new(), seal: Vec::new() }
            }
            BlockKind::Opaque { name, raw } => {
                self.whole(name, raw, out);
                Slot::Closed
            }
        }
    }

    #[inline]
    fn delta(&mut self, index: u32, delta: Delta<'_>, out: &mut BytesMut) {
        if self.pending.is_some() && !matches!(delta, Delta::Seal(_)) {
            self.release(out);
        }
        match delta {
            Delta::Text(text) => self.text(index, text, out),
            Delta::Arguments(text) => self.arguments(index, text, out),
            Delta::Object(object) => {
                let mut text = Vec::with_capacity(object.text().len() + 16);
                put_as_string(&mut text, object.text());
                self.arguments(index, as_text(&text), out);
            }
            Delta::Seal(seal) => self.seal(index, seal, out),
            // The format cites addresses; passages of the client's own documents have none.
            Delta::Citation(citation) if citation.url.is_empty() => {}
            Delta::Citation(citation) => {
                if let Some(part) = self.open_part(index, out).and_then(|item| item.part.as_mut()) {
                    part.citations.push(CitationOwned::own(&citation));
                }
            }
            Delta::Logprobs(list) => self.logprobs(index, list, out),
            Delta::Data(bytes) => {
                if let Some(Slot::Media { data, .. }) = self.blocks.get_mut(index as usize) {
                    data.extend_from_slice(bytes.escaped().as_bytes());
                }
            }
            Delta::Url(address) => {
                if let Some(Slot::Media { url, .. }) = self.blocks.get_mut(index as usize) {
                    url.extend_from_slice(address.escaped().as_bytes());
                }
            }
        }
    }

    #[inline]
    pub(super) fn text(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        if text.is_empty() || self.open_part(index, out).is_none() {
            return;
        }
        let item = match self.blocks.get(index as usize) {
            Some(Slot::Part { item: Some(item), .. } | Slot::Reasoning { item: Some(item), .. }) => *item,
            _ => return,
        };
        let Some(item) = self.items.get_mut(item) else { return };
        item.body.extend_from_slice(text.escaped().as_bytes());
        match item.part.as_ref().map(|part| part.kind) {
            Some(PartKind::Text) => {
                self.frames.delta(OUTPUT_TEXT, item, text, b"\",\"logprobs\":[]}\n\n", out)
            }
            Some(PartKind::Summary) => self.frames.delta(SUMMARY_TEXT, item, text, b"\"}\n\n", out),
            Some(PartKind::Refusal) => self.frames.delta(REFUSAL, item, text, b"\"}\n\n", out),
            None => {}
        }
    }

    /// The item whose part this block is, with that part open. Nothing for blocks that are no parts.
    #[inline]
    fn open_part(&mut self, index: u32, out: &mut BytesMut) -> Option<&mut Item> {
        let (kind, known) = match self.blocks.get(index as usize) {
            Some(Slot::Part { kind, item, .. }) => (*kind, *item),
            Some(Slot::Reasoning { item, .. }) => (PartKind::Summary, *item),
            _ => return None,
        };
        let place = match known {
            Some(place) => place,
            None => self.begin_part(index, kind, out),
        };
        self.items.get_mut(place)
    }

    /// Opens a part: in the message that is open if nothing came between, else in a new item.
    fn begin_part(&mut self, index: u32, kind: PartKind, out: &mut BytesMut) -> usize {
        let takes_more = |place: &usize| self.items.get(*place).is_some_and(|item| item.part.is_none());
        let place = match self.message.filter(takes_more) {
            Some(place) if kind != PartKind::Summary => place,
            _ if kind == PartKind::Summary => self.add(Kind::Reasoning, out),
            _ => {
                let place = self.add(Kind::Message, out);
                self.message = Some(place);
                place
            }
        };
        if let Some(Slot::Part { item, .. } | Slot::Reasoning { item, .. }) =
            self.blocks.get_mut(index as usize)
        {
            *item = Some(place);
        }
        if let Some(item) = self.items.get_mut(place) {
            item.begin_part(kind);
            self.frames.write2(kind.part_event(), ".added", out, |out| {
                item.put_part_place(kind, out);
                out.put_slice(b",\"part\":");
                out.put_slice(kind.empty().as_bytes());
            });
        }
        place
    }

    /// A new item, announced. What came before it is complete.
    pub(super) fn add(&mut self, kind: Kind, out: &mut BytesMut) -> usize {
        let id = make_id(kind.prefix(), &self.reply.seed, self.items.len() as u64 + 1);
        self.add_item(Item::new(kind, id, 0), out)
    }

    pub(super) fn add_item(&mut self, mut item: Item, out: &mut BytesMut) -> usize {
        if let Some(message) = self.message.take() {
            // With a part still open it is complete when that part is.
            if self.items.get(message).is_some_and(|item| item.part.is_none()) {
                self.complete(message, "completed", out);
            }
        }
        let place = self.items.len();
        item.output = u32::try_from(place).unwrap_or(u32::MAX);
        self.frames.write("response.output_item.added", out, |out| put_item(&item, out));
        item.prepare(None);
        self.items.push(item);
        place
    }

    /// An item is complete.
    pub(super) fn complete(&mut self, place: usize, status: &'static str, out: &mut BytesMut) {
        if let Some(item) = self.items.get_mut(place).filter(|item| !item.done) {
            item.done = true;
            item.status = status;
            self.frames.write("response.output_item.done", out, |out| put_item(item, out));
        }
    }

    #[inline]
    fn arguments(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        if let Some(Slot::Call { item }) = self.blocks.get(index as usize) {
            self.input(*item, text, out);
        }
    }

    /// Adds to what a tool is called with.
    #[inline]
    pub(super) fn input(&mut self, place: usize, text: JsonStr<'_>, out: &mut BytesMut) {
        let Some(item) = self.items.get_mut(place).filter(|_| !text.is_empty()) else { return };
        item.body.extend_from_slice(text.escaped().as_bytes());
        let head = if item.kind == Kind::Custom { CUSTOM_INPUT } else { ARGUMENTS };
        self.frames.delta(head, item, text, b"\"}\n\n", out);
    }

    fn logprobs(&mut self, index: u32, list: RawJson<'_>, out: &mut BytesMut) {
        let inside = list.text().trim_start_matches('[').trim_end_matches(']').trim();
        if inside.is_empty() || self.open_part(index, out).is_none() {
            return;
        }
        let place = match self.blocks.get(index as usize) {
            Some(Slot::Part { kind: PartKind::Text, item: Some(item), .. }) => *item,
            _ => return,
        };
        let Some(item) = self.items.get_mut(place) else { return };
        self.frames.write("response.output_text.delta", out, |out| {
            out.put_slice(&item.prefix);
            out.put_slice(b"\",\"logprobs\":[");
            out.put_slice(inside.as_bytes());
            out.put_u8(b']');
        });
        if let Some(part) = &mut item.part {
            if !part.logprobs.is_empty() {
                part.logprobs.push(b',');
            }
            part.logprobs.extend_from_slice(inside.as_bytes());
        }
    }

    fn seal(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        let sealed = Sealed { issuer: &self.reply.issuer, text };
        match self.blocks.get_mut(index as usize) {
            Some(Slot::Part { seal, .. } | Slot::Reasoning { seal, .. } | Slot::Hidden { seal, .. }) => {
                sealed.write(seal)
            }
            Some(Slot::Media { seal, .. }) => Carried::write(sealed, seal),
            Some(Slot::Pending) => {
                if let Some(pending) = &mut self.pending {
                    Carried::write(sealed, &mut pending.id);
                }
                self.release(out);
            }
            _ => {}
        }
    }

    /// A call that was held back is announced.
    fn release(&mut self, out: &mut BytesMut) {
        let Some(pending) = self.pending.take() else { return };
        let kind = match pending.kind {
            ToolKind::Function => Kind::Function,
            ToolKind::Custom => Kind::Custom,
        };
        let id = make_id(kind.prefix(), &self.reply.seed, self.items.len() as u64 + 1);
        let mut item = Item::new(kind, id, 0);
        for (name, value) in [
            ("call_id", pending.id.as_slice()),
            ("name", pending.name.as_bytes()),
            ("namespace", pending.namespace.as_bytes()),
        ] {
            if name != "namespace" || !value.is_empty() {
                item.members.put_slice(b",\"");
                item.members.put_slice(name.as_bytes());
                item.members.put_slice(b"\":\"");
                item.members.put_slice(value);
                item.members.put_u8(b'"');
            }
        }
        item.name = pending.name;
        let place = self.add_item(item, out);
        if let Some(slot) = self.blocks.get_mut(pending.index as usize) {
            *slot = Slot::Call { item: place };
        }
    }
}
