//! What is known of one request, from its head to its log line.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use rand::Rng as _;
use smallvec::SmallVec;

use super::active_snapshot::ActiveSnapshot;
use super::billing::RequestCharges;
use super::body_memory::MemoryPermit;
use super::encoding::Decoder;
use super::fallback::RetryState;
use super::response_owner::Claims;
use super::resume::Resume;
use super::shutdown::InFlightRequests;
use super::stored::ResponseKeeping;
use super::upstream_route::UpstreamRoute;
use crate::account::Key;
use crate::canonical::{Product, Usage};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::job::Job;
use crate::route::target_handle::TargetPermit;
use crate::route::{Model, Target};
use crate::translate::{CountedRequest, Exchange, Restore, verbatim::Changes};
use crate::wire::codec::ReplyOptions;
use crate::wire::images::reply::Shape;
use crate::wire::path::{Action, Endpoint};
use crate::wire::spelling::Betas;
use crate::wire::{Api, Format};

/// A client's own request id is taken over up to this length.
const MAX_CLIENT_ID: usize = 128;

/// One request. Everything large is boxed or leaves early: a stream keeps its context for minutes.
pub struct Context {
    pub(super) live: Arc<ActiveSnapshot>,
    pub(super) id: RequestId,
    /// What ids are made from; nothing while none were.
    seed: OnceLock<RequestId>,
    pub(super) format: Format,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) key: Option<Arc<Key>>,
    pub(super) plan: Option<Box<Attempt>>,
    /// What the request's body takes.
    pub(super) weight: Option<MemoryPermit>,
    /// What is needed to ask another target, as long as one could be.
    pub(super) origin: Option<Box<RetryState>>,
    pub(super) answer: UpstreamResponse,
    /// What decodes the answer, until its body is read.
    pub(super) decoder: Option<Box<Decoder>>,
    /// What is known of the answer, once it has broken off.
    pub(super) resume: Option<Box<Resume>>,
    /// The client has been given a head, and what means nothing, before its answer began: nothing of an answer yet.
    pub(super) kept: bool,
    /// The shape that the client wants images in.
    pub(super) images: Option<Shape>,
    /// What ended the request, when a filter could only say that something did.
    pub(super) failure: Option<Box<ApiError>>,
    pub(super) record: RequestRecord,
    /// What the request has taken and will be charged.
    pub(super) charges: RequestCharges,
    /// What the request will own when its answer has come.
    pub(super) claims: Option<Box<Claims>>,
    _in_flight: InFlightRequests,
}

/// Upstream attempt: the target, edits and limits that were chosen for one try of a request.
pub(super) struct Attempt {
    pub(super) model: Arc<Model>,
    pub(super) target: usize,
    pub(super) api: Api,
    pub(super) action: Option<Action>,
    /// The client asked for a stream.
    pub(super) stream: bool,
    /// What goes upstream, in pieces; kept until the provider has answered, so that it can be sent again.
    pub(super) body: SmallVec<[Bytes; 2]>,
    pub(super) body_len: usize,
    /// Pieces that have been handed out.
    pub(super) sent: usize,
    pub(super) changes: Changes,
    /// The provider speaks another format than the client.
    pub(super) translation: Option<Box<Translation>>,
    /// What was lost on the way, in the words of the `x-gateway-warning` header.
    pub(super) warning: Option<HeaderValue>,
    /// What the provider takes only from who says that it knows it.
    pub(super) betas: Betas,
    pub(super) lane: Arc<UpstreamRoute>,
    /// The request's place at the target, until it is known how it went.
    pub(super) permit: Option<TargetPermit>,
    /// The answer is made here, out of what the provider is asked.
    pub(super) job: Option<Box<dyn Job>>,
}

impl Attempt {
    pub(super) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }
}

/// What is needed to translate the answer.
pub(super) struct Translation {
    pub(super) client: Format,
    pub(super) provider: Format,
    pub(super) reply: Arc<ReplyOptions>,
    pub(super) restore: Restore,
    /// The client's stream is one JSON array.
    pub(super) array: bool,
    /// The answer is kept.
    pub(super) keep: Option<Box<ResponseKeeping>>,
}

