//! The answer: from the provider's head and body to the client's.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType};

use super::context::{Attempt, Context, RequestId, ResponseInProgress, Translation, UpstreamResponse};
use super::encoding::Decoder;
use super::request::overloaded;
use super::upstream::scrubbed;
use super::{Gateway, names};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{Exchange, StreamError, Translated, Verbatim};
use crate::wire::error::{self as wire_error, ProviderError};
use crate::wire::path::Action;
use crate::wire::watch::StreamEnd as Ending;
use crate::wire::{Format, messages};

/// An error body is read up to this size; beyond it nothing of use stands.
pub(super) const MAX_ERROR_BODY: usize = 256 * 1024;

/// Headers of the provider's answer that the client gets.
const PASSED: [HeaderName; 6] = [
    names::RETRY_AFTER_MS,
    names::X_SHOULD_RETRY,
    names::OPENAI_PROCESSING_MS,
    names::OPENAI_VERSION,
    names::ANTHROPIC_BETA,
    names::X_MS_REGION,
];

impl Gateway {
    /// The provider's head has come: what kind of answer is it?
    pub(super) fn open_answer(&self, head: &ResponseHeader, ctx: &mut Context) -> pingora::Result<()> {
        ctx.record.answered = Some(std::time::Instant::now());
        let status = head.status.as_u16();
        ctx.record.upstream_status = Some(status);
        let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        ctx.record.upstream_id = text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID)).map(note_id);
        if ctx.record.targets > 0 {
            ctx.learn(&head.headers);
        }
        let encoding = text(&header::CONTENT_ENCODING).unwrap_or_default();
        let decoder = match Decoder::new(encoding) {
            Ok(decoder) => decoder.map(Box::new),
            Err(error) => return Err(self.broken(ctx, &error)),
        };
        ctx.decoder = decoder;
        let plan = ctx.plan.as_ref().ok_or_else(|| Error::new_in(ErrorType::InternalError))?;
        if head.status.is_success() {
            let arrival = arrival(plan, text(&header::CONTENT_TYPE).unwrap_or_default());
            let (mut exchange, stream) = match self.onward(plan, ctx.resume.as_mut(), arrival) {
                Some(exchange) => (exchange, true),
                None => match plan.promised(ctx, arrival, self.limits.answer) {
                    None => self.exchange_of(plan, arrival),
                    Some(promised) => (Exchange::Translated(promised), true),
                },
            };
            exchange.expect(plan.lane.family, ctx.charges.expected_input());
            if stream {
                ctx.follow(&mut exchange);
            }
            ctx.record.stream = stream;
            let passing = Box::new(ResponseInProgress::new(exchange));
            ctx.answer = if stream {
                UpstreamResponse::Stream(passing)
            } else {
                UpstreamResponse::Whole(passing, BytesMut::new())
            };
        } else {
            let retry_after = text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned()));
            ctx.record.stream = false;
            ctx.answer = UpstreamResponse::Refused { status, retry_after, body: BytesMut::new() };
        }
        Ok(())
    }

    /// How the answer is brought to the client, and whether as a stream.
    fn exchange_of(&self, plan: &Attempt, arrival: Arrival) -> (Exchange, bool) {
        let Some(translation) = &plan.translation else {
            let verbatim = Verbatim::new(plan.api, arrival, plan.changes.clone(), self.limits.frame);
            return (Exchange::Verbatim(verbatim), arrival != Arrival::Whole);
        };
        // A client that asked for a stream gets one, whichever way the answer comes, and the same for a document.
        let Translation { client, provider, reply, restore, .. } = &**translation;
        let route = Route { client: *client, provider: *provider, stream: plan.stream };
        let limit = if arrival == Arrival::Whole { self.limits.answer } else { self.limits.frame };
        let translated = Translated::new(&route, arrival, reply.clone(), restore.clone(), limit);
        (Exchange::Translated(Box::new(translated)), plan.stream)
    }

    /// The head that the client gets for an answer that passes. `length` is that of the body, where it is known.
    pub(super) fn client_head(
        &self,
        client: &RequestHeader,
        provider: &ResponseHeader,
        ctx: &Context,
        length: Option<usize>,
    ) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = provider.status;
        let mut ours = HeaderMap::with_capacity(8);
        let theirs = &provider.headers;
        let kind = match &ctx.answer {
            // Errors are told in JSON, whatever they came as.
            UpstreamResponse::Refused { .. } => None,
            _ => match ctx.plan.as_ref().and_then(|plan| plan.translation.as_deref()) {
                None => theirs.get(header::CONTENT_TYPE).cloned(),
                Some(translation) if ctx.record.stream && !translation.array => {
                    Some(HeaderValue::from_static("text/event-stream; charset=utf-8"))
                }
                Some(_) => None,
            },
        };
        ours.insert(
            header::CONTENT_TYPE,
            kind.unwrap_or_else(|| HeaderValue::from_static("application/json")),
        );
        if let Some(length) = length {
            ours.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        } else if client.version == http::Version::HTTP_11 {
            ours.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        for name in PASSED {
            if let Some(value) = theirs.get(&name) {
                ours.insert(name, value.clone());
            }
        }
        if let UpstreamResponse::Refused { retry_after: Some(RetryAfter::Header(wait)), .. } = &ctx.answer
            && let Ok(wait) = HeaderValue::from_str(wait)
        {
            ours.insert(header::RETRY_AFTER, wait);
        }
        if ctx.record.stream {
            keep_flowing(&mut ours);
        }
        if let Some(warning) = ctx.plan.as_ref().and_then(|plan| plan.warning.as_ref()) {
            ours.insert(names::X_GATEWAY_WARNING, warning.clone());
        }
        for (name, value) in ctx.way() {
            ours.insert(name, value);
        }
        add_ids(&mut ours, ctx.format, &ctx.id);
        for (name, value) in ctx.charges.shown(ctx.format, ctx.now()) {
            ours.insert(name, value);
        }
        parts.headers = ours;
        if client.version < http::Version::HTTP_11 {
            // Neither chunks nor, for a stream, a length: the end of the connection is the end of the answer.
            parts.version = http::Version::HTTP_10;
        }
        ResponseHeader::from(parts)
    }

    /// Takes a piece of the provider's body; returns what leaves for the client, which may be nothing.
    ///
    /// What cannot go on is an error whose meaning is left in `ctx.failure`.
    pub(super) fn pass(&self, piece: Bytes, end: bool, ctx: &mut Context) -> pingora::Result<Bytes> {
        if let UpstreamResponse::Stream(passing) = &mut ctx.answer {
            return self.pass_stream(passing, piece, end).map_err(|failure| self.failed(ctx, failure));
        }
        let mut answer = std::mem::replace(&mut ctx.answer, UpstreamResponse::Done);
        let result = match &mut answer {
            UpstreamResponse::Whole(passing, body) => self.pass_whole(passing, body, piece, end),
            UpstreamResponse::Refused { status, retry_after, body } => {
                collect_error(body, &piece);
                Ok(if end {
                    self.tell_refusal(*status, retry_after.take(), body.split().freeze(), ctx)
                } else {
                    Bytes::new()
                })
            }
            UpstreamResponse::Pending
            | UpstreamResponse::Stream(_)
            | UpstreamResponse::Synthesized(_)
            | UpstreamResponse::Done => Ok(Bytes::new()),
        };
        ctx.answer = answer;
        result.map_err(|failure| self.failed(ctx, failure))
    }

    fn pass_whole(
        &self,
        passing: &mut ResponseInProgress,
        body: &mut BytesMut,
        piece: Bytes,
        end: bool,
    ) -> Result<Bytes, Failure> {
        let mut last = Bytes::new();
        if !piece.is_empty() {
            passing.held = body.len() + piece.len();
            if passing.held > self.limits.answer {
                return Err(Failure::TooLarge(self.limits.answer));
            }
            if !self.memory.grow(&mut passing.weight, passing.held) {
                return Err(Failure::NoMemory);
            }
            if end && body.is_empty() {
                // The usual answer comes in one piece and is not copied.
                last = piece;
            } else {
                body.extend_from_slice(&piece);
            }
        }
        if !end {
            return Ok(Bytes::new());
        }
        let whole = if last.is_empty() { body.split().freeze() } else { last };
        let passed = passing.exchange.whole(whole)?;
        if passing.exchange.meter().end() != Ending::Failed {
            // What its provider does not say is counted where there is time for it.
            passing.exchange.complete();
        }
        Ok(passed)
    }

    /// Passes a piece of a stream. What is taken in and does not leave, such as a frame that does not end, is counted
    /// in `limits.memory`. It is an upper bound: frames that are read and mean nothing to the client count until the
    /// next one leaves.
    fn pass_stream(
        &self,
        passing: &mut ResponseInProgress,
        piece: Bytes,
        end: bool,
    ) -> Result<Bytes, Failure> {
        let held = passing.held + piece.len();
        let out = pass_stream(passing, piece, end)?;
        passing.held = if out.is_empty() { held } else { 0 };
        if passing.held == 0 {
            passing.weight = None;
        } else if !self.memory.grow(&mut passing.weight, passing.held) {
            return Err(Failure::NoMemory);
        }
        Ok(out)
    }

    /// Puts a provider's refusal into the client's words; keeps it as the request's failure.
    fn tell_refusal(
        &self,
        status: u16,
        retry_after: Option<RetryAfter>,
        body: Bytes,
        ctx: &mut Context,
    ) -> Bytes {
        let provider = ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| &target.provider);
        let reported = ProviderError::decode(&body);
        let detail = scrubbed(provider, reported.message.clone());
        let mut error = wire_error::from_provider(status, reported, retry_after);
        error.message = scrubbed(provider, error.message.into_owned()).into();
        ctx.record.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
        let same_format = ctx.plan.as_ref().is_some_and(|plan| plan.api.error_format() == ctx.format);
        let told = std::str::from_utf8(&body)
            .ok()
            .filter(|_| same_format && error.kind != Kind::UpstreamAuth && error.status == status)
            .filter(|text| wire_error::is_in_shape(ctx.format, status, text))
            .map(|text| {
                let maps = ctx.format == Format::Messages && provider.is_some_and(|by| by.standard_errors);
                let mapped = if maps { messages::error::standardised(text, status) } else { None };
                Bytes::from(scrubbed(provider, mapped.unwrap_or_else(|| text.to_owned())))
            });
        let told = told.unwrap_or_else(|| wire_error::body(ctx.format, &error, ctx.id.as_str()).freeze());
        ctx.failure = Some(Box::new(error));
        told
    }

    fn failed(&self, ctx: &mut Context, failure: Failure) -> Box<Error> {
        let (error, detail) = match failure {
            Failure::NoMemory => (overloaded(), None),
            Failure::TooLarge(limit) => {
                let message = format!("The upstream provider's answer is larger than {limit} bytes.");
                (ApiError::new(Kind::UpstreamBroken, message), None)
            }
            Failure::Stream(StreamError::FirstFrame(frame), _) => (self.first_frame(ctx, &frame), None),
            Failure::Stream(StreamError::Failed(frame), rest) => (self.first_frame(ctx, &frame), Some(rest)),
            Failure::Stream(error, rest) => {
                // What was complete before the fault still belongs to the client; the driver sends it first.
                ctx.record.detail = Some(error.to_string().into_boxed_str());
                let message = match &error {
                    StreamError::Cut => "The upstream provider's stream ended before it was complete.",
                    _ => "The upstream provider's answer is not valid.",
                };
                (ApiError::new(Kind::UpstreamBroken, message), Some(rest))
            }
        };
        ctx.failure = Some(Box::new(error));
        let mut broken = Error::explain(ErrorType::Custom("BrokenAnswer"), "broken answer").into_up();
        if let Some(rest) = detail.filter(|rest| !rest.is_empty()) {
            broken.cause = Some(Box::new(BytesBeforeFault(rest)));
        }
        broken
    }

    fn broken(&self, ctx: &mut Context, error: &dyn std::fmt::Display) -> Box<Error> {
        ctx.record.detail = Some(error.to_string().into_boxed_str());
        let told = "The upstream provider's answer is not valid.";
        ctx.failure = Some(Box::new(ApiError::new(Kind::UpstreamBroken, told)));
        Error::explain(ErrorType::Custom("BrokenAnswer"), "broken answer").into_up()
    }

    /// An error inside a 200: the error, with the status that it would have had.
    pub(super) fn first_frame(&self, ctx: &Context, frame: &[u8]) -> ApiError {
        let reported = ProviderError::decode(frame);
        let status = status_of(&reported);
        let mut error = wire_error::from_provider(status, reported, None);
        let provider = ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| &target.provider);
        error.message = scrubbed(provider, error.message.into_owned()).into();
        error
    }
}

