//! Jobs: answers that the gateway makes itself, out of calls of a provider.
//!
//! A call goes the same way as an exchange does: the lane's head, the provider's connections, its time-outs, one more try
//! where a connection from the pool had been closed. But its answer is collected, and nothing of it leaves before the
//! job is done (docs/decisions/008).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::context::{Answer, Context, Made};
use super::cork::Corked;
use super::encoding::Decoder;
use super::exchange::{End, Ended, WRITE, client_gone, is_downgrade, listen, restarting, send_piece, silent};
use super::fetch::FetchFault;
use super::lane::{Lane, address_of};
use super::live::Live;
use super::reader::{Read, Reader};
use super::reply::from_pingora;
use super::response::MAX_ERROR_BODY;
use super::upstream::scrubbed;
use super::{Client, Gateway, names};
use crate::error::{ApiError, Kind, RetryAfter};
use crate::job::{Call, Fault, Job, Link, Reply, To};
use crate::route::{Model, Target};
use crate::store::Settled;
use crate::wire::error::{VendorError, from_vendor};

/// Calls of one job that are under way at a time: enough to be quick, too few to use a provider's limits up for others.
const AT_ONCE: usize = 4;

/// Lengths of answers that room is made for before they come.
const AHEAD: std::ops::Range<usize> = 64 << 10..64 << 20;

/// The way that all calls of a job go.
struct Way {
    live: Arc<Live>,
    lane: Arc<Lane>,
    model: Arc<Model>,
    target: usize,
    head: HeaderMap,
    deadline: tokio::time::Instant,
}

impl Way {
    fn target(&self) -> Option<&Target> {
        self.model.targets.get(self.target)
    }
}

/// What is noted of calls, for the log.
#[derive(Debug, Default)]
struct Notes {
    attempts: u32,
    /// A whole request has gone out.
    said: bool,
    /// One has, and it is not known what became of it.
    unanswered: bool,
    /// A call went well.
    created: bool,
    answered: Option<Instant>,
    status: Option<u16>,
    id: Option<Box<str>>,
    detail: Option<Box<str>>,
    /// Bytes of answers so far.
    taken: usize,
}

/// An answer of a provider.
struct Heard {
    status: u16,
    retry_after: Option<RetryAfter>,
    body: Bytes,
}

impl Gateway {
    /// Does a job and brings the client its answer.
    pub(super) async fn run_job(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut job: Box<dyn Job>,
        ended: &mut Ended<'_>,
    ) -> End {
        let Some(way) = self.way(client, ctx) else { return End::Failed(broken()) };
        let way = Arc::new(way);
        ctx.turn();
        let mut notes = Notes::default();
        let end = {
            let work = pin!(self.work(&mut *job, &way, &mut notes));
            tokio::select! {
                biased;
                end = work => end,
                gone = client_gone(client) => Err(gone),
                () = ended.as_mut() => Err(restarting()),
            }
        };
        let record = &mut ctx.record;
        record.attempts += notes.attempts;
        record.said = notes.said;
        record.answered = notes.answered;
        record.upstream_status = notes.status;
        record.upstream_id = notes.id.take();
        record.detail = notes.detail.take();
        match end {
            Ok(Reply { body, usage, made: products, counted }) => {
                ctx.answer = Answer::Made(Made { usage, products, counted });
                ctx.answered_well(Instant::now());
                // Nobody has an answer that is not charged.
                match ctx.settle(true) {
                    None => {}
                    Some(Settled::Known(outcome)) => self.settled(ctx, outcome),
                    Some(pending) => Box::pin(self.settling(ctx, pending)).await,
                }
                match self.reply_made(client, ctx, body).await {
                    Ok(()) => End::Complete,
                    Err(error) => End::Failed(error),
                }
            }
            Err(error) => {
                // What may have been made must not be made again.
                let unknown = notes.unanswered || notes.created;
                if unknown && !job.is_repeatable() {
                    ctx.origin = None;
                }
                End::Failed(error)
            }
        }
    }

