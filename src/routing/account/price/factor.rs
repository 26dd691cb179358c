//! Exact arithmetic of prices: factors of tiers, regions and times, and sums that no product can overflow.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

use crate::account::amount::{self, Amount};

/// Multiple of a price, exact to six decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Multiplier(u32);

impl Multiplier {
    /// Millionths of the factor 1.
    const MILLION: u32 = 1_000_000;
    /// The price itself.
    pub const ONE: Multiplier = Multiplier(Multiplier::MILLION);
    /// The largest factor.
    pub const MAX: Multiplier = Multiplier(1_000 * Multiplier::MILLION);

    /// Returns the factor of this many millionths. `None` above [`Multiplier::MAX`].
    pub const fn from_millionths(millionths: u32) -> Option<Multiplier> {
        if millionths <= Multiplier::MAX.0 { Some(Multiplier(millionths)) } else { None }
    }

    /// Returns the factor of a ratio. `None` if it has more than six decimal places, or exceeds the largest factor.
    pub fn from_ratio(numerator: u64, denominator: u64) -> Option<Multiplier> {
        let scaled = u128::from(numerator).checked_mul(u128::from(Multiplier::MILLION))?;
        let denominator = u128::from(denominator);
        if scaled.checked_rem(denominator)? != 0 {
            return None;
        }
        u32::try_from(scaled.checked_div(denominator)?).ok().and_then(Multiplier::from_millionths)
    }

    /// Returns the factor of an amount in nano-units, as configurations are read.
    ///
    /// # Errors
    /// Returns the reason if the amount has more than six decimal places or exceeds the largest factor.
    pub fn from_nanos(nanos: i64) -> Result<Multiplier, String> {
        let millionths = nanos.checked_div(1_000).unwrap_or(0);
        if millionths.saturating_mul(1_000) != nanos {
            return Err("write at most 6 decimal places".to_owned());
        }
        let factor = u32::try_from(millionths).ok().and_then(Multiplier::from_millionths);
        factor.ok_or_else(|| format!("write a factor from 0 to {}", Multiplier::MAX))
    }

    /// Parses a decimal.
    ///
    /// # Errors
    /// Returns the reason if the text is no decimal or no factor.
    pub fn parse(text: &str) -> Result<Multiplier, String> {
        Multiplier::from_nanos(amount::parse(text).map_err(|error| error.to_string())?)
    }

    /// Returns the factor in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl Default for Multiplier {
    fn default() -> Self {
        Multiplier::ONE
    }
}

impl fmt::Display for Multiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount(i64::from(self.0).saturating_mul(1_000)).fmt(f)
    }
}

/// Product of up to four factors, exact, in units of 10⁻²⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scale(u128);

impl Scale {
    /// The factor 1.
    pub(super) const ONE: Scale = Scale(1_000_000_000_000_000_000_000_000);

    /// Returns the product of four factors. It fits: each is at most 10⁹ millionths, and 10³⁶ is less than 2¹²⁸.
    pub(super) fn of(factors: [Multiplier; 4]) -> Scale {
        Scale(factors.into_iter().fold(1, |product, factor| product.saturating_mul(u128::from(factor.0))))
    }
}

/// Sum of money, exact, in units of 10⁻²⁴ millionths of a nano-unit: 256 bits, the lowest first.
///
/// A product of tokens (64 bits), a rate (63 bits) and a scale (120 bits) has at most 247 bits, so that the sum of all
/// kinds of a request cannot overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WideSum([u64; 4]);

impl WideSum {
    /// Returns a product. `amount` is in millionths of a nano-unit.
    pub(super) fn product(amount: u128, scale: Scale) -> WideSum {
        let halves = |value: u128| [low(value), high(value)];
        let mut sum = WideSum::default();
        for (at, left) in halves(amount).into_iter().enumerate() {
            for (beside, right) in halves(scale.0).into_iter().enumerate() {
                // The product of two 64-bit numbers fits into 128 bits.
                let product = u128::from(left).saturating_mul(u128::from(right));
                sum.add_at(at.saturating_add(beside), low(product));
                sum.add_at(at.saturating_add(beside).saturating_add(1), high(product));
            }
        }
        sum
    }

    /// Adds a number to the limb at this index, and the carry to the next ones.
    fn add_at(&mut self, at: usize, value: u64) {
        let mut carry = value;
        for limb in self.0.iter_mut().skip(at) {
            let (sum, overflows) = limb.overflowing_add(carry);
            *limb = sum;
            carry = u64::from(overflows);
            if carry == 0 {
                return;
            }
        }
        if carry != 0 {
            // A sum beyond 256 bits must not become a small charge.
            self.0 = [u64::MAX; 4];
        }
    }

