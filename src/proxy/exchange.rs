//! The exchange with a provider, driven here on Pingora's connector.
//!
//! Pingora's own loop cannot carry a body that was read before the peer was chosen (docs/decisions/002). This loop goes
//! through the same rooms in the same order as the filters of the `ProxyHttp` implementation, and can do more: it reads
//! a refusal's body and keeps that connection, gathers what is already readable into one write, holds an answer's head
//! back until it is known whether the answer is one, and knows deadlines.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::coalesce::CoalescingStream;
use super::context::Context;
use super::early_response::RequestBody;
use super::exchange_timer::ExchangeTimer;
pub(super) use super::interim::listen;
use super::peer::Upstream;
use super::reply::{from_pingora, has_begun};
use super::resend::{Resends, Unanswered, is_downgrade};
use super::{Client, Gateway};
use crate::error::{ApiError, Kind};
use crate::provider::Timeouts;

/// How much of a body is given to the connection at a time: the time-out of a write is for one piece.
const SLICE: usize = 128 * 1024;
/// A body up to this size is one piece, whatever was changed in it.
const SMALL: usize = 16 * 1024;
/// How long one piece may take.
pub(super) const WRITE: Duration = Duration::from_secs(30);

/// How long an answer is waited for after the request could not be written to its end.
const REFUSED: Duration = Duration::from_secs(1);

/// Resolves when the process will not wait any longer; polled whenever an exchange waits.
pub(super) type Ended<'e> = Pin<&'e mut (dyn Future<Output = ()> + Send)>;

/// How an exchange ended.
pub(super) enum End {
    /// The client has the whole answer.
    Complete,
    /// It failed; what the client is to be told.
    Failed(ApiError),
    /// The provider refused it; what the client is to be told, and in which words.
    Refused(ApiError, Bytes),
}

impl Gateway {
    /// Runs the exchange and brings the client its answer, or an error.
    pub(super) async fn exchange(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut ended: Ended<'_>,
    ) -> pingora::Result<()> {
        let timeouts = timeouts_of(ctx);
        let now = Instant::now();
        let total = now + timeouts.total;
        let until = (now + timeouts.first_byte.min(timeouts.idle)).min(total);
        let due = self.patience(ctx).map(|span| now + span);
        let sleep = pin!(tokio::time::sleep_until(due.map_or(until, |due| due.min(until))));
        let mut clock = ExchangeTimer { sleep, until, begun: now, total, due, timeouts };
        let end = loop {
            let job = ctx.plan.as_mut().and_then(|plan| plan.job.take());
            let end = match job {
                None => self.attempt(client, ctx, &mut clock, &mut ended).await,
                // Boxed: the state of a job is none of an exchange's.
                Some(job) => Box::pin(self.run_job(client, ctx, job, &mut ended)).await,
            };
            let (error, body) = match end {
                End::Complete => break End::Complete,
                End::Failed(error) => (error, None),
                End::Refused(error, body) => (error, Some(body)),
            };
            // Boxed: most requests never fail.
            let begun = has_begun(client) && !ctx.kept;
            let next = if begun {
                Box::pin(self.go_on(client, ctx, error)).await
            } else {
                let chosen = Box::pin(self.fall_back(ctx, error, body));
                while_there(client, chosen).await.map_err(End::Failed).flatten()
            };
            match next {
                Ok(()) => clock.renew(timeouts_of(ctx)),
                Err(end) => break end,
            }
            if begun {
                // Its stream is silent while another target is asked.
                clock.wait_on(self.limits.heartbeat);
            }
        };
        // The body was kept for another try; nobody needs it any more.
        ctx.drop_body();
        match end {
            End::Complete => Ok(()),
            End::Failed(error) | End::Refused(error, _) if has_begun(client) => {
                self.break_off(client, ctx, &error).await
            }
            End::Failed(error) => self.reply_error(client, ctx, &error).await,
            End::Refused(error, body) => {
                self.note(ctx, &error);
                self.reply_refusal(client, ctx, &error, body).await
            }
        }
    }

