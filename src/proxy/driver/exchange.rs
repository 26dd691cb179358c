//! Upstream exchange: one request at a provider, from the connection to the end of its response.
//!
//! Pingora's own proxy loop cannot carry a request body that was read before the peer was selected
//! (docs/decisions/002). This loop runs on Pingora's connector and calls the phases of a `ProxyHttp` implementation in
//! Pingora's order: `upstream_peer`, `upstream_request_filter`, `request_body_filter`, `upstream_response_filter`,
//! `response_filter`, `response_body_filter`; after a failure `fail_to_connect` or `error_while_proxy`. In addition it
//! reads the body of an upstream error, so that the connection can be reused; coalesces what is already readable into
//! one write; holds a response head back until the first frames show whether the response is an error; and enforces
//! deadlines.
//!
//! Writing the request belongs to `send`, forwarding the response to `answer`, resends on a new connection to
//! `resend`. Which target is next is the proxy's decision.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::answer::Forwarding;
use super::coalesce::CoalescingStream;
use super::exchange_timer::ExchangeTimer;
use super::fault::{Fault, FaultBody, UNRESOLVED};
use super::hooks::ExchangeHooks;
pub(in crate::proxy) use super::interim::read_response_head;
use super::peer::Upstream;
use super::resend::{Resends, Unanswered, is_downgrade};
use super::send::WrittenPart;
pub(in crate::proxy) use super::send::{WRITE_TIMEOUT, send_piece};
use crate::error::{ApiError, ErrorKind};

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

/// One exchange: the proxy, both ends, and the timer.
pub(in crate::proxy) struct Exchange<'x, P: ExchangeHooks> {
    pub(in crate::proxy) proxy: &'x P,
    pub(in crate::proxy) session: &'x mut Session,
    pub(in crate::proxy) ctx: &'x mut P::CTX,
    pub(in crate::proxy) clock: ExchangeTimer<'x>,
    pub(in crate::proxy) ended: DrainDeadline<'x>,
}

/// Runs the exchange of a request, with the attempts that the proxy prepares, and writes the response to the client.
///
/// # Errors
/// Returns an error with a [`Fault`] as its cause if the client has not received a complete response.
/// `ProxyHttp::fail_to_proxy` sends it.
pub(in crate::proxy) async fn run<P: ExchangeHooks>(
    proxy: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    ended: DrainDeadline<'_>,
) -> pingora::Result<()> {
    let timeouts = proxy.timeouts(ctx);
    let now = Instant::now();
    let total = now + timeouts.total;
    let until = (now + timeouts.first_byte.min(timeouts.idle)).min(total);
    // One timer serves the deadline and the early response (`limits.slow_start`), whichever is earlier.
    let due = proxy.slow_start(ctx).map(|span| now + span);
    let sleep = pin!(tokio::time::sleep_until(due.map_or(until, |due| due.min(until))));
    let clock = ExchangeTimer { sleep, until, started: now, total, next_filler_at: due, timeouts };
    let outcome = Exchange { proxy, session, ctx, clock, ended }.run().await;
    proxy.on_exchange_end(ctx);
    match outcome {
        ExchangeOutcome::Complete => Ok(()),
        ExchangeOutcome::Failed(error) => Err(Fault::raise(error, FaultBody::None)),
        ExchangeOutcome::UpstreamError(error, body) => Err(Fault::raise(error, FaultBody::Refusal(body))),
    }
}

