//! Quota of a target that its provider reports in response headers.

use super::Nanos;
use sync::atomic::{AtomicI64, Ordering};

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