    async fn attempt(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut Ended<'_>,
    ) -> End {
        let mut resends = Resends::default();
        loop {
            ctx.record.attempts += 1;
            ctx.turn();
            let mut within = clock.timeouts.connect;
            let link = ctx.plan.as_ref().and_then(|plan| ctx.live.link(&plan.lane));
            let peer = match link.and_then(|link| link.known(&self.resolver)) {
                Some(peer) => peer,
                None => {
                    let begun = Instant::now();
                    let resolved = self.resolve(client, ctx, clock, ended).await;
                    within = within.saturating_sub(begun.elapsed());
                    match resolved {
                        Ok(peer) => peer,
                        Err(end) => return end,
                    }
                }
            };
            let pooled = if resends.may_reuse() { self.connections.reused(&peer).await } else { None };
            let reused = pooled.is_some();
            let mut upstream = match pooled {
                Some(upstream) => upstream,
                None => match self.connect(client, ctx, &peer, within, clock, ended).await {
                    Ok(Ok(upstream)) => upstream,
                    Ok(Err(error)) if is_downgrade(&error) && resends.downgrade() => {
                        self.connections.prefer_http1(&peer);
                        continue;
                    }
                    Ok(Err(error)) => return failed(ctx, &error),
                    Err(end) => return end,
                },
            };
            if let Some(plan) = &ctx.plan {
                plan.lane.series.exchange(reused);
            }
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE));
            match self.ask(client, ctx, &mut upstream, clock, ended).await {
                Ok(heard) => {
                    self.close_if_stopping(client);
                    let end = self.answer(client, ctx, &mut upstream, clock, ended).await;
                    let read = matches!(end, End::Complete | End::Refused(..));
                    if read && heard == ReceiveResult::All {
                        self.connections.release(upstream, &peer);
                    }
                    return end;
                }
                Err(SendStatus::Told(error)) => return End::Failed(error),
                Err(SendStatus::Failed(mut error, delivered)) => {
                    error.retry.decide_reuse(reused);
                    let answered = upstream
                        .stream()
                        .and_then(CoalescingStream::of)
                        .is_some_and(CoalescingStream::is_answered);
                    if is_downgrade(&error) {
                        self.connections.prefer_http1(&peer);
                    }
                    let repeatable = true;
                    let unanswered = Unanswered { error: &error, reused, answered, delivered, repeatable };
                    match resends.decide(unanswered) {
                        Some(reason) => self.count_retry(ctx, reason.label()),
                        None => return failed(ctx, &error),
                    }
                }
            }
        }
    }

    /// Waits for what an exchange needs before it can ask, as long as the client, the process and the time for all of
    /// it last.
    async fn meanwhile<T>(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut Ended<'_>,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        let mut work = pin!(work);
        clock.allow_all();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                gone = client_gone(client) => return Err(End::Failed(gone)),
                () = ended.as_mut() => return Err(End::Failed(restarting())),
                () = clock.out() => {
                    if !clock.is_due() {
                        return Err(End::Failed(silent()));
                    }
                    if let Some((_, mut waiting)) = ctx.sides() {
                        self.keep_waiting(client, &mut waiting, clock).await.map_err(End::Failed)?;
                    }
                }
            }
        }
    }

    /// An address of the target's provider, asked for. Boxed: asking takes more state than the rest of an exchange, and
    /// hardly any request does.
    fn resolve<'f>(
        &'f self,
        client: &'f mut Client,
        ctx: &'f mut Context,
        clock: &'f mut ExchangeTimer<'_>,
        ended: &'f mut Ended<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Upstream>, End>> + Send + 'f>> {
        Box::pin(async move {
            let (live, lane) = (ctx.live.clone(), ctx.plan.as_ref().map(|plan| plan.lane.clone()));
            let Some(link) = lane.as_ref().and_then(|lane| live.link(lane)) else {
                return Err(failed(ctx, &Error::new_in(ErrorType::InternalError)));
            };
            let resolving = link.resolved(&self.resolver, clock.timeouts.connect);
            let resolved = self.meanwhile(client, ctx, clock, ended, resolving).await?;
            resolved.map_err(|error| {
                ctx.record.detail = Some(error.to_string().into_boxed_str());
                End::Failed(unresolved())
            })
        })
    }

    /// A new connection. Boxed, because the state of a handshake is larger than everything else here together, and most
    /// requests never need it.
    fn connect<'f>(
        &'f self,
        client: &'f mut Client,
        ctx: &'f mut Context,
        peer: &'f Upstream,
        within: Duration,
        clock: &'f mut ExchangeTimer<'_>,
        ended: &'f mut Ended<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<pingora::Result<HttpSession>, End>> + Send + 'f>> {
        Box::pin(async move {
            let connecting = Box::pin(self.connections.connect(peer, within));
            self.meanwhile(client, ctx, clock, ended, connecting).await
        })
    }

    pub(super) fn count_retry(&self, ctx: &mut Context, reason: &'static str) {
        if let Some(plan) = &mut ctx.plan {
            plan.sent = 0;
            let provider = plan.model.targets.get(plan.target).map_or("", |target| &target.provider.name);
            self.metrics.upstream_retries.with_label_values(&[provider, reason]).inc();
        }
    }

    /// Sends the request and waits for the head of the answer; the client may go away meanwhile.
    async fn ask(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &mut HttpSession,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut Ended<'_>,
    ) -> Result<ReceiveResult, SendStatus> {
        let mut head = Box::new(self.upstream_head(client, ctx)?);
        if let HttpSession::H2(_) = upstream {
            head.set_version(http::Version::HTTP_2);
            head.remove_header(&http::header::HOST);
        }
        let internal = || Error::new_in(ErrorType::InternalError);
        let (mut speech, mut waiting) = ctx.sides().ok_or_else(internal)?;
        let mut talk = pin!(async {
            if let Err(error) = say(upstream, head, &mut speech).await {
                // A provider may refuse a body without reading it to its end.
                let answered = tokio::time::timeout(REFUSED, listen(upstream)).await;
                return if matches!(answered, Ok(Ok(()))) {
                    Ok(ReceiveResult::Part)
                } else {
                    Err((error, None))
                };
            }
            let delivered = Instant::now();
            listen(upstream).await.map(|()| ReceiveResult::All).map_err(|error| (error, Some(delivered)))
        });
        clock.allow(clock.timeouts.first_byte);
        loop {
            tokio::select! {
                biased;
                heard = &mut talk => {
                    return heard.map_err(|(error, delivered)| SendStatus::Failed(error.into_up(), delivered));
                }
                gone = client_gone(client) => return Err(SendStatus::Told(gone)),
                () = ended.as_mut() => return Err(SendStatus::Told(restarting())),
                () = clock.out() => {
                    if !clock.is_due() {
                        return Err(SendStatus::Told(silent()));
                    }
                    self.keep_waiting(client, &mut waiting, clock).await.map_err(SendStatus::Told)?;
                }
            }
        }
    }
}

