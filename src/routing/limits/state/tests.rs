//! What a request takes of the limits of one key or account, and what it returns.

use super::*;

fn limit_request(tokens: u64, cost: i64) -> LimitRequest {
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
fn limit_concurrency_is_released_on_drop_settle_and_undo() {
    let state = Arc::new(LimitState::new());
    let only = UsageLimits { concurrent: Some(2), ..UsageLimits::default() };
    let first = state.admit_local(&only, &limit_request(0, 0)).unwrap();
    let second = state.admit_local(&only, &limit_request(0, 0)).unwrap();
    assert_eq!(state.admit_local(&only, &limit_request(0, 0)).unwrap_err().which, Which::Concurrent);
    drop(first);
    let third = state.admit_local(&only, &limit_request(0, 0)).unwrap();
    second.settle(0, 0, 0);
    third.undo();
    assert!(state.is_idle(0, &Calendar::at(0)));
}

#[test]
fn limit_refusal_consumes_nothing() {
    let state = Arc::new(LimitState::new());
    let refused = state.admit_local(&limits(), &limit_request(1_001, 0)).unwrap_err();
    assert_eq!((refused.which, refused.wait), (Which::Tokens, None));
    let refused = state.admit_local(&limits(), &limit_request(0, 501)).unwrap_err();
    assert_eq!((refused.which, refused.limit), (Which::SpendPerDay, 500));
    assert!(state.is_idle(0, &Calendar::at(1_790_000_000)));
}

#[test]
fn limit_smaller_than_a_request_is_told_from_a_used_one() {
    let state = Arc::new(LimitState::new());
    for (tokens, cost, which, limit) in [
        (1_001, 0, Which::Tokens, 1_000),
        (0, 501, Which::SpendPerDay, 500),
        (0, 801, Which::SpendPerMonth, 800),
        (0, i64::MAX, Which::SpendPerMonth, 800),
    ] {
        let Err(Denied::LimitReached(refused)) = state.admit(&limits(), &limit_request(tokens, cost)) else {
            panic!("admitted");
        };
        assert_eq!(refused, Exceeded { which, limit, wait: None });
        assert_eq!(state.oversized(), (tokens, cost));
        // Of a shared limit the coordinator's denial becomes this one.
        let denied = Exceeded { wait: Some(Duration::from_secs(1)), ..refused };
        let shared = LimitState::shared();
        assert_eq!(shared.exceeded(denied, &limits(), &limit_request(tokens, cost)), refused);
    }
    let state = Arc::new(LimitState::new());
    assert!(state.admit(&limits(), &limit_request(0, 501)).is_err());
    // Fits into the limit, of which the rest is used: after a wait it is admitted.
    let held = state.admit(&limits(), &limit_request(0, 500)).unwrap();
    assert_eq!(state.oversized(), (0, 0), "one was admitted since");
    let Err(Denied::LimitReached(refused)) = state.admit(&limits(), &limit_request(0, 1)) else {
        panic!("admitted");
    };
    assert!(refused.wait.is_some());
    drop(held);
}

#[test]
fn limit_estimate_is_corrected_by_reported_usage() {
    let state = Arc::new(LimitState::new());
    let grant = state.admit_local(&limits(), &limit_request(1_000, 400)).unwrap();
    let (requests, tokens) = state.remaining(&limits(), 0);
    assert_eq!((requests.unwrap().remaining, tokens.unwrap().remaining), (9, 0));
    assert_eq!(state.admit_local(&limits(), &limit_request(1, 0)).unwrap_err().which, Which::Tokens);
    grant.settle(0, 100, 50);
    let grant = state.admit_local(&limits(), &limit_request(900, 450)).unwrap();
    assert_eq!(state.admit_local(&limits(), &limit_request(0, 1)).unwrap_err().which, Which::SpendPerDay);
    grant.settle(0, 1_900, 500);
    // 2,000 of 1,000 tokens are used: it takes a minute until the first one is available again.
    let refused = state.admit_local(&limits(), &limit_request(1, 0)).unwrap_err();
    assert_eq!(refused.wait, Some(Duration::from_millis(60_060)));
    // Above the day's limit by what the request cost beyond its estimate.
    let free = UsageLimits { tokens_per_minute: None, ..limits() };
    assert_eq!(state.admit_local(&free, &limit_request(0, 0)).unwrap_err().which, Which::SpendPerDay);
    // The next day, only the month's limit is reached.
    let tomorrow = LimitRequest { calendar: Calendar::at(1_790_000_000 + 86_400), ..limit_request(0, 251) };
    assert_eq!(state.admit_local(&free, &tomorrow).unwrap_err().which, Which::SpendPerMonth);
    state.admit_local(&free, &LimitRequest { cost: 250, ..tomorrow }).unwrap();
}

#[test]
fn limit_spend_before_the_start_is_counted_once() {
    let state = Arc::new(LimitState::new());
    let calendar = limit_request(0, 0).calendar;
    assert!(state.needs_spend());
    state.load_spend(&calendar, 450, 450);
    state.load_spend(&calendar, 450, 450);
    assert!(!state.needs_spend());
    assert!(state.admit_local(&limits(), &limit_request(0, 50)).is_ok());
    assert!(state.admit_local(&limits(), &limit_request(0, 51)).is_err());
}
