//! What a breaker promises, whatever happens to it in whichever order.

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
    let entry = breaker.enter(now).unwrap();
    breaker.failed(entry, now, &rules(), 0)
}

#[test]
fn failures_in_a_row_open_it_and_a_probe_closes_it() {
    let breaker = Breaker::default();
    assert!(!fail(&breaker, 1) && !fail(&breaker, 2));
    breaker.succeeded(breaker.enter(3).unwrap());
    assert!(!fail(&breaker, 4) && !fail(&breaker, 5) && fail(&breaker, 6));
    assert_eq!(breaker.state(7), BreakerState::Open(6 + 5 * SECOND));
    assert_eq!(breaker.enter(7), None);
    let later = 6 + 5 * SECOND;
    assert_eq!(breaker.state(later), BreakerState::HalfOpen);
    let probe = breaker.enter(later).unwrap();
    assert_eq!(probe, BreakerAdmission::Probe);
    assert_eq!(breaker.enter(later), None, "one at a time");
    breaker.succeeded(probe);
    assert_eq!(breaker.state(later), BreakerState::Closed);
}

#[test]
fn a_share_of_failures_opens_it_too() {
    let breaker = Breaker::default();
    let mut opened = 0;
    for now in 0..40 {
        let Some(entry) = breaker.enter(now) else { break };
        if now % 2 == 0 {
            breaker.succeeded(entry);
        } else if breaker.failed(entry, now, &rules(), 0) {
            opened = now;
        }
    }
    assert_eq!(opened, 9, "half of ten requests");
}

#[test]
fn a_few_failures_among_many_successes_do_not() {
    let breaker = Breaker::default();
    for now in 0..10_000 {
        let entry = breaker.enter(now).unwrap();
        if now % 3 == 2 {
            assert!(!breaker.failed(entry, now, &rules(), 0));
        } else {
            breaker.succeeded(entry);
        }
    }
}

#[test]
fn each_probe_that_fails_doubles_the_wait_up_to_a_limit() {
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
fn a_refused_credential_opens_it_at_once() {
    let breaker = Breaker::default();
    assert!(breaker.trip(breaker.enter(1).unwrap(), 1, &rules(), u64::MAX));
    let BreakerState::Open(until) = breaker.state(1) else { panic!("it is open") };
    assert!((5 * SECOND..=6 * SECOND + 1).contains(&until), "{until}: with a fifth of chance");
}

/// What can happen to a breaker.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Enter,
    Force,
    /// The nth of those who are inside ends so: 0 well, 1 failed, 2 unknown, 3 without a doubt.
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
    fn its_promises_hold_in_every_order(steps in prop::collection::vec(step(), 1..200), point: u64) {
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
                    let admits = breaker.admits(now);
                    let entry = breaker.enter(now);
                    prop_assert_eq!(admits, entry.is_some());
                    match before {
                        BreakerState::Closed => prop_assert_eq!(entry, Some(BreakerAdmission::Closed)),
                        BreakerState::Open(until) => prop_assert!(entry.is_none() && now < until),
                        BreakerState::HalfOpen => prop_assert_eq!(entry, (!probing).then_some(BreakerAdmission::Probe)),
                    }
                    inside.extend(entry);
                }
                Step::End(..) if inside.is_empty() => {}
                Step::End(which, how) => {
                    let entry = inside.swap_remove(which % inside.len());
                    let opened = match how {
                        0 => { breaker.succeeded(entry); false }
                        1 => breaker.failed(entry, now, &rules, point),
                        2 => { breaker.given_up(entry); false }
                        _ => breaker.trip(entry, now, &rules, point),
                    };
                    let after = breaker.state(now);
                    // Whoever opens it says so, once.
                    prop_assert_eq!(opened, before == BreakerState::Closed && matches!(after, BreakerState::Open(_)));
                    // It closes by a success and by nothing else.
                    if after == BreakerState::Closed && before != BreakerState::Closed {
                        prop_assert!(how == 0 && entry != BreakerAdmission::Closed);
                    }
                    if let BreakerState::Open(until) = after {
                        prop_assert!(until - now <= rules.longest + rules.longest / 5);
                    }
                }
            }
            prop_assert!(inside.iter().filter(|entry| **entry == BreakerAdmission::Probe).count() <= 1);
        }
        // Whatever happened, it is not stuck: when all have left and time has passed, somebody may enter.
        for entry in inside {
            breaker.given_up(entry);
        }
        prop_assert!(breaker.enter(now + 2 * rules.longest).is_some());
    }
}
