//! Gateways against a model of the coordinator, in any order of events: lost responses, gateways that end, exhausted
//! limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use crate::limits::quota_lease::*;
use crate::limits::{Calendar, LimitGrant, LimitState};

const GATEWAYS: usize = 3;
const MINUTE: Nanos = 60_000_000_000;
const LIFE: Nanos = 10_000_000_000;

/// Model of the server: the same rules as its script, one transaction at a time.
struct Server {
    limits: UsageLimits,
    requests: Nanos,
    tokens: Nanos,
    /// For each gateway: time of its last transaction, its permits and its spend.
    leases: [Option<(Nanos, u32, i64)>; GATEWAYS],
    spent: i64,
}

impl Server {
    fn transact(
        &mut self,
        gateway: usize,
        now: Nanos,
        renewal: &LeaseRequest,
        all: bool,
        needs: &[LimitRequest],
    ) -> (Vec<bool>, LeaseGrant) {
        for (_, lease) in self.leases.iter_mut().enumerate().filter(|(at, _)| *at != gateway) {
            *lease = lease.filter(|(at, ..)| now - at <= LIFE);
        }
        let others = || {
            self.leases.iter().enumerate().filter(|(at, _)| *at != gateway).filter_map(|(_, lease)| *lease)
        };
        let other_permits: u32 = others().map(|(_, other_permits, _)| other_permits).sum();
        let other_spend: i64 = others().map(|(.., other_spend)| other_spend).sum();
        let gateways = 1 + u32::try_from(others().count()).unwrap();
        let [rpm, tpm] = [self.limits.requests_per_minute, self.limits.tokens_per_minute].map(Option::unwrap);
        let (most, day) = (self.limits.concurrent.unwrap(), self.limits.spend_per_day.unwrap());
        let with_debt = |full: Nanos, amount: i64, limit: u64| {
            let cost = gcra::cost(amount.unsigned_abs(), limit);
            if amount < 0 { full - cost } else { full.max(now) + cost }
        };
        self.requests = with_debt(self.requests, renewal.requests, rpm);
        self.tokens = with_debt(self.tokens, renewal.tokens, tpm);
        let (mut permits, mut spend) = (renewal.permits, renewal.spend);
        let mut granted = Vec::new();
        for need in needs {
            let tokens = i64::try_from(need.tokens).unwrap();
            let (requests, tokens) = (with_debt(self.requests, 1, rpm), with_debt(self.tokens, tokens, tpm));
            let fits = other_permits + permits < most
                && requests - now <= MINUTE
                && tokens - now <= MINUTE
                && self.spent + other_spend + spend + need.cost <= day;
            if fits {
                (self.requests, self.tokens) = (requests, tokens);
                permits += 1;
                spend += need.cost;
            }
            granted.push(fits);
        }
        let mut grant = LeaseGrant { gateways, ..LeaseGrant::default() };
        if granted.iter().all(|granted| *granted) {
            let share = |full: Nanos, limit: u64| {
                let left = gcra::left(full, now, limit).remaining;
                i64::try_from(left / 16).unwrap().min(if needs.is_empty() { 0 } else { 256 })
            };
            grant.ahead = (share(self.requests, rpm), share(self.tokens, tpm));
            self.requests = with_debt(self.requests, grant.ahead.0, rpm);
            self.tokens = with_debt(self.tokens, grant.ahead.1, tpm);
            let room = most.saturating_sub(other_permits + permits - renewal.idle);
            grant.surplus = if all { 0 } else { (room / 16).min(256) };
            permits += grant.surplus.saturating_sub(renewal.idle);
            spend +=
                if needs.is_empty() { 0 } else { ((day - self.spent - other_spend - spend) / 16).max(0) };
        }
        self.leases[gateway] = Some((now, permits, spend));
        grant.full_in = ((self.requests - now).max(0), (self.tokens - now).max(0));
        (grant.permits, grant.spend) = (permits, spend);
        (granted, grant)
    }
}

#[derive(Clone, Copy, Debug)]
enum Lost {
    Nothing,
    Request,
    Response,
}

#[derive(Clone, Debug)]
enum Step {
    Take { at: usize, tokens: u64, cost: i64, lost: Lost },
    End { which: usize, tokens: u64, cost: i64 },
    Undo { which: usize },
    Transaction { at: usize, all: bool, lost: Lost },
    Ship { at: usize },
    Kill { at: usize },
    Advance { millis: i64 },
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![8 => Just(Lost::Nothing), 1 => Just(Lost::Request), 1 => Just(Lost::Response)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..GATEWAYS, 0u64..400, 0i64..400, lost())
            .prop_map(|(at, tokens, cost, lost)| Step::Take { at, tokens, cost, lost }),
        8 => (0usize..64, 0u64..400, 0i64..400).prop_map(|(which, tokens, cost)| Step::End { which, tokens, cost }),
        1 => (0usize..64).prop_map(|which| Step::Undo { which }),
        3 => (0..GATEWAYS, any::<bool>(), lost()).prop_map(|(at, all, lost)| Step::Transaction { at, all, lost }),
        2 => (0..GATEWAYS).prop_map(|at| Step::Ship { at }),
        1 => (0..GATEWAYS).prop_map(|at| Step::Kill { at }),
        2 => (0i64..3_000).prop_map(|millis| Step::Advance { millis }),
    ]
}

