//! `[breaker]` and `retry` of routes.toml.

use std::time::Duration;

use super::node::ConfigTable;
use super::routes::one_of;
use routing::route::Nanos;
use routing::route::RetryRules;
use routing::route::breaker::BreakerRules;
use routing::route::retry_budget::RetryShare;

/// Largest value of `retry.attempts`.
const MAX_ATTEMPTS: i64 = 16;
/// Values of `retry.also`.
pub(super) const ALSO: [&str; 2] = ["context_length", "unsupported"];

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Reads `[breaker]`.
pub(super) fn read_breaker(root: &ConfigTable<'_>) -> BreakerRules {
    let read = |table: &ConfigTable<'_>| {
        let default = BreakerRules::default();
        let count = |key, most, default: u32| {
            table.integer(key, &(1..=most)).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
        };
        let span = |key, default: Nanos| table.duration(key).map_or(default, nanos);
        let rules = BreakerRules {
            failures: count("failures", 1_000_000, default.failures),
            percent: count("percent", 100, default.percent),
            requests: count("requests", 1_000_000, default.requests),
            within: span("within", default.within),
            cooldown: span("cooldown", default.cooldown),
            longest: span("longest", default.longest),
        };
        if rules.longest < rules.cooldown {
            table.wrong("longest is shorter than cooldown", "longest is the maximum of cooldown".to_owned());
        }
        if rules.cooldown == 0 {
            table.wrong("cooldown must be greater than 0", "for example: cooldown = \"5s\"".to_owned());
        }
        rules
    };
    root.table("breaker", read).unwrap_or_default()
}

/// Reads `[retry]`, or the `retry` table of a model; missing keys have the values of `usual`.
pub(super) fn read_retry(table: &ConfigTable<'_>, usual: RetryRules) -> RetryRules {
    let count = |key, range, usual: u32| {
        table.integer(key, &range).and_then(|n| u32::try_from(n).ok()).unwrap_or(usual)
    };
    let attempts = count("attempts", 1..=MAX_ATTEMPTS, u32::from(usual.attempts));
    let mut retry = RetryRules {
        attempts: u8::try_from(attempts).unwrap_or(usual.attempts),
        deadline: table.duration("deadline").unwrap_or(usual.deadline),
        hold: table.duration("hold").unwrap_or(usual.hold),
        share: RetryShare {
            percent: count("percent", 0..=100, usual.share.percent),
            reserve: count("reserve", 0..=1_000_000, usual.share.reserve),
        },
        resume: table.boolean("continue").unwrap_or(usual.resume),
        ..usual
    };
    if let Some(list) = table.get("also") {
        (retry.context_length, retry.unsupported) = (false, false);
        list.elements(|element| {
            element.parsed(|text| {
                match text {
                    "context_length" => retry.context_length = true,
                    "unsupported" => retry.unsupported = true,
                    other => return Err(one_of(other, &ALSO)),
                }
                Ok(())
            });
        });
    }
    retry
}
