//! Upstream exchange: one request at a provider, from the connection to the end of its response.
//!
//! Pingora's own proxy loop cannot carry a request body that was read before the peer was selected
//! (docs/decisions/002). This loop runs on Pingora's connector and calls the same modules in the same order as the
//! filters of the `ProxyHttp` implementation. In addition it reads the body of an upstream error, so that the
//! connection can be reused; coalesces what is already readable into one write; holds a response head back until the
//! first frames show whether the response is an error; and enforces deadlines.
//!
//! Forwarding the response belongs to `answer`, the choice of the next target to `fallback` and `resume`, resends on a
//! new connection to `resend`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::coalesce::CoalescingStream;
use super::early_response::RequestBody;
use super::exchange_timer::ExchangeTimer;
pub(in crate::proxy) use super::interim::read_response_head;
use super::peer::Upstream;
use super::resend::{Resends, Unanswered, is_downgrade};
use crate::error::{ApiError, ErrorKind};
use crate::provider::Timeouts;
use crate::proxy::Client;
use crate::proxy::Gateway;
use crate::proxy::gateway::context::Context;
use crate::proxy::gateway::reply::{from_pingora, is_head_sent};

/// Largest slice of a request body in one write, in bytes. The write time-out applies to one slice.
const WRITE_SLICE: usize = 128 * 1024;
/// Largest body that is written as one piece, in bytes, even if edits have split it.
const SINGLE_WRITE_LIMIT: usize = 16 * 1024;
/// Write time-out of one slice of a request body.
pub(in crate::proxy) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for a response head after writing the request has failed.
const EARLY_ERROR_TIMEOUT: Duration = Duration::from_secs(1);

/// Future that resolves when the drain deadline of a shutdown has passed. It is polled whenever an exchange waits.
pub(in crate::proxy) type DrainDeadline<'e> = Pin<&'e mut (dyn Future<Output = ()> + Send)>;

/// Outcome of one attempt or of the whole exchange.
pub(in crate::proxy) enum ExchangeOutcome {
    /// The complete response was sent to the client.
    Complete,
    /// The attempt failed; the error for the client.
    Failed(ApiError),
    /// The provider answered with an error; the error and its body in the client's format.
    UpstreamError(ApiError, Bytes),
}

impl Gateway {
    /// Runs the exchange of a request with fallback and resumption, and writes the response or an error to the client.
    pub(in crate::proxy) async fn exchange(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        mut ended: DrainDeadline<'_>,
    ) -> pingora::Result<()> {
        let timeouts = timeouts_of(ctx);
        let now = Instant::now();
        let total = now + timeouts.total;
        let until = (now + timeouts.first_byte.min(timeouts.idle)).min(total);
        // One timer serves the deadline and the early response (`limits.slow_start`), whichever is earlier.
        let due = self.slow_start_delay(ctx).map(|span| now + span);
        let sleep = pin!(tokio::time::sleep_until(due.map_or(until, |due| due.min(until))));
        let mut clock = ExchangeTimer { sleep, until, started: now, total, next_filler_at: due, timeouts };
        let end = loop {
            let job = ctx.attempt.as_mut().and_then(|plan| plan.job.take());
            let end = match job {
                None => self.attempt(client, ctx, &mut clock, &mut ended).await,
                // Boxed: the state of a job would enlarge the future of every exchange.
                Some(job) => Box::pin(self.run_job(client, ctx, job, &mut ended)).await,
            };
            let (error, body) = match end {
                ExchangeOutcome::Complete => break ExchangeOutcome::Complete,
                ExchangeOutcome::Failed(error) => (error, None),
                ExchangeOutcome::UpstreamError(error, body) => (error, Some(body)),
            };
            // With only an early head and filler sent, another target can still answer the whole request. Once a frame
            // of a response has left, another target can only resume the stream. Boxed: most requests never fail.
            let begun = is_head_sent(client) && !ctx.early_head_sent;
            let next = if begun {
                Box::pin(self.resume_stream(client, ctx, error)).await
            } else {
                let chosen = Box::pin(self.fall_back(ctx, error, body));
                run_while_connected(client, chosen).await.map_err(ExchangeOutcome::Failed).flatten()
            };
            match next {
                Ok(()) => clock.apply_timeouts(timeouts_of(ctx)),
                Err(end) => break end,
            }
            if begun {
                // The client's stream is idle while the next target is contacted: filler must keep it open.
                clock.schedule_filler(self.limits.heartbeat);
            }
        };
        // No attempt follows: free the request body.
        ctx.drop_body();
        match end {
            ExchangeOutcome::Complete => Ok(()),
            ExchangeOutcome::Failed(error) | ExchangeOutcome::UpstreamError(error, _)
                if is_head_sent(client) =>
            {
                self.abort_response(client, ctx, &error).await
            }
            ExchangeOutcome::Failed(error) => self.reply_error(client, ctx, &error).await,
            ExchangeOutcome::UpstreamError(error, body) => {
                self.record_error(ctx, &error);
                self.reply_refusal(client, ctx, &error, body).await
            }
        }
    }

