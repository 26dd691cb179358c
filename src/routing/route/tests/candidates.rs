//! Decisions after failures: tables of single decisions, and whole requests in virtual time.

use std::time::Duration;

use proptest::prelude::*;

use super::{Dice, SECOND, target_handles};
use crate::route::blame::{RetryDecision, classify, error_rank};
use crate::route::candidates::{Candidates, FailedAttempt, Next, RetryRefusal};
use crate::route::pick::{NoTarget, PickRequest, Policy, mask};
use crate::route::retry_budget::{RetryBudget, RetryShare};
use crate::route::{Nanos, RetryRules};
use codec::error::{ApiError, ErrorKind};

/// Reserve of a budget that no test exhausts.
const AMPLE: u32 = 20;

fn rules(reserve: u32) -> RetryRules {
    RetryRules {
        attempts: 3,
        deadline: Duration::from_secs(60),
        share: RetryShare { percent: 0, reserve },
        ..RetryRules::default()
    }
}

/// Candidates since time 0, of which `tried` were sent the request.
fn candidates(eligible: u64, tried: &[usize], rules: RetryRules) -> Candidates {
    let mut candidates = Candidates::new(PickRequest { eligible, ..PickRequest::default() }, rules);
    tried.iter().for_each(|index| candidates.mark_tried(*index));
    candidates
}

fn failed(kind: ErrorKind) -> FailedAttempt {
    FailedAttempt { error: ApiError::new(kind, "message"), body: None, detail: None }
}

/// Returns the number of retries that a budget still pays for.
fn remaining(budget: &RetryBudget, rules: &RetryRules) -> u32 {
    let mut count = 0;
    while budget.withdraw(&rules.share) {
        count += 1;
    }
    count
}

/// Decision of a table's row: a retry (`Ok`), no retry for this failure, or a refusal.
type Decision = Result<(), Option<RetryRefusal>>;

const STOP: Decision = Err(None);

const fn refused(reason: RetryRefusal) -> Decision {
    Err(Some(reason))
}

#[test]
fn candidates_decide_after_a_failure() {
    use RetryDecision::{ContextLength, No, Unsupported, Yes};
    use RetryRefusal::{Attempts, Budget, Deadline, Targets};
    let usual = rules(AMPLE);
    let poor = rules(0);
    let only = RetryRules { attempts: 1, ..usual };
    let long = RetryRules { context_length: true, ..usual };
    let unable = RetryRules { unsupported: true, ..usual };
    let at_once = RetryRules { deadline: Duration::ZERO, ..usual };
    let never = RetryRules { deadline: Duration::MAX, ..usual };
    for (row, (eligible, tried, rules, next, now, expected)) in [
        // The classification.
        (0b111, &[0][..], usual, Yes, SECOND, Ok(())),
        (0b111, &[0], usual, No, SECOND, STOP),
        (0b111, &[0], usual, ContextLength, SECOND, STOP),
        (0b111, &[0], usual, Unsupported, SECOND, STOP),
        (0b111, &[0], long, ContextLength, SECOND, Ok(())),
        (0b111, &[0], long, Unsupported, SECOND, STOP),
        (0b111, &[0], unable, Unsupported, SECOND, Ok(())),
        (0b111, &[0], unable, ContextLength, SECOND, STOP),
        // Targets.
        (0b001, &[0], usual, Yes, SECOND, refused(Targets)),
        (0b110, &[2, 1], usual, Yes, SECOND, refused(Targets)),
        (0b110, &[2], usual, Yes, SECOND, Ok(())),
        (1 << 63 | 1, &[0], usual, Yes, SECOND, Ok(())),
        (1 << 63 | 1, &[63], usual, Yes, SECOND, Ok(())),
        (1 << 63 | 1, &[63, 0], usual, Yes, SECOND, refused(Targets)),
        // Attempts include the first.
        (0b111, &[0, 1], usual, Yes, SECOND, Ok(())),
        (0b1111, &[0, 1, 2], usual, Yes, SECOND, refused(Attempts)),
        (0b111, &[0], only, Yes, SECOND, refused(Attempts)),
        // The deadline, since the request was complete.
        (0b111, &[0], usual, Yes, 60 * SECOND - 1, Ok(())),
        (0b111, &[0], usual, Yes, 60 * SECOND, refused(Deadline)),
        (0b111, &[0], usual, Yes, Nanos::MAX, refused(Deadline)),
        (0b111, &[0], usual, Yes, -SECOND, Ok(())),
        (0b111, &[0], at_once, Yes, 0, refused(Deadline)),
        (0b111, &[0], never, Yes, Nanos::MAX - 1, Ok(())),
        // The budget.
        (0b111, &[0], poor, Yes, SECOND, refused(Budget)),
        // The order of the reasons.
        (0b111, &[0], poor, No, Nanos::MAX, STOP),
        (0b111, &[0, 1, 2], poor, Yes, 60 * SECOND, refused(Targets)),
        (0b1111, &[0, 1, 2], poor, Yes, 60 * SECOND, refused(Attempts)),
        (0b111, &[0], poor, Yes, 60 * SECOND, refused(Deadline)),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut candidates, budget) = (candidates(eligible, tried, rules), RetryBudget::default());
        let failed = failed(ErrorKind::UpstreamFailed);
        let decision = match candidates.after_failure(next, failed.clone(), now, 7, &budget) {
            Next::Retry => Ok(()),
            Next::Stop(failure) => {
                assert_eq!(failure, failed, "row {row}");
                Err(None)
            }
            Next::Refused(reason, failure) => {
                assert_eq!(failure, failed, "row {row}");
                Err(Some(reason))
            }
        };
        assert_eq!(decision, expected, "row {row}");
        let paid = u32::from(decision.is_ok());
        assert_eq!(remaining(&budget, &rules), rules.share.reserve - paid, "row {row}");
        assert_eq!(candidates.now(), if decision.is_ok() { now } else { 0 }, "row {row}");
    }
}