/// Why a piece cannot pass.
enum Failure {
    TooLarge(usize),
    /// All requests together hold as much as they may.
    NoMemory,
    /// With what was still to be sent before.
    Stream(StreamError, Bytes),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Failure::Stream(error, Bytes::new())
    }
}

/// Frames that were complete when the stream broke.
#[derive(Debug, thiserror::Error)]
#[error("{} bytes unsent", .0.len())]
pub(super) struct BytesBeforeFault(pub(super) Bytes);

fn note_id(text: &str) -> Box<str> {
    text.chars().take(128).collect::<String>().into_boxed_str()
}

/// Passes a piece of a stream.
fn pass_stream(passing: &mut ResponseInProgress, piece: Bytes, end: bool) -> Result<Bytes, Failure> {
    let mut out = Bytes::new();
    if !piece.is_empty() {
        out = match passing.exchange.feed(piece) {
            Ok(out) => out,
            Err(error) => return Err(Failure::Stream(error, passing.exchange.take_ready())),
        };
    }
    if !end {
        return Ok(out);
    }
    match passing.exchange.finish() {
        Ok(tail) if tail.is_empty() => Ok(out),
        Ok(tail) if out.is_empty() => Ok(tail),
        Ok(tail) => Ok(Bytes::from([out, tail].concat())),
        Err(error) => {
            let ready = passing.exchange.take_ready();
            Err(Failure::Stream(
                error,
                if out.is_empty() { ready } else { Bytes::from([out, ready].concat()) },
            ))
        }
    }
}

