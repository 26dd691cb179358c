//! Request context: the state of one request, from its head to its access log line.
//!
//! Here live the types that several phases share: the attempt, the response in progress, the record for log and
//! metrics, and the request id. What the phases do with them lives in their own modules.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use rand::Rng as _;
use smallvec::SmallVec;

use super::active_snapshot::ActiveSnapshot;
use super::billing::RequestCharges;
use super::claims::Claims;
use super::prompt_cache::CacheAction;
use super::retry_state::RetryState;
use super::suspended::SuspendedResponse;
use crate::account::Key;
use crate::canonical::{Product, Usage};
use crate::error::{ErrorKind, RetryAfter};
use crate::job::Job;
use crate::proxy::body_memory::MemoryPermit;
use crate::proxy::driver::encoding::ContentDecoder;
use crate::proxy::driver::shutdown::InFlightRequests;
use crate::proxy::upstream_route::UpstreamRoute;
use crate::route::target_handle::TargetPermit;
use crate::route::{Model, Target};
use crate::translate::{CountedRequest, Exchange, Restore, verbatim::Changes};
use crate::wire::codec::ReplyOptions;
use crate::wire::images::reply::ImageReplyShape;
use crate::wire::path::{Action, Endpoint};
use crate::wire::spelling::Betas;
use crate::wire::{Api, Format};

/// Longest client request id that is adopted, in bytes.
const MAX_CLIENT_ID: usize = 128;

/// Request context. Large parts are boxed or dropped early, because a stream keeps its context for minutes.
pub struct Context {
    pub(in crate::proxy) active: Arc<ActiveSnapshot>,
    pub(in crate::proxy) id: RequestId,
    /// Seed of generated ids; empty until one is generated.
    seed: OnceLock<RequestId>,
    pub(in crate::proxy) format: Format,
    pub(in crate::proxy) endpoint: Option<Endpoint>,
    pub(in crate::proxy) key: Option<Arc<Key>>,
    pub(in crate::proxy) attempt: Option<Box<Attempt>>,
    /// Memory permit of the request body.
    pub(in crate::proxy) memory_permit: Option<MemoryPermit>,
    /// Retry state, as long as another target may be tried.
    pub(in crate::proxy) retry_state: Option<Box<RetryState>>,
    pub(in crate::proxy) response: UpstreamResponse,
    /// Content decoder of the response, until its body is read.
    pub(in crate::proxy) decoder: Option<Box<ContentDecoder>>,
    /// State of a stream that has broken off, for another target to resume.
    pub(in crate::proxy) resume: Option<Box<SuspendedResponse>>,
    /// Response headers (and keep-alive filler) were sent early; no frame of the upstream response has been forwarded,
    /// so fallback is still possible.
    pub(in crate::proxy) early_head_sent: bool,
    /// Response shape for image endpoints; `None` on other endpoints.
    pub(in crate::proxy) image_shape: Option<ImageReplyShape>,
    pub(in crate::proxy) record: RequestRecord,
    /// Limit grants and reservation, until they are settled.
    pub(in crate::proxy) charges: RequestCharges,
    /// Ownership that is recorded when the response has arrived.
    pub(in crate::proxy) claims: Option<Box<Claims>>,
    _in_flight: InFlightRequests,
}

