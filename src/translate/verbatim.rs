//! An answer that passes as it is: the client's format is the provider's.
//!
//! Only these things may change. The model's name is put back to the one that the client asked for, where the route
//! renamed it; the usage chunk of a chat stream is taken out again, where the gateway had asked for it and the client
//! had not; and the usage of a chat completion, or of a chat stream whose client asked for it, is put in where the
//! provider reports none. Everything else leaves byte for byte, in whole frames, so that a stream that breaks can still
//! be ended with an error that the client's SDK reads.

use bytes::{Bytes, BytesMut};

use super::Meter;
use super::output_slices::{OutputSlices, push_quoted};
use super::resume::VerbatimTap;
use crate::framing::frame_buffer::FrameTooLarge;
use crate::framing::json_array::{ArraySplitter, element};
use crate::framing::sse::{Event, SseSplitter};
use crate::framing::{FrameBuffer, Splitter};
use crate::json::{Cursor, EscapedString};
use crate::wire::chat::usage::{UsageChunk, with_usage};
use crate::wire::error::ArrayState;
use crate::wire::watch::{self, FrameClass, FrameFacts, StreamEnd};
use crate::wire::{Api, Format, embeddings, filler, messages};

/// Frames at the beginning of a stream that are read whole.
const READ_WHOLE: u64 = 8;

/// Why an answer cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A frame is too large.
    #[error(transparent)]
    Frame(#[from] FrameTooLarge),
    /// The answer is not JSON, or not an object.
    #[error("the upstream provider's answer is not valid: {0}")]
    Invalid(String),
    /// The stream ended without the end that its format demands.
    #[error("the upstream provider's stream ended before it was complete")]
    Cut,
    /// The first frame is an error.
    #[error("the upstream provider's stream began with an error")]
    FirstFrame(Bytes),
    /// A later frame is an error, and the client must be told in its own format.
    #[error("the upstream provider's stream turned into an error")]
    Failed(Bytes),
}

/// How an answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// One JSON document.
    Whole,
    /// Server-sent events.
    Events,
    /// One JSON array in pieces.
    Array,
}

/// What may change in an answer.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The model's name, as the client knows it.
    pub model: Option<EscapedString>,
    /// Take the usage chunk out.
    pub drop_usage: bool,
    /// The client of a chat stream wants the usage chunk: it is put in where the provider reports no usage.
    pub tell_usage: Option<UsageChunk>,
    /// Errors of the messages format get the types of the specification's table.
    pub standard_errors: bool,
    /// The form in which vectors are wanted: as base64, or not. Providers exist that do not ask.
    pub base64: Option<bool>,
}

/// Reads and passes one answer.
#[derive(Debug)]
pub struct Verbatim {
    api: Api,
    arrival: Arrival,
    changes: Changes,
    hold: FrameBuffer,
    meter: Meter,
    /// The last frame that was not read because nothing but content and usage is in it.
    unread: Vec<u8>,
    /// Rebuilt frames, when something in them changes.
    rebuilt: BytesMut,
    scratch: Vec<u8>,
    array: ArrayState,
    /// The bracket that closes a JSON array, kept until the answer is known to be complete: an error must stand before
    /// it.
    closing: Bytes,
    /// The last event was taken out, and the line feed that may follow it goes with it.
    dropped: bool,
    /// What the client is given is noted, so that another provider can go on with it.
    beside: Option<Box<VerbatimTap>>,
}

impl Verbatim {
    /// Prepares to pass an answer of `api`. `max_frame` bounds a frame of a stream, in bytes.
    pub fn new(api: Api, arrival: Arrival, changes: Changes, max_frame: usize) -> Self {
        let splitter = match arrival {
            Arrival::Array => Splitter::JsonArray(ArraySplitter::default()),
            Arrival::Events | Arrival::Whole => Splitter::Sse(SseSplitter::default()),
        };
        Verbatim {
            api,
            arrival,
            changes,
            hold: FrameBuffer::new(splitter, max_frame),
            meter: Meter::new(api.format(), arrival),
            unread: Vec::new(),
            rebuilt: BytesMut::new(),
            scratch: Vec::new(),
            array: ArrayState::Nothing,
            closing: Bytes::new(),
            dropped: false,
            beside: None,
        }
    }

