//! How long an answer has been silent: its provider, which is given up at some time, and the gateway towards the
//! client, who is kept from giving up.
//!
//! That something came or left is one flag; what time it is, is asked a few times in a span only. So spans are kept to
//! within a fraction, and a frame costs nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Looks at the flags in the shortest span.
const LOOKS: u32 = 3;
/// And not more often than this, whatever is configured.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleDeadline {
    Nothing,
    /// The client has not heard anything for its span.
    Filler,
    /// Nor has the gateway, for its own.
    GivingUp,
}

/// Idle tracker of a stream: sends keep-alive filler after `limits.heartbeat` and fails the stream after
/// `timeouts.idle`.
pub(super) struct IdleTracker {
    idle: Duration,
    heartbeat: Duration,
    heard: bool,
    said: bool,
    heard_at: Instant,
    said_at: Instant,
}

impl IdleTracker {
    /// From now on. A heartbeat of zero is none.
    pub(super) fn new(idle: Duration, heartbeat: Duration) -> Self {
        let now = Instant::now();
        IdleTracker { idle, heartbeat, heard: false, said: false, heard_at: now, said_at: now }
    }

    /// After which time to look again.
    pub(super) fn interval(&self) -> Duration {
        let shortest = if self.heartbeat.is_zero() { self.idle } else { self.idle.min(self.heartbeat) };
        (shortest / LOOKS).max(SHORTEST)
    }

    /// The provider sent something.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Something left for the client.
    pub(super) fn said(&mut self) {
        self.said = true;
    }

    /// What is to be done now.
    pub(super) fn look(&mut self) -> IdleDeadline {
        let now = Instant::now();
        if std::mem::take(&mut self.heard) {
            self.heard_at = now;
        }
        if std::mem::take(&mut self.said) {
            self.said_at = now;
        }
        if now.duration_since(self.heard_at) >= self.idle {
            IdleDeadline::GivingUp
        } else if !self.heartbeat.is_zero() && now.duration_since(self.said_at) >= self.heartbeat {
            IdleDeadline::Filler
        } else {
            IdleDeadline::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks as often as it is to be looked, until `span` is over; gives when something was due, in seconds.
    async fn due_within(
        silence: &mut IdleTracker,
        span: Duration,
        each: impl Fn(&mut IdleTracker),
    ) -> Vec<(u64, IdleDeadline)> {
        let begun = Instant::now();
        let mut found = Vec::new();
        while begun.elapsed() < span {
            tokio::time::advance(silence.interval()).await;
            let due = silence.look();
            if due != IdleDeadline::Nothing {
                found.push((begun.elapsed().as_secs(), due));
                silence.said();
            }
            each(silence);
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_answer_is_filled_and_at_last_given_up() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 60 * SECOND, |_| {}).await;
        assert_eq!(
            found,
            [
                (15, IdleDeadline::Filler),
                (35, IdleDeadline::Filler),
                (55, IdleDeadline::Filler),
                (60, IdleDeadline::GivingUp)
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_speaks_is_not_silent() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 600 * SECOND, |silence| {
            silence.heard();
            silence.said();
        });
        assert_eq!(found.await, []);
    }

    /// A provider's pings, which mean nothing in the client's format, say that the provider is there and no more.
    #[tokio::test(start_paused = true)]
    async fn what_does_not_leave_keeps_no_client() {
        let mut silence = IdleTracker::new(60 * SECOND, 15 * SECOND);
        let found = due_within(&mut silence, 100 * SECOND, IdleTracker::heard).await;
        assert_eq!(found.first(), Some(&(15, IdleDeadline::Filler)));
        assert!(found.len() >= 4 && found.iter().all(|(_, due)| *due == IdleDeadline::Filler), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_heartbeat_nothing_is_filled() {
        let mut silence = IdleTracker::new(60 * SECOND, Duration::ZERO);
        let found = due_within(&mut silence, 60 * SECOND, |_| {}).await;
        assert_eq!(found, [(60, IdleDeadline::GivingUp)]);
    }
}
