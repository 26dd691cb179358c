//! Limits of a target, and the release of permits.

use proptest::prelude::*;

use super::{SECOND, target_handles};
use crate::limits::Gcra;
use crate::route::blame::Blame;
use crate::route::breaker::BreakerRules;
use crate::route::reported_quota::ReportedQuota;
use crate::route::retry_budget::{RetryBudget, RetryShare};
use crate::route::target_handle::{BreakerChange, Excluded, TargetLimits};

#[test]
fn target_limits_are_enforced_and_released() {
    let mut target = target_handles(&[(1, 0)]).remove(0);
    target.limits = TargetLimits { concurrent: Some(2), ..TargetLimits::default() };
    let first = target.acquire(0, 0, false).unwrap();
    let _second = target.acquire(0, 0, false).unwrap();
    assert!(matches!(target.exclusion(0, 0), Some(Excluded::RateLimited(_))));
    assert!(target.acquire(0, 0, true).is_none(), "a forced request is subject to the limits");
    drop(first);
    assert!(target.acquire(0, 0, false).is_some());

    target.limits = TargetLimits {
        requests_per_minute: Some(2),
        tokens_per_minute: Some(1_000),
        ..TargetLimits::default()
    };
    drop(target.acquire(0, 600, false).unwrap());
    assert!(target.acquire(0, 600, false).is_none(), "tokens");
    drop(target.acquire(0, 400, false).unwrap());
    assert!(target.acquire(0, 0, false).is_none(), "requests");
    assert_eq!(target.exclusion(0, 0), Some(Excluded::RateLimited(30 * SECOND)));
    assert!(target.acquire(30 * SECOND, 400, false).is_some());
}

#[test]
fn target_reported_quota_is_honored_until_its_reset() {
    let target = target_handles(&[(1, 0)]).remove(0);
    target.state.observe_requests(2, 10 * SECOND, 0);
    target.state.observe_tokens(500, 20 * SECOND, 0);
    assert_eq!(target.exclusion(0, 600), Some(Excluded::RateLimited(20 * SECOND)));
    drop(target.acquire(0, 200, false).unwrap());
    drop(target.acquire(0, 200, false).unwrap());
    assert_eq!(target.exclusion(0, 0), Some(Excluded::RateLimited(10 * SECOND)), "two requests were left");
    assert_eq!(
        target.exclusion(10 * SECOND, 200),
        Some(Excluded::RateLimited(20 * SECOND)),
        "100 tokens are left"
    );
    assert_eq!(target.exclusion(20 * SECOND, 9_999), None);
}

#[test]
fn target_retry_after_is_honored_and_capped() {
    let target = target_handles(&[(1, 0)]).remove(0);
    let rules = BreakerRules::default();
    let permit = target.acquire(0, 0, false).unwrap();
    assert_eq!(permit.failed(Blame::Busy, Some(7 * SECOND), 0, &rules, 0), BreakerChange::Unchanged);
    assert_eq!(target.exclusion(0, 0), Some(Excluded::RateLimited(7 * SECOND)));
    assert_eq!(target.exclusion(7 * SECOND, 0), None);
    // An absurd `retry-after` is capped.
    let permit = target.acquire(7 * SECOND, 0, false).unwrap();
    let _ = permit.failed(Blame::Busy, Some(i64::MAX), 7 * SECOND, &rules, 0);
    assert_eq!(target.exclusion(1_000 * SECOND, 0), None);
}

#[test]
fn target_is_excluded_while_its_provider_is_failing() {
    let mut two = target_handles(&[(1, 0), (1, 0)]);
    let provider = two[0].state.provider_breaker.clone();
    two[1].state = std::sync::Arc::new(crate::route::target_handle::TargetState::new(9, provider));
    let rules = BreakerRules::default();
    for n in 1..=rules.failures {
        let permit = two[0].acquire(1, 0, false).unwrap();
        let expected = if n == rules.failures { BreakerChange::Provider } else { BreakerChange::Unchanged };
        assert_eq!(permit.failed(Blame::Provider, None, 1, &rules, 0), expected);
    }
    assert!(matches!(two[1].exclusion(1, 0), Some(Excluded::BreakerOpen(_))));
    // The success of a probe at one target closes the breaker for both.
    let mut probe = two[1].acquire(1 + rules.cooldown, 0, false).unwrap();
    assert!(two[0].exclusion(1 + rules.cooldown, 0).is_some());
    probe.on_response(2 + rules.cooldown);
    assert_eq!(two[0].exclusion(2 + rules.cooldown, 0), None);
    let permit = two[0].acquire(2 + rules.cooldown, 0, false).unwrap();
    assert_eq!(
        permit.failed(Blame::Credential, None, 2 + rules.cooldown, &rules, 0),
        BreakerChange::Credential
    );
    assert!(two[1].exclusion(2 + rules.cooldown, 0).is_some());
}