/// Request in flight: gateway, estimated tokens and cost, and its grant.
type Running = (usize, u64, i64, LimitGrant);

struct Fleet {
    server: Server,
    states: [Arc<LimitState>; GATEWAYS],
    running: Vec<Running>,
    now: Nanos,
    /// Totals: admitted requests, used tokens, charged spend; and the spend that is only in a journal.
    requests: u64,
    tokens: u64,
    charged: i64,
    journals: [i64; GATEWAYS],
}

impl Fleet {
    fn new(limits: UsageLimits) -> Self {
        let states = std::array::from_fn(|_| Arc::new(LimitState::shared()));
        let server = Server { limits, requests: 0, tokens: 0, leases: [None; GATEWAYS], spent: 0 };
        let (running, journals) = (Vec::new(), [0; GATEWAYS]);
        Fleet { server, states, running, now: 0, requests: 0, tokens: 0, charged: 0, journals }
    }

    fn transact(&mut self, at: usize, all: bool, needs: &[LimitRequest], lost: Lost) -> bool {
        let lease = self.states[at].quota_lease().unwrap();
        let renewal = lease.renewal(all);
        let response = (!matches!(lost, Lost::Request))
            .then(|| self.server.transact(at, self.now, &renewal, all, needs));
        match (response, lost) {
            (Some((granted, grant)), Lost::Nothing) => {
                let permits = granted.iter().filter(|granted| **granted).count();
                let held =
                    needs.iter().zip(&granted).filter(|(_, granted)| **granted).map(|(need, _)| need.cost);
                lease.on_ack(self.now, &renewal, &grant, u32::try_from(permits).unwrap(), held.sum());
                granted == [true]
            }
            _ => {
                lease.on_timeout(&renewal);
                false
            }
        }
    }

    fn advance(&mut self, time: Nanos) {
        self.now += time;
    }

    /// Renews the lease of a gateway, as a running gateway does periodically.
    fn renew(&mut self, at: usize) {
        self.transact(at, false, &[], Lost::Nothing);
    }

    fn step(&mut self, step: &Step) {
        let limits = self.server.limits;
        match *step {
            Step::Take { at, tokens, cost, lost } => {
                let request = LimitRequest { now: self.now, calendar: Calendar::default(), tokens, cost };
                let state = self.states[at].clone();
                let limit_grant = match state.admit(&limits, &request) {
                    Ok(limit_grant) => Some(limit_grant),
                    Err(Denied::NeedsCoordinator) if self.transact(at, false, &[request], lost) => {
                        Some(state.grant(&limits, &request))
                    }
                    Err(_) => None,
                };
                if let Some(limit_grant) = limit_grant {
                    self.requests += 1;
                    self.running.push((at, tokens, cost, limit_grant));
                }
            }
            Step::End { which, tokens, cost } if !self.running.is_empty() => {
                let (at, most, held, limit_grant) = self.running.swap_remove(which % self.running.len());
                let (tokens, cost) = (tokens.min(most), cost.min(held));
                self.tokens += tokens;
                self.charged += cost;
                self.journals[at] += cost;
                limit_grant.settle(self.now, tokens, cost);
            }
            Step::Undo { which } if !self.running.is_empty() => {
                self.requests -= 1;
                self.running.swap_remove(which % self.running.len()).3.undo();
            }
            Step::Transaction { at, all, lost } => {
                self.transact(at, all, &[], lost);
            }
            Step::Ship { at } => {
                let lease = self.states[at].quota_lease().unwrap();
                lease.mark_in_flight();
                self.server.spent += std::mem::take(&mut self.journals[at]);
                lease.clear_in_flight();
            }
            Step::Kill { at } => {
                // Its requests end with it, and its journal is shipped. The next gateway to start is a new one.
                self.running.retain(|(of, ..)| *of != at);
                self.server.spent += std::mem::take(&mut self.journals[at]);
                self.states[at] = Arc::new(LimitState::shared());
                for _ in 0..3 {
                    self.advance(LIFE / 2);
                    (0..GATEWAYS).filter(|other| *other != at).for_each(|other| self.renew(other));
                }
            }
            Step::Advance { millis } => {
                self.advance(millis * 1_000_000);
                (0..GATEWAYS).for_each(|at| self.renew(at));
            }
            Step::End { .. } | Step::Undo { .. } => {}
        }
    }

