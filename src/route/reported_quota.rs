//! How much may still be asked of a target: by the configuration, and by what its provider says in its answers.

use std::sync::atomic::{AtomicI64, Ordering};

use super::Nanos;

const MINUTE: i64 = 60_000_000_000;

/// A rate per minute, held by the generic cell rate algorithm: the time at which all of it may be taken again.
#[derive(Debug, Default)]
pub struct Rate(AtomicI64);

impl Rate {
    /// How long until `amount` may be taken; 0 for now. Nothing that is larger than the limit is ever let in but alone.
    pub fn wait(&self, now: Nanos, amount: u64, limit: u64) -> Nanos {
        let next = self.0.load(Ordering::Relaxed).max(now).saturating_add(cost(amount, limit));
        (next - now - MINUTE).max(0)
    }

    /// Takes `amount`, if it is there.
    pub fn take(&self, now: Nanos, amount: u64, limit: u64) -> bool {
        let cost = cost(amount, limit);
        let next = |full: i64| {
            let next = full.max(now).saturating_add(cost);
            (next - now <= MINUTE).then_some(next)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, amount: u64, limit: u64) {
        self.0.fetch_sub(cost(amount, limit), Ordering::Relaxed);
    }
}

/// The time in which so much is permitted; a request that is larger than the limit takes all of it.
fn cost(amount: u64, limit: u64) -> i64 {
    let limit = limit.max(1);
    let nanos = u128::from(amount.min(limit)) * MINUTE.unsigned_abs() as u128 / u128::from(limit);
    i64::try_from(nanos).unwrap_or(MINUTE)
}

/// Quota that a provider reported in its last response: what remains, and until when.
#[derive(Debug, Default)]
pub struct ReportedQuota {
    left: AtomicI64,
    /// 0 when nothing was said.
    until: AtomicI64,
}

impl ReportedQuota {
    /// Takes over what the provider said.
    pub fn tell(&self, left: u64, until: Nanos) {
        self.left.store(i64::try_from(left).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.until.store(until.max(1), Ordering::Relaxed);
    }

    /// How long until `amount` is there; 0 for now.
    pub fn wait(&self, now: Nanos, amount: u64) -> Nanos {
        let until = self.until.load(Ordering::Relaxed);
        if until <= now {
            return 0;
        }
        let short = self.left.load(Ordering::Relaxed) < i64::try_from(amount).unwrap_or(i64::MAX);
        if short { until - now } else { 0 }
    }

    /// Takes `amount` off, until the provider says more.
    pub fn take(&self, now: Nanos, amount: u64) {
        if self.until.load(Ordering::Relaxed) > now {
            self.left.fetch_sub(i64::try_from(amount).unwrap_or(0), Ordering::Relaxed);
        }
    }
}
