//! Request context: the state of one request, from its head to its access log line.
//!
//! Here lives what is known in every phase, and the record for log and metrics. What is known in one phase lives in
//! `phase`, what happens in it in its own module.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::active_snapshot::ActiveSnapshot;
use super::attempt::Attempt;
use super::billing::{ChargedUsage, RequestCharges};
use super::cors::CorsDecision;
use super::phase::{Phase, UpstreamResponse};
use super::request_id::RequestId;
use super::response_in_progress::ResponseInProgress;
use super::trace::RequestTrace;
use crate::websocket::origin::RequestOrigin;
use codec::canonical::Usage;
use codec::error::ErrorKind;
use codec::provider::guardrail::Guardrail;
use codec::translate::CountedRequest;
use codec::wire::Format;
use codec::wire::codec::RequestClock;
use codec::wire::path::Endpoint;
use driver::hooks::Upgrade;
use driver::shutdown::InFlightRequest;
use routing::account::Key;
use routing::route::Target;
use routing::route::cache_misses::CacheMiss;

/// Request context: what is known in every phase, and the phase with the rest. Large parts are boxed or dropped early,
/// because a stream keeps its context for minutes.
pub struct Context {
    pub(crate) active: Arc<ActiveSnapshot>,
    pub(crate) id: RequestId,
    /// Seed of generated ids; empty until one is generated.
    seed: OnceLock<RequestId>,
    pub(crate) format: Format,
    pub(crate) phase: Phase,
    pub(crate) record: RequestRecord,
    /// Where the request comes from.
    pub(crate) origin: RequestOrigin,
    /// Trace; `None` unless traces are exported.
    pub(crate) trace: Option<Box<RequestTrace>>,
    /// Address of the client, as far as the proxies before the gateway are trusted. `None` if it is unknown.
    pub(crate) address: Option<IpAddr>,
    /// Whether the web page that sent the request may read the response. `None` without rules for pages.
    pub(crate) cors: Option<CorsDecision>,
    /// Guardrail that the client requests. `None` for nearly all requests.
    pub(crate) guardrail: Option<Box<Guardrail>>,
    /// Upgrade of the connection that the request was accepted for.
    pub(crate) upgrade: Option<Upgrade>,
    _in_flight: InFlightRequest,
}

/// Request record for the access log and the metrics.
pub(crate) struct RequestRecord {
    pub(crate) started: Instant,
    pub(crate) unix_millis: u64,
    /// Status sent to the client; 0 before a head was sent.
    pub(crate) status: u16,
    /// The head was sent early, and nothing but filler has followed: no byte of a response.
    pub(crate) early_head_only: bool,
    pub(crate) error: Option<ErrorKind>,
    /// Error detail for the access log, not shown to the client.
    pub(crate) detail: Option<Box<str>>,
    pub(crate) model: Option<Box<str>>,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) attempts: u32,
    pub(crate) upstream_status: Option<u16>,
    pub(crate) upstream_id: Option<Box<str>>,
    /// Time at which the request body was complete and routing began.
    pub(crate) body_received_at: Option<Instant>,
    /// Whether the whole request was written to the provider.
    pub(crate) request_sent: bool,
    /// Number of targets tried; 0 if only one can serve the request.
    pub(crate) targets: u8,
    /// Targets whose failure was hidden by a fallback, with the reasons.
    pub(crate) tried: Option<Box<str>>,
    /// Start of the first upstream attempt.
    pub(crate) first_attempt_at: Option<Instant>,
    /// Start of the last upstream attempt.
    pub(crate) last_attempt_at: Option<Instant>,
    /// Start of the latest attempt whose duration is counted.
    pub(crate) counted_attempt_at: Option<Instant>,
    /// Arrival of its response head.
    pub(crate) head_received_at: Option<Instant>,
    /// Time at which the first content was forwarded.
    pub(crate) first_content: Option<Instant>,
    pub(crate) stream: bool,
    /// Why the provider's prompt cache was missed; known at the end.
    pub(crate) cache_miss: Option<CacheMiss>,
}

impl RequestRecord {
    /// Returns the arrival time of the request in Unix seconds.
    pub(crate) fn unix_seconds(&self) -> i64 {
        i64::try_from(self.unix_millis / 1000).unwrap_or(i64::MAX)
    }

    /// Returns a clock of the time since the request arrived.
    pub(crate) fn clock(&self) -> RequestClock {
        // The request may be older than the first use of the clock: the subtractions wrap.
        RequestClock {
            now: monotonic_millis,
            started: monotonic_millis().wrapping_sub(millis(self.started.elapsed())),
        }
    }
}