    fn check(&self, step: &Step) -> Result<(), TestCaseError> {
        let limits = self.server.limits;
        prop_assert!(self.running.len() <= limits.concurrent.unwrap() as usize, "permits after {:?}", step);
        let filled = |limit: u64| {
            limit + u64::try_from(i128::from(self.now) * i128::from(limit) / i128::from(MINUTE)).unwrap() + 1
        };
        prop_assert!(
            self.requests <= filled(limits.requests_per_minute.unwrap()),
            "requests after {:?}",
            step
        );
        let held: u64 = self.running.iter().map(|running| running.1).sum();
        prop_assert!(
            self.tokens + held <= filled(limits.tokens_per_minute.unwrap()),
            "tokens after {:?}",
            step
        );
        let held: i64 = self.running.iter().map(|running| running.2).sum();
        prop_assert!(self.charged + held <= limits.spend_per_day.unwrap(), "spend after {:?}", step);
        for (at, state) in self.states.iter().enumerate() {
            let (requests, tokens) = state.remaining(&limits, self.now);
            prop_assert!(requests.is_some_and(|left| left.remaining <= left.limit), "{}", at);
            prop_assert!(tokens.is_some_and(|left| left.remaining <= left.limit), "{}", at);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Requests that use no more than expected never exceed a limit, whatever messages are lost; and in the end any
    /// gateway can get everything that remains.
    #[test]
    fn lease_limits_hold_across_all_gateways(
        requests in 1u64..200, tokens in 400u64..20_000, permits in 1u32..40, spend in 400i64..20_000,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let limits = UsageLimits {
            requests_per_minute: Some(requests),
            tokens_per_minute: Some(tokens),
            concurrent: Some(permits),
            spend_per_day: Some(spend),
            spend_per_month: None,
        };
        let mut fleet = Fleet::new(limits);
        for step in &steps {
            fleet.step(step);
            fleet.check(step)?;
        }
        // All requests end, everything is reported, and a minute passes.
        while !fleet.running.is_empty() {
            fleet.step(&Step::End { which: 0, tokens: 0, cost: 0 });
        }
        for at in 0..GATEWAYS {
            fleet.step(&Step::Ship { at });
            fleet.step(&Step::Transaction { at, all: true, lost: Lost::Nothing });
            prop_assert!(!fleet.states[at].quota_lease().unwrap().has_leases());
        }
        fleet.now += 2 * MINUTE;
        let left = spend - fleet.charged;
        let request = LimitRequest { now: fleet.now, calendar: Calendar::default(), tokens, cost: left };
        prop_assert!(fleet.transact(0, true, &[request], Lost::Nothing), "{} of the spend limit are left", left);
    }
}

/// Counts its calls.
#[derive(Clone, Debug, Default)]
struct SurplusCount(Arc<AtomicU64>);

impl SurplusListener for SurplusCount {
    fn on_surplus(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests of which now more and now fewer are in flight cost a transaction for what is leased ahead, 256 requests, and
/// hardly one for permits.
#[test]
fn lease_of_permits_needs_no_transaction_for_each_request() {
    let limits = UsageLimits {
        requests_per_minute: Some(100_000_000),
        tokens_per_minute: Some(1_000_000_000),
        concurrent: Some(100_000),
        spend_per_day: Some(1_000_000_000_000),
        spend_per_month: None,
    };
    let mut fleet = Fleet::new(limits);
    let surplus = SurplusCount::default();
    let state = fleet.states[0].clone();
    let lease = state.quota_lease().unwrap();
    lease.set_surplus_listener(|| Box::new(surplus.clone()));
    let (mut transactions, mut returned) = (0_u64, 0);
    for number in 0..10_000_usize {
        let request = LimitRequest { now: fleet.now, calendar: Calendar::default(), tokens: 1, cost: 1 };
        let granted = state.admit(&limits, &request).unwrap_or_else(|denied| {
            assert_eq!(denied, Denied::NeedsCoordinator);
            transactions += 1;
            assert!(fleet.transact(0, false, &[request], Lost::Nothing));
            state.grant(&limits, &request)
        });
        fleet.running.push((0, 1, 1, granted));
        // Between 1 and 64 in flight.
        if number % 64 == 63 {
            while fleet.running.len() > 1 {
                fleet.step(&Step::End { which: number, tokens: 1, cost: 1 });
                if surplus.0.load(Ordering::Relaxed) > returned {
                    returned += 1;
                    fleet.renew(0);
                }
            }
        }
    }
    assert!(transactions <= 10_000 / 256 + 2, "{transactions}");
    assert!(returned <= 2, "{returned}");
}
