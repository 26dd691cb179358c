//! Limits, and what is taken and given back.

use proptest::prelude::*;

use super::{SECOND, seats};
use crate::route::blame::Blame;
use crate::route::breaker::BreakerRules;
use crate::route::reported_quota::{Rate, ReportedQuota};
use crate::route::retry_budget::{RetryBudget, RetryShare};
use crate::route::target_handle::{BreakerChange, Excluded, TargetLimits};

#[test]
fn configured_limits_are_kept_and_given_back() {
    let mut seat = seats(&[(1, 0)]).remove(0);
    seat.limits = TargetLimits { concurrent: Some(2), ..TargetLimits::default() };
    let first = seat.enter(0, 0, false).unwrap();
    let _second = seat.enter(0, 0, false).unwrap();
    assert!(matches!(seat.out(0, 0), Some(Excluded::Full(_))));
    assert!(seat.enter(0, 0, true).is_none(), "nothing goes beyond a limit");
    drop(first);
    assert!(seat.enter(0, 0, false).is_some());

    seat.limits = TargetLimits {
        requests_per_minute: Some(2),
        tokens_per_minute: Some(1_000),
        ..TargetLimits::default()
    };
    drop(seat.enter(0, 600, false).unwrap());
    assert!(seat.enter(0, 600, false).is_none(), "tokens");
    drop(seat.enter(0, 400, false).unwrap());
    assert!(seat.enter(0, 0, false).is_none(), "requests");
    assert_eq!(seat.out(0, 0), Some(Excluded::Full(30 * SECOND)));
    assert!(seat.enter(30 * SECOND, 400, false).is_some());
}

#[test]
fn a_provider_that_says_how_much_is_left_is_believed_until_then() {
    let seat = seats(&[(1, 0)]).remove(0);
    seat.state.learn_requests(2, 10 * SECOND, 0);
    seat.state.learn_tokens(500, 20 * SECOND, 0);
    assert_eq!(seat.out(0, 600), Some(Excluded::Full(20 * SECOND)));
    drop(seat.enter(0, 200, false).unwrap());
    drop(seat.enter(0, 200, false).unwrap());
    assert_eq!(seat.out(0, 0), Some(Excluded::Full(10 * SECOND)), "two requests were left");
    assert_eq!(seat.out(10 * SECOND, 200), Some(Excluded::Full(20 * SECOND)), "100 tokens are left");
    assert_eq!(seat.out(20 * SECOND, 9_999), None);
}

#[test]
fn who_wants_to_be_left_alone_is() {
    let seat = seats(&[(1, 0)]).remove(0);
    let rules = BreakerRules::default();
    let permit = seat.enter(0, 0, false).unwrap();
    assert_eq!(permit.failed(Blame::Busy, Some(7 * SECOND), 0, &rules, 0), BreakerChange::Nothing);
    assert_eq!(seat.out(0, 0), Some(Excluded::Full(7 * SECOND)));
    assert_eq!(seat.out(7 * SECOND, 0), None);
    // A provider that is out of its mind is not believed for days.
    let permit = seat.enter(7 * SECOND, 0, false).unwrap();
    let _ = permit.failed(Blame::Busy, Some(i64::MAX), 7 * SECOND, &rules, 0);
    assert_eq!(seat.out(1_000 * SECOND, 0), None);
}

#[test]
fn a_provider_that_cannot_be_reached_takes_all_its_targets_out() {
    let mut two = seats(&[(1, 0), (1, 0)]);
    let provider = two[0].state.provider_breaker.clone();
    two[1].state = std::sync::Arc::new(crate::route::target_handle::TargetState::new(9, provider));
    let rules = BreakerRules::default();
    for n in 1..=rules.failures {
        let permit = two[0].enter(1, 0, false).unwrap();
        let expected = if n == rules.failures { BreakerChange::Provider } else { BreakerChange::Nothing };
        assert_eq!(permit.failed(Blame::Provider, None, 1, &rules, 0), expected);
    }
    assert!(matches!(two[1].out(1, 0), Some(Excluded::Failing(_))));
    // A probe at either brings both back.
    let mut probe = two[1].enter(1 + rules.cooldown, 0, false).unwrap();
    assert!(two[0].out(1 + rules.cooldown, 0).is_some());
    probe.answered(2 + rules.cooldown);
    assert_eq!(two[0].out(2 + rules.cooldown, 0), None);
    let permit = two[0].enter(2 + rules.cooldown, 0, false).unwrap();
    assert_eq!(
        permit.failed(Blame::Credential, None, 2 + rules.cooldown, &rules, 0),
        BreakerChange::Credential
    );
    assert!(two[1].out(2 + rules.cooldown, 0).is_some());
}

