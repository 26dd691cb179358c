//! Exact numbers: prices in nano-units, and factors as ratios of whole numbers.

use std::fmt;

/// Nano-units in one unit of the currency.
const NANOS: u64 = 1_000_000_000;
/// Largest price.
const MAX_PRICE: u64 = 10_000;
/// Largest factor.
const MAX_FACTOR: u64 = 1_000;
/// Largest numerator and denominator: products of several factors with an amount stay exact in 128 bits.
const MAX_TERM: u64 = 1_000_000_000;

/// Factor of a price, as an exact ratio in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceFactor {
    /// Numerator.
    pub numerator: u64,
    /// Denominator. Never 0.
    pub denominator: u64,
}

impl PriceFactor {
    /// Factor of 1.
    pub const ONE: PriceFactor = PriceFactor { numerator: 1, denominator: 1 };

    /// Parses a decimal such as `1.75` or a ratio such as `5/3`. Returns `None` for anything else, a negative number, more than
    /// six decimal places, or a factor above 1,000.
    pub fn parse(text: &str) -> Option<PriceFactor> {
        let (numerator, denominator) = match text.split_once('/') {
            Some((over, under)) => (whole(over)?, whole(under)?),
            None => (scaled(text, 6)?, 1_000_000),
        };
        PriceFactor::ratio(numerator, denominator)
    }

    /// Returns the ratio of two numbers. `None` if it is above 1,000, or not a ratio of numbers up to a billion.
    pub fn ratio(numerator: u64, denominator: u64) -> Option<PriceFactor> {
        let divisor = gcd(numerator, denominator).max(1);
        let (numerator, denominator) = (numerator.checked_div(divisor)?, denominator.checked_div(divisor)?);
        let fits = denominator > 0 && numerator <= denominator.checked_mul(MAX_FACTOR)?;
        (fits && numerator <= MAX_TERM && denominator <= MAX_TERM)
            .then_some(PriceFactor { numerator, denominator })
    }
}

impl fmt::Display for PriceFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled =
            self.numerator.checked_mul(1_000_000).filter(|scaled| scaled.is_multiple_of(self.denominator));
        match scaled.and_then(|scaled| scaled.checked_div(self.denominator)) {
            Some(millionths) => f.write_str(&decimal(millionths, 6)),
            None => write!(f, "{}/{}", self.numerator, self.denominator),
        }
    }
}

/// Parses a price in nano-units. Returns `None` if it is not a decimal from 0 to 10,000 with at most nine places.
pub fn parse_price(text: &str) -> Option<i64> {
    nanos(text)
}

/// Parses a price in nano-units. Returns `None` if it is not a decimal from 0 to 10,000 with at most nine places.
pub(super) fn nanos(text: &str) -> Option<i64> {
    let nanos = scaled(text, 9)?;
    if nanos > MAX_PRICE.checked_mul(NANOS)? { None } else { i64::try_from(nanos).ok() }
}

/// Returns a price in nano-units as a decimal.
pub fn price_text(nanos: i64) -> String {
    decimal(nanos.unsigned_abs(), 9)
}

fn decimal(number: u64, places: u32) -> String {
    let unit = 10_u64.saturating_pow(places).max(1);
    let (whole, rest) = (number.checked_div(unit).unwrap_or(0), number.checked_rem(unit).unwrap_or(0));
    if rest == 0 {
        return whole.to_string();
    }
    let width = usize::try_from(places).unwrap_or(0);
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or(0));
    }
    a
}

fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses a decimal as a multiple of the given decimal place. The conversion is exact; what would have to be rounded is `None`.
fn scaled(text: &str, places: u32) -> Option<u64> {
    let text: String = text.trim().trim_start_matches('+').chars().filter(|char| *char != '_').collect();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (&*text, 0),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer}{}", fraction.trim_end_matches('0'));
    if digits.is_empty() || integer.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let behind = i32::try_from(fraction.trim_end_matches('0').len()).ok()?;
    let shift = i32::try_from(places).ok()?.checked_add(exponent)?.checked_sub(behind)?;
    let number: u64 = digits.parse().ok()?;
    let power = 10_u64.checked_pow(shift.unsigned_abs());
    if shift >= 0 {
        return if number == 0 { Some(0) } else { number.checked_mul(power?) };
    }
    let power = power?;
    (number.checked_rem(power)? == 0).then(|| number.checked_div(power)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_is_exact_and_bounded() {
        let factor = |text| PriceFactor::parse(text).map(|factor| (factor.numerator, factor.denominator));
        assert_eq!(factor("1.75"), Some((7, 4)));
        assert_eq!(factor("0"), Some((0, 1)));
        assert_eq!(factor("5/3"), Some((5, 3)));
        assert_eq!(factor("1e1"), Some((10, 1)));
        for wrong in
            ["-1", "1001", "1.0000001", "1/0", "", ".5", "x", "1/", "nan", "inf", "99999999999999999999"]
        {
            assert_eq!(factor(wrong), None, "{wrong}");
        }
        for text in ["1.75", "0.5", "5/3", "2", "0.000001"] {
            assert_eq!(PriceFactor::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn price_is_exact_to_the_nano_unit() {
        assert_eq!(nanos("0.00875"), Some(8_750_000));
        assert_eq!(nanos("10000"), Some(10_000_000_000_000));
        assert_eq!(nanos("0.0000000001"), None);
        assert_eq!(nanos("2.50"), Some(2_500_000_000));
        assert_eq!(nanos("1e-9"), Some(1));
        assert_eq!(nanos("-1"), None);
        assert_eq!(price_text(8_750_000), "0.00875");
        assert_eq!(price_text(3_000_000_000), "3");
    }
}
