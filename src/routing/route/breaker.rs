//! Circuit breaker of a target or a provider.
//!
//! Closed, the breaker admits every request. Too many failures open it, and it admits none until its cooldown is over.
//! Then it is half open: it admits one request at a time as a probe, whose outcome closes it or opens it for longer.
//! Admission by a closed breaker costs one atomic load; only failures and the outcomes of probes take a lock.

use std::sync::PoisonError;

use super::Nanos;
use sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use sync::{Mutex, MutexGuard};

/// Breaker thresholds and cooldowns. The breaker opens after `failures` in a row, or at `percent` failures of at least
/// `requests` within `within`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Consecutive failures that open the breaker.
    pub failures: u32,
    /// Failure rate that opens the breaker, in percent.
    pub percent: u32,
    /// Minimum number of requests in the window before the failure rate counts.
    pub requests: u32,
    /// Length of the window, in nanoseconds.
    pub within: Nanos,
    /// First cooldown, in nanoseconds; doubled after each failed probe.
    pub cooldown: Nanos,
    /// Upper bound of the cooldown, in nanoseconds, before jitter.
    pub longest: Nanos,
}

const SECOND: Nanos = 1_000_000_000;

impl Default for BreakerRules {
    fn default() -> Self {
        BreakerRules {
            // One failure may be chance, five in a row are not; and at five, few clients suffer before it opens.
            failures: 5,
            percent: 50,
            requests: 20,
            within: 30 * SECOND,
            cooldown: 5 * SECOND,
            longest: 120 * SECOND,
        }
    }
}

/// Admission of a request by a breaker, to be returned with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BreakerAdmission {
    /// The breaker was closed.
    Closed,
    /// The request is the only probe of a half-open breaker.
    Probe,
    /// The breaker was open and overridden, because there was no alternative.
    Forced,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Admits every request.
    Closed,
    /// Admits one probe at a time.
    HalfOpen,
    /// Admits no request until this time.
    Open(Nanos),
}

/// Circuit breaker.
#[derive(Debug, Default)]
pub struct Breaker {
    /// 0 if closed; otherwise the end of the cooldown, after which the breaker is half open.
    until: AtomicI64,
    probing: AtomicBool,
    /// Opened by [`Breaker::trip`]: only a request that succeeds shows the fault to be gone.
    tripped: AtomicBool,
    /// Consecutive failures.
    consecutive_failures: AtomicU32,
    /// Successes in the window.
    successes: AtomicU32,
    cooldown: Mutex<Cooldown>,
}

#[derive(Debug, Default)]
struct Cooldown {
    /// Times that it opened since it was last closed.
    trips: u32,
    /// Failures in the window.
    failures: u32,
    window_start: Nanos,
}

impl Breaker {
    /// Returns the state at `now`.
    pub fn state(&self, now: Nanos) -> BreakerState {
        match self.until.load(Ordering::Acquire) {
            0 => BreakerState::Closed,
            until if now < until => BreakerState::Open(until),
            _ => BreakerState::HalfOpen,
        }
    }

    /// Returns whether [`Breaker::admit`] would admit a request at `now`.
    pub fn would_admit(&self, now: Nanos) -> bool {
        match self.state(now) {
            BreakerState::Closed => true,
            BreakerState::HalfOpen => !self.probing.load(Ordering::Relaxed),
            BreakerState::Open(_) => false,
        }
    }

    /// Admits a request. Returns `None` if the breaker is open, or half open with a probe in flight.
    pub fn admit(&self, now: Nanos) -> Option<BreakerAdmission> {
        match self.state(now) {
            BreakerState::Closed => Some(BreakerAdmission::Closed),
            BreakerState::Open(_) => None,
            BreakerState::HalfOpen => {
                let free = self.probing.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
                free.ok()?;
                // Another probe may have ended since the state was read: then the breaker is closed, or open again.
                let state = self.state(now);
                if state == BreakerState::HalfOpen {
                    return Some(BreakerAdmission::Probe);
                }
                self.release_probe(BreakerAdmission::Probe);
                (state == BreakerState::Closed).then_some(BreakerAdmission::Closed)
            }
        }
    }

    /// Records a success. The success of a probe or of a forced request closes the breaker.
    pub fn on_success(&self, admission: BreakerAdmission) {
        match admission {
            BreakerAdmission::Closed => {
                // Read before write: the usual success must not dirty the cache line.
                if self.consecutive_failures.load(Ordering::Relaxed) != 0 {
                    self.consecutive_failures.store(0, Ordering::Relaxed);
                }
                self.successes.fetch_add(1, Ordering::Relaxed);
            }
            BreakerAdmission::Probe | BreakerAdmission::Forced => {
                let mut cooldown = self.lock();
                *cooldown = Cooldown::default();
                self.consecutive_failures.store(0, Ordering::Relaxed);
                self.successes.store(0, Ordering::Relaxed);
                self.tripped.store(false, Ordering::Relaxed);
                self.until.store(0, Ordering::Release);
                self.release_probe(admission);
            }
        }
    }