/// Returns the time in milliseconds since the first call.
fn monotonic_millis() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    millis(FIRST.elapsed())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Context {
    /// Returns the format of the request's errors, which is that of its responses at nearly all endpoints.
    pub(crate) fn error_format(&self) -> Format {
        self.endpoint().and_then(Endpoint::error_format).unwrap_or(self.format)
    }

    /// Returns whether the client uses InvokeModel: its streams are event streams with events of the messages format.
    pub(crate) fn is_invoke(&self) -> bool {
        matches!(self.endpoint(), Some(Endpoint::Invoke { .. }))
    }

    pub(crate) fn new(live: Arc<ActiveSnapshot>, in_flight: InFlightRequest) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Context {
            active: live,
            id: RequestId::default(),
            seed: OnceLock::new(),
            format: Format::Chat,
            phase: Phase::Head,
            origin: RequestOrigin::default(),
            trace: None,
            address: None,
            cors: None,
            guardrail: None,
            upgrade: None,
            record: RequestRecord {
                started: Instant::now(),
                unix_millis: u64::try_from(now.as_millis()).unwrap_or(0),
                status: 0,
                early_head_only: false,
                error: None,
                detail: None,
                model: None,
                request_bytes: 0,
                response_bytes: 0,
                attempts: 0,
                upstream_status: None,
                upstream_id: None,
                body_received_at: None,
                request_sent: false,
                targets: 0,
                tried: None,
                first_attempt_at: None,
                last_attempt_at: None,
                counted_attempt_at: None,
                head_received_at: None,
                first_content: None,
                stream: false,
                cache_miss: None,
            },
            _in_flight: in_flight,
        }
    }

    /// Returns the arrival time of the request in Unix seconds.
    pub(crate) fn now(&self) -> i64 {
        self.record.unix_seconds()
    }

    /// Returns the seed of ids in the response, for providers that send none: random, and the same for all attempts.
    /// The request id is unsuitable: a client may send the same one for all requests of a session.
    pub(crate) fn seed(&self) -> &str {
        self.seed.get_or_init(RequestId::random).as_str()
    }

    /// Records the start of an upstream attempt.
    pub(crate) fn start_attempt(&mut self) {
        let now = Instant::now();
        self.record.first_attempt_at.get_or_insert(now);
        self.record.last_attempt_at = Some(now);
        self.trace_attempt(now);
    }

    /// Records a successful response of the target, whose first content was forwarded at `at`. After a resumption the
    /// time of the first content stays that of the first target.
    pub(crate) fn record_success(&mut self, at: Instant) {
        self.record.first_content = self.continued_content().or(Some(at));
        let now = self.active.billing.nanos(at);
        if let Some(permit) = self.attempt_mut().and_then(|attempt| attempt.permit.as_mut()) {
            permit.on_response(now);
        }
    }

    /// Returns when the client received the first content of a stream that the response continues. `None` if it
    /// continues none, or one without content.
    pub(crate) fn continued_content(&self) -> Option<Instant> {
        self.response_in_progress().and_then(|passing| passing.continued_content)
    }

    /// Frees the upstream request body, which is not sent again. The part that is needed to count tokens stays, in case
    /// the provider reports no usage.
    pub(crate) fn drop_body(&mut self) {
        let Some(routed) = self.phase.routed_mut() else { return };
        if routed.attempt.body.is_empty() {
            return;
        }
        let asked = CountedRequest::of(std::mem::take(&mut routed.attempt.body));
        routed.attempt.refit = None;
        if routed.retry_state.is_none() {
            routed.memory_permit = None;
        }
        if let Some(passing) = self.response_in_progress_mut() {
            passing.exchange.set_request(asked);
        } else if let Some(charges) = self.charges_mut() {
            charges.counted_request = asked;
        }
    }

    /// Frees the retry state, unless another target may have to resume the stream.
    pub(crate) fn release_retry_state(&mut self) {
        if self.can_resume() {
            return;
        }
        let Some(routed) = self.phase.routed_mut() else { return };
        routed.retry_state = None;
        if routed.attempt.body.is_empty() {
            routed.memory_permit = None;
        }
    }

    /// Returns the endpoint; `None` if the path is not examined yet, or is unknown.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        self.phase.endpoint()
    }

    /// Returns the key; `None` before it is found.
    pub(crate) fn key(&self) -> Option<&Arc<Key>> {
        self.phase.identity().map(|identity| &identity.key)
    }

    /// Requires a usage record for the request from now on, whatever its outcome.
    pub(crate) fn open_charges(&mut self) {
        if let Some(identity) = self.phase.identity_mut() {
            identity.accounting.open();
        }
    }

    /// Returns the expected input tokens; 0 before admission.
    pub(crate) fn expected_input(&self) -> u64 {
        self.phase.identity().map_or(0, |identity| identity.expected_input)
    }

    /// Returns the number of choices that the client has requested. `None` if the body was not examined.
    pub(crate) fn requested_choices(&self) -> Option<u64> {
        let charges = self.phase.identity().and_then(|identity| identity.accounting.charges())?;
        charges.output_limit.map(|(_, answers)| answers)
    }

    /// Returns the charges; `None` for a request that is free or settled.
    pub(crate) fn charges_mut(&mut self) -> Option<&mut RequestCharges> {
        self.phase.identity_mut().and_then(|identity| identity.accounting.charges_mut())
    }

    /// Returns the charge; `None` before the request is settled.
    pub(crate) fn charged(&self) -> Option<&ChargedUsage> {
        self.phase.identity().and_then(|identity| identity.accounting.charged())
    }

    /// Returns the upstream attempt; `None` before a target is selected.
    pub(crate) fn attempt(&self) -> Option<&Attempt> {
        self.phase.routed().map(|routed| &*routed.attempt)
    }

    /// Returns the same as [`Self::attempt`], mutably.
    pub(crate) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        self.phase.routed_mut().map(|routed| &mut *routed.attempt)
    }

    /// Returns the target of the attempt; `None` before one is selected.
    pub(crate) fn target(&self) -> Option<&Target> {
        self.attempt().and_then(Attempt::target)
    }

    /// Returns the response in progress; `None` for an error, a synthesized response, or before the response head.
    pub(crate) fn response_in_progress(&self) -> Option<&ResponseInProgress> {
        match self.phase.response() {
            Some(UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _)) => Some(passing),
            _ => None,
        }
    }

    /// Returns the same as [`Self::response_in_progress`], mutably.
    pub(crate) fn response_in_progress_mut(&mut self) -> Option<&mut ResponseInProgress> {
        match self.phase.response_mut() {
            Some(UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _)) => Some(passing),
            _ => None,
        }
    }

    /// Returns the usage as far as it is known.
    pub(crate) fn usage(&self) -> Usage {
        self.response_in_progress().map_or(Usage::default(), |passing| passing.exchange.usage())
    }
}
