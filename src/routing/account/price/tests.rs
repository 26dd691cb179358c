//! Tests of prices against exact arithmetic.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;
use crate::account::amount;
use codec::canonical::TierSet;

/// Costs in the standard tier, on any day.
trait Plain {
    fn cost_of(&self, usage: &Usage, products: &[Product]) -> i64;
    fn effect_of(&self, usage: &Usage) -> CacheEffect;
}

impl Plain for Price {
    fn cost_of(&self, usage: &Usage, products: &[Product]) -> i64 {
        self.cost(usage, products, &Terms::default())
    }

    fn effect_of(&self, usage: &Usage) -> CacheEffect {
        self.cache_effect(usage, &Terms::default())
    }
}

fn nanos(text: &str) -> i64 {
    amount::parse(text).unwrap()
}

fn rates(list: &[(TokenKind, &str)]) -> Rates {
    let mut rates = Rates::default();
    for (kind, text) in list {
        rates.set(*kind, nanos(text));
    }
    rates
}

fn price(list: &[(TokenKind, &str)]) -> Price {
    Price::new(PriceConfig { rates: rates(list), ..PriceConfig::default() })
}

#[test]
fn cost_per_million_tokens_is_the_configured_price() {
    let price = price(&[(TokenKind::Input, "2.5"), (TokenKind::Output, "10")]);
    let usage = |input, output| Usage { input: Some(input), output: Some(output), ..Usage::default() };
    assert_eq!(price.cost_of(&usage(1_000_000, 1_000_000), &[]), nanos("12.5"));
    assert_eq!(price.cost_of(&usage(1, 0), &[]), 2_500);
    assert_eq!(price.cost_of(&usage(0, 0), &[]), 0);
    assert_eq!(Price::default().cost_of(&usage(9, 9), &[]), 0);
}

#[test]
fn cache_effect_is_the_difference_to_plain_input() {
    use TokenKind::*;
    let claude = price(&[(Input, "3"), (CachedInput, "0.3"), (CacheWrite, "3.75"), (CacheWrite1h, "6")]);
    let usage = |cached, write, long| Usage {
        input: Some(1_000_000),
        cached: Some(cached),
        cache_write: Some(write),
        cache_write_1h: Some(long),
        ..Usage::default()
    };
    let effect = |price: &Price, usage| price.effect_of(&usage);
    let both = |saved, surcharge| CacheEffect { saved, surcharge };
    assert_eq!(effect(&claude, usage(100, 0, 0)), both(270_000, 0));
    assert_eq!(effect(&claude, usage(0, 100, 10)), both(0, 75_000 + 30_000));
    assert_eq!(effect(&claude, Usage::default()), CacheEffect::default());
    // Without prices of their own, reads and writes cost as much as plain input.
    assert_eq!(effect(&price(&[(Input, "3")]), usage(100, 100, 100)), CacheEffect::default());
    // The cost without a cache is the cost plus savings minus surcharges.
    let cached = usage(400_000, 300_000, 200_000);
    let CacheEffect { saved, surcharge } = claude.effect_of(&cached);
    let plain = Usage { input: cached.input, ..Usage::default() };
    let difference = i64::try_from(saved).unwrap() - i64::try_from(surcharge).unwrap();
    assert_eq!(claude.cost_of(&cached, &[]) + difference, claude.cost_of(&plain, &[]));
    effect(&claude, usage(u64::MAX, u64::MAX, u64::MAX));
}

#[test]
fn cost_of_kinds_without_a_price_falls_back() {
    use TokenKind::*;
    let usage = Usage {
        input: Some(100),
        cached: Some(10),
        cache_write: Some(20),
        cache_write_1h: Some(30),
        output: Some(50),
        reasoning: Some(40),
        ..Usage::default()
    };
    let plain = price(&[(Input, "1"), (Output, "2")]);
    assert_eq!(plain.cost_of(&usage, &[]), 100 * 1_000 + 50 * 2_000);
    let written = price(&[(Input, "1"), (CacheWrite, "3"), (Output, "2")]);
    assert_eq!(written.cost_of(&usage, &[]), 50 * 1_000 + 50 * 3_000 + 50 * 2_000);
    let all = price(&[
        (Input, "1"),
        (CachedInput, "0.1"),
        (CacheWrite, "1.25"),
        (CacheWrite1h, "2"),
        (Output, "2"),
        (Reasoning, "4"),
    ]);
    assert_eq!(
        all.cost_of(&usage, &[]),
        40 * 1_000 + 10 * 100 + 20 * 1_250 + 30 * 2_000 + 10 * 2_000 + 40 * 4_000
    );
}

