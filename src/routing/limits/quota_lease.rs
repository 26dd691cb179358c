//! Quota lease: this gateway's part of limits that several gateways share. Requests are admitted from it without a
//! round trip to the coordinator, which counts all gateways.
//!
//! Requests and tokens per minute are taken from the fleet's bucket ahead of use. Concurrency permits and spend are
//! leased, and the whole lease is reported with each renewal. A request takes all of its limits or none, in one short
//! critical section.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod shared_spend;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Exceeded, LimitRequest, Nanos, Remaining, UsageLimits, Which, gcra};
use shared_spend::{LeasedSpend, LedgerSpend};

/// Time, in nanoseconds, for which a denial is repeated and the state of the fleet's buckets is trusted without
/// contact to the coordinator: 50 ms.
const DENIAL_TTL: Nanos = 50_000_000;

/// Listener that is notified of concurrency permits that other gateways may use.
pub trait SurplusListener: Send + Sync + fmt::Debug {
    /// Called when there are surplus permits; once until the next report.
    fn on_surplus(&self);
}

/// Reason why a request cannot be admitted from the local lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A limit is reached.
    LimitReached(Exceeded),
    /// The local lease does not suffice; the coordinator must decide.
    NeedsCoordinator,
    /// The coordinator is unreachable, and the request would need money beyond the lease.
    CoordinatorDown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// No lease yet: the coordinator decides.
    #[default]
    New,
    Shared,
    /// Degraded mode: the coordinator is unreachable, and this gateway admits its share of the fleet's limits.
    Degraded,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// Amount leased ahead less the amount used; a negative value is owed to the fleet's bucket.
    available: i64,
    slice: i64,
    full_at: Nanos,
}

#[derive(Debug, Default)]
struct LeaseState {
    mode: Mode,
    gateways: u32,
    granted_at: Nanos,
    requests: Rate,
    tokens: Rate,
    /// Concurrency permits: leased to this gateway, in use, and how many it may retain unused.
    permits: u32,
    in_flight: u32,
    surplus: u32,
    surplus_notified: bool,
    spend: LeasedSpend,
    ledger_spend: Option<LedgerSpend>,
    /// Last denial by the coordinator: until when it is repeated, the limit and the cost of the request.
    last_denial: Option<(Nanos, Exceeded, i64)>,
    used: bool,
}

/// Lease renewal that a gateway sends to the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Requests that the gateway owes to the fleet's bucket; negative if it returns some.
    pub requests: i64,
    /// Tokens, likewise.
    pub tokens: i64,
    /// Concurrency permits that it retains.
    pub permits: u32,
    /// Number of them that are not in use.
    pub idle: u32,
    /// Spend that it retains, in nano-units.
    pub spend: i64,
    /// Overdrawn part of the spend, which `spend` does not contain.
    overdrawn: i64,
}

impl LeaseRequest {
    /// Returns true if the gateway retains no permits and no spend.
    pub fn is_empty(&self) -> bool {
        self.permits == 0 && self.spend == 0
    }
}

/// Lease grant that the coordinator returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Nanoseconds until the fleet's buckets are full: of requests and of tokens.
    pub full_in: (Nanos, Nanos),
    /// Requests and tokens that are leased to the gateway ahead of use.
    pub ahead: (i64, i64),
    /// Concurrency permits that are leased to it.
    pub permits: u32,
    /// Number of them that it may retain unused.
    pub surplus: u32,
    /// Spend that is leased to it, in nano-units.
    pub spend: i64,
    /// Number of gateways that share the limits.
    pub gateways: u32,
    /// Spend that the coordinator has recorded for this day and this month, in nano-units.
    pub ledger_spend: (i64, i64),
}

/// Leased quota: this gateway's part of a limit that all gateways of a fleet share.
#[derive(Debug, Default)]
pub struct QuotaLease {
    state: Mutex<LeaseState>,
    surplus_listener: OnceLock<Box<dyn SurplusListener>>,
}

impl QuotaLease {
    /// Registers the surplus listener; only the first call has an effect.
    pub fn set_surplus_listener(&self, make: impl FnOnce() -> Box<dyn SurplusListener>) {
        self.surplus_listener.get_or_init(make);
    }

    /// Takes a request's part of all limits, or of none.
    pub(super) fn take(&self, limits: &UsageLimits, request: &LimitRequest) -> Result<(), Denied> {
        let mut state = self.state.lock();
        state.used = true;
        // Larger than the whole limit: no wait helps, so `wait` is `None`.
        if let Some(limit) = limits.tokens_per_minute.filter(|limit| request.tokens > *limit) {
            return Err(Denied::LimitReached(Exceeded { which: Which::Tokens, limit, wait: None }));
        }
        match state.mode {
            Mode::New => return Err(Denied::NeedsCoordinator),
            Mode::Shared => state.admit_leased(limits, request)?,
            Mode::Degraded => state.admit_degraded(limits, request)?,
        }
        state.in_flight = state.in_flight.saturating_add(u32::from(limits.concurrent.is_some()));
        if limits.has_spend() {
            state.spend.reserve(request.cost);
        }
        Ok(())
    }

