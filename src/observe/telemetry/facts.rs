//! What telemetry knows of a request: shape, timing, usage and price. Nothing that was said, and no secret.

use super::trace_context::{SpanId, TraceId};
use codec::canonical::Usage;

/// Facts of a request that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts<'a> {
    /// Arrival of the head, in Unix nanoseconds.
    pub start: u64,
    /// Duration in nanoseconds.
    pub nanos: u64,
    /// Request id of the gateway.
    pub id: &'a str,
    /// HTTP method.
    pub method: &'a str,
    /// Path template of the endpoint; empty for an unknown path.
    pub route: &'a str,
    /// Path without the query, with keys redacted.
    pub path: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Version of HTTP: `1.0`, `1.1` or `2`.
    pub http: &'a str,
    /// Endpoint name.
    pub endpoint: &'a str,
    /// Format of the client.
    pub client_format: &'a str,
    /// API of the provider; empty before a target was selected.
    pub provider_format: &'a str,
    /// HTTP status sent to the client.
    pub status: u16,
    /// Error kind; `None` without an error.
    pub error: Option<&'a str>,
    /// Whether the client is at fault for the error, or left.
    pub is_client_fault: bool,
    /// Model id of the configuration, or as requested.
    pub model: Option<&'a str>,
    /// Provider that responded, by its name in the configuration.
    pub provider: Option<&'a str>,
    /// Model name at the provider.
    pub target: Option<&'a str>,
    /// Response id of the provider.
    pub response_id: Option<&'a str>,
    /// Finish reason as the provider spelled it.
    pub finish: Option<&'a str>,
    /// Whether the response was a stream.
    pub is_stream: bool,
    /// Whether the request came over a WebSocket.
    pub is_websocket: bool,
    /// Upstream attempts.
    pub attempts: u64,
    /// Token usage.
    pub usage: Usage,
    /// Charge in nano-units; `None` if the request cannot be charged.
    pub cost: Option<u64>,
    /// Request body bytes.
    pub request_bytes: u64,
    /// Response body bytes.
    pub response_bytes: u64,
    /// Time to the first content, in nanoseconds.
    pub first_content: Option<u64>,
    /// Names of key and account, and the client's address; `None` unless the configuration permits them.
    pub names: Option<NameFacts<'a>>,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameFacts<'a> {
    /// Key name.
    pub key: Option<&'a str>,
    /// Account that is charged.
    pub account: Option<&'a str>,
    /// Client address.
    pub client: Option<&'a str>,
    /// Session or conversation, as a header of the client names it.
    pub conversation: Option<&'a str>,
}

/// Trace of a request.
#[derive(Clone, Copy, Debug)]
pub struct TraceFacts<'a> {
    /// Trace id.
    pub trace: TraceId,
    /// Id of the request's span.
    pub span: SpanId,
    /// Span of the caller; `None` if the trace begins here.
    pub parent: Option<SpanId>,
    /// Value of `tracestate`.
    pub state: Option<&'a str>,
    /// Attempts in their order.
    pub attempts: &'a [AttemptFacts<'a>],
    /// Events in their order.
    pub events: &'a [EventFacts],
    /// Number of events beyond the maximum.
    pub dropped_events: u64,
}

/// Attempt at a provider.
#[derive(Clone, Copy, Debug)]
pub struct AttemptFacts<'a> {
    /// Id of its span.
    pub span: SpanId,
    /// Number, from 1.
    pub number: u64,
    /// Start and end in Unix nanoseconds.
    pub start: u64,
    /// See [`Self::start`].
    pub end: u64,
    /// Provider by its name in the configuration.
    pub provider: &'a str,
    /// Value of `gen_ai.provider.name`.
    pub provider_kind: &'a str,
    /// Model name at the provider.
    pub model: &'a str,
    /// API of the request.
    pub api: &'static str,
    /// Host of the provider.
    pub address: &'a str,
    /// Port of the provider.
    pub port: u16,
    /// HTTP status; `None` without a response.
    pub status: Option<u16>,
    /// Error kind; `None` if the attempt succeeded.
    pub error: Option<&'a str>,
    /// Id of the request at the provider.
    pub upstream_id: Option<&'a str>,
    /// Model name in the response. `None` if it has none.
    pub response_model: Option<&'a str>,
    /// Time to the response head, in nanoseconds.
    pub head: Option<u64>,
    /// Time to the first content, in nanoseconds.
    pub first_content: Option<u64>,
    /// Whether the connection came from the pool; `None` if none was made.
    pub is_reused: Option<bool>,
    /// Whether it continues the stream of the attempt before.
    pub is_continuation: bool,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// Event of a request.
#[derive(Clone, Copy, Debug)]
pub struct EventFacts {
    /// Time in Unix nanoseconds.
    pub at: u64,
    /// What happened.
    pub kind: EventKind,
    /// Number of the attempt that it happened in; `None` before the first.
    pub attempt: Option<u64>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An attempt is repeated, at this target or another one, for this reason.
    Retry(&'static str),
    /// The first frames of a stream, which were held back for a fallback, are forwarded.
    HoldReleased,
    /// The client received an early response head.
    SlowStart,
    /// A stream broke off: whether another target continues it, or why not.
    Continued(&'static str),
    /// A breaker opened, for this reason.
    BreakerOpened(&'static str),
    /// A limit refused the request.
    LimitRefused {
        /// `key` or `account`.
        scope: &'static str,
        /// Name of the limit in the configuration.
        limit: &'static str,
    },
}

impl EventKind {
    /// Returns the name of the event.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Retry(_) => "gateway.retry",
            EventKind::HoldReleased => "gateway.hold.released",
            EventKind::SlowStart => "gateway.slow_start",
            EventKind::Continued(_) => "gateway.continued",
            EventKind::BreakerOpened(_) => "gateway.breaker.opened",
            EventKind::LimitRefused { .. } => "gateway.limit.refused",
        }
    }
}