/// Parts that exceed their total neither raise the cost of a request nor make it negative.
#[test]
fn bug_41_cost_with_parts_above_the_total_is_not_negative() {
    let price = price(&[(TokenKind::Input, "1"), (TokenKind::CachedInput, "0.1")]);
    let usage = Usage { input: Some(10), cached: Some(100), ..Usage::default() };
    assert_eq!(price.cost_of(&usage, &[]), 10 * 100);
    let only_parts = Usage { cached: Some(100), ..Usage::default() };
    assert_eq!(price.cost_of(&only_parts, &[]), 100 * 100);
}

#[test]
fn cost_of_long_requests_uses_the_price_tier() {
    use TokenKind::*;
    let config = PriceConfig {
        rates: rates(&[(Input, "1.25"), (CachedInput, "0.125"), (Output, "10")]),
        steps: vec![(500_000, rates(&[(Output, "20")])), (200_000, rates(&[(Input, "2.5"), (Output, "15")]))],
        ..PriceConfig::default()
    };
    let price = Price::new(config);
    let cost = |input, cached| {
        let usage =
            Usage { input: Some(input), cached: Some(cached), output: Some(1_000), ..Usage::default() };
        price.cost_of(&usage, &[])
    };
    assert_eq!(cost(200_000, 0), 200_000 * 1_250 + 1_000 * 10_000, "the bound itself is below it");
    assert_eq!(cost(200_001, 1), 200_000 * 2_500 + 125 + 1_000 * 15_000);
    assert_eq!(cost(500_001, 0), 500_001 * 2_500 + 1_000 * 20_000, "what is not named stays");
}

#[test]
fn cost_of_images_and_video_depends_on_size_and_quality() {
    let unit = |size: Option<&str>, quality: Option<&str>, each| UnitPrice {
        size: size.map(Into::into),
        quality: quality.map(Into::into),
        price: nanos(each),
    };
    let price = Price::new(PriceConfig {
        images: vec![
            unit(Some("1024x1024"), Some("high"), "0.167"),
            unit(None, Some("low"), "0.011"),
            unit(None, None, "0.04"),
        ],
        video_seconds: vec![unit(Some("720p"), None, "0.3")],
        search: Some(nanos("0.01")),
        request: Some(nanos("0.005")),
        ..PriceConfig::default()
    });
    let images = |count, size: &str, quality: &str| {
        let product = Product::Images { count, size: size.into(), quality: quality.into() };
        price.cost_of(&Usage::default(), &[product]) - nanos("0.005")
    };
    assert_eq!(images(2, "1024x1024", "high"), nanos("0.334"));
    assert_eq!(images(1, "1024x1024", "low"), nanos("0.011"));
    assert_eq!(images(1, "", ""), nanos("0.04"));
    let video = |millis, resolution: &str| {
        let product = Product::Video { millis, resolution: resolution.into() };
        price.cost_of(&Usage::default(), &[product]) - nanos("0.005")
    };
    assert_eq!(video(5_500, "720p"), nanos("1.65"));
    assert_eq!(video(1_000, "480p"), nanos("0.3"), "a resolution without a price costs the highest price");
    assert_eq!(video(1_000, ""), nanos("0.3"));
    assert!(price.has_resolution_price("720p") && !price.has_resolution_price("480p"));
    let searched = Usage { searches: Some(3), ..Usage::default() };
    assert_eq!(price.cost_of(&searched, &[]), nanos("0.035"));
}

