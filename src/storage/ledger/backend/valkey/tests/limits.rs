//! Limits that three gateways share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{flush_ledger, open_admin, wait_until};
use crate::ledger::backend::valkey::{ClusterLedger, OnOutage};
use crate::store::tests::ledger::{open_account, record, settle, stored};
use crate::store::tests::server::pause;
use crate::store::tests::{OnServer, runtime};
use routing::limits::{
    Calendar, Denied, Exceeded, LimitGrant, LimitOwner, LimitRegistry, LimitRequest, Limiter as _, Scope,
    UsageLimits, Which,
};

/// Gateway of a fleet: what the proxy does with limits.
pub(super) struct FleetNode {
    pub(super) ledger: ClusterLedger,
    registry: LimitRegistry,
    epoch: Instant,
    calendar: Calendar,
}

impl FleetNode {
    pub(super) fn new(ledger: ClusterLedger) -> Self {
        // The day of the records that the tests write.
        let calendar = Calendar::at(record("", 0).time.div_euclid(1_000));
        FleetNode { ledger, registry: LimitRegistry::shared(), epoch: Instant::now(), calendar }
    }

    fn limit_request(&self, tokens: u64, cost: i64) -> LimitRequest {
        let now = i64::try_from(self.epoch.elapsed().as_nanos()).unwrap();
        LimitRequest { now, calendar: self.calendar, tokens, cost }
    }

    pub(super) fn take(
        &self,
        account: &str,
        limits: UsageLimits,
        tokens: u64,
        cost: i64,
    ) -> Result<LimitGrant, Denied> {
        self.take_by(account, limits, self.limit_request(tokens, cost))
    }

    fn take_by(
        &self,
        account: &str,
        limits: UsageLimits,
        request: LimitRequest,
    ) -> Result<LimitGrant, Denied> {
        let name: Arc<str> = account.into();
        let state = self.registry.state(Scope::Account, &name);
        match state.admit(&limits, &request) {
            Err(Denied::NeedsCoordinator) => {
                let owner = LimitOwner { account: name, key: None };
                let pending = self.ledger.take(owner, &state, &limits, &request);
                let waited = async { tokio::time::timeout(Duration::from_secs(10), pending).await };
                runtime().block_on(waited).unwrap().unwrap()
            }
            known => known,
        }
    }

    /// Returns the remaining requests and tokens that the gateway reports.
    fn left(&self, account: &str, limits: &UsageLimits) -> (u64, u64) {
        let state = self.registry.state(Scope::Account, &account.into());
        let (requests, tokens) = state.remaining(limits, self.limit_request(0, 0).now);
        (requests.map_or(0, |left| left.remaining), tokens.map_or(0, |left| left.remaining))
    }

    fn settle(&self, grant: LimitGrant, account: &str, tokens: u64, cost: i64) {
        settle(&self.ledger, None, &record(account, cost));
        grant.settle(self.limit_request(0, 0).now, tokens, cost);
    }
}

fn three(place: &OnServer) -> [FleetNode; 3] {
    [(); 3].map(|()| FleetNode::new(place.cluster_ledger(OnOutage::Refuse)))
}

/// Runs the same function in two workers per gateway for a while.
fn all<G: Sync>(
    gateways: &[G],
    time: Duration,
    work: impl Fn(&G, &mut dyn FnMut() -> u64) + Sync,
) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (at, gateway) in gateways.iter().enumerate() {
            for worker in 0..2 {
                let work = &work;
                scope.spawn(move || {
                    let mut state = (at * 2 + worker) as u64 + 1;
                    let mut random = || {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        state >> 33
                    };
                    while began.elapsed() < time {
                        work(gateway, &mut random);
                    }
                });
            }
        }
    });
    began.elapsed()
}

/// Runs the function until it is refused for this reason, and a while longer, so that a busy machine fails no test.
fn until_refused<G: Sync>(
    gateways: &[G],
    expected: Which,
    work: impl Fn(&G, &mut dyn FnMut() -> u64) -> Result<(), Denied> + Sync,
) -> Duration {
    let refused = AtomicU64::new(0);
    let mut time = Duration::ZERO;
    for _ in 0..20 {
        let full = refused.load(Ordering::Acquire) > 0;
        time += all(gateways, Duration::from_millis(750), |gateway, random| {
            if let Err(denied) = work(gateway, random) {
                assert_eq!(which(denied), expected);
                refused.fetch_add(1, Ordering::AcqRel);
                pause(1);
            }
        });
        if full {
            break;
        }
    }
    time
}

