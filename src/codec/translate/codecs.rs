//! Codecs of all formats behind one type each. This is the only module that lists them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::canonical::{Answer, Dialect, Event, Request, Start};
use crate::error::ApiError;
use crate::wire::codec::{CutText, LossNotes, ReplyOptions};
use crate::wire::{Format, chat, converse, generate, messages, responses};
use framing::event_stream::EventMessage;
use json::{JsonError, RawJson, RopeBuilder, from_utf8};

/// Stream decoder of any format.
#[derive(Debug)]
pub(super) enum AnyDecoder {
    Chat(Box<chat::stream::Decoder>),
    Messages(Box<messages::stream::Decoder>),
    Responses(Box<responses::stream::Decoder>),
    Generate(Box<generate::stream::Decoder>),
    Converse(Box<converse::stream::Decoder>),
}

impl AnyDecoder {
    /// Creates a decoder. `tagged` is whether texts of chat responses may start with reasoning between tags.
    pub(super) fn new(format: Format, seed: &str, tagged: bool) -> Self {
        match format {
            Format::Chat => AnyDecoder::Chat(Box::new(chat::stream::Decoder::new(seed).with_tags(tagged))),
            Format::Messages => AnyDecoder::Messages(Box::new(messages::stream::Decoder::new(seed))),
            Format::Responses => AnyDecoder::Responses(Box::new(responses::stream::Decoder::new(seed))),
            Format::Generate => AnyDecoder::Generate(Box::new(generate::stream::Decoder::new(seed))),
            Format::Converse => AnyDecoder::Converse(Box::new(converse::stream::Decoder::new(seed))),
        }
    }

    pub(super) fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        match self {
            AnyDecoder::Chat(decoder) => decoder.frame(data, sink),
            AnyDecoder::Messages(decoder) => decoder.frame(data, sink),
            AnyDecoder::Responses(decoder) => decoder.frame(data, sink),
            AnyDecoder::Generate(decoder) => decoder.frame(data, sink),
            AnyDecoder::Converse(decoder) => decoder.frame(data, sink),
        }
    }

    /// Decodes a message of an event stream if it is of the usual kind: a content delta in the provider's exact spelling.
    /// Returns false for any other message, which is decoded as a [`frame`](Self::frame).
    #[inline]
    pub(super) fn usual_message(
        &mut self,
        message: &EventMessage<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> bool {
        let AnyDecoder::Converse(decoder) = self else { return false };
        message.header_bytes() == converse::stream::DELTA_HEADERS
            && !decoder.is_over()
            && from_utf8(message.payload()).is_ok_and(|payload| decoder.usual_delta(payload, sink))
    }

    pub(super) fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        match self {
            AnyDecoder::Chat(decoder) => decoder.finish(sink),
            AnyDecoder::Messages(decoder) => decoder.finish(sink),
            AnyDecoder::Responses(decoder) => decoder.finish(sink),
            AnyDecoder::Generate(decoder) => decoder.finish(sink),
            AnyDecoder::Converse(decoder) => decoder.finish(sink),
        }
    }

    /// Parses the frames whose parsing was deferred.
    pub(super) fn parse_deferred(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if let AnyDecoder::Generate(decoder) = self {
            // An invalid deferred frame has no events.
            let _ = decoder.parse_deferred(sink);
        }
    }

    /// Returns true if a finish reason has arrived, in formats where the stream continues after it.
    pub(super) fn has_reason(&self) -> bool {
        match self {
            AnyDecoder::Chat(decoder) => decoder.has_reason(),
            AnyDecoder::Generate(decoder) => decoder.has_reason(),
            AnyDecoder::Converse(decoder) => decoder.has_reason(),
            AnyDecoder::Messages(_) | AnyDecoder::Responses(_) => false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            AnyDecoder::Chat(decoder) => decoder.is_over(),
            AnyDecoder::Messages(decoder) => decoder.is_over(),
            AnyDecoder::Responses(decoder) => decoder.is_over(),
            AnyDecoder::Generate(decoder) => decoder.is_over(),
            AnyDecoder::Converse(decoder) => decoder.is_over(),
        }
    }
}

/// Stream encoder of any format.
#[derive(Debug)]
pub(super) enum AnyEncoder {
    Chat(Box<chat::stream::Encoder>),
    Messages(Box<messages::stream::Encoder>),
    Responses(Box<responses::stream::Encoder>),
    Generate(Box<generate::stream::Encoder>),
    Converse(Box<converse::stream::Encoder>),
}

impl AnyEncoder {
    pub(super) fn new(format: Format, reply: Arc<ReplyOptions>) -> Self {
        match format {
            Format::Chat => AnyEncoder::Chat(Box::new(chat::stream::Encoder::new(reply))),
            Format::Messages => AnyEncoder::Messages(Box::new(messages::stream::Encoder::new(reply))),
            Format::Responses => AnyEncoder::Responses(Box::new(responses::stream::Encoder::new(reply))),
            Format::Generate => AnyEncoder::Generate(Box::new(generate::stream::Encoder::new(reply))),
            Format::Converse => AnyEncoder::Converse(Box::new(converse::stream::Encoder::new(reply))),
        }
    }