/// Upstream response, by how far it has come.
pub(super) enum UpstreamResponse {
    /// Its head has not come.
    Pending,
    /// A stream that passes.
    Stream(Box<ResponseInProgress>),
    /// A document that is collected and then passed.
    Whole(Box<ResponseInProgress>, BytesMut),
    /// What the gateway made itself.
    Synthesized(SynthesizedResponse),
    /// An error that is collected and then told.
    Refused { status: u16, retry_after: Option<RetryAfter>, body: BytesMut },
    /// Nothing more.
    Done,
}

/// Response that the gateway made itself, as far as accounting and logging need it.
#[derive(Clone, Debug, Default)]
pub(super) struct SynthesizedResponse {
    pub(super) usage: Usage,
    /// What there is besides tokens.
    pub(super) products: Vec<Product>,
    /// Some of the usage is the gateway's own count.
    pub(super) counted: bool,
}

/// Response in progress: the exchange that reads or translates it, and what observes it.
pub(super) struct ResponseInProgress {
    pub(super) exchange: Exchange,
    /// Bytes of the provider's answer that are held: all of a document, and of a stream what came since something left.
    pub(super) held: usize,
    /// What these take.
    pub(super) weight: Option<MemoryPermit>,
}

impl ResponseInProgress {
    pub(super) fn new(exchange: Exchange) -> Self {
        ResponseInProgress { exchange, held: 0, weight: None }
    }
}

/// Figures for the log and the metrics.
pub(super) struct RequestRecord {
    pub(super) started: Instant,
    pub(super) unix_millis: u64,
    /// What the client saw; 0 while it has seen nothing.
    pub(super) status: u16,
    pub(super) error: Option<Kind>,
    /// What is known beyond what the client was told.
    pub(super) detail: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) attempts: u32,
    pub(super) upstream_status: Option<u16>,
    pub(super) upstream_id: Option<Box<str>>,
    /// When the body was complete and deciding began.
    pub(super) complete: Option<Instant>,
    /// All of the request has gone to the provider.
    pub(super) said: bool,
    /// Targets that were asked; 0 where there is only one that could be.
    pub(super) targets: u8,
    /// Targets that failed without the client hearing of it.
    pub(super) tried: Option<Box<str>>,
    /// When the first provider was turned to.
    pub(super) asked: Option<Instant>,
    /// When the last one was.
    pub(super) turned: Option<Instant>,
    /// When its head came.
    pub(super) answered: Option<Instant>,
    /// When the first content left for the client.
    pub(super) first_content: Option<Instant>,
    pub(super) stream: bool,
}

