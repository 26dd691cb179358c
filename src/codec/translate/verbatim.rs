//! Verbatim response: client and provider have the same format, so the bytes pass unchanged.
//!
//! Only these edits are made. A renamed model gets the client's name back. The usage chunk of a chat stream is removed
//! if the gateway requested it and the client did not. The usage of a chat completion, or of a chat stream whose client
//! requested it, is inserted if the provider reports none. Error types of the messages format and the encoding of
//! embeddings are corrected on request ([`Changes`]). Everything else is forwarded byte for byte, in whole frames, so
//! that a broken stream can still be ended with an error that the client's SDK parses.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::Meter;
use super::event_stream;
use super::frame_edit::{self, FrameEdit};
use super::frame_seal::{no_answer, seal, sealed};
use super::output_slices::OutputSlices;
use super::resume::VerbatimTap;
use crate::wire::chat::correct::Corrector;
use crate::wire::chat::usage::{UsageChunk, with_usage};
use crate::wire::error::ArrayState;
use crate::wire::watch::{self, FrameFacts, StreamEnd};
use crate::wire::{Api, Format, embeddings, filler};
use framing::event_stream::EventStreamSplitter;
use framing::frame_buffer::FrameTooLarge;
use framing::json_array::{ArraySplitter, element};
use framing::sse::{SseEvent, SseSplitter};
use framing::{FrameBuffer, Splitter};
use json::{Cursor, EscapedString, JsonError, JsonText};

/// Reason why a response cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A frame exceeds the size limit.
    #[error(transparent)]
    Frame(#[from] FrameTooLarge),
    /// The response is not valid JSON, or not an object.
    #[error("the upstream provider's response is not valid: {0}")]
    Invalid(String),
    /// The stream ended without the terminator that its format requires.
    #[error("the upstream provider's stream ended before it was complete")]
    Cut,
    /// The first frame is an error; nothing has been forwarded except comments.
    #[error("the upstream provider's stream began with an error")]
    FirstFrame(Bytes),
    /// A later frame is an error that must be sent to the client in its own format.
    #[error("the upstream provider's stream turned into an error")]
    Failed(Bytes),
}

/// Transport form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// One JSON document.
    Whole,
    /// Server-sent events.
    Events,
    /// One JSON array in pieces.
    Array,
    /// Messages of an AWS event stream.
    EventStream,
}

impl Arrival {
    /// Returns a splitter for the frames of this form.
    pub(super) fn splitter(self) -> Splitter {
        match self {
            Arrival::Array => Splitter::JsonArray(ArraySplitter::default()),
            Arrival::Events | Arrival::Whole => Splitter::Sse(SseSplitter::default()),
            Arrival::EventStream => Splitter::EventStream(EventStreamSplitter::default()),
        }
    }
}

/// Edits to a response.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Model name to restore, as the client knows it; `None` if the route did not rename it.
    pub model: Option<EscapedString>,
    /// Whether to remove the usage chunk.
    pub drop_usage: bool,
    /// Usage chunk to insert if the provider reports no usage, for a chat stream whose client requested usage.
    pub insert_usage: Option<UsageChunk>,
    /// Encoding of embedding vectors that the client wants: base64 or numbers. Some providers ignore the requested
    /// encoding.
    pub base64: Option<bool>,
    /// Issuer that the envelopes of signatures name, for a provider whose signatures need envelopes in its own format.
    pub issuer: Option<Box<str>>,
    /// Whether the response may have tool calls, because the request offers tools (chat only).
    pub calls: bool,
}

impl Changes {
    /// Creates the edits that depend on the route and the tools of the request.
    pub fn new(model: Option<EscapedString>, calls: bool) -> Self {
        Changes { model, calls, ..Changes::default() }
    }
}

/// Verbatim forwarder of one response.
#[derive(Debug)]
pub struct Verbatim {
    api: Api,
    arrival: Arrival,
    changes: Changes,
    frame_buffer: FrameBuffer,
    meter: Meter,
    /// Last frame that has content and usage and whose parsing was deferred; empty if there is none.
    unread: Vec<u8>,
    /// Output buffer for pieces in which a frame changes.
    rebuilt: BytesMut,
    scratch: Vec<u8>,
    array: ArrayState,
    /// Closing bracket of a JSON array, held back until the response is known to be complete: an error element must
    /// precede it.
    closing: Bytes,
    /// Whether the last event was removed, so that a line feed that still belongs to it is removed as well.
    dropped: bool,
    /// Transcript tap, if another provider may continue this response.
    tap: Option<Box<VerbatimTap>>,
    /// Output of the current piece that passed before a fault.
    ready: Bytes,
    /// Corrections of chat chunks.
    corrector: Corrector,
}

