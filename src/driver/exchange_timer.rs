//! Timer of an exchange: one Tokio timer for its deadline and for the keep-alive of a client that waits.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use codec::provider::Timeouts;

/// Timer of an exchange. Setting a deadline costs one store: the Tokio timer is reset only when the exchange waits.
pub struct ExchangeTimer<'c> {
    /// Timer of the runtime, which may be set later than `until`.
    pub sleep: Pin<&'c mut Sleep>,
    /// Deadline of the present step.
    pub until: Instant,
    /// Beginning of the exchange.
    pub started: Instant,
    /// End of `timeouts.total`, which no step may pass.
    pub total: Instant,
    /// Time of the next early response or filler; `None` if none is scheduled.
    pub next_filler_at: Option<Instant>,
    /// Time-outs of the target.
    pub timeouts: Timeouts,
}

impl ExchangeTimer<'_> {
    /// Sets the deadline to `span` from now, but not beyond the total time-out.
    pub fn set_deadline(&mut self, span: Duration) {
        self.until = (Instant::now() + span).min(self.total);
    }

    /// Sets the deadline to the total time-out of the exchange.
    pub fn set_total_deadline(&mut self) {
        self.until = self.total;
    }

    /// Schedules the next filler for `span` from now; a span of zero cancels it.
    pub fn schedule_filler(&mut self, span: Duration) {
        self.next_filler_at = (!span.is_zero()).then(|| Instant::now() + span);
    }

    /// Makes the next filler due, if one is scheduled.
    pub fn hurry_filler(&mut self) {
        self.next_filler_at = self.next_filler_at.map(|_| Instant::now());
    }

    /// Whether filler is due.
    pub fn is_due(&self) -> bool {
        self.next_filler_at.is_some_and(|due| due <= Instant::now())
    }

    /// Applies the time-outs of the next target. The total time-out still counts from the beginning of the exchange.
    pub fn apply_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
        self.total = self.started + timeouts.total;
        self.set_deadline(timeouts.first_byte.min(timeouts.idle));
    }

    /// Whether the total time-out has expired.
    pub fn is_expired(&self) -> bool {
        Instant::now() >= self.total
    }

    /// Resolves after `span`, regardless of the deadline.
    pub fn pause(&mut self, span: Duration) -> impl Future<Output = ()> {
        // May be before or behind the deadline; `elapsed` moves the timer back to it.
        self.sleep.as_mut().reset(Instant::now() + span);
        self.sleep.as_mut()
    }

    /// Resolves at the deadline or when filler is due.
    pub fn elapsed(&mut self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            let next = self.next_filler_at.map_or(self.until, |due| due.min(self.until));
            loop {
                // Resetting a Tokio timer takes a lock. An earlier deadline needs it at once; a later one only when the
                // timer fires.
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
