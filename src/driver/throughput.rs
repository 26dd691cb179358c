//! Minimum rate of an upstream response, where one is configured (`timeouts.min_rate`).
//!
//! A document is measured from its head on. A stream is as slow as the model that writes it, so only a frame that has
//! started must arrive at the rate. `timeouts.idle` covers silence. Bytes are counted in consecutive windows; the last
//! one, which the end of the response cuts short, does not count.

use std::time::Duration;

use tokio::time::Instant;

use codec::provider::Timeouts;

/// Rate measurement of one response.
pub struct Throughput {
    /// Bytes that must arrive in a window.
    min_bytes: u64,
    window: Duration,
    bytes: u64,
    /// End of the window. `None` between the frames of a stream.
    until: Option<Instant>,
    streaming: bool,
}

impl Throughput {
    /// Starts a measurement. `None` if no rate is configured.
    pub fn new(timeouts: &Timeouts, streaming: bool) -> Option<Self> {
        if timeouts.min_rate == 0 || timeouts.rate_window.is_zero() {
            return None;
        }
        let window = timeouts.rate_window;
        let least = u128::from(timeouts.min_rate).saturating_mul(window.as_millis()) / 1_000;
        let least = u64::try_from(least).unwrap_or(u64::MAX);
        let mut throughput = Throughput { min_bytes: least, window, bytes: 0, until: None, streaming };
        if !streaming {
            throughput.begin();
        }
        Some(throughput)
    }

    /// Returns the length of a window, at which the caller checks the rate.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Returns the end of the current window. `None` if none has started.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Records received bytes. `partial`: they end within a frame.
    pub fn on_received(&mut self, bytes: usize, partial: bool) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if !self.streaming {
            return;
        }
        if !partial {
            // A stream may be silent between frames.
            self.until = None;
        } else if self.until.is_none() {
            self.begin();
        }
    }

    /// Restarts the window of a stream: the gateway did not read for a while, because its client was slow.
    pub fn on_pause(&mut self) {
        if self.streaming && self.until.is_some() {
            self.begin();
        }
    }

    /// Returns whether a window has ended with too few bytes. Starts the next window then.
    pub fn is_too_low(&mut self) -> bool {
        let Some(until) = self.until else { return false };
        if Instant::now() < until {
            return false;
        }
        let low = self.bytes < self.min_bytes;
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

    /// Receives `bytes` each second. Returns the second after which the rate was too low.
    async fn too_low(rate: &mut Throughput, bytes: usize, partial: bool) -> Option<u64> {
        for second in 1..=60 {
            tokio::time::advance(SECOND).await;
            rate.on_received(bytes, partial);
            if rate.is_too_low() {
                return Some(second);
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn throughput_document_below_the_rate_fails() {
        assert!(rate(0, false).is_none());
        assert_eq!(too_low(&mut rate(100, false).unwrap(), 100, false).await, None);
        assert_eq!(too_low(&mut rate(100, false).unwrap(), 99, false).await, Some(10));
        let mut late = rate(100, false).unwrap();
        late.on_received(1_000, false);
        assert_eq!(too_low(&mut late, 0, false).await, Some(20));
        // Overflowing values saturate, on both sides.
        assert_eq!(too_low(&mut rate(u64::MAX, false).unwrap(), usize::MAX / 16, false).await, Some(10));
        assert_eq!(too_low(&mut rate(u64::MAX, false).unwrap(), usize::MAX / 2, false).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn throughput_stream_fails_only_for_a_slow_frame() {
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 1, false).await, None);
        // The frame begins with the first second.
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 1, true).await, Some(11));
        assert_eq!(too_low(&mut rate(100, true).unwrap(), 100, true).await, None);
        let mut paused = rate(100, true).unwrap();
        paused.on_received(1, true);
        tokio::time::advance(60 * SECOND).await;
        paused.on_pause();
        assert!(!paused.is_too_low());
    }
}