#[test]
fn cost_of_unmatched_size_or_quality_is_the_highest_price() {
    let unit = |size: &str, quality: Option<&str>, each| UnitPrice {
        size: Some(size.into()),
        quality: quality.map(Into::into),
        price: nanos(each),
    };
    let price = Price::new(PriceConfig {
        images: vec![unit("1K", Some("low"), "1"), unit("1K", Some("high"), "9"), unit("2K", None, "4")],
        video_seconds: vec![unit("480p", None, "1"), unit("1080p", None, "3"), unit("720p", None, "2")],
        ..PriceConfig::default()
    });
    for (size, quality, each) in [
        ("1K", "low", "1"),
        ("2K", "low", "4"),
        ("1K", "", "9"),
        ("1x1", "low", "9"),
        ("", "", "9"),
        ("1K", "no such", "9"),
    ] {
        let products = [Product::Images { count: 2, size: size.into(), quality: quality.into() }];
        assert_eq!(price.cost_of(&Usage::default(), &products), 2 * nanos(each), "{size} {quality}");
        let expected = ExpectedUsage { output: Some(0), products: &products, ..ExpectedUsage::default() };
        assert!(price.estimate(&expected) >= price.cost_of(&Usage::default(), &products), "{size} {quality}");
    }
    for (resolution, each) in [("480p", "1"), ("720p", "2"), ("1p", "3"), ("", "3"), ("4k", "3")] {
        let products = [Product::Video { millis: 1_000, resolution: resolution.into() }];
        assert_eq!(price.cost_of(&Usage::default(), &products), nanos(each), "{resolution}");
        let expected = ExpectedUsage { output: Some(0), products: &products, ..ExpectedUsage::default() };
        assert_eq!(price.estimate(&expected), nanos(if resolution.is_empty() { "3" } else { each }));
    }
    // A model with token prices only has no price per piece.
    let products = [Product::Images { count: 2, size: "1K".into(), quality: "low".into() }];
    assert_eq!(Price::default().cost_of(&Usage::default(), &products), 0);
}

#[test]
fn estimate_of_output_uses_the_dearest_output_kind() {
    let price = price(&[(TokenKind::Input, "1"), (TokenKind::Output, "2"), (TokenKind::Reasoning, "3")]);
    let expected = ExpectedUsage { input: 100, output: Some(10), ..ExpectedUsage::default() };
    assert_eq!(price.estimate(&expected), 100 * 1_000 + 10 * 3_000);
    assert_eq!(price.estimate(&ExpectedUsage { responses: 4, ..expected }), 100 * 1_000 + 40 * 3_000);
}

#[test]
fn estimate_uses_premium_prices_only_for_kinds_in_the_request() {
    use TokenKind::*;
    let price = price(&[
        (Input, "3"),
        (CachedInput, "0.3"),
        (CacheWrite, "3.75"),
        (CacheWrite1h, "6"),
        (Output, "15"),
    ]);
    let expected = ExpectedUsage { input: 1_000, output: Some(0), ..ExpectedUsage::default() };
    assert_eq!(price.estimate(&expected), 1_000 * 3_000);
    assert_eq!(
        price.premium_input(),
        PremiumInputKinds::of([CacheWrite, CacheWrite1h, CacheWrite12h].into_iter())
    );
    let premium_input = PremiumInputKinds::of([CacheWrite].into_iter());
    assert_eq!(price.estimate(&ExpectedUsage { premium_input, ..expected }), 1_000 * 3_750);
    assert_eq!(
        price.estimate(&ExpectedUsage { premium_input: price.premium_input(), ..expected }),
        1_000 * 6_000
    );
}

#[test]
fn cost_of_absurd_figures_saturates() {
    let price = Price::new(PriceConfig {
        rates: rates(&[(TokenKind::Input, "4600000000"), (TokenKind::Output, "4600000000")]),
        search: Some(i64::MAX),
        ..PriceConfig::default()
    });
    let usage =
        Usage { input: Some(u64::MAX), output: Some(u64::MAX), searches: Some(u64::MAX), ..Usage::default() };
    assert_eq!(price.cost_of(&usage, &[]), i64::MAX);
}

/// Reference implementation: exact sums in arbitrary precision, written from the definition alone.
fn exact(list: &[(TokenKind, i64)], search: i64, usage: &[u64; 7]) -> BigInt {
    let rate = |kind: TokenKind| {
        let own = |kind| list.iter().rev().find(|(known, _)| *known == kind).map(|(_, rate)| *rate);
        let first = kind.falls_back_to();
        let second = first.and_then(TokenKind::falls_back_to);
        let found = own(kind).or(first.and_then(own)).or(second.and_then(own));
        BigInt::from(found.unwrap_or(0))
    };
    let [plain, cached, write, write_1h, said, reasoning, searches] = usage.map(BigInt::from);
    let millionths = plain * rate(TokenKind::Input)
        + cached * rate(TokenKind::CachedInput)
        + write * rate(TokenKind::CacheWrite)
        + write_1h * rate(TokenKind::CacheWrite1h)
        + said * rate(TokenKind::Output)
        + reasoning * rate(TokenKind::Reasoning)
        + searches * BigInt::from(search) * BigInt::from(1_000_000);
    (millionths + BigInt::from(999_999)) / BigInt::from(1_000_000)
}