    /// Releases the concurrency permit of a request. Notifies the listener if there is a surplus.
    pub(super) fn release_permit(&self) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let unused = state.permits.saturating_sub(state.in_flight);
        // Twice as much, because the number in flight varies: each request would end with a transaction otherwise. The next
        // renewal returns the rest.
        let too_many = unused > state.surplus.saturating_mul(2);
        let notify = state.mode == Mode::Shared && too_many && !state.surplus_notified;
        state.surplus_notified |= notify;
        // Notify outside the lock: the listener must not run in the critical section of all requests.
        drop(state);
        if let Some(listener) = self.surplus_listener.get().filter(|_| notify) {
            listener.on_surplus();
        }
    }

    /// Returns a request to the rate limit: it was never sent.
    pub(super) fn refund_request(&self, limit: u64) {
        self.state.lock().correct(|state| &mut state.requests, 1, limit);
    }

    /// Corrects the tokens of a request by the difference between estimate and usage; negative if more were used.
    pub(super) fn correct_tokens(&self, less: i64, limit: u64) {
        self.state.lock().correct(|state| &mut state.tokens, less, limit);
    }

    /// Settles the spend of a request: `held` was reserved for it and `cost` is charged, in nano-units.
    pub(super) fn settle_spend(&self, held: i64, cost: i64) {
        let spend = &mut self.state.lock().spend;
        spend.reserved = spend.reserved.saturating_sub(held);
        spend.available = spend.available.saturating_add(held).saturating_sub(cost);
        spend.charged = spend.charged.saturating_add(cost);
    }

    /// Returns the remaining requests and tokens of the whole fleet, as far as known here.
    pub(super) fn remaining(
        &self,
        limits: &UsageLimits,
        now: Nanos,
    ) -> (Option<Remaining>, Option<Remaining>) {
        let state = self.state.lock();
        let left = |rate: &Rate, limit: u64| match state.mode {
            Mode::Degraded => {
                Remaining { limit, ..gcra::left(rate.full_at, now, state.degraded_share(limit)) }
            }
            _ => {
                let have = gcra::cost(rate.available.unsigned_abs(), limit);
                let full_at = match rate.available {
                    0.. => rate.full_at.saturating_sub(have),
                    _ => rate.full_at.max(now).saturating_add(have),
                };
                gcra::left(full_at, now, limit)
            }
        };
        (
            limits.requests_per_minute.map(|limit| left(&state.requests, limit)),
            limits.tokens_per_minute.map(|limit| left(&state.tokens, limit)),
        )
    }

    /// Returns true if this state holds no more information than a new one, so that it may be dropped.
    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        let state = self.state.lock();
        state.in_flight == 0
            && !state.has_anything()
            && (state.mode != Mode::Degraded || state.requests.full_at.max(state.tokens.full_at) <= now)
    }

    /// Returns true if it was used since the last call.
    pub fn take_used(&self) -> bool {
        std::mem::take(&mut self.state.lock().used)
    }

    /// Returns true if something is leased or owed.
    pub fn has_anything(&self) -> bool {
        self.state.lock().has_anything()
    }

    /// Returns true if a renewal should not wait: there is a debt, or much more than needed, or a surplus of permits.
    pub fn is_renewal_urgent(&self) -> bool {
        let state = self.state.lock();
        let much = |have: i64, slice: i64| have < 0 || have > slice.saturating_mul(2);
        much(state.requests.available, state.requests.slice)
            || much(state.tokens.available, state.tokens.slice)
            || much(state.spend.available, state.spend.slice)
            || state.surplus_notified
    }

    /// Returns true if permits or spend are leased, so that the lease must be renewed.
    pub fn has_leases(&self) -> bool {
        let state = self.state.lock();
        state.permits > 0 || state.spend.total() != 0
    }

    /// Builds a lease renewal; with `all`, everything unused is returned. What is returned can no longer be used from
    /// here on. Call either [`on_ack`](Self::on_ack) or [`on_timeout`](Self::on_timeout) afterwards.
    pub fn renewal(&self, all: bool) -> LeaseRequest {
        let mut state = self.state.lock();
        let requests = state.requests.renewal(all);
        let tokens = state.tokens.renewal(all);
        let spare = if all { 0 } else { state.surplus };
        state.permits = state.permits.min(state.in_flight.saturating_add(spare)).max(state.in_flight);
        state.surplus_notified = false;
        let spend = &mut state.spend;
        // Without `all`, retain one lease for the requests that follow: other gateways may need the rest.
        if all && spend.available > 0 {
            spend.available = 0;
        } else if spend.available > spend.slice.saturating_mul(2) {
            spend.available = spend.slice;
        }
        let overdrawn = spend.available.min(0).saturating_neg();
        LeaseRequest {
            requests,
            tokens,
            permits: state.permits,
            idle: state.permits.saturating_sub(state.in_flight),
            spend: state.spend.total().max(0),
            overdrawn,
        }
    }

    /// Applies a lease grant. The coordinator has admitted `granted` requests, for which `held` nano-units are reserved
    /// together.
    pub fn on_ack(&self, now: Nanos, request: &LeaseRequest, grant: &LeaseGrant, granted: u32, held: i64) {
        let mut state = self.state.lock();
        state.mode = Mode::Shared;
        state.granted_at = now;
        state.gateways = grant.gateways;
        state.last_denial = None;
        state.requests.on_ack(now, grant.full_in.0, grant.ahead.0);
        state.tokens.on_ack(now, grant.full_in.1, grant.ahead.1);
        // Add differences only: requests have used the local lease while the renewal was in flight.
        state.permits = state.permits.saturating_add(grant.permits.saturating_sub(request.permits));
        state.in_flight = state.in_flight.saturating_add(granted);
        state.surplus = grant.surplus;
        let spend = &mut state.spend;
        let more = grant.spend.saturating_sub(request.spend);
        spend.available = spend.available.saturating_add(request.overdrawn).saturating_add(more);
        if more > held {
            spend.slice = more.saturating_sub(held);
        }
        spend.reserve(held);
    }

    /// Handles a renewal without a response: the coordinator may or may not have executed it. Debts remain, so that at
    /// worst they are paid twice, and returned amounts stay returned.
    pub fn on_timeout(&self, request: &LeaseRequest) {
        let mut state = self.state.lock();
        let owed = |have: i64, owed: i64| have.saturating_sub(owed.max(0));
        state.requests.available = owed(state.requests.available, request.requests);
        state.tokens.available = owed(state.tokens.available, request.tokens);
    }

    /// Records a denial by the coordinator: for 50 ms, the same or a larger request is denied without a round trip.
    pub fn record_denial(&self, now: Nanos, exceeded: Exceeded, cost: i64) {
        self.state.lock().last_denial = Some((now.saturating_add(DENIAL_TTL), exceeded, cost));
    }

    /// Enters degraded mode: from now on this gateway admits one part in `gateways`. Spend may be overdrawn by
    /// `allowance`. Without one, leased spend may be used only if the server cannot have reclaimed it (`is_reliable`).
    pub fn enter_degraded(&self, gateways: u32, allowance: Option<i64>, is_reliable: bool) {
        let mut state = self.state.lock();
        state.mode = Mode::Degraded;
        state.gateways = gateways.max(state.gateways).max(1);
        state.spend.overdraft = allowance.or(is_reliable.then_some(0));
    }

    /// Drops everything except the count of requests in flight.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        let in_flight = state.in_flight;
        *state = LeaseState { in_flight, ..LeaseState::default() };
    }
}