fn which(denied: Denied) -> Which {
    match denied {
        Denied::LimitReached(Exceeded { which, .. }) => which,
        other => panic!("{other:?}"),
    }
}

#[test]
fn limit_on_requests_is_shared_by_all_gateways() {
    let Some(place) = OnServer::new() else { return };
    let gateways = three(&place);
    let limits = UsageLimits { requests_per_minute: Some(1_200), ..UsageLimits::default() };
    let admitted = AtomicU64::new(0);
    let time = until_refused(&gateways, Which::Requests, |gateway, _| {
        let _ = gateway.take("acme", limits, 0, 0)?;
        admitted.fetch_add(1, Ordering::AcqRel);
        Ok(())
    });
    let admitted = admitted.into_inner();
    let filled = time.as_millis() as u64 * 1_200 / 60_000;
    assert!((1_200..=1_200 + filled + 1).contains(&admitted), "{admitted} with {filled} refilled meanwhile");
    // Each of them reports to its clients what remains of the whole limit.
    for gateway in &gateways {
        let _ = gateway.take("acme", limits, 0, 0);
        assert!(gateway.left("acme", &limits).0 <= 30, "{:?}", gateway.left("acme", &limits));
    }
    let others = gateways[0].take("other", limits, 0, 0);
    assert!(others.is_ok() && gateways[0].left("other", &limits).0 == 1_199);
}

/// A denial reports that nothing remains, even if the very first request had arrived long before it was sent to
/// the server.
#[test]
fn limit_on_requests_is_not_refilled_by_a_delayed_request() {
    let Some(place) = OnServer::new() else { return };
    let limits = UsageLimits { requests_per_minute: Some(60), ..UsageLimits::default() };
    let mut gateway = FleetNode::new(place.cluster_ledger(OnOutage::Refuse));
    let first = gateway.limit_request(0, 0);
    gateway.epoch = gateway.epoch.checked_sub(Duration::from_secs(5)).unwrap();
    assert!(gateway.take_by("acme", limits, first).is_ok());
    let refused = (0..80).find_map(|_| gateway.take("acme", limits, 0, 0).err());
    assert_eq!(refused.map(which), Some(Which::Requests));
    assert_eq!(gateway.left("acme", &limits).0, 0);
}

#[test]
fn limit_on_tokens_is_corrected_by_usage_for_all_gateways() {
    let Some(place) = OnServer::new() else { return };
    let gateways = three(&place);
    let limits = UsageLimits { tokens_per_minute: Some(60_000), ..UsageLimits::default() };
    // The estimate is too high: a third of it is used, so three times as many requests fit.
    let used = AtomicU64::new(0);
    let time = until_refused(&gateways, Which::Tokens, |gateway, random| {
        let grant = gateway.take("acme", limits, 90, 0)?;
        let tokens = 20 + random() % 20;
        used.fetch_add(tokens, Ordering::AcqRel);
        gateway.settle(grant, "acme", tokens, 0);
        Ok(())
    });
    let used = used.into_inner();
    let filled = time.as_millis() as u64;
    assert!((50_000..=60_000 + filled + 100).contains(&used), "{used} with {filled} refilled meanwhile");

    let grant = gateways[0].take("dear", limits, 100, 0).unwrap();
    gateways[0].settle(grant, "dear", 90_000, 0);
    let mut since = 0;
    wait_until("the update of the other gateways", || match gateways[1].take("dear", limits, 1, 0) {
        Ok(grant) => {
            // The lease from earlier requests is used up first.
            gateways[1].settle(grant, "dear", 100, 0);
            since += 100;
            false
        }
        Err(denied) => {
            let Denied::LimitReached(Exceeded { which, wait: Some(wait), .. }) = denied else {
                panic!("{denied:?}")
            };
            assert_eq!(which, Which::Tokens);
            // One and a half times a minute's worth has been used, and what was used since: a token a millisecond.
            let longest = Duration::from_secs(31) + Duration::from_millis(since);
            assert!(wait > Duration::from_secs(20) && wait < longest, "{wait:?}");
            true
        }
    });
    let never = gateways[2].take("acme", limits, 60_001, 0).unwrap_err();
    assert!(
        matches!(never, Denied::LimitReached(Exceeded { which: Which::Tokens, wait: None, .. })),
        "{never:?}"
    );
}