proptest! {
    #[test]
    fn cost_is_the_exact_sum_rounded_up_once(
        entries in proptest::collection::vec((0usize..6, 0i64..1_000_000_000_000), 0..8),
        search in 0i64..1_000_000_000,
        usage in proptest::array::uniform7(prop_oneof![0u64..100, 0u64..10_000_000]),
    ) {
        use TokenKind::*;
        const KINDS: [TokenKind; 6] = [Input, CachedInput, CacheWrite, CacheWrite1h, Output, Reasoning];
        let list: Vec<(TokenKind, i64)> = entries.iter().map(|(at, rate)| (KINDS[*at], *rate)).collect();
        let mut rates = Rates::default();
        for (kind, rate) in &list {
            rates.set(*kind, *rate);
        }
        let price = Price::new(PriceConfig { rates, search: Some(search), ..PriceConfig::default() });
        let [plain, cached, write, write_1h, said, reasoning, searches] = usage;
        let reported = Usage {
            input: Some(plain + cached + write + write_1h),
            cached: Some(cached),
            cache_write: Some(write),
            cache_write_1h: Some(write_1h),
            output: Some(said + reasoning),
            reasoning: Some(reasoning),
            searches: Some(searches),
            ..Usage::default()
        };
        prop_assert_eq!(BigInt::from(price.cost_of(&reported, &[])), exact(&list, search, &usage));
    }

    /// More usage never costs less.
    #[test]
    fn cost_grows_with_input_tokens(
        input in 0u64..1_000_000_000, more in 0u64..1_000_000_000, rate in 0i64..1_000_000_000_000,
    ) {
        let mut rates = Rates::default();
        rates.set(TokenKind::Input, rate);
        let price = Price::new(PriceConfig { rates, ..PriceConfig::default() });
        let cost = |input| price.cost_of(&Usage { input: Some(input), ..Usage::default() }, &[]);
        prop_assert!(cost(input) <= cost(input + more));
        prop_assert!(cost(input) >= 0);
    }
}

fn any_price() -> impl Strategy<Value = Price> {
    let rates = || {
        proptest::collection::vec((0usize..TokenKind::ALL.len(), 0i64..1_000_000_000), 0..10).prop_map(
            |list| {
                let mut rates = Rates::default();
                list.into_iter().for_each(|(at, rate)| rates.set(TokenKind::ALL[at], rate));
                rates
            },
        )
    };
    let name = || prop_oneof![Just(None), "[ab]".prop_map(|name| Some(name.into_boxed_str()))];
    let units = move || {
        let unit = (name(), name(), 0i64..1_000_000_000);
        proptest::collection::vec(
            unit.prop_map(|(size, quality, each)| UnitPrice { size, quality, price: each }),
            0..4,
        )
    };
    let factor = || (0u32..5_000_000).prop_map(|millionths| Multiplier::from_millionths(millionths).unwrap());
    let steps = proptest::collection::vec((1u64..2_000, rates()), 0..3);
    let odd = proptest::collection::vec((0usize..TokenKind::ALL.len(), factor()), 0..2)
        .prop_map(|odd| odd.into_iter().map(|(at, factor)| (TokenKind::ALL[at], factor)).collect::<Vec<_>>());
    let tier =
        ((0usize..7).prop_map(|at| ServiceTier::ALL[at]), factor(), odd, proptest::option::of(rates()));
    let tiers = proptest::collection::vec(
        tier.prop_map(|(tier, factor, odd, rates)| TierPrice {
            tier,
            factor,
            odd,
            rates: rates.unwrap_or_default(),
        }),
        0..4,
    );
    let long = proptest::option::of((0u64..4_000, factor(), factor()))
        .prop_map(|long| long.map(|(above, input, output)| LongFactors { above, input, output }));
    let region = proptest::option::of(factor()).prop_map(|factor| factor.map(|factor| (Region::Us, factor)));
    let request = proptest::option::of(0i64..1_000_000_000);
    ((rates(), steps, units(), units(), request), (tiers, long, region)).prop_map(
        |((rates, steps, images, video_seconds, request), (tiers, long, region))| {
            Price::new(PriceConfig {
                rates,
                steps,
                images,
                video_seconds,
                request,
                tiers,
                long,
                regions: region.into_iter().collect(),
                ..PriceConfig::default()
            })
        },
    )
}

