//! Target of a model as the balancer sees it: weight, limits, admission and shared state.

use std::sync::Arc;

use super::Nanos;
use super::blame::Blame;
use super::breaker::{Breaker, BreakerAdmission, BreakerRules, jittered};
use super::load::{InFlight, Latency};
use super::reported_quota::ReportedQuota;
use crate::limits::Gcra;
use sync::atomic::{AtomicI64, Ordering};

/// Default cooldown of a busy target whose provider sends no `retry-after`: 1 s.
const DEFAULT_COOLDOWN: Nanos = 1_000_000_000;
/// Upper bound on a cooldown or quota reset that a provider names: 10 min. An absurd value must not exclude a target
/// for days.
const MAX_COOLDOWN: Nanos = 600_000_000_000;
/// Lower bound on the latency recorded for a failure (1 s), so that fast failures do not attract traffic.
const MIN_FAILURE_LATENCY: Nanos = 1_000_000_000;

/// Limits of a target. `None` where a limit is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetLimits {
    /// Concurrent requests.
    pub concurrent: Option<u32>,
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Input tokens per minute.
    pub tokens_per_minute: Option<u64>,
}

/// Target of a model as the balancer sees it: weight, tier, limits and shared state.
#[derive(Clone, Debug)]
pub struct TargetHandle {
    /// Weight among the targets of its tier; 0 disables the target.
    pub weight: u32,
    /// Tier; a tier is used only while no target of a lower tier can take the request.
    pub tier: u8,
    /// Limits of the target.
    pub limits: TargetLimits,
    /// Shared state. Survives a reload.
    pub state: Arc<TargetState>,
}

/// Shared state of a target: breakers, requests in flight, latency and reported quota. All models that lead to the
/// target share it.
#[derive(Debug, Default)]
pub struct TargetState {
    /// Stable hash of provider and model name, equal in every process.
    pub id: u64,
    /// Circuit breaker of the target.
    pub breaker: Breaker,
    /// Circuit breaker of the provider, shared by all its targets. Counts connection failures and rejected credentials.
    pub provider_breaker: Arc<Breaker>,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// Latency estimate.
    pub latency: Latency,
    /// End of the provider's cooldown, from `retry-after` or the default; a time in the past if none applies.
    cooldown_until: AtomicI64,
    requests: Gcra,
    tokens: Gcra,
    reported_requests: ReportedQuota,
    reported_tokens: ReportedQuota,
}

/// Reason why a target is excluded from selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// The breaker is open; a probe is permitted at this time.
    BreakerOpen(Nanos),
    /// A limit or a cooldown applies; capacity is expected at this time.
    RateLimited(Nanos),
}

impl TargetState {
    /// Creates the state of a target without history.
    pub fn new(id: u64, provider_breaker: Arc<Breaker>) -> TargetState {
        TargetState { id, provider_breaker, ..TargetState::default() }
    }

    /// Starts a cooldown until `until`, unless a longer one runs already.
    pub fn start_cooldown(&self, until: Nanos) {
        self.cooldown_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Stores the remaining requests that the provider reported. They apply until `until`, at most 10 min from `now`.
    pub fn observe_requests(&self, left: u64, until: Nanos, now: Nanos) {
        self.reported_requests.observe(left, until.min(now.saturating_add(MAX_COOLDOWN)));
    }

    /// Stores the remaining tokens that the provider reported. They apply until `until`, at most 10 min from `now`.
    pub fn observe_tokens(&self, left: u64, until: Nanos, now: Nanos) {
        self.reported_tokens.observe(left, until.min(now.saturating_add(MAX_COOLDOWN)));
    }

    /// Returns the end of the last cooldown; a time in the past if none applies.
    pub fn cooldown_until(&self) -> Nanos {
        self.cooldown_until.load(Ordering::Relaxed)
    }
}

impl TargetHandle {
    /// Returns why a request of `tokens` input tokens cannot be sent to this target now, or `None` if it can.
    pub fn exclusion(&self, now: Nanos, tokens: u64) -> Option<Excluded> {
        let state = &*self.state;
        // Limits come before breakers: a target at its limit must not be forced by the last resort.
        let available_at = self.available_at(now, tokens);
        if available_at > now {
            return Some(Excluded::RateLimited(available_at));
        }
        for breaker in [&state.breaker, &*state.provider_breaker] {
            if !breaker.would_admit(now) {
                let until = match breaker.state(now) {
                    super::breaker::BreakerState::Open(until) => until,
                    _ => now,
                };
                return Some(Excluded::BreakerOpen(until));
            }
        }
        None
    }

