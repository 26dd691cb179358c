//! An answer that passes as it is: the client's format is the vendor's.
//!
//! Only two things may change. The model's name is put back to the one that the client asked for, where the route
//! renamed it; and the usage chunk of a chat stream is taken out again, where the gateway had asked for it and the
//! client had not. Everything else leaves byte for byte, in whole frames, so that a stream that breaks can still be
//! ended with an error that the client's SDK reads.

use bytes::{Bytes, BytesMut};

use super::Meter;
use crate::framing::hold::FrameTooLarge;
use crate::framing::json_array::{ArraySplitter, element};
use crate::framing::sse::{Event, SseSplitter};
use crate::framing::{Hold, Splitter};
use crate::json::EscapedString;
use crate::wire::error::ArrayState;
use crate::wire::watch::{self, End, Sight};
use crate::wire::{Api, Format};

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
}

/// Reads and passes one answer.
#[derive(Debug)]
pub struct Verbatim {
    api: Api,
    arrival: Arrival,
    changes: Changes,
    hold: Hold,
    meter: Meter,
    /// The last frame that was not read because nothing but content and usage is in it.
    unread: Vec<u8>,
    /// Rebuilt frames, when something in them changes.
    rebuilt: BytesMut,
    scratch: Vec<u8>,
    array: ArrayState,
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
            hold: Hold::new(splitter, max_frame),
            meter: Meter::default(),
            unread: Vec::new(),
            rebuilt: BytesMut::new(),
            scratch: Vec::new(),
            array: ArrayState::Nothing,
        }
    }

    /// Reads what was left unread while frames passed.
    pub fn settle(&mut self) {
        let text = std::str::from_utf8(&self.unread).unwrap_or_default();
        if !text.is_empty()
            && let Ok(sight) = watch_frame(self.api, text)
            && let Some(usage) = &sight.usage
        {
            self.meter.see_usage(usage);
        }
        self.unread.clear();
    }

    /// What was noted so far; [`settle`](Self::settle) first when nothing more will come.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// How the answer arrives.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// What has been passed of a JSON array, for an error that must be put behind it.
    pub fn array_state(&self) -> Option<ArrayState> {
        (self.arrival == Arrival::Array).then_some(self.array)
    }

    /// Takes a piece of a stream and returns what may leave: whole frames, usually the piece itself.
    ///
    /// # Errors
    /// A frame is too large; or the first frame of all is an error, and then nothing has left.
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        let Verbatim { api, arrival, changes, hold, meter, unread, rebuilt, scratch, array } = self;
        let mut run = Run { changed: rebuilt, copying: false, from: 0, to: 0 };
        hold.feed(&piece, |source, range| {
            let frame = source.get(range.clone()).unwrap_or_default();
            let data = match arrival {
                Arrival::Array => element(frame),
                Arrival::Events | Arrival::Whole => Event::parse(frame, scratch).data,
            };
            let joined = !std::ptr::eq(source, &piece);
            // The first frames are read whole, for the id and for how many answers there are; most of the others hold
            // nothing to read.
            if meter.frames() >= READ_WHOLE && changes.model.is_none() {
                let plain = data.filter(|data| watch::is_plain(api.format().unwrap_or(Format::Chat), data));
                if let Some(data) = plain {
                    meter.see_plain();
                    if *api == Api::Generate {
                        unread.clear();
                        unread.extend_from_slice(data);
                    }
                    run.pass(source, range, joined);
                    return Ok(());
                }
            }
            // Frames that are no JSON pass: keep-alives of some vendors, and faults that are the client's to see.
            let sight = data
                .and_then(|data| std::str::from_utf8(data).ok())
                .filter(|data| !data.is_empty())
                .and_then(|data| watch_frame(*api, data).ok().map(|sight| (data, sight)));
            let Some((data, sight)) = sight else {
                run.pass(source, range, joined);
                return Ok(());
            };
            if sight.end == End::Failed && meter.frames() == 0 {
                return Err(StreamError::FirstFrame(Bytes::copy_from_slice(data.as_bytes())));
            }
            // What is read now is newer than what was left.
            unread.clear();
            meter.see(&sight);
            if *arrival == Arrival::Array {
                *array = ArrayState::Elements;
            }
            if changes.drop_usage && sight.usage_only {
                run.drop(source, joined);
                return Ok(());
            }
            match (&changes.model, &sight.model_at) {
                (Some(model), Some(at)) => run.rename(source, range, joined, data, at.clone(), model),
                _ => run.pass(source, range, joined),
            }
            Ok(())
        })?;
        Ok(run.finish(&piece))
    }

    /// Ends a stream: what is still to leave.
    ///
    /// # Errors
    /// The stream was cut: it lacks the end that its format demands.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        self.settle();
        let rest = self.hold.rest();
        let (tail, closed) = match self.hold.splitter() {
            Splitter::JsonArray(splitter) => (rest, splitter.is_closed()),
            Splitter::Sse(_) => (self.last_event(&rest)?, true),
        };
        match self.meter.end() {
            End::Terminated | End::Failed => Ok(tail),
            // Chat vendors exist that never send `[DONE]`; Gemini has no terminator.
            End::Open
                if closed && self.meter.all_finished() && matches!(self.api, Api::Chat | Api::Generate) =>
            {
                Ok(tail)
            }
            End::Open => Err(StreamError::Cut),
        }
    }

    /// An event without the blank line that ends it: some vendors' last one. It passes if its data is whole.
    fn last_event(&mut self, rest: &Bytes) -> Result<Bytes, StreamError> {
        let mut scratch = Vec::new();
        let whole = Event::parse(rest, &mut scratch)
            .data
            .and_then(|data| std::str::from_utf8(data).ok())
            .is_some_and(|data| watch_frame(self.api, data).is_ok());
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
        let text = std::str::from_utf8(&body).map_err(|_| StreamError::Invalid("not UTF-8".to_owned()))?;
        let sight = watch_answer(self.api, text).map_err(|error| StreamError::Invalid(error.to_string()))?;
        if sight.end == End::Failed {
            return Err(StreamError::FirstFrame(body));
        }
        self.meter.see(&sight);
        let (Some(model), Some(at)) = (&self.changes.model, sight.model_at) else {
            return Ok(body);
        };
        let mut out = BytesMut::with_capacity(body.len() + model.as_json_str().escaped().len());
        out.extend_from_slice(body.get(..at.start).unwrap_or_default());
        push_quoted(&mut out, model);
        out.extend_from_slice(body.get(at.end..).unwrap_or_default());
        Ok(out.freeze())
    }
}