    /// Replaces the reply options in the middle of a response, because another provider continues it.
    pub(super) fn set_reply_options(&mut self, reply: Arc<ReplyOptions>) {
        match self {
            AnyEncoder::Chat(encoder) => encoder.set_reply_options(reply),
            AnyEncoder::Messages(encoder) => encoder.set_reply_options(reply),
            AnyEncoder::Responses(encoder) => encoder.set_reply_options(reply),
            AnyEncoder::Generate(encoder) => encoder.set_reply_options(reply),
            AnyEncoder::Converse(encoder) => encoder.set_reply_options(reply),
        }
    }

    /// Sets the number of input tokens that the stream starts with if the provider reports none by then. Has no effect
    /// on formats that report usage only at the end.
    pub(super) fn expect_input(&mut self, tokens: u64) {
        match self {
            AnyEncoder::Messages(encoder) => encoder.expect_input(tokens),
            AnyEncoder::Chat(_)
            | AnyEncoder::Responses(_)
            | AnyEncoder::Generate(_)
            | AnyEncoder::Converse(_) => {}
        }
    }

    /// Sets the id, model and creation time under which the client already knows the response.
    pub(super) fn continue_as(&mut self, start: &Start<'_>) {
        match self {
            AnyEncoder::Chat(encoder) => encoder.continue_as(start),
            AnyEncoder::Generate(encoder) => encoder.continue_as(start),
            // These formats send them only once, at the start, or not at all.
            AnyEncoder::Messages(_) | AnyEncoder::Responses(_) | AnyEncoder::Converse(_) => {}
        }
    }

    pub(super) fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        match self {
            AnyEncoder::Chat(encoder) => encoder.event(event, out),
            AnyEncoder::Messages(encoder) => encoder.event(event, out),
            AnyEncoder::Responses(encoder) => encoder.event(event, out),
            AnyEncoder::Generate(encoder) => encoder.event(event, out),
            AnyEncoder::Converse(encoder) => encoder.event(event, out),
        }
    }

    /// Takes the response document to be stored; only the responses format has one.
    pub(super) fn take_document(&mut self) -> Option<Bytes> {
        match self {
            AnyEncoder::Responses(encoder) => encoder.take_document(),
            AnyEncoder::Chat(_)
            | AnyEncoder::Messages(_)
            | AnyEncoder::Generate(_)
            | AnyEncoder::Converse(_) => None,
        }
    }

    pub(super) fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        match self {
            AnyEncoder::Chat(encoder) => encoder.fail(error, out),
            AnyEncoder::Messages(encoder) => encoder.fail(error, out),
            AnyEncoder::Responses(encoder) => encoder.fail(error, out),
            AnyEncoder::Generate(encoder) => encoder.fail(error, out),
            AnyEncoder::Converse(encoder) => encoder.fail(error, out),
        }
    }

    pub(super) fn keep_alive(&mut self, out: &mut BytesMut) {
        match self {
            AnyEncoder::Chat(encoder) => encoder.keep_alive(out),
            AnyEncoder::Messages(encoder) => encoder.keep_alive(out),
            AnyEncoder::Responses(encoder) => encoder.keep_alive(out),
            AnyEncoder::Generate(encoder) => encoder.keep_alive(out),
            // The format has no event that means nothing.
            AnyEncoder::Converse(_) => {}
        }
    }
}

/// Decodes a whole response.
pub(super) fn decode_answer(
    format: Format,
    body: &str,
    seed: &str,
    tagged: bool,
    sink: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    match format {
        Format::Chat => chat::answer::decode(body, seed, tagged, sink),
        Format::Messages => messages::answer::decode(body, seed, sink),
        Format::Responses => responses::answer::decode(body, seed, sink),
        Format::Generate => generate::answer::decode(body, seed, sink),
        Format::Converse => converse::answer::decode(body, seed, sink),
    }
}

/// Encodes a whole response.
pub(super) fn encode_answer(format: Format, answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    match format {
        Format::Chat => chat::answer::encode(answer, reply, out),
        Format::Messages => messages::answer::encode(answer, reply, out),
        Format::Responses => responses::answer::encode(answer, reply, out),
        Format::Generate => generate::answer::encode(answer, reply, out),
        Format::Converse => converse::answer::encode(answer, reply, out),
    }
}

/// Decodes a request of any format.
///
/// # Errors
/// Returns [`ApiError`] if the request is malformed; the error names the member.
pub fn decode_request(format: Format, body: &str) -> Result<Request<'_>, ApiError> {
    match format {
        Format::Chat => chat::request::decode(body),
        Format::Messages => messages::request::decode(body),
        Format::Responses => responses::request::decode(body),
        Format::Generate => generate::request::decode(body),
        Format::Converse => converse::request::decode(body),
    }
}

/// Same as [`decode_request`]. If responses of the format repeat members of the request, calls `member` for each member
/// other than the conversation.
pub(super) fn decode_request_with<'a>(
    format: Format,
    body: &'a str,
    member: impl FnMut(&'a str, RawJson<'a>),
) -> Result<Request<'a>, ApiError> {
    match format {
        Format::Responses => responses::request::decode_with(body, member),
        Format::Chat | Format::Messages | Format::Generate | Format::Converse => decode_request(format, body),
    }
}

/// Encodes a request.
pub(super) fn encode_request(
    format: Format,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    out: &mut RopeBuilder,
) {
    match format {
        Format::Chat => chat::request::encode(request, dialect, notes, out),
        Format::Messages => messages::request::encode(request, dialect, notes, out),
        Format::Responses => responses::request::encode(request, dialect, notes, out),
        Format::Generate => generate::request::encode(request, dialect, notes, out),
        Format::Converse => converse::request::encode(request, dialect, notes, out),
    }
}
