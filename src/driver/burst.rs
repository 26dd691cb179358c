//! Burst detection: decides when the writes of a fast stream are coalesced.
//!
//! A provider that sends a frame every 20 ms is forwarded frame by frame. One that sends thousands of frames a second
//! (a cached response, a small fast model, a replay) would cost a read and a write for each of them, although no client
//! can distinguish frames that are 100 microseconds apart. Such a stream is read once a millisecond, and its frames
//! leave in one write.

use std::time::Duration;

use tokio::time::Instant;

/// Burst threshold: this number of reads within [`WINDOW`].
const THRESHOLD: u32 = 4;
/// Window of the threshold: four reads within 2 ms are more than 2,000 frames a second.
const WINDOW: Duration = Duration::from_millis(2);
/// Pause between two reads of a burst. A frame is delayed by this and by the resolution of the timer (at most as much
/// again).
pub const PAUSE: Duration = Duration::from_millis(1);

/// Burst detector: detects a stream that arrives in many small reads, whose writes are then coalesced.
#[derive(Debug, Default)]
pub struct BurstDetector {
    bursting: bool,
    pieces: u32,
    since: Option<Instant>,
}

impl BurstDetector {
    /// Whether to pause before the next read.
    pub fn is_bursting(&self) -> bool {
        self.bursting
    }

    /// Records a piece that was forwarded. `waited` is true if its read found nothing at first; that ends a burst.
    pub fn on_piece(&mut self, waited: bool) {
        if self.bursting {
            if waited {
                *self = BurstDetector::default();
            }
            return;
        }
        self.pieces += 1;
        // Read the clock once in `THRESHOLD` reads only.
        if self.since.is_some() && self.pieces < THRESHOLD {
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
            pace.on_piece(true);
            tokio::time::advance(gap).await;
        }
        pace.is_bursting()
    }

    #[tokio::test(start_paused = true)]
    async fn burst_slow_stream_is_not_detected() {
        // 39 pieces follow the first one; no window of four may count as a burst.
        assert!(!bursts_at(Duration::from_millis(20)).await);
        assert!(!bursts_at(Duration::from_millis(1)).await);
        assert!(!bursts_at(Duration::from_micros(500)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn burst_ends_when_a_read_had_to_wait() {
        let mut pace = BurstDetector::default();
        for _ in 0..=THRESHOLD {
            assert!(!pace.is_bursting());
            pace.on_piece(true);
        }
        assert!(pace.is_bursting());
        pace.on_piece(false);
        assert!(pace.is_bursting());
        pace.on_piece(true);
        assert!(!pace.is_bursting());
    }
}