    /// Makes one attempt at the selected target, with the resends on a new connection that [`Resends`] permits.
    async fn attempt(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut DrainDeadline<'_>,
    ) -> ExchangeOutcome {
        let mut resends = Resends::default();
        loop {
            ctx.record.attempts += 1;
            ctx.start_attempt();
            let mut within = clock.timeouts.connect;
            let link = ctx.attempt.as_ref().and_then(|plan| ctx.active.addresses_of(&plan.upstream_route));
            let peer = match link.and_then(|link| link.cached(&self.resolver)) {
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
            // A resend bypasses the pool: another pooled connection may be stale too, and there is only one resend.
            let pooled = if resends.may_reuse() { self.connections.take_idle(&peer).await } else { None };
            let reused = pooled.is_some();
            let mut upstream = match pooled {
                Some(upstream) => upstream,
                None => match self.connect(client, ctx, &peer, within, clock, ended).await {
                    Ok(Ok(upstream)) => upstream,
                    Ok(Err(error)) if is_downgrade(&error) && resends.downgrade() => {
                        self.connections.prefer_http1(&peer);
                        continue;
                    }
                    Ok(Err(error)) => return failed_outcome(ctx, &error),
                    Err(end) => return end,
                },
            };
            if let Some(plan) = &ctx.attempt {
                plan.upstream_route.series.exchange(reused);
            }
            // Reads are bounded by the exchange timer, which also sends the filler.
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE_TIMEOUT));
            match self.send_request(client, ctx, &mut upstream, clock, ended).await {
                Ok(heard) => {
                    self.close_if_stopping(client);
                    let end = self.forward_response(client, ctx, &mut upstream, clock, ended).await;
                    // Unread bytes of this exchange would corrupt the next response on the connection.
                    let read = matches!(end, ExchangeOutcome::Complete | ExchangeOutcome::UpstreamError(..));
                    if read && heard == WrittenPart::Whole {
                        self.connections.release(upstream, &peer);
                    }
                    return end;
                }
                Err(AttemptError::Abort(error)) => return ExchangeOutcome::Failed(error),
                Err(AttemptError::Connection(mut error, delivered)) => {
                    error.retry.decide_reuse(reused);
                    let answered = upstream
                        .stream()
                        .and_then(CoalescingStream::of)
                        .is_some_and(CoalescingStream::has_response);
                    if is_downgrade(&error) {
                        self.connections.prefer_http1(&peer);
                    }
                    let unanswered =
                        Unanswered { error: &error, reused, answered, delivered, repeatable: true };
                    match resends.decide(unanswered) {
                        Some(reason) => self.count_retry(ctx, reason.label()),
                        None => return failed_outcome(ctx, &error),
                    }
                }
            }
        }
    }

    /// Runs `work` (name resolution or a connect) while it watches the client, the shutdown and the total time-out.
    /// `work` has a time-out of its own, so only the total time-out of the exchange applies here.
    ///
    /// # Errors
    /// Returns [`AttemptError::Connection`] if the client disconnects, the drain deadline passes or the total
    /// time-out expires.
    async fn run_cancellable<T>(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut DrainDeadline<'_>,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeOutcome> {
        let mut work = pin!(work);
        clock.set_total_deadline();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                gone = client_gone(client) => return Err(ExchangeOutcome::Failed(gone)),
                () = ended.as_mut() => return Err(ExchangeOutcome::Failed(shutdown_error())),
                () = clock.elapsed() => {
                    if !clock.is_due() {
                        return Err(ExchangeOutcome::Failed(timeout_error()));
                    }
                    if let Some((_, mut waiting)) = ctx.split_for_send() {
                        self.send_early_keepalive(client, &mut waiting, clock).await.map_err(ExchangeOutcome::Failed)?;
                    }
                }
            }
        }
    }

    /// Resolves the name of the target's provider. Boxed: a look-up takes more state than the rest of an exchange, and
    /// few requests need one.
    fn resolve<'f>(
        &'f self,
        client: &'f mut Client,
        ctx: &'f mut Context,
        clock: &'f mut ExchangeTimer<'_>,
        ended: &'f mut DrainDeadline<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Upstream>, ExchangeOutcome>> + Send + 'f>> {
        Box::pin(async move {
            let (live, lane) =
                (ctx.active.clone(), ctx.attempt.as_ref().map(|plan| plan.upstream_route.clone()));
            let Some(link) = lane.as_ref().and_then(|lane| live.addresses_of(lane)) else {
                return Err(failed_outcome(ctx, &Error::new_in(ErrorType::InternalError)));
            };
            let resolving = link.resolve(&self.resolver, clock.timeouts.connect);
            let resolved = self.run_cancellable(client, ctx, clock, ended, resolving).await?;
            resolved.map_err(|error| {
                ctx.record.detail = Some(error.to_string().into_boxed_str());
                ExchangeOutcome::Failed(resolution_error())
            })
        })
    }

    /// Opens a new connection. Boxed: the state of a TLS handshake is larger than that of the rest of an exchange, and
    /// most requests reuse a connection.
    fn connect<'f>(
        &'f self,
        client: &'f mut Client,
        ctx: &'f mut Context,
        peer: &'f Upstream,
        within: Duration,
        clock: &'f mut ExchangeTimer<'_>,
        ended: &'f mut DrainDeadline<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<pingora::Result<HttpSession>, ExchangeOutcome>> + Send + 'f>>
    {
        Box::pin(async move {
            let connecting = Box::pin(self.connections.connect(peer, within));
            self.run_cancellable(client, ctx, clock, ended, connecting).await
        })
    }

    /// Counts a retry and rewinds the request body to its beginning.
    pub(in crate::proxy) fn count_retry(&self, ctx: &mut Context, reason: &'static str) {
        if let Some(plan) = &mut ctx.attempt {
            plan.pieces_sent = 0;
            let provider = plan.model.targets.get(plan.target).map_or("", |target| &target.provider.name);
            self.metrics.upstream_retries.with_label_values(&[provider, reason]).inc();
        }
    }

    /// Sends the request and waits for the response head.
    ///
    /// # Errors
    /// Returns [`AttemptError`] if the connection fails, or if the exchange must end before a response head has
    /// arrived.
    async fn send_request(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        upstream: &mut HttpSession,
        clock: &mut ExchangeTimer<'_>,
        ended: &mut DrainDeadline<'_>,
    ) -> Result<WrittenPart, AttemptError> {
        let mut head = Box::new(self.upstream_head(client, ctx)?);
        // HTTP/2 carries the host in `:authority` (RFC 9113, section 8.3.1).
        if let HttpSession::H2(_) = upstream {
            head.set_version(http::Version::HTTP_2);
            head.remove_header(&http::header::HOST);
        }
        let internal = || Error::new_in(ErrorType::InternalError);
        let (mut speech, mut waiting) = ctx.split_for_send().ok_or_else(internal)?;
        let mut talk = pin!(async {
            if let Err(error) = write_request(upstream, head, &mut speech).await {
                // A provider may reject a request before it has read the whole body. The write then fails although the
                // error response has arrived: read it, because it explains the failure.
                let answered = tokio::time::timeout(EARLY_ERROR_TIMEOUT, read_response_head(upstream)).await;
                return if matches!(answered, Ok(Ok(()))) {
                    Ok(WrittenPart::Partial)
                } else {
                    Err((error, None))
                };
            }
            let delivered = Instant::now();
            read_response_head(upstream)
                .await
                .map(|()| WrittenPart::Whole)
                .map_err(|error| (error, Some(delivered)))
        });
        clock.set_deadline(clock.timeouts.first_byte);
        loop {
            tokio::select! {
                biased;
                heard = &mut talk => {
                    return heard.map_err(|(error, delivered)| AttemptError::Connection(error.into_up(), delivered));
                }
                gone = client_gone(client) => return Err(AttemptError::Abort(gone)),
                () = ended.as_mut() => return Err(AttemptError::Abort(shutdown_error())),
                () = clock.elapsed() => {
                    if !clock.is_due() {
                        return Err(AttemptError::Abort(timeout_error()));
                    }
                    self.send_early_keepalive(client, &mut waiting, clock).await.map_err(AttemptError::Abort)?;
                }
            }
        }
    }
}

