//! Model checks of the lock-free state of a target: each runs in every order in which its threads can interleave.

use loom::sync::Arc;
use loom::thread;

use crate::limits::Gcra;
use crate::route::breaker::{Breaker, BreakerAdmission, BreakerRules, BreakerState};
use crate::route::load::InFlight;
use crate::route::reported_quota::ReportedQuota;
use crate::route::retry_budget::{RetryBudget, RetryShare};

const RULES: BreakerRules =
    BreakerRules { failures: 1, percent: 100, requests: 100, within: 1_000, cooldown: 10, longest: 100 };
/// A time at which a breaker that opened at 1 is half open.
const LATER: i64 = 100;

/// Returns a breaker that is half open at [`LATER`].
fn half_open() -> Arc<Breaker> {
    let breaker = Arc::new(Breaker::default());
    assert!(breaker.on_failure(BreakerAdmission::Closed, 1, &RULES, 0));
    assert_eq!(breaker.state(LATER), BreakerState::HalfOpen);
    breaker
}

/// Runs `work` in a second thread and here, and returns both results.
fn twice<T: 'static, S: 'static>(state: &Arc<S>, work: fn(&S) -> T) -> (T, T) {
    let other = thread::spawn({
        let state = state.clone();
        move || work(&state)
    });
    let own = work(state);
    (own, other.join().unwrap())
}

#[test]
fn loom_breaker_admits_one_probe_at_a_time() {
    loom::model(|| {
        let breaker = half_open();
        let (own, other) = twice(&breaker, |breaker| breaker.admit(LATER).is_some());
        assert!(own ^ other);
    });
}

/// After a failed probe the breaker is open again: nothing is admitted in its cooldown, not even a request that read
/// the state before.
#[test]
fn loom_breaker_admits_one_probe_per_cooldown() {
    loom::model(|| {
        let breaker = half_open();
        let (own, other) = twice(&breaker, |breaker| {
            let admission = breaker.admit(LATER);
            if let Some(admission) = admission {
                breaker.on_failure(admission, LATER, &RULES, 0);
            }
            admission.is_some()
        });
        assert!(own ^ other);
        assert!(matches!(breaker.state(LATER), BreakerState::Open(_)));
        // The probe is released: the next cooldown has its own.
        assert_eq!(breaker.admit(10_000), Some(BreakerAdmission::Probe));
    });
}

/// After a successful probe the breaker is closed, and no later request counts as a probe, whose single failure would
/// open it.
#[test]
fn loom_breaker_has_no_probe_after_it_has_closed() {
    loom::model(|| {
        let breaker = half_open();
        let (own, other) = twice(&breaker, |breaker| {
            let admission = breaker.admit(LATER);
            if let Some(admission) = admission {
                breaker.on_success(admission);
            }
            admission
        });
        let probes =
            [own, other].into_iter().filter(|admission| *admission == Some(BreakerAdmission::Probe)).count();
        assert_eq!(probes, 1);
        assert_eq!(breaker.admit(LATER), Some(BreakerAdmission::Closed));
    });
}

#[test]
fn loom_breaker_opens_once_for_concurrent_failures() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::default());
        let (own, other) =
            twice(&breaker, |breaker| breaker.on_failure(BreakerAdmission::Closed, 1, &RULES, 0));
        assert!(own ^ other);
        assert_eq!(breaker.state(1), BreakerState::Open(11));
    });
}

/// A health check that closes the breaker while a probe fails leaves no probe behind.
#[test]
fn loom_breaker_probe_is_released_beside_a_recovery() {
    loom::model(|| {
        let breaker = half_open();
        let admission = breaker.admit(LATER).unwrap();
        let probe = thread::spawn({
            let breaker = breaker.clone();
            move || breaker.on_failure(admission, LATER, &RULES, 0)
        });
        breaker.recover(true);
        probe.join().unwrap();
        let admission = breaker.admit(10_000).unwrap();
        breaker.on_success(admission);
        assert_eq!(breaker.admit(10_000), Some(BreakerAdmission::Closed));
    });
}

#[test]
fn loom_in_flight_limit_is_not_exceeded() {
    loom::model(|| {
        let in_flight = Arc::new(InFlight::default());
        let (own, other) = twice(&in_flight, |in_flight| in_flight.acquire(Some(1)));
        assert!(own ^ other);
        in_flight.release();
        assert_eq!(in_flight.get(), 0);
    });
}

#[test]
fn loom_rate_is_not_exceeded_and_refunds_count() {
    loom::model(|| {
        let rate = Arc::new(Gcra::default());
        let (own, other) = twice(&rate, |rate| rate.take(1, 1, 1).is_ok());
        assert!(own ^ other);
        rate.refund(1, 1);
        assert_eq!(rate.wait(1, 1, 1), 0);
    });
}

#[test]
fn loom_retry_budget_is_not_exceeded() {
    loom::model(|| {
        let budget = Arc::new(RetryBudget::default());
        let (own, other) = twice(&budget, |budget| budget.withdraw(&RetryShare { percent: 20, reserve: 1 }));
        assert!(own ^ other);
    });
}

/// A reader that sees the time of a report sees its amount: the first report of a positive quota must exclude nothing.
#[test]
fn loom_reported_quota_is_seen_whole() {
    loom::model(|| {
        let quota = Arc::new(ReportedQuota::default());
        let reporting = thread::spawn({
            let quota = quota.clone();
            move || quota.observe(10, 100)
        });
        assert_eq!(quota.wait(1, 1), 0);
        reporting.join().unwrap();
    });
}
