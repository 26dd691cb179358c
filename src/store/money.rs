//! Money as people write it: a decimal number of units, exact to the nano-unit.

use std::fmt;

/// Nano-units of a unit.
const NANO: i64 = 1_000_000_000;
/// Digits after the point.
const DIGITS: usize = 9;

/// An amount in nano-units, shown in units, with two digits after the point or as many as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money(pub i64);

/// Most that one credit may be, in nano-units, and that a balance may come to: half of what the number holds, so that
/// what is held and charged meanwhile never overflows it.
pub const LARGEST: i64 = i64::MAX / 2;

impl Money {
    /// Reads a decimal number of units: `12`, `12.5`, `-0.000000001`. Nothing, if it is none, or has more than nine
    /// digits after the point.
    pub fn parse(text: &str) -> Option<Money> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (units, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let all = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !all(units) || !all(fraction) || fraction.len() > DIGITS {
            return None;
        }
        let fraction = format!("{fraction:0<DIGITS$}").parse::<i64>().ok()?;
        let value = units.parse::<i64>().ok()?.checked_mul(NANO)?.checked_add(fraction)?;
        Some(Money(if negative { -value } else { value }))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0.unsigned_abs();
        let nano = NANO.unsigned_abs();
        let fraction = format!("{:09}", value % nano);
        let shown = fraction.trim_end_matches('0').len().max(2);
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = format!("{sign}{}.{}", value / nano, fraction.get(..shown).unwrap_or_default());
        f.pad_integral(true, "", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_shown_to_the_last_digit() {
        for (text, nano, shown) in [
            ("12", 12_000_000_000, "12.00"),
            ("12.5", 12_500_000_000, "12.50"),
            ("+0.123456789", 123_456_789, "0.123456789"),
            ("-0.000000001", -1, "-0.000000001"),
            ("0", 0, "0.00"),
            ("9223372036.854775807", i64::MAX, "9223372036.854775807"),
        ] {
            assert_eq!(Money::parse(text), Some(Money(nano)), "{text}");
            assert_eq!(Money(nano).to_string(), shown);
        }
        assert_eq!(Money(i64::MIN).to_string(), "-9223372036.854775808");
        assert_eq!(format!("{:>8}", Money(1_500_000_000)), "    1.50");
        let wrong = ["", ".", "1.", ".5", "1e3", "1,5", "--1", "1.0000000001", "9223372036.854775808", "٣"];
        assert!(wrong.iter().all(|text| Money::parse(text).is_none()));
    }
}
