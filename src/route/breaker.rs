//! When something that fails is left alone, and how it is tried again.
//!
//! Closed, everybody may enter. After too many failures it opens, and nobody may enter until its cooldown is over. Then
//! it is half open: one request at a time may enter, as a probe, and decides whether it closes or opens for longer. Who
//! enters a closed breaker pays for one load; what takes a lock is only what follows a failure.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Nanos;

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// So many failures in a row.
    pub failures: u32,
    /// Or so many of a hundred requests ...
    pub percent: u32,
    /// ... of at least so many ...
    pub requests: u32,
    /// ... within this time.
    pub within: Nanos,
    /// How long it stays open at first; doubled with each probe that fails ...
    pub cooldown: Nanos,
    /// ... up to this.
    pub longest: Nanos,
}

const SECOND: Nanos = 1_000_000_000;

impl Default for BreakerRules {
    fn default() -> Self {
        BreakerRules {
            // One failure is bad luck, five in a row are not; and with five nobody waits long for the sixth.
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
    /// Through a closed breaker.
    Closed,
    /// As the only probe of a half-open one.
    Probe,
    /// Although it is open, because there was nowhere else to go.
    Forced,
}

/// What a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everybody may enter.
    Closed,
    /// One at a time may enter.
    HalfOpen,
    /// Nobody may enter until then.
    Open(Nanos),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Breaker {
    /// 0 when closed; otherwise open until then, and half open after it.
    until: AtomicI64,
    probing: AtomicBool,
    /// It is open because of something that only a request can show to be better.
    tripped: AtomicBool,
    /// Failures in a row.
    row: AtomicU32,
    /// Successes in the window.
    good: AtomicU32,
    rest: Mutex<Cooldown>,
}

#[derive(Debug, Default)]
struct Cooldown {
    /// How often it opened without having closed in between.
    trips: u32,
    /// Failures in the window.
    bad: u32,
    begun: Nanos,
}

impl Breaker {
    /// What it is now.
    pub fn state(&self, now: Nanos) -> BreakerState {
        match self.until.load(Ordering::Acquire) {
            0 => BreakerState::Closed,
            until if now < until => BreakerState::Open(until),
            _ => BreakerState::HalfOpen,
        }
    }

    /// Whether somebody could enter now.
    pub fn admits(&self, now: Nanos) -> bool {
        match self.state(now) {
            BreakerState::Closed => true,
            BreakerState::HalfOpen => !self.probing.load(Ordering::Relaxed),
            BreakerState::Open(_) => false,
        }
    }

    /// Enters, if it may be.
    pub fn enter(&self, now: Nanos) -> Option<BreakerAdmission> {
        match self.state(now) {
            BreakerState::Closed => Some(BreakerAdmission::Closed),
            BreakerState::Open(_) => None,
            BreakerState::HalfOpen => {
                let free = self.probing.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
                free.is_ok().then_some(BreakerAdmission::Probe)
            }
        }
    }

    /// It went well.
    pub fn succeeded(&self, entry: BreakerAdmission) {
        match entry {
            BreakerAdmission::Closed => {
                if self.row.load(Ordering::Relaxed) != 0 {
                    self.row.store(0, Ordering::Relaxed);
                }
                self.good.fetch_add(1, Ordering::Relaxed);
            }
            BreakerAdmission::Probe | BreakerAdmission::Forced => {
                let mut rest = self.lock();
                *rest = Cooldown::default();
                self.row.store(0, Ordering::Relaxed);
                self.good.store(0, Ordering::Relaxed);
                self.tripped.store(false, Ordering::Relaxed);
                self.until.store(0, Ordering::Release);
                self.leave(entry);
            }
        }
    }

    /// It failed. `point` is uniform over all of `u64`. True when it opens with this.
    pub fn failed(&self, entry: BreakerAdmission, now: Nanos, rules: &BreakerRules, point: u64) -> bool {
        let mut rest = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        let opens = match entry {
            BreakerAdmission::Probe => true,
            BreakerAdmission::Forced => false,
            // What began before it opened says nothing new.
            BreakerAdmission::Closed => closed && self.count(&mut rest, now, rules),
        };
        if opens {
            self.open(&mut rest, now, rules, point);
        }
        self.leave(entry);
        opens && closed
    }

    /// Opens, whatever was before: this failure leaves no doubt. True when it was closed.
    pub fn trip(&self, entry: BreakerAdmission, now: Nanos, rules: &BreakerRules, point: u64) -> bool {
        let mut rest = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        self.tripped.store(true, Ordering::Relaxed);
        if closed || entry == BreakerAdmission::Probe {
            self.open(&mut rest, now, rules, point);
        }
        self.leave(entry);
        closed
    }

    /// Something else than a request has shown that it works again. What tripped stays open unless `tripped_too`. True
    /// when it closes with this.
    pub fn vouch(&self, tripped_too: bool) -> bool {
        if self.until.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut rest = self.lock();
        let closed = self.until.load(Ordering::Relaxed) == 0;
        if closed || (self.tripped.load(Ordering::Relaxed) && !tripped_too) {
            return false;
        }
        *rest = Cooldown::default();
        self.row.store(0, Ordering::Relaxed);
        self.good.store(0, Ordering::Relaxed);
        self.tripped.store(false, Ordering::Relaxed);
        self.until.store(0, Ordering::Release);
        true
    }

    /// It is not known how it would have gone.
    pub fn given_up(&self, entry: BreakerAdmission) {
        self.leave(entry);
    }

    fn leave(&self, entry: BreakerAdmission) {
        if entry == BreakerAdmission::Probe {
            self.probing.store(false, Ordering::Release);
        }
    }

    /// Counts a failure; says whether it is one too many.
    fn count(&self, rest: &mut Cooldown, now: Nanos, rules: &BreakerRules) -> bool {
        if now.saturating_sub(rest.begun) > rules.within {
            *rest = Cooldown { trips: rest.trips, bad: 0, begun: now };
            self.good.store(0, Ordering::Relaxed);
        }
        rest.bad = rest.bad.saturating_add(1);
        let row = self.row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let all = u64::from(rest.bad) + u64::from(self.good.load(Ordering::Relaxed));
        let often = u64::from(rest.bad) * 100 >= all * u64::from(rules.percent);
        row >= rules.failures || (all >= u64::from(rules.requests) && often)
    }

    fn open(&self, rest: &mut Cooldown, now: Nanos, rules: &BreakerRules, point: u64) {
        let span = rules.cooldown.saturating_mul(1 << rest.trips.min(20)).min(rules.longest);
        *rest = Cooldown { trips: rest.trips.saturating_add(1), bad: 0, begun: now };
        self.row.store(0, Ordering::Relaxed);
        self.good.store(0, Ordering::Relaxed);
        self.until.store(now.saturating_add(jittered(span, point)).max(1), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Cooldown> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between a span and a fifth more, so that many gateways do not come back at once.
pub(super) fn jittered(span: Nanos, point: u64) -> Nanos {
    let most = u128::from((span / 5).unsigned_abs());
    let more = (u128::from(point) * most) >> 64;
    span.saturating_add(i64::try_from(more).unwrap_or(0))
}