#[test]
fn limit_on_concurrency_is_shared_by_all_gateways() {
    let Some(place) = OnServer::new() else { return };
    let gateways = three(&place);
    for most in [1, 4, 100] {
        let limits = UsageLimits { concurrent: Some(most), ..UsageLimits::default() };
        let account = format!("acme {most}");
        let (now, highest, admitted) = (AtomicI64::new(0), AtomicI64::new(0), AtomicU64::new(0));
        all(&gateways, Duration::from_millis(1_000), |gateway, random| {
            let mut held = Vec::new();
            for _ in 0..random() % 40 {
                match gateway.take(&account, limits, 0, 0) {
                    Ok(grant) => {
                        let count = now.fetch_add(1, Ordering::AcqRel) + 1;
                        highest.fetch_max(count, Ordering::AcqRel);
                        admitted.fetch_add(1, Ordering::AcqRel);
                        held.push(grant);
                    }
                    Err(denied) => {
                        assert_eq!(which(denied), Which::Concurrent);
                        break;
                    }
                }
            }
            now.fetch_sub(i64::try_from(held.len()).unwrap(), Ordering::AcqRel);
            drop(held);
        });
        let highest = highest.into_inner();
        assert!(highest <= most.into(), "{highest} of {most}");
        assert!(admitted.into_inner() > 20);
        // All permits are available to any gateway when the others have finished.
        for gateway in &gateways {
            let mut held = Vec::new();
            wait_until("the return of all permits", || {
                held.extend(gateway.take(&account, limits, 0, 0).ok());
                held.len() == most as usize
            });
            assert_eq!(which(gateway.take(&account, limits, 0, 0).unwrap_err()), Which::Concurrent);
        }
    }
}

/// A client with one permit sends its next request to another gateway as soon as it has its response.
#[test]
fn limit_on_concurrency_is_freed_at_once_for_all_gateways() {
    let Some(place) = OnServer::new() else { return };
    let gateways = three(&place);
    let limits = UsageLimits { concurrent: Some(1), ..UsageLimits::default() };
    for gateway in gateways.iter().cycle().take(300) {
        // The release of the gateway before may still be on its way. It is not the end of its lease that frees the limit,
        // which lasts for seconds.
        let granted = (0..500).find_map(|attempt| {
            pause(u64::from(attempt > 0));
            gateway.take("acme", limits, 0, 0).ok()
        });
        drop(granted.unwrap());
    }
}

