//! A rate, held by the generic cell rate algorithm: one number, changed without a lock.
//!
//! The number is the time at which the bucket will be full again. What is taken moves it on, what is given back moves
//! it back. Crates for this (`governor`) cannot give back, which tokens need whose number is only known at the end, and
//! ask a clock for each decision; the request knows the time already.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Nanoseconds of a minute: what is permitted is given per minute, and as much may be taken at once.
const MINUTE: i64 = 60_000_000_000;
/// More than this is never taken at once: 2^28 tokens, so that the arithmetic stays within 64 bits.
const MOST: u64 = 1 << 28;

/// A point in time: nanoseconds since some beginning that is the same for all.
pub type Nanos = i64;

/// Remaining quota of a rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// What is permitted per minute.
    pub limit: u64,
    /// What may be taken now.
    pub remaining: u64,
    /// Until all of it may be taken.
    pub reset: Duration,
}

/// Rate limiter: the generic cell rate algorithm.
#[derive(Debug, Default)]
pub struct Gcra(AtomicI64);

impl Gcra {
    /// A full bucket.
    pub const fn new() -> Gcra {
        Gcra(AtomicI64::new(i64::MIN))
    }

    /// Takes `amount` of what `limit` permits per minute.
    ///
    /// # Errors
    /// There is not so much; how long it takes until there is. Nothing, if there never is so much.
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

    /// Takes `amount` whether it is there or not: it has been used.
    pub fn owe(&self, now: Nanos, amount: u64, limit: u64) {
        let cost = cost(amount, limit);
        let update = |full_at: i64| Some(full_at.max(now).saturating_add(cost));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, amount: u64, limit: u64) {
        // Below "now" it means no more than full, so it needs no floor but that of the number itself.
        let cost = cost(amount, limit);
        let update = |full_at: i64| Some(full_at.saturating_sub(cost));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// What is left.
    pub fn left(&self, now: Nanos, limit: u64) -> Remaining {
        left(self.0.load(Ordering::Relaxed), now, limit)
    }

    /// Whether it is full: then it might as well be forgotten.
    pub fn is_full(&self, now: Nanos) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

/// Takes `amount` of what `limit` permits per minute from a bucket that is full again at a time.
///
/// # Errors
/// As of [`Gcra::take`].
pub(super) fn take(full_at: &mut Nanos, now: Nanos, amount: u64, limit: u64) -> Result<(), Option<Duration>> {
    if amount > limit {
        return Err(None);
    }
    let next = (*full_at).max(now).saturating_add(cost(amount, limit));
    let over = next.saturating_sub(now) - MINUTE;
    if over > 0 {
        return Err(Some(Duration::from_nanos(over.unsigned_abs())));
    }
    *full_at = next;
    Ok(())
}

/// How long it takes to permit so much.
pub(super) fn cost(amount: u64, limit: u64) -> i64 {
    let nanos = (amount.min(MOST) * MINUTE.unsigned_abs()).div_ceil(limit.max(1));
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

pub(super) fn left(full_at: i64, now: Nanos, limit: u64) -> Remaining {
    let until_full = full_at.saturating_sub(now).clamp(0, i64::MAX);
    let free = (MINUTE - until_full).max(0).unsigned_abs();
    let remaining = u128::from(free) * u128::from(limit) / u128::from(MINUTE.unsigned_abs());
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
    fn a_minute_s_worth_may_be_taken_at_once_and_comes_back_evenly() {
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
    fn what_was_not_used_comes_back_and_what_was_used_beyond_is_owed() {
        let bucket = Gcra::new();
        bucket.take(0, 1_000, 1_000).unwrap();
        bucket.give_back(400, 1_000);
        assert_eq!(bucket.left(0, 1_000).remaining, 400);
        bucket.owe(0, 900, 1_000);
        assert_eq!(bucket.left(0, 1_000).remaining, 0);
        assert_eq!(bucket.take(0, 1, 1_000), Err(Some(Duration::from_millis(30_060))));
        bucket.give_back(1_000_000, 1_000);
        assert_eq!(bucket.left(0, 1_000).remaining, 1_000, "never more than full");
        assert!(bucket.is_full(0));
    }

    proptest! {
        /// The model: a tank that fills at the rate, in exact fractions of a token.
        #[test]
        fn it_permits_what_a_tank_permits(
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
                // What is too close to tell in binary fractions may go either way.
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
