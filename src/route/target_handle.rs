//! One target among those of a model, as the choice sees it: its share, its limits, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::Nanos;
use super::blame::Blame;
use super::breaker::{Breaker, BreakerAdmission, BreakerRules, jittered};
use super::load::{InFlight, Latency};
use super::reported_quota::{Rate, ReportedQuota};

/// How long a target is left alone that wants to be and does not say for how long.
const BUSY: Nanos = 1_000_000_000;
/// A provider that wants to be left alone for longer is asked again after this time: it may have had a bad moment.
const LONGEST: Nanos = 600_000_000_000;
/// What is noted of a failure as the time it took, at least: who fails at once is not quick.
const FAILURE: Nanos = 1_000_000_000;

/// What may be asked of a target. Nothing where a limit is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetLimits {
    /// Requests at a time.
    pub concurrent: Option<u32>,
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Input tokens per minute.
    pub tokens_per_minute: Option<u64>,
}

/// Target of a model as the balancer sees it: weight, tier, limits and shared state.
#[derive(Clone, Debug)]
pub struct TargetHandle {
    /// Its share among the targets of its tier; 0 takes it out.
    pub weight: u32,
    /// Targets of a tier are asked when none of the tiers before it can be.
    pub tier: u8,
    /// Its limits.
    pub limits: TargetLimits,
    /// What is known of it. Outlives a reload.
    pub state: Arc<TargetState>,
}

/// Shared state of a target: breakers, requests in flight, latency and reported quota. All models that lead to the
/// target share it.
#[derive(Debug, Default)]
pub struct TargetState {
    /// What stands for the target in hashes: the same in every process.
    pub id: u64,
    /// Whether it fails.
    pub breaker: Breaker,
    /// Whether its provider can be reached and takes the credential.
    pub provider_breaker: Arc<Breaker>,
    /// Requests under way.
    pub in_flight: InFlight,
    /// How quickly it answers.
    pub latency: Latency,
    /// The provider wants to be left alone until then.
    told: AtomicI64,
    requests: Rate,
    tokens: Rate,
    learnt_requests: ReportedQuota,
    learnt_tokens: ReportedQuota,
}

/// Reason why a target is excluded from selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// It fails; it may be tried again at that time.
    Failing(Nanos),
    /// A limit is reached; it is worth asking again at that time.
    Full(Nanos),
}

impl TargetState {
    /// A target of which nothing is known.
    pub fn new(id: u64, provider_breaker: Arc<Breaker>) -> TargetState {
        TargetState { id, provider_breaker, ..TargetState::default() }
    }

    /// Leaves it alone until then.
    pub fn hold(&self, until: Nanos) {
        self.told.fetch_max(until, Ordering::Relaxed);
    }

    /// Takes over what its provider said of its limit on requests.
    pub fn learn_requests(&self, left: u64, until: Nanos, now: Nanos) {
        self.learnt_requests.tell(left, until.min(now.saturating_add(LONGEST)));
    }

    /// Takes over what its provider said of its limit on tokens.
    pub fn learn_tokens(&self, left: u64, until: Nanos, now: Nanos) {
        self.learnt_tokens.tell(left, until.min(now.saturating_add(LONGEST)));
    }

    /// Until when it is left alone because it was asked for; a time that is over otherwise.
    pub fn told(&self) -> Nanos {
        self.told.load(Ordering::Relaxed)
    }
}

impl TargetHandle {
    /// Why a request of so many tokens cannot go here now; nothing if it can.
    pub fn out(&self, now: Nanos, tokens: u64) -> Option<Excluded> {
        let state = &*self.state;
        let full = self.full(now, tokens);
        if full > now {
            return Some(Excluded::Full(full));
        }
        for breaker in [&state.breaker, &*state.provider_breaker] {
            if !breaker.admits(now) {
                let until = match breaker.state(now) {
                    super::breaker::BreakerState::Open(until) => until,
                    _ => now,
                };
                return Some(Excluded::Failing(until));
            }
        }
        None
    }

    /// Until when its limits are reached.
    fn full(&self, now: Nanos, tokens: u64) -> Nanos {
        let (state, limits) = (&*self.state, &self.limits);
        let mut until = state.told();
        if limits.concurrent.is_some_and(|most| state.in_flight.get() >= most) {
            until = until.max(now.saturating_add(BUSY));
        }
        let mut wait = state.learnt_requests.wait(now, 1).max(state.learnt_tokens.wait(now, tokens));
        if let Some(limit) = limits.requests_per_minute {
            wait = wait.max(state.requests.wait(now, 1, limit));
        }
        if let Some(limit) = limits.tokens_per_minute {
            wait = wait.max(state.tokens.wait(now, tokens, limit));
        }
        until.max(now.saturating_add(wait))
    }

