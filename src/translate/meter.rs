//! What is noted of an answer while it passes: usage, id, finish reason, when its content began.

use smallvec::SmallVec;

use crate::canonical::{Delta, Event, Finish, Usage};
use crate::wire::watch::{End, Sight};

/// An id is kept up to this length (bytes): it is for logs.
const MAX_NOTE: usize = 80;

/// A reason, likewise: the longest that a vendor documents is `model_context_window_exceeded`.
const MAX_REASON: usize = 40;

/// The notes of one answer. Nothing is allocated after it was made.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    usage: Usage,
    id: SmallVec<[u8; MAX_NOTE]>,
    finish: SmallVec<[u8; MAX_REASON]>,
    frames: u64,
    content_frames: u64,
    seen: u64,
    finished: u64,
    end: End,
    /// What is counted here in case that the vendor does not say: see [`Counted`].
    counted: Counted,
}

/// What is known of an answer's size without its vendor.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Input tokens that are expected.
    input: u64,
    /// Bytes of content.
    text: u64,
    /// Bytes of frames that were not taken apart, how many they are, and the least of them.
    frames: (u64, u64, u64),
    /// The usage holds a figure of these.
    used: bool,
}

/// Bytes of text that make a token, about.
const BYTES_PER_TOKEN: u64 = 4;

impl Counted {
    /// Frames of one stream differ in their content and have the same around it, so what they have beyond the least of
    /// them is content.
    fn output(&self, content_frames: u64) -> u64 {
        let (bytes, frames, least) = self.frames;
        let text = self.text + bytes.saturating_sub(frames * least.saturating_sub(1));
        // A frame with content has at least one token.
        text.div_ceil(BYTES_PER_TOKEN).max(content_frames)
    }
}

impl Meter {
    /// Says how many input tokens are expected, in case that the vendor does not say how many there were.
    pub fn expect_input(&mut self, tokens: u64) {
        self.counted.input = tokens;
    }

    /// Takes note of bytes of content in a whole answer.
    pub fn weigh_text(&mut self, bytes: usize) {
        self.counted.text += bytes as u64;
    }

    /// Takes note of a frame with content in it.
    pub fn weigh_frame(&mut self, bytes: usize) {
        let (sum, frames, least) = &mut self.counted.frames;
        let bytes = bytes as u64;
        *sum += bytes;
        *least = if *frames == 0 { bytes } else { bytes.min(*least) };
        *frames += 1;
    }

    /// The answer is complete: what its vendor has not said of its usage is counted. Gives the usage if something was
    /// missing. `generates` tells answers that have output from those that have none.
    pub fn count_missing(&mut self, generates: bool) -> Option<Usage> {
        let output = self.usage.output.is_none() && generates;
        if output {
            self.usage.output = Some(self.counted.output(self.content_frames));
        }
        let input = self.usage.input.is_none();
        if input {
            self.usage.input = Some(self.counted.input);
        }
        self.counted.used |= input || output;
        (input || output).then_some(self.usage)
    }

    /// The answer was cut off: what its vendor said of the output so far may be less than what was delivered.
    pub fn count_cut(&mut self, generates: bool) {
        let delivered = self.counted.output(self.content_frames);
        if self.usage.output.is_some_and(|said| said < delivered) {
            self.usage.output = Some(delivered);
            self.counted.used = true;
        }
        self.count_missing(generates);
    }

    /// Whether the usage holds figures that the vendor did not say.
    pub fn is_counted(&self) -> bool {
        self.counted.used
    }

    /// Takes note of a frame, or of a whole answer.
    pub fn see(&mut self, sight: &Sight<'_>) {
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
        if self.end == End::Open {
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
                self.counted.text += match delta {
                    Delta::Text(text) | Delta::Arguments(text) => text.escaped().len() as u64,
                    Delta::Object(object) => object.text().len() as u64,
                    _ => 0,
                };
            }
            Event::Usage(usage) => self.usage.update(usage),
            Event::Finish { finish, .. } => {
                self.finish.clear();
                note(&mut self.finish, finish_word(*finish));
            }
            Event::Error(_) => self.end = End::Failed,
            Event::End => self.end = End::Terminated,
            Event::BlockStart { .. } | Event::BlockStop { .. } | Event::Ping => {}
        }
    }

    /// Takes note of a frame that holds nothing but content.
    #[inline]
    pub fn see_plain(&mut self, bytes: usize) {
        self.frames += 1;
        self.content_frames += 1;
        self.weigh_frame(bytes);
    }

    /// Takes over usage that was left unread while frames passed.
    pub fn see_usage(&mut self, usage: &Usage) {
        self.usage.update(usage);
    }

    /// Tokens, as the vendor reported them last.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The answer's id as the vendor gave it; empty when it gave none.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    /// Why the answer ended, in the vendor's word; empty while unknown.
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
    pub fn end(&self) -> End {
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
