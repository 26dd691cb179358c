//! What a gateway has of limits that it shares with others: parts that are set aside for it where all of them are
//! counted, from which requests are let in without asking.
//!
//! Requests and tokens of a minute are taken from the fleet's bucket ahead; places and money are lent, and told as a
//! whole at each visit. All of it is one short critical section: a request takes all of its limits or none.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use super::gcra::{self, Nanos, Remaining};
use super::limit::{Exceeded, LimitRequest, UsageLimits, Which};

/// For so long a refusal is repeated without asking, and what is known of the fleet's buckets is believed.
const BELIEVED: Nanos = 50_000_000;

/// Listener that is notified of concurrency permits that other gateways may use.
pub trait SurplusListener: Send + Sync + fmt::Debug {
    /// There are some. Said once until the share is reported.
    fn spare(&self);
}

/// Reason why a request cannot be admitted from the local lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A limit is reached.
    LimitReached(Exceeded),
    /// It must be asked where all gateways are counted.
    NeedsCoordinator,
    /// Nobody can be asked, and it is money.
    CoordinatorDown,
}

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Nothing is known yet.
    #[default]
    New,
    /// What is set aside here.
    Shared,
    /// Nobody can be asked: this gateway lets in its part of what the fleet may.
    Away,
}

/// What is in hand of a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// What was taken ahead, less what was used; below zero it is owed.
    have: i64,
    /// What was taken ahead last.
    slice: i64,
    /// When the fleet's bucket is full again, as far as is known here.
    full_at: Nanos,
}

#[derive(Debug, Default)]
struct LeaseState {
    mode: Mode,
    /// Gateways that share the limits.
    gateways: u32,
    /// When all was told last.
    heard: Nanos,
    requests: Rate,
    tokens: Rate,
    /// Places that are lent to this gateway, those of them that are taken, and how many may be kept unused.
    places: u32,
    in_flight: u32,
    spare: u32,
    /// Whether somebody was told that there are more than that.
    told_spare: bool,
    money: LeasedSpend,
    /// What was refused last, and until when the same is refused again.
    refused: Option<(Nanos, Exceeded, i64)>,
    used: bool,
}

/// Spend that is leased from the coordinator, in nano-units; the sum of the fields is what is reported.
#[derive(Clone, Copy, Debug, Default)]
struct LeasedSpend {
    /// What can be held; below zero requests cost more than was held for them.
    free: i64,
    /// What was lent ahead last.
    slice: i64,
    /// What is held for requests under way.
    held: i64,
    /// What was charged and stands in the journal alone.
    charged: i64,
    /// The part of it that is being brought.
    leaving: i64,
    /// How far it may be overdrawn while nobody can be asked; nothing, if it may not be used at all.
    allowance: Option<i64>,
}

/// Lease renewal that a gateway sends to the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Requests that it owes; below zero it gives them back.
    pub requests: i64,
    /// Tokens, likewise.
    pub tokens: i64,
    /// Places that it keeps.
    pub places: u32,
    /// Money that it keeps.
    pub money: i64,
    /// The part of it that was overdrawn.
    overdrawn: i64,
}

impl LeaseRequest {
    /// Whether the gateway has nothing of what is lent.
    pub fn keeps_nothing(&self) -> bool {
        self.places == 0 && self.money == 0
    }
}

/// Lease grant that the coordinator returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseGrant {
    /// How long it takes until the fleet's buckets are full: of requests and of tokens.
    pub full_in: (Nanos, Nanos),
    /// Requests and tokens that are set aside for it.
    pub ahead: (i64, i64),
    /// Places that are lent to it.
    pub places: u32,
    /// How many of them it may keep unused.
    pub spare: u32,
    /// Money that is lent to it.
    pub money: i64,
    /// Gateways that share.
    pub gateways: u32,
}

/// Leased quota: this gateway's part of a limit that all gateways of a fleet share.
#[derive(Debug, Default)]
pub struct QuotaLease {
    state: Mutex<LeaseState>,
    keeper: OnceLock<Box<dyn SurplusListener>>,
}

impl QuotaLease {
    /// Says who is told of places that are free. Counts once.
    pub fn keeper(&self, make: impl FnOnce() -> Box<dyn SurplusListener>) {
        self.keeper.get_or_init(make);
    }

