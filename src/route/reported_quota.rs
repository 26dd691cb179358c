//! Quotas of a target: configured rates per minute, and the remaining quota that its provider reports in response
//! headers.

use super::Nanos;
use crate::sync::atomic::{AtomicI64, Ordering};

const MINUTE: i64 = 60_000_000_000;

/// Rate limiter per minute (generic cell rate algorithm). Holds the time at which the full amount is available again,
/// in nanoseconds.
#[derive(Debug, Default)]
pub struct Rate(AtomicI64);

impl Rate {
    /// Returns the nanoseconds until `amount` is available; 0 if it is available now. An amount above the limit counts
    /// as the limit: it has to wait until the full limit is available.
    pub fn wait(&self, now: Nanos, amount: u64, limit: u64) -> Nanos {
        // A time in the past means that the full limit is available.
        let next = self.0.load(Ordering::Relaxed).max(now).saturating_add(cost(amount, limit));
        (next - now - MINUTE).max(0)
    }

    /// Takes `amount` if it is available. Returns false, and takes nothing, if not.
    pub fn take(&self, now: Nanos, amount: u64, limit: u64) -> bool {
        let cost = cost(amount, limit);
        let next = |full: i64| {
            let next = full.max(now).saturating_add(cost);
            (next - now <= MINUTE).then_some(next)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Returns an amount that was taken and not used.
    pub fn refund(&self, amount: u64, limit: u64) {
        self.0.fetch_sub(cost(amount, limit), Ordering::Relaxed);
    }
}

/// Returns the time in which the limit grants `amount`, in nanoseconds: at most a minute.
fn cost(amount: u64, limit: u64) -> i64 {
    let limit = limit.max(1);
    let nanos = u128::from(amount.min(limit)) * MINUTE.unsigned_abs() as u128 / u128::from(limit);
    i64::try_from(nanos).unwrap_or(MINUTE)
}

/// Quota that a provider reported in its last response: what remains, and until when.
#[derive(Debug, Default)]
pub struct ReportedQuota {
    remaining: AtomicI64,
    /// End of validity; 0 if the provider has reported nothing.
    until: AtomicI64,
}

impl ReportedQuota {
    /// Stores the reported remaining quota, valid until `until`.
    pub fn observe(&self, left: u64, until: Nanos) {
        self.remaining.store(i64::try_from(left).unwrap_or(i64::MAX), Ordering::Relaxed);
        // Ordered behind the amount: a reader that sees the time of a report must not see the amount before it.
        self.until.store(until.max(1), Ordering::Release);
    }

    /// Returns the nanoseconds until the reported quota permits `amount`: 0 if it does now or has expired, otherwise
    /// the time until it is reset.
    pub fn wait(&self, now: Nanos, amount: u64) -> Nanos {
        let until = self.until.load(Ordering::Acquire);
        // An expired report says nothing about the present quota.
        if until <= now {
            return 0;
        }
        let short = self.remaining.load(Ordering::Relaxed) < i64::try_from(amount).unwrap_or(i64::MAX);
        if short { until - now } else { 0 }
    }

    /// Deducts `amount` locally until the next report. The remaining quota may become negative.
    pub fn take(&self, now: Nanos, amount: u64) {
        if self.until.load(Ordering::Acquire) > now {
            self.remaining.fetch_sub(i64::try_from(amount).unwrap_or(0), Ordering::Relaxed);
        }
    }
}
