//! Spans of a request: one of the kind SERVER for the request, and one of the kind CLIENT for each attempt at a
//! provider. Encoded as OTLP's trace.proto defines them.

use super::attributes::Attributes;
use super::conventions::{Conventions, operation_name};
use super::facts::{AttemptFacts, EventKind, RequestFacts, TraceFacts};
use super::protobuf::ProtobufWriter;

/// Field of the spans in `ScopeSpans`.
pub(super) const SPANS: u32 = 2;
/// Values of `SpanKind`.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// Value of `StatusCode` for an error.
const STATUS_ERROR: u64 = 2;
/// Bits of `SpanFlags`: the trace is sampled; it is known whether the parent is remote; it is.
const SAMPLED: u32 = 1;
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Encodes the spans of a request as fields of `ScopeSpans`. Returns their number.
pub fn encode_request(
    request: &RequestFacts<'_>,
    trace: &TraceFacts<'_>,
    conventions: Conventions,
    out: &mut Vec<u8>,
) -> usize {
    let mut scope = ProtobufWriter::new(out);
    scope.message(SPANS, |span| encode_server(span, request, trace));
    for (index, attempt) in trace.attempts.iter().enumerate() {
        let continued = if attempt.is_continuation { index.checked_sub(1) } else { None };
        let before = continued.and_then(|before| trace.attempts.get(before));
        scope.message(SPANS, |span| encode_attempt(span, attempt, before, request, trace, conventions));
    }
    1 + trace.attempts.len()
}

fn encode_server(span: &mut ProtobufWriter<'_>, request: &RequestFacts<'_>, trace: &TraceFacts<'_>) {
    span.bytes(1, trace.trace.as_bytes());
    span.bytes(2, trace.span.as_bytes());
    if let Some(state) = trace.state {
        span.bytes(3, state.as_bytes());
    }
    if let Some(parent) = trace.parent {
        span.bytes(4, parent.as_bytes());
    }
    let method = known_method(request.method);
    match request.route {
        "" => span.bytes(5, if method == "_OTHER" { b"HTTP" } else { method.as_bytes() }),
        route => span.text_of(5, &[if method == "_OTHER" { "HTTP" } else { method }, " ", route]),
    }
    span.varint(6, SERVER);
    span.fixed64(7, request.start);
    span.fixed64(8, request.start.saturating_add(request.nanos));
    request_attributes(&mut Attributes::new(span, 9), request);
    span_events(span, trace);
    if trace.dropped_events > 0 {
        span.varint(12, trace.dropped_events);
    }
    // By HTTP's conventions a client's fault is no error of the server's span. A stream that broke has the status 200.
    let broken = request.error.is_some() && request.status < 400;
    if request.status >= 500 || (broken && !request.is_client_fault) {
        encode_status(span, request.error.unwrap_or_default());
    }
    let remote = if trace.parent.is_some() { IS_REMOTE } else { 0 };
    span.fixed32(16, SAMPLED | HAS_REMOTE | remote);
}

fn span_events(span: &mut ProtobufWriter<'_>, trace: &TraceFacts<'_>) {
    for event in trace.events {
        span.message(11, |message| {
            message.fixed64(1, event.at);
            message.bytes(2, event.kind.name().as_bytes());
            let mut attributes = Attributes::new(message, 3);
            match event.kind {
                EventKind::Retry(reason) | EventKind::BreakerOpened(reason) => {
                    attributes.text("gateway.reason", reason);
                }
                EventKind::Continued(outcome) => attributes.text("gateway.outcome", outcome),
                EventKind::LimitRefused { scope, limit } => {
                    attributes.text("gateway.scope", scope);
                    attributes.text("gateway.limit", limit);
                }
                EventKind::HoldReleased | EventKind::SlowStart => {}
            }
            if let Some(attempt) = event.attempt {
                attributes.integer("gateway.attempt", attempt);
            }
        });
    }
}

fn encode_status(span: &mut ProtobufWriter<'_>, message: &str) {
    span.message(15, |status| {
        if !message.is_empty() {
            status.bytes(2, message.as_bytes());
        }
        status.varint(3, STATUS_ERROR);
    });
}

