//! Calls that are no exchange: on the provider's connections, with its lane's head and its time-outs, and once more
//! where a connection from the pool had been closed. Jobs, tasks and checks are made of them.
//!
//! Nothing here knows a client: what a call means to one is said by whoever makes it.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderName, Method, header};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::time::timeout_at;

use super::body_memory::{Full, Tally};
use super::coalesce::CoalescingStream;
use super::encoding::Decoder;
use super::exchange::{WRITE, listen, send_piece, silent, too_slow, unresolved};
use super::peer::{ProviderAddresses, Upstream};
use super::reader::{Read, Reader};
use super::reply::from_pingora;
use super::request::overloaded;
use super::resend::{Resends, Unanswered, is_downgrade};
use super::response::MAX_ERROR_BODY;
use super::throughput::Throughput;
use super::upstream::scrubbed;
use super::{Gateway, names};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::metrics::Series;
use crate::provider::{Provider, Timeouts};
use crate::wire::error::{ProviderError, from_provider};

/// Lengths of answers that room is made for before they come.
const AHEAD: std::ops::Range<usize> = 64 << 10..64 << 20;

/// A call that is to be made.
pub(super) struct CallRequest<'a> {
    /// The way to the provider.
    pub(super) link: &'a ProviderAddresses,
    /// Where its connection is counted; a check's is not.
    pub(super) series: Option<&'a Series>,
    /// Method, address and headers.
    pub(super) parts: Parts,
    /// What is sent; nothing with a call that looks something up.
    pub(super) body: Option<Bytes>,
    pub(super) timeouts: Timeouts,
    /// When it must be over.
    pub(super) until: tokio::time::Instant,
    /// Whether it may reach the provider twice: nothing is made that stays.
    pub(super) repeatable: bool,
}

/// What is noted of calls, for the log and for what may be done after them.
#[derive(Clone, Debug, Default)]
pub(super) struct CallLog {
    pub(super) attempts: u32,
    /// A whole request has gone out.
    pub(super) said: bool,
    /// One has, and it is not known what became of it.
    pub(super) unanswered: bool,
    /// A call went well.
    pub(super) created: bool,
    pub(super) answered: Option<Instant>,
    pub(super) status: Option<u16>,
    pub(super) id: Option<Box<str>>,
    pub(super) detail: Option<Box<str>>,
}

impl CallLog {
    /// Adds what was noted of calls that were made beside these.
    pub(super) fn add(&mut self, other: CallLog) {
        self.attempts += other.attempts;
        self.said |= other.said;
        self.unanswered |= other.unanswered;
        self.created |= other.created;
        self.answered = self.answered.or(other.answered);
        self.status = other.status.or(self.status);
        self.id = self.id.take().or(other.id);
        self.detail = other.detail.or(self.detail.take());
    }
}

/// An answer that is there as a whole.
pub(super) struct CallResponse {
    pub(super) status: u16,
    pub(super) retry_after: Option<RetryAfter>,
    pub(super) body: Bytes,
}

impl CallResponse {
    /// Whether it is one of success.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// An answer whose body has not been read.
pub(super) struct Reached {
    upstream: HttpSession,
    peer: Arc<Upstream>,
    reader: Reader,
    until: tokio::time::Instant,
    timeouts: Timeouts,
    rate: Option<Throughput>,
    ended: bool,
    pub(super) status: u16,
    /// How long it is, where that is said.
    pub(super) length: Option<u64>,
}

impl Reached {
    /// A header, where it is text.
    pub(super) fn text(&self, name: &HeaderName) -> Option<&str> {
        let head = self.upstream.response_header()?;
        head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// How long it asks to be left alone.
    pub(super) fn retry_after(&self) -> Option<RetryAfter> {
        self.text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned()))
    }

