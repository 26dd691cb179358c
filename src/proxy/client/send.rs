//! Upstream requests: one request on a pooled or a new connection, up to the response head.
//!
//! The request is sent again at most once if a pooled connection had been closed, and at most once over HTTP/1.1 if the
//! server declines HTTP/2; `driver::resend` decides both.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use pingora::http::RequestHeader;
use tokio::time::{Instant, timeout_at};

use super::UpstreamClient;
use super::body::OpenResponse;
use crate::credentials::CredentialHandle;
use crate::credentials::authorize::{AuthorizedWith, Judgement, Remedy};
use crate::gateway::provider_addresses::ProviderAddresses;
use cloud::sigv4::PayloadHash;
use codec::provider::Timeouts;
use driver::dns::DnsError;
use driver::interim::read_response_head;
use driver::names;
use driver::offload::run_blocking_if_large;
use driver::peer::Upstream;
use driver::provider_session::{ProviderSession, RequestPieces};
use driver::resend::{Resends, Unanswered, is_downgrade};
use driver::send::WRITE_TIMEOUT;
use observe::metrics::Series;

/// Longest request id of a provider that is logged, in characters.
const MAX_REQUEST_ID: usize = 128;

/// Upstream request: destination, head, body and time-outs.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) destination: RequestDestination<'a>,
    /// Metrics that count the connection; `None` for health checks and remote media.
    pub(crate) series: Option<&'a Series>,
    /// Method, URI and headers.
    pub(crate) parts: Parts,
    /// Request body; `None` for a request without one (GET).
    pub(crate) body: Option<Bytes>,
    /// Time-outs of connecting, of the response head and between two reads of the body.
    pub(crate) timeouts: Timeouts,
    /// Deadline of the whole request, response body included.
    pub(crate) until: Instant,
    /// Whether the server may receive the request twice, because it creates nothing that lasts.
    pub(crate) repeatable: bool,
}

/// Destination of an upstream request.
pub(crate) enum RequestDestination<'a> {
    /// A provider: its name is resolved if necessary, and its connections are pooled.
    Provider(&'a ProviderAddresses),
    /// One address, which the caller has resolved and checked. Its connection is new, and closed after the response.
    Address(Arc<Upstream>),
}

impl RequestDestination<'_> {
    /// Returns the provider's name for metrics; empty for an address.
    fn provider(&self) -> &str {
        match self {
            RequestDestination::Provider(addresses) => &addresses.provider().name,
            RequestDestination::Address(_) => "",
        }
    }

    /// Returns the provider's short-lived credential; `None` if it has a fixed one, and for an address.
    fn credential(&self) -> Option<&CredentialHandle> {
        match self {
            RequestDestination::Provider(addresses) => addresses.credential().map(Arc::as_ref),
            RequestDestination::Address(_) => None,
        }
    }
}

/// Log of one or several calls, for the access log and for the decision whether they may be repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallLog {
    pub(crate) attempts: u32,
    /// At least one request was written to its end.
    pub(crate) request_sent: bool,
    /// A request was written to its end, and its outcome is unknown.
    pub(crate) outcome_unknown: bool,
    /// A provider answered with success: it may have created something.
    pub(crate) created: bool,
    pub(crate) head_received_at: Option<std::time::Instant>,
    pub(crate) status: Option<u16>,
    pub(crate) id: Option<Box<str>>,
    pub(crate) detail: Option<Box<str>>,
}

impl CallLog {
    /// Merges the log of calls that ran in parallel.
    pub(crate) fn add(&mut self, other: CallLog) {
        self.attempts += other.attempts;
        self.request_sent |= other.request_sent;
        self.outcome_unknown |= other.outcome_unknown;
        self.created |= other.created;
        self.head_received_at = self.head_received_at.or(other.head_received_at);
        self.status = other.status.or(self.status);
        self.id = self.id.take().or(other.id);
        self.detail = other.detail.or(self.detail.take());
    }

    /// Sets the detail for the access log.
    pub(super) fn set_detail(&mut self, detail: impl std::fmt::Display) {
        self.detail = Some(detail.to_string().into_boxed_str());
    }

    /// Records that a request was written to its end. From here on the provider may have acted on it, even if no
    /// response arrives.
    fn on_request_sent(&mut self) {
        self.request_sent = true;
        self.outcome_unknown = true;
    }

    fn on_response_head(&mut self, response: &OpenResponse) {
        self.head_received_at = Some(std::time::Instant::now());
        self.status = Some(response.status);
        self.created |= response.is_success();
        let id = response.text(&names::X_REQUEST_ID).or_else(|| response.text(&names::REQUEST_ID));
        self.id = id.map(|id| id.chars().take(MAX_REQUEST_ID).collect::<String>().into_boxed_str());
    }
}