/// Returns the time-outs of the selected target, or the defaults if none is selected.
fn timeouts_of(ctx: &Context) -> Timeouts {
    ctx.attempt.as_ref().and_then(|plan| plan.target()).map(|target| target.timeouts).unwrap_or_default()
}

/// Part of the request that was written before the response head arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenPart {
    Whole,
    /// The upstream answered before reading the whole body: do not return the connection to the pool.
    Partial,
}

/// Writes the request. The head is corked, so that it leaves in one write with the first piece of the body.
async fn write_request(
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
    let small = speech.length <= SINGLE_WRITE_LIMIT;
    loop {
        let piece = speech.next(small).unwrap_or_default();
        let last = speech.is_finished();
        send_piece(upstream, piece, last).await?;
        if last {
            *speech.body_sent = true;
            return Ok(());
        }
    }
}

/// Writes a piece of the request body in slices of [`WRITE_SLICE`] bytes. `last` ends the body.
pub(in crate::proxy) async fn send_piece(
    upstream: &mut HttpSession,
    mut piece: Bytes,
    last: bool,
) -> pingora::Result<()> {
    loop {
        let slice = piece.split_to(WRITE_SLICE.min(piece.len()));
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

/// Reason why no response head arrived.
enum AttemptError {
    /// The exchange must end (client gone, shutdown or time-out); the error for the client.
    Abort(ApiError),
    /// The connection failed. The time is that at which the whole request had been written, `None` if it had not.
    Connection(Box<Error>, Option<Instant>),
}

impl From<Box<Error>> for AttemptError {
    fn from(error: Box<Error>) -> Self {
        AttemptError::Connection(error, None)
    }
}

/// Resolves when the client closes its connection.
pub(in crate::proxy) async fn client_gone(client: &mut Client) -> ApiError {
    // Pingora buffers the bytes of a pipelined request; this read returns only at the end or on an error of the
    // connection.
    let _ = client.read_body_or_idle(true).await;
    ApiError::new(ErrorKind::ClientGone, "The client closed the connection.")
}

/// Runs `work` until it is done or the client disconnects.
///
/// # Errors
/// Returns [`ErrorKind::ClientGone`] if the client disconnects first.
pub(in crate::proxy) async fn run_while_connected<T>(
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

/// Time-out error: the provider sent nothing in time.
pub(in crate::proxy) fn timeout_error() -> ApiError {
    ApiError::new(ErrorKind::UpstreamTimeout, "The upstream provider did not respond in time.")
}

/// Time-out error: the response arrives at less than `timeouts.min_rate`.
pub(in crate::proxy) fn low_rate_error() -> ApiError {
    ApiError::new(ErrorKind::UpstreamTimeout, "The upstream provider's response is too slow.")
}

/// Resolution error: the provider's name has no address.
pub(in crate::proxy) fn resolution_error() -> ApiError {
    let told = "The upstream provider cannot be reached: its host name has no address.";
    ApiError::new(ErrorKind::UpstreamUnreachable, told)
}

/// Shutdown error: the drain deadline has passed.
pub(in crate::proxy) fn shutdown_error() -> ApiError {
    ApiError::new(ErrorKind::ShuttingDown, "The gateway is restarting; please try again.")
}

/// Failed outcome: the failure that a filter left in `ctx.failure`, otherwise the meaning of the connection error.
/// Notes the error as the detail for the access log, unless there is one.
pub(in crate::proxy) fn failed_outcome(ctx: &mut Context, error: &Error) -> ExchangeOutcome {
    if ctx.record.detail.is_none() {
        ctx.record.detail = Some(error.to_string().into_boxed_str());
    }
    ExchangeOutcome::Failed(match ctx.failure.take() {
        Some(failure) => *failure,
        None => from_pingora(error),
    })
}
