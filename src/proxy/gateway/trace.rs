//! Trace of a request: its trace context, its attempts and events, as they happen. Exists only if traces are exported.
//!
//! Times and outcomes live here until the request ends; the spans are made from them then (`trace_export`).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use pingora::http::RequestHeader;

use super::attempt::Attempt;
use super::context::Context;
use codec::error::ErrorKind;
use codec::wire::Api;
use driver::names;
use observe::telemetry::facts::EventKind;
use observe::telemetry::trace_context::{SpanId, TraceId, TraceParent, trace_state};
use routing::account::Network;
use routing::route::Model;

/// Maximum number of attempts and of events that are recorded: retries are bounded by `retry.attempts`, resends and
/// continuations by it too, so that only a job of many calls has more events.
const MAX_ATTEMPTS: usize = 32;
const MAX_EVENTS: usize = 64;

/// Trace of a request.
pub(crate) struct RequestTrace {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) state: Option<Box<str>>,
    /// Decision of a trusted caller; `None` without one.
    pub(crate) caller: Option<bool>,
    /// Unix time of `RequestRecord::started`, in nanoseconds.
    pub(crate) unix_nanos: u64,
    pub(crate) attempts: Vec<AttemptTrace>,
    pub(crate) events: Vec<EventTrace>,
    pub(crate) dropped_events: u64,
    /// The next attempt continues the stream of the last one.
    continues: bool,
}

/// Attempt at a target.
pub(crate) struct AttemptTrace {
    pub(crate) span: SpanId,
    pub(crate) started: Instant,
    pub(crate) model: Arc<Model>,
    pub(crate) target: usize,
    pub(crate) api: Api,
    /// `None` if no connection was made.
    pub(crate) is_reused: Option<bool>,
    pub(crate) is_continuation: bool,
    /// `None` while it is in progress.
    pub(crate) end: Option<AttemptEnd>,
}

/// End of an attempt.
pub(crate) struct AttemptEnd {
    pub(crate) at: Instant,
    /// Error kind, or the reason of a resend; `None` if it succeeded.
    pub(crate) error: Option<&'static str>,
    pub(crate) status: Option<u16>,
    pub(crate) upstream_id: Option<Box<str>>,
    /// Model name in the response. `None` if there is none.
    pub(crate) response_model: Option<Box<str>>,
    pub(crate) head: Option<Instant>,
}

/// Event with its time, and the number of the attempt that it happened in.
pub(crate) struct EventTrace {
    pub(crate) at: Instant,
    pub(crate) kind: EventKind,
    pub(crate) attempt: usize,
}

