//! Idle tracker of a stream: the upstream idle time-out, and the keep-alive filler for the client.
//!
//! Activity sets a flag. The clock is read about three times per interval, so deadlines are accurate to about a third
//! of the shorter interval, and a frame costs one store.

use std::time::Duration;

use tokio::time::Instant;

/// Checks per shortest interval.
const CHECKS: u32 = 3;
/// Lower bound of the time between two checks, whatever is configured.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleDeadline {
    /// Nothing is due.
    NotDue,
    /// Nothing has been sent to the client for `limits.heartbeat`: send keep-alive filler.
    Filler,
    /// Nothing has been received from upstream for `timeouts.idle`: fail the stream.
    IdleTimeout,
}

/// Idle tracker of a stream: sends keep-alive filler after `limits.heartbeat` and fails the stream after
/// `timeouts.idle`.
pub struct IdleTracker {
    idle: Duration,
    heartbeat: Duration,
    received: bool,
    sent: bool,
    received_at: Instant,
    sent_at: Instant,
}

impl IdleTracker {
    /// Starts both intervals now. A `heartbeat` of zero disables filler.
    pub fn new(idle: Duration, heartbeat: Duration) -> Self {
        let now = Instant::now();
        IdleTracker { idle, heartbeat, received: false, sent: false, received_at: now, sent_at: now }
    }

    /// Returns the time between two calls of [`check`](Self::check).
    pub fn interval(&self) -> Duration {
        let shortest = if self.heartbeat.is_zero() { self.idle } else { self.idle.min(self.heartbeat) };
        (shortest / CHECKS).max(MIN_INTERVAL)
    }

    /// Records that bytes arrived from upstream.
    pub fn on_received(&mut self) {
        self.received = true;
    }

    /// Records that bytes were sent to the client.
    pub fn on_sent(&mut self) {
        self.sent = true;
    }

    /// Returns the action that is due now. The idle time-out takes precedence over filler.
    pub fn check(&mut self) -> IdleDeadline {
        let now = Instant::now();
        // A flag has no time, so activity counts as of this check. This is the inaccuracy that the module head states.
        if std::mem::take(&mut self.received) {
            self.received_at = now;
        }
        if std::mem::take(&mut self.sent) {
            self.sent_at = now;
        }
        if now.duration_since(self.received_at) >= self.idle {
            IdleDeadline::IdleTimeout
        } else if !self.heartbeat.is_zero() && now.duration_since(self.sent_at) >= self.heartbeat {
            IdleDeadline::Filler
        } else {
            IdleDeadline::NotDue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Calls `look` at its interval until `span` is over. Returns each action that was due, with the second it was due
    /// at.
    async fn due_within(
        silence: &mut IdleTracker,
        span: Duration,
        each: impl Fn(&mut IdleTracker),
    ) -> Vec<(u64, IdleDeadline)> {
        let begun = Instant::now();
        let mut found = Vec::new();
        while begun.elapsed() < span {
            tokio::time::advance(silence.interval()).await;
            let due = silence.check();
            if due != IdleDeadline::NotDue {
                found.push((begun.elapsed().as_secs(), due));
                silence.on_sent();
            }
            each(silence);
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn idle_stream_is_filled_then_fails_at_the_timeout() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 60 * SECOND, |_| {}).await;
        assert_eq!(
            found,
            [
                (15, IdleDeadline::Filler),
                (35, IdleDeadline::Filler),
                (55, IdleDeadline::Filler),
                (60, IdleDeadline::IdleTimeout)
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timers_are_reset_by_traffic() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 600 * SECOND, |silence| {
            silence.on_received();
            silence.on_sent();
        });
        assert_eq!(found.await, []);
    }

    /// Upstream pings that have no equivalent in the client's format reset the idle time-out, not the heartbeat.
    #[tokio::test(start_paused = true)]
    async fn idle_heartbeat_ignores_frames_that_are_not_forwarded() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 100 * SECOND, IdleTracker::on_received).await;
        assert_eq!(found.first(), Some(&(15, IdleDeadline::Filler)));
        assert!(found.len() >= 4 && found.iter().all(|(_, due)| *due == IdleDeadline::Filler), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_stream_without_a_heartbeat_is_not_filled() {
        let mut silence = IdleTracker::new(60 * SECOND, Duration::ZERO);
        let found = due_within(&mut silence, 60 * SECOND, |_| {}).await;
        assert_eq!(found, [(60, IdleDeadline::IdleTimeout)]);
    }
}
