//! Rate limiter: the generic cell rate algorithm (GCRA) in one atomic integer, without a lock.
//!
//! The integer is the time at which the bucket will be full again. Taking moves it forward, giving back moves it
//! backward. Crates for this (`governor`) cannot refund, which token limits need because usage is only known at the
//! end; and they read a clock for each decision, although the request has the time already.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;
use sync::atomic::{AtomicI64, Ordering};

/// Nanoseconds of a minute. Limits are per minute, and the burst size is one minute's worth.
const MINUTE: i64 = 60_000_000_000;
/// Largest amount per operation, 2^28 tokens, so that the arithmetic stays within 64 bits.
const MAX_AMOUNT: u64 = 1 << 28;

/// Point in time: nanoseconds since an epoch that all values share.
pub type Nanos = i64;

/// Remaining quota of a rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Limit per minute.
    pub limit: u64,
    /// Amount that can be taken now.
    pub remaining: u64,
    /// Time until the full limit can be taken.
    pub reset: Duration,
}

/// Rate limiter: the generic cell rate algorithm.
#[derive(Debug, Default)]
pub struct Gcra(AtomicI64);

impl Gcra {
    /// Creates a full bucket.
    pub fn new() -> Gcra {
        Gcra(AtomicI64::new(i64::MIN))
    }

    /// Takes `amount` from a bucket that refills at `limit` per minute.
    ///
    /// # Errors
    /// Returns the time until `amount` is available; `None` if it exceeds the limit and never will be.
    pub fn take(&self, now: Nanos, amount: u64, limit: u64) -> Result<Remaining, Option<Duration>> {
        let mut full_at = self.0.load(Ordering::Relaxed);
        loop {
            let mut next = full_at;
            take(&mut next, now, amount, limit)?;
            match self.0.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(left(next, now, limit)),
                Err(seen) => full_at = seen,
            }
        }
    }

    /// Returns the time in nanoseconds until `amount` is available: 0 if it is available now. The amount must not be
    /// above the limit.
    pub fn wait(&self, now: Nanos, amount: u64, limit: u64) -> Nanos {
        let next = self.0.load(Ordering::Relaxed).max(now).saturating_add(cost(amount, limit));
        next.saturating_sub(now).saturating_sub(MINUTE).max(0)
    }

    /// Takes `amount` even if it is not available, because it has been used already.
    pub fn take_debt(&self, now: Nanos, amount: u64, limit: u64) {
        let cost = cost(amount, limit);
        let update = |full_at: i64| Some(full_at.max(now).saturating_add(cost));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Returns an amount that was taken and not used.
    pub fn refund(&self, amount: u64, limit: u64) {
        // No lower bound is needed: a time in the past means full, whatever its distance.
        let cost = cost(amount, limit);
        let update = |full_at: i64| Some(full_at.saturating_sub(cost));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Returns the remaining quota.
    pub fn remaining(&self, now: Nanos, limit: u64) -> Remaining {
        left(self.0.load(Ordering::Relaxed), now, limit)
    }

    /// Returns true if the bucket is full, so that its state may be dropped.
    pub fn is_full(&self, now: Nanos) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

/// Takes `amount` from a bucket that is full again at `full_at` and refills at `limit` per minute.
///
/// # Errors
/// Same as [`Gcra::take`].
pub(super) fn take(full_at: &mut Nanos, now: Nanos, amount: u64, limit: u64) -> Result<(), Option<Duration>> {
    if amount > limit {
        return Err(None);
    }
    let next = (*full_at).max(now).saturating_add(cost(amount, limit));
    let over = next.saturating_sub(now).saturating_sub(MINUTE);
    if over > 0 {
        return Err(Some(Duration::from_nanos(over.unsigned_abs())));
    }
    *full_at = next;
    Ok(())
}

/// Returns the time in nanoseconds in which `amount` refills at `limit` per minute.
pub(super) fn cost(amount: u64, limit: u64) -> i64 {
    // At most 2^28 times 2^36: it fits into 64 bits.
    let nanos = amount.min(MAX_AMOUNT).saturating_mul(MINUTE.unsigned_abs()).div_ceil(limit.max(1));
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

pub(super) fn left(full_at: i64, now: Nanos, limit: u64) -> Remaining {
    let until_full = full_at.saturating_sub(now).clamp(0, i64::MAX);
    let free = MINUTE.saturating_sub(until_full).max(0).unsigned_abs();
    let remaining = u128::from(free).saturating_mul(u128::from(limit));
    let remaining = remaining.checked_div(u128::from(MINUTE.unsigned_abs())).unwrap_or(0);
    Remaining {
        limit,
        remaining: u64::try_from(remaining).unwrap_or(limit),
        reset: Duration::from_nanos(until_full.unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn gcra_burst_of_one_minute_is_granted_and_refills_evenly() {
        let bucket = Gcra::new();
        for taken in 1..=60 {
            let left = bucket.take(0, 1, 60).unwrap();
            assert_eq!((left.limit, left.remaining), (60, 60 - taken));
            assert_eq!(left.reset, Duration::from_secs(taken));
        }
        assert_eq!(bucket.take(0, 1, 60), Err(Some(Duration::from_secs(1))));
        assert_eq!(bucket.take(0, 5, 60), Err(Some(Duration::from_secs(5))));
        assert_eq!(bucket.take(SECOND, 1, 60).unwrap().remaining, 0);
        assert!(bucket.take(SECOND, 1, 60).is_err());
        assert_eq!(bucket.take(2 * MINUTE, 60, 60).unwrap().remaining, 0, "no more than a minute's worth");
        assert_eq!(bucket.take(9 * MINUTE, 61, 60), Err(None), "never");
    }

    #[test]
    fn gcra_unused_amount_is_returned_and_excess_is_owed() {
        let bucket = Gcra::new();
        bucket.take(0, 1_000, 1_000).unwrap();
        bucket.refund(400, 1_000);
        assert_eq!(bucket.remaining(0, 1_000).remaining, 400);
        bucket.take_debt(0, 900, 1_000);
        assert_eq!(bucket.remaining(0, 1_000).remaining, 0);
        assert_eq!(bucket.take(0, 1, 1_000), Err(Some(Duration::from_millis(30_060))));
        bucket.refund(1_000_000, 1_000);
        assert_eq!(bucket.remaining(0, 1_000).remaining, 1_000, "never more than full");
        assert!(bucket.is_full(0));
    }

    proptest! {
        /// Model: a tank that refills at the rate, with exact fractions of a token.
        #[test]
        fn gcra_permits_the_same_as_a_token_bucket_model(
            limit in 1u64..100_000,
            steps in proptest::collection::vec((0i64..20_000, 1u64..50_000), 1..60),
        ) {
            let bucket = Gcra::new();
            let (mut now, mut level, mut last) = (0i64, limit as f64, 0i64);
            for (wait, amount) in steps {
                now += wait * 1_000_000;
                level = (level + (now - last) as f64 * limit as f64 / MINUTE as f64).min(limit as f64);
                last = now;
                let taken = bucket.take(now, amount, limit);
                // Amounts too close to the level for binary fractions may go either way.
                if (level - amount as f64).abs() > 0.01 {
                    prop_assert_eq!(taken.is_ok(), level >= amount as f64, "{} {}", level, amount);
                }
                if taken.is_ok() {
                    level -= amount as f64;
                }
            }
        }
    }
}
