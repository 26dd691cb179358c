//! Balancer tests in virtual time, with randomness from recorded seeds.

mod breaker;
mod candidates;
#[cfg(model_check)]
mod loom;
mod pick;
mod simulation;
mod target_handle;

use std::sync::Arc;

use super::Nanos;
use super::breaker::Breaker;
use super::target_handle::{TargetHandle, TargetLimits, TargetState};

pub(super) const SECOND: Nanos = 1_000_000_000;

/// Random numbers: splitmix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in the open interval (0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.roll() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Exponentially distributed with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }
}

/// Targets with these weights and tiers, each at its own provider.
pub(super) fn target_handles(weights: &[(u32, u8)]) -> Vec<TargetHandle> {
    let handle = |(index, &(weight, tier)): (usize, &(u32, u8))| {
        let id = super::affinity::fingerprint(0, format!("target {index}").as_bytes());
        TargetHandle {
            weight,
            tier,
            limits: TargetLimits::default(),
            state: Arc::new(TargetState::new(id, Arc::<Breaker>::default())),
        }
    };
    weights.iter().enumerate().map(handle).collect()
}