/// Writes the attributes of a request, for its span and for its log record.
pub(super) fn request_attributes(to: &mut Attributes<'_, '_>, request: &RequestFacts<'_>) {
    let method = known_method(request.method);
    to.text("http.request.method", method);
    if method == "_OTHER" {
        to.text("http.request.method_original", request.method);
    }
    to.text("http.route", request.route);
    to.text("url.path", request.path);
    to.text("url.scheme", request.scheme);
    to.text("network.protocol.version", request.http);
    to.integer("http.response.status_code", request.status.into());
    to.optional_text("error.type", request.error);
    to.integer("http.request.body.size", request.request_bytes);
    to.integer("http.response.body.size", request.response_bytes);
    to.text("gateway.request_id", request.id);
    to.text("gateway.endpoint", request.endpoint);
    to.text("gateway.format.in", request.client_format);
    to.text("gateway.format.out", request.provider_format);
    to.optional_text("gateway.model", request.model);
    to.optional_text("gateway.provider", request.provider);
    to.optional_text("gateway.target", request.target);
    to.integer("gateway.attempts", request.attempts);
    to.boolean("gateway.stream", request.is_stream);
    if request.is_websocket {
        to.boolean("gateway.websocket", true);
    }
    to.optional_integer("gateway.cost_nano", request.cost);
    to.optional_seconds("gateway.time_to_first_content", request.first_content);
    if let Some(names) = &request.names {
        to.optional_text("gateway.key", names.key);
        to.optional_text("gateway.account", names.account);
        to.optional_text("client.address", names.client);
    }
}

fn encode_attempt(
    span: &mut ProtobufWriter<'_>,
    attempt: &AttemptFacts<'_>,
    before: Option<&AttemptFacts<'_>>,
    request: &RequestFacts<'_>,
    trace: &TraceFacts<'_>,
    conventions: Conventions,
) {
    span.bytes(1, trace.trace.as_bytes());
    span.bytes(2, attempt.span.as_bytes());
    if let Some(state) = trace.state {
        span.bytes(3, state.as_bytes());
    }
    span.bytes(4, trace.span.as_bytes());
    let operation = operation_name(attempt.api);
    span.text_of(5, &[operation, " ", attempt.model]);
    span.varint(6, CLIENT);
    span.fixed64(7, attempt.start);
    span.fixed64(8, attempt.end);
    let mut to = Attributes::new(span, 9);
    to.text("gen_ai.operation.name", operation);
    to.text("gen_ai.provider.name", attempt.provider_kind);
    to.text("gen_ai.request.model", attempt.model);
    to.optional_text("gen_ai.response.model", attempt.response_model);
    to.optional_text("gen_ai.conversation.id", request.names.and_then(|names| names.conversation));
    to.text("server.address", attempt.address);
    to.integer("server.port", attempt.port.into());
    to.optional_integer("http.response.status_code", attempt.status.map(u64::from));
    to.optional_text("error.type", attempt.error);
    to.integer("gateway.attempt", attempt.number);
    to.text("gateway.provider", attempt.provider);
    to.text("gateway.api", attempt.api);
    to.optional_text("gateway.upstream_id", attempt.upstream_id);
    to.optional_seconds("gateway.time_to_response_head", attempt.head);
    if let Some(reused) = attempt.is_reused {
        to.boolean("gateway.connection_reused", reused);
    }
    if matches!(attempt.api, "images" | "image_edits") {
        to.text("gen_ai.output.type", "image");
    }
    if conventions.has_stream_attributes() && request.is_stream {
        to.boolean("gen_ai.request.stream", true);
        to.optional_seconds("gen_ai.response.time_to_first_chunk", attempt.first_content);
    }
    // Usage and finish reason are those of the whole response: they belong to the attempt that ended it.
    if attempt.is_last {
        response_attributes(&mut to, attempt, request, conventions);
    }
    if let Some(before) = before {
        span.message(13, |link| {
            link.bytes(1, trace.trace.as_bytes());
            link.bytes(2, before.span.as_bytes());
        });
    }
    if let Some(error) = attempt.error {
        encode_status(span, error);
    }
    span.fixed32(16, SAMPLED | HAS_REMOTE);
}

fn response_attributes(
    to: &mut Attributes<'_, '_>,
    attempt: &AttemptFacts<'_>,
    request: &RequestFacts<'_>,
    conventions: Conventions,
) {
    to.optional_text("gen_ai.response.id", request.response_id);
    match (attempt.error, request.finish) {
        // A stream that was cut has no reason of its own; it must not read as complete.
        (Some(_), _) => to.text_list("gen_ai.response.finish_reasons", "error"),
        (None, Some(finish)) if !finish.is_empty() => to.text_list("gen_ai.response.finish_reasons", finish),
        _ => {}
    }
    let usage = &request.usage;
    to.optional_integer("gen_ai.usage.input_tokens", usage.input);
    to.optional_integer("gen_ai.usage.output_tokens", usage.output);
    to.optional_integer("gen_ai.usage.cache_read.input_tokens", usage.cached);
    to.optional_integer(conventions.cache_write_tokens(), usage.cache_writes());
    if conventions.has_stream_attributes() {
        to.optional_integer("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    }
}

/// Returns the method if it is one of HTTP's own, and `_OTHER` for what a client has made up.
pub(super) fn known_method(method: &str) -> &str {
    match method {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => method,
        _ => "_OTHER",
    }
}
