//! What is noted of an answer while it passes: usage, id, finish reason, when its content began.

use bytes::Bytes;
use smallvec::SmallVec;

use super::count::{CountedRequest, Counter};
use super::verbatim::Arrival;
use crate::canonical::{Delta, Event, Finish, Usage};
use crate::tokens::Family;
use crate::wire::Format;
use crate::wire::watch::{FrameFacts, StreamEnd};

/// An id is kept up to this length (bytes): it is for logs.
const MAX_NOTE: usize = 80;

/// A reason, likewise: the longest that a provider documents is `model_context_window_exceeded`.
const MAX_REASON: usize = 40;

/// Usage meter of one response. Allocates nothing after it is made.
#[derive(Clone, Debug)]
pub struct Meter {
    usage: Usage,
    id: SmallVec<[u8; MAX_NOTE]>,
    finish: SmallVec<[u8; MAX_REASON]>,
    frames: u64,
    content_frames: u64,
    seen: u64,
    finished: u64,
    end: StreamEnd,
    /// What is kept in case that the provider does not say what was used.
    counter: Counter,
    /// The usage holds a figure that was counted here.
    counted: bool,
}

impl Meter {
    /// The notes of an answer in this format; nothing, if it has no output that is counted in tokens.
    pub fn new(format: Option<Format>, arrival: Arrival) -> Self {
        Meter {
            usage: Usage::default(),
            id: SmallVec::new(),
            finish: SmallVec::new(),
            frames: 0,
            content_frames: 0,
            seen: 0,
            finished: 0,
            end: StreamEnd::default(),
            counter: Counter::new(format, arrival),
            counted: false,
        }
    }

    /// Says whose tokens they are, and how many of input are expected, in case that the provider does not say how many
    /// there were.
    pub fn expect(&mut self, family: Family, input: u64) {
        self.counter.family = family;
        self.counter.input = input;
    }

    /// Keeps what was asked, likewise.
    pub fn asked(&mut self, asked: CountedRequest) {
        self.counter.asked = asked;
    }

    /// Bytes of a whole answer; nothing of a stream, which leaves as it comes.
    pub fn whole_bytes(&self) -> u64 {
        self.counter.heard_bytes()
    }

    /// Whether all that was asked is known to be in the request.
    pub fn is_whole(&self) -> bool {
        self.counter.asked.is_whole()
    }

    /// Takes note of a piece of a stream before it is read.
    #[inline]
    pub fn hear(&mut self, piece: &[u8]) {
        self.counter.hear(piece);
    }

    /// Takes note of a whole answer before it is read.
    pub fn hear_whole(&mut self, body: &Bytes) {
        self.counter.hear_whole(body);
    }

    /// The answer is complete: what its provider has not said of its usage is counted. Gives the usage if something was
    /// missing. `generates` tells answers that have output from those that have none.
    pub fn count_missing(&mut self, generates: bool) -> Option<Usage> {
        let output = self.usage.output.is_none() && generates;
        if output {
            self.usage.output = Some(self.counter.output(self.content_frames));
        }
        let input = self.usage.input.is_none();
        if input {
            self.usage.input = Some(self.counter.input());
        }
        self.counted |= input || output;
        (input || output).then_some(self.usage)
    }

    /// The answer was cut off: what its provider said of the output so far may be less than what was delivered.
    pub fn count_cut(&mut self, generates: bool) {
        if let Some(said) = self.usage.output {
            let delivered = self.counter.output(self.content_frames);
            if said < delivered {
                self.usage.output = Some(delivered);
                self.counted = true;
            }
        }
        self.count_missing(generates);
    }

    /// Whether the usage holds figures that the provider did not say.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// Takes note of a frame, or of a whole answer.
    pub fn see(&mut self, sight: &FrameFacts<'_>) {
        self.frames += 1;
        self.content_frames += u64::from(sight.content);
        if let Some(usage) = &sight.usage {
            self.usage.update(usage);
        }
        if self.id.is_empty()
            && let Some(id) = sight.id
        {
            note(&mut self.id, id.escaped());
        }
        if let Some(reason) = sight.finish {
            self.finish.clear();
            note(&mut self.finish, reason.escaped());
        }
        self.seen |= sight.seen;
        self.finished |= sight.finished;
        // A stream that has ended or failed stays so, whatever trails behind.
        if self.end == StreamEnd::Open {
            self.end = sight.end;
        }
    }

    /// Takes note of a frame whose events follow.
    pub fn see_frame(&mut self) {
        self.frames += 1;
    }

    /// Takes note of an event of a translated answer.
    pub fn see_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(start) => note(&mut self.id, start.id.escaped()),
            Event::Delta { delta, .. } => {
                let content = !matches!(delta, Delta::Seal(_) | Delta::Citation(_) | Delta::Logprobs(_));
                self.content_frames += u64::from(content);
            }
            Event::Usage(usage) => self.usage.update(usage),
            Event::Finish { finish, .. } => {
                self.finish.clear();
                note(&mut self.finish, finish_word(*finish));
            }
            Event::Error(_) => self.end = StreamEnd::Failed,
            Event::End => self.end = StreamEnd::Terminated,
            Event::BlockStart { .. } | Event::BlockStop { .. } | Event::Ping => {}
        }
    }

    /// Takes note of a frame that holds nothing but content.
    #[inline]
    pub fn see_plain(&mut self) {
        self.frames += 1;
        self.content_frames += 1;
    }

    /// Takes over usage that was left unread while frames passed.
    pub fn see_usage(&mut self, usage: &Usage) {
        self.usage.update(usage);
    }

    /// Tokens, as the provider reported them last.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The answer's id as the provider gave it; empty when it gave none.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    /// Why the answer ended, in the provider's word; empty while unknown.
    pub fn finish(&self) -> &str {
        std::str::from_utf8(&self.finish).unwrap_or_default()
    }

    /// Frames seen.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames with content seen.
    pub fn content_frames(&self) -> u64 {
        self.content_frames
    }

    /// Whether any choice or candidate has its finish reason.
    pub fn any_finished(&self) -> bool {
        self.finished != 0
    }

    /// Whether every choice or candidate that was begun has its finish reason.
    pub fn all_finished(&self) -> bool {
        self.seen != 0 && self.seen & !self.finished == 0
    }

    /// How far the answer has come.
    pub fn end(&self) -> StreamEnd {
        self.end
    }
}

/// The gateway's own word for why an answer ended.
fn finish_word(finish: Finish<'_>) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::StopSequence(_) => "stop_sequence",
        Finish::Length => "length",
        Finish::ContextFull => "context_full",
        Finish::ToolUse => "tool_use",
        Finish::ContentFilter => "content_filter",
        Finish::Pause => "pause",
        Finish::Other(_) => "other",
    }
}

fn note<const N: usize>(slot: &mut SmallVec<[u8; N]>, text: &str) {
    let end = (0..=text.len().min(N)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    slot.extend_from_slice(text.as_bytes().get(..end).unwrap_or_default());
}
