//! Gateways against a model of the coordinator, in any order of events: lost responses, gateways that end, exhausted
//! limits.

use std::sync::Arc;

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
    kept: [Option<(Nanos, u32, i64)>; GATEWAYS],
    spent: i64,
}

impl Server {
    fn visit(
        &mut self,
        me: usize,
        now: Nanos,
        report: &LeaseRequest,
        all: bool,
        needs: &[LimitRequest],
    ) -> (Vec<bool>, LeaseGrant) {
        for (_, kept) in self.kept.iter_mut().enumerate().filter(|(at, _)| *at != me) {
            *kept = kept.filter(|(at, ..)| now - at <= LIFE);
        }
        let others =
            || self.kept.iter().enumerate().filter(|(at, _)| *at != me).filter_map(|(_, kept)| *kept);
        let places: u32 = others().map(|(_, places, _)| places).sum();
        let money: i64 = others().map(|(.., money)| money).sum();
        let gateways = 1 + u32::try_from(others().count()).unwrap();
        let [rpm, tpm] = [self.limits.requests_per_minute, self.limits.tokens_per_minute].map(Option::unwrap);
        let (most, day) = (self.limits.concurrent.unwrap(), self.limits.spend_per_day.unwrap());
        let owe = |full: Nanos, amount: i64, limit: u64| {
            let cost = gcra::cost(amount.unsigned_abs(), limit);
            if amount < 0 { full - cost } else { full.max(now) + cost }
        };
        self.requests = owe(self.requests, report.requests, rpm);
        self.tokens = owe(self.tokens, report.tokens, tpm);
        let (mut mine, mut mine_money) = (report.permits, report.spend);
        let mut granted = Vec::new();
        for need in needs {
            let tokens = i64::try_from(need.tokens).unwrap();
            let (requests, tokens) = (owe(self.requests, 1, rpm), owe(self.tokens, tokens, tpm));
            let fits = places + mine < most
                && requests - now <= MINUTE
                && tokens - now <= MINUTE
                && self.spent + money + mine_money + need.cost <= day;
            if fits {
                (self.requests, self.tokens) = (requests, tokens);
                mine += 1;
                mine_money += need.cost;
            }
            granted.push(fits);
        }
        let mut told = LeaseGrant { gateways, ..LeaseGrant::default() };
        if granted.iter().all(|granted| *granted) {
            let share = |full: Nanos, limit: u64| {
                let left = gcra::left(full, now, limit).remaining;
                i64::try_from(left / 16).unwrap().min(if needs.is_empty() { 0 } else { 256 })
            };
            told.ahead = (share(self.requests, rpm), share(self.tokens, tpm));
            self.requests = owe(self.requests, told.ahead.0, rpm);
            self.tokens = owe(self.tokens, told.ahead.1, tpm);
            told.surplus = if all { 0 } else { most.saturating_sub(places + mine) / 16 };
            mine += told.surplus;
            mine_money +=
                if needs.is_empty() { 0 } else { ((day - self.spent - money - mine_money) / 16).max(0) };
        }
        self.kept[me] = Some((now, mine, mine_money));
        told.full_in = ((self.requests - now).max(0), (self.tokens - now).max(0));
        (told.permits, told.spend) = (mine, mine_money);
        (granted, told)
    }
}

#[derive(Clone, Copy, Debug)]
enum Lost {
    Nothing,
    TheVisit,
    TheAnswer,
}

#[derive(Clone, Debug)]
enum Step {
    Take { at: usize, tokens: u64, cost: i64, lost: Lost },
    End { which: usize, tokens: u64, cost: i64 },
    Undo { which: usize },
    Visit { at: usize, all: bool, lost: Lost },
    Bring { at: usize },
    Kill { at: usize },
    Wait { millis: i64 },
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![8 => Just(Lost::Nothing), 1 => Just(Lost::TheVisit), 1 => Just(Lost::TheAnswer)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..GATEWAYS, 0u64..400, 0i64..400, lost())
            .prop_map(|(at, tokens, cost, lost)| Step::Take { at, tokens, cost, lost }),
        8 => (0usize..64, 0u64..400, 0i64..400).prop_map(|(which, tokens, cost)| Step::End { which, tokens, cost }),
        1 => (0usize..64).prop_map(|which| Step::Undo { which }),
        3 => (0..GATEWAYS, any::<bool>(), lost()).prop_map(|(at, all, lost)| Step::Visit { at, all, lost }),
        2 => (0..GATEWAYS).prop_map(|at| Step::Bring { at }),
        1 => (0..GATEWAYS).prop_map(|at| Step::Kill { at }),
        2 => (0i64..3_000).prop_map(|millis| Step::Wait { millis }),
    ]
}

/// Request in flight: gateway, estimated tokens and cost, and its grant.
type Running = (usize, u64, i64, LimitGrant);

struct World {
    server: Server,
    gauges: [Arc<LimitState>; GATEWAYS],
    running: Vec<Running>,
    now: Nanos,
    /// Totals: admitted requests, used tokens, charged money; and the money that is only in a journal.
    requests: u64,
    tokens: u64,
    charged: i64,
    journals: [i64; GATEWAYS],
}

