//! Tests of the factors of prices against exact arithmetic.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;
use crate::account::amount;

/// Reference implementation of factors: fractions in arbitrary precision, written from the definition alone.
fn exact_with_factors(
    prices: [i64; 3],
    tokens: [u64; 3],
    long: Option<[u32; 2]>,
    factors: [u32; 3],
    odd: Option<u32>,
) -> BigInt {
    let million = BigInt::from(1_000_000);
    let [tier, region, hours] = factors;
    let mut sum = BigInt::from(0);
    for (at, (price, tokens)) in prices.into_iter().zip(tokens).enumerate() {
        let long = long.map_or(1_000_000, |[input, output]| if at == 2 { output } else { input });
        let tier = odd.filter(|_| at == 1).unwrap_or(tier);
        sum += BigInt::from(price) * tokens * long * tier * region * hours;
    }
    // Rounded up: prices are per million tokens, and each of the four factors is in millionths.
    let unit = million.pow(5);
    (sum + &unit - 1) / unit
}

proptest! {
    /// A price is the base price times the factors of length, tier, region and hour, summed exactly and rounded up once.
    #[test]
    fn cost_with_factors_is_the_exact_sum_rounded_up_once(
        prices in proptest::array::uniform3(0i64..1_000_000_000_000),
        tokens in proptest::array::uniform3(prop_oneof![0u64..100, 0u64..10_000_000]),
        long in proptest::option::of(proptest::array::uniform2(0u32..10_000_000)),
        factors in proptest::array::uniform3(0u32..10_000_000),
        odd in proptest::option::of(0u32..10_000_000),
    ) {
        let factor = |millionths: u32| Multiplier::from_millionths(millionths).unwrap();
        let mut rates = Rates::default();
        for (kind, price) in [TokenKind::Input, TokenKind::CachedInput, TokenKind::Output].into_iter().zip(prices) {
            rates.set(kind, price);
        }
        let [tier, region, hours] = factors.map(factor);
        let [plain, cached, output] = tokens;
        let input = plain + cached;
        let long_factors = long.map(|[input, output]| LongFactors { above: 1_000, input: factor(input), output: factor(output) });
        let odd_kinds = odd.map(|odd| (TokenKind::CachedInput, factor(odd))).into_iter().collect();
        let price = Price::new(PriceConfig {
            rates,
            long: long_factors,
            tiers: vec![TierPrice { tier: ServiceTier::Flex, factor: tier, odd: odd_kinds, rates: Rates::default() }],
            regions: vec![(Region::Eu, region)],
            off_peak: Some(OffPeakRule { factor: hours, ..OffPeakRule::default() }),
            ..PriceConfig::default()
        });
        let usage = Usage { input: Some(input), cached: Some(cached), output: Some(output), ..Usage::default() };
        let terms = Terms { at: 0, tier: ServiceTier::Flex, region: Some(Region::Eu) };
        let is_long = long.filter(|_| input > 1_000);
        let exact = exact_with_factors([prices[0], prices[1], prices[2]], [plain, cached, output], is_long, factors, odd);
        prop_assert_eq!(BigInt::from(price.cost(&usage, &[], &terms)), exact);
    }
}

#[test]
fn cost_of_absurd_figures_with_factors_saturates() {
    let mut rates = Rates::default();
    for kind in [TokenKind::Input, TokenKind::Output] {
        rates.set(kind, amount::parse("4600000000").unwrap());
    }
    let price = Price::new(PriceConfig {
        rates,
        long: Some(LongFactors { above: 1, input: Multiplier::MAX, output: Multiplier::MAX }),
        tiers: vec![TierPrice { tier: ServiceTier::Fast, factor: Multiplier::MAX, ..TierPrice::default() }],
        regions: vec![(Region::Us, Multiplier::MAX)],
        off_peak: Some(OffPeakRule { factor: Multiplier::MAX, ..OffPeakRule::default() }),
        search: Some(i64::MAX),
        ..PriceConfig::default()
    });
    let usage =
        Usage { input: Some(u64::MAX), output: Some(u64::MAX), searches: Some(u64::MAX), ..Usage::default() };
    let terms = Terms { at: 0, tier: ServiceTier::Fast, region: Some(Region::Us) };
    assert_eq!(price.cost(&usage, &[], &terms), i64::MAX);
    price.cache_effect(&Usage { cached: Some(u64::MAX), ..usage }, &terms);
}
