//! Provider calls outside an exchange: one request at a time, on the provider's pooled connections, with the head and
//! the time-outs of its upstream route, and resent once if a pooled connection had been closed. Jobs, tasks and health
//! checks are built on them.
//!
//! Nothing here writes to a client: the caller decides what a result or an error means to one.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderName, Method, header};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::time::timeout_at;

use crate::error::{ApiError, ErrorKind, RetryAfter};
use crate::metrics::Series;
use crate::provider::{Provider, Timeouts};
use crate::proxy::Gateway;
use crate::proxy::driver::coalesce::CoalescingStream;
use crate::proxy::driver::encoding::ContentDecoder;
use crate::proxy::driver::interim::read_response_head;
use crate::proxy::driver::outcome::{low_rate_error, resolution_error, timeout_error};
use crate::proxy::driver::peer::Upstream;
use crate::proxy::driver::provider_addresses::ProviderAddresses;
use crate::proxy::driver::reader::MAX_ERROR_BODY;
use crate::proxy::driver::reader::{Read, ResponseReader};
use crate::proxy::driver::resend::{Resends, Unanswered, is_downgrade};
use crate::proxy::driver::send::{WRITE_TIMEOUT, send_piece};
use crate::proxy::driver::throughput::Throughput;
use crate::proxy::gateway::body_memory::{MemoryExceeded, MemoryTally};
use crate::proxy::gateway::names;
use crate::proxy::gateway::reply::from_pingora;
use crate::proxy::gateway::upstream::redact_secrets;
use crate::wire::error::{ProviderError, from_provider};

/// Response lengths, in bytes, for which the buffer is allocated before the body arrives. The upper end is also the
/// most that is allocated in advance.
const PREALLOCATED: std::ops::Range<usize> = 64 << 10..64 << 20;

/// Request of one provider call.
pub(in crate::proxy) struct CallRequest<'a> {
    /// Provider with its addresses.
    pub(in crate::proxy) addresses: &'a ProviderAddresses,
    /// Metrics that count the connection; `None` for health checks.
    pub(in crate::proxy) series: Option<&'a Series>,
    /// Method, URI and headers.
    pub(in crate::proxy) parts: Parts,
    /// Request body; `None` for a look-up (GET).
    pub(in crate::proxy) body: Option<Bytes>,
    pub(in crate::proxy) timeouts: Timeouts,
    /// Deadline of the whole call, body included.
    pub(in crate::proxy) until: tokio::time::Instant,
    /// Whether the provider may receive the call twice, because it creates nothing that lasts.
    pub(in crate::proxy) repeatable: bool,
}

/// Log of one or several calls, for the access log and for the decision whether they may be repeated.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct CallLog {
    pub(in crate::proxy) attempts: u32,
    /// At least one request was written to its end.
    pub(in crate::proxy) request_sent: bool,
    /// A request was written to its end, and its outcome is unknown.
    pub(in crate::proxy) outcome_unknown: bool,
    /// A provider answered with success: it may have created something.
    pub(in crate::proxy) created: bool,
    pub(in crate::proxy) head_received_at: Option<Instant>,
    pub(in crate::proxy) status: Option<u16>,
    pub(in crate::proxy) id: Option<Box<str>>,
    pub(in crate::proxy) detail: Option<Box<str>>,
}

impl CallLog {
    /// Merges the log of calls that ran in parallel.
    pub(in crate::proxy) fn add(&mut self, other: CallLog) {
        self.attempts += other.attempts;
        self.request_sent |= other.request_sent;
        self.outcome_unknown |= other.outcome_unknown;
        self.created |= other.created;
        self.head_received_at = self.head_received_at.or(other.head_received_at);
        self.status = other.status.or(self.status);
        self.id = self.id.take().or(other.id);
        self.detail = other.detail.or(self.detail.take());
    }
}

/// Complete response of a call.
pub(in crate::proxy) struct CallResponse {
    pub(in crate::proxy) status: u16,
    pub(in crate::proxy) retry_after: Option<RetryAfter>,
    pub(in crate::proxy) body: Bytes,
}