    fn way(&self, client: &Client, ctx: &Context) -> Option<Way> {
        let head = self.upstream_head(client, ctx).ok()?;
        let plan = ctx.plan.as_ref()?;
        let total = plan.target()?.timeouts.total;
        Some(Way {
            live: ctx.live.clone(),
            lane: plan.lane.clone(),
            model: plan.model.clone(),
            target: plan.target,
            head: head.headers.clone(),
            deadline: tokio::time::Instant::now() + total,
        })
    }

    /// All rounds of a job.
    async fn work(&self, job: &mut dyn Job, way: &Arc<Way>, notes: &mut Notes) -> Result<Reply, ApiError> {
        loop {
            let calls = job.next();
            if calls.is_empty() {
                break;
            }
            self.round(job, way, notes, calls).await?;
        }
        job.finish().map_err(|fault| match fault {
            Fault::Failed(body) => refusal(way, error_status(&body), None, &body, notes),
            Fault::Broken(detail) => {
                notes.detail = Some(detail.into_boxed_str());
                broken()
            }
            Fault::Refused(mut error) => {
                let provider = way.target().map(|target| &target.provider);
                error.message = scrubbed(provider, error.message.into_owned()).into();
                error
            }
        })
    }

    /// The calls of one round, some of them at a time. What is under way when one fails is given up.
    async fn round(
        &self,
        job: &mut dyn Job,
        way: &Arc<Way>,
        notes: &mut Notes,
        calls: Vec<Call>,
    ) -> Result<(), ApiError> {
        let mut waiting: VecDeque<(usize, Call)> = calls.into_iter().enumerate().collect();
        if waiting.len() == 1 {
            if let Some((number, call)) = waiting.pop_front() {
                let body = self.bring(way, &call, notes).await?;
                self.weigh(notes, body.len())?;
                job.heard(number, body);
            }
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some((number, call)) = waiting.pop_front()
            {
                let (gateway, way) = (self.clone(), way.clone());
                tasks.spawn(async move {
                    let mut notes = Notes::default();
                    let brought = gateway.bring(&way, &call, &mut notes).await;
                    (number, brought, notes)
                });
            }
            let Some(done) = tasks.join_next().await else { return Ok(()) };
            let (number, brought, noted) = done.map_err(|_| broken())?;
            notes.attempts += noted.attempts;
            notes.said |= noted.said;
            notes.unanswered |= noted.unanswered;
            notes.created |= noted.created;
            notes.answered = notes.answered.or(noted.answered);
            notes.status = noted.status.or(notes.status);
            notes.id = notes.id.take().or(noted.id);
            notes.detail = noted.detail.or(notes.detail.take());
            let body = brought?;
            self.weigh(notes, body.len())?;
            job.heard(number, body);
        }
    }

    /// All answers together, and what lies behind links, are no more than one answer may be: a job holds them all.
    fn weigh(&self, notes: &mut Notes, length: usize) -> Result<(), ApiError> {
        notes.taken = notes.taken.saturating_add(length);
        if notes.taken <= self.limits.answer {
            return Ok(());
        }
        let message =
            format!("The upstream provider's answers are larger than {} bytes together.", self.limits.answer);
        Err(ApiError::new(Kind::UpstreamBroken, message))
    }

    /// What a call brings: an answer that is none of an error, or what lies behind a link.
    async fn bring(&self, way: &Way, call: &Call, notes: &mut Notes) -> Result<Bytes, ApiError> {
        if !call.after.is_zero() {
            let until = tokio::time::Instant::now() + call.after;
            if until > way.deadline {
                return Err(silent());
            }
            tokio::time::sleep_until(until).await;
        }
        match &call.to {
            To::Link(link) => {
                let most = link.most.unwrap_or(usize::MAX).min(self.limits.fetch);
                let fetched = timeout_at(way.deadline, Box::pin(self.fetch(&link.url, most))).await;
                let fetched = fetched.unwrap_or(Err(FetchFault::Slow));
                let from = if link.field.is_some() { "client" } else { "provider" };
                let result = fetched.as_ref().map_or_else(FetchFault::label, |_| "ok");
                self.metrics.links.with_label_values(&[from, result]).inc();
                fetched.map_err(|fault| unfetched(link, &fault, notes))
            }
            _ => {
                let heard = self.call(way, call, notes).await?;
                accepted(way, heard, notes)
            }
        }
    }

