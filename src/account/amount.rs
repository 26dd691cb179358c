//! Money as integers: nano-units of one currency, read from decimals and shown as decimals, never as binary fractions.

use std::fmt;

/// Nano-units in one unit of the currency.
pub const NANOS: i64 = 1_000_000_000;
/// Digits behind the point of a nano-unit.
const DIGITS: i32 = 9;

/// Why a text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// It is no decimal number.
    #[error("a decimal number such as 2.5 is possible")]
    Form,
    /// It is below zero.
    #[error("0 or more is possible")]
    Negative,
    /// It has more digits behind the point than are kept.
    #[error("at most 9 digits behind the point are kept")]
    TooFine,
    /// It is too large.
    #[error("9000000000 is the most that is possible")]
    TooLarge,
}

/// Reads a decimal, with or without a fraction or an exponent, as nano-units. Exact: what would have to be rounded is
/// refused.
///
/// # Errors
/// See [`AmountError`].
pub fn parse(text: &str) -> Result<i64, AmountError> {
    let text = text.trim();
    let (text, negative) = match text.as_bytes().first() {
        Some(b'-') => (text.get(1..).unwrap_or_default(), true),
        Some(b'+') => (text.get(1..).unwrap_or_default(), false),
        _ => (text, false),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| AmountError::Form)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes()).filter(|byte| *byte != b'_');
    if digits().next().is_none() || !digits().all(|byte| byte.is_ascii_digit()) {
        return Err(AmountError::Form);
    }
    let behind = fraction.bytes().filter(|byte| *byte != b'_').count();
    // How many places the digits move to be nano-units.
    let places = i32::try_from(behind)
        .ok()
        .and_then(|behind| exponent.checked_sub(behind)?.checked_add(DIGITS))
        .ok_or(AmountError::Form)?;
    let dropped = usize::try_from(-places).unwrap_or(0);
    let total = digits().count();
    let mut value: i64 = 0;
    for (at, digit) in digits().enumerate() {
        if at + dropped >= total {
            if digit != b'0' {
                return Err(AmountError::TooFine);
            }
            continue;
        }
        value = shifted(value, digit - b'0')?;
    }
    for _ in 0..places.max(0) {
        if value == 0 {
            break;
        }
        value = shifted(value, 0)?;
    }
    if negative && value != 0 { Err(AmountError::Negative) } else { Ok(value) }
}

fn shifted(value: i64, digit: u8) -> Result<i64, AmountError> {
    let next = value.checked_mul(10).and_then(|value| value.checked_add(i64::from(digit)));
    next.filter(|value| *value <= 9_000_000_000 * NANOS).ok_or(AmountError::TooLarge)
}

/// Most that one credit may be, in nano-units, and that a balance may come to: half of what the number holds, so that
/// what is held and charged meanwhile never overflows it.
pub const LARGEST: i64 = i64::MAX / 2;

/// Nano-units, shown as a decimal without zeros at its end: `2.5`, `-0.000001`, `10`. With a precision (`{:.2}`), at
/// least so many digits stand behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub i64);

impl Amount {
    /// Reads a decimal that may be below zero. Nothing, if it is none, has more digits behind the point than are kept,
    /// or is too large.
    pub fn parse(text: &str) -> Option<Amount> {
        match text.strip_prefix('-') {
            Some(digits) if digits.starts_with(['-', '+']) => None,
            Some(digits) => parse(digits).ok().map(|nanos| Amount(-nanos)),
            None => parse(text).ok().map(Amount),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        let unit = NANOS.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write!(f, "{}", nanos / unit)?;
        let mut fraction = nanos % unit;
        let mut width = DIGITS.unsigned_abs() as usize;
        let least = f.precision().unwrap_or(0).min(width);
        while width > least && fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        if width == 0 { Ok(()) } else { write!(f, ".{fraction:0width$}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_read_exactly() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("0.0", 0),
            ("2.5", 2_500_000_000),
            ("2.50", 2_500_000_000),
            ("+10", 10_000_000_000),
            ("1_000.5", 1_000_500_000_000),
            ("0.000000001", 1),
            ("1e-9", 1),
            ("10.000000000000e-10", 1),
            ("1.5E3", 1_500_000_000_000),
            ("0e999", 0),
            (".5", 500_000_000),
            ("9000000000", 9_000_000_000 * NANOS),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
        for (text, error) in [
            ("", AmountError::Form),
            ("x", AmountError::Form),
            ("1.2.3", AmountError::Form),
            ("nan", AmountError::Form),
            ("inf", AmountError::Form),
            ("1e", AmountError::Form),
            ("0x10", AmountError::Form),
            ("-1", AmountError::Negative),
            ("0.0000000001", AmountError::TooFine),
            ("1e-10", AmountError::TooFine),
            ("9000000001", AmountError::TooLarge),
            ("1e99", AmountError::TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn amounts_are_shown_as_short_as_they_can_be() {
        for (nanos, text) in [
            (0, "0"),
            (2_500_000_000, "2.5"),
            (10_000_000_000, "10"),
            (1, "0.000000001"),
            (-1_000, "-0.000001"),
            (i64::MIN, "-9223372036.854775808"),
        ] {
            assert_eq!(Amount(nanos).to_string(), text);
        }
        for (nanos, text) in [
            (0, "0.00"),
            (2_500_000_000, "2.50"),
            (1, "0.000000001"),
            (-120_000_000, "-0.12"),
            (i64::MAX, "9223372036.854775807"),
        ] {
            assert_eq!(format!("{:.2}", Amount(nanos)), text);
        }
    }

    #[test]
    fn amounts_below_zero_are_read_where_they_may_be() {
        for (text, nanos) in [
            ("-0.000000001", Some(-1)),
            ("-12.5", Some(-12_500_000_000)),
            ("+3", Some(3 * NANOS)),
            ("0", Some(0)),
        ] {
            assert_eq!(Amount::parse(text).map(|amount| amount.0), nanos, "{text}");
        }
        let wrong =
            ["", ".", "-", "--1", "-+1", "1,5", "1.0000000001", "9000000001", "-9000000001", "\u{0663}"];
        assert!(wrong.iter().all(|text| Amount::parse(text).is_none()));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(nanos in 0i64..=9_000_000_000 * NANOS) {
            prop_assert_eq!(parse(&Amount(nanos).to_string()), Ok(nanos));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9._eE]{0,24}") {
            let _ = parse(&text);
        }
    }
}