impl CallResponse {
    /// Whether the status is 2xx.
    pub(in crate::proxy) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Open call: the response head has been read, the body has not.
pub(in crate::proxy) struct OpenCall {
    upstream: HttpSession,
    peer: Arc<Upstream>,
    reader: ResponseReader,
    until: tokio::time::Instant,
    timeouts: Timeouts,
    rate: Option<Throughput>,
    ended: bool,
    pub(in crate::proxy) status: u16,
    /// `content-length` in bytes; `None` if it is absent or not a number.
    pub(in crate::proxy) length: Option<u64>,
}

impl OpenCall {
    /// Returns the value of a header; `None` if it is absent or not visible ASCII.
    pub(in crate::proxy) fn text(&self, name: &HeaderName) -> Option<&str> {
        let head = self.upstream.response_header()?;
        head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the `retry-after` header; `None` if it is absent.
    pub(in crate::proxy) fn retry_after(&self) -> Option<RetryAfter> {
        self.text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned()))
    }

    /// Reads the next piece of the body, `None` at its end. Content encoding is undone only within
    /// [`OpenCall::collect_body`].
    ///
    /// # Errors
    /// Returns [`ErrorKind::UpstreamTimeout`] after `timeouts.idle` without a byte, at the deadline of the call or
    /// below `timeouts.min_rate`, and the meaning of the connection error if the body breaks off.
    pub(in crate::proxy) async fn next(&mut self, notes: &mut CallLog) -> Result<Option<Bytes>, ApiError> {
        let mut silent_at = tokio::time::Instant::now() + self.timeouts.idle;
        while !self.ended {
            let until = silent_at.min(self.until);
            let look = self.rate.as_ref().and_then(Throughput::until).map_or(until, |look| look.min(until));
            let read = timeout_at(look, self.reader.read(&mut self.upstream)).await;
            let Ok(read) = read else {
                if tokio::time::Instant::now() >= until {
                    return Err(timeout_error());
                }
                self.check_rate(0)?;
                continue;
            };
            silent_at = tokio::time::Instant::now() + self.timeouts.idle;
            let piece = match read {
                Read::Piece(piece) => piece,
                Read::Last(piece) => {
                    self.ended = true;
                    piece
                }
                Read::Broken(_, error) => {
                    notes.detail = Some(error.to_string().into_boxed_str());
                    return Err(from_pingora(&error.into_up()));
                }
            };
            if !piece.is_empty() {
                self.check_rate(piece.len())?;
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Counts received bytes. Returns an error if a rate window has ended with too few.
    fn check_rate(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Some(rate) = self.rate.as_mut().filter(|_| !self.ended) else { return Ok(()) };
        rate.on_received(bytes, false);
        if rate.is_too_low() { Err(low_rate_error()) } else { Ok(()) }
    }

    /// Collects and decodes the body, at most `most` bytes; of an error response only the first [`MAX_ERROR_BODY`]
    /// bytes. `tally` counts the memory of a successful body.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UpstreamBroken`] if the body is too large or cannot be decoded, an overload error if the
    /// memory budget is exhausted, and the errors of [`OpenCall::next`].
    pub(in crate::proxy) async fn collect_body(
        &mut self,
        most: usize,
        tally: Option<MemoryTally>,
        notes: &mut CallLog,
    ) -> Result<CallResponse, ApiError> {
        let mut tally = tally;
        let status = self.status;
        let success = (200..300).contains(&status);
        let retry_after = self.retry_after();
        let wrong = |notes: &mut CallLog, error: &dyn std::fmt::Display| {
            notes.detail = Some(error.to_string().into_boxed_str());
            malformed_response()
        };
        let encoding = self.text(&header::CONTENT_ENCODING).unwrap_or_default();
        let decoder = ContentDecoder::new(encoding).map_err(|error| wrong(notes, &error))?;
        let plain = decoder.is_none();
        self.reader = ResponseReader::new(false).decoding(decoder.map(Box::new), !success);
        self.rate = Throughput::new(&self.timeouts, false);
        let limit = if success { most } else { MAX_ERROR_BODY };
        // A large response states its length: allocate once, instead of moving the body each time the buffer grows.
        let length = self.length.and_then(|length| usize::try_from(length).ok());
        let ahead = length.filter(|length| *length > PREALLOCATED.start && plain && success);
        let mut body =
            BytesMut::with_capacity(ahead.map_or(0, |length| length.min(PREALLOCATED.end).min(limit)));
        while let Some(piece) = self.next(notes).await? {
            if let Some(tally) = tally.as_mut().filter(|_| success) {
                tally.add(piece.len()).map_err(|full| match full {
                    MemoryExceeded::ProcessLimit => ApiError::overloaded(),
                    MemoryExceeded::RequestLimit => responses_too_large(most),
                })?;
            }
            if body.len() + piece.len() > limit && success {
                let message = format!("The upstream provider's response is larger than {limit} bytes.");
                return Err(ApiError::new(ErrorKind::UpstreamBroken, message));
            }
            let room = limit.saturating_sub(body.len()).min(piece.len());
            if self.ended && body.is_empty() && room == piece.len() {
                // Fast path: a response that arrives in one piece is not copied.
                return Ok(CallResponse { status, retry_after, body: with_permit(tally, piece) });
            }
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            if body.len() == limit && !success {
                break;
            }
        }
        Ok(CallResponse { status, retry_after, body: with_permit(tally, body.freeze()) })
    }
}

fn with_permit(tally: Option<MemoryTally>, body: Bytes) -> Bytes {
    match tally {
        Some(tally) => tally.attach_permit(body),
        None => body,
    }
}

/// Size error: the responses that were collected for one request exceed `limit` bytes together.
pub(in crate::proxy) fn responses_too_large(limit: usize) -> ApiError {
    let message = format!("The upstream provider's responses exceed {limit} bytes in total.");
    ApiError::new(ErrorKind::UpstreamBroken, message)
}

impl Gateway {
    /// Sends a call on a pooled or a new connection and reads the response head.
    ///
    /// # Errors
    /// Returns the meaning of the connection error, or [`ErrorKind::UpstreamTimeout`] if no head arrives in time.
    pub(in crate::proxy) async fn send_call(
        &self,
        ask: &CallRequest<'_>,
        notes: &mut CallLog,
    ) -> Result<OpenCall, ApiError> {
        let link = ask.addresses;
        let fail = |notes: &mut CallLog, error: &pingora::Error| {
            notes.detail = Some(error.to_string().into_boxed_str());
            from_pingora(error)
        };
        let mut resends = Resends::default();
        loop {
            notes.attempts += 1;
            let begun = tokio::time::Instant::now();
            // The connect time-out must not exceed the deadline of the whole call. Name resolution counts towards it.
            let mut within = ask.timeouts.connect.min(ask.until.saturating_duration_since(begun));
            let peer = match link.cached(&self.resolver) {
                Some(peer) => peer,
                None => {
                    let resolved = Box::pin(link.resolve(&self.resolver, within)).await;
                    within = within.saturating_sub(begun.elapsed());
                    resolved.map_err(|error| {
                        notes.detail = Some(error.to_string().into_boxed_str());
                        resolution_error()
                    })?
                }
            };
            // A call that must not arrive twice needs a new connection: the provider may have closed a pooled one
            // already, and the call could not be resent.
            let pooled = if ask.repeatable && resends.may_reuse() {
                self.connections.take_idle(&peer).await
            } else {
                None
            };
            let reused = pooled.is_some();
            let mut upstream = match pooled {
                Some(upstream) => upstream,
                None => match Box::pin(self.connections.connect(&peer, within)).await {
                    Ok(upstream) => upstream,
                    Err(error) if is_downgrade(&error) && resends.downgrade() => {
                        self.connections.prefer_http1(&peer);
                        continue;
                    }
                    Err(error) => return Err(fail(notes, &error)),
                },
            };
            if let Some(series) = ask.series {
                series.exchange(reused);
            }
            // Reads are bounded by the deadlines of this call.
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE_TIMEOUT));
            let mut delivered = None;
            let talk = async {
                write_request(&mut upstream, ask).await?;
                delivered = Some(tokio::time::Instant::now());
                // From here on the provider may have acted on the request, even if no response arrives.
                notes.request_sent = true;
                notes.outcome_unknown = true;
                read_response_head(&mut upstream).await
            };
            let until = (tokio::time::Instant::now() + ask.timeouts.first_byte).min(ask.until);
            match timeout_at(until, talk).await {
                Err(_) => return Err(timeout_error()),
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let mut error = error.into_up();
                    error.retry.decide_reuse(reused);
                    let answered = upstream
                        .stream()
                        .and_then(CoalescingStream::of)
                        .is_some_and(CoalescingStream::has_response);
                    if is_downgrade(&error) {
                        self.connections.prefer_http1(&peer);
                    }
                    let repeatable = ask.repeatable;
                    let unanswered = Unanswered { error: &error, reused, answered, delivered, repeatable };
                    let Some(reason) = resends.decide(unanswered) else { return Err(fail(notes, &error)) };
                    let provider = &*link.provider().name;
                    self.metrics.upstream_retries.with_label_values(&[provider, reason.label()]).inc();
                    continue;
                }
            }
            notes.head_received_at = Some(Instant::now());
            let head = upstream.response_header().ok_or_else(malformed_response)?;
            let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
            let status = head.status.as_u16();
            notes.status = Some(status);
            notes.created |= head.status.is_success();
            let id = text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID));
            notes.id = id.map(|id| id.chars().take(128).collect::<String>().into_boxed_str());
            return Ok(OpenCall {
                reader: ResponseReader::new(true),
                until: ask.until,
                timeouts: ask.timeouts,
                rate: None,
                ended: false,
                status,
                length: text(&header::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok()),
                upstream,
                peer,
            });
        }
    }

    /// Returns the connection to the pool if the response has been read to its end, and closes it otherwise.
    pub(in crate::proxy) fn release_connection(&self, reached: OpenCall) {
        if reached.ended {
            self.connections.release(reached.upstream, &reached.peer);
        }
    }
}