impl Rate {
    fn renewal(&mut self, all: bool) -> i64 {
        let keep = if all { 0 } else { self.slice };
        let owes = if self.available < 0 || all || self.available > keep.saturating_mul(2) {
            keep.min(self.available.max(0)).saturating_sub(self.available)
        } else {
            0
        };
        self.available = self.available.saturating_add(owes);
        owes
    }

    fn on_ack(&mut self, now: Nanos, full_in: Nanos, ahead: i64) {
        self.full_at = now.saturating_add(full_in);
        self.available = self.available.saturating_add(ahead);
        if ahead > 0 {
            self.slice = ahead;
        }
    }

    /// Checks that `amount` can be taken from the local lease. Otherwise denies it if the fleet's bucket does
    /// not have it either, or else requires the coordinator.
    fn take(
        &self,
        request: &LimitRequest,
        amount: i64,
        limit: u64,
        granted_at: Nanos,
        which: Which,
    ) -> Result<(), Denied> {
        if self.available >= amount {
            return Ok(());
        }
        let mut full_at = self.full_at;
        match gcra::take(&mut full_at, request.now, amount.unsigned_abs(), limit) {
            Err(wait) if request.now.saturating_sub(granted_at) < DENIAL_TTL => {
                Err(Denied::LimitReached(Exceeded { which, limit, wait }))
            }
            _ => Err(Denied::NeedsCoordinator),
        }
    }

