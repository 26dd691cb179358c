//! An answer that is translated: frames become events, events become frames of another format, piece by piece.
//!
//! Either side may be one document instead of a stream. A document is read as the events that it stands for, and events
//! are collected into one, so that an answer means the same whichever way it comes and goes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::codecs::{AnyDecoder, AnyEncoder, decode_answer, encode_answer};
use super::keepsake::{Collector, Keepsake};
use super::restore::{Restore, Restorer};
use super::resume::TranslatedTap;
use super::verbatim::{Arrival, is_whole};
use super::{Meter, StreamError};
use crate::canonical::answer::MAX_BLOCKS;
use crate::canonical::{Answer, BlockKind, Event, Finish};
use crate::error::ApiError;
use crate::framing::frame_buffer::FrameTooLarge;
use crate::framing::json_array::{ArraySplitter, element};
use crate::framing::sse::{self, SseSplitter};
use crate::framing::{FrameBuffer, Splitter};
use crate::json::{JsonStr, Writer};
use crate::wire::Format;
use crate::wire::codec::{ReplyOptions, is_to_come};
use crate::wire::watch::StreamEnd;

/// Room for frames on their way out, at first. When what left before is written, the same place is used again.
const OUT: usize = 4_096;
/// Room that is made at once for what a piece becomes, at most. A place that grows while it is written is copied.
const MAX_OUT: usize = 16_384;

/// Reads, translates and writes one answer.
#[derive(Debug)]
pub struct Translated {
    client: Format,
    provider: Format,
    arrival: Arrival,
    hold: FrameBuffer,
    from: AnyDecoder,
    through: Through,
    /// Texts of the answer may begin with reasoning between tags.
    tagged: bool,
    /// A document, as far as it has come.
    body: BytesMut,
    limit: usize,
    scratch: Vec<u8>,
    /// What a piece became at most so far, rounded up.
    room: usize,
    reply: Arc<ReplyOptions>,
    /// The document that the client gets, where it is to be kept.
    document: Option<Bytes>,
}

/// The way of an event: through the meter and what is undone, to the client.
#[derive(Debug)]
struct Through {
    meter: Meter,
    collector: Option<Box<Collector>>,
    restorer: Option<Restorer>,
    to: To,
    out: BytesMut,
    /// The provider's error, once it has come.
    error: Option<Bytes>,
    /// Something came besides reasoning.
    spoke: bool,
    /// What the client is given is noted, so that another provider can go on with it, or goes on with what was.
    along: Option<Box<TranslatedTap>>,
}

/// What another provider takes over.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) to: Option<AnyEncoder>,
    pub(super) along: Option<Box<TranslatedTap>>,
    pub(super) reply: Arc<ReplyOptions>,
}

#[derive(Debug)]
enum To {
    Stream(AnyEncoder),
    Whole(Box<Answer>),
}

impl Through {
    fn event(&mut self, event: &Event<'_>) {
        self.meter.see_event(event);
        if let Some(collector) = &mut self.collector {
            collector.see(event);
        }
        if self.error.is_some() {
            return;
        }
        match event {
            Event::Error(error) => {
                self.error = Some(Bytes::copy_from_slice(error.text().as_bytes()));
                return;
            }
            Event::BlockStart { index, .. } if *index >= MAX_BLOCKS => {
                let error =
                    br#"{"error":{"type":"server_error","message":"The answer has too many parts."}}"#;
                self.error = Some(Bytes::from_static(error));
                return;
            }
            Event::BlockStart { kind, .. } => {
                self.spoke |= !matches!(kind, BlockKind::Reasoning | BlockKind::HiddenReasoning);
            }
            // An answer without a word that ended for a reason of the provider's own is none.
            Event::Finish { finish: Finish::Other(word), .. }
                if !self.spoke && !word.is_empty() && !is_to_come(*word) =>
            {
                self.error = Some(gave_up(*word));
                return;
            }
            _ => {}
        }
        let Through { meter, restorer, to, out, along, .. } = self;
        // What the client is shown is what was noted, the same figures to the last one; and what its provider does not
        // say is counted before it is too late to show it.
        let mut usage = match event {
            Event::Usage(_) => Some(*meter.usage()),
            Event::End => meter.count_missing(true),
            _ => None,
        };
        if let (Some(usage), Some(along)) = (&mut usage, along.as_deref()) {
            *usage = along.total(usage, false).0;
        }
        let mut write = |event: &Event<'_>| match (&mut *to, &mut *along) {
            (To::Stream(encoder), None) => encoder.event(event, out),
            (To::Stream(encoder), Some(along)) => along.event(event, &mut |event| encoder.event(event, out)),
            (To::Whole(answer), _) => answer.take(event),
        };
        if let Some(usage) = usage {
            write(&Event::Usage(usage));
        }
        if let Event::Usage(_) = event {
            return;
        }
        match restorer {
            None => write(event),
            Some(restorer) => restorer.event(event, &mut write),
        }
    }
}

