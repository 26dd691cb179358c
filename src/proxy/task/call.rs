//! Calls of a provider for a task: on its connections, with its lane's head and its time-outs, but without a client, who may have
//! left.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::time::timeout_at;

use super::super::cork::Corked;
use super::super::exchange::{WRITE, is_downgrade, listen, send_piece, silent};
use super::super::lane::{Lane, address_of};
use super::super::live::Live;
use super::super::peer::Upstream;
use super::super::reader::{Read, Reader};
use super::super::reply::from_pingora;
use super::super::response::MAX_ERROR_BODY;
use super::super::upstream::scrubbed;
use super::super::{Gateway, names};
use super::broken;
use crate::error::{ApiError, Kind, RetryAfter};
use crate::route::{Model, Target};
use crate::wire::error::{VendorError, from_vendor};

/// The way to a provider.
#[derive(Clone)]
pub(super) struct Road {
    pub(super) live: Arc<Live>,
    pub(super) lane: Arc<Lane>,
    pub(super) model: Arc<Model>,
    pub(super) target: usize,
    /// The request's id, which the provider may want to know.
    pub(super) request: String,
}

impl Road {
    pub(super) fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
    pub(super) headers: &'static [(&'static str, &'static str)],
}

impl Out {
    pub(super) fn post(path: String, body: Bytes) -> Out {
        Out { method: Method::POST, path, body, headers: &[] }
    }

    pub(super) fn get(path: String) -> Out {
        Out { method: Method::GET, path, body: Bytes::new(), headers: &[] }
    }
}

/// What is noted of calls, for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) attempts: u32,
    pub(super) answered: Option<Instant>,
    pub(super) status: Option<u16>,
    pub(super) id: Option<Box<str>>,
    pub(super) detail: Option<Box<str>>,
}

/// An answer whose body has not been read.
pub(super) struct Reached {
    upstream: HttpSession,
    peer: Arc<Upstream>,
    reader: Reader,
    until: tokio::time::Instant,
    idle: std::time::Duration,
    pub(super) status: u16,
    /// How long it is, where that is said.
    pub(super) length: Option<u64>,
    /// Where it leads.
    pub(super) location: Option<String>,
    retry_after: Option<RetryAfter>,
    ended: bool,
}

impl Reached {
    /// The next piece of the body; nothing at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        while !self.ended {
            let until = (tokio::time::Instant::now() + self.idle).min(self.until);
            let read = timeout_at(until, self.reader.read(&mut self.upstream)).await;
            let piece = match read.map_err(|_| silent())? {
                Read::Piece(piece) => piece,
                Read::Last(piece) => {
                    self.ended = true;
                    piece
                }
                Read::Broken(_, error) => return Err(from_pingora(&error.into_up())),
            };
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// All that is left, but no more than this.
    pub(super) async fn whole(&mut self, limit: usize) -> Result<Bytes, ApiError> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if body.len() + piece.len() > limit {
                let message = format!("The upstream provider's answer is larger than {limit} bytes.");
                return Err(ApiError::new(Kind::UpstreamBroken, message));
            }
            if self.ended && body.is_empty() {
                return Ok(piece);
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }
}