    /// Returns when the limits and the cooldown permit the request; a time not after `now` if they do already.
    fn available_at(&self, now: Nanos, tokens: u64) -> Nanos {
        let (state, limits) = (&*self.state, &self.limits);
        let mut until = state.cooldown_until();
        // When a slot becomes free is unknown; 1 s is a `retry-after` that does not make clients spin.
        if limits.concurrent.is_some_and(|most| state.in_flight.get() >= most) {
            until = until.max(now.saturating_add(DEFAULT_COOLDOWN));
        }
        let mut wait = state.reported_requests.wait(now, 1).max(state.reported_tokens.wait(now, tokens));
        if let Some(limit) = limits.requests_per_minute {
            wait = wait.max(state.requests.wait(now, 1, limit));
        }
        if let Some(limit) = limits.tokens_per_minute {
            // A request above the limit waits until all of the limit is available; otherwise it could never be sent.
            wait = wait.max(state.tokens.wait(now, tokens.min(limit), limit));
        }
        until.max(now.saturating_add(wait))
    }

    /// Admits a request and returns its permit, or `None` if a configured limit or a breaker does not admit it, for
    /// example because a concurrent request took the last slot since [`TargetHandle::exclusion`]. `forced` overrides
    /// breakers, never limits. Cooldown and reported quota are not checked here, but in [`TargetHandle::exclusion`].
    pub fn acquire(&self, now: Nanos, tokens: u64, forced: bool) -> Option<TargetPermit> {
        let (state, limits) = (&self.state, &self.limits);
        // The balancer checked the limits in [`TargetHandle::exclusion`], without taking anything. Each step below is
        // atomic, so that concurrent requests cannot exceed a limit.
        if !state.in_flight.acquire(limits.concurrent) {
            return None;
        }
        // From here on an early return drops the permit, which releases the concurrency slot and any breaker probe.
        let mut permit = TargetPermit {
            state: state.clone(),
            target: BreakerAdmission::Closed,
            provider: BreakerAdmission::Closed,
            started_at: now,
            answered: false,
            in_flight: true,
        };
        let or_forced =
            |admission: Option<BreakerAdmission>| admission.or(forced.then_some(BreakerAdmission::Forced));
        permit.target = or_forced(state.breaker.admit(now))?;
        permit.provider = or_forced(state.provider_breaker.admit(now))?;
        if let Some(limit) = limits.requests_per_minute
            && state.requests.take(now, 1, limit).is_err()
        {
            return None;
        }
        if let Some(limit) = limits.tokens_per_minute
            && state.tokens.take(now, tokens.min(limit), limit).is_err()
        {
            if let Some(limit) = limits.requests_per_minute {
                // The rate limiter has no transaction over both limits: undo the first.
                state.requests.refund(1, limit);
            }
            return None;
        }
        // Reported quota is only an estimate between two reports, so it may go negative and never rejects here.
        state.reported_requests.take(now, 1);
        state.reported_tokens.take(now, tokens);
        Some(permit)
    }
}

/// State change that a failure caused, to be logged as a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// No breaker opened.
    Unchanged,
    /// The target's breaker opened.
    Target,
    /// The provider's breaker opened; it excludes all targets of the provider.
    Provider,
    /// The provider's breaker opened because the provider rejected the credential.
    Credential,
}