impl RequestTrace {
    /// Begins the trace of a request, or continues that of its caller. The caller's decision about sampling counts if
    /// it comes from a network of `trust`.
    pub(crate) fn begin(head: &RequestHeader, client: Option<IpAddr>, trust: &[Network]) -> Box<Self> {
        let random = || rand::Rng::next_u64(&mut rand::rng());
        let mut lines = head.headers.get_all(names::TRACEPARENT).iter();
        // Several lines are no valid header.
        let parent = match (lines.next(), lines.next()) {
            (Some(line), None) => TraceParent::parse(line.as_bytes()),
            _ => None,
        };
        let state = parent.and_then(|_| {
            trace_state(head.headers.get_all(names::TRACESTATE).iter().map(HeaderValue::as_bytes))
        });
        let is_trusted = || client.is_some_and(|client| trust.iter().any(|network| network.contains(client)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Box::new(RequestTrace {
            trace: parent.map_or_else(|| TraceId::from_random(random(), random()), |parent| parent.trace),
            span: SpanId::from_random(random()),
            parent: parent.map(|parent| parent.span),
            state,
            caller: parent.filter(|_| is_trusted()).map(|parent| parent.sampled),
            unix_nanos: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            attempts: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            continues: false,
        })
    }

    /// Records an event.
    pub(crate) fn event(&mut self, kind: EventKind) {
        if self.events.len() >= MAX_EVENTS {
            self.dropped_events += 1;
            return;
        }
        self.continues |= kind == EventKind::Continued("asked");
        self.events.push(EventTrace { at: Instant::now(), kind, attempt: self.attempts.len() });
    }

    /// Returns whether the request was retried or continued.
    pub(crate) fn is_retried(&self) -> bool {
        let repeats =
            |event: &EventTrace| matches!(event.kind, EventKind::Retry(_) | EventKind::Continued(_));
        self.attempts.len() > 1 || self.events.iter().any(repeats)
    }

    fn start_attempt(&mut self, attempt: &Attempt, at: Instant) {
        if self.attempts.len() >= MAX_ATTEMPTS {
            return;
        }
        self.attempts.push(AttemptTrace {
            span: SpanId::from_random(rand::Rng::next_u64(&mut rand::rng())),
            started: at,
            model: attempt.model.clone(),
            target: attempt.target,
            api: attempt.upstream_route.api,
            is_reused: None,
            is_continuation: std::mem::take(&mut self.continues),
            end: None,
        });
    }

    /// Sets the trace context of the current attempt in the head of its request. `sampled` is what is known of the
    /// decision before the request ends.
    pub(crate) fn propagate(&self, head: &mut HeaderMap, sampled: bool) {
        let span = self.attempts.last().map_or(self.span, |attempt| attempt.span);
        let parent = TraceParent { trace: self.trace, span, sampled: self.caller.unwrap_or(sampled) };
        let (Ok(parent), state) = (HeaderValue::try_from(parent.to_string()), self.state.as_deref()) else {
            return;
        };
        head.insert(names::TRACEPARENT, parent);
        match state.and_then(|state| HeaderValue::from_str(state).ok()) {
            Some(state) => _ = head.insert(names::TRACESTATE, state),
            None => _ = head.remove(names::TRACESTATE),
        }
    }
}

impl Context {
    /// Records an event of a traced request.
    pub(crate) fn trace_event(&mut self, kind: EventKind) {
        if let Some(trace) = &mut self.trace {
            trace.event(kind);
        }
    }

    /// Records the start of an attempt of a traced request. One that is still in progress is repeated on another
    /// connection.
    pub(super) fn trace_attempt(&mut self, at: Instant) {
        if self.trace.is_none() {
            return;
        }
        self.end_traced_attempt(None, at);
        let attempt = self.phase.routed().map(|routed| &*routed.attempt);
        if let (Some(trace), Some(attempt)) = (&mut self.trace, attempt) {
            trace.start_attempt(attempt, at);
        }
    }

    /// Records how the connection of the current attempt was made.
    pub(super) fn trace_connection(&mut self, is_reused: bool) {
        if let Some(attempt) = self.trace.as_mut().and_then(|trace| trace.attempts.last_mut()) {
            attempt.is_reused = Some(is_reused);
        }
    }

    /// Records the failure of the current attempt of a traced request, before the record of its response is reset.
    pub(super) fn trace_failure(&mut self, kind: ErrorKind) {
        if self.trace.is_some() {
            self.end_traced_attempt(Some(kind.label()), Instant::now());
        }
    }

    /// Ends the attempt that is in progress, if there is one.
    pub(super) fn end_traced_attempt(&mut self, error: Option<&'static str>, at: Instant) {
        if self.trace.is_none() {
            return;
        }
        let response_model = self.response_model().map(Box::from);
        let record = &self.record;
        let attempt = self.trace.as_mut().and_then(|trace| trace.attempts.last_mut());
        if let Some(attempt) = attempt.filter(|attempt| attempt.end.is_none()) {
            let head = record.head_received_at.filter(|head| *head >= attempt.started);
            attempt.end = Some(AttemptEnd {
                at,
                error,
                status: record.upstream_status,
                upstream_id: record.upstream_id.clone(),
                head,
                // Without a head, the response in progress is not that of this attempt.
                response_model: response_model.filter(|_| head.is_some()),
            });
        }
    }

    /// Returns the model name in the response in progress. `None` if it has none, or the request is not traced.
    pub(super) fn response_model(&self) -> Option<&str> {
        self.response_in_progress().and_then(|passing| passing.exchange.meter().model())
    }
}
