//! Export of a request that has ended: its spans, if it is sampled, and its log record.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::context::Context;
use super::fallback::session_header;
use super::state::GatewayTelemetry;
use super::trace::{AttemptTrace, RequestTrace};
use crate::{Client, Gateway};
use codec::error::{ErrorKind, ErrorSource};
use codec::wire::path::Endpoint;
use codec::wire::video::VideoEndpoint;
use observe::metrics::access_log::Line;
use observe::telemetry::Telemetry;
use observe::telemetry::facts::{AttemptFacts, EventFacts, NameFacts, RequestFacts, TraceFacts};
use observe::telemetry::log_record::RecordTrace;
use observe::telemetry::sampling::RequestOutcome;

/// Maximum length of a conversation's name, in bytes: a longer one is no identifier.
const MAX_CONVERSATION: usize = 128;

/// What is exported of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExportDecision {
    /// Its spans.
    pub(super) traces: bool,
    /// Its log record.
    pub(super) logs: bool,
}

impl ExportDecision {
    pub(super) fn is_any(self) -> bool {
        self.traces || self.logs
    }
}

/// Returns what is exported of a request that has ended.
pub(super) fn decide(telemetry: Option<&GatewayTelemetry>, ctx: &Context, now: Instant) -> ExportDecision {
    let Some(telemetry) = telemetry else { return ExportDecision::default() };
    let telemetry = &telemetry.exporter;
    let traces = ctx.trace.as_ref().is_some_and(|trace| {
        telemetry.is_sampled(&RequestOutcome {
            trace: &trace.trace,
            is_error: ctx.record.error.is_some() || ctx.record.status >= 500,
            is_retried: trace.is_retried(),
            caller: trace.caller,
            // Not the name in the request: clients choose that.
            model: ctx.attempt().map(|attempt| &*attempt.model.id),
            duration: now.saturating_duration_since(ctx.record.started),
        })
    });
    ExportDecision { traces, logs: telemetry.has_logs() }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Gateway {
    /// Queues the spans and the log record of a request. `line` is its access log line.
    pub(super) fn export(
        &self,
        client: &Client,
        ctx: &Context,
        line: &Line<'_>,
        decision: ExportDecision,
        now: Instant,
    ) {
        let Some(telemetry) = &self.telemetry else { return };
        let address = line.client.map(|client| client.to_string());
        let names = telemetry.names.then_some(NameFacts {
            key: line.key,
            account: line.account,
            client: address.as_deref(),
            conversation: session_header(&client.req_header().headers)
                .and_then(|name| name.to_str().ok())
                .filter(|name| !name.is_empty() && name.len() <= MAX_CONVERSATION),
        });
        let is_encrypted = client.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        let facts = request_facts(ctx, line, is_encrypted, names, now);
        if let Some(trace) = ctx.trace.as_deref().filter(|_| decision.traces) {
            export_trace(&telemetry.exporter, ctx, trace, &facts, now);
        }
        if decision.logs {
            let trace = ctx.trace.as_ref().map(|trace| RecordTrace {
                trace: trace.trace,
                span: trace.span,
                is_sampled: decision.traces,
            });
            telemetry.exporter.push_log(&facts, trace);
        }
    }
}

fn request_facts<'a>(
    ctx: &'a Context,
    line: &Line<'a>,
    is_encrypted: bool,
    names: Option<NameFacts<'a>>,
    now: Instant,
) -> RequestFacts<'a> {
    let record = &ctx.record;
    let duration = now.saturating_duration_since(record.started);
    RequestFacts {
        start: start_of(ctx),
        nanos: nanos(duration),
        id: line.request_id,
        method: line.method,
        route: ctx.endpoint().map_or("", route),
        path: line.path,
        scheme: if is_encrypted { "https" } else { "http" },
        http: match line.http {
            20 => "2",
            10 => "1.0",
            _ => "1.1",
        },
        endpoint: line.endpoint,
        client_format: ctx.format.name(),
        provider_format: ctx.attempt().map_or("", |attempt| attempt.upstream_route.api.name()),
        status: line.status,
        error: line.error,
        is_client_fault: line.status == 499
            || record.error.is_some_and(|kind| kind.row().source == ErrorSource::Downstream),
        model: ctx.attempt().map(|attempt| &*attempt.model.id).or(line.model),
        provider: line.provider,
        target: line.upstream_model,
        response_id: ctx
            .response_in_progress()
            .map(|passing| passing.exchange.meter().id())
            .filter(|id| !id.is_empty()),
        finish: line.finish,
        is_stream: line.stream,
        is_websocket: line.websocket,
        attempts: line.attempts.into(),
        usage: line.usage,
        cost: line.cost.map(i64::unsigned_abs),
        request_bytes: line.request_bytes,
        response_bytes: line.response_bytes,
        first_content: record.first_content.map(|at| nanos(at.saturating_duration_since(record.started))),
        names,
    }
}