impl Gateway {
    /// Calls a provider and waits for the head of its answer.
    pub(super) async fn reach(&self, road: &Road, out: &Out, notes: &mut Notes) -> Result<Reached, ApiError> {
        let target = road.target().ok_or_else(broken)?;
        let link = road.live.link(&road.lane).ok_or_else(broken)?;
        let timeouts = target.provider.timeouts;
        let deadline = tokio::time::Instant::now() + timeouts.total;
        let fail = |notes: &mut Notes, error: &pingora::Error| {
            notes.detail = Some(error.to_string().into_boxed_str());
            from_pingora(error)
        };
        loop {
            notes.attempts += 1;
            let peer = match link.known() {
                Some(peer) => peer,
                None => link.resolved(&self.resolver).await.map_err(|error| {
                    notes.detail = Some(error.to_string().into_boxed_str());
                    let told = "The upstream provider cannot be reached: its name has no address.";
                    ApiError::new(Kind::UpstreamUnreachable, told)
                })?,
            };
            let pooled = self.connections.reused(&peer).await.map_err(|error| fail(notes, &error))?;
            let reused = pooled.is_some();
            let mut upstream = match pooled {
                Some(upstream) => upstream,
                None => match Box::pin(self.connections.connect(&peer)).await {
                    Ok(upstream) => upstream,
                    Err(error) if is_downgrade(&error) => {
                        self.connections.prefer_http1(&peer);
                        continue;
                    }
                    Err(error) => return Err(fail(notes, &error)),
                },
            };
            road.lane.series.exchange(reused);
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE));
            let head = head(road, target, out, &upstream).ok_or_else(broken)?;
            let talk = async {
                say(&mut upstream, head, out).await?;
                listen(&mut upstream).await
            };
            let until = (tokio::time::Instant::now() + timeouts.first_byte).min(deadline);
            match timeout_at(until, talk).await {
                Err(_) => return Err(silent()),
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let mut error = error.into_up();
                    // A connection from the pool may have been closed by the other side in this very moment.
                    error.retry.decide_reuse(reused);
                    let answered = upstream.stream().and_then(Corked::of).is_some_and(Corked::is_answered);
                    let reason = if reused && error.retry() && !answered {
                        "stale_connection"
                    } else if is_downgrade(&error) {
                        self.connections.prefer_http1(&peer);
                        "h2_downgrade"
                    } else {
                        return Err(fail(notes, &error));
                    };
                    self.metrics.upstream_retries.with_label_values(&[&*target.provider.name, reason]).inc();
                    continue;
                }
            }
            notes.answered = Some(Instant::now());
            let head = upstream.response_header().ok_or_else(broken)?;
            let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
            let status = head.status.as_u16();
            notes.status = Some(status);
            let id = text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID));
            notes.id = id.map(|id| id.chars().take(128).collect::<String>().into_boxed_str());
            if text(&header::CONTENT_ENCODING).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
            {
                notes.detail = Some("the answer is compressed, and nobody asked for that".into());
                return Err(broken());
            }
            let length = text(&header::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok());
            let location = text(&header::LOCATION).map(str::to_owned);
            let retry_after = text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned()));
            return Ok(Reached {
                reader: Reader::new(true),
                until: deadline,
                idle: timeouts.idle,
                status,
                length,
                location,
                retry_after,
                ended: false,
                upstream,
                peer,
            });
        }
    }

    /// Gives the connection of an answer back that has been read to its end.
    pub(super) async fn read_out(&self, reached: Reached) {
        if reached.ended {
            self.connections.release(reached.upstream, &reached.peer).await;
        }
    }

    /// Calls a provider and collects its answer, which must be one of success.
    pub(super) async fn bring_answer(
        &self,
        road: &Road,
        out: &Out,
        notes: &mut Notes,
    ) -> Result<Bytes, ApiError> {
        let mut reached = self.reach(road, out, notes).await?;
        if !(200..300).contains(&reached.status) {
            let error = self.refusal(road, &mut reached, notes).await;
            self.read_out(reached).await;
            return Err(error);
        }
        let body = reached.whole(self.limits.answer).await?;
        self.read_out(reached).await;
        Ok(body)
    }

    /// What a provider's refusal means to the client.
    pub(super) async fn refusal(&self, road: &Road, reached: &mut Reached, notes: &mut Notes) -> ApiError {
        let body = reached.whole(MAX_ERROR_BODY).await.unwrap_or_default();
        let (status, retry_after) = (reached.status, reached.retry_after.clone());
        refused(road, status, retry_after, &body, notes)
    }
}

/// What a refusal means to the client.
pub(super) fn refused(
    road: &Road,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut Notes,
) -> ApiError {
    let provider = road.target().map(|target| &target.provider);
    let vendor = VendorError::decode(body);
    let detail = scrubbed(provider, vendor.message.clone());
    let mut error = from_vendor(status, vendor, retry_after);
    error.message = scrubbed(provider, error.message.into_owned()).into();
    notes.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
    error
}

/// The head of a call: that of the lane, with what differs.
fn head(road: &Road, target: &Target, out: &Out, upstream: &HttpSession) -> Option<Box<RequestHeader>> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = out.method.clone();
    parts.headers = road.lane.head();
    parts.uri = address_of(target, out.path.clone())?;
    if out.method == Method::GET {
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    } else {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(out.body.len()));
    }
    for (name, value) in out.headers {
        parts.headers.insert(*name, HeaderValue::from_static(value));
    }
    if let Ok(id) = HeaderValue::from_str(&road.request) {
        parts.headers.insert(names::X_REQUEST_ID, id);
    }
    let mut head = Box::new(RequestHeader::from(parts));
    if let HttpSession::H2(_) = upstream {
        head.set_version(http::Version::HTTP_2);
        head.remove_header(&header::HOST);
    }
    Some(head)
}

async fn say(upstream: &mut HttpSession, head: Box<RequestHeader>, out: &Out) -> pingora::Result<()> {
    if let Some(corked) = upstream.stream().and_then(Corked::of) {
        corked.cork();
    }
    upstream.write_request_header(head).await?;
    if let Some(corked) = upstream.stream().and_then(Corked::of) {
        corked.uncork();
    }
    match upstream {
        HttpSession::H1(h1) if out.method == Method::GET => h1.finish_body().await.map(|_| ()),
        upstream if out.method == Method::GET => upstream.write_request_body(Bytes::new(), true).await,
        upstream => send_piece(upstream, out.body.clone(), true).await,
    }
}
