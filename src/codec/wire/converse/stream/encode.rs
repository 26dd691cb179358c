//! Stream encoder of the Converse format: events to messages of an event stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::super::{finish, usage};
use super::part::{BlockForm, EncodedBlock, EventType, put_delta, put_index};
use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event, Usage};
use crate::error::{ApiError, ErrorKind};
use crate::wire::codec::ReplyOptions;
use crate::wire::error::{ProviderError, from_provider};
use json::Writer;

/// Encoder of a Converse stream.
///
/// Blocks do not overlap in this format, but those of other formats may. The block that began first is the current one;
/// deltas of the others are buffered. A text block yields to any other block and continues later in a new one.
#[derive(Debug)]
pub struct Encoder {
    reply: Arc<ReplyOptions>,
    started: bool,
    over: bool,
    /// Blocks by their event index.
    blocks: Vec<EncodedBlock>,
    /// Index of the block that is open in the output.
    current: Option<usize>,
    /// Blocks that may have buffered content.
    waiting: BTreeSet<usize>,
    /// Index of the next block in the output.
    next: u32,
    called: bool,
    refused: bool,
    usage: Usage,
    finish: Option<FinishOwned>,
}

impl Encoder {
    /// Creates an encoder of one response.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        Encoder {
            reply,
            started: false,
            over: false,
            blocks: Vec::new(),
            current: None,
            waiting: BTreeSet::new(),
            next: 0,
            called: false,
            refused: false,
            usage: Usage::default(),
            finish: None,
        }
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
            Event::Start(_) => self.start(out),
            Event::BlockStart { choice, kind, .. } => self.block_start(choice, kind, out),
            Event::BlockStop { index } => self.block_stop(index as usize, out),
            Event::Usage(usage) => self.usage.update(&usage),
            Event::Finish { choice, finish } => {
                // The format has one response per request; ignore other choices.
                if choice == 0 {
                    self.finish = Some(FinishOwned::own(finish));
                }
            }
            // The format has no event that means nothing.
            Event::Ping => {}
            Event::Error(error) => {
                let error = ProviderError::decode(error.text().as_bytes());
                self.fail(&from_provider(ErrorKind::UpstreamFailed.row().status, error, None), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Ends the stream with an exception.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.over, true) {
            super::super::error::encode_event(error, out);
        }
    }

    fn start(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.started, true) {
            EventType::MessageStart.write(out, |out| out.put_slice(b"{\"role\":\"assistant\"}"));
        }
    }

    fn block_start(&mut self, choice: u32, kind: BlockKind<'_>, out: &mut BytesMut) {
        let index = self.blocks.len();
        let block = EncodedBlock::new(kind, choice == 0, self.reply.show_thinking);
        self.called |= matches!(block.form, BlockForm::Call(_));
        self.refused |= matches!(kind, BlockKind::Refusal) && choice == 0;
        let form = block.form;
        self.blocks.push(block);
        if form == BlockForm::Nothing {
            return;
        }
        self.yield_output(out);
        match self.current {
            None => self.current = Some(index),
            Some(_) => drop(self.waiting.insert(index)),
        }
    }

    #[inline]
    fn delta(&mut self, index: usize, delta: Delta<'_>, out: &mut BytesMut) {
        if self.current != Some(index) {
            return self.delta_aside(index, delta, out);
        }
        if let Some(block) = self.blocks.get_mut(index) {
            block.delta(delta, &mut self.next, &self.reply, out);
        }
    }

    /// Processes a delta for a block that is not the current one.
    #[cold]
    fn delta_aside(&mut self, index: usize, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        block.buffer(delta);
        self.waiting.insert(index);
        // The block may be a text that has yielded, or no block may be current.
        self.yield_output(out);
        self.promote(out);
    }

    fn block_stop(&mut self, index: usize, out: &mut BytesMut) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        block.stopped = true;
        if self.current == Some(index) {
            block.close(&mut self.next, &self.reply, out);
            self.current = None;
            self.promote(out);
        }
    }

    /// Closes the current block if it can yield, because another block has content.
    fn yield_output(&mut self, out: &mut BytesMut) {
        if let Some(block) = self.current.and_then(|index| self.blocks.get_mut(index))
            && block.may_yield()
        {
            block.close(&mut self.next, &self.reply, out);
            self.current = None;
        }
    }

    /// Makes the first waiting block current if no block is, and writes its buffered content.
    fn promote(&mut self, out: &mut BytesMut) {
        while self.current.is_none() {
            let Some(index) = self.waiting.pop_first() else { return };
            let Some(block) = self.blocks.get_mut(index).filter(|block| block.needs_output()) else {
                continue;
            };
            block.release(&mut self.next, &self.reply, out);
            if block.stopped {
                block.close(&mut self.next, &self.reply, out);
            } else {
                self.current = Some(index);
                if !self.waiting.is_empty() {
                    self.yield_output(out);
                }
            }
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.start(out);
        // Blocks that waited for the last one must still be written.
        while let Some(block) = self.current.take().and_then(|index| self.blocks.get_mut(index)) {
            block.close(&mut self.next, &self.reply, out);
            self.promote(out);
        }
        // Without a reason the response may be cut; an error makes clients retry instead of using it.
        let Some(end) = self.finish.take() else {
            let message = "The upstream provider's response ended without a stop reason.";
            return self.fail(&ApiError::new(ErrorKind::UpstreamBroken, message), out);
        };
        if self.next == 0 {
            // Applications access the first block without checking that it exists.
            put_delta(0, br#","delta":{"text":""#, br#""}}"#, b"", out);
            EventType::BlockStop.write(out, |out| put_index(0, b"}", out));
        }
        let end = end.borrow();
        EventType::MessageStop.write(out, |out| {
            let mut json = Writer::new(out);
            let reason = finish::encode(end, self.called, self.refused);
            json.begin_object().key("stopReason").string(reason);
            finish::write_fields(end, &mut json);
            json.end_object();
        });
        EventType::Metadata.write(out, |out| {
            let mut json = Writer::new(out);
            json.begin_object().key("usage");
            usage::write(&self.usage, &mut json);
            usage::write_metrics(&self.reply, &mut json);
            usage::write_tier(&self.usage, &mut json);
            json.end_object();
        });
        self.over = true;
    }
}