/// What an answer is translated from and to.
#[derive(Debug)]
pub struct Route {
    /// The client's format.
    pub client: Format,
    /// The provider's format.
    pub provider: Format,
    /// The client wants a stream.
    pub stream: bool,
}

impl Translated {
    /// Prepares to translate an answer that arrives so. `limit` bounds a frame, in bytes, and a document for a client
    /// that wants a stream.
    pub fn new(
        route: &Route,
        arrival: Arrival,
        reply: Arc<ReplyOptions>,
        restore: Restore,
        limit: usize,
    ) -> Self {
        let splitter = match arrival {
            Arrival::Array => Splitter::JsonArray(ArraySplitter::default()),
            Arrival::Events | Arrival::Whole => Splitter::Sse(SseSplitter::default()),
        };
        let from = AnyDecoder::new(route.provider, &reply.seed, restore.tagged);
        let to = if route.stream {
            To::Stream(AnyEncoder::new(route.client, reply.clone()))
        } else {
            To::Whole(Box::default())
        };
        let tagged = restore.tagged;
        Translated {
            tagged,
            client: route.client,
            provider: route.provider,
            arrival,
            hold: FrameBuffer::new(splitter, limit),
            from,
            through: Through {
                meter: Meter::new(Some(route.provider), arrival),
                collector: reply
                    .remember
                    .then(|| Box::new(Collector::new(&reply.issuer, reply.before, route.client))),
                restorer: (!restore.is_empty()).then(|| Restorer::new(restore)),
                to,
                out: BytesMut::with_capacity(OUT),
                error: None,
                spoke: false,
                along: None,
            },
            body: BytesMut::new(),
            limit,
            scratch: Vec::new(),
            room: 0,
            reply,
            document: None,
        }
    }

    /// Goes on with an answer that another provider began: what wrote it writes on.
    pub(super) fn resumed(
        route: &Route,
        arrival: Arrival,
        reply: Arc<ReplyOptions>,
        restore: Restore,
        limit: usize,
        to: AnyEncoder,
        along: Box<TranslatedTap>,
    ) -> Self {
        let mut translated = Translated::new(route, arrival, reply, restore, limit);
        translated.through.to = To::Stream(to);
        translated.through.along = Some(along);
        translated
    }

    /// See [`Exchange::follow`](super::Exchange::follow).
    pub fn follow(&mut self) {
        if let To::Stream(_) = self.through.to {
            self.through.along.get_or_insert_default();
        }
    }

    pub(super) fn along(&self) -> Option<&TranslatedTap> {
        self.through.along.as_deref()
    }

    pub(super) fn client(&self) -> Format {
        self.client
    }

    /// Whether the provider has said why the answer ended, though not that it did.
    pub(super) fn has_reason(&self) -> bool {
        self.from.has_reason()
    }

    pub(super) fn into_parts(self) -> Parts {
        let Through { to, along, .. } = self.through;
        let to = if let To::Stream(encoder) = to { Some(encoder) } else { None };
        Parts { to, along, reply: self.reply }
    }

