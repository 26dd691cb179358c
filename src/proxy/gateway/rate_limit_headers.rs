//! Rate-limit headers: what is left of the limits and budgets of a key, in the names that the client's programs read.
//!
//! The providers' own headers of this kind are never forwarded: they describe the gateway's account. The names of budgets
//! were observed with Codex CLI 0.169 and Claude Code 2.1.330.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::billing::RateLimitStatus;
use super::context::Context;
use codec::canonical::time::rfc3339;
use codec::error::ErrorKind;
use codec::wire::Format;
use driver::names;

/// Rate-limit headers of a response.
type RateLimitHeaders = SmallVec<[(HeaderName, HeaderValue); 12]>;

impl Context {
    /// Returns the rate-limit headers in the names of the client's format: OpenAI's for chat and responses, Anthropic's
    /// for messages. Google and AWS have none.
    pub(crate) fn rate_limit_headers(&self) -> RateLimitHeaders {
        let mut shown = RateLimitHeaders::new();
        let remaining = self.phase.identity().and_then(|identity| identity.remaining.as_deref());
        let Some(lefts) = remaining else { return shown };
        let (format, now) = (self.error_format(), self.now());
        let (requests, tokens) = match format {
            Format::Chat | Format::Responses => (
                [
                    names::X_RATELIMIT_LIMIT_REQUESTS,
                    names::X_RATELIMIT_REMAINING_REQUESTS,
                    names::X_RATELIMIT_RESET_REQUESTS,
                ],
                [
                    names::X_RATELIMIT_LIMIT_TOKENS,
                    names::X_RATELIMIT_REMAINING_TOKENS,
                    names::X_RATELIMIT_RESET_TOKENS,
                ],
            ),
            Format::Messages => (
                [
                    names::ANTHROPIC_RATELIMIT_REQUESTS_LIMIT,
                    names::ANTHROPIC_RATELIMIT_REQUESTS_REMAINING,
                    names::ANTHROPIC_RATELIMIT_REQUESTS_RESET,
                ],
                [
                    names::ANTHROPIC_RATELIMIT_TOKENS_LIMIT,
                    names::ANTHROPIC_RATELIMIT_TOKENS_REMAINING,
                    names::ANTHROPIC_RATELIMIT_TOKENS_RESET,
                ],
            ),
            Format::Generate | Format::Converse => return shown,
        };
        for (left, [limit, remaining, reset]) in [(lefts.requests, requests), (lefts.tokens, tokens)] {
            let Some(left) = left else { continue };
            shown.push((limit, HeaderValue::from(left.limit)));
            shown.push((remaining, HeaderValue::from(left.remaining)));
            let text = match format {
                Format::Messages => {
                    let seconds = i64::try_from(left.reset.as_millis().div_ceil(1_000)).unwrap_or(0);
                    rfc3339(now.saturating_add(seconds))
                }
                _ => span(left.reset),
            };
            shown.extend(HeaderValue::try_from(text).ok().map(|value| (reset, value)));
        }
        match format {
            Format::Responses => push_codex_windows(lefts, &mut shown),
            Format::Messages => {
                let is_rejected = self.record.error == Some(ErrorKind::SpendLimit);
                push_unified(lefts, is_rejected, &mut shown);
            }
            Format::Chat | Format::Generate | Format::Converse => {}
        }
        shown
    }
}

/// Adds the budgets in the names that Codex shows in its status: the shortest window is the primary one, the longest the
/// secondary one.
fn push_codex_windows(status: &RateLimitStatus, shown: &mut RateLimitHeaders) {
    let budgets = [status.day, status.month].into_iter().flatten();
    for (budget, [used, minutes, reset]) in budgets.zip([
        [
            names::X_CODEX_PRIMARY_USED_PERCENT,
            names::X_CODEX_PRIMARY_WINDOW_MINUTES,
            names::X_CODEX_PRIMARY_RESET_AT,
        ],
        [
            names::X_CODEX_SECONDARY_USED_PERCENT,
            names::X_CODEX_SECONDARY_WINDOW_MINUTES,
            names::X_CODEX_SECONDARY_RESET_AT,
        ],
    ]) {
        let percent = format!("{}.{}", budget.used / 10, budget.used % 10);
        shown.extend(HeaderValue::try_from(percent).ok().map(|value| (used, value)));
        shown.push((minutes, HeaderValue::from(budget.minutes)));
        shown.push((reset, HeaderValue::from(budget.resets_at)));
    }
}

/// Used parts of a budget from which Claude Code warns its user, in thousandths, with the value that it expects.
const WARNINGS: [(u32, &str); 2] = [(950, "0.95"), (750, "0.75")];