    /// Adds another sum.
    pub(super) fn add(&mut self, other: WideSum) {
        for (at, limb) in other.0.into_iter().enumerate() {
            self.add_at(at, limb);
        }
    }

    /// Returns the sum without the other one; 0 if that is larger.
    pub(super) fn less(self, other: WideSum) -> WideSum {
        let mut borrow = false;
        let mut left = self;
        for (limb, other) in left.0.iter_mut().zip(other.0) {
            let (first, below) = limb.overflowing_sub(other);
            let (second, again) = first.overflowing_sub(u64::from(borrow));
            *limb = second;
            borrow = below || again;
        }
        if borrow { WideSum::default() } else { left }
    }

    /// Divides by a number, and rounds up.
    fn divide(mut self, by: u64) -> WideSum {
        let mut rest = 0u128;
        for limb in self.0.iter_mut().rev() {
            let value = rest << 64 | u128::from(*limb);
            // The rest is less than the divisor, so the quotient fits into 64 bits.
            *limb = low(value.checked_div(u128::from(by)).unwrap_or(0));
            rest = value.checked_rem(u128::from(by)).unwrap_or(0);
        }
        if rest > 0 {
            self.add_at(0, 1);
        }
        self
    }

    /// Returns the sum in nano-units, rounded up; saturates.
    ///
    /// Rounding up after each of several divisions is the same as rounding up once: ⌈⌈x/a⌉/b⌉ = ⌈x/(ab)⌉.
    pub(super) fn nanos(self) -> i64 {
        let half = 1_000_000_000_000;
        let WideSum(limbs) = self.divide(half).divide(half).divide(super::PER);
        match limbs {
            [nanos, 0, 0, 0] => i64::try_from(nanos).unwrap_or(i64::MAX),
            _ => i64::MAX,
        }
    }
}

impl PartialOrd for WideSum {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WideSum {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn low(value: u128) -> u64 {
    value as u64
}

#[allow(clippy::cast_possible_truncation, reason = "the upper half has 64 bits")]
const fn high(value: u128) -> u64 {
    (value >> 64) as u64
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    fn big(sum: WideSum) -> BigUint {
        sum.0.iter().rev().fold(BigUint::ZERO, |sum, limb| (sum << 64) + *limb)
    }

    #[test]
    fn price_factor_has_six_decimal_places() {
        for (text, factor) in
            [("1", Ok(1_000_000)), ("0.5", Ok(500_000)), ("1.666667", Ok(1_666_667)), ("0", Ok(0))]
        {
            assert_eq!(Multiplier::parse(text).map(Multiplier::millionths), factor, "{text}");
        }
        assert_eq!(Multiplier::parse("1000").unwrap(), Multiplier::MAX);
        for text in ["1000.000001", "0.0000001", "-1", "x", ""] {
            assert!(Multiplier::parse(text).is_err(), "{text}");
        }
        assert_eq!(Multiplier::parse("2.50").unwrap().to_string(), "2.5");
        assert_eq!(Multiplier::from_ratio(3, 2), Multiplier::parse("1.5").ok());
        assert_eq!(
            (Multiplier::from_ratio(5, 3), Multiplier::from_ratio(1, 0), Multiplier::from_ratio(1_001, 1)),
            (None, None, None)
        );
    }

    proptest! {
        /// Products and sums are those of arbitrary precision, and are rounded up once.
        #[test]
        fn price_sum_is_exact(
            parts in proptest::collection::vec((any::<u64>(), 0u64..=i64::MAX as u64, proptest::array::uniform4(0u32..=1_000_000_000)), 0..20),
        ) {
            let mut sum = WideSum::default();
            let mut exact = BigUint::ZERO;
            for (tokens, rate, factors) in parts {
                let scale = Scale::of(factors.map(Multiplier));
                sum.add(WideSum::product(u128::from(tokens) * u128::from(rate), scale));
                let product = factors.iter().fold(BigUint::from(1u8), |product, factor| product * *factor);
                exact += product * tokens * rate;
            }
            prop_assert_eq!(big(sum), exact.clone());
            let unit = BigUint::from(10u8).pow(30);
            let nanos = (&exact + &unit - 1u8) / unit;
            let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
            prop_assert_eq!(sum.nanos(), nanos);
        }

        #[test]
        fn price_difference_is_exact_or_nothing(left in any::<[u64; 4]>(), right in any::<[u64; 4]>()) {
            let (left, right) = (WideSum(left), WideSum(right));
            let (a, b) = (big(left), big(right));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
            prop_assert_eq!(big(left.less(right)), if a > b { a - b } else { BigUint::ZERO });
        }
    }
}