/// Upstream attempt: the target, edits and limits that were chosen for one try of a request.
pub(in crate::proxy) struct Attempt {
    pub(in crate::proxy) model: Arc<Model>,
    pub(in crate::proxy) target: usize,
    pub(in crate::proxy) api: Api,
    pub(in crate::proxy) action: Option<Action>,
    /// Whether the client requested a stream.
    pub(in crate::proxy) stream: bool,
    /// Upstream request body, in pieces. It stays until the provider has answered, so that it can be resent.
    pub(in crate::proxy) body: SmallVec<[Bytes; 2]>,
    pub(in crate::proxy) body_len: usize,
    /// Number of pieces that the driver has taken.
    pub(in crate::proxy) pieces_sent: usize,
    pub(in crate::proxy) changes: Changes,
    /// Translation state; `None` if the provider speaks the client's format.
    pub(in crate::proxy) translation: Option<Box<Translation>>,
    /// What automatic prompt caching added to the body.
    pub(in crate::proxy) caching: CacheAction,
    /// Value of the `x-gateway-warning` header: elements that were not carried out as requested.
    pub(in crate::proxy) warning: Option<HeaderValue>,
    /// Beta features whose opt-in header the provider requires.
    pub(in crate::proxy) betas: Betas,
    pub(in crate::proxy) upstream_route: Arc<UpstreamRoute>,
    /// Concurrency permit at the target, until the outcome of the attempt is known.
    pub(in crate::proxy) permit: Option<TargetPermit>,
    /// Job that makes the response out of several provider calls.
    pub(in crate::proxy) job: Option<Box<dyn Job>>,
}

impl Attempt {
    pub(in crate::proxy) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }
}

/// Translation state of a response.
pub(in crate::proxy) struct Translation {
    pub(in crate::proxy) client: Format,
    pub(in crate::proxy) provider: Format,
    pub(in crate::proxy) reply: Arc<ReplyOptions>,
    pub(in crate::proxy) restore: Restore,
    /// Whether the client's stream is one JSON array instead of server-sent events.
    pub(in crate::proxy) array: bool,
    /// State for storing the response; `None` if it is not stored.
    pub(in crate::proxy) storage: Option<Box<ResponseStorage>>,
}

/// Storage data of a response in progress.
pub(in crate::proxy) struct ResponseStorage {
    /// Id of the response.
    pub(in crate::proxy) id: String,
    /// Conversation up to the response, as JSON items.
    pub(in crate::proxy) items: Bytes,
}

/// Upstream response, by how far it has come.
pub(in crate::proxy) enum UpstreamResponse {
    /// The response head has not arrived.
    Pending,
    /// A stream, forwarded frame by frame.
    Stream(Box<ResponseInProgress>),
    /// A document, collected before it is forwarded.
    Whole(Box<ResponseInProgress>, BytesMut),
    /// A response that the gateway made itself.
    Synthesized(SynthesizedResponse),
    /// An error response; its body is collected before it is converted.
    Refused { status: u16, retry_after: Option<RetryAfter>, body: BytesMut },
    /// The response has been taken out and is over.
    Done,
}

/// Response that the gateway made itself, as far as accounting and logging need it.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct SynthesizedResponse {
    pub(in crate::proxy) usage: Usage,
    /// Products that are charged besides tokens.
    pub(in crate::proxy) products: Vec<Product>,
    /// Whether the gateway counted some of the usage itself.
    pub(in crate::proxy) counted: bool,
}

/// Response in progress: the exchange that reads or translates it, and the memory that it holds.
pub(in crate::proxy) struct ResponseInProgress {
    pub(in crate::proxy) exchange: Exchange,
    /// Held bytes of the provider's response: all of a document; of a stream those received since its last output.
    pub(in crate::proxy) buffered_bytes: usize,
    /// Memory permit of these bytes.
    pub(in crate::proxy) memory_permit: Option<MemoryPermit>,
}

impl ResponseInProgress {
    pub(in crate::proxy) fn new(exchange: Exchange) -> Self {
        ResponseInProgress { exchange, buffered_bytes: 0, memory_permit: None }
    }
}

