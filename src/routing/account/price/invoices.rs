//! Invoices worked by hand from the providers' price pages of November 2026: what a request costs, to the nano-unit.

use super::*;
use crate::account::amount::{self, Amount};
use codec::canonical::time::unix_seconds;

fn nanos(text: &str) -> i64 {
    amount::parse(text).unwrap()
}

fn day(text: &str) -> i64 {
    unix_seconds(&format!("{text}T00:00:00Z")).unwrap() / 86_400
}

fn rates(list: &str) -> Rates {
    let mut rates = Rates::default();
    for (name, price) in list.split(", ").filter_map(|entry| entry.split_once(' ')) {
        let kind = TokenKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap();
        rates.set(kind, nanos(price));
    }
    rates
}

fn factor(text: &str) -> Multiplier {
    Multiplier::parse(text).unwrap()
}

/// A row from prices and factors of tiers (`batch 0.5, priority 2`).
fn row(prices: &str, tiers: &str) -> PriceConfig {
    let tiers = tiers.split(", ").filter_map(|entry| entry.split_once(' '));
    let tiers = tiers.map(|(name, multiple)| TierPrice {
        tier: ServiceTier::from_name(name).unwrap(),
        factor: factor(multiple),
        ..TierPrice::default()
    });
    PriceConfig { rates: rates(prices), tiers: tiers.collect(), ..PriceConfig::default() }
}

fn long(row: PriceConfig, above: u64, input: &str, output: &str) -> PriceConfig {
    PriceConfig { long: Some(LongFactors { above, input: factor(input), output: factor(output) }), ..row }
}

fn region(row: PriceConfig, regions: &[(Region, &str)]) -> PriceConfig {
    let regions = regions.iter().map(|(region, multiple)| (*region, factor(multiple))).collect();
    PriceConfig { regions, ..row }
}

fn sol() -> PriceConfig {
    let prices = "input 2, cached_input 0.1, cache_write 2.5, cache_write_12h 5, output 10";
    let row = row(prices, "batch 0.5, flex 0.5, priority 2, ultrafast 6");
    let row = region(long(row, 272_000, "2", "1.5"), &[(Region::Eu, "1.1"), (Region::Us, "1.1")]);
    PriceConfig { search: Some(nanos("0.01")), ..row }
}

fn opus() -> PriceConfig {
    let prices = "input 4, cached_input 0.2, cache_write 5, cache_write_1h 8, output 20";
    let row = region(row(prices, "batch 0.5, fast 2"), &[(Region::Us, "1.1")]);
    PriceConfig { search: Some(nanos("0.01")), ..row }
}

fn haiku() -> PriceConfig {
    let prices = "input 0.1, cached_input 0.01, cache_write 0.125, cache_write_1h 0.2, output 0.5";
    long(row(prices, "batch 0.5"), 100_000, "5", "5")
}

/// The price doubles on 2026-12-01.
fn argon() -> Price {
    let of = |prices, from: Option<&str>, until: Option<&str>| PriceConfig {
        days: Days { from: from.map(day), until: until.map(day) },
        ..row(prices, "batch 0.5, flex 0.5, priority 1.8")
    };
    Price::of_rows(vec![
        of("input 4, cached_input 0.2, output 20", Some("2026-12-01"), None),
        of("input 2, cached_input 0.1, output 10", None, Some("2026-11-30")),
    ])
}

/// Flex has a price of cached input that is no multiple of the list price.
fn flash_lite() -> PriceConfig {
    let mut row = row("input 0.3, cached_input 0.03, output 2.5", "batch 0.5, flex 0.5, priority 1.8");
    row.tiers[1].rates = rates("cached_input 0.02");
    row.tiers[2].rates = rates("cached_input 0.05");
    row
}

/// Batch and flex leave cached input at its list price.
fn pro_preview() -> PriceConfig {
    let row = row("input 2, cached_input 0.2, output 12", "batch 0.5, flex 0.5, priority 1.8");
    let mut row = long(row, 200_000, "2", "1.5");
    for tier in row.tiers.iter_mut().take(2) {
        tier.odd = vec![(TokenKind::CachedInput, Multiplier::ONE)];
    }
    row
}