/// Turns the head of a call into that of a GET without a body.
pub(in crate::proxy) fn to_get(parts: &mut Parts) {
    parts.method = Method::GET;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
}

async fn write_request(upstream: &mut HttpSession, ask: &CallRequest<'_>) -> pingora::Result<()> {
    let mut head = Box::new(RequestHeader::from(ask.parts.clone()));
    // HTTP/2 carries the host in `:authority` (RFC 9113, section 8.3.1).
    if let HttpSession::H2(_) = upstream {
        head.set_version(http::Version::HTTP_2);
        head.remove_header(&header::HOST);
    }
    if let Some(corked) = upstream.stream().and_then(CoalescingStream::of) {
        corked.cork();
    }
    upstream.write_request_header(head).await?;
    if let Some(corked) = upstream.stream().and_then(CoalescingStream::of) {
        corked.uncork();
    }
    match (&ask.body, upstream) {
        (Some(body), upstream) => send_piece(upstream, body.clone(), true).await,
        (None, HttpSession::H1(h1)) => h1.finish_body().await.map(|_| ()),
        (None, upstream) => upstream.write_request_body(Bytes::new(), true).await,
    }
}

/// Converts a provider's error response to the client's error, without the provider's secrets. `notes` gets the
/// original message where it differs.
pub(in crate::proxy) fn upstream_error(
    provider: Option<&Arc<Provider>>,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut CallLog,
) -> ApiError {
    let reported = ProviderError::decode(body);
    let detail = redact_secrets(provider, reported.message.clone());
    let mut error = from_provider(status, reported, retry_after);
    error.message = redact_secrets(provider, error.message.into_owned()).into();
    notes.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
    error
}

/// Upstream error: the response could not be parsed.
pub(in crate::proxy) fn malformed_response() -> ApiError {
    ApiError::new(ErrorKind::UpstreamBroken, "The upstream provider's response is not valid.")
}