/// Reason why a request has no response head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The provider's name cannot be resolved.
    #[error("{0}")]
    Resolve(DnsError),
    #[error("{0}")]
    Connect(Box<pingora::Error>),
    /// The connection failed while the request was written or the response head was read.
    #[error("{0}")]
    Connection(Box<pingora::Error>),
    /// No response head arrived in time.
    #[error("no response in time")]
    Timeout,
    #[error("no response head")]
    NoHead,
    /// The gateway has no valid credential for the provider.
    #[error("no credential: {0}")]
    Credential(String),
}

/// Connection that carries one request.
struct Connected {
    session: ProviderSession,
    peer: Arc<Upstream>,
    /// The connection comes from the pool.
    reused: bool,
}

impl UpstreamClient {
    /// Sends a request on a pooled or a new connection and reads the response head. `log` is kept up to date, also for
    /// a caller that drops the future.
    ///
    /// # Errors
    /// Returns [`SendError`] if no response head arrives.
    pub(crate) async fn send(
        &self,
        request: &UpstreamRequest<'_>,
        log: &mut CallLog,
    ) -> Result<OpenResponse, SendError> {
        let mut resends = Resends::default();
        let mut reauthorized = false;
        loop {
            log.attempts += 1;
            let mut connected = self.acquire(request, &mut resends, log).await?;
            if let Some(series) = request.series {
                series.exchange(connected.reused);
            }
            let mut delivered = None;
            let (head, authorized) = authorized_head(request)?;
            let exchange = async {
                let body: RequestPieces = request.body.iter().cloned().collect();
                connected.session.write_request(head, body, None).await?;
                delivered = Some(Instant::now());
                // Before the wait: a caller that drops this future must learn that the provider may have acted.
                log.on_request_sent();
                read_response_head(&mut connected.session).await
            };
            // Each attempt has its own first-byte time-out; the deadline of the request bounds all of them.
            let until = (Instant::now() + request.timeouts.first_byte).min(request.until);
            match timeout_at(until, exchange).await {
                Err(_) => return Err(SendError::Timeout),
                Ok(Ok(())) => {
                    let mut response = self.open_response(request, connected, log)?;
                    let remedy = match authorized.filter(|_| !reauthorized) {
                        Some(with) => remedy_for(request, with, &mut response).await,
                        None => None,
                    };
                    if !self.remedy(request, remedy).await {
                        return Ok(response);
                    }
                    reauthorized = true;
                }
                Ok(Err(mut error)) => {
                    if !self.may_resend(request, &connected, &mut error, delivered, &mut resends) {
                        return Err(SendError::Connection(error));
                    }
                }
            }
        }
    }

    /// Resolves the destination and takes a pooled connection or opens one. A server that declines HTTP/2 is connected
    /// to once more over HTTP/1.1, as another attempt.
    async fn acquire(
        &self,
        request: &UpstreamRequest<'_>,
        resends: &mut Resends,
        log: &mut CallLog,
    ) -> Result<Connected, SendError> {
        loop {
            let (peer, within) = self.resolve(request).await?;
            // A request that must not arrive twice needs a new connection: the server may have closed a pooled one
            // already, and the request could not be sent again.
            let pooled = matches!(request.destination, RequestDestination::Provider(_));
            let idle = if pooled && request.repeatable && resends.may_reuse() {
                self.connections.take_idle(&peer).await
            } else {
                None
            };
            let reused = idle.is_some();
            let opened = match idle {
                Some(session) => Ok(session),
                // Boxed: the state of a TLS handshake is large, and most requests reuse a connection.
                None => Box::pin(self.connections.connect(&peer, within)).await,
            };
            match opened {
                Ok(mut session) => {
                    // Reads are bounded by the deadlines of the request.
                    session.set_write_timeout(WRITE_TIMEOUT);
                    return Ok(Connected { session, peer, reused });
                }
                Err(error) if is_downgrade(&error) && resends.downgrade() => {
                    self.connections.prefer_http1(&peer);
                    log.attempts += 1;
                }
                Err(error) => return Err(SendError::Connect(error)),
            }
        }
    }

