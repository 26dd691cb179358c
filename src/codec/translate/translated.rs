//! Translated response: decodes frames into events and encodes events as frames of another format, piece by piece.
//!
//! Either side may be one document instead of a stream. A document is decoded into the events that it stands for, and
//! events are collected into a document, so that both ways have the same meaning.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::codecs::{AnyDecoder, AnyEncoder, decode_answer, encode_answer};
use super::compaction::Compactor;
use super::event_pipeline::{EventPipeline, PipelineOutput};
use super::event_stream;
use super::frame_seal::no_answer;
use super::keepsake::{Collector, SignatureBundle};
use super::restore::{Restore, Restorer};
use super::resume::TranslatedTap;
use super::verbatim::{Arrival, is_whole};
use super::void_arguments::VoidArguments;
use super::{Meter, StreamError};
use crate::canonical::Event;
use crate::error::ApiError;
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use crate::wire::watch::StreamEnd;
use framing::frame_buffer::FrameTooLarge;
use framing::json_array::{element, in_one_line};
use framing::{FrameBuffer, sse};

/// Initial capacity of the output buffer, in bytes. It grows with the output, and is reused once that has been written.
const OUT: usize = 1_024;
/// Maximum capacity that is reserved for the output of a piece, in bytes. Growing during a write would copy the buffer.
const MAX_OUT: usize = 16_384;

/// Translator of one response.
#[derive(Debug)]
pub struct Translated {
    client: Format,
    provider: Format,
    arrival: Arrival,
    frame_buffer: FrameBuffer,
    from: AnyDecoder,
    through: EventPipeline,
    /// Whether texts of the response may start with reasoning between tags.
    tagged: bool,
    /// Body of a document, as far as it has arrived.
    body: BytesMut,
    limit: usize,
    scratch: Vec<u8>,
    /// Length of the last output and a quarter more, in bytes: what the next one probably needs.
    room: usize,
    reply: Arc<ReplyOptions>,
    /// Document for the client, if it is to be stored.
    document: Option<Bytes>,
}

/// Parts that the next provider's translation takes over.
#[derive(Debug)]
pub(super) struct TranslationParts {
    pub(super) to: Option<AnyEncoder>,
    pub(super) tap: Option<Box<TranslatedTap>>,
    pub(super) reply: Arc<ReplyOptions>,
}

/// Formats of a translation.
#[derive(Debug)]
pub struct Route {
    /// Format of the client.
    pub client: Format,
    /// Format of the provider.
    pub provider: Format,
    /// Whether the client requested a stream.
    pub stream: bool,
}

impl Translated {
    /// Creates a translator. `limit` is the maximum size in bytes of a frame, and of a document for a client that
    /// requested a stream.
    pub fn new(
        route: &Route,
        arrival: Arrival,
        reply: Arc<ReplyOptions>,
        restore: Restore,
        limit: usize,
    ) -> Self {
        let from = AnyDecoder::new(route.provider, &reply.seed, restore.tagged);
        let to = if route.stream {
            PipelineOutput::Stream(AnyEncoder::new(route.client, reply.clone()))
        } else {
            PipelineOutput::Whole(Box::default())
        };
        let tagged = restore.tagged;
        Translated {
            tagged,
            client: route.client,
            provider: route.provider,
            arrival,
            frame_buffer: FrameBuffer::new(arrival.splitter(), limit),
            from,
            through: EventPipeline {
                meter: Meter::new(Some(route.provider), arrival),
                collector: reply
                    .collect_signatures
                    .then(|| Box::new(Collector::new(&reply.issuer, reply.before, route.client))),
                restorer: (!restore.is_empty()).then(|| Restorer::new(restore)),
                compactor: Compactor::of(&reply),
                void_arguments: VoidArguments::default(),
                to,
                out: BytesMut::with_capacity(OUT),
                error: None,
                spoke: false,
                tap: None,
            },
            body: BytesMut::new(),
            limit,
            scratch: Vec::new(),
            room: 0,
            reply,
            document: None,
        }
    }