#[test]
fn target_is_not_excluded_for_client_errors() {
    let target = target_handles(&[(1, 0)]).remove(0);
    for _ in 0..1_000 {
        let permit = target.acquire(1, 0, false).unwrap();
        assert_eq!(
            permit.failed(Blame::Client, None, 1, &BreakerRules::default(), 0),
            BreakerChange::Unchanged
        );
    }
    assert_eq!(target.exclusion(1, 0), None);
    assert_eq!(target.state.in_flight.get(), 0);
}

#[test]
fn target_health_ignores_client_disconnects() {
    let target = target_handles(&[(1, 0)]).remove(0);
    let rules = BreakerRules::default();
    let fail = |blame, now| {
        let permit = target.acquire(now, 0, false).unwrap();
        let _ = permit.failed(blame, None, now + 1, &rules, 0);
    };
    for now in 0..i64::from(rules.failures) {
        assert_eq!(target.exclusion(now, 0), None);
        fail(Blame::Target, now);
        if target.exclusion(now, 0).is_none() {
            fail(Blame::Gateway, now);
        }
    }
    // Client and gateway errors neither count as failures nor interrupt the run of failures.
    assert!(matches!(target.exclusion(rules.failures.into(), 0), Some(Excluded::BreakerOpen(_))));
    // A probe whose client disconnects frees the probe slot.
    let later = 1_000 * SECOND;
    let probe = target.acquire(later, 0, false).unwrap();
    assert!(target.exclusion(later, 0).is_some());
    let _ = probe.failed(Blame::Gateway, None, later, &rules, 0);
    assert_eq!(target.exclusion(later, 0), None);
    assert_eq!(target.state.in_flight.get(), 0);
}

#[test]
fn retry_budget_is_a_share_of_requests() {
    let (budget, share) = (RetryBudget::default(), RetryShare { percent: 20, reserve: 10 });
    let drain = |budget: &RetryBudget| {
        std::iter::repeat_with(|| budget.withdraw(&share)).take_while(|taken| *taken).count()
    };
    assert_eq!(drain(&budget), 10);
    (0..100).for_each(|_| budget.deposit(&share));
    assert_eq!(drain(&budget), 20);
    (0..1_000_000).for_each(|_| budget.deposit(&share));
    assert_eq!(drain(&budget), 110, "the budget is bounded");
}

proptest! {
    /// At most twice the limit is admitted in any minute (the saved amount and the refill), and at most the limit at
    /// once.
    #[test]
    fn rate_admits_at_most_twice_the_limit_in_any_minute(limit in 1..5_000u64, amounts in prop::collection::vec((0..2 * SECOND, 1..2_000u64), 1..300)) {
        let rate = Gcra::default();
        let mut now = 1;
        let mut taken: Vec<(i64, u64)> = Vec::new();
        for (pause, amount) in amounts {
            now += pause;
            let amount = amount.min(limit);
            let wait = rate.wait(now, amount, limit);
            prop_assert_eq!(rate.take(now, amount, limit).is_ok(), wait == 0);
            if wait == 0 {
                taken.push((now, amount));
            } else {
                // The reported wait is exact.
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
    fn reported_quota_is_never_exceeded(left in 0..1_000u64, amounts in prop::collection::vec(1..200u64, 1..100)) {
        let quota = ReportedQuota::default();
        quota.observe(left, 10);
        let mut taken = 0;
        for amount in amounts {
            if quota.wait(5, amount) == 0 {
                quota.take(5, amount);
                taken += amount;
            }
        }
        prop_assert!(taken <= left);
    }
}