    /// The next piece of the body as it is; nothing at its end.
    pub(super) async fn next(&mut self, notes: &mut CallLog) -> Result<Option<Bytes>, ApiError> {
        let mut silent_at = tokio::time::Instant::now() + self.timeouts.idle;
        while !self.ended {
            let until = silent_at.min(self.until);
            let look = self.rate.as_ref().and_then(Throughput::until).map_or(until, |look| look.min(until));
            let read = timeout_at(look, self.reader.read(&mut self.upstream)).await;
            let Ok(read) = read else {
                if tokio::time::Instant::now() >= until {
                    return Err(silent());
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

    /// Counts bytes that have come, and fails where they are too few.
    fn check_rate(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Some(rate) = self.rate.as_mut().filter(|_| !self.ended) else { return Ok(()) };
        rate.received(bytes, false);
        if rate.is_too_low() { Err(too_slow()) } else { Ok(()) }
    }

    /// Collects the body, which is no longer than this; of an error only its beginning. What is collected is counted.
    pub(super) async fn hear(
        &mut self,
        most: usize,
        tally: Option<Tally>,
        notes: &mut CallLog,
    ) -> Result<CallResponse, ApiError> {
        let mut tally = tally;
        let status = self.status;
        let success = (200..300).contains(&status);
        let retry_after = self.retry_after();
        let wrong = |notes: &mut CallLog, error: &dyn std::fmt::Display| {
            notes.detail = Some(error.to_string().into_boxed_str());
            broken()
        };
        let encoding = self.text(&header::CONTENT_ENCODING).unwrap_or_default();
        let decoder = Decoder::new(encoding).map_err(|error| wrong(notes, &error))?;
        let plain = decoder.is_none();
        self.reader = Reader::new(false).decoding(decoder.map(Box::new), !success);
        self.rate = Throughput::new(&self.timeouts, false);
        let limit = if success { most } else { MAX_ERROR_BODY };
        // What is large says so; it is not moved about while it grows.
        let length = self.length.and_then(|length| usize::try_from(length).ok());
        let ahead = length.filter(|length| *length > AHEAD.start && plain && success);
        let mut body = BytesMut::with_capacity(ahead.map_or(0, |length| length.min(AHEAD.end).min(limit)));
        while let Some(piece) = self.next(notes).await? {
            if let Some(tally) = tally.as_mut().filter(|_| success) {
                tally.add(piece.len()).map_err(|full| match full {
                    Full::Memory => overloaded(),
                    Full::Room => answers_too_large(most),
                })?;
            }
            if body.len() + piece.len() > limit && success {
                let message = format!("The upstream provider's answer is larger than {limit} bytes.");
                return Err(ApiError::new(Kind::UpstreamBroken, message));
            }
            let room = limit.saturating_sub(body.len()).min(piece.len());
            if self.ended && body.is_empty() && room == piece.len() {
                // The usual answer comes in one piece and is not copied.
                return Ok(CallResponse { status, retry_after, body: sealed(tally, piece) });
            }
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            if body.len() == limit && !success {
                break;
            }
        }
        Ok(CallResponse { status, retry_after, body: sealed(tally, body.freeze()) })
    }
}

fn sealed(tally: Option<Tally>, body: Bytes) -> Bytes {
    match tally {
        Some(tally) => tally.seal(body),
        None => body,
    }
}

/// All answers that are collected for one request are larger together than one may be.
pub(super) fn answers_too_large(limit: usize) -> ApiError {
    let message = format!("The upstream provider's answers are larger than {limit} bytes together.");
    ApiError::new(Kind::UpstreamBroken, message)
}

impl Gateway {
    /// Calls a provider and waits for the head of its answer: on a connection from the pool, or on a new one.
    pub(super) async fn ask_provider(
        &self,
        ask: &CallRequest<'_>,
        notes: &mut CallLog,
    ) -> Result<Reached, ApiError> {
        let link = ask.link;
        let fail = |notes: &mut CallLog, error: &pingora::Error| {
            notes.detail = Some(error.to_string().into_boxed_str());
            from_pingora(error)
        };
        let mut resends = Resends::default();
        loop {
            notes.attempts += 1;
            let begun = tokio::time::Instant::now();
            // Never longer than what is left for all of it.
            let mut within = ask.timeouts.connect.min(ask.until.saturating_duration_since(begun));
            let peer = match link.known(&self.resolver) {
                Some(peer) => peer,
                None => {
                    let resolved = Box::pin(link.resolved(&self.resolver, within)).await;
                    within = within.saturating_sub(begun.elapsed());
                    resolved.map_err(|error| {
                        notes.detail = Some(error.to_string().into_boxed_str());
                        unresolved()
                    })?
                }
            };
            // What must not reach a provider twice goes over a new connection: nobody can have closed that one before.
            let pooled = if ask.repeatable && resends.may_reuse() {
                self.connections.reused(&peer).await
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
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE));
            let mut delivered = None;
            let talk = async {
                say(&mut upstream, ask).await?;
                delivered = Some(tokio::time::Instant::now());
                notes.said = true;
                notes.unanswered = true;
                listen(&mut upstream).await
            };
            let until = (tokio::time::Instant::now() + ask.timeouts.first_byte).min(ask.until);
            match timeout_at(until, talk).await {
                Err(_) => return Err(silent()),
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let mut error = error.into_up();
                    error.retry.decide_reuse(reused);
                    let answered = upstream
                        .stream()
                        .and_then(CoalescingStream::of)
                        .is_some_and(CoalescingStream::is_answered);
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
            notes.answered = Some(Instant::now());
            let head = upstream.response_header().ok_or_else(broken)?;
            let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
            let status = head.status.as_u16();
            notes.status = Some(status);
            notes.created |= head.status.is_success();
            let id = text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID));
            notes.id = id.map(|id| id.chars().take(128).collect::<String>().into_boxed_str());
            return Ok(Reached {
                reader: Reader::new(true),
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

    /// Gives the connection of an answer back that has been read to its end.
    pub(super) fn read_out(&self, reached: Reached) {
        if reached.ended {
            self.connections.release(reached.upstream, &reached.peer);
        }
    }
}

/// Makes the head of a call one that looks something up.
pub(super) fn to_look(parts: &mut Parts) {
    parts.method = Method::GET;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
}

async fn say(upstream: &mut HttpSession, ask: &CallRequest<'_>) -> pingora::Result<()> {
    let mut head = Box::new(RequestHeader::from(ask.parts.clone()));
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

/// What a provider's refusal means to the client.
pub(super) fn refused(
    provider: Option<&Arc<Provider>>,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut CallLog,
) -> ApiError {
    let reported = ProviderError::decode(body);
    let detail = scrubbed(provider, reported.message.clone());
    let mut error = from_provider(status, reported, retry_after);
    error.message = scrubbed(provider, error.message.into_owned()).into();
    notes.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
    error
}

/// An answer that is none.
pub(super) fn broken() -> ApiError {
    ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer is not valid.")
}