/// Returns the start of a request in Unix nanoseconds.
fn start_of(ctx: &Context) -> u64 {
    ctx.trace.as_ref().map_or(ctx.record.unix_millis.saturating_mul(1_000_000), |trace| trace.unix_nanos)
}

fn export_trace(
    telemetry: &Telemetry,
    ctx: &Context,
    trace: &RequestTrace,
    facts: &RequestFacts<'_>,
    now: Instant,
) {
    let unix = |at: Instant| {
        trace.unix_nanos.saturating_add(nanos(at.saturating_duration_since(ctx.record.started)))
    };
    let last = trace.attempts.len().saturating_sub(1);
    let attempts: SmallVec<[AttemptFacts<'_>; 2]> = trace
        .attempts
        .iter()
        .enumerate()
        .filter_map(|(index, attempt)| attempt_facts(ctx, attempt, index, index == last, now, &unix))
        .collect();
    let events: SmallVec<[EventFacts; 4]> = trace
        .events
        .iter()
        .map(|event| EventFacts {
            at: unix(event.at),
            kind: event.kind,
            attempt: Some(event.attempt as u64).filter(|number| *number > 0),
        })
        .collect();
    let trace = TraceFacts {
        trace: trace.trace,
        span: trace.span,
        parent: trace.parent,
        state: trace.state.as_deref(),
        attempts: &attempts,
        events: &events,
        dropped_events: trace.dropped_events,
    };
    telemetry.push_trace(facts, &trace);
}

/// Returns the facts of an attempt. `None` if its target is unknown, which its model rules out.
fn attempt_facts<'a>(
    ctx: &'a Context,
    attempt: &'a AttemptTrace,
    index: usize,
    is_last: bool,
    now: Instant,
    unix: &impl Fn(Instant) -> u64,
) -> Option<AttemptFacts<'a>> {
    let target = attempt.model.targets.get(attempt.target)?;
    let provider = &target.provider;
    let record = &ctx.record;
    let end = attempt.end.as_ref();
    let head = end.map_or(record.head_received_at, |end| end.head);
    let since = |at: Instant| nanos(at.saturating_duration_since(attempt.started));
    let first = record.first_content.filter(|at| is_last && *at >= attempt.started);
    Some(AttemptFacts {
        span: attempt.span,
        number: index as u64 + 1,
        start: unix(attempt.started),
        end: unix(end.map_or(now, |end| end.at)),
        provider: &provider.name,
        provider_kind: provider.otel_name(),
        model: &target.model,
        api: attempt.api.name(),
        address: provider.base.host(),
        port: provider.base.port(),
        status: end.map_or(record.upstream_status, |end| end.status),
        error: end.map_or_else(|| record.error.map(ErrorKind::label), |end| end.error),
        upstream_id: end.map_or(record.upstream_id.as_deref(), |end| end.upstream_id.as_deref()),
        response_model: match end {
            Some(end) => end.response_model.as_deref(),
            None => ctx.response_model().filter(|_| is_last),
        },
        head: head.map(since),
        first_content: first.map(since),
        is_reused: attempt.is_reused,
        is_continuation: attempt.is_continuation,
        is_last,
    })
}