    /// One call, on a connection from the pool or a new one.
    async fn call(&self, way: &Way, call: &Call, notes: &mut Notes) -> Result<Heard, ApiError> {
        let target = way.target().ok_or_else(broken)?;
        let link = way.live.link(&way.lane).ok_or_else(broken)?;
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
            way.lane.series.exchange(reused);
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE));
            let timeouts = target.timeouts;
            let head = head(way, target, call, &upstream).ok_or_else(broken)?;
            let body = (!matches!(call.to, To::Look(_))).then(|| call.body.clone());
            let talk = async {
                say(&mut upstream, head, body).await?;
                notes.said = true;
                notes.unanswered = true;
                listen(&mut upstream).await
            };
            let until = (tokio::time::Instant::now() + timeouts.first_byte).min(way.deadline);
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
            let heard = self.hear(way, &mut upstream, timeouts.idle, notes).await?;
            notes.unanswered = false;
            notes.created |= (200..300).contains(&heard.status);
            self.connections.release(upstream, &peer).await;
            return Ok(heard);
        }
    }

    /// Collects an answer.
    async fn hear(
        &self,
        way: &Way,
        upstream: &mut HttpSession,
        idle: Duration,
        notes: &mut Notes,
    ) -> Result<Heard, ApiError> {
        let head = upstream.response_header().ok_or_else(broken)?;
        let text = |name: &header::HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let status = head.status.as_u16();
        let success = head.status.is_success();
        notes.status = Some(status);
        let id = text(&names::X_REQUEST_ID).or_else(|| text(&names::REQUEST_ID));
        notes.id = id.map(|id| id.chars().take(128).collect::<String>().into_boxed_str());
        let retry_after = text(&header::RETRY_AFTER).map(|text| RetryAfter::Header(text.to_owned()));
        let encoding = text(&header::CONTENT_ENCODING).unwrap_or_default();
        let mut wrong = |error: &dyn std::fmt::Display| {
            notes.detail = Some(error.to_string().into_boxed_str());
            broken()
        };
        let mut decoder = Decoder::new(encoding).map_err(|error| wrong(&error))?;
        let limit = if success { self.limits.answer } else { MAX_ERROR_BODY };
        // What is large says so; it is not moved about while it grows.
        let length = text(&header::CONTENT_LENGTH).and_then(|length| length.trim().parse::<usize>().ok());
        let ahead = length.filter(|length| *length > AHEAD.start && decoder.is_none() && success);
        let mut body = BytesMut::with_capacity(ahead.map_or(0, |length| length.min(AHEAD.end).min(limit)));
        let mut reader = Reader::new(false);
        loop {
            let until = (tokio::time::Instant::now() + idle).min(way.deadline);
            let read = timeout_at(until, reader.read(upstream)).await.map_err(|_| silent())?;
            let (piece, end) = match read {
                Read::Piece(piece) => (piece, false),
                Read::Last(piece) => (piece, true),
                Read::Broken(_, error) => {
                    wrong(&error);
                    return Err(from_pingora(&error.into_up()));
                }
            };
            let piece = match &mut decoder {
                Some(decoder) if !piece.is_empty() => {
                    decoder.decode(&piece).map_err(|error| wrong(&error))?
                }
                _ => piece,
            };
            if body.len() + piece.len() > limit && success {
                let message = format!("The upstream provider's answer is larger than {limit} bytes.");
                return Err(ApiError::new(Kind::UpstreamBroken, message));
            }
            let room = limit.saturating_sub(body.len()).min(piece.len());
            if end && body.is_empty() && room == piece.len() {
                // The usual answer comes in one piece and is not copied.
                return Ok(Heard { status, retry_after, body: piece });
            }
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            if end {
                return Ok(Heard { status, retry_after, body: body.freeze() });
            }
        }
    }
}

