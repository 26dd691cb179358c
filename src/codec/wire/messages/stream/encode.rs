//! Stream encoder of the messages format: events to frames.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::super::{finish, usage};
use super::part::{BlockForm, EncodedBlock};
use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event, Finish, Start, Usage};
use crate::error::{ApiError, ErrorKind};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};
use crate::wire::error::{ProviderError, from_provider};
use crate::wire::{Format, filler};
use json::Writer;

/// Encoder of a messages stream.
///
/// The format allows one open block at a time, but blocks of other formats may overlap. The block that began first is
/// the current one; deltas of the others are buffered. A text block yields to any other block and continues later in a
/// new one. A call yields when its arguments are complete.
#[derive(Debug)]
pub struct Encoder {
    reply: Arc<ReplyOptions>,
    started: bool,
    over: bool,
    /// Blocks by their event index.
    parts: Vec<EncodedBlock>,
    /// Index of the block that is open in the output.
    current: Option<usize>,
    /// Blocks that may have buffered content.
    waiting: BTreeSet<usize>,
    /// Whether the current block ended inside its arguments. The finish reason decides whether that is a fault.
    cut: bool,
    /// Index of the next block in the output.
    next: u32,
    called: bool,
    refused: bool,
    usage: Usage,
    /// Expected input tokens, for a `message_start` before any report of the provider; 0 if unknown.
    expected_input: u64,
    finish: Option<FinishOwned>,
}

/// Keep-alive frame.
const PING: &[u8] = filler(Format::Messages).as_bytes();