    /// See [`Exchange::follow`](super::Exchange::follow). One format's answers are kept by their provider, and nobody
    /// else can go on with them.
    pub fn follow(&mut self) {
        let format = self.api.format().filter(|format| *format != Format::Responses);
        if let Some(format) = format.filter(|_| self.arrival != Arrival::Whole) {
            self.beside = Some(Box::new(VerbatimTap::new(format)));
        }
    }

    pub(super) fn beside(&self) -> Option<&VerbatimTap> {
        self.beside.as_deref()
    }

    /// What was noted, and the name that the model was given.
    pub(super) fn into_beside(self) -> (Option<Box<VerbatimTap>>, Option<EscapedString>) {
        (self.beside, self.changes.model)
    }

    /// The format, if it is one of those that generate.
    pub fn format(&self) -> Option<Format> {
        self.api.format()
    }

    /// What had passed of a piece when the rest of it could not.
    pub fn take_ready(&mut self) -> Bytes {
        self.beside.as_mut().map(|beside| std::mem::take(&mut beside.ready)).unwrap_or_default()
    }

    /// What was noted so far, to be ended.
    pub fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Reads what was left unread while frames passed.
    pub fn settle(&mut self) {
        settle(self.api, &mut self.unread, &mut self.meter);
    }

    /// What was noted so far; [`settle`](Self::settle) first when nothing more will come.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Whether the answer has output that is counted in tokens.
    pub fn generates(&self) -> bool {
        self.api.format().is_some()
    }

    /// How the answer arrives.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// What has been passed of a JSON array, for an error that must be put behind it.
    pub fn array_state(&self) -> Option<ArrayState> {
        (self.arrival == Arrival::Array).then_some(self.array)
    }

    /// See [`Exchange::keep_alive`](super::Exchange::keep_alive). Only whole frames have left, so it stands between
    /// two.
    pub fn keep_alive(&self) -> Bytes {
        match self.api.format() {
            Some(format) if self.arrival != Arrival::Whole && self.meter.end() == StreamEnd::Open => {
                Bytes::from_static(filler(format).as_bytes())
            }
            _ => Bytes::new(),
        }
    }

    /// Whether a frame has begun whose end is still to come.
    pub fn is_partial(&self) -> bool {
        self.hold.is_partial()
    }