/// Returns the path template of an endpoint (`http.route`): nothing that a client chooses.
fn route(endpoint: &Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Chat => "/v1/chat/completions",
        Endpoint::Messages => "/v1/messages",
        Endpoint::CountTokens => "/v1/messages/count_tokens",
        Endpoint::InputTokens => "/v1/responses/input_tokens",
        Endpoint::Responses => "/v1/responses",
        Endpoint::Compact => "/v1/responses/compact",
        Endpoint::Response { .. } => "/v1/responses/{id}",
        Endpoint::ResponseItems { .. } => "/v1/responses/{id}/input_items",
        Endpoint::Embeddings => "/v1/embeddings",
        Endpoint::Rerank => "/v1/rerank",
        Endpoint::Images => "/v1/images/generations",
        Endpoint::ImageEdits => "/v1/images/edits",
        Endpoint::Native { .. } => "/v1beta/models/{model}:{action}",
        Endpoint::Video(endpoint) => video_route(endpoint),
        Endpoint::Converse { .. } | Endpoint::Invoke { .. } => "/model/{model}/{action}",
        Endpoint::Group(_) => "/prod-api/svc/v4/api/{task}",
        Endpoint::Models => "/v1/models",
        Endpoint::Model { .. } => "/v1/models/{model}",
        Endpoint::Root => "/",
    }
}

fn video_route(endpoint: &VideoEndpoint) -> &'static str {
    match endpoint {
        VideoEndpoint::Submit => "/v1/video/generations",
        VideoEndpoint::Query(_) => "/v1/video/generations/{id}",
        VideoEndpoint::Download => "/v1/video/generations/download",
        VideoEndpoint::Create => "/v1/videos",
        VideoEndpoint::Remix(_) => "/v1/videos/{id}/remix",
        VideoEndpoint::Retrieve(_) => "/v1/videos/{id}",
        VideoEndpoint::Content(_) => "/v1/videos/{id}/content",
        VideoEndpoint::Predict { .. } => "/v1beta/models/{model}:predictLongRunning",
        VideoEndpoint::Operation(_) => "/v1beta/models/{model}/operations/{id}",
        VideoEndpoint::Fetch => "/v1beta1/models/{model}:fetchPredictOperation",
        VideoEndpoint::File(_) => "/v1beta/files/{id}:download",
    }
}

/// Writes the trace id of a request for its access log line.
pub(super) fn trace_id_text(trace: Option<&RequestTrace>) -> SmallVec<[u8; 32]> {
    let mut text = SmallVec::new();
    if let Some(trace) = trace {
        for byte in trace.trace.as_bytes() {
            for digit in [byte >> 4, byte & 15] {
                text.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::wire::path::parse;

    #[test]
    fn route_is_the_template_of_the_path_without_its_parameters() {
        for (path, template) in [
            ("/v1/videos", "/v1/videos"),
            ("/v1/videos/video-7", "/v1/videos/{id}"),
            ("/v1/videos/video-7/content", "/v1/videos/{id}/content"),
            ("/v1/videos/video-7/remix", "/v1/videos/{id}/remix"),
            ("/v1/video/generations", "/v1/video/generations"),
            ("/v1/video/generations/task-7", "/v1/video/generations/{id}"),
            ("/v1/video/generations/download", "/v1/video/generations/download"),
            ("/v1beta/models/veo-3:predictLongRunning", "/v1beta/models/{model}:predictLongRunning"),
            ("/v1beta/models/veo-3/operations/op-7", "/v1beta/models/{model}/operations/{id}"),
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/v1/responses/resp-7/input_items", "/v1/responses/{id}/input_items"),
        ] {
            let endpoint = parse(path, None).endpoint.unwrap();
            assert_eq!(route(&endpoint), template, "{path}");
        }
    }
}