fn watch_frame(api: Api, data: &str) -> Result<Sight<'_>, crate::json::JsonError> {
    watch::frame(api.format().unwrap_or(Format::Chat), data)
}

fn watch_answer(api: Api, body: &str) -> Result<Sight<'_>, crate::json::JsonError> {
    match api.format() {
        Some(format) => watch::answer(format, body),
        None => crate::wire::embeddings::answer(body),
    }
}

fn push_quoted(out: &mut BytesMut, text: &EscapedString) {
    out.extend_from_slice(b"\"");
    out.extend_from_slice(text.as_json_str().escaped().as_bytes());
    out.extend_from_slice(b"\"");
}

/// The frames of one piece that leave: a range of the piece as long as nothing changes, a copy from then on.
struct Run<'b> {
    changed: &'b mut BytesMut,
    copying: bool,
    from: usize,
    to: usize,
}

impl Run<'_> {
    fn pass(&mut self, source: &Bytes, range: std::ops::Range<usize>, joined: bool) {
        if joined || self.copying {
            self.copying = true;
            self.changed.extend_from_slice(source.get(range.clone()).unwrap_or_default());
            if joined {
                return;
            }
        } else if self.from == self.to {
            self.from = range.start;
        }
        self.to = range.end;
    }

    /// What passed of the piece so far goes into the copy.
    fn start_copying(&mut self, source: &Bytes, joined: bool) {
        if !self.copying {
            self.copying = true;
            if !joined {
                self.changed.extend_from_slice(source.get(self.from..self.to).unwrap_or_default());
            }
        }
    }

    fn drop(&mut self, source: &Bytes, joined: bool) {
        self.start_copying(source, joined);
    }

    fn rename(
        &mut self,
        source: &Bytes,
        range: std::ops::Range<usize>,
        joined: bool,
        data: &str,
        at: std::ops::Range<usize>,
        model: &EscapedString,
    ) {
        let frame = source.get(range.clone()).unwrap_or_default();
        // Where the data stands in the frame; data that was joined from several lines stands nowhere.
        let offset = (data.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        if offset > frame.len() || offset + data.len() > frame.len() {
            self.pass(source, range, joined);
            return;
        }
        self.start_copying(source, joined);
        self.changed.extend_from_slice(frame.get(..offset + at.start).unwrap_or_default());
        push_quoted(self.changed, model);
        self.changed.extend_from_slice(frame.get(offset + at.end..).unwrap_or_default());
    }

    fn finish(self, piece: &Bytes) -> Bytes {
        if self.copying { self.changed.split().freeze() } else { piece.slice(self.from..self.to) }
    }
}