proptest! {
    /// A balance cannot be overdrawn by requests that use no more than expected, whatever their prices, whatever kinds
    /// their tokens have, and whatever the provider chooses where they left it open.
    #[test]
    fn cost_of_expected_usage_never_exceeds_the_estimate(
        price in any_price(),
        input in 0u64..4_000, output in 0u64..4_000, responses in 0u64..5,
        less in (0u64..4_000, 0u64..4_000),
        parts in proptest::array::uniform11(0u64..4_000),
        named in 0u8..32,
        requested in proptest::collection::vec((0u64..5, "a|b|auto|", "a|b|"), 0..3),
        choice in (0u64..5, "a|b", "a|b"),
        served in ((0usize..8).prop_map(|at| ServiceTier::ALL[at]), any::<bool>()),
    ) {
        let (tier, is_regional) = served;
        let region = is_regional.then_some(Region::Us);
        let premium_input = PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter().enumerate().filter(|(at, _)| named >> at & 1 == 1).map(|(_, kind)| kind));
        let kinds: Vec<TokenKind> = premium_input.kinds().collect();
        let product = |(count, size, quality): &(u64, String, String)| Product::Images {
            count: *count, size: size.as_str().into(), quality: quality.as_str().into(),
        };
        let products: Vec<Product> = requested.iter().map(product).chain(requested.iter().map(|(count, size, _)| {
            Product::Video { millis: count * 1_000, resolution: size.as_str().into() }
        })).collect();
        let expected = ExpectedUsage { input, output: Some(output), uncertain_output: 0, responses, premium_input, products: &products, at: 0, tiers: TierSet::one(tier), region };
        let held = price.estimate(&expected);
        let part = |kind: TokenKind, tokens: u64| kinds.contains(&kind).then_some(tokens);
        let usage = Usage {
            input: Some(input.saturating_sub(less.0)),
            output: Some((output * responses.max(1)).saturating_sub(less.1)),
            cached: Some(parts[0]),
            cache_write: part(TokenKind::CacheWrite, parts[1]),
            cache_write_1h: part(TokenKind::CacheWrite1h, parts[2]),
            audio_input: part(TokenKind::AudioInput, parts[3]),
            image_input: part(TokenKind::ImageInput, parts[4]),
            reasoning: Some(parts[5]),
            audio_output: Some(parts[6]),
            image_output: Some(parts[7]),
            cache_write_12h: part(TokenKind::CacheWrite12h, parts[8]),
            cached_audio_input: Some(parts[9]),
            cached_image_input: Some(parts[10]),
            ..Usage::default()
        };
        // The provider has chosen what was left open, and may have produced fewer.
        let chosen = |is: &str, choice: &str| if matches!(is, "" | "auto") { choice.into() } else { is.into() };
        let products: Vec<Product> = products.iter().map(|product| match product {
            Product::Images { count, size, quality } => Product::Images {
                count: count.saturating_sub(choice.0), size: chosen(size, &choice.1), quality: chosen(quality, &choice.2),
            },
            Product::Video { millis, resolution } => Product::Video {
                millis: millis.saturating_sub(choice.0), resolution: chosen(resolution, &choice.1),
            },
        }).collect();
        let cost = price.cost(&usage, &products, &Terms { at: 0, tier, region });
        prop_assert!(cost <= held, "{} of {}", cost, held);
    }
}

/// A provider may choose a size for which the requested quality has no price; that costs the highest price.
#[test]
fn estimate_of_an_open_size_without_a_price_is_the_highest_price() {
    let unit = |size: &str, quality: Option<&str>, each| UnitPrice {
        size: Some(size.into()),
        quality: quality.map(Into::into),
        price: each,
    };
    let held = |images: Vec<UnitPrice>, size: &str, quality: &str| {
        let products = [Product::Images { count: 1, size: size.into(), quality: quality.into() }];
        let price = Price::new(PriceConfig { images, ..PriceConfig::default() });
        price.estimate(&ExpectedUsage { products: &products, ..ExpectedUsage::default() })
    };
    let units = || vec![unit("a", None, 0), unit("b", Some("a"), 7)];
    assert_eq!(held(units(), "auto", "b"), 7);
    assert_eq!(held(units(), "a", "b"), 0);
    assert_eq!(held(units(), "a", "auto"), 0);
    assert_eq!(held(units(), "c", "a"), 7);
    // One price applies to every choice, so only the prices that may apply count.
    let all = UnitPrice { size: None, quality: None, price: 1 };
    assert_eq!(held([units(), vec![all]].concat(), "auto", "b"), 1);
}
