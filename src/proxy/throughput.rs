//! Whether an answer comes at the rate that its provider must keep, where one is configured (`timeouts.min_rate`).
//!
//! A document counts from its head on. A stream is as slow as the model that writes it, and whole frames may come at
//! any rate; of a stream only a frame that has begun must come at the rate. Who is silent is the business of
//! `timeouts.idle`. Bytes are counted over one window after the other; the last one, which the end of the answer cuts
//! short, does not count.

use std::time::Duration;

use tokio::time::Instant;

use crate::provider::Timeouts;

/// See the module.
pub(super) struct Throughput {
    /// Bytes that must come in a window.
    least: u64,
    window: Duration,
    bytes: u64,
    /// When the window ends; nothing between the frames of a stream.
    until: Option<Instant>,
    streaming: bool,
}

impl Throughput {
    /// From now on; nothing where no rate is configured.
    pub(super) fn new(timeouts: &Timeouts, streaming: bool) -> Option<Self> {
        if timeouts.min_rate == 0 || timeouts.rate_window.is_zero() {
            return None;
        }
        let window = timeouts.rate_window;
        let least = u128::from(timeouts.min_rate).saturating_mul(window.as_millis()) / 1_000;
        let least = u64::try_from(least).unwrap_or(u64::MAX);
        let mut throughput = Throughput { least, window, bytes: 0, until: None, streaming };
        if !streaming {
            throughput.begin();
        }
        Some(throughput)
    }

    /// How often it is to be looked at.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// When the window ends, if one has begun.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// So many bytes have come; `partial` says that a frame has begun and not ended with them.
    pub(super) fn received(&mut self, bytes: usize, partial: bool) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if !self.streaming {
            return;
        }
        if !partial {
            self.until = None;
        } else if self.until.is_none() {
            self.begin();
        }
    }

    /// The provider could not be read for a while: its client was slow.
    pub(super) fn paused(&mut self) {
        if self.streaming && self.until.is_some() {
            self.begin();
        }
    }

    /// Whether a window has ended in which too little came.
    pub(super) fn is_too_low(&mut self) -> bool {
        let Some(until) = self.until else { return false };
        if Instant::now() < until {
            return false;
        }
        let low = self.bytes < self.least;
        self.begin();
        low
    }

    fn begin(&mut self) {
        self.bytes = 0;
        self.until = Some(Instant::now() + self.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(min_rate: u64, streaming: bool) -> Option<Throughput> {
        let timeouts = Timeouts { min_rate, rate_window: 10 * SECOND, ..Timeouts::default() };
        Throughput::new(&timeouts, streaming)
    }

    /// Gives so many bytes each second; tells after how many seconds it was too low.
    async fn too_low(rate: &mut Throughput, bytes: usize, partial: bool) -> Option<u64> {
        for second in 1..=60 {
            tokio::time::advance(SECOND).await;
            rate.received(bytes, partial);
            if rate.is_too_low() {
                return Some(second);
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn documents_come_at_the_rate_or_fail() {
        assert!(rate(0, false).is_none());
        assert_eq!(too_low(&mut rate(100, false).unwrap(), 100, false).await, None);
        assert_eq!(too_low(&mut rate(100, false).unwrap(), 99, false).await, Some(10));
        let mut late = rate(100, false).unwrap();
        late.received(1_000, false);
        assert_eq!(too_low(&mut late, 0, false).await, Some(20));
        // Figures that do not fit are the largest, on both sides.
        assert_eq!(too_low(&mut rate(u64::MAX, false).unwrap(), usize::MAX / 16, false).await, Some(10));
        assert_eq!(too_low(&mut rate(u64::MAX, false).unwrap(), usize::MAX / 2, false).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_may_be_slow_but_not_their_frames() {
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 1, false).await, None);
        // The frame begins with the first second.
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 1, true).await, Some(11));
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 100, true).await, None);
        let mut paused = rate(100, true).unwrap();
        paused.received(1, true);
        tokio::time::advance(60 * SECOND).await;
        paused.paused();
        assert!(!paused.is_too_low());
    }
}