    /// Puts bytes in front of what leaves next.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.through.out.extend_from_slice(bytes);
    }

    /// Writes an event that no provider has sent.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.through.event(event);
    }

    /// Reads what was left unread while frames passed.
    pub fn settle(&mut self) {
        let Translated { from, through, .. } = self;
        from.settle(&mut |event| through.event(&event));
    }

    /// What was noted so far; [`settle`](Self::settle) first when nothing more will come.
    pub fn meter(&self) -> &Meter {
        &self.through.meter
    }

    /// The same, to be ended.
    pub fn meter_mut(&mut self) -> &mut Meter {
        &mut self.through.meter
    }

    /// How the answer arrives.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Whether a frame, or a document, has begun whose end is still to come.
    pub fn is_partial(&self) -> bool {
        self.arrival == Arrival::Whole || self.hold.is_partial()
    }

    /// Takes a piece of the provider's answer; returns what leaves for the client, which may be nothing.
    ///
    /// # Errors
    /// The answer cannot go on. What was complete before the fault is in [`take_ready`](Self::take_ready).
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            if self.body.len() + piece.len() > self.limit {
                return Err(FrameTooLarge { limit: self.limit }.into());
            }
            self.body.extend_from_slice(&piece);
            return Ok(Bytes::new());
        }
        let Translated { arrival, hold, from, through, scratch, room, .. } = self;
        if through.out.is_empty() {
            // Now the place of what has left can be used from its beginning.
            through.out.reserve(*room);
        }
        hold.feed(&piece, |source, range| {
            let frame = source.get(range).unwrap_or_default();
            read_frame(*arrival, frame, from, through, scratch)
        })?;
        let ready = self.take_ready();
        self.room = self.room.max(ready.len().next_power_of_two().min(MAX_OUT));
        Ok(ready)
    }

    /// The provider's answer has ended; returns the rest of what leaves.
    ///
    /// # Errors
    /// As [`feed`](Self::feed); and the answer is not complete.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            let body = self.body.split().freeze();
            self.through.meter.hear_whole(&body);
            return self.whole(body);
        }
        self.end_stream()?;
        Ok(self.close())
    }

    /// Translates an answer that is all there.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            let text =
                simdutf8::basic::from_utf8(&body).map_err(|error| StreamError::Invalid(error.to_string()))?;
            let through = &mut self.through;
            through.meter.see_frame();
            decode_answer(self.provider, text, &self.reply.seed, self.tagged, &mut |event| {
                through.event(&event)
            })
            .map_err(|error| StreamError::Invalid(error.to_string()))?;
            if let Some(error) = self.through.error.take() {
                return Err(StreamError::FirstFrame(error));
            }
        } else {
            let ready = self.feed(body)?;
            debug_assert!(
                ready.is_empty() || matches!(self.through.to, To::Stream(_)),
                "a document in pieces"
            );
            self.end_stream()?;
        }
        Ok(self.close())
    }

    /// The response that is to be kept, once, as soon as its end is among what may leave.
    pub fn take_document(&mut self) -> Option<Bytes> {
        if self.reply.keep_as.is_empty() {
            return None;
        }
        match &mut self.through.to {
            To::Stream(encoder) => encoder.take_document(),
            To::Whole(_) => self.document.take(),
        }
    }

    /// See [`Exchange::take_keepsake`](super::Exchange::take_keepsake).
    pub fn take_keepsake(&mut self) -> Option<Keepsake> {
        self.through.collector.as_mut()?.take()
    }

    /// What is ready to leave.
    pub fn take_ready(&mut self) -> Bytes {
        self.through.out.split().freeze()
    }

    /// See [`Exchange::keep_alive`](super::Exchange::keep_alive).
    pub fn keep_alive(&mut self) -> Bytes {
        let Through { meter, to, out, .. } = &mut self.through;
        if let To::Stream(encoder) = to
            && meter.end() == StreamEnd::Open
        {
            encoder.keep_alive(out);
        }
        self.take_ready()
    }

    /// Ends a stream with an error in the client's own way.
    pub fn fail(&mut self, error: &ApiError) -> Bytes {
        let Through { to, out, .. } = &mut self.through;
        if let To::Stream(encoder) = to {
            encoder.fail(error, out);
        }
        self.take_ready()
    }

    /// Reads what is left of a stream when its connection has closed.
    fn end_stream(&mut self) -> Result<(), StreamError> {
        let rest = self.hold.rest();
        let Translated { arrival, from, through, scratch, .. } = self;
        // The last event may lack its blank line; what is left of an array is its bracket.
        let last = sse::Event::parse(&rest, scratch).data.and_then(|data| std::str::from_utf8(data).ok());
        // A frame that breaks off in the middle tells nothing, whatever stands in its beginning; that the answer is not
        // complete is seen below.
        if *arrival == Arrival::Events && last.is_some_and(is_whole) {
            match read_frame(*arrival, &rest, from, through, scratch) {
                Ok(()) | Err(StreamError::Invalid(_)) => {}
                Err(error) => return Err(error),
            }
        }
        from.finish(&mut |event| through.event(&event)).map_err(|_| StreamError::Cut)?;
        through.check()
    }

    /// Writes the document, where the client wants one; returns what is left to leave.
    fn close(&mut self) -> Bytes {
        let Through { to, out, .. } = &mut self.through;
        let To::Whole(answer) = to else { return self.take_ready() };
        encode_answer(self.client, answer, &self.reply, out);
        let document = out.split().freeze();
        if !self.reply.keep_as.is_empty() {
            self.document = Some(document.clone());
        }
        document
    }
}

