//! Retry budget: limits retries to a share of the requests, so that retries do not double the load on a failing
//! provider.

use sync::atomic::{AtomicI64, Ordering};

/// Cost of one retry. Each request pays in `percent` of the same unit, hundredths of a retry.
const RETRY_COST: i64 = 100;
/// Upper bound of the budget, as a multiple of the reserve.
const MAX_BALANCE: i64 = 10;

/// Retry share: retries in percent of the requests, and the initial reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryShare {
    /// Retries that 100 requests pay for.
    pub percent: u32,
    /// Retries that are available before any request has been counted.
    pub reserve: u32,
}

impl Default for RetryShare {
    fn default() -> Self {
        // With one of three targets down, a third of the requests is retried until its breaker opens.
        RetryShare { percent: 20, reserve: 100 }
    }
}

/// Retry budget of a model: retries may be at most a share of its requests. Survives a reload.
#[derive(Debug, Default)]
pub struct RetryBudget {
    /// Balance in hundredths of a retry, apart from the reserve; negative by at most the reserve.
    balance: AtomicI64,
}

impl RetryBudget {
    /// Credits the budget with one request.
    pub fn deposit(&self, share: &RetryShare) {
        let most = i64::from(share.reserve) * RETRY_COST * MAX_BALANCE;
        // Load and add are not atomic together: a small overshoot is harmless and cheaper than a loop.
        if self.balance.load(Ordering::Relaxed) < most {
            self.balance.fetch_add(i64::from(share.percent), Ordering::Relaxed);
        }
    }

    /// Takes one retry from the budget. Returns false if none is left.
    pub fn withdraw(&self, share: &RetryShare) -> bool {
        let least = -i64::from(share.reserve) * RETRY_COST;
        let next = |paid: i64| (paid - RETRY_COST >= least).then_some(paid - RETRY_COST);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}