/// How long is waited for the target.
fn timeouts_of(ctx: &Context) -> Timeouts {
    ctx.plan.as_ref().and_then(|plan| plan.target()).map(|target| target.timeouts).unwrap_or_default()
}

/// How much of the request a provider has heard when it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveResult {
    All,
    /// It closed its ear before the end; the connection is of no more use.
    Part,
}

/// Writes the request.
async fn say(
    upstream: &mut HttpSession,
    head: Box<RequestHeader>,
    speech: &mut RequestBody<'_>,
) -> pingora::Result<()> {
    if let Some(corked) = upstream.stream().and_then(CoalescingStream::of) {
        corked.cork();
    }
    upstream.write_request_header(head).await?;
    if let Some(corked) = upstream.stream().and_then(CoalescingStream::of) {
        corked.uncork();
    }
    let small = speech.length <= SMALL;
    loop {
        let piece = speech.next(small).unwrap_or_default();
        let last = speech.is_over();
        send_piece(upstream, piece, last).await?;
        if last {
            *speech.said = true;
            return Ok(());
        }
    }
}

/// Writes a piece of the request body, in slices.
pub(super) async fn send_piece(
    upstream: &mut HttpSession,
    mut piece: Bytes,
    last: bool,
) -> pingora::Result<()> {
    loop {
        let slice = piece.split_to(SLICE.min(piece.len()));
        let end = last && piece.is_empty();
        upstream.write_request_body(slice, end).await?;
        if piece.is_empty() {
            break;
        }
    }
    match upstream {
        HttpSession::H1(h1) if last => h1.finish_body().await.map(|_| ()),
        _ => Ok(()),
    }
}

/// Why no answer began.
enum SendStatus {
    /// What the client is to be told.
    Told(ApiError),
    /// The connection failed, and when all of the request had been written to it.
    Failed(Box<Error>, Option<Instant>),
}

impl From<Box<Error>> for SendStatus {
    fn from(error: Box<Error>) -> Self {
        SendStatus::Failed(error, None)
    }
}

/// Resolves when the client goes away.
pub(super) async fn client_gone(client: &mut Client) -> ApiError {
    // Bytes of a next request are kept by Pingora; only an end or an error of the connection comes back.
    let _ = client.read_body_or_idle(true).await;
    ApiError::new(Kind::ClientGone, "The client closed the connection.")
}

/// What comes of work that may have to wait, unless the client goes away before.
pub(super) async fn while_there<T>(
    client: &mut Client,
    work: impl Future<Output = T>,
) -> Result<T, ApiError> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        gone = client_gone(client) => Err(gone),
    }
}

/// The provider has said nothing for too long.
pub(super) fn silent() -> ApiError {
    ApiError::new(Kind::UpstreamTimeout, "The upstream provider did not answer in time.")
}

/// The provider does not keep the rate that it must.
pub(super) fn too_slow() -> ApiError {
    ApiError::new(Kind::UpstreamTimeout, "The upstream provider's answer comes too slowly.")
}

/// The provider's name leads nowhere.
pub(super) fn unresolved() -> ApiError {
    let told = "The upstream provider cannot be reached: its name has no address.";
    ApiError::new(Kind::UpstreamUnreachable, told)
}

/// The process ends.
pub(super) fn restarting() -> ApiError {
    ApiError::new(Kind::ShuttingDown, "The gateway is restarting; please try again.")
}

/// The failure that a room left, or what the connection's error means.
pub(super) fn failed(ctx: &mut Context, error: &Error) -> End {
    if ctx.record.detail.is_none() {
        ctx.record.detail = Some(error.to_string().into_boxed_str());
    }
    End::Failed(match ctx.failure.take() {
        Some(failure) => *failure,
        None => from_pingora(error),
    })
}