impl Encoder {
    /// Creates an encoder of one response.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        Encoder {
            reply,
            started: false,
            over: false,
            parts: Vec::new(),
            current: None,
            waiting: BTreeSet::new(),
            cut: false,
            next: 0,
            called: false,
            refused: false,
            usage: Usage::default(),
            expected_input: 0,
            finish: None,
        }
    }

    /// Sets the number of input tokens that `message_start` has if the provider reports none by then.
    pub fn expect_input(&mut self, tokens: u64) {
        self.expected_input = tokens;
    }

    /// Replaces the options, because another provider continues the response.
    pub fn set_reply_options(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// Encodes one event.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        if self.over {
            return;
        }
        match *event {
            Event::Delta { index, delta } => self.delta(index as usize, delta, out),
            Event::Start(start) => self.start(&start, out),
            Event::BlockStart { choice, kind, .. } => self.block_start(choice, kind, out),
            Event::BlockStop { index } => self.block_stop(index as usize, out),
            Event::Usage(usage) => self.usage.update(&usage),
            Event::Finish { choice, finish } => {
                // The format has one response per request; ignore other choices.
                if choice == 0 {
                    self.settle(matches!(finish, Finish::Length | Finish::ContextFull), out);
                    self.finish = Some(FinishOwned::own(finish));
                }
            }
            Event::Ping => out.put_slice(PING),
            Event::Error(error) => {
                let error = ProviderError::decode(error.text().as_bytes());
                self.fail(&from_provider(ErrorKind::UpstreamFailed.row().status, error, None), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Ends the stream with an error event.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.over, true) {
            super::super::error::encode_event(error, &self.reply.request, out);
        }
    }

    /// Writes a keep-alive event.
    pub fn keep_alive(&mut self, out: &mut BytesMut) {
        if !self.over {
            out.put_slice(PING);
        }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut BytesMut) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        out.put_slice(b"event: message_start\ndata: ");
        let mut json = Writer::new(out);
        json.begin_object().key("type").string("message_start").key("message").begin_object();
        let id = match bare_id(start.id.escaped()) {
            id if id.is_empty() => make_id("", &self.reply.seed, 0).into(),
            id => id,
        };
        let id = format!("msg_{id}");
        json.key("id").string(&id).key("type").string("message").key("role").string("assistant");
        json.key("model").paste(self.reply.model.as_json_str());
        json.key("content").begin_array().end_array();
        json.key("stop_reason").null().key("stop_sequence").null().key("usage");
        usage::write_start(&self.usage, self.expected_input, &mut json);
        json.end_object().end_object();
        out.put_slice(b"\n\n");
        // As in Anthropic's own streams.
        out.put_slice(PING);
    }

    fn block_start(&mut self, choice: u32, kind: BlockKind<'_>, out: &mut BytesMut) {
        let index = self.parts.len();
        let part = EncodedBlock::new(kind, choice == 0, self.reply.show_thinking);
        self.called |= part.what == BlockForm::Call;
        self.refused |= matches!(kind, BlockKind::Refusal) && choice == 0;
        let what = part.what;
        self.parts.push(part);
        if what == BlockForm::Nothing {
            return;
        }
        self.settle(false, out);
        self.yield_wire(out);
        match (self.current, self.parts.get_mut(index)) {
            // The block is complete: it does not stay open.
            (None, Some(part)) if what == BlockForm::Opaque => {
                part.close(false, &mut self.next, &self.reply, out);
                self.promote(out);
            }
            (None, _) => self.current = Some(index),
            (Some(_), _) => drop(self.waiting.insert(index)),
        }
    }

    #[inline]
    fn delta(&mut self, index: usize, delta: Delta<'_>, out: &mut BytesMut) {
        if self.current != Some(index) {
            return self.delta_aside(index, delta, out);
        }
        let others = self.parts.len() > index + 1;
        if let Some(part) = self.parts.get_mut(index) {
            part.delta(delta, &mut self.next, &self.reply, out);
            // A later block may be waiting for this one to yield.
            if others && part.may_yield() {
                self.yield_wire(out);
                self.promote(out);
            }
        }
    }

    /// Processes a delta for a block that is not the current one.
    #[cold]
    fn delta_aside(&mut self, index: usize, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.buffer(delta);
        self.waiting.insert(index);
        // The block may be a text that has yielded, or no block may be current.
        self.yield_wire(out);
        self.promote(out);
    }

    fn block_stop(&mut self, index: usize, out: &mut BytesMut) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.stopped = true;
        if self.current != Some(index) {
            return;
        }
        // Keep it open: the finish reason decides whether the arguments stay as they are or get repaired.
        if part.is_cut() {
            self.cut = true;
            return;
        }
        part.close(false, &mut self.next, &self.reply, out);
        self.current = None;
        self.promote(out);
    }

    /// Closes a call that ended inside its arguments. With `cut`, the whole response was cut off there.
    fn settle(&mut self, cut: bool, out: &mut BytesMut) {
        if !std::mem::take(&mut self.cut) {
            return;
        }
        if let Some(part) = self.current.take().and_then(|index| self.parts.get_mut(index)) {
            part.close(cut, &mut self.next, &self.reply, out);
        }
        self.promote(out);
    }

    /// Closes the current block if it can yield, because another block has content.
    fn yield_wire(&mut self, out: &mut BytesMut) {
        if let Some(part) = self.current.and_then(|index| self.parts.get_mut(index))
            && part.may_yield()
        {
            part.close(false, &mut self.next, &self.reply, out);
            self.current = None;
        }
    }

    /// Makes the first waiting block current if no block is, and writes its buffered content.
    fn promote(&mut self, out: &mut BytesMut) {
        while self.current.is_none() {
            let Some(index) = self.next_waiting() else { return };
            self.waiting.remove(&index);
            let Some(part) = self.parts.get_mut(index) else { continue };
            part.release(&mut self.next, &self.reply, out);
            if (part.stopped && !part.is_cut()) || part.what == BlockForm::Opaque {
                part.close(false, &mut self.next, &self.reply, out);
            } else {
                self.cut = part.stopped;
                self.current = Some(index);
                if self.next_waiting().is_some() {
                    self.yield_wire(out);
                }
            }
        }
    }

    /// Returns the first block with content to output, and removes those without from the list. `None` if there is
    /// none.
    fn next_waiting(&mut self) -> Option<usize> {
        while let Some(index) = self.waiting.first().copied() {
            if self.parts.get(index).is_some_and(EncodedBlock::needs_output) {
                return Some(index);
            }
            self.waiting.remove(&index);
        }
        None
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.settle(false, out);
        // Blocks that waited for the last one must still be written.
        while let Some(part) = self.current.take().and_then(|index| self.parts.get_mut(index)) {
            part.close(false, &mut self.next, &self.reply, out);
            self.promote(out);
        }
        // Without a reason the response may be cut; an error makes clients retry instead of using it.
        let Some(end) = self.finish.take() else {
            let message = "The upstream provider's response ended without a stop reason.";
            return self.fail(&ApiError::new(ErrorKind::UpstreamBroken, message), out);
        };
        if self.next == 0 {
            // SDKs and applications access the first block without checking that it exists.
            super::part::put_start(0, out, |json| {
                json.begin_object().key("type").string("text").key("text").string("").end_object();
            });
            super::part::put_stop(0, out);
        }
        let (reason, sequence) = finish::encode(end.borrow(), self.called, self.refused);
        out.put_slice(b"event: message_delta\ndata: ");
        let mut json = Writer::new(out);
        json.begin_object().key("type").string("message_delta").key("delta").begin_object();
        json.key("stop_reason").string(reason).key("stop_sequence");
        match sequence {
            Some(sequence) => json.paste(sequence),
            None => json.null(),
        };
        json.end_object().key("usage");
        usage::write_end(&self.usage, &mut json);
        json.end_object();
        out.put_slice(b"\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        self.over = true;
    }
}