#[test]
fn limit_on_spend_is_shared_by_all_gateways() {
    let Some(place) = OnServer::new() else { return };
    let admin = open_admin(&place.server);
    for (account, day, month, most) in [("acme", 20_000, 90_000, 20_000), ("beta", 90_000, 15_000, 15_000)] {
        open_account(&admin, account, 1_000_000);
        let limits =
            UsageLimits { spend_per_day: Some(day), spend_per_month: Some(month), ..UsageLimits::default() };
        let gateways = three(&place);
        let (spent, highest) = (AtomicI64::new(0), AtomicI64::new(0));
        all(&gateways, Duration::from_millis(1_500), |gateway, random| {
            let cost = i64::try_from(random() % 60).unwrap() + 1;
            match gateway.take(account, limits, 0, cost) {
                Ok(grant) => {
                    let now = spent.fetch_add(cost, Ordering::AcqRel) + cost;
                    highest.fetch_max(now, Ordering::AcqRel);
                    let less = i64::try_from(random() % 2).unwrap() * cost / 2;
                    gateway.settle(grant, account, 0, cost - less);
                    spent.fetch_sub(less, Ordering::AcqRel);
                }
                Err(denied) => {
                    assert!(matches!(which(denied), Which::SpendPerDay | Which::SpendPerMonth));
                    pause(1);
                }
            }
        });
        let spent = spent.into_inner();
        assert!(highest.into_inner() <= most, "{account}");
        gateways.iter().for_each(|gateway| flush_ledger(&gateway.ledger));
        assert_eq!(stored(&admin, account).1, spent, "{account}");
        // Exact to the unit, also for a gateway that starts later.
        drop(gateways);
        let gateway = FleetNode::new(place.cluster_ledger(OnOutage::Refuse));
        let mut left = most - spent;
        wait_until("the use of the remaining spend", || {
            if left > 0
                && gateway.take(account, limits, 0, left).map(|t| gateway.settle(t, account, 0, left)).is_ok()
            {
                left = 0;
            }
            left == 0
        });
        let refused = gateway.take(account, limits, 0, 1).unwrap_err();
        let Denied::LimitReached(Exceeded { limit, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(limit, most.unsigned_abs());
    }
}

#[test]
fn limit_during_an_outage_is_split_between_gateways() {
    let Some(mut place) = OnServer::new() else { return };
    let gateways = three(&place);
    let limits = UsageLimits { requests_per_minute: Some(60), concurrent: Some(6), ..UsageLimits::default() };
    let spend_limits = UsageLimits { spend_per_day: Some(1_000_000), ..UsageLimits::default() };
    let began = Instant::now();
    // One request a second is refilled, however long a busy machine takes.
    let most = |requests: u64| requests + began.elapsed().as_secs();
    let mut admitted = 0;
    for gateway in &gateways {
        gateway.take("acme", limits, 0, 0).unwrap();
        gateway.take("payer", spend_limits, 0, 1_000).unwrap();
        admitted += 1;
    }
    // Each of them learns the number of gateways.
    for gateway in &gateways {
        gateway.take("acme", limits, 0, 0).unwrap();
        admitted += 1;
    }
    place.server.kill();
    for gateway in &gateways {
        wait_until("the detection of the outage", || {
            crate::store::tests::wait(gateway.ledger.flush()).is_err()
        });
        let mut held = Vec::new();
        let refused = loop {
            match gateway.take("acme", limits, 0, 0) {
                Ok(grant) => held.push(grant),
                Err(denied) => break denied,
            }
        };
        assert_eq!(which(refused), Which::Concurrent);
        assert_eq!(held.len(), 2, "a third of 6");
        admitted += held.len() as u64;
        drop(held);
        let refused = loop {
            match gateway.take("acme", limits, 0, 0) {
                Ok(_) => admitted += 1,
                Err(denied) => break denied,
            }
        };
        assert_eq!(which(refused), Which::Requests);
        // The leased part is spent, more is not.
        let spent = (0..10_000)
            .take_while(|_| gateway.take("payer", spend_limits, 0, 1_000).map(std::mem::forget).is_ok());
        assert!(spent.count() <= 70);
        assert_eq!(gateway.take("payer", spend_limits, 0, 1_000).unwrap_err(), Denied::CoordinatorDown);
    }
    // Below 60: what the coordinator had leased ahead of use is not used in an outage.
    assert!((40..=most(62)).contains(&admitted), "{admitted}");
    place.server.start_again();
    gateways.iter().for_each(|gateway| flush_ledger(&gateway.ledger));
    let again =
        || gateways.iter().filter(|gateway| gateway.take("acme", limits, 0, 0).is_ok()).count() as u64;
    let owed = admitted;
    // A minute's worth would last for 20 rounds.
    admitted += (0..30).map(|_| again()).take_while(|got| *got > 0).sum::<u64>();
    assert!(admitted <= most(67), "requests admitted during the outage are owed: {owed} of {admitted}");
    wait_until("the recovery of the spend limit", || {
        gateways[0].take("payer", spend_limits, 0, 1_000).is_ok()
    });
}

#[test]
fn limit_on_spend_during_an_outage_permits_the_overdraft() {
    let Some(mut place) = OnServer::new() else { return };
    let gateway = FleetNode::new(place.cluster_ledger(OnOutage::Allow(500)));
    let limits = UsageLimits { spend_per_day: Some(10), ..UsageLimits::default() };
    drop(gateway.take("acme", limits, 0, 10).unwrap());
    place.server.kill();
    wait_until("the detection of the outage", || crate::store::tests::wait(gateway.ledger.flush()).is_err());
    let held: Vec<_> = (0..20).map_while(|_| gateway.take("acme", limits, 0, 100).ok()).collect();
    assert_eq!(held.len(), 5);
    assert_eq!(gateway.take("acme", limits, 0, 100).unwrap_err(), Denied::CoordinatorDown);
}