impl World {
    fn new(limits: UsageLimits) -> Self {
        let gauges = std::array::from_fn(|_| Arc::new(LimitState::shared()));
        let server = Server { limits, requests: 0, tokens: 0, kept: [None; GATEWAYS], spent: 0 };
        let (running, journals) = (Vec::new(), [0; GATEWAYS]);
        World { server, gauges, running, now: 0, requests: 0, tokens: 0, charged: 0, journals }
    }

    fn visit(&mut self, at: usize, all: bool, needs: &[LimitRequest], lost: Lost) -> bool {
        let share = self.gauges[at].quota_lease().unwrap();
        let report = share.renewal(all);
        let made =
            (!matches!(lost, Lost::TheVisit)).then(|| self.server.visit(at, self.now, &report, all, needs));
        match (made, lost) {
            (Some((granted, told)), Lost::Nothing) => {
                let places = granted.iter().filter(|granted| **granted).count();
                let held =
                    needs.iter().zip(&granted).filter(|(_, granted)| **granted).map(|(need, _)| need.cost);
                share.on_ack(self.now, &report, &told, u32::try_from(places).unwrap(), held.sum());
                granted == [true]
            }
            _ => {
                share.on_timeout(&report);
                false
            }
        }
    }

    fn pass(&mut self, time: Nanos) {
        self.now += time;
    }

    /// Renews the lease of a gateway, as a running gateway does periodically.
    fn renew(&mut self, at: usize) {
        self.visit(at, false, &[], Lost::Nothing);
    }

    fn step(&mut self, step: &Step) {
        let limits = self.server.limits;
        match *step {
            Step::Take { at, tokens, cost, lost } => {
                let ask = LimitRequest { now: self.now, calendar: Calendar::default(), tokens, cost };
                let gauge = self.gauges[at].clone();
                let ticket = match gauge.admit(&limits, &ask) {
                    Ok(ticket) => Some(ticket),
                    Err(Denied::NeedsCoordinator) if self.visit(at, false, &[ask], lost) => {
                        Some(gauge.grant(&limits, &ask))
                    }
                    Err(_) => None,
                };
                if let Some(ticket) = ticket {
                    self.requests += 1;
                    self.running.push((at, tokens, cost, ticket));
                }
            }
            Step::End { which, tokens, cost } if !self.running.is_empty() => {
                let (at, most, held, ticket) = self.running.swap_remove(which % self.running.len());
                let (tokens, cost) = (tokens.min(most), cost.min(held));
                self.tokens += tokens;
                self.charged += cost;
                self.journals[at] += cost;
                ticket.settle(self.now, tokens, cost);
            }
            Step::Undo { which } if !self.running.is_empty() => {
                self.requests -= 1;
                self.running.swap_remove(which % self.running.len()).3.undo();
            }
            Step::Visit { at, all, lost } => {
                self.visit(at, all, &[], lost);
            }
            Step::Bring { at } => {
                let share = self.gauges[at].quota_lease().unwrap();
                share.mark_in_flight();
                self.server.spent += std::mem::take(&mut self.journals[at]);
                share.clear_in_flight();
            }
            Step::Kill { at } => {
                // Its requests end with it, and its journal is shipped. The next gateway to start is a new one.
                self.running.retain(|(of, ..)| *of != at);
                self.server.spent += std::mem::take(&mut self.journals[at]);
                self.gauges[at] = Arc::new(LimitState::shared());
                for _ in 0..3 {
                    self.pass(LIFE / 2);
                    (0..GATEWAYS).filter(|other| *other != at).for_each(|other| self.renew(other));
                }
            }
            Step::Wait { millis } => {
                self.pass(millis * 1_000_000);
                (0..GATEWAYS).for_each(|at| self.renew(at));
            }
            Step::End { .. } | Step::Undo { .. } => {}
        }
    }

    fn check(&self, step: &Step) -> Result<(), TestCaseError> {
        let limits = self.server.limits;
        prop_assert!(self.running.len() <= limits.concurrent.unwrap() as usize, "places after {:?}", step);
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
        prop_assert!(self.charged + held <= limits.spend_per_day.unwrap(), "money after {:?}", step);
        for (at, gauge) in self.gauges.iter().enumerate() {
            let (requests, tokens) = gauge.remaining(&limits, self.now);
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
        requests in 1u64..200, tokens in 400u64..20_000, places in 1u32..40, money in 400i64..20_000,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let limits = UsageLimits {
            requests_per_minute: Some(requests),
            tokens_per_minute: Some(tokens),
            concurrent: Some(places),
            spend_per_day: Some(money),
            spend_per_month: None,
        };
        let mut world = World::new(limits);
        for step in &steps {
            world.step(step);
            world.check(step)?;
        }
        // All requests end, everything is reported, and a minute passes.
        while !world.running.is_empty() {
            world.step(&Step::End { which: 0, tokens: 0, cost: 0 });
        }
        for at in 0..GATEWAYS {
            world.step(&Step::Bring { at });
            world.step(&Step::Visit { at, all: true, lost: Lost::Nothing });
            prop_assert!(!world.gauges[at].quota_lease().unwrap().has_leases());
        }
        world.now += 2 * MINUTE;
        let left = money - world.charged;
        let ask = LimitRequest { now: world.now, calendar: Calendar::default(), tokens, cost: left };
        prop_assert!(world.visit(0, true, &[ask], Lost::Nothing), "{} of money are left", left);
    }
}