    /// Sends a request here, unless somebody else was quicker. `forced` goes through breakers, never beyond limits.
    pub fn enter(&self, now: Nanos, tokens: u64, forced: bool) -> Option<TargetPermit> {
        let (state, limits) = (&self.state, &self.limits);
        if !state.in_flight.enter(limits.concurrent) {
            return None;
        }
        // From here on, whatever was taken is given back by dropping it.
        let mut permit = TargetPermit {
            state: state.clone(),
            target: BreakerAdmission::Closed,
            provider: BreakerAdmission::Closed,
            begun: now,
            answered: false,
        };
        let or_forced =
            |entry: Option<BreakerAdmission>| entry.or(forced.then_some(BreakerAdmission::Forced));
        permit.target = or_forced(state.breaker.enter(now))?;
        permit.provider = or_forced(state.provider_breaker.enter(now))?;
        if let Some(limit) = limits.requests_per_minute
            && !state.requests.take(now, 1, limit)
        {
            return None;
        }
        if let Some(limit) = limits.tokens_per_minute
            && !state.tokens.take(now, tokens, limit)
        {
            if let Some(limit) = limits.requests_per_minute {
                state.requests.give_back(1, limit);
            }
            return None;
        }
        state.learnt_requests.take(now, 1);
        state.learnt_tokens.take(now, tokens);
        Some(permit)
    }
}

/// What a failure has changed, to be said loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// Nothing that was not so before.
    Nothing,
    /// The target is left alone from now on.
    Target,
    /// All of the provider's targets are.
    Provider,
    /// They are, because the provider refuses the credential.
    Credential,
}

/// Concurrency permit of a request at a target, with its breaker tokens. Released when it is dropped.
#[derive(Debug)]
pub struct TargetPermit {
    state: Arc<TargetState>,
    target: BreakerAdmission,
    provider: BreakerAdmission,
    begun: Nanos,
    answered: bool,
}

impl TargetPermit {
    /// The target.
    pub fn state(&self) -> &Arc<TargetState> {
        &self.state
    }

    /// The target has begun to answer. Only the first time counts.
    pub fn answered(&mut self, now: Nanos) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        self.state.latency.observe(now - self.begun, now);
        self.state.breaker.succeeded(std::mem::replace(&mut self.target, BreakerAdmission::Closed));
        self.state
            .provider_breaker
            .succeeded(std::mem::replace(&mut self.provider, BreakerAdmission::Closed));
    }

    /// The request failed. `wait` is how long the provider wants to be left alone, `point` uniform over all of `u64`.
    pub fn failed(
        mut self,
        blame: Blame,
        wait: Option<Nanos>,
        now: Nanos,
        rules: &BreakerRules,
        point: u64,
    ) -> BreakerChange {
        match blame {
            // Its answer came: that is what a probe wants to know.
            Blame::Client => self.answered(now),
            // It is not known how it would have gone on.
            Blame::Gateway => {}
            _ => return self.failed_for(blame, wait, now, rules, point),
        }
        BreakerChange::Nothing
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
        // What was said here is not to be said again when the permit goes.
        self.answered = true;
        state.latency.observe((now - self.begun).max(FAILURE), now);
        let (changed, opened) = match blame {
            Blame::Client | Blame::Gateway => (BreakerChange::Nothing, false),
            Blame::Target => {
                state.provider_breaker.succeeded(provider);
                (BreakerChange::Target, state.breaker.failed(target, now, rules, point))
            }
            Blame::Busy => {
                let wait = wait.unwrap_or_else(|| jittered(BUSY, point)).clamp(0, LONGEST);
                state.hold(now.saturating_add(wait));
                // It answers, which is all that the provider's breaker is about; but a probe has not shown that it
                // works.
                state.provider_breaker.succeeded(provider);
                match target {
                    BreakerAdmission::Closed => (BreakerChange::Nothing, false),
                    entry => (BreakerChange::Nothing, state.breaker.failed(entry, now, rules, point)),
                }
            }
            Blame::Provider => {
                state.breaker.given_up(target);
                (BreakerChange::Provider, state.provider_breaker.failed(provider, now, rules, point))
            }
            Blame::Credential => {
                state.breaker.given_up(target);
                (BreakerChange::Credential, state.provider_breaker.trip(provider, now, rules, point))
            }
        };
        if opened { changed } else { BreakerChange::Nothing }
    }
}

impl Drop for TargetPermit {
    fn drop(&mut self) {
        self.state.in_flight.leave();
        if !self.answered {
            self.state.breaker.given_up(self.target);
            self.state.provider_breaker.given_up(self.provider);
        }
    }
}