    /// Creates a translator that continues the response of another provider with that response's encoder and tap.
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
        translated.through.to = PipelineOutput::Stream(to);
        translated.through.tap = Some(along);
        translated
    }

    /// Starts the transcript: see [`Exchange::follow`](super::Exchange::record_transcript).
    pub fn record_transcript(&mut self) {
        // A compaction has no part that another provider could continue.
        if let (PipelineOutput::Stream(_), None) = (&self.through.to, &self.through.compactor) {
            self.through.tap.get_or_insert_default();
        }
    }

    pub(super) fn tap(&self) -> Option<&TranslatedTap> {
        self.through.tap.as_deref()
    }

    pub(super) fn client(&self) -> Format {
        self.client
    }

    /// Returns true if a finish reason has arrived, but not the end of the response.
    pub(super) fn has_reason(&self) -> bool {
        self.from.has_reason()
    }

    pub(super) fn into_parts(self) -> TranslationParts {
        let EventPipeline { to, tap: along, .. } = self.through;
        let to = if let PipelineOutput::Stream(encoder) = to { Some(encoder) } else { None };
        TranslationParts { to, tap: along, reply: self.reply }
    }

    /// Inserts bytes before the next output.
    pub(super) fn insert_bytes(&mut self, bytes: &[u8]) {
        self.through.out.extend_from_slice(bytes);
    }

    /// Handles an event that did not come from a provider.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.through.event(event);
    }

    /// Sets the input tokens that the client's stream starts with if the provider reports none by then.
    pub(super) fn expect_input(&mut self, tokens: u64) {
        if let PipelineOutput::Stream(encoder) = &mut self.through.to {
            encoder.expect_input(tokens);
        }
    }

    /// Parses the frames whose parsing was deferred.
    pub fn parse_deferred(&mut self) {
        let Translated { from, through, .. } = self;
        from.parse_deferred(&mut |event| through.event(&event));
    }

    /// Returns the meter. Call [`parse_deferred`](Self::parse_deferred) first when no more input follows.
    pub fn meter(&self) -> &Meter {
        &self.through.meter
    }

    /// Returns the meter, mutable.
    pub fn meter_mut(&mut self) -> &mut Meter {
        &mut self.through.meter
    }

    /// Returns how the response arrives.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Returns true if a frame or a document is incomplete.
    pub fn is_partial(&self) -> bool {
        self.arrival == Arrival::Whole || self.frame_buffer.is_partial()
    }

    /// Feeds a piece of the provider's response. Returns the bytes to forward, which may be empty.
    ///
    /// # Errors
    /// Returns [`StreamError`] if the response cannot continue. [`take_ready`](Self::take_ready) then returns the
    /// output that was complete before the fault.
    pub fn feed(&mut self, piece: Bytes) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            // Before it is stored: a document without an end would exhaust memory.
            if self.body.len() + piece.len() > self.limit {
                return Err(FrameTooLarge { limit: self.limit }.into());
            }
            self.body.extend_from_slice(&piece);
            return Ok(Bytes::new());
        }
        let Translated { arrival, frame_buffer: hold, from, through, scratch, room, .. } = self;
        if through.out.is_empty() {
            // The output buffer is empty, so `reserve` can reclaim the memory of output that has been written.
            through.out.reserve(*room);
        }
        hold.feed(&piece, |source, range| {
            let frame = source.get(range).unwrap_or_default();
            read_frame(*arrival, frame, from, through, scratch)
        })?;
        let ready = self.take_ready();
        self.room = (ready.len() + ready.len() / 4).min(MAX_OUT);
        Ok(ready)
    }

    /// Ends the provider's response and returns the remaining bytes to forward.
    ///
    /// # Errors
    /// Returns [`StreamError`] as [`feed`](Self::feed) does, and if the response is incomplete.
    pub fn finish(&mut self) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            let body = self.body.split().freeze();
            return self.whole(body);
        }
        self.end_stream()?;
        Ok(self.close())
    }

    /// Translates a whole response.
    ///
    /// # Errors
    /// Returns [`StreamError`] as [`finish`](Self::finish) does.
    pub fn whole(&mut self, body: Bytes) -> Result<Bytes, StreamError> {
        if self.arrival == Arrival::Whole {
            let through = &mut self.through;
            let text = through.meter.record_whole(body);
            let text = text.map_err(|error| StreamError::Invalid(error.to_string()))?;
            through.meter.observe_frame();
            decode_answer(self.provider, &text, &self.reply.seed, self.tagged, &mut |event| {
                through.event(&event)
            })
            .map_err(|error| no_answer(&text, &error))?;
            if let Some(error) = self.through.error.take() {
                return Err(StreamError::FirstFrame(error));
            }
        } else {
            self.through.meter.record_piece(&body);
            let ready = self.feed(body)?;
            // A stream arrived for a client that wants a document: the events are collected, so there is no output
            // before the end.
            debug_assert!(
                ready.is_empty() || matches!(self.through.to, PipelineOutput::Stream(_)),
                "a document in pieces"
            );
            self.end_stream()?;
        }
        Ok(self.close())
    }

    /// Takes the response document to be stored: `Some` once, as soon as the output contains the end of the response.
    pub fn take_document(&mut self) -> Option<Bytes> {
        if self.reply.store_as.is_empty() {
            return None;
        }
        match &mut self.through.to {
            PipelineOutput::Stream(encoder) => encoder.take_document(),
            PipelineOutput::Whole(_) => self.document.take(),
        }
    }

    /// Takes the provider signatures to be stored: see [`Exchange::take_keepsake`](super::Exchange::take_signatures).
    pub fn take_signatures(&mut self) -> Option<SignatureBundle> {
        self.through.collector.as_mut()?.take()
    }

    /// Takes the output that is ready to be forwarded.
    pub fn take_ready(&mut self) -> Bytes {
        self.through.out.split().freeze()
    }

    /// Returns keep-alive filler: see [`Exchange::keep_alive`](super::Exchange::keep_alive).
    pub fn keep_alive(&mut self) -> Bytes {
        let EventPipeline { meter, to, out, .. } = &mut self.through;
        if let PipelineOutput::Stream(encoder) = to
            && meter.end() == StreamEnd::Open
        {
            encoder.keep_alive(out);
        }
        self.take_ready()
    }

    /// Ends a stream with an error in the client's format. Returns the bytes to forward.
    pub fn fail(&mut self, error: &ApiError) -> Bytes {
        let EventPipeline { to, out, .. } = &mut self.through;
        if let PipelineOutput::Stream(encoder) = to {
            encoder.fail(error, out);
        }
        self.take_ready()
    }

    /// Handles the rest of the input when the connection has closed.
    fn end_stream(&mut self) -> Result<(), StreamError> {
        let rest = self.frame_buffer.take_rest();
        let Translated { arrival, from, through, scratch, .. } = self;
        // The last event may lack its blank line. The rest of an array is only its closing bracket.
        let last = sse::SseEvent::parse(&rest, scratch).data.and_then(|data| std::str::from_utf8(data).ok());
        // Ignore a truncated frame: its beginning may look valid. `finish` below detects that the response is
        // incomplete.
        if *arrival == Arrival::Events && last.is_some_and(is_whole) {
            match read_frame(*arrival, &rest, from, through, scratch) {
                Ok(()) | Err(StreamError::Invalid(_)) => {}
                Err(error) => return Err(error),
            }
        }
        from.finish(&mut |event| through.event(&event)).map_err(|_| StreamError::Cut)?;
        through.check()
    }

    /// Encodes the document if the client wants one. Returns the remaining bytes to forward.
    fn close(&mut self) -> Bytes {
        let EventPipeline { to, out, .. } = &mut self.through;
        let PipelineOutput::Whole(answer) = to else { return self.take_ready() };
        encode_answer(self.client, answer, &self.reply, out);
        let document = out.split().freeze();
        if !self.reply.store_as.is_empty() {
            self.document = Some(document.clone());
        }
        document
    }
}

