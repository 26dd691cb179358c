//! Usage meter of a response: usage, id, finish reason and frame counts, recorded while it passes.

use bytes::Bytes;
use smallvec::SmallVec;

use super::count::{CountedRequest, Counter};
use super::verbatim::Arrival;
use crate::canonical::{Delta, Event, Finish, Usage};
use crate::tokens::TokenizerFamily;
use crate::wire::Format;
use crate::wire::watch::{FrameFacts, StreamEnd};
use json::{Cursor, JsonText, Utf8Error};

/// Maximum length of the recorded id, in bytes: it is for logs.
const MAX_NOTE: usize = 80;

/// Maximum length of the recorded finish reason, in bytes: the longest documented one is
/// `model_context_window_exceeded`.
const MAX_REASON: usize = 40;

/// Number of frames at the start of a stream that are always parsed: for the id and the number of choices.
const READ_WHOLE: u64 = 8;

/// Input tokens that any request may have, whatever its size in bytes: see [`UsageBound`](routing::account::usage_bound).
const FEW: u64 = 1 << 20;

/// Maximum length of the recorded model name, in bytes: the longest are resource names of cloud platforms.
const MAX_MODEL: usize = 200;

/// Usage meter of one response. Allocates nothing after it is made, except for the model name of a traced response.
#[derive(Clone, Debug)]
pub struct Meter {
    usage: Usage,
    id: SmallVec<[u8; MAX_NOTE]>,
    finish: SmallVec<[u8; MAX_REASON]>,
    frames: u64,
    content_frames: u64,
    seen: u64,
    finished: u64,
    /// Whether a finish reason of a verbatim response means that it broke off.
    broken_off: bool,
    /// Whether a further frame need not be parsed if it has only content. One flag, because it is asked for each frame.
    may_skim: bool,
    end: StreamEnd,
    /// Stored request and response parts for counting tokens if the provider reports no usage.
    counter: Counter,
    /// Whether the usage contains figures that the gateway counted.
    counted: bool,
    /// Responses before the one in progress, if input of the client made the provider begin others.
    steered: Option<Box<SteeredResponses>>,
    model: RecordedModel,
}

/// Model name in a response.
#[derive(Clone, Debug)]
enum RecordedModel {
    /// It is not recorded.
    Off,
    /// No frame had one yet.
    Missing,
    /// The first one.
    Found(Box<str>),
}

/// Responses that were steered: the usage of the last one is added to theirs.
#[derive(Clone, Debug)]
struct SteeredResponses {
    usage: Usage,
    count: u64,
    /// Whether the response in progress has reported no usage yet.
    is_open: bool,
}

impl Meter {
    /// Creates the meter of a response. `format` is `None` if the response has no output that is counted in tokens.
    pub fn new(format: Option<Format>, arrival: Arrival) -> Self {
        Meter {
            usage: Usage::default(),
            id: SmallVec::new(),
            finish: SmallVec::new(),
            frames: 0,
            content_frames: 0,
            seen: 0,
            finished: 0,
            broken_off: false,
            may_skim: false,
            end: StreamEnd::default(),
            counter: Counter::new(format, arrival),
            counted: false,
            steered: None,
            model: RecordedModel::Off,
        }
    }

    /// Makes the meter record the model name that the response has.
    pub fn record_model(&mut self) {
        self.model = RecordedModel::Missing;
    }

    /// Sets the tokenizer family and the expected number of input tokens, as a fallback if the provider reports no
    /// usage.
    pub fn expect(&mut self, family: TokenizerFamily, input: u64) {
        self.counter.family = family;
        self.counter.input = input;
    }

    /// Sets the number of choices that the client has requested: counted output is theirs alone.
    pub fn expect_choices(&mut self, choices: u64) {
        self.counter.choices = choices.max(1);
    }

    /// Stores the request, as a fallback for counting its input tokens. It is freed as soon as the provider has reported
    /// them, which some do when a stream begins.
    pub fn set_request(&mut self, asked: CountedRequest) {
        self.counter.request = asked;
        self.free_request();
    }

    /// Frees the request if it is not needed any more: the provider has reported the input tokens, so few that
    /// [`is_whole`](Self::is_whole) will not be asked.
    #[inline]
    fn free_request(&mut self) {
        // The input of a steered response is counted again, in the format that reports usage at the end.
        let is_early = matches!(self.counter.format, Some(Format::Messages | Format::Generate));
        if is_early && self.usage.input.is_some_and(|input| input <= FEW) {
            self.counter.request = CountedRequest::default();
        }
    }

    /// Returns the size of a whole response in bytes; 0 for a stream.
    pub fn whole_bytes(&self) -> u64 {
        self.counter.whole_response_bytes()
    }

    /// Returns true if the request refers to no content outside itself, so that its size bounds the input tokens.
    pub fn is_whole(&self) -> bool {
        self.steered.is_none() && self.counter.request.is_whole()
    }