/// The head of a call: that of the lane, with what differs.
fn head(way: &Way, target: &Target, call: &Call, upstream: &HttpSession) -> Option<Box<RequestHeader>> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.headers = way.head.clone();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
    if let Some(media) = &call.media {
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media).ok()?);
    }
    for (name, value) in call.headers {
        parts.headers.insert(*name, HeaderValue::from_static(value));
    }
    parts.uri = match &call.to {
        To::Api(action) => way.lane.uri(target, *action)?,
        To::Path(path) => address_of(target, path.to_string())?,
        To::Look(path) => {
            parts.method = Method::GET;
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove(header::CONTENT_TYPE);
            address_of(target, path.to_string())?
        }
        To::Link(_) => return None,
    };
    let mut head = Box::new(RequestHeader::from(parts));
    if let HttpSession::H2(_) = upstream {
        head.set_version(http::Version::HTTP_2);
        head.remove_header(&header::HOST);
    }
    Some(head)
}

async fn say(
    upstream: &mut HttpSession,
    head: Box<RequestHeader>,
    body: Option<Bytes>,
) -> pingora::Result<()> {
    if let Some(corked) = upstream.stream().and_then(Corked::of) {
        corked.cork();
    }
    upstream.write_request_header(head).await?;
    if let Some(corked) = upstream.stream().and_then(Corked::of) {
        corked.uncork();
    }
    match (body, upstream) {
        (Some(body), upstream) => send_piece(upstream, body, true).await,
        (None, HttpSession::H1(h1)) => h1.finish_body().await.map(|_| ()),
        (None, upstream) => upstream.write_request_body(Bytes::new(), true).await,
    }
}

/// What it means to the client that nothing could be brought. Where its own link leads to is not told beyond what it
/// could see itself.
fn unfetched(link: &Link, fault: &FetchFault, notes: &mut Notes) -> ApiError {
    notes.detail = fault.detail().map(Into::into).or_else(|| Some(fault.to_string().into_boxed_str()));
    if let Some(field) = &link.field {
        let message = format!("'{field}' cannot be brought: {fault}.");
        return ApiError::new(Kind::InvalidField, message).param(field.to_string());
    }
    let (kind, message) = match fault {
        FetchFault::Slow => {
            (Kind::UpstreamTimeout, "What the upstream provider made could not be brought in time.")
        }
        FetchFault::Status(401..=410) => (
            Kind::UpstreamBroken,
            "The upstream provider's link to what it made is not valid, or not any more.",
        ),
        _ => (Kind::UpstreamBroken, "What the upstream provider made could not be brought."),
    };
    ApiError::new(kind, message)
}

/// The body of an answer that is none of an error.
fn accepted(way: &Way, heard: Heard, notes: &mut Notes) -> Result<Bytes, ApiError> {
    if (200..300).contains(&heard.status) {
        return Ok(heard.body);
    }
    Err(refusal(way, heard.status, heard.retry_after, &heard.body, notes))
}

/// What a provider's refusal means to the client.
fn refusal(
    way: &Way,
    status: u16,
    retry_after: Option<RetryAfter>,
    body: &[u8],
    notes: &mut Notes,
) -> ApiError {
    let provider = way.target().map(|target| &target.provider);
    let vendor = VendorError::decode(body);
    let detail = scrubbed(provider, vendor.message.clone());
    let mut error = from_vendor(status, vendor, retry_after);
    error.message = scrubbed(provider, error.message.into_owned()).into();
    notes.detail = (*detail != *error.message).then(|| detail.into_boxed_str());
    error
}

/// The status that an error would have had that came with 200.
fn error_status(body: &[u8]) -> u16 {
    super::response::status_of(&VendorError::decode(body))
}

fn broken() -> ApiError {
    ApiError::new(Kind::UpstreamBroken, "The upstream provider's answer is not valid.")
}
