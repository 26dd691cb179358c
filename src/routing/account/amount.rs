//! Amounts of money in integers: nano-units of one currency, parsed from and formatted as decimals, never as binary
//! fractions.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

/// Nano-units in one unit of the currency.
pub const NANOS: i64 = 1_000_000_000;
/// Largest amount, credit and balance, in nano-units: half of the integer range, so that balances plus reservations and
/// charges in flight cannot overflow.
pub const LARGEST: i64 = i64::MAX / 2;
/// Decimal places of a nano-unit.
const DIGITS: i32 = 9;

/// Reason why a text is not a valid amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not a decimal number.
    #[error("write a decimal number such as 2.5")]
    Form,
    /// Negative.
    #[error("the minimum is 0")]
    Negative,
    /// More than 9 decimal places.
    #[error("write at most 9 decimal places")]
    TooFine,
    /// Larger than [`LARGEST`].
    #[error("the maximum is {}", Amount(LARGEST))]
    TooLarge,
}

/// Parses a decimal, with or without a fraction or an exponent, into nano-units. The conversion is exact: a value that
/// would have to be rounded is an error.
///
/// # Errors
/// Returns [`AmountError`] if the text is not a decimal, is negative, has too many decimal places or is too large.
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
    // Number of decimal places by which the digits shift to become nano-units.
    let places = i32::try_from(behind)
        .ok()
        .and_then(|behind| exponent.checked_sub(behind)?.checked_add(DIGITS))
        .ok_or(AmountError::Form)?;
    let dropped = places.checked_neg().and_then(|dropped| usize::try_from(dropped).ok()).unwrap_or(0);
    let total = digits().count();
    let mut value: i64 = 0;
    for (at, digit) in digits().enumerate() {
        if at.saturating_add(dropped) >= total {
            if digit != b'0' {
                return Err(AmountError::TooFine);
            }
            continue;
        }
        value = shifted(value, digit.saturating_sub(b'0'))?;
    }
    for _ in 0..places.max(0) {
        if value == 0 {
            break;
        }
        value = shifted(value, 0)?;
    }
    if negative && value != 0 { Err(AmountError::Negative) } else { Ok(value) }
}

/// Returns whether a text is digits, and a point and digits if there is a fraction: without the other notations of numbers that
/// files have.
pub fn is_plain(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
        None => is_digits(text),
    }
}

fn shifted(value: i64, digit: u8) -> Result<i64, AmountError> {
    let next = value.checked_mul(10).and_then(|value| value.checked_add(i64::from(digit)));
    next.filter(|value| *value <= LARGEST).ok_or(AmountError::TooLarge)
}

/// Amount in nano-units, formatted as a decimal without trailing zeros: `2.5`, `-0.000001`, `10`. With a precision
/// (`{:.2}`), it has at least that many decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub i64);

impl Amount {
    /// Parses a decimal that may be negative.
    ///
    /// # Errors
    /// Returns [`AmountError`] if the text is not a decimal, has too many decimal places or is too large.
    pub fn parse(text: &str) -> Result<Amount, AmountError> {
        match text.strip_prefix('-') {
            Some(digits) if digits.starts_with(['-', '+']) => Err(AmountError::Form),
            Some(digits) => parse(digits).map(|nanos| Amount(nanos.saturating_neg())),
            None => parse(text).map(Amount),
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
        write!(f, "{}", nanos.checked_div(unit).unwrap_or(0))?;
        let mut fraction = nanos.checked_rem(unit).unwrap_or(0);
        let mut width = DIGITS.unsigned_abs() as usize;
        let least = f.precision().unwrap_or(0).min(width);
        while width > least && fraction.is_multiple_of(10) {
            fraction /= 10;
            width = width.saturating_sub(1);
        }
        if width == 0 { Ok(()) } else { write!(f, ".{fraction:0width$}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amount_decimal_text_is_parsed_exactly() {
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
            ("4611686018.427387903", LARGEST),
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
            ("4611686018.427387904", AmountError::TooLarge),
            ("9000000000", AmountError::TooLarge),
            ("1e99", AmountError::TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn amount_is_displayed_with_fewest_digits() {
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
    fn amount_signed_text_is_parsed() {
        for (text, nanos) in [
            ("-0.000000001", -1),
            ("-12.5", -12_500_000_000),
            ("+3", 3 * NANOS),
            ("0", 0),
            ("-4611686018.427387903", -LARGEST),
        ] {
            assert_eq!(Amount::parse(text).map(|amount| amount.0), Ok(nanos), "{text}");
        }
        let wrong = ["", ".", "-", "--1", "-+1", "1,5", "1.0000000001", "\u{0663}"];
        assert!(wrong.iter().all(|text| Amount::parse(text).is_err()));
        for text in ["4611686018.427387904", "-4611686018.427387904"] {
            let error = Amount::parse(text).unwrap_err();
            assert_eq!(error.to_string(), "the maximum is 4611686018.427387903");
        }
    }

    proptest! {
        #[test]
        fn amount_displayed_text_parses_back(nanos in 0i64..=LARGEST) {
            prop_assert_eq!(parse(&Amount(nanos).to_string()), Ok(nanos));
        }

        #[test]
        fn amount_arbitrary_text_never_panics(text in "[-+0-9._eE]{0,24}") {
            let _ = parse(&text);
        }
    }
}