    /// Takes a request's part of all limits, or of none.
    pub(super) fn take(&self, limits: &UsageLimits, ask: &LimitRequest) -> Result<(), Denied> {
        let mut state = self.state.lock();
        state.used = true;
        if let Some(limit) = limits.tokens_per_minute.filter(|limit| ask.tokens > *limit) {
            return Err(Denied::LimitReached(Exceeded { which: Which::Tokens, limit, wait: None }));
        }
        match state.mode {
            Mode::New => return Err(Denied::NeedsCoordinator),
            Mode::Shared => state.shared(limits, ask)?,
            Mode::Away => state.away(limits, ask)?,
        }
        state.in_flight += u32::from(limits.concurrent.is_some());
        if limits.has_spend() {
            state.money.hold(ask.cost);
        }
        Ok(())
    }

    /// A request that was let in has ended.
    pub(super) fn leave(&self) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let unused = state.places.saturating_sub(state.in_flight);
        let tell = state.mode == Mode::Shared && unused > state.spare && !state.told_spare;
        state.told_spare |= tell;
        drop(state);
        if let Some(keeper) = self.keeper.get().filter(|_| tell) {
            keeper.spare();
        }
    }

    /// Gives back a request that was not made.
    pub(super) fn unmake(&self, limit: u64) {
        self.state.lock().correct(|state| &mut state.requests, 1, limit);
    }

    /// Corrects the tokens of a request: by how many there were less than expected.
    pub(super) fn correct_tokens(&self, less: i64, limit: u64) {
        self.state.lock().correct(|state| &mut state.tokens, less, limit);
    }

    /// A request for which money was held has cost so much.
    pub(super) fn pay(&self, held: i64, cost: i64) {
        let money = &mut self.state.lock().money;
        money.held = money.held.saturating_sub(held);
        money.free = money.free.saturating_add(held).saturating_sub(cost);
        money.charged = money.charged.saturating_add(cost);
    }

    /// What is left of the limits on requests and on tokens, for the fleet as far as is known here.
    pub(super) fn left(&self, limits: &UsageLimits, now: Nanos) -> (Option<Remaining>, Option<Remaining>) {
        let state = self.state.lock();
        let left = |rate: &Rate, limit: u64| match state.mode {
            Mode::Away => Remaining { limit, ..gcra::left(rate.full_at, now, state.part(limit)) },
            _ => {
                let have = gcra::cost(rate.have.unsigned_abs(), limit);
                let full_at = match rate.have {
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

    /// Whether it tells nothing that a new one would not.
    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        let state = self.state.lock();
        state.in_flight == 0
            && !state.has_anything()
            && (state.mode != Mode::Away || state.requests.full_at.max(state.tokens.full_at) <= now)
    }

    /// Whether it was used since this was asked last.
    pub fn take_used(&self) -> bool {
        std::mem::take(&mut self.state.lock().used)
    }

    /// Whether something is in hand, or owed.
    pub fn has_anything(&self) -> bool {
        self.state.lock().has_anything()
    }

    /// Whether there is something to tell before others need it: a debt, or much more than is needed.
    pub fn has_to_tell(&self) -> bool {
        let state = self.state.lock();
        let much = |have: i64, slice: i64| have < 0 || have > slice.saturating_mul(2);
        much(state.requests.have, state.requests.slice)
            || much(state.tokens.have, state.tokens.slice)
            || much(state.money.free, state.money.slice)
            || state.told_spare
    }

    /// Whether something of it is lent, so that it must be renewed.
    pub fn is_lent(&self) -> bool {
        let state = self.state.lock();
        state.places > 0 || state.money.all() != 0
    }

    /// What is said at a visit; with `all`, everything that is not used is given back. What is given back is gone at
    /// once. Either [`heard`](Self::heard) or [`unheard`](Self::unheard) follows.
    pub fn report(&self, all: bool) -> LeaseRequest {
        let mut state = self.state.lock();
        let requests = state.requests.report(all);
        let tokens = state.tokens.report(all);
        let spare = if all { 0 } else { state.spare };
        state.places = state.places.min(state.in_flight.saturating_add(spare)).max(state.in_flight);
        state.told_spare = false;
        let money = &mut state.money;
        if all && money.free > 0 {
            money.free = 0;
        } else if money.free > money.slice.saturating_mul(2) {
            money.free = money.slice;
        }
        let overdrawn = money.free.min(0).saturating_neg();
        LeaseRequest { requests, tokens, places: state.places, money: state.money.all().max(0), overdrawn }
    }

    /// The visit was made; `granted` requests were let in there with so much money held for them together.
    pub fn heard(&self, now: Nanos, report: &LeaseRequest, told: &LeaseGrant, granted: u32, held: i64) {
        let mut state = self.state.lock();
        state.mode = Mode::Shared;
        state.heard = now;
        state.gateways = told.gateways;
        state.refused = None;
        state.requests.heard(now, told.full_in.0, told.ahead.0);
        state.tokens.heard(now, told.full_in.1, told.ahead.1);
        state.places = state.places.saturating_add(told.places.saturating_sub(report.places));
        state.in_flight = state.in_flight.saturating_add(granted);
        state.spare = told.spare;
        let money = &mut state.money;
        let more = told.money.saturating_sub(report.money);
        money.free = money.free.saturating_add(report.overdrawn).saturating_add(more);
        if more > held {
            money.slice = more.saturating_sub(held);
        }
        money.hold(held);
    }

    /// Nobody knows whether the visit was made. What was owed is owed still.
    pub fn unheard(&self, report: &LeaseRequest) {
        let mut state = self.state.lock();
        let owed = |have: i64, owed: i64| have.saturating_sub(owed.max(0));
        state.requests.have = owed(state.requests.have, report.requests);
        state.tokens.have = owed(state.tokens.have, report.tokens);
    }

    /// The same request, or a larger one, is refused for a moment without asking.
    pub fn refuse(&self, now: Nanos, exceeded: Exceeded, cost: i64) {
        self.state.lock().refused = Some((now.saturating_add(BELIEVED), exceeded, cost));
    }

    /// Nobody can be asked: from now on this gateway lets in one part of so many. Money may be overdrawn by the
    /// allowance; without one, what is in hand may be used while it is surely set aside.
    pub fn go_away(&self, gateways: u32, allowance: Option<i64>, surely: bool) {
        let mut state = self.state.lock();
        state.mode = Mode::Away;
        state.gateways = gateways.max(state.gateways).max(1);
        state.money.allowance = allowance.or(surely.then_some(0));
    }

    /// Nothing is known any more.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        let in_flight = state.in_flight;
        *state = LeaseState { in_flight, ..LeaseState::default() };
    }

    /// What was charged up to now is about to be brought to the ledger. It must stand in the journal.
    pub fn bringing(&self) {
        let money = &mut self.state.lock().money;
        money.leaving = money.leaving.saturating_add(std::mem::take(&mut money.charged));
    }

    /// All of that was brought.
    pub fn brought(&self) {
        self.state.lock().money.leaving = 0;
    }
}

impl Rate {
    fn report(&mut self, all: bool) -> i64 {
        let keep = if all { 0 } else { self.slice };
        let owes = if self.have < 0 || all || self.have > keep.saturating_mul(2) {
            keep.min(self.have.max(0)).saturating_sub(self.have)
        } else {
            0
        };
        self.have = self.have.saturating_add(owes);
        owes
    }

    fn heard(&mut self, now: Nanos, full_in: Nanos, ahead: i64) {
        self.full_at = now.saturating_add(full_in);
        self.have = self.have.saturating_add(ahead);
        if ahead > 0 {
            self.slice = ahead;
        }
    }

    /// Takes from what is in hand; if there is not so much, says whether the fleet's bucket surely has not either.
    fn take(
        &self,
        ask: &LimitRequest,
        amount: i64,
        limit: u64,
        heard: Nanos,
        which: Which,
    ) -> Result<(), Denied> {
        if self.have >= amount {
            return Ok(());
        }
        let mut full_at = self.full_at;
        match gcra::take(&mut full_at, ask.now, amount.unsigned_abs(), limit) {
            Err(wait) if ask.now.saturating_sub(heard) < BELIEVED => {
                Err(Denied::LimitReached(Exceeded { which, limit, wait }))
            }
            _ => Err(Denied::NeedsCoordinator),
        }
    }
}

impl LeasedSpend {
    fn hold(&mut self, amount: i64) {
        self.free = self.free.saturating_sub(amount);
        self.held = self.held.saturating_add(amount);
    }

    fn all(&self) -> i64 {
        let charged = self.charged.saturating_add(self.leaving);
        self.free.max(0).saturating_add(self.held).saturating_add(charged)
    }
}

impl LeaseState {
    fn has_anything(&self) -> bool {
        self.requests.have != 0 || self.tokens.have != 0 || self.places != 0 || self.money.all() != 0
    }

    /// This gateway's part of a limit while nobody can be asked.
    fn part(&self, limit: u64) -> u64 {
        (limit / u64::from(self.gateways.max(1))).max(1)
    }

    fn shared(&mut self, limits: &UsageLimits, ask: &LimitRequest) -> Result<(), Denied> {
        let refused = |which: &[Which]| {
            let same = self.refused.filter(|(until, exceeded, cost)| {
                ask.now < *until && which.contains(&exceeded.which) && ask.cost >= *cost
            });
            same.map_or(Denied::NeedsCoordinator, |(_, exceeded, _)| Denied::LimitReached(exceeded))
        };
        if limits.concurrent.is_some_and(|most| self.in_flight >= self.places.min(most)) {
            return Err(refused(&[Which::Concurrent]));
        }
        let tokens = i64::try_from(ask.tokens).unwrap_or(i64::MAX);
        if let Some(limit) = limits.requests_per_minute {
            self.requests.take(ask, 1, limit, self.heard, Which::Requests)?;
        }
        if let Some(limit) = limits.tokens_per_minute {
            self.tokens.take(ask, tokens, limit, self.heard, Which::Tokens)?;
        }
        if limits.has_spend() && self.money.free < ask.cost {
            return Err(refused(&[Which::SpendPerDay, Which::SpendPerMonth]));
        }
        if limits.requests_per_minute.is_some() {
            self.requests.have -= 1;
        }
        if limits.tokens_per_minute.is_some() {
            self.tokens.have -= tokens;
        }
        Ok(())
    }

    /// As if all gateways did the same: each takes from the fleet's bucket as it was known last.
    fn away(&mut self, limits: &UsageLimits, ask: &LimitRequest) -> Result<(), Denied> {
        let part = |limit: u64| self.part(limit);
        if let Some(most) = limits.concurrent
            && u64::from(self.in_flight) >= part(most.into())
        {
            let wait = Some(Duration::from_secs(1));
            let exceeded = Exceeded { which: Which::Concurrent, limit: most.into(), wait };
            return Err(Denied::LimitReached(exceeded));
        }
        if limits.has_spend()
            && self.money.allowance.is_none_or(|more| self.money.free < ask.cost.saturating_sub(more))
        {
            return Err(Denied::CoordinatorDown);
        }
        let (mut requests, mut tokens) = (self.requests, self.tokens);
        let take = |rate: &mut Rate, amount: u64, limit: u64, which: Which| {
            // A request that is larger than a part is let in when the part is whole.
            let part = part(limit);
            gcra::take(&mut rate.full_at, ask.now, amount.min(part), part)
                .map_err(|wait| Denied::LimitReached(Exceeded { which, limit, wait }))?;
            rate.owe_away(amount, limit);
            Ok(())
        };
        if let Some(limit) = limits.requests_per_minute {
            take(&mut requests, 1, limit, Which::Requests)?;
        }
        if let Some(limit) = limits.tokens_per_minute {
            take(&mut tokens, ask.tokens, limit, Which::Tokens)?;
        }
        (self.requests, self.tokens) = (requests, tokens);
        Ok(())
    }

    fn correct(&mut self, which: impl Fn(&mut LeaseState) -> &mut Rate, less: i64, limit: u64) {
        let (away, part) = (self.mode == Mode::Away, self.part(limit));
        let rate = which(self);
        rate.have = rate.have.saturating_add(less);
        if away {
            let time = gcra::cost(less.unsigned_abs(), part);
            let time = if less < 0 { time } else { time.saturating_neg() };
            rate.full_at = rate.full_at.saturating_add(time);
            rate.have = rate.have.min(0);
        }
    }
}

impl Rate {
    /// What is let in while nobody can be asked is owed, but no more than a minute forgets.
    fn owe_away(&mut self, amount: u64, limit: u64) {
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_neg();
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        self.have = self.have.saturating_sub(amount).max(most).min(self.have);
    }
}

#[cfg(test)]
mod tests;
