//! How fast a stream comes, and when it is worth letting it gather.
//!
//! A provider that sends a frame every 20 ms is passed on frame by frame. One that sends thousands of frames a second
//! (a cached answer, a small fast model, a replay) would cost a read and a write for each of them, and nobody could
//! tell frames apart that come 100 microseconds after each other. Such a stream is left alone for a millisecond at a
//! time, and what has come by then leaves in one write.

use std::time::Duration;

use tokio::time::Instant;

/// So many pieces ...
const PIECES: u32 = 4;
/// ... within this time are a burst: more than 2,000 a second.
const WINDOW: Duration = Duration::from_millis(2);
/// How long a burst is left to gather. This, and what the timer adds (at most as much again), is the delay of a frame.
pub(super) const REST: Duration = Duration::from_millis(1);

/// Burst detector: tells a stream that arrives in many small reads, whose writes are then coalesced.
#[derive(Debug, Default)]
pub(super) struct BurstDetector {
    bursting: bool,
    pieces: u32,
    since: Option<Instant>,
}

impl BurstDetector {
    /// Whether to let the stream gather before it is read again.
    pub(super) fn is_bursting(&self) -> bool {
        self.bursting
    }

    /// Notes a piece that was passed on; `waited` says that nothing had been there to read at first.
    pub(super) fn passed(&mut self, waited: bool) {
        if self.bursting {
            if waited {
                *self = BurstDetector::default();
            }
            return;
        }
        self.pieces += 1;
        // The clock is looked at once in so many pieces only.
        if self.since.is_some() && self.pieces < PIECES {
            return;
        }
        let now = Instant::now();
        self.bursting = self.since.is_some_and(|since| now.duration_since(since) < WINDOW);
        self.since = Some(now);
        self.pieces = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bursts_at(gap: Duration) -> bool {
        let mut pace = BurstDetector::default();
        for _ in 0..40 {
            pace.passed(true);
            tokio::time::advance(gap).await;
        }
        pace.is_bursting()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_fast_stream_is_a_burst() {
        // 39 pieces after the first, of which no window of four may be a burst.
        assert!(!bursts_at(Duration::from_millis(20)).await);
        assert!(!bursts_at(Duration::from_millis(1)).await);
        assert!(!bursts_at(Duration::from_micros(500)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_lasts_as_long_as_something_has_come_in_every_rest() {
        let mut pace = BurstDetector::default();
        for _ in 0..=PIECES {
            assert!(!pace.is_bursting());
            pace.passed(true);
        }
        assert!(pace.is_bursting());
        pace.passed(false);
        assert!(pace.is_bursting());
        pace.passed(true);
        assert!(!pace.is_bursting());
    }
}