impl Context {
    pub(super) fn new(live: Arc<ActiveSnapshot>, in_flight: InFlightRequests) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Context {
            live,
            id: RequestId::default(),
            seed: OnceLock::new(),
            format: Format::Chat,
            endpoint: None,
            key: None,
            plan: None,
            weight: None,
            origin: None,
            answer: UpstreamResponse::Pending,
            decoder: None,
            resume: None,
            kept: false,
            images: None,
            failure: None,
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
                complete: None,
                said: false,
                targets: 0,
                tried: None,
                asked: None,
                turned: None,
                answered: None,
                first_content: None,
                stream: false,
            },
            charges: RequestCharges::default(),
            claims: None,
            _in_flight: in_flight,
        }
    }

    /// Seconds since the epoch, when the request came.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.record.unix_millis / 1000).unwrap_or(i64::MAX)
    }

    /// What ids in the answer are made from where its provider gives none: random, the same for all attempts. The
    /// request's own id may be the client's, who may give all requests of a session the same one.
    pub(super) fn seed(&self) -> &str {
        self.seed.get_or_init(RequestId::random).as_str()
    }

    /// A provider is turned to.
    pub(super) fn turn(&mut self) {
        let now = Instant::now();
        self.record.asked.get_or_insert(now);
        self.record.turned = Some(now);
    }

    /// The target has begun to answer, and the answer is one.
    pub(super) fn answered_well(&mut self, at: Instant) {
        let before = self.resume.as_ref().and_then(|resume| resume.first_content);
        self.record.first_content = before.or(Some(at));
        let now = self.live.billing.nanos(at);
        if let Some(permit) = self.plan.as_mut().and_then(|plan| plan.permit.as_mut()) {
            permit.answered(now);
        }
    }

    /// Lets go of what goes upstream: it is not sent again.
    pub(super) fn drop_body(&mut self) {
        let Some(plan) = &mut self.plan else { return };
        if plan.body.is_empty() {
            return;
        }
        let asked = CountedRequest::of(std::mem::take(&mut plan.body));
        match &mut self.answer {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => {
                passing.exchange.asked(asked)
            }
            _ => self.charges.asked = asked,
        }
        if self.origin.is_none() {
            self.weight = None;
        }
    }

    /// Lets go of what another target would be asked with: none will be, unless one may have to go on with the answer.
    pub(super) fn settle_on_target(&mut self) {
        if self.can_go_on() {
            return;
        }
        self.origin = None;
        if self.plan.as_ref().is_none_or(|plan| plan.body.is_empty()) {
            self.weight = None;
        }
    }

    /// The next piece of what goes upstream; with `all`, everything that is left as one.
    pub(super) fn next_upstream_body(&mut self, all: bool) -> Option<Bytes> {
        self.sides().and_then(|(mut speech, _)| speech.next(all))
    }

    /// Whether the client's format is what the chosen API speaks, and the notes of an answer that passes.
    pub(super) fn passing(&self) -> Option<&ResponseInProgress> {
        match &self.answer {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => Some(passing),
            _ => None,
        }
    }

    /// What was used, as far as it is known.
    pub(super) fn usage(&self) -> Usage {
        match &self.answer {
            UpstreamResponse::Synthesized(made) => made.usage,
            _ => self.passing().map_or(Usage::default(), |passing| passing.exchange.usage()),
        }
    }

    /// The same, to be ended.
    pub(super) fn passing_mut(&mut self) -> Option<&mut ResponseInProgress> {
        match &mut self.answer {
            UpstreamResponse::Stream(passing) | UpstreamResponse::Whole(passing, _) => Some(passing),
            _ => None,
        }
    }
}

/// The id of a request: the client's own, or a random one.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestId(SmallVec<[u8; 40]>);

impl RequestId {
    /// Takes the client's `x-request-id` over, if it is short and harmless; makes one otherwise.
    pub(super) fn choose(client: Option<&[u8]>) -> Self {
        let harmless = |id: &&[u8]| {
            (1..=MAX_CLIENT_ID).contains(&id.len())
                && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
        };
        match client.filter(harmless) {
            Some(id) => RequestId(SmallVec::from_slice(id)),
            None => RequestId::random(),
        }
    }

    fn random() -> Self {
        let mut id = SmallVec::from_slice(b"req_");
        let mut number = rand::rng().next_u64();
        let mut more = rand::rng().next_u64();
        for _ in 0..24 {
            let digit = u8::try_from(number & 31).unwrap_or(0);
            // Crockford's base 32 in lower case: no letter that is taken for a digit.
            id.push(b"0123456789abcdefghjkmnpqrstvwxyz".get(usize::from(digit)).copied().unwrap_or(b'0'));
            number = number >> 5 | more << 59;
            more >>= 5;
        }
        RequestId(id)
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_the_client_s_if_it_is_harmless() {
        assert_eq!(RequestId::choose(Some(b"abc-1.2")).as_str(), "abc-1.2");
        for bad in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'x'; 129]] {
            let id = RequestId::choose(Some(bad));
            assert!(id.as_str().starts_with("req_") && id.as_str().len() == 28, "{}", id.as_str());
        }
        assert_ne!(RequestId::choose(None).as_str(), RequestId::choose(None).as_str());
    }
}