#[test]
fn candidates_decide_after_a_break() {
    use RetryRefusal::{Attempts, Budget, Deadline, Targets};
    let (usual, poor) = (rules(AMPLE), rules(0));
    // The request is older than the deadline: it starts again when the stream breaks off.
    let since = 100 * SECOND;
    let now = since + SECOND;
    for (row, (eligible, tried, able, rules, now, expected)) in [
        (0b111, &[0][..], 0b110, usual, now, Ok(())),
        (0b111, &[0], u64::MAX, usual, now, Ok(())),
        (0b111, &[0], 0b001, usual, now, Err(Targets)),
        (0b111, &[0], 0b1000, usual, now, Err(Targets)),
        (0b111, &[0], 0, usual, now, Err(Targets)),
        (0b1111, &[0, 1, 2], 0b1000, usual, now, Err(Attempts)),
        (0b111, &[0], 0b110, usual, since + 60 * SECOND - 1, Ok(())),
        (0b111, &[0], 0b110, usual, since + 60 * SECOND, Err(Deadline)),
        (0b111, &[0], 0b110, poor, now, Err(Budget)),
        // The order of the reasons.
        (0b1111, &[0, 1, 2], 0b0111, poor, since + 60 * SECOND, Err(Targets)),
        (0b1111, &[0, 1, 2], 0b1000, poor, since + 60 * SECOND, Err(Attempts)),
        (0b111, &[0], 0b110, poor, since + 60 * SECOND, Err(Deadline)),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut candidates, budget) = (candidates(eligible, tried, rules), RetryBudget::default());
        assert_eq!(candidates.after_break(able, since, now, 7, &budget), expected, "row {row}");
        let paid = u32::from(expected.is_ok());
        assert_eq!(remaining(&budget, &rules), rules.share.reserve - paid, "row {row}");
    }
}

#[test]
fn candidates_after_a_break_are_only_the_able_ones() {
    let all = target_handles(&[(1, 0); 4]);
    let mut candidates = candidates(mask(&all[..], |_| true), &[0], rules(AMPLE));
    let budget = RetryBudget::default();
    assert_eq!(candidates.after_break(0b0101, 0, 1, 0, &budget), Ok(()));
    let (index, _permit) = candidates.pick(&all[..], Policy::Weight).unwrap();
    assert_eq!(index, 2);
    candidates.mark_tried(index);
    assert_eq!(candidates.pick(&all[..], Policy::Weight).unwrap_err(), NoTarget::Exhausted);
    // A target that was excluded before stays excluded.
    assert_eq!(candidates.after_break(0b1111, 0, 1, 0, &budget), Err(RetryRefusal::Targets));
}