    /// Resolves the destination. Returns the peer and the time that is left for connecting to it.
    async fn resolve(&self, request: &UpstreamRequest<'_>) -> Result<(Arc<Upstream>, Duration), SendError> {
        let begun = Instant::now();
        // The connect time-out must not exceed the deadline of the request. Name resolution counts towards it.
        let within = request.timeouts.connect.min(request.until.saturating_duration_since(begun));
        let addresses = match &request.destination {
            RequestDestination::Provider(addresses) => addresses,
            RequestDestination::Address(peer) => return Ok((peer.clone(), within)),
        };
        if let Some(credential) = addresses.credential().filter(|credential| !credential.is_available()) {
            credential.wait(within).await.map_err(SendError::Credential)?;
        }
        let within = within.saturating_sub(begun.elapsed());
        if let Some(peer) = addresses.cached(&self.resolver) {
            return Ok((peer, within));
        }
        let resolved = Box::pin(addresses.resolve(&self.resolver, within)).await;
        Ok((resolved.map_err(SendError::Resolve)?, within.saturating_sub(begun.elapsed())))
    }

    /// Decides whether a request whose connection failed is sent again, and counts it then.
    fn may_resend(
        &self,
        request: &UpstreamRequest<'_>,
        connected: &Connected,
        error: &mut pingora::Error,
        delivered: Option<Instant>,
        resends: &mut Resends,
    ) -> bool {
        let Connected { session, peer, reused } = connected;
        // Pingora marks some errors as retryable on a reused connection only; this resolves the mark.
        error.retry.decide_reuse(*reused);
        // Remembered for the peer: later requests do not pay for another failed attempt at HTTP/2.
        if is_downgrade(error) {
            self.connections.prefer_http1(peer);
        }
        let answered = session.has_response();
        let repeatable = request.repeatable;
        let reason = resends.decide(Unanswered { error, reused: *reused, answered, delivered, repeatable });
        let Some(reason) = reason else { return false };
        let labels = [request.destination.provider(), reason.label()];
        self.metrics.upstream_retries.with_label_values(&labels).inc();
        true
    }

    /// Applies the remedy for a refused authorization. Returns whether the request is worth another attempt.
    async fn remedy(&self, request: &UpstreamRequest<'_>, remedy: Option<Remedy>) -> bool {
        let (Some(remedy), Some(credential)) = (remedy, request.destination.credential()) else {
            return false;
        };
        let reason = match remedy {
            Remedy::Clock => "clock_skew",
            Remedy::Credential(number) => {
                let within =
                    request.timeouts.connect.min(request.until.saturating_duration_since(Instant::now()));
                if !credential.replace(number, within).await {
                    return false;
                }
                "credential"
            }
        };
        let labels = [request.destination.provider(), reason];
        self.metrics.upstream_retries.with_label_values(&labels).inc();
        true
    }

    fn open_response(
        &self,
        request: &UpstreamRequest<'_>,
        connected: Connected,
        log: &mut CallLog,
    ) -> Result<OpenResponse, SendError> {
        let Connected { session, peer, .. } = connected;
        let pool = match request.destination {
            RequestDestination::Provider(_) => Some((self.connections.clone(), peer)),
            // Not pooled: the address was checked for this one URL.
            RequestDestination::Address(_) => None,
        };
        let response = OpenResponse::new(session, pool, request.timeouts, request.until);
        let response = response.ok_or(SendError::NoHead)?;
        log.on_response_head(&response);
        Ok(response)
    }
}

/// Returns the request head, with the provider's short-lived credential, and how the request is authorized.
///
/// # Errors
/// Returns [`SendError::Credential`] if there is no valid credential.
fn authorized_head(
    request: &UpstreamRequest<'_>,
) -> Result<(Box<RequestHeader>, Option<AuthorizedWith>), SendError> {
    let mut parts = request.parts.clone();
    let Some(credential) = request.destination.credential() else {
        return Ok((Box::new(RequestHeader::from(parts)), None));
    };
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let body = request.body.as_deref().unwrap_or_default();
    let payload = || run_blocking_if_large(body.len(), || PayloadHash::of([body]));
    let method = parts.method.clone();
    let with = credential.authorize(method.as_str(), &target, &mut parts.headers, payload);
    let with = with.map_err(|error| SendError::Credential(error.message.into_owned()))?;
    Ok((Box::new(RequestHeader::from(parts)), Some(with)))
}

/// Judges the refusal of an authorized request; `None` if there is no remedy.
async fn remedy_for(
    request: &UpstreamRequest<'_>,
    with: AuthorizedWith,
    response: &mut OpenResponse,
) -> Option<Remedy> {
    let credential = request.destination.credential()?;
    match credential.judge(with, response.status, response.headers()) {
        Judgement::Final => None,
        Judgement::Remedy(remedy) => Some(remedy),
        Judgement::Unnamed => {
            let status = response.status;
            credential.judge_body(with, status, response.read_ahead().await)
        }
    }
}
