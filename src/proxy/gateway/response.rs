//! Response phase: the upstream response head and body, and what is forwarded to the client.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora::Error;
use pingora::http::ResponseHeader;

use super::attempt::{Attempt, Translation};
use super::authorize::{judge_authorization, judge_refusal};
use super::context::Context;
use super::fault_report::advise_delay;
use super::invoke::add_invocation;
use super::invoke::may_refuse_betas;
use super::phase::UpstreamResponse;
use super::phase::internal_error;
use super::prompt_cache::cache_usage;
use super::refit::may_be_unfit;
use super::reply::broken_off;
use super::request_id::add_ids;
use super::response_in_progress::ResponseInProgress;
use super::spans;
use crate::Gateway;
use crate::client::call::error_status;
use crate::upstream_route::redact_secrets;
use codec::canonical::RequestFeatures;
use codec::error::{ApiError, ErrorKind, RetryAfter};
use codec::translate::invoke_stream::InvokeStream;
use codec::translate::invoke_writer::InvokeWriter;
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{Exchange, StreamError, Translated, Verbatim};
use codec::wire::error::{self as wire_error, ProviderError};
use codec::wire::path::Action;
use codec::wire::{Api, Format, converse, messages};
use driver::encoding::ContentCoding;
use driver::fault::{Fault, FaultBody};
use driver::names;
use driver::reader::MAX_ERROR_BODY;

/// Upstream response headers that are forwarded to the client.
const FORWARDED_HEADERS: [HeaderName; 6] = [
    names::RETRY_AFTER_MS,
    names::X_SHOULD_RETRY,
    names::OPENAI_PROCESSING_MS,
    names::OPENAI_VERSION,
    names::ANTHROPIC_BETA,
    names::X_MS_REGION,
];