#[test]
fn a_client_that_asks_for_nonsense_takes_nobody_out() {
    let seat = seats(&[(1, 0)]).remove(0);
    for _ in 0..1_000 {
        let permit = seat.enter(1, 0, false).unwrap();
        assert_eq!(
            permit.failed(Blame::Client, None, 1, &BreakerRules::default(), 0),
            BreakerChange::Nothing
        );
    }
    assert_eq!(seat.out(1, 0), None);
    assert_eq!(seat.state.in_flight.get(), 0);
}

#[test]
fn a_client_that_does_not_wait_tells_nothing_of_a_target() {
    let seat = seats(&[(1, 0)]).remove(0);
    let rules = BreakerRules::default();
    let fail = |blame, now| {
        let permit = seat.enter(now, 0, false).unwrap();
        let _ = permit.failed(blame, None, now + 1, &rules, 0);
    };
    for now in 0..i64::from(rules.failures) {
        assert_eq!(seat.out(now, 0), None);
        fail(Blame::Target, now);
        if seat.out(now, 0).is_none() {
            fail(Blame::Gateway, now);
        }
    }
    // Neither a failure nor a success stood between the failures.
    assert!(matches!(seat.out(rules.failures.into(), 0), Some(Excluded::Failing(_))));
    // A probe whose client goes away leaves the place to the next one.
    let later = 1_000 * SECOND;
    let probe = seat.enter(later, 0, false).unwrap();
    assert!(seat.out(later, 0).is_some());
    let _ = probe.failed(Blame::Gateway, None, later, &rules, 0);
    assert_eq!(seat.out(later, 0), None);
    assert_eq!(seat.state.in_flight.get(), 0);
}

#[test]
fn tries_are_a_share_of_requests() {
    let (budget, share) = (RetryBudget::default(), RetryShare { percent: 20, reserve: 10 });
    let drain = |budget: &RetryBudget| {
        std::iter::repeat_with(|| budget.take(&share)).take_while(|taken| *taken).count()
    };
    assert_eq!(drain(&budget), 10);
    (0..100).for_each(|_| budget.pay(&share));
    assert_eq!(drain(&budget), 20);
    (0..1_000_000).for_each(|_| budget.pay(&share));
    assert_eq!(drain(&budget), 110, "what is saved is bounded");
}

proptest! {
    /// In no minute more is let in than twice the limit (what is saved, and what comes), and never more than the limit
    /// at once.
    #[test]
    fn a_rate_is_kept(limit in 1..5_000u64, asks in prop::collection::vec((0..2 * SECOND, 1..2_000u64), 1..300)) {
        let rate = Rate::default();
        let mut now = 1;
        let mut taken: Vec<(i64, u64)> = Vec::new();
        for (pause, amount) in asks {
            now += pause;
            let wait = rate.wait(now, amount, limit);
            prop_assert_eq!(rate.take(now, amount, limit), wait == 0);
            if wait == 0 {
                taken.push((now, amount.min(limit)));
            } else {
                // It is worth asking again exactly then.
                prop_assert_eq!(rate.wait(now + wait, amount, limit), 0);
                prop_assert!(rate.wait(now + wait - 1, amount, limit) > 0);
            }
        }
        for (at, _) in &taken {
            let sum: u64 = taken.iter().filter(|(t, _)| (*at..*at + 60 * SECOND).contains(t)).map(|(_, n)| n).sum();
            prop_assert!(sum <= 2 * limit + 1, "{} of {}", sum, limit);
        }
    }

    #[test]
    fn what_was_learnt_is_never_exceeded(left in 0..1_000u64, asks in prop::collection::vec(1..200u64, 1..100)) {
        let learnt = ReportedQuota::default();
        learnt.tell(left, 10);
        let mut taken = 0;
        for amount in asks {
            if learnt.wait(5, amount) == 0 {
                learnt.take(5, amount);
                taken += amount;
            }
        }
        prop_assert!(taken <= left);
    }
}