    /// Takes a piece of a stream and returns what may leave: whole frames, usually the piece itself.
    ///
    /// # Errors
    /// A frame is too large; or the first frame of all is an error, and then nothing has left but comments.
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        let Verbatim {
            api,
            arrival,
            changes,
            hold,
            meter,
            unread,
            rebuilt,
            scratch,
            array,
            closing,
            dropped,
            beside,
        } = self;
        let mut run = OutputSlices::new(rebuilt);
        let passed = hold.feed(&piece, |source, range| {
            let frame = source.get(range.clone()).unwrap_or_default();
            let data = match arrival {
                Arrival::Array => element(frame),
                Arrival::Events | Arrival::Whole => {
                    let bare = *api == Api::Generate || meter.frames() == 0;
                    Event::parse(frame, scratch).data.or_else(|| bare_json(frame).filter(|_| bare))
                }
            };
            let joined = !std::ptr::eq(source, &piece);
            if *dropped {
                *dropped = frame == b"\n";
                if *dropped {
                    run.drop(source, joined);
                    return Ok(());
                }
            }
            if *arrival == Arrival::Array {
                if !closing.is_empty() {
                    return Err(StreamError::Invalid("something follows the array".to_owned()));
                }
                if data.is_none() {
                    *closing = source.slice(range);
                    run.drop(source, joined);
                    return Ok(());
                }
                *array = ArrayState::Elements;
            }
            if let (Some(beside), Some(data)) = (beside.as_mut(), data) {
                beside.frame(data, meter.frames() == 0)?;
            }
            // The first frames are read whole, for the id and for how many answers there are, and so are those behind
            // the end of one of several answers; most of the others hold nothing to read.
            if let Some(data) = data
                && meter.frames() >= READ_WHOLE
                && changes.model.is_none()
                && !meter.any_finished()
            {
                let glance = watch::glance(api.format().unwrap_or(Format::Chat), data);
                if glance != FrameClass::Read {
                    meter.see_plain();
                    if glance == FrameClass::ContentAndUsage {
                        unread.clear();
                        unread.extend_from_slice(data);
                    }
                    run.pass(source, range, joined);
                    return Ok(());
                }
            }
            // Frames that are no JSON pass: keep-alives of some providers, and faults that are the client's to see.
            let sight = data
                .and_then(|data| simdutf8::basic::from_utf8(data).ok())
                .filter(|data| !data.is_empty())
                .and_then(|data| watch_frame(*api, data).ok().map(|sight| (data, sight)));
            let Some((data, sight)) = sight else {
                run.pass(source, range, joined);
                return Ok(());
            };
            if sight.end == StreamEnd::Failed && meter.frames() == 0 {
                return Err(StreamError::FirstFrame(Bytes::copy_from_slice(data.as_bytes())));
            }
            // What was left is older than what is read now, which may say less.
            settle(*api, unread, meter);
            meter.see(&sight);
            if changes.drop_usage && sight.usage_only {
                *dropped = true;
                run.drop(source, joined);
                return Ok(());
            }
            if let Some(chunk) = changes.tell_usage.as_ref().filter(|_| sight.end == StreamEnd::Terminated)
                && !meter.usage().is_known()
                && let Some(usage) = meter.count_missing(true)
            {
                let id = meter.id();
                run.edit(source, range, joined, (data, 0..0), |out| {
                    chunk.put(id, &usage, out);
                    out.extend_from_slice(b"\n\ndata: ");
                });
                return Ok(());
            }
            if changes.standard_errors
                && sight.end == StreamEnd::Failed
                && let Some((at, kind)) = messages::error::mapped(data, None)
            {
                run.edit(source, range, joined, (data, at), |out| out.extend_from_slice(kind.as_bytes()));
                return Ok(());
            }
            match (&changes.model, &sight.model_at) {
                (Some(model), Some(at)) => run.rename(source, range, joined, data, at.clone(), model),
                _ => run.pass(source, range, joined),
            }
            Ok(())
        });
        match passed {
            Ok(()) => {
                let out = run.finish(&piece);
                if let Some(beside) = beside {
                    beside.passed(&out);
                }
                Ok(out)
            }
            Err(error) => {
                if let Some(beside) = beside {
                    beside.ready = run.finish(&piece);
                    beside.passed(&beside.ready.clone());
                }
                Err(error)
            }
        }
    }

    /// Ends a stream: what is still to leave.
    ///
    /// # Errors
    /// The stream was cut: it lacks the end that its format demands.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        self.settle();
        let tail = self.end()?;
        let is_told = self.meter.usage().is_known() || self.meter.end() != StreamEnd::Open;
        let counted = self.meter.count_missing(self.generates());
        match (&self.changes.tell_usage, counted) {
            // The stream has no `[DONE]`, which the chunk would stand before.
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
        let rest = self.hold.rest();
        let (tail, closed) = match self.hold.splitter() {
            Splitter::JsonArray(splitter) => {
                let closed = splitter.is_closed();
                let closing = std::mem::take(&mut self.closing);
                let tail = if closing.is_empty() { rest } else { Bytes::from([closing, rest].concat()) };
                (tail, closed)
            }
            Splitter::Sse(_) => (self.last_event(&rest)?, true),
        };
        match self.meter.end() {
            StreamEnd::Terminated | StreamEnd::Failed => Ok(tail),
            // Chat providers exist that never send `[DONE]`; Gemini has no terminator.
            StreamEnd::Open
                if closed && self.meter.all_finished() && matches!(self.api, Api::Chat | Api::Generate) =>
            {
                Ok(tail)
            }
            StreamEnd::Open => {
                // An array's bracket is kept back; an event that lacked its blank line is an event nevertheless.
                if let Some(beside) = self.beside.as_mut().filter(|_| self.arrival == Arrival::Events) {
                    beside.ready = tail;
                }
                Err(StreamError::Cut)
            }
        }
    }

    /// An event without the blank line that ends it: some providers' last one. It passes if its data is whole.
    fn last_event(&mut self, rest: &Bytes) -> Result<Bytes, StreamError> {
        let mut scratch = Vec::new();
        let whole = Event::parse(rest, &mut scratch)
            .data
            .or_else(|| bare_json(rest))
            .and_then(|data| std::str::from_utf8(data).ok())
            .is_some_and(is_whole);
        if !whole {
            return Ok(Bytes::new());
        }
        let mut event = BytesMut::with_capacity(rest.len() + 4);
        event.extend_from_slice(rest);
        event.extend_from_slice(b"\n\n");
        self.feed(event.freeze())
    }

    /// Passes a whole answer, checked.
    ///
    /// # Errors
    /// The answer is not a JSON object.
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        let text =
            simdutf8::basic::from_utf8(&body).map_err(|_| StreamError::Invalid("not UTF-8".to_owned()))?;
        let sight = watch_answer(self.api, text).map_err(|error| StreamError::Invalid(error.to_string()))?;
        if sight.end == StreamEnd::Failed {
            return Err(StreamError::FirstFrame(body));
        }
        self.meter.see(&sight);
        let counted = self.meter.count_missing(self.generates()).filter(|_| self.api == Api::Chat);
        let named = match (&self.changes.model, sight.model_at) {
            (Some(model), Some(at)) => {
                let mut out = BytesMut::with_capacity(body.len() + model.as_json_str().escaped().len());
                out.extend_from_slice(body.get(..at.start).unwrap_or_default());
                push_quoted(&mut out, model);
                out.extend_from_slice(body.get(at.end..).unwrap_or_default());
                out.freeze()
            }
            _ => body,
        };
        let told = counted.and_then(|usage| with_usage(std::str::from_utf8(&named).ok()?, &usage));
        let named = told.map_or(named, BytesMut::freeze);
        let Some(base64) = self.changes.base64 else { return Ok(named) };
        let text = std::str::from_utf8(&named).map_err(|_| StreamError::Invalid("not UTF-8".to_owned()))?;
        let corrected = embeddings::corrected(text, base64);
        let corrected = corrected.map_err(|error| StreamError::Invalid(error.to_string()))?;
        Ok(corrected.map_or(named, BytesMut::freeze))
    }
}

