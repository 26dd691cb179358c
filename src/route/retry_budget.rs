//! How many requests may be tried again: a share of all, so that a provider that is down is not asked twice as often.

use std::sync::atomic::{AtomicI64, Ordering};

/// What one try costs, in the unit in which requests pay in.
const TRY: i64 = 100;
/// So many tries are there at once at most, for each one of the reserve.
const MOST: i64 = 10;

/// A share of requests, in percent, and what is there in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryShare {
    /// Tries that each hundred requests pay for.
    pub percent: u32,
    /// Tries that are there before any request has paid.
    pub reserve: u32,
}

impl Default for RetryShare {
    fn default() -> Self {
        // With one of three targets gone a third of requests is tried again until its breaker has opened.
        RetryShare { percent: 20, reserve: 100 }
    }
}

/// Retry budget of a model: retries may be at most a share of its requests. Survives a reload.
#[derive(Debug, Default)]
pub struct RetryBudget {
    /// Beside the reserve; may be negative by as much as that.
    paid: AtomicI64,
}

impl RetryBudget {
    /// A request comes.
    pub fn pay(&self, share: &RetryShare) {
        let most = i64::from(share.reserve) * TRY * MOST;
        if self.paid.load(Ordering::Relaxed) < most {
            self.paid.fetch_add(i64::from(share.percent), Ordering::Relaxed);
        }
    }

    /// Takes a try, if there is one.
    pub fn take(&self, share: &RetryShare) -> bool {
        let least = -i64::from(share.reserve) * TRY;
        let next = |paid: i64| (paid - TRY >= least).then_some(paid - TRY);
        self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}
