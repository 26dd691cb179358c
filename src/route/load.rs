//! How busy a target is and how quickly it answers.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::Nanos;

/// In this time what was seen loses two thirds of its weight: long enough to bridge the gaps between requests, short
/// enough to notice that a target has recovered.
const DECAY: f64 = 10e9;
/// Less is not told apart: a target that was never asked is as good as one on the same machine.
const LEAST: f64 = 1e6;

/// The time until a target answers, as a mean that follows what is worse at once and what is better slowly (peak EWMA).
#[derive(Debug, Default)]
pub struct Latency {
    /// Bits of a float, in nanoseconds.
    mean: AtomicU64,
    seen: AtomicI64,
}

impl Latency {
    /// Notes how long an answer took.
    pub fn observe(&self, took: Nanos, now: Nanos) {
        let took = took.max(0) as f64;
        let before = f64::from_bits(self.mean.load(Ordering::Relaxed));
        let weight = fade(now - self.seen.load(Ordering::Relaxed));
        let mean = if took > before { took } else { before * weight + took * (1.0 - weight) };
        // Two observations at once may lose one of them: they are alike.
        self.mean.store(mean.to_bits(), Ordering::Relaxed);
        self.seen.store(now, Ordering::Relaxed);
    }

    /// The mean, in nanoseconds; what was seen long ago fades.
    pub fn mean(&self, now: Nanos) -> f64 {
        let mean = f64::from_bits(self.mean.load(Ordering::Relaxed));
        (mean * fade(now - self.seen.load(Ordering::Relaxed))).max(LEAST)
    }
}

fn fade(span: Nanos) -> f64 {
    (-(span.max(0) as f64) / DECAY).exp()
}

/// Requests that are under way.
#[derive(Debug, Default)]
pub struct InFlight(AtomicU32);

impl InFlight {
    /// How many there are.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, if there are fewer than `most`.
    pub fn enter(&self, most: Option<u32>) -> bool {
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

    /// One less.
    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
