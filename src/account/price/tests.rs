//! Prices against arithmetic without limits.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;
use crate::account::amount;

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
    Price::new(Given { rates: rates(list), ..Given::default() })
}

#[test]
fn a_million_tokens_cost_what_the_price_says() {
    let price = price(&[(TokenKind::Input, "2.5"), (TokenKind::Output, "10")]);
    let usage = |input, output| Usage { input: Some(input), output: Some(output), ..Usage::default() };
    assert_eq!(price.cost(&usage(1_000_000, 1_000_000), &[]), nanos("12.5"));
    assert_eq!(price.cost(&usage(1, 0), &[]), 2_500);
    assert_eq!(price.cost(&usage(0, 0), &[]), 0);
    assert_eq!(Price::default().cost(&usage(9, 9), &[]), 0);
}

#[test]
fn kinds_without_a_price_fall_back() {
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
    assert_eq!(plain.cost(&usage, &[]), 100 * 1_000 + 50 * 2_000);
    let written = price(&[(Input, "1"), (CacheWrite, "3"), (Output, "2")]);
    assert_eq!(written.cost(&usage, &[]), 50 * 1_000 + 50 * 3_000 + 50 * 2_000);
    let all = price(&[
        (Input, "1"),
        (CachedInput, "0.1"),
        (CacheWrite, "1.25"),
        (CacheWrite1h, "2"),
        (Output, "2"),
        (Reasoning, "4"),
    ]);
    assert_eq!(
        all.cost(&usage, &[]),
        40 * 1_000 + 10 * 100 + 20 * 1_250 + 30 * 2_000 + 10 * 2_000 + 40 * 4_000
    );
}

/// Reports whose parts are more than their total do not make a request dearer, nor cheaper than nothing.
#[test]
fn bug_41_parts_never_make_a_negative_price() {
    let price = price(&[(TokenKind::Input, "1"), (TokenKind::CachedInput, "0.1")]);
    let usage = Usage { input: Some(10), cached: Some(100), ..Usage::default() };
    assert_eq!(price.cost(&usage, &[]), 10 * 100);
    let only_parts = Usage { cached: Some(100), ..Usage::default() };
    assert_eq!(price.cost(&only_parts, &[]), 100 * 100);
}

#[test]
fn long_requests_have_the_price_of_their_tier() {
    use TokenKind::*;
    let given = Given {
        rates: rates(&[(Input, "1.25"), (CachedInput, "0.125"), (Output, "10")]),
        tiers: vec![(500_000, rates(&[(Output, "20")])), (200_000, rates(&[(Input, "2.5"), (Output, "15")]))],
        ..Given::default()
    };
    let price = Price::new(given);
    let cost = |input, cached| {
        let usage =
            Usage { input: Some(input), cached: Some(cached), output: Some(1_000), ..Usage::default() };
        price.cost(&usage, &[])
    };
    assert_eq!(cost(200_000, 0), 200_000 * 1_250 + 1_000 * 10_000, "the bound itself is below it");
    assert_eq!(cost(200_001, 1), 200_000 * 2_500 + 125 + 1_000 * 15_000);
    assert_eq!(cost(500_001, 0), 500_001 * 2_500 + 1_000 * 20_000, "what is not named stays");
}

#[test]
fn things_that_are_made_have_prices_by_size_and_quality() {
    let unit = |size: Option<&str>, quality: Option<&str>, each| Unit {
        size: size.map(Into::into),
        quality: quality.map(Into::into),
        each: nanos(each),
    };
    let price = Price::new(Given {
        images: vec![
            unit(Some("1024x1024"), Some("high"), "0.167"),
            unit(None, Some("low"), "0.011"),
            unit(None, None, "0.04"),
        ],
        video_seconds: vec![unit(Some("720p"), None, "0.3")],
        search: Some(nanos("0.01")),
        request: Some(nanos("0.005")),
        ..Given::default()
    });
    let images = |count, size, quality| {
        price.cost(&Usage::default(), &[Made::Images { count, size, quality }]) - nanos("0.005")
    };
    assert_eq!(images(2, "1024x1024", "high"), nanos("0.334"));
    assert_eq!(images(1, "1024x1024", "low"), nanos("0.011"));
    assert_eq!(images(1, "", ""), nanos("0.04"));
    let video = |millis, resolution| {
        price.cost(&Usage::default(), &[Made::Video { millis, resolution }]) - nanos("0.005")
    };
    assert_eq!(video(5_500, "720p"), nanos("1.65"));
    assert_eq!(video(5_500, "480p"), 0, "no price that fits");
    let searched = Usage { searches: Some(3), ..Usage::default() };
    assert_eq!(price.cost(&searched, &[]), nanos("0.035"));
}

#[test]
fn an_estimate_is_at_least_what_plain_tokens_cost() {
    let price = price(&[(TokenKind::Input, "1"), (TokenKind::Output, "2"), (TokenKind::Reasoning, "3")]);
    assert_eq!(price.estimate(100, 10), 100 * 1_000 + 10 * 3_000);
}

#[test]
fn absurd_figures_saturate() {
    let price = Price::new(Given {
        rates: rates(&[(TokenKind::Input, "9000000000"), (TokenKind::Output, "9000000000")]),
        search: Some(i64::MAX),
        ..Given::default()
    });
    let usage =
        Usage { input: Some(u64::MAX), output: Some(u64::MAX), searches: Some(u64::MAX), ..Usage::default() };
    assert_eq!(price.cost(&usage, &[]), i64::MAX);
}

/// The slow twin: sums of decimals as integers without an end, written from the definition alone.
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
    fn a_cost_is_the_exact_sum_rounded_up_once(
        given in proptest::collection::vec((0usize..6, 0i64..1_000_000_000_000), 0..8),
        search in 0i64..1_000_000_000,
        usage in proptest::array::uniform7(prop_oneof![0u64..100, 0u64..10_000_000]),
    ) {
        let list: Vec<(TokenKind, i64)> =
            given.iter().map(|(at, rate)| (TokenKind::ALL[*at], *rate)).collect();
        let mut rates = Rates::default();
        for (kind, rate) in &list {
            rates.set(*kind, *rate);
        }
        let price = Price::new(Given { rates, search: Some(search), ..Given::default() });
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
        prop_assert_eq!(BigInt::from(price.cost(&reported, &[])), exact(&list, search, &usage));
    }

    /// More of anything never costs less.
    #[test]
    fn a_cost_grows_with_its_input(
        input in 0u64..1_000_000_000, more in 0u64..1_000_000_000, rate in 0i64..1_000_000_000_000,
    ) {
        let mut rates = Rates::default();
        rates.set(TokenKind::Input, rate);
        let price = Price::new(Given { rates, ..Given::default() });
        let cost = |input| price.cost(&Usage { input: Some(input), ..Usage::default() }, &[]);
        prop_assert!(cost(input) <= cost(input + more));
        prop_assert!(cost(input) >= 0);
    }
}
