//! Load of a target: latency estimate and requests in flight.

use super::Nanos;
use sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Decay time constant, in nanoseconds (10 s): after it, an observation has lost two thirds of its weight. Long enough
/// to bridge gaps between requests, short enough to notice a recovery.
const DECAY: f64 = 10e9;
/// Lower bound of the mean, in nanoseconds (1 ms). A target without history counts as fast as one on the same machine.
const MIN_LATENCY: f64 = 1e6;

/// Time until a target starts to respond, as a peak EWMA: rises to a worse value at once and falls to a better one
/// slowly.
#[derive(Debug, Default)]
pub struct Latency {
    /// Bits of an `f64`, in nanoseconds.
    mean: AtomicU64,
    observed_at: AtomicI64,
}

impl Latency {
    /// Records a latency, in nanoseconds.
    pub fn observe(&self, took: Nanos, now: Nanos) {
        let took = took.max(0) as f64;
        let before = f64::from_bits(self.mean.load(Ordering::Relaxed));
        let weight = decay(now - self.observed_at.load(Ordering::Relaxed));
        // A slower observation replaces the mean, a faster one is weighted by the time since the last.
        let mean = if took > before { took } else { before * weight + took * (1.0 - weight) };
        // Two concurrent updates may lose one observation. That is harmless, and avoids a lock.
        self.mean.store(mean.to_bits(), Ordering::Relaxed);
        self.observed_at.store(now, Ordering::Relaxed);
    }

    /// Returns the mean in nanoseconds as of the last observation. `None` before the first one.
    pub fn observed(&self) -> Option<f64> {
        let mean = f64::from_bits(self.mean.load(Ordering::Relaxed));
        (mean > 0.0).then_some(mean)
    }

    /// Returns the mean in nanoseconds, decayed by the time since the last observation.
    pub fn mean(&self, now: Nanos) -> f64 {
        let mean = f64::from_bits(self.mean.load(Ordering::Relaxed));
        (mean * decay(now - self.observed_at.load(Ordering::Relaxed))).max(MIN_LATENCY)
    }
}

fn decay(span: Nanos) -> f64 {
    (-(span.max(0) as f64) / DECAY).exp()
}

/// Number of requests in flight.
#[derive(Debug, Default)]
pub struct InFlight(AtomicU32);

impl InFlight {
    /// Returns the number of requests.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one request. Returns false, and adds nothing, if `most` is reached.
    pub fn acquire(&self, most: Option<u32>) -> bool {
        match most {
            None => {
                self.0.fetch_add(1, Ordering::Relaxed);
                true
            }
            Some(most) => {
                let more = |now: u32| (now < most).then_some(now + 1);
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
            }
        }
    }

    /// Removes one request.
    pub fn release(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