/// Returns the data of a frame that is no server-sent event; `None` if it has none.
// Apart from the code for server-sent events, which would have fewer registers.
#[inline(never)]
fn rare_data<'f>(
    arrival: Arrival,
    frame: &'f [u8],
    scratch: &'f mut Vec<u8>,
) -> Result<Option<&'f [u8]>, StreamError> {
    match arrival {
        Arrival::EventStream => event_stream::data(frame, scratch),
        Arrival::Array | Arrival::Events | Arrival::Whole => Ok(element(frame)),
    }
}

impl Verbatim {
    /// Creates a forwarder for a response of `api`. `max_frame` is the maximum size of a stream frame, in bytes.
    pub fn new(api: Api, arrival: Arrival, changes: Changes, max_frame: usize) -> Self {
        let corrector = Corrector::new(api == Api::Chat && changes.calls);
        Verbatim {
            api,
            arrival,
            changes,
            frame_buffer: FrameBuffer::new(arrival.splitter(), max_frame),
            meter: Meter::new(api.format(), arrival),
            unread: Vec::new(),
            rebuilt: BytesMut::new(),
            scratch: Vec::new(),
            array: ArrayState::Nothing,
            closing: Bytes::new(),
            dropped: false,
            tap: None,
            ready: Bytes::new(),
            corrector,
        }
    }

    /// Starts the transcript: see [`Exchange::follow`](super::Exchange::record_transcript). Responses of the responses
    /// format are stored by their provider, so no other provider can continue them.
    pub fn record_transcript(&mut self) {
        let format = self.api.format().filter(|format| *format != Format::Responses);
        if let Some(format) = format.filter(|_| self.arrival != Arrival::Whole) {
            self.tap = Some(Box::new(VerbatimTap::new(format)));
        }
    }

    pub(super) fn tap(&self) -> Option<&VerbatimTap> {
        self.tap.as_deref()
    }

    /// Returns the transcript tap and the client's name of a renamed model.
    pub(super) fn into_tap(self) -> (Option<Box<VerbatimTap>>, Option<EscapedString>) {
        (self.tap, self.changes.model)
    }

    /// Returns the format; `None` for an API without generated output, such as embeddings.
    pub fn format(&self) -> Option<Format> {
        self.api.format()
    }

    /// Takes the output of a piece that passed before the fault in it.
    pub fn take_ready(&mut self) -> Bytes {
        std::mem::take(&mut self.ready)
    }

    /// Returns the meter, mutable.
    pub fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Parses the frame whose parsing was deferred.
    pub fn parse_deferred(&mut self) {
        frame_edit::settle(self.api, &mut self.unread, &mut self.meter);
    }

    /// Returns the meter. Call [`parse_deferred`](Self::parse_deferred) first when no more input follows.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns true if the response has output that is counted in tokens.
    pub fn generates(&self) -> bool {
        self.api.format().is_some()
    }

    /// Returns how the response arrives.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Returns how much of a JSON array has been forwarded, so that an error can be appended; `None` for other forms.
    pub fn array_state(&self) -> Option<ArrayState> {
        (self.arrival == Arrival::Array).then_some(self.array)
    }

    /// Returns keep-alive filler: see [`Exchange::keep_alive`](super::Exchange::keep_alive). Only whole frames are
    /// forwarded, so the filler is always between two frames.
    pub fn keep_alive(&self) -> Bytes {
        match self.api.format() {
            Some(format) if self.arrival != Arrival::Whole && self.meter.end() == StreamEnd::Open => {
                Bytes::from_static(filler(format).as_bytes())
            }
            _ => Bytes::new(),
        }
    }

    /// Returns true if a frame is incomplete.
    pub fn is_partial(&self) -> bool {
        self.frame_buffer.is_partial()
    }

