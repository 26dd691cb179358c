//! Limits of a key or an account, and how much of them is used.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::quota_lease::QuotaLease;
use super::{Calendar, Denied, Gcra, Nanos, Remaining};

/// Limits of a key or account. `None` where a limit is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageLimits {
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute, input and output.
    pub tokens_per_minute: Option<u64>,
    /// Concurrent requests.
    pub concurrent: Option<u32>,
    /// Spend per day (UTC), in nano-units.
    pub spend_per_day: Option<i64>,
    /// Spend per month (UTC), in nano-units.
    pub spend_per_month: Option<i64>,
}

impl UsageLimits {
    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == UsageLimits::default()
    }

    /// Returns true if spend is limited.
    pub fn has_spend(&self) -> bool {
        self.spend_per_day.is_some() || self.spend_per_month.is_some()
    }

    /// Returns the limit that a request exceeds by itself, so that no wait helps: its tokens or its cost, in nano-units,
    /// are above the whole limit. `None` if there is none.
    pub fn exceeded_alone(&self, tokens: u64, cost: i64) -> Option<Exceeded> {
        let tokens = self.tokens_per_minute.filter(|limit| tokens > *limit);
        let spend = |limit: Option<i64>| limit.filter(|limit| cost > *limit).map(i64::unsigned_abs);
        let of = |which, limit: Option<u64>| limit.map(|limit| Exceeded { which, limit, wait: None });
        of(Which::Tokens, tokens)
            .or_else(|| of(Which::SpendPerMonth, spend(self.spend_per_month)))
            .or_else(|| of(Which::SpendPerDay, spend(self.spend_per_day)))
    }
}

/// Kind of limit that denied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Concurrent requests.
    Concurrent,
    /// Spend per day.
    SpendPerDay,
    /// Spend per month.
    SpendPerMonth,
}

impl Which {
    /// Returns the name in the configuration and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Which::Requests => "requests_per_minute",
            Which::Tokens => "tokens_per_minute",
            Which::Concurrent => "concurrent",
            Which::SpendPerDay => "spend_per_day",
            Which::SpendPerMonth => "spend_per_month",
        }
    }
}

/// Denial of a request by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Kind of the limit.
    pub which: Which,
    /// Value of the limit; spend in nano-units.
    pub limit: u64,
    /// Time after which a retry may succeed. `None` if never, because the request is larger than the limit itself.
    pub wait: Option<Duration>,
}

/// Amounts that a request takes of its limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitRequest {
    /// Current time, in nanoseconds since the epoch of the process's clock.
    pub now: Nanos,
    /// Current day and month.
    pub calendar: Calendar,
    /// Estimated tokens.
    pub tokens: u64,
    /// Estimated cost, in nano-units.
    pub cost: i64,
}

/// Usage of the limits of one key or account. Survives a reload.
#[derive(Debug, Default)]
pub struct LimitState {
    requests: Gcra,
    tokens: Gcra,
    in_flight: AtomicU32,
    spend: Mutex<Spend>,
    /// Tokens and cost of the last request that exceeded a limit by itself; 0 if one was admitted since.
    oversized: (AtomicU64, AtomicI64),
    /// Quota lease, if several gateways share the limits. It then replaces all other fields.
    quota_lease: Option<Box<QuotaLease>>,
}

#[derive(Debug, Default)]
struct Spend {
    loaded: bool,
    day: Period,
    month: Period,
}

#[derive(Clone, Copy, Debug, Default)]
struct Period {
    number: i64,
    nanos: i64,
}

impl Period {
    fn of(&mut self, number: i64) -> &mut i64 {
        if self.number != number {
            // A clock that steps back must not reset what was spent.
            if number > self.number {
                *self = Period { number, nanos: 0 };
            }
        }
        &mut self.nanos
    }
}

impl LimitState {
    /// Creates a state with nothing used.
    pub fn new() -> LimitState {
        LimitState { requests: Gcra::new(), tokens: Gcra::new(), ..LimitState::default() }
    }

    /// Creates a state of limits that several gateways share.
    pub fn shared() -> LimitState {
        LimitState { quota_lease: Some(Box::default()), ..LimitState::default() }
    }

    /// Returns the quota lease; `None` if the limits are not shared.
    pub fn quota_lease(&self) -> Option<&QuotaLease> {
        self.quota_lease.as_deref()
    }

    /// Returns true if the spend before the start of this process has not been loaded yet.
    pub fn needs_spend(&self) -> bool {
        self.quota_lease.is_none() && !self.spend.lock().loaded
    }

    /// Sets the spend of this day and month before the start of this process, in nano-units. Only the first call has an
    /// effect.
    pub fn load_spend(&self, calendar: &Calendar, day: i64, month: i64) {
        let mut spend = self.spend.lock();
        if !spend.loaded {
            spend.loaded = true;
            add(spend.day.of(calendar.day), day);
            add(spend.month.of(calendar.month), month);
        }
    }