/// Adds the budget that is used most, in the names that Claude Code reads. An exhausted one has no claim: the client would
/// then show its own sentence instead of the error's.
fn push_unified(status: &RateLimitStatus, is_rejected: bool, shown: &mut RateLimitHeaders) {
    let daily = status.day.map(|budget| (budget, "daily"));
    let monthly = status.month.map(|budget| (budget, "monthly"));
    let most = [daily, monthly].into_iter().flatten().max_by_key(|(budget, _)| budget.used);
    let Some((budget, period)) = most else { return };
    let mut push = |name, value: &'static str| shown.push((name, HeaderValue::from_static(value)));
    let warning = WARNINGS.into_iter().find(|(from, _)| budget.used >= *from);
    match warning {
        _ if is_rejected => {
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_STATUS, "rejected");
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_UTILIZATION, "1");
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_PERIOD, period);
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_DISABLED_REASON, "org_spend_cap_reached");
        }
        Some((_, threshold)) => {
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_STATUS, "allowed_warning");
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_CLAIM, "overage");
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_STATUS, "allowed_warning");
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_THRESHOLD, threshold);
            push(names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_PERIOD, period);
            let utilization = format!("{}.{:03}", budget.used / 1_000, budget.used % 1_000);
            let utilization = HeaderValue::try_from(utilization).ok();
            let name = names::ANTHROPIC_RATELIMIT_UNIFIED_OVERAGE_UTILIZATION;
            shown.extend(utilization.map(|value| (name, value)));
        }
        None => push(names::ANTHROPIC_RATELIMIT_UNIFIED_STATUS, "allowed"),
    }
    shown.push((names::ANTHROPIC_RATELIMIT_UNIFIED_RESET, HeaderValue::from(budget.resets_at)));
}

/// A time span as OpenAI writes it: `20ms`, `1s`, `6m0s`.
fn span(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let seconds = match (rest / 1_000, rest % 1_000) {
        (seconds, 0) => format!("{seconds}s"),
        (0, millis) if minutes == 0 => return format!("{millis}ms"),
        (seconds, millis) => format!("{seconds}.{millis:03}").trim_end_matches('0').to_owned() + "s",
    };
    if minutes == 0 { seconds } else { format!("{minutes}m{seconds}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::billing::BudgetStatus;

    #[test]
    fn rate_limit_reset_is_formatted_as_clients_expect() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_250, "1.25s"),
            (59_999, "59.999s"),
            (60_000, "1m0s"),
            (360_500, "6m0.5s"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_nanos(1)), "1ms");
    }

    fn shown(write: impl FnOnce(&mut RateLimitHeaders)) -> Vec<String> {
        let mut headers = RateLimitHeaders::new();
        write(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    fn status(day: Option<u32>, month: Option<u32>) -> RateLimitStatus {
        let budget = |used: u32, minutes, resets_at| BudgetStatus { used, minutes, resets_at };
        RateLimitStatus {
            day: day.map(|used| budget(used, 1_440, 100)),
            month: month.map(|used| budget(used, 43_200, 900)),
            ..RateLimitStatus::default()
        }
    }

    #[test]
    fn budgets_are_the_windows_of_codex_shortest_first() {
        let of = |status: RateLimitStatus| shown(|headers| push_codex_windows(&status, headers));
        assert_eq!(
            of(status(Some(123), Some(1_000))),
            [
                "x-codex-primary-used-percent: 12.3",
                "x-codex-primary-window-minutes: 1440",
                "x-codex-primary-reset-at: 100",
                "x-codex-secondary-used-percent: 100.0",
                "x-codex-secondary-window-minutes: 43200",
                "x-codex-secondary-reset-at: 900",
            ]
        );
        assert_eq!(
            of(status(None, Some(5)))[..2],
            ["x-codex-primary-used-percent: 0.5", "x-codex-primary-window-minutes: 43200"]
        );
        assert!(of(status(None, None)).is_empty());
    }

    #[test]
    fn budget_used_most_is_shown_to_claude_code() {
        let of =
            |status: RateLimitStatus, rejected| shown(|headers| push_unified(&status, rejected, headers));
        let unified = |lines: &[&str]| {
            lines.iter().map(|line| format!("anthropic-ratelimit-unified-{line}")).collect::<Vec<_>>()
        };
        assert_eq!(of(status(Some(740), Some(10)), false), unified(&["status: allowed", "reset: 100"]));
        assert_eq!(
            of(status(Some(10), Some(820)), false),
            unified(&[
                "status: allowed_warning",
                "representative-claim: overage",
                "overage-status: allowed_warning",
                "overage-surpassed-threshold: 0.75",
                "overage-period: monthly",
                "overage-utilization: 0.820",
                "reset: 900",
            ])
        );
        assert!(
            of(status(Some(960), None), false).contains(&unified(&["overage-surpassed-threshold: 0.95"])[0])
        );
        assert_eq!(
            of(status(Some(990), None), true),
            unified(&[
                "status: rejected",
                "overage-utilization: 1",
                "overage-period: daily",
                "overage-disabled-reason: org_spend_cap_reached",
                "reset: 100",
            ])
        );
        assert!(of(status(None, None), true).is_empty());
    }
}
