//! Attempts of an exchange: connection, request, response, and what follows a failure.

use std::pin::pin;
use std::time::Duration;

use pingora::ErrorType;
use pingora::proxy::Session;
use tokio::time::Instant;

use super::answer::Forwarding;
use super::downstream::run_while_connected;
use super::exchange::{ExchangeState, Sent};
use super::exchange_timer::ExchangeTimer;
use super::fault::{Fault, FaultBody, UNRESOLVED};
use super::hooks::ExchangeHooks;
use super::outcome::{AttemptError, DrainDeadline, ExchangeOutcome, failed};
use super::peer::Upstream;
use super::provider_session::ProviderSession;
use super::resend::{Resends, Unanswered, is_downgrade};
use super::send::{WRITE_TIMEOUT, WrittenPart};

/// Runs the exchange of a request, with the attempts that the proxy prepares, and writes the response to the client.
///
/// # Errors
/// Returns an error with a [`Fault`] as its cause if the client has not received a complete response.
/// `ProxyHttp::fail_to_proxy` sends it.
pub async fn run<P: ExchangeHooks>(
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
    let outcome = ExchangeState { proxy, session, ctx, clock, ended, sent: Sent::Nothing }.run().await;
    proxy.on_exchange_end(ctx);
    match outcome {
        ExchangeOutcome::Complete => Ok(()),
        ExchangeOutcome::Failed(error) => Err(Fault::raise(error, FaultBody::None)),
        ExchangeOutcome::UpstreamError(error, body) => Err(Fault::raise(error, FaultBody::Refusal(body))),
    }
}

impl<P: ExchangeHooks> ExchangeState<'_, P> {
    /// Makes attempts until one succeeds or the proxy prepares no other.
    async fn run(&mut self) -> ExchangeOutcome {
        loop {
            let outcome = if self.proxy.is_job(self.ctx) {
                let client = &mut self.session.downstream_session;
                let outcome = self.proxy.run_job(client, self.ctx, &mut self.ended).await;
                self.on_response_written(matches!(outcome, ExchangeOutcome::Complete));
                outcome
            } else {
                self.attempt().await
            };
            let (error, body) = match outcome {
                ExchangeOutcome::Complete => return ExchangeOutcome::Complete,
                ExchangeOutcome::Failed(error) => (error, None),
                ExchangeOutcome::UpstreamError(error, body) => (error, Some(body)),
            };
            // With part of a response at the client, another target can only continue it, not answer anew.
            let begun = self.sent >= Sent::Content;
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
            // The deadline still has the time-outs of the failed target.
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
            // Boxed: few providers take requests over a WebSocket.
            let socket = match self.proxy.websocket_provider(self.ctx) {
                Some(provider) => {
                    let opening = self.take_or_open_socket(&provider, &peer, within, resends.may_reuse());
                    match Box::pin(opening).await {
                        Ok(socket) => socket,
                        Err(outcome) => return outcome,
                    }
                }
                None => None,
            };
            let pooled = match socket {
                Some((socket, reused)) => Some((ProviderSession::Socket(socket), reused)),
                None if resends.may_reuse() => connections.take_idle(&peer).await.map(|idle| (idle, true)),
                None => None,
            };
            let (mut upstream, reused) = match self.connected(pooled, &peer, within, &mut resends).await {
                Ok(Some(connected)) => connected,
                Ok(None) => continue,
                Err(outcome) => return outcome,
            };
            self.proxy.on_connected(self.ctx, reused);
            // Reads are bounded by the exchange timer, which also sends the filler.
            upstream.set_write_timeout(WRITE_TIMEOUT);
            match self.send_request(&mut upstream).await {
                Ok(written) => {
                    // Before the head is written, which announces the close.
                    self.close_if_stopping();
                    let outcome = Forwarding::run(self, &mut upstream, &peer).await;
                    self.release(upstream, &peer, &outcome, written);
                    if self.proxy.has_remedy(self.ctx) && Box::pin(self.remedy(&outcome)).await {
                        continue;
                    }
                    return outcome;
                }
                Err(AttemptError::Abort(error)) => return ExchangeOutcome::Failed(error),
                Err(AttemptError::Connection(mut error, delivered)) => {
                    // Pingora marks some errors as retryable on a reused connection only; this resolves the mark.
                    error.retry.decide_reuse(reused);
                    // A byte of a response shows that the provider has read from this connection: it was not stale.
                    let answered = upstream.has_response();
                    // Remembered for the peer: later requests do not pay for another failed attempt at HTTP/2.
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

    /// Returns the connection from the pool, or else a new one, and whether it was used before. `None` if the provider
    /// must be contacted again with HTTP/1.
    async fn connected(
        &mut self,
        pooled: Option<(ProviderSession, bool)>,
        peer: &Upstream,
        within: Duration,
        resends: &mut Resends,
    ) -> Result<Option<(ProviderSession, bool)>, ExchangeOutcome> {
        if pooled.is_some() {
            return Ok(pooled);
        }
        let connections = self.proxy.connections();
        // Boxed: the state of a TLS handshake is larger than that of the rest of an exchange, and most requests reuse a
        // connection.
        match self.run_cancellable(Box::pin(connections.connect(peer, within))).await? {
            Ok(upstream) => Ok(Some((upstream, false))),
            Err(error) if is_downgrade(&error) && resends.downgrade() => {
                connections.prefer_http1(peer);
                Ok(None)
            }
            Err(error) => Err(failed(self.proxy.fail_to_connect(self.session, peer.http(), self.ctx, error))),
        }
    }

    /// Keeps the connection for another request, if this one has ended on it.
    fn release(
        &self,
        upstream: ProviderSession,
        peer: &Upstream,
        outcome: &ExchangeOutcome,
        written: WrittenPart,
    ) {
        // Unread bytes of this exchange would corrupt the next response on the connection.
        let read = matches!(outcome, ExchangeOutcome::Complete | ExchangeOutcome::UpstreamError(..));
        if read && written == WrittenPart::Whole {
            match upstream {
                ProviderSession::Socket(socket) => self.release_socket(socket),
                upstream => self.proxy.connections().release(upstream, peer),
            }
        }
    }

    /// Renews what the provider has refused. Returns whether the request is to be sent again.
    async fn remedy(&mut self, outcome: &ExchangeOutcome) -> bool {
        if !matches!(outcome, ExchangeOutcome::UpstreamError(..)) || self.sent >= Sent::Content {
            return false;
        }
        let timeouts = self.clock.timeouts;
        let is_renewed = self.proxy.reauthorize(self.ctx, timeouts.connect).await;
        if is_renewed {
            self.clock.apply_timeouts(timeouts);
        }
        is_renewed
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
}
