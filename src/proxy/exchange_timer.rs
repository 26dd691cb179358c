//! Timer of an exchange: one Tokio timer for its deadline and for the keep-alive of a client that waits.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::provider::Timeouts;

/// Timer of an exchange. A new deadline costs a store: the Tokio timer is reset only when the exchange waits.
pub(super) struct ExchangeTimer<'c> {
    pub(super) sleep: Pin<&'c mut Sleep>,
    pub(super) until: Instant,
    pub(super) begun: Instant,
    pub(super) total: Instant,
    /// When a client that waits is to be given something; for most never.
    pub(super) due: Option<Instant>,
    pub(super) timeouts: Timeouts,
}

impl ExchangeTimer<'_> {
    /// Runs out after `span` from now on.
    pub(super) fn allow(&mut self, span: Duration) {
        self.until = (Instant::now() + span).min(self.total);
    }

    /// Runs out with the whole exchange.
    pub(super) fn allow_all(&mut self) {
        self.until = self.total;
    }

    /// The client is to be given something after `span`; nothing after none.
    pub(super) fn wait_on(&mut self, span: Duration) {
        self.due = (!span.is_zero()).then(|| Instant::now() + span);
    }

    /// Whether the client is to be given something now.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Goes on with the times of another target.
    pub(super) fn renew(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
        self.total = self.begun + timeouts.total;
        self.allow(timeouts.first_byte.min(timeouts.idle));
    }

    /// Whether there is no time left at all.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.total
    }

    /// Resolves after `span`, whatever time is left.
    pub(super) fn rest(&mut self, span: Duration) -> impl Future<Output = ()> {
        self.sleep.as_mut().reset(Instant::now() + span);
        self.sleep.as_mut()
    }

    /// Resolves when the time runs out, or the client is to be given something.
    pub(super) fn out(&mut self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            let next = self.due.map_or(self.until, |due| due.min(self.until));
            loop {
                // To an earlier time it is moved at once; to a later one when it fires.
                if self.sleep.deadline() > next {
                    self.sleep.as_mut().reset(next);
                }
                std::task::ready!(self.sleep.as_mut().poll(cx));
                if self.sleep.deadline() >= next {
                    return Poll::Ready(());
                }
                self.sleep.as_mut().reset(next);
            }
        })
    }
}