fn read_frame(
    arrival: Arrival,
    frame: &[u8],
    from: &mut AnyDecoder,
    through: &mut EventPipeline,
    scratch: &mut Vec<u8>,
) -> Result<(), StreamError> {
    let data = match arrival {
        Arrival::Array => element(frame).map(|element| in_one_line(element, scratch)),
        Arrival::EventStream => return read_message(frame, from, through, scratch),
        Arrival::Events | Arrival::Whole => sse::SseEvent::parse_json(frame, scratch).data,
    };
    read_data(data, from, through)
}

/// Decodes a message of an event stream.
// Apart from the code for server-sent events, which would have fewer registers.
#[inline(never)]
fn read_message(
    frame: &[u8],
    from: &mut AnyDecoder,
    through: &mut EventPipeline,
    scratch: &mut Vec<u8>,
) -> Result<(), StreamError> {
    let message = event_stream::parse(frame)?;
    // Most messages need no data of their own, which would be a copy of the payload.
    if from.usual_message(&message, &mut |event| through.event(&event)) {
        through.meter.observe_frame();
        return through.check();
    }
    read_data(event_stream::message_data(&message, scratch)?, from, through)
}

#[inline(always)]
fn read_data(
    data: Option<&[u8]>,
    from: &mut AnyDecoder,
    through: &mut EventPipeline,
) -> Result<(), StreamError> {
    let Some(data) = data.filter(|data| !data.trim_ascii().is_empty()) else { return Ok(()) };
    // Some providers send frames behind the terminator; the client's stream has ended already.
    if from.is_over() {
        return Ok(());
    }
    let text = json::from_utf8(data).map_err(|error| StreamError::Invalid(error.to_string()))?;
    through.meter.observe_frame();
    if let Err(error) = from.frame(text, &mut |event| through.event(&event)) {
        match no_answer(text, &error) {
            // It is told like any other error of the provider: by what the client has received.
            StreamError::FirstFrame(error) => through.error = Some(error),
            invalid => return Err(invalid),
        }
    }
    through.check()
}