    /// Records a failure. Returns true if the breaker was closed and opens now. `point` is uniform over all of `u64`
    /// and jitters the cooldown.
    pub fn on_failure(
        &self,
        admission: BreakerAdmission,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> bool {
        let mut cooldown = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        let opens = match admission {
            BreakerAdmission::Probe => true,
            // A forced request tests a breaker that is open already; its failure must not prolong the cooldown.
            BreakerAdmission::Forced => false,
            // Requests admitted before it opened do not extend the cooldown when they fail.
            BreakerAdmission::Closed => closed && self.count(&mut cooldown, now, rules),
        };
        if opens {
            self.open(&mut cooldown, now, rules, point);
        }
        self.release_probe(admission);
        opens && closed
    }

    /// Opens the breaker on a single failure that is conclusive, such as a rejected credential. Returns true if the
    /// breaker was closed.
    pub fn trip(&self, admission: BreakerAdmission, now: Nanos, rules: &BreakerRules, point: u64) -> bool {
        let mut cooldown = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        self.tripped.store(true, Ordering::Relaxed);
        // Requests admitted before it opened fail in the same way and must not reopen it with a longer cooldown.
        if closed || admission == BreakerAdmission::Probe {
            self.open(&mut cooldown, now, rules, point);
        }
        self.release_probe(admission);
        closed
    }

    /// Closes the breaker on evidence other than a request, such as a health check. A tripped breaker stays open unless
    /// `tripped_too`. Returns true if the breaker was open and closes now.
    pub fn recover(&self, tripped_too: bool) -> bool {
        // Fast path without the lock: health checks of a healthy provider end here.
        if self.until.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut cooldown = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        if closed || (self.tripped.load(Ordering::Relaxed) && !tripped_too) {
            return false;
        }
        *cooldown = Cooldown::default();
        self.consecutive_failures.store(0, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        self.tripped.store(false, Ordering::Relaxed);
        self.until.store(0, Ordering::Release);
        true
    }

    /// Returns the failures and successes of the window.
    pub fn counts(&self) -> (u32, u32) {
        let failures = self.lock().failures;
        (failures, self.successes.load(Ordering::Relaxed))
    }

    /// Records an unknown outcome: releases the probe without a verdict.
    pub fn on_unknown(&self, admission: BreakerAdmission) {
        self.release_probe(admission);
    }

    fn release_probe(&self, admission: BreakerAdmission) {
        if admission == BreakerAdmission::Probe {
            self.probing.store(false, Ordering::Release);
        }
    }

    /// Counts a failure in the window. Returns true if a threshold is reached.
    fn count(&self, cooldown: &mut Cooldown, now: Nanos, rules: &BreakerRules) -> bool {
        // The window restarts with the first failure after its end, so that successes need no clock.
        if now.saturating_sub(cooldown.window_start) > rules.within {
            *cooldown = Cooldown { trips: cooldown.trips, failures: 0, window_start: now };
            self.successes.store(0, Ordering::Relaxed);
        }
        cooldown.failures = cooldown.failures.saturating_add(1);
        let consecutive = self.consecutive_failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let all = u64::from(cooldown.failures) + u64::from(self.successes.load(Ordering::Relaxed));
        let share_reached = u64::from(cooldown.failures) * 100 >= all * u64::from(rules.percent);
        consecutive >= rules.failures || (all >= u64::from(rules.requests) && share_reached)
    }

    fn open(&self, cooldown: &mut Cooldown, now: Nanos, rules: &BreakerRules, point: u64) {
        // Exponential backoff. The shift is capped at 20 to stay within 64 bits.
        let span = rules.cooldown.saturating_mul(1 << cooldown.trips.min(20)).min(rules.longest);
        *cooldown = Cooldown { trips: cooldown.trips.saturating_add(1), failures: 0, window_start: now };
        self.consecutive_failures.store(0, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        self.until.store(now.saturating_add(jittered(span, point)).max(1), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Cooldown> {
        self.cooldown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds up to 20% of random jitter to `span`, so that many gateways do not probe at the same moment.
pub(super) fn jittered(span: Nanos, point: u64) -> Nanos {
    let most = u128::from((span / 5).unsigned_abs());
    let more = (u128::from(point) * most) >> 64;
    span.saturating_add(i64::try_from(more).unwrap_or(0))
}