    /// Admits a request and takes its part of all limits; if it is denied, nothing is taken.
    ///
    /// # Errors
    /// Returns [`Denied`] if a limit is reached or, for shared limits, if the coordinator must decide or is
    /// unreachable.
    pub fn admit(
        self: &Arc<Self>,
        limits: &UsageLimits,
        request: &LimitRequest,
    ) -> Result<LimitGrant, Denied> {
        // A lease decides first: in an outage of the coordinator it has the overdraft, which is not part of the limit.
        let admitted = match (&self.quota_lease, limits.exceeded_alone(request.tokens, request.cost)) {
            (None, Some(exceeded)) => Err(Denied::LimitReached(exceeded)),
            (None, None) => self.admit_local(limits, request).map_err(Denied::LimitReached),
            (Some(lease), _) => lease.take(limits, request).map(|()| self.grant(limits, request)),
        };
        let admitted = admitted.map_err(|denied| match denied {
            Denied::LimitReached(exceeded) => Denied::LimitReached(self.exceeded(exceeded, limits, request)),
            other => other,
        });
        if admitted.is_ok() && self.oversized() != (0, 0) {
            self.set_oversized(0, 0);
        }
        admitted
    }

    /// Returns the limit that denies a request: one that it exceeds by itself, if there is one, since no wait helps then.
    pub fn exceeded(&self, exceeded: Exceeded, limits: &UsageLimits, request: &LimitRequest) -> Exceeded {
        let alone = limits.exceeded_alone(request.tokens, request.cost);
        if alone.is_some() {
            self.set_oversized(request.tokens, request.cost);
        }
        alone.unwrap_or(exceeded)
    }

    /// Returns the tokens and the cost, in nano-units, of the last request that exceeded a limit by itself; 0 if there was
    /// none, or one was admitted since.
    pub fn oversized(&self) -> (u64, i64) {
        (self.oversized.0.load(Ordering::Relaxed), self.oversized.1.load(Ordering::Relaxed))
    }

    fn set_oversized(&self, tokens: u64, cost: i64) {
        self.oversized.0.store(tokens, Ordering::Relaxed);
        self.oversized.1.store(cost, Ordering::Relaxed);
    }

    /// Returns the grant of a request that the coordinator has admitted.
    pub fn grant(self: &Arc<Self>, limits: &UsageLimits, request: &LimitRequest) -> LimitGrant {
        let taken = GrantedLimit {
            concurrency: limits.concurrent.is_some(),
            requests: limits.requests_per_minute.is_some(),
            tokens: limits.tokens_per_minute.is_some(),
            cost: limits.has_spend(),
        };
        LimitGrant { state: self.clone(), limits: *limits, amounts: *request, taken }
    }

    fn admit_local(
        self: &Arc<Self>,
        limits: &UsageLimits,
        request: &LimitRequest,
    ) -> Result<LimitGrant, Exceeded> {
        // `grant` records what was taken. A denial must return it: a drop returns all but the counted request,
        // which only `undo` returns.
        let mut grant = LimitGrant {
            state: self.clone(),
            limits: *limits,
            amounts: *request,
            taken: GrantedLimit::default(),
        };
        if let Some(most) = limits.concurrent {
            let more = |now: u32| (now < most).then_some(now.saturating_add(1));
            if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                let wait = Some(Duration::from_secs(1));
                return Err(Exceeded { which: Which::Concurrent, limit: u64::from(most), wait });
            }
            grant.taken.concurrency = true;
        }
        if let Some(limit) = limits.requests_per_minute {
            let taken = self.requests.take(request.now, 1, limit);
            taken.map_err(|wait| Exceeded { which: Which::Requests, limit, wait })?;
            grant.taken.requests = true;
        }
        if let Some(limit) = limits.tokens_per_minute {
            match self.tokens.take(request.now, request.tokens, limit) {
                Ok(_) => grant.taken.tokens = true,
                Err(wait) => {
                    grant.undo();
                    return Err(Exceeded { which: Which::Tokens, limit, wait });
                }
            }
        }
        if limits.has_spend()
            && let Err(exceeded) = self.spend(limits, request)
        {
            grant.undo();
            return Err(exceeded);
        }
        grant.taken.cost = limits.has_spend();
        Ok(grant)
    }

    fn spend(&self, limits: &UsageLimits, request: &LimitRequest) -> Result<(), Exceeded> {
        let mut spend = self.spend.lock();
        let over = |limit: Option<i64>, spent: i64| {
            limit.filter(|limit| spent.saturating_add(request.cost) > *limit).map(i64::unsigned_abs)
        };
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let calendar = &request.calendar;
        if let Some(limit) = over(limits.spend_per_month, *spend.month.of(calendar.month)) {
            return Err(Exceeded { which: Which::SpendPerMonth, limit, wait: wait(calendar.month_ends_in) });
        }
        if let Some(limit) = over(limits.spend_per_day, *spend.day.of(calendar.day)) {
            return Err(Exceeded { which: Which::SpendPerDay, limit, wait: wait(calendar.day_ends_in) });
        }
        add(spend.day.of(calendar.day), request.cost);
        add(spend.month.of(calendar.month), request.cost);
        Ok(())
    }

    /// Returns the remaining requests and tokens. `None` where a limit is not set.
    pub fn remaining(&self, limits: &UsageLimits, now: Nanos) -> (Option<Remaining>, Option<Remaining>) {
        if let Some(lease) = &self.quota_lease {
            return lease.remaining(limits, now);
        }
        let left = |bucket: &Gcra, limit: Option<u64>| limit.map(|limit| bucket.remaining(now, limit));
        (left(&self.requests, limits.requests_per_minute), left(&self.tokens, limits.tokens_per_minute))
    }

    /// Returns the number of requests in flight. `None` if the limits are shared.
    pub fn in_flight(&self) -> Option<u32> {
        self.quota_lease.is_none().then(|| self.in_flight.load(Ordering::Relaxed))
    }

    /// Returns the spend of this day and this month, with what requests in progress have reserved, in nano-units. `None`
    /// if the limits are shared and the spend of the fleet is not known.
    pub fn spent(&self, calendar: &Calendar) -> Option<(i64, i64)> {
        if let Some(lease) = &self.quota_lease {
            return lease.spent(calendar);
        }
        let mut spend = self.spend.lock();
        Some((*spend.day.of(calendar.day), *spend.month.of(calendar.month)))
    }

    /// Returns true if this state holds no more information than a new one, so that it may be dropped.
    pub fn is_idle(&self, now: Nanos, calendar: &Calendar) -> bool {
        if let Some(lease) = &self.quota_lease {
            return lease.is_idle(now);
        }
        let spend = self.spend.lock();
        let spent = |period: &Period, number: i64| period.number >= number && period.nanos != 0;
        self.in_flight.load(Ordering::Relaxed) == 0
            && self.requests.is_full(now)
            && self.tokens.is_full(now)
            && !spent(&spend.day, calendar.day)
            && !spent(&spend.month, calendar.month)
    }
}