impl Gateway {
    /// Handles the upstream response head: chooses between a stream, a whole document and an error.
    pub(crate) fn on_response_head(&self, head: &ResponseHeader, ctx: &mut Context) -> pingora::Result<()> {
        ctx.record.head_received_at = Some(std::time::Instant::now());
        let status = head.status.as_u16();
        ctx.record.upstream_status = Some(status);
        let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        ctx.record.upstream_id =
            text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID)).map(truncated_id);
        // With a single target nothing is selected, so its quota is of no use.
        if ctx.record.targets > 0 {
            ctx.observe_quota(&head.headers);
        }
        let encoding = text(&header::CONTENT_ENCODING).unwrap_or_default();
        if let Err(error) = ContentCoding::parse(encoding) {
            return Err(self.malformed_response(ctx, &error));
        }
        // An error response keeps it, so that it can still be restored.
        let suspended = ctx.phase.take_suspended();
        let plan = ctx.attempt().ok_or_else(internal_error)?;
        if head.status.is_success() {
            if plan.without != RequestFeatures::NONE {
                plan.upstream_route.remember_refused(plan.without);
            }
            let mut arrival = arrival(plan, text(&header::CONTENT_TYPE).unwrap_or_default());
            // A translation reads what Bedrock adds, and a client of InvokeModel gets it.
            let keeps_added = ctx.is_invoke() || plan.translation.is_some();
            let invoked = (arrival == Arrival::EventStream && plan.api == Api::Messages)
                .then(|| InvokeStream::new(self.limits.frame))
                .map(|stream| Box::new(if keeps_added { stream.keeping_added() } else { stream }));
            if invoked.is_some() {
                arrival = Arrival::Events;
            }
            // A continued stream comes first; then a client with an early head, which must get a stream in whatever
            // form the response arrives.
            let continued_content = suspended.as_ref().and_then(|suspended| suspended.first_content);
            let (mut exchange, stream) = match (suspended, plan.translation.as_deref()) {
                (Some(suspended), Some(translation)) => {
                    (self.resumed_exchange(plan, translation, *suspended, arrival), true)
                }
                _ => match plan.translate_to_stream(ctx, arrival, self.limits.answer) {
                    None => self.new_exchange(plan, arrival),
                    Some(promised) => (Exchange::Translated(promised), true),
                },
            };
            exchange.expect(plan.upstream_route.family, ctx.expected_input());
            if let Some(choices) = ctx.requested_choices() {
                exchange.expect_choices(choices);
            }
            if ctx.trace.is_some() {
                exchange.record_model();
            }
            if stream {
                ctx.record_transcript(&mut exchange);
            }
            ctx.record.stream = stream;
            let writer = ctx.is_invoke().then(|| Box::new(InvokeWriter::new(ctx.record.clock())));
            let passing = Box::new(ResponseInProgress {
                continued_content,
                invoked,
                writer,
                ..ResponseInProgress::new(exchange)
            });
            ctx.phase.answer(if stream {
                UpstreamResponse::Stream(passing)
            } else {
                UpstreamResponse::Whole(passing, BytesMut::new())
            });
        } else {
            let mut retry_after = spans::retry_delay(&head.headers);
            if retry_after.is_none() && status == 429 {
                retry_after = spans::quota_reset(&head.headers, plan.api.error_format(), ctx.now());
            }
            ctx.record.stream = false;
            let name = text(&names::X_AMZN_ERRORTYPE);
            let exception = name.and_then(|name| converse::error::named(name, status));
            let (status, body) = (error_status(status, name), BytesMut::new());
            ctx.phase.answer(UpstreamResponse::Refused { status, retry_after, exception, body, suspended });
        }
        let may_refuse_betas = ctx.attempt().is_some_and(|attempt| may_refuse_betas(attempt, status));
        let may_renew = ctx.attempt().is_some_and(|attempt| attempt.authorized.is_some())
            && judge_authorization(ctx, status, &head.headers);
        let is_unfit = ctx.attempt().is_some_and(|attempt| may_be_unfit(attempt, status));
        if may_renew || may_refuse_betas || is_unfit {
            // The body is sent again with another authorization, or without what it holds.
            return Ok(());
        }
        // The provider has answered: this body is not sent again. A fallback encodes a new one from the retry state.
        ctx.drop_body();
        Ok(())
    }

    /// Creates the exchange of a success response. Returns also whether the client gets a stream.
    fn new_exchange(&self, plan: &Attempt, arrival: Arrival) -> (Exchange, bool) {
        let Some(translation) = &plan.translation else {
            let verbatim = Verbatim::new(plan.api, arrival, plan.changes.clone(), self.limits.frame);
            return (Exchange::Verbatim(verbatim), arrival != Arrival::Whole);
        };
        // The client gets a stream if it requested one, in whatever form the response arrives; otherwise a document.
        let Translation { client, provider, reply, restore, .. } = &**translation;
        let route = Route { client: *client, provider: *provider, stream: plan.stream };
        let limit = if arrival == Arrival::Whole { self.limits.answer } else { self.limits.frame };
        let translated = Translated::new(&route, arrival, reply.clone(), restore.clone(), limit);
        (Exchange::Translated(Box::new(translated)), plan.stream)
    }

    /// Builds the response head for the client, without the framing of its body.
    pub(crate) fn client_head(&self, provider: &ResponseHeader, ctx: &Context) -> ResponseHeader {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = provider.status;
        // A new map: other headers of the provider describe its own connection (framing, coding, cookies).
        let mut ours = HeaderMap::with_capacity(8);
        let theirs = &provider.headers;
        let kind = match ctx.phase.response() {
            // Errors are sent as JSON, whatever their upstream content type is.
            Some(UpstreamResponse::Refused { .. }) => None,
            Some(UpstreamResponse::Stream(passing)) if passing.writer.is_some() => {
                Some(HeaderValue::from_static(EVENT_STREAM))
            }
            Some(UpstreamResponse::Stream(passing))
                if passing.invoked.is_some() && ctx.format == Format::Messages =>
            {
                Some(HeaderValue::from_static(stream_type(Format::Messages)))
            }
            _ => match ctx.attempt().and_then(|plan| plan.translation.as_deref()) {
                None => theirs.get(header::CONTENT_TYPE).cloned(),
                Some(translation) if ctx.record.stream && !translation.array => {
                    Some(HeaderValue::from_static(stream_type(translation.client)))
                }
                Some(_) => None,
            },
        };
        ours.insert(
            header::CONTENT_TYPE,
            kind.unwrap_or_else(|| HeaderValue::from_static("application/json")),
        );
        for name in FORWARDED_HEADERS {
            if let Some(value) = theirs.get(&name) {
                ours.insert(name, value.clone());
            }
        }
        if ctx.attempt().is_some_and(Attempt::forwards_turn_state)
            && let Some(state) = theirs.get(names::X_CODEX_TURN_STATE)
        {
            ours.insert(names::X_CODEX_TURN_STATE, state.clone());
        }
        if ctx.record.stream {
            disable_buffering(&mut ours);
        }
        if let Some(warning) = ctx.warning() {
            ours.insert(names::X_GATEWAY_WARNING, warning);
        }
        if let Some(cache) = ctx.attempt().and_then(|plan| plan.caching.header()) {
            ours.insert(names::X_GATEWAY_CACHE, cache);
            if let Some(usage) = cache_usage(ctx) {
                ours.insert(names::X_GATEWAY_CACHE_USAGE, usage);
            }
        }
        for (name, value) in ctx.target_headers() {
            ours.insert(name, value);
        }
        add_ids(&mut ours, ctx.error_format(), &ctx.id);
        if ctx.is_invoke() {
            add_invocation(&mut ours, ctx);
        }
        for (name, value) in ctx.rate_limit_headers() {
            ours.insert(name, value);
        }
        if let Some(cors) = &ctx.cors {
            ours.extend(cors.headers());
        }
        parts.headers = ours;
        ResponseHeader::from(parts)
    }

    /// Forwards a piece of the upstream body. Returns the bytes to send to the client, which may be empty.
    ///
    /// # Errors
    /// Returns a [`Fault`] if the response cannot continue, and at the end of an error response.
    pub(crate) fn filter_piece(&self, piece: Bytes, end: bool, ctx: &mut Context) -> pingora::Result<Bytes> {
        let result = match ctx.phase.response_mut() {
            Some(UpstreamResponse::Stream(passing)) => self.forward_stream(passing, piece, end),
            Some(UpstreamResponse::Whole(passing, body)) => self.forward_whole(passing, body, piece, end),
            Some(UpstreamResponse::Refused { status, retry_after, exception, body, .. }) => {
                collect_error(body, &piece);
                if end {
                    let (status, retry_after, body) = (*status, retry_after.take(), body.split().freeze());
                    let exception = *exception;
                    judge_refusal(ctx, status, &body);
                    Err(self.convert_error(status, retry_after, exception, body, ctx))
                } else {
                    Ok(Bytes::new())
                }
            }
            None => Ok(Bytes::new()),
        };
        let result = result.and_then(|out| if end { self.check_whole(ctx, out) } else { Ok(out) });
        result.map_err(|failure| self.forward_failure(ctx, failure))
    }

    /// Checks a document that passes verbatim: if its provider broke it off, another target is tried, and the client gets
    /// it if none does better.
    fn check_whole(&self, ctx: &Context, document: Bytes) -> Result<Bytes, Failure> {
        let whole = matches!(ctx.phase.response(), Some(UpstreamResponse::Whole(..)));
        let may_retry = whole && ctx.phase.routed().is_some_and(|routed| routed.retry_state.is_some());
        match self.broken_off(ctx).filter(|_| may_retry) {
            Some(error) => Err(Failure::Refused(Box::new(error.status(200)), document)),
            None => Ok(document),
        }
    }

    fn forward_whole(
        &self,
        passing: &mut ResponseInProgress,
        body: &mut BytesMut,
        piece: Bytes,
        end: bool,
    ) -> Result<Bytes, Failure> {
        let mut last = Bytes::new();
        if !piece.is_empty() {
            passing.buffered_bytes = body.len() + piece.len();
            if passing.buffered_bytes > self.limits.answer {
                return Err(Failure::TooLarge(self.limits.answer));
            }
            if !self.memory.grow(&mut passing.memory_permit, passing.buffered_bytes) {
                return Err(Failure::NoMemory);
            }
            if end && body.is_empty() {
                // Mostly the response arrives in one piece, which is not copied.
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
        if !passing.exchange.meter().has_failed() {
            // Count the usage that the provider did not report here: a large document has its turn of `offload` now.
            passing.exchange.complete();
        }
        Ok(passed)
    }

    /// Forwards a piece of a stream. `limits.memory` counts bytes that were read and not forwarded, such as a frame
    /// without an end. The count is an upper bound: frames that have no equivalent in the client's format count until
    /// the next one leaves.
    fn forward_stream(
        &self,
        passing: &mut ResponseInProgress,
        piece: Bytes,
        end: bool,
    ) -> Result<Bytes, Failure> {
        let held = passing.buffered_bytes + piece.len();
        let out = passing.feed(piece, end).map_err(|(error, rest)| Failure::Stream(error, rest))?;
        passing.buffered_bytes = if out.is_empty() { held } else { 0 };
        if passing.buffered_bytes == 0 {
            // Usually nothing is left over: a stream that waits for its provider counts nothing.
            passing.memory_permit = None;
        } else if !self.memory.grow(&mut passing.memory_permit, passing.buffered_bytes) {
            return Err(Failure::NoMemory);
        }
        Ok(out)
    }

    /// Maps a provider's error to the client's format.
    fn convert_error(
        &self,
        status: u16,
        retry_after: Option<RetryAfter>,
        exception: Option<&'static str>,
        body: Bytes,
        ctx: &mut Context,
    ) -> Failure {
        let provider = ctx.target().map(|target| &target.provider);
        let reported = ProviderError::decode(&body);
        let in_body = reported.kind.as_deref().and_then(|kind| converse::error::named(kind, status));
        let detail = redact_secrets(provider, reported.message.clone());
        let mut error = wire_error::from_provider(status, reported, retry_after);
        error.message = redact_secrets(provider, error.message.into_owned()).into();
        advise_delay(ctx, &mut error);
        if ctx.error_format() == Format::Converse {
            error.code = exception.or(in_body).map(Into::into);
        }
        // The body may repeat the status, which is the client's.
        let told_status = wire_error::client_status(ctx.error_format(), &error);
        let same_format = ctx.attempt().is_some_and(|plan| plan.api.error_format() == ctx.error_format());
        // Forward the provider's own body if it is valid in the client's format, because it has more details than a new
        // one. Not for `UpstreamAuth`, which is about the gateway's own credential.
        let told = std::str::from_utf8(&body)
            .ok()
            .filter(|_| same_format && error.kind != ErrorKind::UpstreamAuth)
            .filter(|_| error.status == status || error.kind == ErrorKind::ContextOverflow)
            .filter(|text| wire_error::is_in_shape(ctx.format, told_status, text))
            .map(|text| {
                let maps = ctx.format == Format::Messages && provider.is_some_and(|by| by.standard_errors);
                let mapped = if maps { messages::error::standardised(text, status) } else { None };
                Bytes::from(redact_secrets(provider, mapped.unwrap_or_else(|| text.to_owned())))
            });
        let told = match told {
            Some(told) => {
                error.status = status;
                told
            }
            None => {
                super::fault_report::restate_overflow(ctx, &mut error);
                wire_error::body(ctx.error_format(), &error, ctx.id.as_str()).freeze()
            }
        };
        ctx.record.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
        Failure::Refused(Box::new(error), told)
    }

    fn forward_failure(&self, ctx: &mut Context, failure: Failure) -> Box<Error> {
        let (error, body) = match failure {
            Failure::NoMemory => (ApiError::overloaded(), FaultBody::None),
            Failure::TooLarge(limit) => {
                let message = format!("The upstream provider's response is larger than {limit} bytes.");
                (ApiError::new(ErrorKind::UpstreamBroken, message), FaultBody::None)
            }
            Failure::Refused(error, told) => (*error, FaultBody::Refusal(told)),
            Failure::Stream(StreamError::FirstFrame(frame), _) => {
                (self.first_frame(ctx, &frame), FaultBody::None)
            }
            Failure::Stream(StreamError::Failed(frame), rest) => {
                (self.first_frame(ctx, &frame), FaultBody::Unsent(rest))
            }
            Failure::Stream(error, rest) => {
                // The frames before the fault are valid and still belong to the client; the driver sends them first.
                ctx.record.detail = Some(error.to_string().into_boxed_str());
                let message = match &error {
                    StreamError::Cut => "The upstream provider's stream ended before it was complete.",
                    _ => "The upstream provider's response is not valid.",
                };
                (broken_off(ErrorKind::UpstreamBroken, message), FaultBody::Unsent(rest))
            }
        };
        match body {
            FaultBody::Unsent(rest) if rest.is_empty() => Fault::raise(error, FaultBody::None),
            body => Fault::raise(error, body),
        }
    }

    fn malformed_response(&self, ctx: &mut Context, error: &dyn std::fmt::Display) -> Box<Error> {
        ctx.record.detail = Some(error.to_string().into_boxed_str());
        let told = "The upstream provider's response is not valid.";
        Fault::raise(ApiError::new(ErrorKind::UpstreamBroken, told), FaultBody::None)
    }

    /// Returns the client's error for an error frame inside a 200 response, with the status that fits it.
    pub(crate) fn first_frame(&self, ctx: &Context, frame: &[u8]) -> ApiError {
        let reported = ProviderError::decode(frame);
        let status = reported.status();
        let mut error = wire_error::from_provider(status, reported, None);
        let provider = ctx.target().map(|target| &target.provider);
        error.message = redact_secrets(provider, error.message.into_owned()).into();
        advise_delay(ctx, &mut error);
        super::fault_report::restate_overflow(ctx, &mut error);
        error
    }
}

/// Reason why a piece cannot be forwarded.
enum Failure {
    TooLarge(usize),
    /// The memory budget of all requests is exhausted.
    NoMemory,
    /// The provider answered with an error: the error and its body in the client's format.
    Refused(Box<ApiError>, Bytes),
    /// The stream is broken. The bytes are the complete frames before the fault.
    Stream(StreamError, Bytes),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Failure::Stream(error, Bytes::new())
    }
}