    /// Records degraded admissions as a debt to the fleet's bucket: at most one minute's worth, because it refills.
    fn record_debt(&mut self, amount: u64, limit: u64) {
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_neg();
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        self.available = self.available.saturating_sub(amount).max(most).min(self.available);
    }
}

impl LeaseState {
    fn has_anything(&self) -> bool {
        self.requests.available != 0
            || self.tokens.available != 0
            || self.permits != 0
            || self.spend.total() != 0
    }

    /// Returns this gateway's share of a limit in degraded mode; at least 1.
    fn degraded_share(&self, limit: u64) -> u64 {
        limit.checked_div(self.gateways.into()).unwrap_or(limit).max(1)
    }

    fn admit_leased(&mut self, limits: &UsageLimits, request: &LimitRequest) -> Result<(), Denied> {
        let refused = |which: &[Which]| {
            let same = self.last_denial.filter(|(until, exceeded, cost)| {
                request.now < *until && which.contains(&exceeded.which) && request.cost >= *cost
            });
            same.map_or(Denied::NeedsCoordinator, |(_, exceeded, _)| Denied::LimitReached(exceeded))
        };
        // `min`: a reload may have lowered the limit below the lease.
        if limits.concurrent.is_some_and(|most| self.in_flight >= self.permits.min(most)) {
            return Err(refused(&[Which::Concurrent]));
        }
        let tokens = i64::try_from(request.tokens).unwrap_or(i64::MAX);
        if let Some(limit) = limits.requests_per_minute {
            self.requests.take(request, 1, limit, self.granted_at, Which::Requests)?;
        }
        if let Some(limit) = limits.tokens_per_minute {
            self.tokens.take(request, tokens, limit, self.granted_at, Which::Tokens)?;
        }
        if limits.has_spend() && self.spend.available < request.cost {
            return Err(refused(&[Which::SpendPerDay, Which::SpendPerMonth]));
        }
        // Take only after all checks have passed: a denied request must take nothing.
        if limits.requests_per_minute.is_some() {
            self.requests.available = self.requests.available.saturating_sub(1);
        }
        if limits.tokens_per_minute.is_some() {
            self.tokens.available = self.tokens.available.saturating_sub(tokens);
        }
        Ok(())
    }

    /// Admits in degraded mode: each gateway takes its share from the fleet's bucket as last known.
    fn admit_degraded(&mut self, limits: &UsageLimits, request: &LimitRequest) -> Result<(), Denied> {
        let part = |limit: u64| self.degraded_share(limit);
        if let Some(most) = limits.concurrent
            && u64::from(self.in_flight) >= part(most.into())
        {
            let wait = Some(Duration::from_secs(1));
            let exceeded = Exceeded { which: Which::Concurrent, limit: most.into(), wait };
            return Err(Denied::LimitReached(exceeded));
        }
        if limits.has_spend()
            && self.spend.overdraft.is_none_or(|by| self.spend.available < request.cost.saturating_sub(by))
        {
            return Err(Denied::CoordinatorDown);
        }
        let (mut requests, mut tokens) = (self.requests, self.tokens);
        let take = |rate: &mut Rate, amount: u64, limit: u64, which: Which| {
            // A request larger than the share is admitted when the share is full; otherwise it would never be.
            let part = part(limit);
            gcra::take(&mut rate.full_at, request.now, amount.min(part), part)
                .map_err(|wait| Denied::LimitReached(Exceeded { which, limit, wait }))?;
            rate.record_debt(amount, limit);
            Ok(())
        };
        if let Some(limit) = limits.requests_per_minute {
            take(&mut requests, 1, limit, Which::Requests)?;
        }
        if let Some(limit) = limits.tokens_per_minute {
            take(&mut tokens, request.tokens, limit, Which::Tokens)?;
        }
        (self.requests, self.tokens) = (requests, tokens);
        Ok(())
    }

    fn correct(&mut self, which: impl Fn(&mut LeaseState) -> &mut Rate, less: i64, limit: u64) {
        let (is_degraded, part) = (self.mode == Mode::Degraded, self.degraded_share(limit));
        let rate = which(self);
        rate.available = rate.available.saturating_add(less);
        if is_degraded {
            // Degraded mode counts with its own bucket: move it, too, and retain debts only.
            let time = gcra::cost(less.unsigned_abs(), part);
            let time = if less < 0 { time } else { time.saturating_neg() };
            rate.full_at = rate.full_at.saturating_add(time);
            rate.available = rate.available.min(0);
        }
    }
}

#[cfg(test)]
mod tests;