/// Request record for the access log and the metrics.
pub(in crate::proxy) struct RequestRecord {
    pub(in crate::proxy) started: Instant,
    pub(in crate::proxy) unix_millis: u64,
    /// Status sent to the client; 0 before a head was sent.
    pub(in crate::proxy) status: u16,
    pub(in crate::proxy) error: Option<ErrorKind>,
    /// Error detail for the access log, not shown to the client.
    pub(in crate::proxy) detail: Option<Box<str>>,
    pub(in crate::proxy) model: Option<Box<str>>,
    pub(in crate::proxy) request_bytes: u64,
    pub(in crate::proxy) response_bytes: u64,
    pub(in crate::proxy) attempts: u32,
    pub(in crate::proxy) upstream_status: Option<u16>,
    pub(in crate::proxy) upstream_id: Option<Box<str>>,
    /// Time at which the request body was complete and routing began.
    pub(in crate::proxy) body_received_at: Option<Instant>,
    /// Whether the whole request was written to the provider.
    pub(in crate::proxy) request_sent: bool,
    /// Number of targets tried; 0 if only one can serve the request.
    pub(in crate::proxy) targets: u8,
    /// Targets whose failure was hidden by a fallback, with the reasons.
    pub(in crate::proxy) tried: Option<Box<str>>,
    /// Start of the first upstream attempt.
    pub(in crate::proxy) first_attempt_at: Option<Instant>,
    /// Start of the last upstream attempt.
    pub(in crate::proxy) last_attempt_at: Option<Instant>,
    /// Arrival of its response head.
    pub(in crate::proxy) head_received_at: Option<Instant>,
    /// Time at which the first content was forwarded.
    pub(in crate::proxy) first_content: Option<Instant>,
    pub(in crate::proxy) stream: bool,
}

impl Context {
    pub(in crate::proxy) fn new(live: Arc<ActiveSnapshot>, in_flight: InFlightRequests) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Context {
            active: live,
            id: RequestId::default(),
            seed: OnceLock::new(),
            format: Format::Chat,
            endpoint: None,
            key: None,
            attempt: None,
            memory_permit: None,
            retry_state: None,
            response: UpstreamResponse::Pending,
            decoder: None,
            resume: None,
            early_head_sent: false,
            image_shape: None,
            record: RequestRecord {
                started: Instant::now(),
                unix_millis: u64::try_from(now.as_millis()).unwrap_or(0),
                status: 0,
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
                head_received_at: None,
                first_content: None,
                stream: false,
            },
            charges: RequestCharges::default(),
            claims: None,
            _in_flight: in_flight,
        }
    }

    /// Returns the arrival time of the request in Unix seconds.
    pub(in crate::proxy) fn now(&self) -> i64 {
        i64::try_from(self.record.unix_millis / 1000).unwrap_or(i64::MAX)
    }

    /// Returns the seed of ids in the response, for providers that send none: random, and the same for all attempts.
    /// The request id is unsuitable: a client may send the same one for all requests of a session.
    pub(in crate::proxy) fn seed(&self) -> &str {
        self.seed.get_or_init(RequestId::random).as_str()
    }

    /// Records the start of an upstream attempt.
    pub(in crate::proxy) fn start_attempt(&mut self) {
        let now = Instant::now();
        self.record.first_attempt_at.get_or_insert(now);
        self.record.last_attempt_at = Some(now);
    }

    /// Records a successful response of the target, whose first content was forwarded at `at`. After a resumption the
    /// time of the first content stays that of the first target.
    pub(in crate::proxy) fn record_success(&mut self, at: Instant) {
        let before = self.resume.as_ref().and_then(|resume| resume.first_content);
        self.record.first_content = before.or(Some(at));
        let now = self.active.billing.nanos(at);
        if let Some(permit) = self.attempt.as_mut().and_then(|plan| plan.permit.as_mut()) {
            permit.on_response(now);
        }
    }

    /// Frees the upstream request body, which is not sent again. The part that is needed to count tokens stays, in case
    /// the provider reports no usage.
    pub(in crate::proxy) fn drop_body(&mut self) {
        let Some(plan) = &mut self.attempt else { return };
        if plan.body.is_empty() {
            return;
        }
        let asked = CountedRequest::of(std::mem::take(&mut plan.body));
        match &mut self.response {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => {
                passing.exchange.set_request(asked)
            }
            _ => self.charges.counted_request = asked,
        }
        if self.retry_state.is_none() {
            self.memory_permit = None;
        }
    }

    /// Frees the retry state, unless another target may have to resume the stream.
    pub(in crate::proxy) fn release_retry_state(&mut self) {
        if self.can_resume() {
            return;
        }
        self.retry_state = None;
        if self.attempt.as_ref().is_none_or(|plan| plan.body.is_empty()) {
            self.memory_permit = None;
        }
    }

    /// Returns the next piece of the upstream body, `None` at its end; with `all`, the rest as one piece, which may be
    /// empty.
    pub(in crate::proxy) fn next_upstream_body(&mut self, all: bool) -> Option<Bytes> {
        let plan = self.attempt.as_mut()?;
        let rest = plan.body.get(plan.pieces_sent..).unwrap_or_default();
        let (piece, sent) = match rest {
            [] => (all.then(Bytes::new), 0),
            [piece, ..] if !all || rest.len() == 1 => (Some(piece.clone()), 1),
            several => (Some(Bytes::from(several.concat())), several.len()),
        };
        plan.pieces_sent += sent;
        piece
    }

    /// Returns the response in progress; `None` for an error, a synthesized response, or before the response head.
    pub(in crate::proxy) fn response_in_progress(&self) -> Option<&ResponseInProgress> {
        match &self.response {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => Some(passing),
            _ => None,
        }
    }

    /// Returns the usage as far as it is known.
    pub(in crate::proxy) fn usage(&self) -> Usage {
        match &self.response {
            UpstreamResponse::Synthesized(made) => made.usage,
            _ => self.response_in_progress().map_or(Usage::default(), |passing| passing.exchange.usage()),
        }
    }

    /// Returns the response in progress, mutably; see `passing`.
    pub(in crate::proxy) fn response_in_progress_mut(&mut self) -> Option<&mut ResponseInProgress> {
        match &mut self.response {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => Some(passing),
            _ => None,
        }
    }
}