    /// Records a piece of a stream before it is parsed.
    #[inline]
    pub fn record_piece(&mut self, piece: &[u8]) {
        self.counter.record_piece(piece);
    }

    /// Checks that a whole response is UTF-8, and records it before it is parsed.
    ///
    /// # Errors
    /// Returns an error without a position if it is not UTF-8; its size is recorded nevertheless.
    pub fn record_whole(&mut self, body: Bytes) -> Result<JsonText, Utf8Error> {
        self.counter.record_whole(body)
    }

    /// Counts the usage that the provider of a complete response did not report. Returns the usage if a figure was
    /// missing, and `None` otherwise. `generates` is whether the response has output tokens.
    pub fn count_missing(&mut self, generates: bool) -> Option<Usage> {
        if let Some(steered) = self.steered.as_mut().filter(|steered| steered.is_open) {
            // The input of a successor is at least that of the request.
            steered.is_open = false;
            self.usage.input = self.usage.input.map(|input| input.saturating_add(self.counter.input()));
            self.counted = true;
        }
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

    /// Counts the usage of a response that was cut off: the provider's last output figure may be below the delivered
    /// output.
    pub fn count_cut(&mut self, generates: bool) {
        self.count_cut_within(generates, u64::MAX);
    }

    /// Counts the usage of a response that was cut off, but no more than `most` output tokens.
    pub fn count_cut_within(&mut self, generates: bool, most: u64) {
        if self.usage.output.is_some() || generates {
            let delivered = self.counter.output(self.content_frames).min(most);
            if self.usage.output.is_none_or(|said| said < delivered) {
                self.usage.output = Some(delivered);
                self.counted = true;
            }
        }
        self.count_missing(generates);
    }

    /// Returns the input and output tokens as the gateway counts them, whatever the provider has reported.
    #[cold]
    pub fn count_all(&self) -> [u64; 2] {
        let responses = self.steered().saturating_add(1);
        [self.counter.input().saturating_mul(responses), self.counter.output(self.content_frames)]
    }

    /// Returns true if the usage contains figures that the provider did not report.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// Records a frame or a whole response. `text` is what the facts were read from.
    pub fn observe(&mut self, text: &str, sight: &FrameFacts<'_>) {
        self.frames += 1;
        if matches!(self.model, RecordedModel::Missing)
            && let Some(at) = &sight.model_at
        {
            self.observe_model(text.get(at.clone()).unwrap_or_default());
        }
        self.content_frames += u64::from(sight.content);
        if let Some(usage) = &sight.usage {
            self.observe_usage(usage);
        }
        self.usage.tier = sight.tier.or(self.usage.tier);
        // Only the first id is recorded: `note` appends, and would join later ids to it.
        if self.id.is_empty()
            && let Some(id) = sight.id
        {
            note(&mut self.id, id.escaped());
        }
        if let Some(reason) = sight.finish {
            self.finish.clear();
            note(&mut self.finish, reason.escaped());
            // A chat response that broke off does not pass: see `frame_edit`.
            let format = self.counter.format.filter(|format| *format != Format::Chat);
            self.broken_off |= format.is_some_and(|format| sight.failure(format).is_some());
        }
        // One bit per choice: the stream is complete once every choice that has started has finished.
        self.seen |= sight.seen;
        self.finished |= sight.finished;
        self.may_skim = self.frames >= READ_WHOLE && self.finished == 0;
        // The first terminator or error is final: frames behind it do not change the state.
        if self.end == StreamEnd::Open {
            self.end = sight.end;
        } else if sight.begins && self.end == StreamEnd::Terminated {
            self.begin_successor();
        }
    }

    /// Records the model name, which is a JSON string.
    #[cold]
    fn observe_model(&mut self, name: &str) {
        if let Ok(name) = Cursor::new(name).string() {
            self.model = RecordedModel::Found(start_of(&name.decode(), MAX_MODEL).into());
        }
    }

    /// Begins the successor of a steered response. Its usage is added to that of the responses before.
    #[cold]
    fn begin_successor(&mut self) {
        let count = self.steered.as_ref().map_or(0, |steered| steered.count) + 1;
        self.steered = Some(Box::new(SteeredResponses { usage: self.usage, count, is_open: true }));
        self.end = StreamEnd::Open;
        (self.seen, self.finished) = (0, 0);
        self.may_skim = self.frames >= READ_WHOLE;
    }

    /// Returns how many responses were steered and have a successor in this stream.
    pub fn steered(&self) -> u64 {
        self.steered.as_ref().map_or(0, |steered| steered.count)
    }

    /// Records a frame whose events follow.
    pub fn observe_frame(&mut self) {
        self.frames += 1;
    }

    /// Records an event of a translated response.
    pub fn observe_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(start) => {
                note(&mut self.id, start.id.escaped());
                if matches!(self.model, RecordedModel::Missing) && !start.model.escaped().is_empty() {
                    self.model = RecordedModel::Found(start_of(&start.model.decode(), MAX_MODEL).into());
                }
            }
            Event::Delta { delta, .. } => {
                // These deltas add no output tokens, so a frame with them alone must not count as one token.
                let content = !matches!(delta, Delta::Signature(_) | Delta::Citation(_) | Delta::Logprobs(_));
                self.content_frames += u64::from(content);
            }
            Event::Usage(usage) => {
                self.usage.update(usage);
                self.free_request();
            }
            Event::Finish { finish, .. } => {
                self.finish.clear();
                note(&mut self.finish, finish_word(*finish));
            }
            Event::Error(_) => self.end = StreamEnd::Failed,
            Event::End => self.end = StreamEnd::Terminated,
            Event::BlockStart { .. } | Event::BlockStop { .. } | Event::Ping => {}
        }
    }

    /// Records a frame that has only content.
    #[inline]
    pub fn observe_content(&mut self) {
        self.frames += 1;
        self.content_frames += 1;
    }

    /// Merges usage whose parsing was deferred.
    pub fn observe_usage(&mut self, usage: &Usage) {
        match &mut self.steered {
            None => {
                self.usage.update(usage);
                self.free_request();
            }
            Some(steered) => {
                steered.is_open = false;
                self.usage = steered.usage;
                self.usage.add(usage);
            }
        }
    }

    /// Returns the usage so far, in tokens.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Returns the response id of the provider; empty if it sent none.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    /// Returns the finish reason; empty while unknown. It is the provider's word in a verbatim response, and the
    /// canonical name in a translated one.
    pub fn finish(&self) -> &str {
        std::str::from_utf8(&self.finish).unwrap_or_default()
    }

    /// Returns the model name that the response has. `None` if it has none, or it is not recorded.
    pub fn model(&self) -> Option<&str> {
        match &self.model {
            RecordedModel::Found(name) if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of frames with content.
    pub fn content_frames(&self) -> u64 {
        self.content_frames
    }

    /// Returns true if any choice or candidate has its finish reason.
    pub fn any_finished(&self) -> bool {
        self.finished != 0
    }

    /// Returns true if a further frame of a stream need not be parsed if it has only content: the first ones have been,
    /// and no choice or candidate has its finish reason.
    pub fn may_skim(&self) -> bool {
        self.may_skim
    }

    /// Returns true if every choice or candidate that has started has its finish reason.
    pub fn all_finished(&self) -> bool {
        self.seen != 0 && self.seen & !self.finished == 0
    }

    /// Returns true if the provider says that it broke the response off: by an error, or by the finish reason of a
    /// response that passes verbatim.
    pub fn has_failed(&self) -> bool {
        self.end == StreamEnd::Failed || self.broken_off
    }

    /// Returns true if the finish reason of a response that passes verbatim means that it broke off.
    pub fn is_broken_off(&self) -> bool {
        self.broken_off
    }

    /// Returns the state of the stream.
    pub fn end(&self) -> StreamEnd {
        self.end
    }
}

/// Returns the canonical name of a finish reason.
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
    slot.extend_from_slice(start_of(text, N).as_bytes());
}