/// JSON that stands in a stream of events without a field: in this way Gemini reports an error in the middle, and some
/// servers answer altogether that were asked for a stream.
fn bare_json(frame: &[u8]) -> Option<&[u8]> {
    let text = frame.trim_ascii();
    text.starts_with(b"{").then_some(text)
}

/// Whether data was not cut off: reading a frame may stop before its end.
pub(super) fn is_whole(data: &str) -> bool {
    let mut json = Cursor::new(data);
    data.starts_with("[DONE]") || json.skip().and_then(|()| json.end()).is_ok()
}

/// Reads the usage of a frame that was left unread.
fn settle(api: Api, unread: &mut Vec<u8>, meter: &mut Meter) {
    if unread.is_empty() {
        return;
    }
    let text = std::str::from_utf8(unread).unwrap_or_default();
    if let Some(usage) = watch_frame(api, text).ok().and_then(|sight| sight.usage) {
        meter.see_usage(&usage);
    }
    unread.clear();
}

fn watch_frame(api: Api, data: &str) -> Result<FrameFacts<'_>, crate::json::JsonError> {
    watch::frame(api.format().unwrap_or(Format::Chat), data)
}

fn watch_answer(api: Api, body: &str) -> Result<FrameFacts<'_>, crate::json::JsonError> {
    match api.format() {
        Some(format) => watch::answer(format, body),
        None => embeddings::answer(body),
    }
}