#[test]
fn candidates_skip_a_target_that_the_request_does_not_fit() {
    let unable = RetryRules { unsupported: true, ..rules(AMPLE) };
    for (kind, rules, resuming, skipped) in [
        (ErrorKind::Unsupported, rules(AMPLE), false, false),
        (ErrorKind::Unsupported, unable, false, true),
        // Some target at least could encode a request that has a part of its response.
        (ErrorKind::Unsupported, rules(AMPLE), true, true),
        (ErrorKind::UnknownResponse, rules(AMPLE), false, true),
        (ErrorKind::InvalidField, unable, true, false),
        (ErrorKind::Overloaded, unable, true, false),
    ] {
        let mut candidates = candidates(0b11, &[], rules);
        if resuming {
            assert_eq!(candidates.after_break(0b11, 0, 0, 0, &RetryBudget::default()), Ok(()));
        }
        assert_eq!(candidates.skip(0, &ApiError::new(kind, "")), skipped, "{kind:?}, {resuming}");
        assert_eq!(candidates.targets_tried(), 0, "no attempt was made");
        let all = target_handles(&[(1, 0), (1, 1)]);
        let (index, _permit) = candidates.pick(&all[..], Policy::Weight).unwrap();
        assert_eq!(index, usize::from(skipped), "{kind:?}, {resuming}");
    }
}

#[test]
fn candidates_give_the_client_the_most_useful_error() {
    let limited = ErrorKind::UpstreamRateLimit;
    for (kinds, expected) in [
        (&[limited, ErrorKind::UpstreamUnreachable][..], 0),
        (&[ErrorKind::UpstreamUnreachable, limited], 1),
        (&[ErrorKind::UpstreamBroken, limited, ErrorKind::UpstreamRejected], 2),
        (&[ErrorKind::UpstreamTimeout, limited, ErrorKind::UpstreamUnreachable], 1),
        // Of equally useful ones the first.
        (&[ErrorKind::UpstreamFailed, limited], 0),
        (&[limited, ErrorKind::UpstreamFailed], 0),
    ] {
        let (mut candidates, budget) = (candidates(0b1111, &[0], rules(AMPLE)), RetryBudget::default());
        let failure = |index: usize| FailedAttempt {
            body: Some(format!("{index}").into()),
            detail: Some(format!("{index}").into()),
            ..failed(kinds[index])
        };
        for index in 0..kinds.len() - 1 {
            let next = candidates.after_failure(RetryDecision::Yes, failure(index), 0, 0, &budget);
            assert_eq!(next, Next::Retry, "{kinds:?}");
        }
        let last = failure(kinds.len() - 1);
        let next = candidates.after_failure(RetryDecision::Yes, last, 60 * SECOND, 0, &budget);
        assert_eq!(next, Next::Refused(RetryRefusal::Deadline, failure(expected)), "{kinds:?}");
    }
}

#[test]
fn candidates_without_a_failed_attempt_return_why_none_was_selected() {
    let (mut candidates, budget) = (candidates(0b11, &[0], rules(AMPLE)), RetryBudget::default());
    let unselected = failed(ErrorKind::Overloaded);
    assert_eq!(candidates.take_failure(unselected.error.clone()), unselected);
    let first = failed(ErrorKind::UpstreamBroken);
    assert_eq!(candidates.after_failure(RetryDecision::Yes, first.clone(), 0, 0, &budget), Next::Retry);
    assert_eq!(candidates.take_failure(unselected.error), first);
}