/// The error that a provider did not write which gave up.
fn gave_up(word: JsonStr<'_>) -> Bytes {
    // The provider misses what the client should have sent.
    let kind = if word.is("MISSING_THOUGHT_SIGNATURE") { "invalid_request_error" } else { "server_error" };
    let mut out = BytesMut::with_capacity(160);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("error").begin_object().key("type").string(kind).key("message").pasted(|out| {
        out.extend_from_slice(b"The model gave up before it had said anything: ");
        out.extend_from_slice(word.escaped().as_bytes());
    });
    json.end_object().end_object();
    out.freeze()
}

impl Through {
    /// Whether the provider's stream has turned into an error.
    fn check(&mut self) -> Result<(), StreamError> {
        let Some(error) = self.error.take() else { return Ok(()) };
        let nothing_left = self.meter.content_frames() == 0 && matches!(self.to, To::Stream(_));
        Err(if nothing_left || matches!(self.to, To::Whole(_)) {
            StreamError::FirstFrame(error)
        } else {
            StreamError::Failed(error)
        })
    }
}

/// An element without its line breaks, all of which stand between tokens: its values are pasted into lines of events.
fn in_one_line<'a>(element: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr::memchr2(b'\n', b'\r', element).is_none() {
        return element;
    }
    scratch.clear();
    scratch.extend(element.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    scratch
}

fn read_frame(
    arrival: Arrival,
    frame: &[u8],
    from: &mut AnyDecoder,
    through: &mut Through,
    scratch: &mut Vec<u8>,
) -> Result<(), StreamError> {
    let data = match arrival {
        Arrival::Array => element(frame).map(|element| in_one_line(element, scratch)),
        Arrival::Events | Arrival::Whole => sse::Event::parse_json(frame, scratch).data,
    };
    let Some(data) = data.filter(|data| !data.trim_ascii().is_empty()) else { return Ok(()) };
    if from.is_over() {
        return Ok(());
    }
    let text = simdutf8::basic::from_utf8(data).map_err(|error| StreamError::Invalid(error.to_string()))?;
    through.meter.see_frame();
    from.frame(text, &mut |event| through.event(&event))
        .map_err(|error| StreamError::Invalid(error.to_string()))?;
    through.check()
}