/// Request id: the client's own, or a random one.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct RequestId(SmallVec<[u8; 40]>);

impl RequestId {
    /// Adopts the client's `x-request-id` if it has 1 to 128 bytes, all of them letters, digits or `-_.:/+=`. Generates
    /// an id otherwise.
    pub(in crate::proxy) fn choose(client: Option<&[u8]>) -> Self {
        let harmless = |id: &&[u8]| {
            (1..=MAX_CLIENT_ID).contains(&id.len())
                && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
        };
        match client.filter(harmless) {
            Some(id) => RequestId(SmallVec::from_slice(id)),
            None => RequestId::random(),
        }
    }

    /// Generates `req_` and 24 base-32 digits, 120 random bits.
    fn random() -> Self {
        let mut id = SmallVec::from_slice(b"req_");
        let mut number = rand::rng().next_u64();
        let mut more = rand::rng().next_u64();
        for _ in 0..24 {
            let digit = u8::try_from(number & 31).unwrap_or(0);
            // Crockford's base 32 in lower case has no letter that is mistaken for a digit.
            id.push(b"0123456789abcdefghjkmnpqrstvwxyz".get(usize::from(digit)).copied().unwrap_or(b'0'));
            number = number >> 5 | more << 59;
            more >>= 5;
        }
        RequestId(id)
    }

    pub(in crate::proxy) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(in crate::proxy) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_of_the_client_is_used_if_harmless() {
        assert_eq!(RequestId::choose(Some(b"abc-1.2")).as_str(), "abc-1.2");
        for bad in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'x'; 129]] {
            let id = RequestId::choose(Some(bad));
            assert!(id.as_str().starts_with("req_") && id.as_str().len() == 28, "{}", id.as_str());
        }
        assert_ne!(RequestId::choose(None).as_str(), RequestId::choose(None).as_str());
    }
}