/// Failures of a simulated request: error and status of the provider.
const FAILURES: [(ErrorKind, Option<u16>); 8] = [
    (ErrorKind::UpstreamUnreachable, None),
    (ErrorKind::UpstreamTimeout, None),
    (ErrorKind::UpstreamBroken, Some(200)),
    (ErrorKind::UpstreamFailed, Some(500)),
    (ErrorKind::UpstreamRateLimit, Some(429)),
    (ErrorKind::UpstreamAuth, Some(401)),
    (ErrorKind::UpstreamRejected, Some(400)),
    (ErrorKind::Unsupported, None),
];

proptest! {
    /// A whole request in virtual time, each of whose attempts fails: no target is tried twice, the attempts, the
    /// deadline and the budget hold, a retry and only a retry is paid for, and the best error wins.
    #[test]
    fn candidates_limits_hold_for_every_request(
        targets in 1..8usize,
        attempts in 1..6u8,
        reserve in 0..6u32,
        deadline in 0..40u64,
        flags: (bool, bool),
        breaks_after in 0..10usize,
        seed: u64,
    ) {
        let rules = RetryRules {
            attempts,
            deadline: Duration::from_secs(deadline),
            context_length: flags.0,
            unsupported: flags.1,
            ..rules(reserve)
        };
        let (mut dice, budget) = (Dice(seed), RetryBudget::default());
        let all = target_handles(&vec![(1, 0); targets]);
        let eligible = mask(&all[..], |_| true);
        let request = PickRequest { eligible, random_point: dice.roll(), ..PickRequest::default() };
        let mut candidates = Candidates::new(request, rules);
        let (mut now, mut since) = (0, 0);
        let (mut seen, mut sent, mut retries) = (0u64, 0u32, 0u32);
        let mut able = eligible;
        let mut failures: Vec<FailedAttempt> = Vec::new();
        loop {
            let Ok((index, _permit)) = candidates.pick(&all[..], Policy::ALL[(seed % 4) as usize]) else {
                break;
            };
            prop_assert_eq!(seen & 1 << index, 0, "a target twice");
            prop_assert!(eligible & able & 1 << index != 0);
            seen |= 1 << index;
            // Every fifth target or so cannot encode the request.
            if dice.roll() % 5 == 0 {
                let kind = [ErrorKind::Unsupported, ErrorKind::UnknownResponse][(dice.roll() % 2) as usize];
                if candidates.skip(index, &ApiError::new(kind, "")) {
                    continue;
                }
                break;
            }
            candidates.mark_tried(index);
            sent += 1;
            prop_assert_eq!(u32::from(candidates.targets_tried()), sent);
            prop_assert!(sent <= u32::from(attempts).max(1), "too many attempts");
            prop_assert!(retries <= reserve, "more retries than the budget has");
            now += (dice.roll() % 10) as Nanos * SECOND;
            let retried = if retries as usize >= breaks_after {
                since = now - (dice.roll() % 3) as Nanos * SECOND;
                able &= dice.roll() | dice.roll();
                candidates.after_break(able, since, now, dice.roll(), &budget).is_ok()
            } else {
                let (kind, status) = FAILURES[(dice.roll() % 8) as usize];
                let error = ApiError::new(kind, format!("{sent}"));
                let next = classify(&error, status).next;
                let failure = FailedAttempt { error, body: None, detail: Some(format!("{now}").into()) };
                match candidates.after_failure(next, failure.clone(), now, dice.roll(), &budget) {
                    Next::Retry => {
                        failures.push(failure);
                        true
                    }
                    Next::Stop(own) => {
                        prop_assert!(next != RetryDecision::Yes);
                        prop_assert_eq!(own, failure);
                        false
                    }
                    Next::Refused(_, best) => {
                        failures.push(failure);
                        let most = failures.iter().map(|failure| error_rank(&failure.error)).max();
                        let first = failures.iter().find(|failure| Some(error_rank(&failure.error)) == most);
                        prop_assert_eq!(Some(&best), first);
                        false
                    }
                }
            };
            if !retried {
                break;
            }
            retries += 1;
            prop_assert!(now - since < deadline as Nanos * SECOND, "a retry after the deadline");
            prop_assert!(eligible & able & !seen != 0, "a retry without a target");
        }
        prop_assert_eq!(remaining(&budget, &rules), reserve - retries, "the budget pays for retries only");
    }
}
