//! Invariants of the circuit breaker under random sequences of events.

use proptest::prelude::*;

use super::SECOND;
use crate::route::breaker::{Breaker, BreakerAdmission, BreakerRules, BreakerState};

fn rules() -> BreakerRules {
    BreakerRules {
        failures: 3,
        percent: 50,
        requests: 10,
        within: 30 * SECOND,
        cooldown: 5 * SECOND,
        longest: 60 * SECOND,
    }
}

fn fail(breaker: &Breaker, now: i64) -> bool {
    let admission = breaker.admit(now).unwrap();
    breaker.on_failure(admission, now, &rules(), 0)
}

#[test]
fn breaker_opens_after_failures_in_a_row_and_a_probe_closes_it() {
    let breaker = Breaker::default();
    assert!(!fail(&breaker, 1) && !fail(&breaker, 2));
    breaker.on_success(breaker.admit(3).unwrap());
    assert!(!fail(&breaker, 4) && !fail(&breaker, 5) && fail(&breaker, 6));
    assert_eq!(breaker.state(7), BreakerState::Open(6 + 5 * SECOND));
    assert_eq!(breaker.admit(7), None);
    let later = 6 + 5 * SECOND;
    assert_eq!(breaker.state(later), BreakerState::HalfOpen);
    let probe = breaker.admit(later).unwrap();
    assert_eq!(probe, BreakerAdmission::Probe);
    assert_eq!(breaker.admit(later), None, "one at a time");
    breaker.on_success(probe);
    assert_eq!(breaker.state(later), BreakerState::Closed);
}

#[test]
fn breaker_opens_at_a_share_of_failures() {
    let breaker = Breaker::default();
    let mut opened = 0;
    for now in 0..40 {
        let Some(admission) = breaker.admit(now) else { break };
        if now % 2 == 0 {
            breaker.on_success(admission);
        } else if breaker.on_failure(admission, now, &rules(), 0) {
            opened = now;
        }
    }
    assert_eq!(opened, 9, "half of ten requests");
}

#[test]
fn breaker_stays_closed_with_few_failures_among_successes() {
    let breaker = Breaker::default();
    for now in 0..10_000 {
        let admission = breaker.admit(now).unwrap();
        if now % 3 == 2 {
            assert!(!breaker.on_failure(admission, now, &rules(), 0));
        } else {
            breaker.on_success(admission);
        }
    }
}

#[test]
fn breaker_wait_doubles_with_each_failed_probe_up_to_a_limit() {
    let breaker = Breaker::default();
    let mut now = 1;
    for _ in 0..3 {
        fail(&breaker, now);
    }
    let mut waits = Vec::new();
    for _ in 0..6 {
        let BreakerState::Open(until) = breaker.state(now) else { panic!("it is open") };
        waits.push((until - now) / SECOND);
        now = until;
        assert!(!fail(&breaker, now), "it was open already");
    }
    assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
}

#[test]
fn breaker_opens_at_once_for_a_refused_credential() {
    let breaker = Breaker::default();
    assert!(breaker.trip(breaker.admit(1).unwrap(), 1, &rules(), u64::MAX));
    let BreakerState::Open(until) = breaker.state(1) else { panic!("it is open") };
    assert!((5 * SECOND..=6 * SECOND + 1).contains(&until), "{until}: with up to 20 % of jitter");
}

/// Event of a breaker.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Enter,
    Force,
    /// Outcome of the nth admitted request: 0 success, 1 failure, 2 unknown, 3 trip.
    End(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..20 * SECOND).prop_map(Step::Wait),
        Just(Step::Enter),
        Just(Step::Enter),
        Just(Step::Force),
        (any::<usize>(), 0..4u8).prop_map(|(which, how)| Step::End(which, how)),
        (any::<usize>(), 0..2u8).prop_map(|(which, how)| Step::End(which, how)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn breaker_invariants_hold_for_every_order_of_events(steps in prop::collection::vec(step(), 1..200), point: u64) {
        let (breaker, rules) = (Breaker::default(), rules());
        let mut now = 1;
        let mut inside: Vec<BreakerAdmission> = Vec::new();
        for step in steps {
            let before = breaker.state(now);
            match step {
                Step::Wait(span) => now += span,
                Step::Force => inside.push(BreakerAdmission::Forced),
                Step::Enter => {
                    let probing = inside.contains(&BreakerAdmission::Probe);
                    let admits = breaker.would_admit(now);
                    let admission = breaker.admit(now);
                    prop_assert_eq!(admits, admission.is_some());
                    match before {
                        BreakerState::Closed => prop_assert_eq!(admission, Some(BreakerAdmission::Closed)),
                        BreakerState::Open(until) => prop_assert!(admission.is_none() && now < until),
                        BreakerState::HalfOpen => prop_assert_eq!(admission, (!probing).then_some(BreakerAdmission::Probe)),
                    }
                    inside.extend(admission);
                }
                Step::End(..) if inside.is_empty() => {}
                Step::End(which, how) => {
                    let admission = inside.swap_remove(which % inside.len());
                    let opened = match how {
                        0 => { breaker.on_success(admission); false }
                        1 => breaker.on_failure(admission, now, &rules, point),
                        2 => { breaker.on_unknown(admission); false }
                        _ => breaker.trip(admission, now, &rules, point),
                    };
                    let after = breaker.state(now);
                    // Opening is reported exactly once.
                    prop_assert_eq!(opened, before == BreakerState::Closed && matches!(after, BreakerState::Open(_)));
                    // Only the success of a probe or a forced request closes it.
                    if after == BreakerState::Closed && before != BreakerState::Closed {
                        prop_assert!(how == 0 && admission != BreakerAdmission::Closed);
                    }
                    if let BreakerState::Open(until) = after {
                        prop_assert!(until - now <= rules.longest + rules.longest / 5);
                    }
                }
            }
            prop_assert!(inside.iter().filter(|admission| **admission == BreakerAdmission::Probe).count() <= 1);
        }
        // The breaker never gets stuck: once all requests have ended and the cooldown is over, it admits one.
        for admission in inside {
            breaker.on_unknown(admission);
        }
        prop_assert!(breaker.admit(now + 2 * rules.longest).is_some());
    }
}