/// Concurrency permit of a request at a target, with its breaker tokens. Released when it is dropped.
#[derive(Debug)]
pub struct TargetPermit {
    state: Arc<TargetState>,
    target: BreakerAdmission,
    provider: BreakerAdmission,
    started_at: Nanos,
    answered: bool,
    /// Whether the request still counts as in flight.
    in_flight: bool,
}

impl TargetPermit {
    /// Frees the place at the target, because the response has ended. The outcome may be recorded later.
    pub fn release_place(&mut self) {
        if std::mem::take(&mut self.in_flight) {
            self.state.in_flight.release();
        }
    }

    /// Returns the shared state of the target.
    pub fn state(&self) -> &Arc<TargetState> {
        &self.state
    }

    /// Records that the target has started to respond: the latency until now, and a success for both breakers. Only the
    /// first call has an effect.
    pub fn on_response(&mut self, now: Nanos) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        self.state.latency.observe(now - self.started_at, now);
        self.state.breaker.on_success(std::mem::replace(&mut self.target, BreakerAdmission::Closed));
        self.state
            .provider_breaker
            .on_success(std::mem::replace(&mut self.provider, BreakerAdmission::Closed));
    }

    /// Records a failed request and returns the breaker change that it caused. `wait` is the provider's `retry-after`
    /// in nanoseconds; `point` is uniform over all of `u64` and jitters the times.
    pub fn failed(
        mut self,
        blame: Blame,
        wait: Option<Nanos>,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> BreakerChange {
        match blame {
            // A rejected request shows that the target responds, so it counts as a success and ends a probe.
            Blame::Client => self.on_response(now),
            // The outcome is unknown: dropping the permit releases a probe without a verdict.
            Blame::Gateway => {}
            _ => return self.failed_for(blame, wait, now, rules, point),
        }
        BreakerChange::Unchanged
    }

    fn failed_for(
        mut self,
        blame: Blame,
        wait: Option<Nanos>,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> BreakerChange {
        let state = self.state.clone();
        let (target, provider) = (self.target, self.provider);
        // The breakers get their outcome below. Without this, dropping the permit would report a second one.
        self.answered = true;
        state.latency.observe((now - self.started_at).max(MIN_FAILURE_LATENCY), now);
        let (changed, opened) = match blame {
            Blame::Client | Blame::Gateway => (BreakerChange::Unchanged, false),
            Blame::Target => {
                state.provider_breaker.on_success(provider);
                (BreakerChange::Target, state.breaker.on_failure(target, now, rules, point))
            }
            Blame::Busy => {
                let wait = wait.unwrap_or_else(|| jittered(DEFAULT_COOLDOWN, point)).clamp(0, MAX_COOLDOWN);
                state.start_cooldown(now.saturating_add(wait));
                // The provider responds, which is all that its breaker is about. A probe of the target, however, did
                // not show that the target works: it counts as failed.
                state.provider_breaker.on_success(provider);
                match target {
                    BreakerAdmission::Closed => (BreakerChange::Unchanged, false),
                    admission => {
                        (BreakerChange::Unchanged, state.breaker.on_failure(admission, now, rules, point))
                    }
                }
            }
            Blame::Provider => {
                state.breaker.on_unknown(target);
                (BreakerChange::Provider, state.provider_breaker.on_failure(provider, now, rules, point))
            }
            Blame::Credential => {
                state.breaker.on_unknown(target);
                (BreakerChange::Credential, state.provider_breaker.trip(provider, now, rules, point))
            }
        };
        if opened { changed } else { BreakerChange::Unchanged }
    }
}

impl Drop for TargetPermit {
    fn drop(&mut self) {
        self.release_place();
        if !self.answered {
            self.state.breaker.on_unknown(self.target);
            self.state.provider_breaker.on_unknown(self.provider);
        }
    }
}