/// Returns the beginning of a text, at most this number of bytes.
fn start_of(text: &str, max: usize) -> &str {
    // Cut at a character boundary: the bytes are read back as UTF-8, which would otherwise yield nothing.
    let end = (0..=text.len().min(max)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    /// Returns a meter of a stream that has stored a request.
    fn meter(format: Format) -> Meter {
        let mut meter = Meter::new(Some(format), Arrival::Events);
        meter.expect(TokenizerFamily::Other, 7);
        meter.set_request(CountedRequest::of(smallvec![Bytes::from_static(br#"{"messages":[]}"#)]));
        meter
    }

    #[test]
    fn request_is_kept_until_its_tokens_are_known() {
        let usage = Usage { input: Some(25), ..Usage::default() };
        let mut streamed = meter(Format::Messages);
        assert!(streamed.is_whole());
        streamed.observe_event(&Event::Usage(Usage { output: Some(1), ..Usage::default() }));
        assert!(streamed.is_whole());
        streamed.observe_event(&Event::Usage(usage));
        assert!(!streamed.is_whole(), "nothing is stored");
        streamed.count_cut(true);
        assert_eq!(streamed.usage().input, Some(25));
        // Reported before the request could be stored.
        streamed.set_request(CountedRequest::of(smallvec![Bytes::from_static(b"{}")]));
        assert!(!streamed.is_whole());
        // An impossible figure is checked against the request.
        let mut wrong = meter(Format::Messages);
        wrong.observe_usage(&Usage { input: Some(FEW + 1), ..Usage::default() });
        assert!(wrong.is_whole());
        // Reported at the end, where nothing is gained, and where a steered response is counted again.
        let mut last = meter(Format::Responses);
        last.observe_usage(&usage);
        assert!(last.is_whole());
    }
}