fn grok() -> PriceConfig {
    long(row("input 2, cached_input 0.5, output 6", "batch 0.8"), 199_999, "2", "2")
}

fn deepseek() -> PriceConfig {
    let peak = ["Mon-Fri 01:00-04:00", "Mon-Fri 06:00-10:00"].map(|hours| PeakHours::parse(hours).unwrap());
    let off_peak = Some(OffPeakRule { factor: factor("0.5"), peak: peak.to_vec(), holidays: Vec::new() });
    PriceConfig { off_peak, ..row("input 0.3, cached_input 0.006, output 1.2", "") }
}

fn realtime_mini() -> PriceConfig {
    let prices = "input 0.6, cached_input 0.06, output 2.4, audio_input 10, audio_output 20, image_input 0.8, \
                  cached_audio_input 0.3, cached_image_input 0.08";
    row(prices, "")
}

fn qwen() -> PriceConfig {
    PriceConfig {
        steps: vec![(32_000, rates("input 2.4, output 12")), (128_000, rates("input 3, output 15"))],
        ..row("input 1.2, output 6", "")
    }
}

fn mini() -> PriceConfig {
    row("input 0.15, cached_input 0.075, output 0.6", "batch 0.5, priority 1.666667")
}

/// Builds usage from figures (`input 1000, cached 100`).
fn usage(figures: &str) -> Usage {
    let mut usage = Usage::default();
    for (name, tokens) in figures.split(", ").filter_map(|entry| entry.split_once(' ')) {
        let slot = match name {
            "input" => &mut usage.input,
            "cached" => &mut usage.cached,
            "write" => &mut usage.cache_write,
            "write_1h" => &mut usage.cache_write_1h,
            "write_12h" => &mut usage.cache_write_12h,
            "output" => &mut usage.output,
            "audio" => &mut usage.audio_input,
            "image" => &mut usage.image_input,
            "cached_audio" => &mut usage.cached_audio_input,
            "cached_image" => &mut usage.cached_image_input,
            "audio_out" => &mut usage.audio_output,
            "searches" => &mut usage.searches,
            other => panic!("{other}"),
        };
        *slot = Some(tokens.parse().unwrap());
    }
    usage
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn price_invoices_worked_by_hand() {
    use ServiceTier::*;
    let one = |row: PriceConfig| Price::new(row);
    let friday = "2026-11-27T12:00:00Z";
    let long_sol = "input 300000, cached 100000, output 10000";
    for (name, price, time, tier, place, figures, cost) in [
        // 1000 x 2 + 500 x 10, per million.
        ("Sol", one(sol()), friday, Standard, None, "input 1000, output 500", "0.007"),
        // Twice that, and half of it.
        ("Sol priority", one(sol()), friday, Priority, None, "input 1000, output 500", "0.014"),
        ("Sol fast is priority", one(sol()), friday, Fast, None, "input 1000, output 500", "0.014"),
        ("Sol flex", one(sol()), friday, Flex, None, "input 1000, output 500", "0.0035"),
        ("Sol batch", one(sol()), friday, Batch, None, "input 1000, output 500", "0.0035"),
        ("Sol ultrafast", one(sol()), friday, Ultrafast, None, "input 1000, output 500", "0.042"),
        ("Sol, tier of tomorrow", one(sol()), friday, Unknown, None, "input 1000, output 500", "0.042"),
        ("Sol, own capacity", one(sol()), friday, Reserved, None, "input 1000, output 500", "0.007"),
        // (2000 x 2 + 6000 x 0.1 + 1000 x 2.5 + 1000 x 5 + 100 x 10) / 1e6 = 0.0131.
        (
            "Sol, cache writes of both lifetimes",
            one(sol()),
            friday,
            Standard,
            None,
            "input 10000, cached 6000, write 1000, write_12h 1000, output 100",
            "0.0131",
        ),
        // (200000 x 2 + 100000 x 0.1) x 2 + 10000 x 10 x 1.5 = 820000 + 150000, per million.
        ("Sol long", one(sol()), friday, Standard, None, long_sol, "0.97"),
        ("Sol long, batch", one(sol()), friday, Batch, None, long_sol, "0.485"),
        ("Sol long, priority, Europe", one(sol()), friday, Priority, Some(Region::Eu), long_sol, "2.134"),
        ("Sol at the bound", one(sol()), friday, Standard, None, "input 272000, output 0", "0.544"),
        ("Sol above it", one(sol()), friday, Standard, None, "input 272001, output 0", "1.088004"),
        // Searches have no factor: 0.014 + 3 x 0.01.
        (
            "Sol priority with searches",
            one(sol()),
            friday,
            Priority,
            None,
            "input 1000, output 500, searches 3",
            "0.044",
        ),
        // 1000 x 4 + 500 x 20 = 0.014; fast twice, in the United States 1.1 times.
        (
            "Opus fast in the US",
            one(opus()),
            friday,
            Fast,
            Some(Region::Us),
            "input 1000, output 500",
            "0.0308",
        ),
        // 5000 x 4 + 4000 x 0.2 + 2000 x 5 + 1000 x 8 + 100 x 20 = 40800, fast twice.
        (
            "Opus fast, cache factors on top",
            one(opus()),
            friday,
            Fast,
            None,
            "input 12000, cached 4000, write 2000, write_1h 1000, output 100",
            "0.0816",
        ),
        ("Haiku", one(haiku()), friday, Standard, None, "input 100000, output 1000", "0.0105"),
        // 100001 x 0.5 + 1000 x 2.5 = 52500.5 millionths.
        ("Haiku long", one(haiku()), friday, Standard, None, "input 100001, output 1000", "0.0525005"),
        ("Haiku long, batch", one(haiku()), friday, Batch, None, "input 100001, output 1000", "0.02625025"),
        (
            "Argon in November",
            argon(),
            "2026-11-30T23:59:59Z",
            Standard,
            None,
            "input 1000, output 100",
            "0.003",
        ),
        (
            "Argon in December",
            argon(),
            "2026-12-01T00:00:00Z",
            Standard,
            None,
            "input 1000, output 100",
            "0.006",
        ),
        (
            "Argon priority in December",
            argon(),
            "2026-12-01T00:00:00Z",
            Priority,
            None,
            "input 1000, output 100",
            "0.0108",
        ),
        // 500 x 0.15 + 500 x 0.02 + 100 x 1.25 = 75 + 10 + 125 millionths.
        (
            "Flash-Lite flex",
            one(flash_lite()),
            friday,
            Flex,
            None,
            "input 1000, cached 500, output 100",
            "0.00021",
        ),
        // 500 x 0.54 + 500 x 0.05 + 100 x 4.5 = 270 + 25 + 450.
        (
            "Flash-Lite priority",
            one(flash_lite()),
            friday,
            Priority,
            None,
            "input 1000, cached 500, output 100",
            "0.000745",
        ),
        // (50000 x 2 x 0.5 + 200000 x 0.2) x 2 + 1000 x 12 x 0.5 x 1.5 = 180000 + 9000.
        (
            "3.1 Pro long, batch, cached at list price",
            one(pro_preview()),
            friday,
            Batch,
            None,
            "input 250000, cached 200000, output 1000",
            "0.189",
        ),
        // xAI counts from 200000 on.
        ("Grok below", one(grok()), friday, Standard, None, "input 199999, output 0", "0.399998"),
        ("Grok from there on", one(grok()), friday, Standard, None, "input 200000, output 0", "0.8"),
        ("Grok batch", one(grok()), friday, Batch, None, "input 1000, cached 500, output 100", "0.00148"),
        // Friday noon is off-peak, half past one in the night is not: 500 x 0.3 + 500 x 0.006 + 100 x 1.2 = 273.
        (
            "DeepSeek off-peak",
            one(deepseek()),
            friday,
            Standard,
            None,
            "input 1000, cached 500, output 100",
            "0.0001365",
        ),
        (
            "DeepSeek at peak",
            one(deepseek()),
            "2026-11-27T01:30:00Z",
            Standard,
            None,
            "input 1000, cached 500, output 100",
            "0.000273",
        ),
        // 1000 = 100 cached audio + 50 cached images + 150 other cached + 300 audio + 100 images + 300 text:
        // 30 + 4 + 9 + 3000 + 80 + 180; output 40 x 2.4 + 60 x 20 = 1296. Sum 4599.
        (
            "Realtime mini with cached audio",
            one(realtime_mini()),
            friday,
            Standard,
            None,
            "input 1000, cached 300, cached_audio 100, cached_image 50, audio 400, image 150, output 100, audio_out 60",
            "0.004599",
        ),
        ("Qwen, second step", one(qwen()), friday, Standard, None, "input 32001, output 10", "0.0769224"),
        ("Qwen, third step", one(qwen()), friday, Standard, None, "input 130000, output 10", "0.39015"),
        // One token of 0.15 x 1.666667 per million is 0.25000005 nano-units x 1000, rounded up once.
        (
            "4o mini priority, rounded up",
            one(mini()),
            friday,
            Priority,
            None,
            "input 1, output 0",
            "0.000000251",
        ),
        ("4o mini priority", one(mini()), friday, Priority, None, "input 1000000, output 0", "0.25000005"),
    ] {
        let terms = Terms { at: unix_seconds(time).unwrap(), tier, region: place };
        let is = price.cost(&usage(figures), &[], &terms);
        assert_eq!(Amount(is).to_string(), cost, "{name}");
        // The reservation covers what was expected exactly.
        let usage = usage(figures);
        let expected = ExpectedUsage {
            input: usage.input.unwrap(),
            output: usage.output,
            at: terms.at,
            tiers: codec::canonical::TierSet::one(tier),
            region: place,
            premium_input: price.premium_input(),
            ..ExpectedUsage::default()
        };
        let searches = i64::try_from(usage.searches.unwrap_or(0)).unwrap() * nanos("0.01");
        assert!(price.estimate(&expected) >= is - searches, "{name}");
    }
}

#[test]
fn price_of_a_day_without_a_row_is_unknown() {
    let bounded = PriceConfig {
        days: Days { from: Some(day("2026-11-01")), until: Some(day("2026-11-30")) },
        ..row("input 1, output 1", "")
    };
    let price = Price::new(bounded);
    let at = |text: &str| unix_seconds(text).unwrap();
    for (time, is_unknown) in [
        ("2026-10-31T23:59:59Z", true),
        ("2026-11-01T00:00:00Z", false),
        ("2026-11-30T23:59:59Z", false),
        ("2026-12-01T00:00:00Z", true),
    ] {
        assert_eq!(price.is_unknown(at(time)), is_unknown, "{time}");
    }
    assert!(Price::default().is_unknown(0) && Price::default().is_empty());
    let free = Price::new(PriceConfig { free: true, ..PriceConfig::default() });
    assert!(!free.is_unknown(0) && free.is_empty());
    // A price of 0 is a price.
    assert!(!Price::new(row("input 0", "")).is_unknown(0));
}

#[test]
fn price_of_tiers_is_known_or_not() {
    use ServiceTier::*;
    let sol = Price::new(PriceConfig { tiers: row("", "flex 0.5, priority 2").tiers, ..sol() });
    let known = ServiceTier::ALL.map(|tier| sol.has_tier(tier, 0));
    assert_eq!(
        known,
        [Standard, Batch, Flex, Priority, Fast, Ultrafast, Reserved, Unknown]
            .map(|tier| { !matches!(tier, Ultrafast | Unknown) })
    );
    // Tiers that are cheaper only make no tier cheaper that may be dearer.
    let pro = Price::new(row("input 30, output 180", "batch 0.5, flex 0.5"));
    let terms = |tier| Terms { tier, ..Terms::default() };
    assert_eq!(pro.cost(&usage("input 1, output 0"), &[], &terms(Priority)), 30_000);
    assert_eq!(pro.cost(&usage("input 1, output 0"), &[], &terms(Flex)), 15_000);
}