impl<P: ExchangeHooks> Exchange<'_, P> {
    /// Makes attempts until one succeeds or the proxy prepares no other.
    async fn run(&mut self) -> ExchangeOutcome {
        loop {
            let outcome = if self.proxy.is_job(self.ctx) {
                let client = &mut self.session.downstream_session;
                self.proxy.run_job(client, self.ctx, &mut self.ended).await
            } else {
                self.attempt().await
            };
            let (error, body) = match outcome {
                ExchangeOutcome::Complete => return ExchangeOutcome::Complete,
                ExchangeOutcome::Failed(error) => (error, None),
                ExchangeOutcome::UpstreamError(error, body) => (error, Some(body)),
            };
            // With only an early head and filler sent, another target can still answer the whole request. Once a frame
            // of a response has left, another target can only resume the stream.
            let begun = is_head_sent(&self.session.downstream_session) && !self.proxy.is_early(self.ctx);
            let next = if begun {
                self.proxy.resume(&mut self.session.downstream_session, self.ctx, error).await
            } else {
                let chosen = self.proxy.fall_back(self.ctx, error, body);
                let chosen = run_while_connected(&mut self.session.downstream_session, chosen).await;
                chosen.map_err(ExchangeOutcome::Failed).flatten()
            };
            if let Err(outcome) = next {
                return outcome;
            }
            self.clock.apply_timeouts(self.proxy.timeouts(self.ctx));
            if begun {
                // The client's stream is idle while the next target is contacted: filler must keep it open.
                self.clock.schedule_filler(self.proxy.settings().heartbeat);
            }
        }
    }

    /// Makes one attempt at the selected target, with the resends on a new connection that [`Resends`] permits.
    async fn attempt(&mut self) -> ExchangeOutcome {
        let mut resends = Resends::default();
        loop {
            self.proxy.begin_attempt(self.ctx);
            let mut within = self.clock.timeouts.connect;
            let peer = match self.peer(&mut within).await {
                Ok(peer) => peer,
                Err(outcome) => return outcome,
            };
            // A resend bypasses the pool: another pooled connection may be stale too, and there is only one resend.
            let connections = self.proxy.connections();
            let pooled = if resends.may_reuse() { connections.take_idle(&peer).await } else { None };
            let reused = pooled.is_some();
            let mut upstream = match pooled {
                Some(upstream) => upstream,
                // Boxed: the state of a TLS handshake is larger than that of the rest of an exchange, and most requests
                // reuse a connection.
                None => match self.run_cancellable(Box::pin(connections.connect(&peer, within))).await {
                    Ok(Ok(upstream)) => upstream,
                    Ok(Err(error)) if is_downgrade(&error) && resends.downgrade() => {
                        connections.prefer_http1(&peer);
                        continue;
                    }
                    Ok(Err(error)) => {
                        let error = self.proxy.fail_to_connect(self.session, peer.http(), self.ctx, error);
                        return failed(error);
                    }
                    Err(outcome) => return outcome,
                },
            };
            self.proxy.on_connected(self.ctx, reused);
            // Reads are bounded by the exchange timer, which also sends the filler.
            upstream.set_read_timeout(None);
            upstream.set_write_timeout(Some(WRITE_TIMEOUT));
            match self.send_request(&mut upstream).await {
                Ok(heard) => {
                    self.close_if_draining();
                    let outcome = Forwarding::run(self, &mut upstream, &peer).await;
                    // Unread bytes of this exchange would corrupt the next response on the connection.
                    let read =
                        matches!(outcome, ExchangeOutcome::Complete | ExchangeOutcome::UpstreamError(..));
                    if read && heard == WrittenPart::Whole {
                        connections.release(upstream, &peer);
                    }
                    return outcome;
                }
                Err(AttemptError::Abort(error)) => return ExchangeOutcome::Failed(error),
                Err(AttemptError::Connection(mut error, delivered)) => {
                    error.retry.decide_reuse(reused);
                    let answered = upstream
                        .stream()
                        .and_then(CoalescingStream::of)
                        .is_some_and(CoalescingStream::has_response);
                    if is_downgrade(&error) {
                        connections.prefer_http1(&peer);
                    }
                    let unanswered =
                        Unanswered { error: &error, reused, answered, delivered, repeatable: true };
                    match resends.decide(unanswered) {
                        Some(reason) => self.proxy.on_resend(self.ctx, reason.label()),
                        None => return self.failure(&peer, error, reused),
                    }
                }
            }
        }
    }

    /// Returns the peer of the selected target, and resolves its name first where that is needed. `within` is the
    /// connect time-out, from which the time of the look-up is taken.
    async fn peer(&mut self, within: &mut Duration) -> Result<Upstream, ExchangeOutcome> {
        let mut error = match self.proxy.upstream_peer(self.session, self.ctx).await {
            Ok(peer) => return Ok(Upstream::new(*peer)),
            Err(error) => error,
        };
        if *error.etype() == ErrorType::Custom(UNRESOLVED) {
            let begun = Instant::now();
            let resolving = self.proxy.resolve(self.ctx, *within);
            let resolved = self.run_cancellable(resolving).await;
            *within = within.saturating_sub(begun.elapsed());
            let resolved = match resolved? {
                Ok(()) => self.proxy.upstream_peer(self.session, self.ctx).await,
                Err(error) => Err(error),
            };
            match resolved {
                Ok(peer) => return Ok(Upstream::new(*peer)),
                Err(later) => error = later,
            }
        }
        Err(failed(self.proxy.on_failure(self.ctx, error)))
    }

    /// Runs `work` (name resolution or a connect) while it watches the client, the shutdown and the total time-out.
    /// `work` has a time-out of its own, so only the total time-out of the exchange applies here.
    ///
    /// # Errors
    /// Returns the outcome if the client disconnects, the drain deadline passes or the total time-out expires.
    async fn run_cancellable<T>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, ExchangeOutcome> {
        let mut work = pin!(work);
        self.clock.set_total_deadline();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                gone = client_gone(&mut self.session.downstream_session) => return Err(ExchangeOutcome::Failed(gone)),
                () = self.ended.as_mut() => return Err(ExchangeOutcome::Failed(shutdown_error())),
                () = self.clock.elapsed() => {
                    if !self.clock.is_due() {
                        return Err(ExchangeOutcome::Failed(timeout_error()));
                    }
                    self.send_early_keepalive().await.map_err(failed)?;
                }
            }
        }
    }

    /// Disables keep-alive of the client's connection while the process drains: the response then says
    /// `Connection: close`, before the client sends another request on a connection that is about to close.
    pub(super) fn close_if_draining(&mut self) {
        if self.proxy.shutdown().is_draining() {
            self.session.set_keepalive(None);
        }
    }

    /// Error of the client's connection, with its meaning.
    pub(super) fn client_failure(&mut self, error: Box<Error>) -> Box<Error> {
        self.proxy.on_failure(self.ctx, error.into_down())
    }

    /// Outcome of an attempt whose connection failed.
    pub(super) fn failure(&mut self, peer: &Upstream, error: Box<Error>, reused: bool) -> ExchangeOutcome {
        failed(self.proxy.error_while_proxy(peer.http(), self.session, error, self.ctx, reused))
    }
}

/// Outcome of a failure whose meaning the proxy has determined.
pub(in crate::proxy) fn failed(error: Box<Error>) -> ExchangeOutcome {
    let Fault { error, body } = Fault::take(error);
    match body {
        FaultBody::Refusal(body) => ExchangeOutcome::UpstreamError(error, body),
        FaultBody::None | FaultBody::Unsent(_) => ExchangeOutcome::Failed(error),
    }
}

/// Reason why no response head arrived.
pub(super) enum AttemptError {
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

/// Whether the client was sent a response head. An interim response such as "100 Continue" does not count.
pub(in crate::proxy) fn is_head_sent(client: &ServerSession) -> bool {
    client.response_written().is_some_and(|head| !head.status.is_informational())
}

/// Resolves when the client closes its connection.
pub(in crate::proxy) async fn client_gone(client: &mut ServerSession) -> ApiError {
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
    client: &mut ServerSession,
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
