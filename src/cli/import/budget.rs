//! Budgets of other gateways, which have periods of any length: limits of a day and of a month here.
//!
//! A budget never becomes stricter than it was at the source. Where the source's period is no day and no month of the
//! calendar, the note of the result says what differs.

// Money: arithmetic that overflows must not wrap.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::draft::LimitDraft;
use routing::account::amount::{self, Amount, LARGEST};

/// Seconds of a day.
const DAY: u64 = 86_400;
/// Days of the longest month.
const MONTH_DAYS: u64 = 31;
/// Credit of an account whose source has no balance, so that the balance does not limit it.
pub(super) const AMPLE_CREDIT: &str = "1000000000";

/// Period after which a budget of the source begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetPeriod {
    /// So many seconds.
    Seconds(u64),
    /// So many months of the calendar.
    Months(u64),
}

impl BudgetPeriod {
    /// Parses a number and a unit: `30s`, `5m`, `1h`, `1d`, `1w`, `1mo` or `1M`, `1y` or `1Y`. `None` if it is no such
    /// text, or the number is 0.
    pub(super) fn parse(text: &str) -> Option<BudgetPeriod> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let number = number.parse::<u64>().ok().filter(|number| *number > 0)?;
        let seconds = |unit: u64| number.checked_mul(unit).map(BudgetPeriod::Seconds);
        match unit {
            "s" => seconds(1),
            "m" => seconds(60),
            "h" => seconds(3_600),
            "d" => seconds(DAY),
            "w" => seconds(DAY.checked_mul(7)?),
            "mo" | "M" => Some(BudgetPeriod::Months(number)),
            "y" | "Y" => number.checked_mul(12).map(BudgetPeriod::Months),
            _ => None,
        }
    }
}

/// Limits of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetLimits {
    /// Decimal for each day.
    pub(super) day: Option<String>,
    /// Decimal for each month.
    pub(super) month: Option<String>,
    /// What differs from the source; empty if the period is a day or a month.
    pub(super) note: &'static str,
}

impl BudgetLimits {
    /// Returns the limits of a budget of `amount`, a decimal of the ledger. `None` if it is no such decimal.
    pub(super) fn new(amount: &str, period: BudgetPeriod) -> Option<BudgetLimits> {
        let nanos = amount::parse(amount).ok()?;
        let whole = || Some(Amount(nanos).to_string());
        let month_seconds = MONTH_DAYS.checked_mul(DAY)?;
        let limits = |day, month, note| Some(BudgetLimits { day, month, note });
        match period {
            BudgetPeriod::Seconds(DAY) => limits(whole(), None, ""),
            BudgetPeriod::Months(1) => limits(None, whole(), ""),
            BudgetPeriod::Seconds(seconds) if seconds.div_ceil(DAY) == 30 || seconds == month_seconds => {
                limits(None, whole(), "")
            }
            BudgetPeriod::Seconds(seconds) if seconds < DAY => limits(
                scaled(nanos, DAY, seconds),
                None,
                "shorter than a day: the limit of a day is that of all such periods in it",
            ),
            BudgetPeriod::Seconds(seconds) if seconds < month_seconds => limits(
                // A day that is not a part of one period only can have the end of one and the beginning of the next.
                scaled(nanos, if seconds.is_multiple_of(DAY) { 1 } else { 2 }, 1),
                scaled(nanos, month_seconds, seconds),
                "shorter than a month: a day has at most the amount, and a month of 31 days that of all such periods in it",
            ),
            BudgetPeriod::Seconds(_) | BudgetPeriod::Months(_) => {
                limits(None, whole(), "longer than a month: each month has at most the amount")
            }
        }
    }

    /// Sets the limits, where they are stricter than those that are set.
    pub(super) fn apply(&self, limits: &mut LimitDraft) {
        limits.spend_per_day = least(&limits.spend_per_day, &self.day);
        limits.spend_per_month = least(&limits.spend_per_month, &self.month);
    }
}

/// Multiplies by a fraction, rounded up so that no limit becomes stricter, at most what the ledger counts. `None` for a
/// fraction of nothing.
fn scaled(nanos: i64, times: u64, parts: u64) -> Option<String> {
    let product = i128::from(nanos).checked_mul(i128::from(times))?;
    let parts = i128::from(parts);
    let nanos = product.checked_add(parts.checked_sub(1)?)?.checked_div(parts)?;
    Some(Amount(i64::try_from(nanos).unwrap_or(LARGEST).min(LARGEST)).to_string())
}

/// Returns the smaller one of two decimals. `None` if there is none.
pub(super) fn least(one: &Option<String>, other: &Option<String>) -> Option<String> {
    let amounts = one.iter().chain(other);
    amounts.min_by_key(|amount| amount::parse(amount).unwrap_or(i64::MAX)).cloned()
}

/// Returns the stricter one of each limit.
pub(super) fn tighter(one: &LimitDraft, other: &LimitDraft) -> LimitDraft {
    let least_of = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    LimitDraft {
        requests_per_minute: least_of(one.requests_per_minute, other.requests_per_minute),
        tokens_per_minute: least_of(one.tokens_per_minute, other.tokens_per_minute),
        concurrent: least_of(one.concurrent, other.concurrent),
        spend_per_day: least(&one.spend_per_day, &other.spend_per_day),
        spend_per_month: least(&one.spend_per_month, &other.spend_per_month),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_never_stricter_than_at_the_source() {
        for (period, day, month) in [
            ("1d", Some("10"), None),
            ("24h", Some("10"), None),
            ("30d", None, Some("10")),
            ("31d", None, Some("10")),
            ("1mo", None, Some("10")),
            ("1M", None, Some("10")),
            ("1h", Some("240"), None),
            ("7h", Some("34.285714286"), None),
            ("7d", Some("10"), Some("44.285714286")),
            ("1w", Some("10"), Some("44.285714286")),
            ("36h", Some("20"), Some("206.666666667")),
            ("90d", None, Some("10")),
            ("1Y", None, Some("10")),
        ] {
            let limits = BudgetLimits::new("10", BudgetPeriod::parse(period).unwrap()).unwrap();
            assert_eq!((limits.day.as_deref(), limits.month.as_deref()), (day, month), "{period}");
            let exact = ["1d", "24h", "30d", "31d", "1mo", "1M"].contains(&period);
            assert_eq!(limits.note.is_empty(), exact, "{period}");
        }
        for text in ["", "d", "0d", "5", "1q", "-1d", "99999999999999999999d", "18446744073709551615w"] {
            assert_eq!(BudgetPeriod::parse(text), None, "{text}");
        }
        let largest = BudgetLimits::new("4000000000", BudgetPeriod::Seconds(1)).unwrap();
        assert_eq!(largest.day, Some(Amount(LARGEST).to_string()));
    }
}
