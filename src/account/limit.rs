//! Limits of a key or an account, and how much of them is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::calendar::Calendar;
use super::gcra::{Gcra, Nanos, Remaining};
use super::quota_lease::{Denied, QuotaLease};

/// Limits of a key or account. `None` where a limit is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageLimits {
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute, input and output.
    pub tokens_per_minute: Option<u64>,
    /// Requests at a time.
    pub concurrent: Option<u32>,
    /// Nano-units per day (UTC).
    pub spend_per_day: Option<i64>,
    /// Nano-units per month (UTC).
    pub spend_per_month: Option<i64>,
}

impl UsageLimits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == UsageLimits::default()
    }

    /// Whether money is limited.
    pub fn has_spend(&self) -> bool {
        self.spend_per_day.is_some() || self.spend_per_month.is_some()
    }
}

/// Which limit refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Requests at a time.
    Concurrent,
    /// Money per day.
    SpendPerDay,
    /// Money per month.
    SpendPerMonth,
}

impl Which {
    /// The name in the configuration and in metrics.
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

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// By which limit.
    pub which: Which,
    /// The limit.
    pub limit: u64,
    /// When it is worth trying again; nothing if never, as the request is larger than the limit itself.
    pub wait: Option<Duration>,
}

/// Amounts that a request asks of its limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitRequest {
    /// Now.
    pub now: Nanos,
    /// Today.
    pub calendar: Calendar,
    /// Tokens that it is expected to take.
    pub tokens: u64,
    /// Nano-units that it is expected to cost.
    pub cost: i64,
}

/// Usage of the limits of one key or account. Survives a reload.
#[derive(Debug, Default)]
pub struct LimitState {
    requests: Gcra,
    tokens: Gcra,
    in_flight: AtomicU32,
    spend: Mutex<Spend>,
    /// Where several gateways share the limits: then all of it is there.
    share: Option<Box<QuotaLease>>,
}

#[derive(Debug, Default)]
struct Spend {
    known: bool,
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
            // Clocks that go back a little must not forget what was spent.
            if number > self.number {
                *self = Period { number, nanos: 0 };
            }
        }
        &mut self.nanos
    }
}

impl LimitState {
    /// A gauge of which nothing is taken.
    pub fn new() -> LimitState {
        LimitState { requests: Gcra::new(), tokens: Gcra::new(), ..LimitState::default() }
    }

    /// A gauge of limits that several gateways share.
    pub fn shared() -> LimitState {
        LimitState { share: Some(Box::default()), ..LimitState::default() }
    }

    /// What is shared, if it is.
    pub fn share(&self) -> Option<&QuotaLease> {
        self.share.as_deref()
    }

    /// Whether it is not known yet what was spent before this process began.
    pub fn wants_spend(&self) -> bool {
        self.share.is_none() && !self.spend.lock().known
    }

    /// Tells what was spent today and this month before this process began. Only the first time counts.
    pub fn tell_spend(&self, calendar: &Calendar, day: i64, month: i64) {
        let mut spend = self.spend.lock();
        if !spend.known {
            spend.known = true;
            add(spend.day.of(calendar.day), day);
            add(spend.month.of(calendar.month), month);
        }
    }

    /// Lets a request in, or refuses it; then nothing is taken.
    ///
    /// # Errors
    /// A limit is reached; or, where gateways share it, it must be asked elsewhere.
    pub fn admit(self: &Arc<Self>, limits: &UsageLimits, ask: &LimitRequest) -> Result<LimitGrant, Denied> {
        match &self.share {
            None => self.admit_here(limits, ask).map_err(Denied::LimitReached),
            Some(share) => share.take(limits, ask).map(|()| self.granted(limits, ask)),
        }
    }

    /// The ticket of a request that was let in where all gateways are counted.
    pub fn granted(self: &Arc<Self>, limits: &UsageLimits, ask: &LimitRequest) -> LimitGrant {
        let taken = GrantedLimit {
            place: limits.concurrent.is_some(),
            requests: limits.requests_per_minute.is_some(),
            tokens: limits.tokens_per_minute.is_some(),
            cost: limits.has_spend(),
        };
        LimitGrant { gauge: self.clone(), limits: *limits, ask: *ask, taken }
    }