fn collect_error(body: &mut BytesMut, piece: &[u8]) {
    let room = MAX_ERROR_BODY.saturating_sub(body.len());
    body.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
}

/// Proxies in between must neither keep nor hold back a stream.
pub(super) fn keep_flowing(ours: &mut HeaderMap) {
    ours.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    ours.insert(names::X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

/// The request's id, under the names that the client's SDK reads.
pub(super) fn add_ids(ours: &mut HeaderMap, format: Format, id: &RequestId) {
    let Ok(id) = HeaderValue::from_bytes(id.as_bytes()) else { return };
    if format == Format::Messages {
        ours.insert(names::REQUEST_ID, id.clone());
    }
    ours.insert(names::X_REQUEST_ID, id);
}

/// Whether an answer comes as a stream, by its type and by what was asked for.
fn arrival(plan: &Attempt, content_type: &str) -> Arrival {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("text/event-stream") {
        return Arrival::Events;
    }
    let json = kind.eq_ignore_ascii_case("application/json");
    match plan.action {
        Some(Action::Stream { sse: false }) if json || kind.is_empty() => Arrival::Array,
        // Some servers forget the type of their streams.
        _ if plan.stream && kind.is_empty() => Arrival::Events,
        _ => Arrival::Whole,
    }
}

/// The HTTP status that an error inside a 200 stands for.
pub(super) fn status_of(provider: &ProviderError) -> u16 {
    let numeric = provider.code.as_deref().and_then(|code| code.parse::<u16>().ok());
    if let Some(status) = numeric.filter(|status| (400..600).contains(status)) {
        return status;
    }
    let says = |word: &str| {
        [&provider.kind, &provider.code]
            .into_iter()
            .flatten()
            .any(|text| text.to_ascii_lowercase().contains(word))
    };
    match () {
        () if says("overloaded") => 529,
        () if says("rate_limit") || says("resource_exhausted") => 429,
        () if says("invalid_request") || says("invalid_argument") => 400,
        () if says("unavailable") => 503,
        () => 500,
    }
}
