//! State of an exchange: the proxy, both ends and the timer; and what all its steps need.

use std::pin::pin;

use pingora::Error;
use pingora::proxy::Session;

use super::downstream::{ClientEnd, client_end, is_head_sent, on_client_probed, probe_client, set_framing};
use super::exchange_timer::ExchangeTimer;
use super::header_timeout::HeaderTimeoutStream;
use super::hooks::{ExchangeHooks, Written};
use super::outcome::{DrainDeadline, ExchangeOutcome, failed, shutdown_error, timeout_error};
use super::peer::Upstream;

/// What the client has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// No response head. Interim responses do not count.
    Nothing,
    /// An early head, or a part of it, and keep-alive filler: no byte of a response, so another target can still answer
    /// the whole request.
    EarlyHead,
    /// The head of a response, or frames after an early head: another target can only resume the stream.
    Content,
    /// The end of the response.
    Ended,
}

/// State of an exchange: the proxy, both ends, the timer, and what the client has received.
pub struct ExchangeState<'x, P: ExchangeHooks> {
    /// Whose phases and hooks are called.
    pub proxy: &'x P,
    /// Pingora's session with the client.
    pub session: &'x mut Session,
    /// State of the request.
    pub ctx: &'x mut P::CTX,
    /// When the exchange has to be looked at, at the latest.
    pub clock: ExchangeTimer<'x>,
    /// When the process stops waiting for requests in progress.
    pub ended: DrainDeadline<'x>,
    /// What the client has received.
    pub sent: Sent,
}

impl<P: ExchangeHooks> ExchangeState<'_, P> {
    /// Runs `work` (name resolution or a connect) while it watches the client, the shutdown and the total time-out.
    /// `work` has a time-out of its own, so only the total time-out of the exchange applies here.
    ///
    /// # Errors
    /// Returns the outcome if the client disconnects, the drain deadline passes or the total time-out expires.
    pub(super) async fn run_cancellable<T>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, ExchangeOutcome> {
        let mut work = pin!(work);
        self.clock.set_total_deadline();
        loop {
            tokio::select! {
                biased;
                // First: a connection that is ready is not lost to a time-out of the same moment.
                done = &mut work => return Ok(done),
                end = client_end(&mut self.session.downstream_session) => match end {
                    ClientEnd::Gone(gone) => return Err(ExchangeOutcome::Failed(gone)),
                    ClientEnd::HalfClosed => self.on_half_closed().await,
                },
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

    /// Finds out whether a client that has closed its side of the connection is still there: an interim response is written
    /// if no head was sent, or the next filler behind an early head.
    pub(super) async fn on_half_closed(&mut self) {
        // Boxed: few clients close their side.
        Box::pin(probe_client(&mut self.session.downstream_session)).await;
        if is_head_sent(&self.session.downstream_session) {
            on_client_probed(&self.session.downstream_session);
            if self.sent == Sent::EarlyHead {
                self.clock.hurry_filler();
            }
        }
    }

    /// Disables keep-alive of the client's connection while the process is about to stop: the response then says
    /// `Connection: close`, before the client sends another request on a connection that is about to close.
    pub(super) fn close_if_stopping(&mut self) {
        if self.proxy.shutdown().is_stopping() {
            self.session.set_keepalive(None);
        }
    }

    /// Records that the head of a response may have been written, with `end` its last bytes too. A failed write may
    /// have left the client without a head: then another target can still answer.
    pub(super) fn on_response_written(&mut self, end: bool) {
        // A frame in the middle of a response changes nothing.
        if (end || self.sent != Sent::Content) && is_head_sent(&self.session.downstream_session) {
            self.sent = if end { Sent::Ended } else { Sent::Content };
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

    /// Sends the early head, if no head was sent, and filler; schedules the next filler.
    ///
    /// # Errors
    /// Returns the error of the client's connection, with its meaning.
    pub(super) async fn send_early_keepalive(&mut self) -> pingora::Result<()> {
        let heartbeat = self.proxy.settings().heartbeat;
        // Boxed: few requests need it.
        let kept = Box::pin(self.write_early_keepalive(!heartbeat.is_zero())).await;
        // A heartbeat of zero cancels the schedule; a time that stays due would make the timer fire continuously.
        self.clock.schedule_filler(heartbeat);
        kept.map_err(|error| self.client_failure(error))
    }

    async fn write_early_keepalive(&mut self, fill: bool) -> pingora::Result<()> {
        // A client whose stream broke off and is being resumed has a head already.
        if self.sent == Sent::Nothing {
            self.close_if_stopping();
            // Set before anything is written: from here on a failure cannot change the status.
            self.sent = Sent::EarlyHead;
            let mut head = self.proxy.early_head(self.session, self.ctx);
            set_framing(&self.session.downstream_session, &mut head, None);
            self.proxy.on_written(self.ctx, Written::EarlyHead(head.status.as_u16()));
            // Corked only if filler follows: `uncork` does not flush, and the head alone would stay in the buffer.
            if let Some(guarded) = self.session.stream().and_then(HeaderTimeoutStream::of).filter(|_| fill) {
                guarded.cork();
            }
            self.session.downstream_session.write_response_header(head).await?;
            if let Some(guarded) = self.session.stream().and_then(HeaderTimeoutStream::of) {
                guarded.uncork();
            }
        }
        if !fill {
            return Ok(());
        }
        let filler = self.proxy.early_filler(self.ctx);
        self.proxy.on_written(self.ctx, Written::EarlyFiller(filler.len()));
        self.session.downstream_session.write_response_body(filler, false).await
    }
}
