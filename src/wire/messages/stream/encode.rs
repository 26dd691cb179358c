//! Events of a messages stream, written.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::super::{content, finish, usage};
use super::part::{Part, What};
use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event, Finish, Start, Usage};
use crate::error::{ApiError, Kind};
use crate::json::{JsonStr, RawJson, Writer};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};
use crate::wire::error::{ProviderError, from_provider};
use crate::wire::{Format, filler};

/// Writes one answer.
///
/// Only one block may be open at a time here, and blocks of the hub may overlap. The block that was begun first has
/// the wire; what comes for others meanwhile is kept for them. A text gives the wire up to any other block (it goes on
/// in a block of its own), and so does a call whose arguments are complete.
#[derive(Debug)]
pub struct Encoder {
    reply: Arc<ReplyOptions>,
    started: bool,
    over: bool,
    /// The blocks of the hub, by their index.
    parts: Vec<Part>,
    /// Which of them has the wire.
    current: Option<usize>,
    /// Those that may be waiting for it.
    waiting: BTreeSet<usize>,
    /// The current one ended in the middle of its arguments: whether that is a fault, the reason will tell.
    cut: bool,
    /// The index of the next block on the wire.
    next: u32,
    called: bool,
    refused: bool,
    usage: Usage,
    finish: Option<FinishOwned>,
}

/// The frame that keeps a connection alive, and tells nothing.
const PING: &[u8] = filler(Format::Messages).as_bytes();

impl Encoder {
    /// For one answer.
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
            finish: None,
        }
    }

    /// What it was told has changed: another provider goes on with the answer.
    pub fn retell(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// Writes what follows from an event.
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
                // The format has one answer to a request.
                if choice == 0 {
                    self.settle(matches!(finish, Finish::Length | Finish::ContextFull), out);
                    self.finish = Some(FinishOwned::own(finish));
                }
            }
            Event::Ping => out.put_slice(PING),
            Event::Error(error) => {
                let error = ProviderError::decode(error.text().as_bytes());
                self.fail(&from_provider(Kind::UpstreamFailed.row().status, error, None), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Writes an error into the stream, which ends with it.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.over, true) {
            out.put_slice(b"event: error\ndata: ");
            super::super::error::encode(error, &self.reply.request, out);
            out.put_slice(b"\n\n");
        }
    }

    /// Writes something that tells nothing.
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
        usage::write(&self.usage, true, &mut json);
        json.end_object().end_object();
        out.put_slice(b"\n\n");
        out.put_slice(PING);
    }

    fn block_start(&mut self, choice: u32, kind: BlockKind<'_>, out: &mut BytesMut) {
        let index = self.parts.len();
        let part = Part::new(kind, choice == 0, self.reply.show_thinking);
        self.called |= part.what == What::Call;
        self.refused |= matches!(kind, BlockKind::Refusal) && choice == 0;
        let silent = part.what == What::Nothing;
        self.parts.push(part);
        if let BlockKind::Opaque { name, raw } = kind
            && choice == 0
        {
            return self.opaque(name, raw, out);
        }
        if silent {
            return;
        }
        self.settle(false, out);
        self.yield_wire(out);
        if self.current.is_none() {
            self.current = Some(index);
        } else {
            self.waiting.insert(index);
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
            if others && part.may_yield() {
                self.yield_wire(out);
                self.promote(out);
            }
        }
    }

    /// For a block that has not got the wire.
    #[cold]
    fn delta_aside(&mut self, index: usize, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.hold(delta);
        self.waiting.insert(index);
        // It may be a text that gave up the wire, or the wire may be free for another reason.
        self.yield_wire(out);
        self.promote(out);
    }

    fn block_stop(&mut self, index: usize, out: &mut BytesMut) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.stopped = true;
        if self.current != Some(index) {
            return;
        }
        if part.is_cut() {
            self.cut = true;
            return;
        }
        part.close(false, &mut self.next, &self.reply, out);
        self.current = None;
        self.promote(out);
    }

    /// Decides about a call that ended in the middle of its arguments. `cut` says that the whole answer did.
    fn settle(&mut self, cut: bool, out: &mut BytesMut) {
        if !std::mem::take(&mut self.cut) {
            return;
        }
        if let Some(part) = self.current.take().and_then(|index| self.parts.get_mut(index)) {
            part.close(cut, &mut self.next, &self.reply, out);
        }
        self.promote(out);
    }

    /// Another block wants the wire: the current one gives it up, if it can.
    fn yield_wire(&mut self, out: &mut BytesMut) {
        if let Some(part) = self.current.and_then(|index| self.parts.get_mut(index))
            && part.may_yield()
        {
            part.close(false, &mut self.next, &self.reply, out);
            self.current = None;
        }
    }

    /// The wire is free: it goes to the first block that waits for it.
    fn promote(&mut self, out: &mut BytesMut) {
        while self.current.is_none() {
            let Some(index) = self.next_waiting() else { return };
            self.waiting.remove(&index);
            let Some(part) = self.parts.get_mut(index) else { continue };
            part.release(&mut self.next, &self.reply, out);
            if part.stopped && !part.is_cut() {
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

    /// The first block that waits for the wire. Those that do not want it any more wait no longer.
    fn next_waiting(&mut self) -> Option<usize> {
        while let Some(index) = self.waiting.first().copied() {
            if self.parts.get(index).is_some_and(Part::wants_wire) {
                return Some(index);
            }
            self.waiting.remove(&index);
        }
        None
    }

    /// A block that only this format knows is pasted; one of another format has no place here.
    fn opaque(&mut self, name: JsonStr<'_>, raw: RawJson<'_>, out: &mut BytesMut) {
        if !content::is_own(name) {
            return;
        }
        self.settle(false, out);
        self.yield_wire(out);
        if self.current.is_none() {
            super::part::put_start(self.next, out, |json| {
                json.raw(raw);
            });
            super::part::put_stop(self.next, out);
            self.next += 1;
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.settle(false, out);
        while let Some(part) = self.current.take().and_then(|index| self.parts.get_mut(index)) {
            part.close(false, &mut self.next, &self.reply, out);
            self.promote(out);
        }
        let Some(end) = self.finish.take() else {
            let message = "The upstream provider's answer ended without a reason.";
            return self.fail(&ApiError::new(Kind::UpstreamBroken, message), out);
        };
        if self.next == 0 {
            // Clients take the first block of an answer for granted.
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
        usage::write(&self.usage, false, &mut json);
        json.end_object();
        out.put_slice(b"\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        self.over = true;
    }
}