    fn admit_here(
        self: &Arc<Self>,
        limits: &UsageLimits,
        ask: &LimitRequest,
    ) -> Result<LimitGrant, Exceeded> {
        let mut ticket =
            LimitGrant { gauge: self.clone(), limits: *limits, ask: *ask, taken: GrantedLimit::default() };
        if let Some(most) = limits.concurrent {
            let more = |now: u32| (now < most).then_some(now + 1);
            if self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                let wait = Some(Duration::from_secs(1));
                return Err(Exceeded { which: Which::Concurrent, limit: u64::from(most), wait });
            }
            ticket.taken.place = true;
        }
        if let Some(limit) = limits.requests_per_minute {
            let taken = self.requests.take(ask.now, 1, limit);
            taken.map_err(|wait| Exceeded { which: Which::Requests, limit, wait })?;
            ticket.taken.requests = true;
        }
        if let Some(limit) = limits.tokens_per_minute {
            match self.tokens.take(ask.now, ask.tokens, limit) {
                Ok(_) => ticket.taken.tokens = true,
                Err(wait) => {
                    ticket.undo();
                    return Err(Exceeded { which: Which::Tokens, limit, wait });
                }
            }
        }
        if limits.has_spend()
            && let Err(exceeded) = self.spend(limits, ask)
        {
            ticket.undo();
            return Err(exceeded);
        }
        ticket.taken.cost = limits.has_spend();
        Ok(ticket)
    }

    fn spend(&self, limits: &UsageLimits, ask: &LimitRequest) -> Result<(), Exceeded> {
        let mut spend = self.spend.lock();
        let over = |limit: Option<i64>, spent: i64| {
            limit.filter(|limit| spent.saturating_add(ask.cost) > *limit).map(i64::unsigned_abs)
        };
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let calendar = &ask.calendar;
        if let Some(limit) = over(limits.spend_per_month, *spend.month.of(calendar.month)) {
            return Err(Exceeded { which: Which::SpendPerMonth, limit, wait: wait(calendar.month_ends_in) });
        }
        if let Some(limit) = over(limits.spend_per_day, *spend.day.of(calendar.day)) {
            return Err(Exceeded { which: Which::SpendPerDay, limit, wait: wait(calendar.day_ends_in) });
        }
        add(spend.day.of(calendar.day), ask.cost);
        add(spend.month.of(calendar.month), ask.cost);
        Ok(())
    }

    /// What is left of the limits on requests and on tokens.
    pub fn left(&self, limits: &UsageLimits, now: Nanos) -> (Option<Remaining>, Option<Remaining>) {
        if let Some(share) = &self.share {
            return share.left(limits, now);
        }
        let left = |bucket: &Gcra, limit: Option<u64>| limit.map(|limit| bucket.left(now, limit));
        (left(&self.requests, limits.requests_per_minute), left(&self.tokens, limits.tokens_per_minute))
    }

    /// Whether it tells nothing that a new one would not: then it may be forgotten.
    pub fn is_idle(&self, now: Nanos, calendar: &Calendar) -> bool {
        if let Some(share) = &self.share {
            return share.is_idle(now);
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
    gauge: Arc<LimitState>,
    limits: UsageLimits,
    ask: LimitRequest,
    taken: GrantedLimit,
}

#[derive(Clone, Copy, Debug, Default)]
struct GrantedLimit {
    place: bool,
    requests: bool,
    tokens: bool,
    cost: bool,
}

impl LimitGrant {
    /// Ends the request with what it used. It must stand in the ledger's journal, if there is one.
    pub fn settle(mut self, now: Nanos, tokens: u64, cost: i64) {
        self.correct_tokens(now, tokens);
        self.correct_spend(cost);
    }

    /// Takes everything back: the request was never let in.
    pub fn undo(mut self) {
        if let (true, Some(limit)) =
            (std::mem::take(&mut self.taken.requests), self.limits.requests_per_minute)
        {
            match self.gauge.share() {
                Some(share) => share.unmake(limit),
                None => self.gauge.requests.give_back(1, limit),
            }
        }
    }

    fn correct_tokens(&mut self, now: Nanos, tokens: u64) {
        let (true, Some(limit)) = (std::mem::take(&mut self.taken.tokens), self.limits.tokens_per_minute)
        else {
            return;
        };
        let less = self.ask.tokens.checked_sub(tokens);
        match (self.gauge.share(), less) {
            (Some(share), Some(less)) => share.correct_tokens(i64::try_from(less).unwrap_or(i64::MAX), limit),
            (Some(share), None) => {
                let more = i64::try_from(tokens - self.ask.tokens).unwrap_or(i64::MAX);
                share.correct_tokens(more.saturating_neg(), limit);
            }
            (None, Some(less)) => self.gauge.tokens.give_back(less, limit),
            (None, None) => self.gauge.tokens.owe(now, tokens - self.ask.tokens, limit),
        }
    }

    fn correct_spend(&mut self, cost: i64) {
        if !std::mem::take(&mut self.taken.cost) {
            return;
        }
        if let Some(share) = self.gauge.share() {
            share.pay(self.ask.cost, cost);
            return;
        }
        let correction = cost.saturating_sub(self.ask.cost);
        let mut spend = self.gauge.spend.lock();
        // To the day on which it was expected; a day that is over is over.
        let calendar = &self.ask.calendar;
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
        // Without tokens that were used, none were, and no clock is needed to give them back.
        self.correct_tokens(0, 0);
        self.correct_spend(0);
        if std::mem::take(&mut self.taken.place) {
            match self.gauge.share() {
                Some(share) => share.leave(),
                None => drop(self.gauge.in_flight.fetch_sub(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Adds to a sum of money, which stays at the largest number.
fn add(sum: &mut i64, amount: i64) {
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tokens: u64, cost: i64) -> LimitRequest {
        LimitRequest { now: 0, calendar: Calendar::at(1_790_000_000), tokens, cost }
    }

    fn limits() -> UsageLimits {
        UsageLimits {
            requests_per_minute: Some(10),
            tokens_per_minute: Some(1_000),
            concurrent: Some(2),
            spend_per_day: Some(500),
            spend_per_month: Some(800),
        }
    }

    #[test]
    fn places_come_back_however_a_request_ends() {
        let gauge = Arc::new(LimitState::new());
        let only = UsageLimits { concurrent: Some(2), ..UsageLimits::default() };
        let first = gauge.admit_here(&only, &ask(0, 0)).unwrap();
        let second = gauge.admit_here(&only, &ask(0, 0)).unwrap();
        assert_eq!(gauge.admit_here(&only, &ask(0, 0)).unwrap_err().which, Which::Concurrent);
        drop(first);
        let third = gauge.admit_here(&only, &ask(0, 0)).unwrap();
        second.settle(0, 0, 0);
        third.undo();
        assert!(gauge.is_idle(0, &Calendar::at(0)));
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let gauge = Arc::new(LimitState::new());
        let refused = gauge.admit_here(&limits(), &ask(1_001, 0)).unwrap_err();
        assert_eq!((refused.which, refused.wait), (Which::Tokens, None));
        let refused = gauge.admit_here(&limits(), &ask(0, 501)).unwrap_err();
        assert_eq!((refused.which, refused.limit), (Which::SpendPerDay, 500));
        assert!(gauge.is_idle(0, &Calendar::at(1_790_000_000)));
    }

    #[test]
    fn what_was_expected_is_corrected_by_what_was_used() {
        let gauge = Arc::new(LimitState::new());
        let ticket = gauge.admit_here(&limits(), &ask(1_000, 400)).unwrap();
        let (requests, tokens) = gauge.left(&limits(), 0);
        assert_eq!((requests.unwrap().remaining, tokens.unwrap().remaining), (9, 0));
        assert_eq!(gauge.admit_here(&limits(), &ask(1, 0)).unwrap_err().which, Which::Tokens);
        ticket.settle(0, 100, 50);
        let ticket = gauge.admit_here(&limits(), &ask(900, 450)).unwrap();
        assert_eq!(gauge.admit_here(&limits(), &ask(0, 1)).unwrap_err().which, Which::SpendPerDay);
        ticket.settle(0, 1_900, 500);
        // 2,000 of 1,000 tokens are used: a minute passes until the first one is there again.
        let refused = gauge.admit_here(&limits(), &ask(1, 0)).unwrap_err();
        assert_eq!(refused.wait, Some(Duration::from_millis(60_060)));
        // Over the day's limit, as far as a request may cost more than was expected.
        let free = UsageLimits { tokens_per_minute: None, ..limits() };
        assert_eq!(gauge.admit_here(&free, &ask(0, 0)).unwrap_err().which, Which::SpendPerDay);
        // Tomorrow only the month counts.
        let tomorrow = LimitRequest { calendar: Calendar::at(1_790_000_000 + 86_400), ..ask(0, 251) };
        assert_eq!(gauge.admit_here(&free, &tomorrow).unwrap_err().which, Which::SpendPerMonth);
        gauge.admit_here(&free, &LimitRequest { cost: 250, ..tomorrow }).unwrap();
    }

    #[test]
    fn what_was_spent_before_the_start_counts_once() {
        let gauge = Arc::new(LimitState::new());
        let calendar = ask(0, 0).calendar;
        assert!(gauge.wants_spend());
        gauge.tell_spend(&calendar, 450, 450);
        gauge.tell_spend(&calendar, 450, 450);
        assert!(!gauge.wants_spend());
        assert!(gauge.admit_here(&limits(), &ask(0, 50)).is_ok());
        assert!(gauge.admit_here(&limits(), &ask(0, 51)).is_err());
    }
}