    /// Feeds a piece of a stream and returns the bytes to forward: whole frames, usually the piece itself without a
    /// copy.
    ///
    /// # Errors
    /// Returns [`StreamError`] if a frame is too large or invalid, or if it is an error that must not be forwarded.
    /// [`StreamError::FirstFrame`] means that nothing has been forwarded except comments.
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        let Verbatim {
            api,
            arrival,
            changes,
            frame_buffer: hold,
            meter,
            unread,
            rebuilt,
            scratch,
            array,
            closing,
            dropped,
            tap: beside,
            ready,
            corrector,
        } = self;
        let mut run = OutputSlices::new(rebuilt);
        let passed = hold.feed(&piece, |source, range| {
            let frame = source.get(range.clone()).unwrap_or_default();
            let data = if matches!(arrival, Arrival::Events | Arrival::Whole) {
                // Behind the first frame, only Gemini sends JSON without a `data:` field.
                let bare = *api == Api::Generate || meter.frames() == 0;
                SseEvent::parse(frame, scratch).data.or_else(|| bare_json(frame).filter(|_| bare))
            } else {
                rare_data(*arrival, frame, scratch)?
            };
            // A frame that began in an earlier piece is in the reassembly buffer, not in this piece, and must be
            // copied.
            let joined = !std::ptr::eq(source, &piece);
            // The removed event ended in `\r` at the end of a piece: its `\n` arrives as a frame of its own.
            if *dropped {
                *dropped = frame == b"\n";
                if *dropped {
                    run.drop(source, joined);
                    return Ok(());
                }
            }
            if *arrival == Arrival::Array {
                // The closing bracket has arrived: another element would make the client's JSON invalid.
                if !closing.is_empty() {
                    return Err(StreamError::Invalid("something follows the array".to_owned()));
                }
                if data.is_none() {
                    // A frame without an element is the closing bracket: hold it back, so that an error can still
                    // precede it.
                    *closing = source.slice(range);
                    run.drop(source, joined);
                    return Ok(());
                }
                *array = ArrayState::Elements;
            }
            // Decode the frame before it passes: a frame that the client cannot read must not reach it, or a
            // continuation would follow a broken frame.
            if let (Some(beside), Some(data)) = (beside.as_mut(), data) {
                beside.frame(data, meter.frames() == 0)?;
            }
            match frame_edit::read(*api, changes, corrector, meter, unread, data)? {
                FrameEdit::None => match (&changes.issuer, data) {
                    (Some(issuer), Some(data)) => seal(&mut run, source, range, joined, data, issuer),
                    _ => run.forward(source, range, joined),
                },
                FrameEdit::Drop => {
                    *dropped = true;
                    run.drop(source, joined);
                }
                FrameEdit::InsertUsage(data, chunk, usage) => {
                    run.edit(source, range, joined, (data, 0..0), |out| {
                        chunk.put(meter.id(), &usage, out);
                        out.extend_from_slice(b"\n\ndata: ");
                    });
                }
                FrameEdit::Rename(data, at, model) => run.rename(source, range, joined, data, at, model),
                FrameEdit::Correct(data, text) => {
                    run.edit(source, range, joined, (data, 0..data.len()), |out| {
                        out.extend_from_slice(text.as_bytes())
                    });
                }
            }
            Ok(())
        });
        // Also after a fault: the frames before it are whole and belong to the client.
        let out = run.finish(&piece);
        if let Some(beside) = beside {
            beside.record_forwarded(&out);
        }
        if let Err(error) = passed {
            *ready = out;
            return Err(error);
        }
        Ok(out)
    }

    /// Ends a stream and returns the remaining bytes to forward.
    ///
    /// # Errors
    /// Returns [`StreamError::Cut`] if the stream lacks the terminator that its format requires.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        self.parse_deferred();
        let tail = self.end()?;
        // Evaluate this before `count_missing`, which fills in the usage.
        let is_told = self.meter.usage().is_known() || self.meter.end() != StreamEnd::Open;
        let counted = self.meter.count_missing(self.generates());
        match (&self.changes.insert_usage, counted) {
            // The stream has no `[DONE]`, before which the usage chunk would have been inserted.
            (Some(chunk), Some(usage)) if !is_told => {
                let mut out = BytesMut::from(&*tail);
                out.extend_from_slice(b"data: ");
                chunk.put(self.meter.id(), &usage, &mut out);
                out.extend_from_slice(b"\n\n");
                Ok(out.freeze())
            }
            _ => Ok(tail),
        }
    }

    fn end(&mut self) -> Result<Bytes, StreamError> {
        let rest = self.frame_buffer.take_rest();
        let (tail, closed) = match self.frame_buffer.splitter() {
            Splitter::JsonArray(splitter) => {
                let closed = splitter.is_closed();
                let closing = std::mem::take(&mut self.closing);
                let tail = if closing.is_empty() { rest } else { Bytes::from([closing, rest].concat()) };
                (tail, closed)
            }
            Splitter::Sse(_) => (self.last_event(&rest)?, true),
            // A message is complete or it is none.
            Splitter::EventStream(_) => (Bytes::new(), true),
        };
        match self.meter.end() {
            StreamEnd::Terminated | StreamEnd::Failed => Ok(tail),
            // Some chat providers never send `[DONE]`, and Gemini has no terminator: the finish reasons of all choices
            // suffice. Behind that of Converse, only usage may be missing.
            StreamEnd::Open
                if closed
                    && self.meter.all_finished()
                    && matches!(self.api, Api::Chat | Api::Generate | Api::Converse) =>
            {
                Ok(tail)
            }
            StreamEnd::Open => {
                // The bracket of an array stays held back. The last event is forwarded even without its blank line.
                if self.arrival == Arrival::Events && self.tap.is_some() {
                    self.ready = tail;
                }
                Err(StreamError::Cut)
            }
        }
    }

    /// Handles the last event of some providers, which lacks its blank line. It passes only if its data is complete.
    fn last_event(&mut self, rest: &Bytes) -> Result<Bytes, StreamError> {
        let mut scratch = Vec::new();
        let whole = SseEvent::parse(rest, &mut scratch)
            .data
            .or_else(|| bare_json(rest))
            .and_then(|data| std::str::from_utf8(data).ok())
            .is_some_and(is_whole);
        if !whole {
            return Ok(Bytes::new());
        }
        // Complete the event with a blank line: the splitter then returns it, and an error appended later starts a new
        // event.
        let mut event = BytesMut::with_capacity(rest.len() + 4);
        event.extend_from_slice(rest);
        event.extend_from_slice(b"\n\n");
        self.feed(event.freeze())
    }

    /// Checks a whole response and returns it with the edits applied.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the response is not a JSON object, or is an error.
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        let text = match self.arrival {
            Arrival::Whole => self.meter.record_whole(body),
            Arrival::Events | Arrival::Array | Arrival::EventStream => {
                self.meter.record_piece(&body);
                JsonText::new(body)
            }
        };
        let text = text.map_err(|_| StreamError::Invalid("not UTF-8".to_owned()))?;
        let sight = watch_answer(self.api, &text).map_err(|error| no_answer(&text, &error))?;
        // An error body with status 200: the caller turns it into an upstream error.
        if sight.end == StreamEnd::Failed {
            return Err(StreamError::FirstFrame(text.as_bytes().clone()));
        }
        if let Some(error) = frame_edit::broken_off_document(self.api, &text, &sight) {
            return Err(StreamError::FirstFrame(error));
        }
        self.meter.observe(&text, &sight);
        let counted = self.meter.count_missing(self.generates()).filter(|_| self.api == Api::Chat);
        let may_be_odd = self.api == Api::Chat
            && (sight.is_odd
                || sight.finish.is_some_and(|word| word.is("tool_calls"))
                || self.corrector.is_concerned(text.as_bytes()));
        let model_at = sight.model_at;
        let named = match (&self.changes.model, model_at) {
            (Some(model), Some(at)) => renamed(&text, at, model),
            _ => text,
        };
        let named = match if may_be_odd { self.corrector.document(&named) } else { None } {
            Some(corrected) => corrected.into(),
            None => named,
        };
        let named = match &self.changes.issuer {
            Some(issuer) => sealed(named, issuer),
            None => named,
        };
        // Usage is inserted into chat completions, and vectors are those of embeddings: a response needs one of the two.
        if let Some(told) = counted.and_then(|usage| with_usage(&named, &usage)) {
            return Ok(told.freeze());
        }
        let Some(base64) = self.changes.base64 else { return Ok(named.into_bytes()) };
        let corrected = embeddings::corrected(&named, base64);
        let corrected = corrected.map_err(|error| StreamError::Invalid(error.to_string()))?;
        Ok(corrected.map_or_else(|| named.into_bytes(), BytesMut::freeze))
    }
}

