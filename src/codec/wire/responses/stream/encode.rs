//! Stream encoder: writes events as frames of a responses stream, or collects them into one whole response.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::super::references::item_id;
use super::super::shell::{ResponseEnvelope, ResponseStatus};
use super::super::text::{as_text, put_as_string};
use super::frames::{ARGUMENTS, CUSTOM_INPUT, Frames, OUTPUT_TEXT, REFUSAL, SUMMARY_TEXT, put_item};
use super::item::{Kind, OutputItem, PartKind};
use crate::canonical::answer::{CitationOwned, FinishOwned};
use crate::canonical::seal::SignedCallId;
use crate::canonical::{BlockKind, Delta, Event, SealedSignature, Start, ToolKind, Usage};
use crate::error::{self, ApiError};
use crate::wire::codec::ReplyOptions;
use crate::wire::error::ProviderError;
use crate::wire::{Format, filler};
use json::{JsonStr, RawJson};

/// Encoder of one responses stream or one whole response.
#[derive(Debug)]
pub struct Encoder {
    pub(super) reply: Arc<ReplyOptions>,
    pub(super) shell: ResponseEnvelope,
    pub(super) frames: Frames,
    started: bool,
    pub(super) over: bool,
    /// State of each block, by the canonical block index.
    pub(super) blocks: Vec<BlockState>,
    pub(super) items: Vec<OutputItem>,
    /// Index in `items` of the message that takes the next part; `None` if a new message is needed.
    pub(super) message: Option<usize>,
    /// Call that has started but is not announced yet, because its provider signature may follow.
    pending: Option<Pending>,
    /// Number of characters in completed texts: the offset of the next text for citations.
    pub(super) characters: u64,
    pub(super) refused: bool,
    pub(super) usage: Usage,
    pub(super) finish: Option<FinishOwned>,
    /// Response object to be stored. Set with the terminal event if the response is to be stored (`keep_as`).
    pub(super) document: Option<Bytes>,
}

/// State of a canonical block.
#[derive(Debug)]
pub(super) enum BlockState {
    /// Not written, or complete.
    Closed,
    /// Part of a message. It is opened with its first text, so that an empty block leaves no part.
    Part {
        kind: PartKind,
        item: Option<usize>,
        signature: Vec<u8>,
    },
    /// Reasoning that the client sees.
    Reasoning {
        item: Option<usize>,
        signature: Vec<u8>,
    },
    /// Reasoning that the client does not see. It becomes an item only if it has a provider signature.
    Hidden {
        signature: Vec<u8>,
    },
    /// Call that is not announced yet; see `Pending`.
    Pending,
    Call {
        item: usize,
    },
    /// Media: the image format (`None` if not an image), base64 data, URL and provider signature without its envelope.
    Media {
        format: Option<&'static str>,
        data: Vec<u8>,
        url: Vec<u8>,
        signature: Vec<u8>,
    },
}

/// Call that is not announced yet.
#[derive(Debug)]
struct Pending {
    index: u32,
    kind: ToolKind,
    id: Vec<u8>,
    name: String,
    namespace: String,
}

impl Encoder {
    /// Creates the encoder of one stream.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        Encoder {
            reply,
            shell: ResponseEnvelope::default(),
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