/// Grant of a limit. When it is dropped, its concurrency is released, and tokens and money that were not reported are
/// returned.
#[derive(Debug)]
pub struct LimitGrant {
    state: Arc<LimitState>,
    limits: UsageLimits,
    amounts: LimitRequest,
    taken: GrantedLimit,
}

#[derive(Clone, Copy, Debug, Default)]
struct GrantedLimit {
    concurrency: bool,
    requests: bool,
    tokens: bool,
    cost: bool,
}

impl LimitGrant {
    /// Settles the grant with the actual usage; `cost` in nano-units. The charge must be in the ledger's journal
    /// already, if there is a ledger.
    pub fn settle(mut self, now: Nanos, tokens: u64, cost: i64) {
        self.correct_tokens(now, tokens);
        self.correct_spend(cost);
    }

    /// Undoes the grant completely: the request was never sent. Unlike a drop, this also returns the request to the
    /// rate limit.
    pub fn undo(mut self) {
        if let (true, Some(limit)) =
            (std::mem::take(&mut self.taken.requests), self.limits.requests_per_minute)
        {
            match self.state.quota_lease() {
                Some(lease) => lease.refund_request(limit),
                None => self.state.requests.refund(1, limit),
            }
        }
    }

    fn correct_tokens(&mut self, now: Nanos, tokens: u64) {
        let (true, Some(limit)) = (std::mem::take(&mut self.taken.tokens), self.limits.tokens_per_minute)
        else {
            return;
        };
        let less = self.amounts.tokens.checked_sub(tokens);
        match (self.state.quota_lease(), less) {
            (Some(lease), Some(less)) => lease.correct_tokens(i64::try_from(less).unwrap_or(i64::MAX), limit),
            (Some(lease), None) => {
                let more = i64::try_from(tokens.saturating_sub(self.amounts.tokens)).unwrap_or(i64::MAX);
                lease.correct_tokens(more.saturating_neg(), limit);
            }
            (None, Some(less)) => self.state.tokens.refund(less, limit),
            (None, None) => {
                self.state.tokens.take_debt(now, tokens.saturating_sub(self.amounts.tokens), limit)
            }
        }
    }

    fn correct_spend(&mut self, cost: i64) {
        if !std::mem::take(&mut self.taken.cost) {
            return;
        }
        if let Some(lease) = self.state.quota_lease() {
            lease.settle_spend(self.amounts.cost, cost);
            return;
        }
        let correction = cost.saturating_sub(self.amounts.cost);
        let mut spend = self.state.spend.lock();
        // Correct the day on which the estimate was taken; a day that is over needs no correction.
        let calendar = &self.amounts.calendar;
        if spend.day.number == calendar.day {
            spend.day.nanos = spend.day.nanos.saturating_add(correction);
        }
        if spend.month.number == calendar.month {
            spend.month.nanos = spend.month.nanos.saturating_add(correction);
        }
    }
}

impl Drop for LimitGrant {
    fn drop(&mut self) {
        // Without a report of usage, nothing was used. The time is needed only for usage above the estimate.
        self.correct_tokens(0, 0);
        self.correct_spend(0);
        if std::mem::take(&mut self.taken.concurrency) {
            match self.state.quota_lease() {
                Some(lease) => lease.release_permit(),
                None => drop(self.state.in_flight.fetch_sub(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Adds to a sum of money; saturates.
fn add(sum: &mut i64, amount: i64) {
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests;