/// Returns a response with another model name in this range.
fn renamed(text: &JsonText, at: Range<usize>, model: &EscapedString) -> JsonText {
    let model = model.as_json_str().escaped();
    let mut out = String::with_capacity(text.len() + model.len());
    out.push_str(text.get(..at.start).unwrap_or_default());
    out.push('"');
    out.push_str(model);
    out.push('"');
    out.push_str(text.get(at.end..).unwrap_or_default());
    out.into()
}

/// Returns JSON that is in an event stream without a `data:` field. Gemini reports errors in mid-stream this way, and
/// some servers answer a streaming request with a plain document.
fn bare_json(frame: &[u8]) -> Option<&[u8]> {
    let text = frame.trim_ascii();
    text.starts_with(b"{").then_some(text)
}

/// Returns true if the data is complete. Parsing a frame may stop before its end, so it does not detect truncation.
pub(super) fn is_whole(data: &str) -> bool {
    let mut json = Cursor::new(data);
    data.starts_with("[DONE]") || json.skip().and_then(|()| json.end()).is_ok()
}

fn watch_answer(api: Api, body: &str) -> Result<FrameFacts<'_>, JsonError> {
    match api.format() {
        Some(format) => watch::answer(format, body),
        None => embeddings::answer(body),
    }
}