    /// Replaces the reply options, because another provider resumes the response.
    pub fn set_reply_options(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// Takes the response object that is to be stored. Returns `None` before the terminal event, after the first
    /// call, and if the response is not stored.
    pub fn take_document(&mut self) -> Option<Bytes> {
        self.document.take()
    }

    /// Creates the encoder of one whole response: it writes nothing until the end, then only the response object.
    pub(in crate::wire::responses) fn collecting(reply: &ReplyOptions) -> Self {
        let mut encoder = Encoder::new(Arc::new(reply.clone()));
        encoder.frames = Frames::silent();
        encoder
    }

    /// Writes the frames of one event. Events after the end are ignored.
    pub fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        if self.over {
            return;
        }
        match *event {
            Event::Delta { index, delta } => self.delta(index, delta, out),
            Event::BlockStart { index, choice, kind } => {
                // Another event follows the call without a signature, so the call will not get one.
                self.release(out);
                // The format has one choice: blocks of other choices are discarded.
                let slot = if choice == 0 { self.begin(index, kind, out) } else { BlockState::Closed };
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
                self.fail(&ApiError::new(error::ErrorKind::UpstreamFailed, message), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Ends the stream with an error, as `response.failed`.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if self.over {
            return;
        }
        // An error may precede every event, and the terminal event needs the envelope.
        self.start(&Start::default(), out);
        // The format's error codes. Clients retry `rate_limit_exceeded` and `server_error`, and give up on
        // `invalid_prompt`.
        let code = match error.kind {
            error::ErrorKind::UpstreamRateLimit => "rate_limit_exceeded",
            error::ErrorKind::ContextOverflow => "context_length_exceeded",
            error::ErrorKind::UpstreamRejected
            | error::ErrorKind::Unsupported
            | error::ErrorKind::InvalidField => error.code.as_deref().unwrap_or("invalid_prompt"),
            _ => "server_error",
        };
        self.terminal(ResponseStatus::Failed(code, &error.message), out);
    }

    /// Writes keep-alive filler: a comment, which all readers of the format skip.
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
        self.shell = ResponseEnvelope::new(&self.reply, start);
        for name in ["response.created", "response.in_progress"] {
            let shell = &self.shell;
            self.frames.write(name, out, |out| {
                out.put_slice(b",\"response\":");
                shell.write(ResponseStatus::InProgress, None, out, |_| {});
            });
        }
    }

    fn begin(&mut self, index: u32, kind: BlockKind<'_>, out: &mut BytesMut) -> BlockState {
        match kind {
            BlockKind::Text => BlockState::Part { kind: PartKind::Text, item: None, signature: Vec::new() },
            BlockKind::Refusal => {
                self.refused = true;
                BlockState::Part { kind: PartKind::Refusal, item: None, signature: Vec::new() }
            }
            BlockKind::Reasoning if self.reply.show_thinking => {
                BlockState::Reasoning { item: None, signature: Vec::new() }
            }
            BlockKind::Reasoning | BlockKind::HiddenReasoning => BlockState::Hidden { signature: Vec::new() },
            BlockKind::ToolUse { id, name, kind, namespace } => {
                // The call id is fixed once the item is announced, and it carries the signature: wait for the next
                // event.
                self.pending = Some(Pending {
                    index,
                    kind,
                    id: id.escaped().as_bytes().to_vec(),
                    name: name.escaped().to_owned(),
                    namespace: namespace.escaped().to_owned(),
                });
                BlockState::Pending
            }
            BlockKind::Media { mime } => {
                let format = match mime.decode().split_once('/') {
                    Some(("image", "jpeg" | "jpg")) => Some("jpeg"),
                    Some(("image", "webp")) => Some("webp"),
                    Some(("image", _)) => Some("png"),
                    // The format has no item for audio.
                    _ => None,
                };
                BlockState::Media { format, data: Vec::new(), url: Vec::new(), signature: Vec::new() }
            }
            BlockKind::Opaque { name, raw } => {
                self.whole(name, raw, out);
                BlockState::Closed
            }
        }
    }

    #[inline]
    fn delta(&mut self, index: u32, delta: Delta<'_>, out: &mut BytesMut) {
        // A held-back call can wait only for its signature, which goes into the call id: announce it before anything
        // else.
        if self.pending.is_some() && !matches!(delta, Delta::Signature(_)) {
            self.release(out);
        }
        match delta {
            Delta::Text(text) => self.text(index, text, out),
            Delta::Arguments(text) => self.arguments(index, text, out),
            Delta::Object(object) => {
                // Arguments are a string in this format.
                let mut text = Vec::with_capacity(object.text().len() + 16);
                put_as_string(&mut text, object.text());
                self.arguments(index, as_text(&text), out);
            }
            Delta::Signature(seal) => self.seal(index, seal, out),
            // The format cites URLs. Passages of the client's own documents have none.
            Delta::Citation(citation) if citation.url.is_empty() => {}
            Delta::Citation(citation) => {
                if let Some(part) = self.open_part(index, out).and_then(|item| item.part.as_mut()) {
                    part.citations.push(CitationOwned::own(&citation));
                }
            }
            Delta::Logprobs(list) => self.logprobs(index, list, out),
            Delta::Data(bytes) => {
                // An image item has its data as a whole, so it is written when the block ends.
                if let Some(BlockState::Media { data, .. }) = self.blocks.get_mut(index as usize) {
                    data.extend_from_slice(bytes.escaped().as_bytes());
                }
            }
            Delta::Url(address) => {
                if let Some(BlockState::Media { url, .. }) = self.blocks.get_mut(index as usize) {
                    url.extend_from_slice(address.escaped().as_bytes());
                }
            }
        }
    }

    #[inline]
    pub(super) fn text(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        // Empty text does not open a part, so that an empty block leaves no part in the output.
        if text.is_empty() || self.open_part(index, out).is_none() {
            return;
        }
        let item = match self.blocks.get(index as usize) {
            Some(
                BlockState::Part { item: Some(item), .. } | BlockState::Reasoning { item: Some(item), .. },
            ) => *item,
            _ => return,
        };
        let Some(item) = self.items.get_mut(item) else { return };
        // The `done` events and the terminal event repeat this text.
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

    /// Returns the item of a block's part, and opens the part if necessary. Returns `None` for blocks that are not
    /// parts.
    #[inline]
    fn open_part(&mut self, index: u32, out: &mut BytesMut) -> Option<&mut OutputItem> {
        let (kind, known) = match self.blocks.get(index as usize) {
            Some(BlockState::Part { kind, item, .. }) => (*kind, *item),
            Some(BlockState::Reasoning { item, .. }) => (PartKind::Summary, *item),
            _ => return None,
        };
        let place = match known {
            Some(place) => place,
            None => self.begin_part(index, kind, out),
        };
        self.items.get_mut(place)
    }

    /// Opens a part: in the open message if no other item came after it, otherwise in a new item.
    fn begin_part(&mut self, index: u32, kind: PartKind, out: &mut BytesMut) -> usize {
        // A message has at most one open part.
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
        if let Some(BlockState::Part { item, .. } | BlockState::Reasoning { item, .. }) =
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

    /// Returns the id of the next item.
    pub(super) fn next_id(&self, prefix: &str) -> String {
        item_id(prefix, &self.reply.store_as, &self.reply.seed, self.items.len() + 1)
    }

    /// Adds an item and announces it. Completes the open message before it. Returns the index in `items`.
    pub(super) fn add(&mut self, kind: Kind, out: &mut BytesMut) -> usize {
        let id = self.next_id(kind.prefix());
        self.add_item(OutputItem::new(kind, id, 0), out)
    }

    pub(super) fn add_item(&mut self, mut item: OutputItem, out: &mut BytesMut) -> usize {
        if let Some(message) = self.message.take() {
            // If a part is still open, `end_block` completes the message.
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

    /// Completes an item with this status, once.
    pub(super) fn complete(&mut self, place: usize, status: &'static str, out: &mut BytesMut) {
        if let Some(item) = self.items.get_mut(place).filter(|item| !item.done) {
            item.done = true;
            item.status = status;
            self.frames.write("response.output_item.done", out, |out| put_item(item, out));
        }
    }

    #[inline]
    fn arguments(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        if let Some(BlockState::Call { item }) = self.blocks.get(index as usize) {
            self.input(*item, text, out);
        }
    }

    /// Adds to the arguments or the input of a call.
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
            Some(BlockState::Part { kind: PartKind::Text, item: Some(item), .. }) => *item,
            _ => return,
        };
        let Some(item) = self.items.get_mut(place) else { return };
        // The delta of the text is already written, so the log probabilities follow in a delta with empty text.
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
        let sealed = SealedSignature { issuer: &self.reply.issuer, text };
        match self.blocks.get_mut(index as usize) {
            Some(
                BlockState::Part { signature: seal, .. }
                | BlockState::Reasoning { signature: seal, .. }
                | BlockState::Hidden { signature: seal, .. },
            ) => sealed.write(seal),
            Some(BlockState::Media { signature: seal, .. }) => seal.put_slice(text.escaped().as_bytes()),
            Some(BlockState::Pending) => {
                if let Some(pending) = &mut self.pending {
                    SignedCallId::write(sealed, &mut pending.id);
                }
                self.release(out);
            }
            _ => {}
        }
    }

    /// Announces the held-back call, if there is one.
    fn release(&mut self, out: &mut BytesMut) {
        let Some(pending) = self.pending.take() else { return };
        let kind = match pending.kind {
            ToolKind::Function => Kind::Function,
            ToolKind::Custom => Kind::Custom,
        };
        let id = self.next_id(kind.prefix());
        let mut item = OutputItem::new(kind, id, 0);
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
            *slot = BlockState::Call { item: place };
        }
    }
}