fn truncated_id(text: &str) -> Box<str> {
    text.chars().take(128).collect::<String>().into_boxed_str()
}

fn collect_error(body: &mut BytesMut, piece: &[u8]) {
    let room = MAX_ERROR_BODY.saturating_sub(body.len());
    body.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
}

/// Adds the headers that stop intermediate proxies from caching or buffering a stream.
pub(crate) fn disable_buffering(ours: &mut HeaderMap) {
    ours.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx buffers a proxied response unless this header forbids it: the client would get the stream in lumps.
    ours.insert(names::X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

/// Media type of AWS event streams.
const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// Returns the media type of a stream that is no JSON array.
pub(crate) const fn stream_type(format: Format) -> &'static str {
    match format {
        Format::Converse => EVENT_STREAM,
        _ => "text/event-stream; charset=utf-8",
    }
}

/// Returns how a response arrives: its content type decides, and the request where the type is missing.
fn arrival(plan: &Attempt, content_type: &str) -> Arrival {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("text/event-stream") {
        return Arrival::Events;
    }
    if kind.eq_ignore_ascii_case(EVENT_STREAM) {
        return Arrival::EventStream;
    }
    let json = kind.eq_ignore_ascii_case("application/json");
    match plan.action {
        Some(Action::Stream { sse: false }) if json || kind.is_empty() => Arrival::Array,
        _ if plan.stream && kind.is_empty() && plan.api == Api::Converse => Arrival::EventStream,
        // Some servers send streams without a content type.
        _ if plan.stream && kind.is_empty() => Arrival::Events,
        _ => Arrival::Whole,
    }
}
