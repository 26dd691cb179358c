//! One row of a price: what everything costs on the days on which the row holds.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::calendar::{Days, OffPeakRule};
use super::factor::{Multiplier, Scale, WideSum};
use super::kind::{Rates, TokenKind};
use super::parts::{OUTPUT, input_parts, output_parts};
use super::unit::{UnitPrice, unit_price};
use super::{CacheEffect, PER, Sum, Terms};
use crate::account::estimate::{ExpectedUsage, PremiumInputKinds};
use codec::canonical::{Product, Region, ServiceTier, Usage};

/// Row of a price as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceConfig {
    /// Days on which the row holds.
    pub days: Days,
    /// Whether the model is free on purpose.
    pub free: bool,
    /// Token prices.
    pub rates: Rates,
    /// Token prices of requests whose total input exceeds a bound, by that bound. A kind that a step does not name has
    /// the price of the step below.
    pub steps: Vec<(u64, Rates)>,
    /// Factors of requests whose total input exceeds a bound.
    pub long: Option<LongFactors>,
    /// Prices of service tiers.
    pub tiers: Vec<TierPrice>,
    /// Factors of regions.
    pub regions: Vec<(Region, Multiplier)>,
    /// Multiplier of the hours outside of peak hours.
    pub off_peak: Option<OffPeakRule>,
    /// Image prices; the first one that applies is charged.
    pub images: Vec<UnitPrice>,
    /// Prices per second of video; the first one that applies is charged.
    pub video_seconds: Vec<UnitPrice>,
    /// Price of each web search that the provider ran, in nano-units.
    pub search: Option<i64>,
    /// Price of each request, in nano-units.
    pub request: Option<i64>,
}

/// Factors of the token prices of a whole request whose total input exceeds a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongFactors {
    /// Input tokens that the request must exceed.
    pub above: u64,
    /// Multiplier of all kinds of input.
    pub input: Multiplier,
    /// Multiplier of all kinds of output.
    pub output: Multiplier,
}

/// Price of a service tier: a factor of all token prices, with exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierPrice {
    /// Tier.
    pub tier: ServiceTier,
    /// Multiplier of all kinds of tokens that have none of their own.
    pub factor: Multiplier,
    /// Kinds of tokens with another factor.
    pub odd: Vec<(TokenKind, Multiplier)>,
    /// Kinds of tokens with a price that is no multiple.
    pub rates: Rates,
}

/// Step of prices by total input, with inherited prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    above: u64,
    rates: [u64; TokenKind::ALL.len()],
}

impl Step {
    fn new(above: u64, rates: &Rates) -> Step {
        Step { above, rates: TokenKind::ALL.map(|kind| u64::try_from(rates.rate(kind)).unwrap_or(0)) }
    }

    fn rate(&self, kind: TokenKind) -> u64 {
        self.rates.get(kind as usize).copied().unwrap_or(0)
    }
}

/// Row of a price, ready for use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CompiledRow {
    pub(super) config: PriceConfig,
    /// Steps with inherited prices, by ascending bound; the bound of the first one is 0.
    steps: Vec<Step>,
}

/// What multiplies the token prices of a request.
#[derive(Clone, Copy)]
struct Multiples<'r> {
    long: Option<LongFactors>,
    tier: Option<&'r TierPrice>,
    region: Multiplier,
    hours: Multiplier,
}

impl Multiples<'_> {
    /// Whether nothing multiplies the prices.
    fn are_plain(&self) -> bool {
        let is_one = |factor: Multiplier| factor == Multiplier::ONE;
        self.long.is_none() && self.tier.is_none() && is_one(self.region) && is_one(self.hours)
    }

    /// Returns the price of a kind, in nano-units per million tokens, and what multiplies it.
    fn price(&self, step: &Step, kind: TokenKind) -> (u64, Scale) {
        let own = self.tier.and_then(|tier| tier.rates.configured(kind));
        let own = own.map(|rate| u64::try_from(rate).unwrap_or(0));
        let of_tier = |tier: &TierPrice| {
            let odd = tier.odd.iter().find(|(odd, _)| *odd == kind);
            odd.map_or(tier.factor, |(_, factor)| *factor)
        };
        let tier = self.tier.filter(|_| own.is_none()).map_or(Multiplier::ONE, of_tier);
        let long = match self.long {
            Some(long) if kind.is_output() => long.output,
            Some(long) => long.input,
            None => Multiplier::ONE,
        };
        (own.unwrap_or_else(|| step.rate(kind)), Scale::of([long, tier, self.region, self.hours]))
    }

    /// Returns the cost of tokens of a kind.
    fn cost(&self, step: &Step, kind: TokenKind, tokens: u64) -> WideSum {
        let (rate, scale) = self.price(step, kind);
        WideSum::product(u128::from(tokens).saturating_mul(u128::from(rate)), scale)
    }
}

impl CompiledRow {
    pub(super) fn new(mut config: PriceConfig) -> CompiledRow {
        config.steps.sort_by_key(|(above, _)| *above);
        let mut steps = Vec::with_capacity(config.steps.len().saturating_add(1));
        steps.push(Step::new(0, &config.rates));
        let mut below = config.rates;
        for (above, rates) in &config.steps {
            below = rates.or(&below);
            steps.push(Step::new(*above, &below));
        }
        CompiledRow { config, steps }
    }

    /// Returns whether nothing has a price.
    pub(super) fn is_empty(&self) -> bool {
        let days = self.config.days;
        self.config == PriceConfig { days, free: self.config.free, ..PriceConfig::default() }
    }

    /// Returns the step of a request with this total input.
    fn step(&self, input: u64) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.above == 0 || input > step.above)
    }

    /// Returns the price of a service tier. `None` for that of the list price, which is also the price of a tier without a
    /// price of its own, unless that may be dearer: then the dearest tier counts.
    fn tier(&self, tier: ServiceTier) -> Option<&TierPrice> {
        let of = |tier: ServiceTier| self.config.tiers.iter().find(|price| price.tier == tier);
        let own = of(tier).or_else(|| of(tier.twin()?));
        own.or_else(|| {
            let dearer = |price: &&TierPrice| price.factor > Multiplier::ONE;
            let known = self.config.tiers.iter().filter(dearer);
            known.max_by_key(|price| price.factor).filter(|_| tier.may_be_dearer())
        })
    }

    /// Returns whether the price of a service tier is known: it has one, or costs the list price at most.
    pub(super) fn has_tier(&self, tier: ServiceTier) -> bool {
        let has = |tier: ServiceTier| self.config.tiers.iter().any(|price| price.tier == tier);
        has(tier) || tier.twin().is_some_and(has) || !tier.may_be_dearer()
    }

    fn region(&self, region: Option<Region>) -> Multiplier {
        let factors = || self.config.regions.iter();
        match region {
            None => Multiplier::ONE,
            Some(Region::Unknown) => {
                factors().map(|(_, factor)| *factor).fold(Multiplier::ONE, Multiplier::max)
            }
            Some(region) => {
                factors().find(|(known, _)| *known == region).map_or(Multiplier::ONE, |(_, factor)| *factor)
            }
        }
    }

    fn multiples(&self, input: u64, terms: &Terms) -> Multiples<'_> {
        Multiples {
            long: self.config.long.filter(|long| input > long.above),
            tier: self.tier(terms.tier),
            region: self.region(terms.region),
            hours: self.config.off_peak.as_ref().map_or(Multiplier::ONE, |hours| hours.at(terms.at)),
        }
    }

    /// Returns the cost of a request in nano-units.
    pub(super) fn cost(&self, usage: &Usage, products: &[Product], terms: &Terms) -> i64 {
        let mut sum = Sum(0);
        let input = input_parts(usage);
        let multiples = self.multiples(input.total, terms);
        let parts = input.parts.into_iter().chain(output_parts(usage));
        let mut wide = None;
        if let Some(step) = self.step(input.total) {
            if multiples.are_plain() {
                parts.for_each(|(kind, tokens)| sum.add(tokens, step.rate(kind)));
            } else {
                let wide: &mut WideSum = wide.get_or_insert_default();
                parts.for_each(|(kind, tokens)| wide.add(multiples.cost(step, kind, tokens)));
            }
        }
        let each = |nanos: Option<i64>| u64::try_from(nanos.unwrap_or(0)).unwrap_or(0);
        sum.add_scaled(usage.searches.unwrap_or(0), each(self.config.search), PER);
        self.add_products(&mut sum, products, false);
        total(sum, wide)
    }

    /// Returns what the provider's prompt cache changed in the cost of a request.
    pub(super) fn cache_effect(&self, usage: &Usage, terms: &Terms) -> CacheEffect {
        let input = input_parts(usage);
        let Some(step) = self.step(input.total) else { return CacheEffect::default() };
        let multiples = self.multiples(input.total, terms);
        let (mut saved, mut surcharge) = (WideSum::default(), WideSum::default());
        for (kind, tokens) in input.parts.into_iter().filter(|(_, tokens)| *tokens > 0) {
            let plain = match kind {
                TokenKind::CachedAudioInput => TokenKind::AudioInput,
                TokenKind::CachedImageInput => TokenKind::ImageInput,
                _ => TokenKind::Input,
            };
            let costs = || [plain, kind].map(|kind| multiples.cost(step, kind, tokens));
            match kind {
                TokenKind::CachedInput | TokenKind::CachedAudioInput | TokenKind::CachedImageInput => {
                    let [plain, own] = costs();
                    saved.add(plain.less(own));
                }
                TokenKind::CacheWrite | TokenKind::CacheWrite1h | TokenKind::CacheWrite12h => {
                    let [plain, own] = costs();
                    surcharge.add(own.less(plain));
                }
                _ => {}
            }
        }
        CacheEffect { saved: saved.nanos().unsigned_abs(), surcharge: surcharge.nanos().unsigned_abs() }
    }

    /// Returns the estimated cost of a request that is served in this tier, in nano-units.
    pub(super) fn estimate(&self, expected: &ExpectedUsage<'_>, terms: &Terms) -> i64 {
        let steps = || self.steps.iter().filter(|step| step.above == 0 || expected.input > step.above);
        // Of which kinds the input will be is unknown: take the highest possible price for all of it.
        let inputs = || {
            let plain = [TokenKind::Input, TokenKind::CachedInput];
            let cached = [TokenKind::CachedAudioInput, TokenKind::CachedImageInput];
            plain.into_iter().chain(cached).chain(expected.premium_input.kinds())
        };
        let output = expected.reserved_output();
        let reached = self.multiples(expected.input, terms);
        let mut sum = Sum(0);
        let mut wide = None;
        if reached.are_plain() {
            let dearest = |kinds: &mut dyn Iterator<Item = TokenKind>| {
                let rates = kinds.flat_map(|kind| steps().map(move |step| step.rate(kind)));
                rates.max().unwrap_or(0)
            };
            sum.add(expected.input, dearest(&mut inputs()));
            sum.add(output, dearest(&mut OUTPUT.into_iter()));
        } else {
            // A request of less input than expected is not a long one.
            let short = Multiples { long: None, ..reached };
            let dearest = |kinds: &mut dyn Iterator<Item = TokenKind>, tokens: u64| {
                let costs = kinds.flat_map(|kind| {
                    let both = [&short, &reached].into_iter();
                    both.flat_map(move |multiples| {
                        steps().map(move |step| multiples.cost(step, kind, tokens))
                    })
                });
                costs.max().unwrap_or_default()
            };
            let wide: &mut WideSum = wide.get_or_insert_default();
            wide.add(dearest(&mut inputs(), expected.input));
            wide.add(dearest(&mut OUTPUT.into_iter(), output));
        }
        self.add_products(&mut sum, expected.products, true);
        total(sum, wide)
    }

    /// Returns the kinds of input that cost more than plain input in at least one step or tier.
    pub(super) fn premium_input(&self) -> PremiumInputKinds {
        let none = Multiples { long: None, tier: None, region: Multiplier::ONE, hours: Multiplier::ONE };
        let tiers = || {
            let priced = self.config.tiers.iter().map(|tier| Multiples { tier: Some(tier), ..none });
            std::iter::once(none).chain(priced)
        };
        let dear = |kind: &TokenKind| {
            self.steps.iter().any(|step| {
                tiers().any(|tier| tier.cost(step, *kind, 1) > tier.cost(step, TokenKind::Input, 1))
            })
        };
        PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter().filter(dear))
    }

    /// Returns whether a price per second of video applies to this resolution.
    pub(super) fn has_resolution_price(&self, resolution: &str) -> bool {
        self.config.video_seconds.iter().any(|unit| unit.fits(resolution, ""))
    }

    /// Adds the price of the products and of the request itself.
    fn add_products(&self, sum: &mut Sum, products: &[Product], dearest: bool) {
        sum.add_scaled(1, u64::try_from(self.config.request.unwrap_or(0)).unwrap_or(0), PER);
        for product in products {
            match product {
                Product::Images { count, size, quality } => {
                    sum.add_scaled(*count, unit_price(&self.config.images, size, quality, dearest), PER);
                }
                Product::Video { millis, resolution } => {
                    let each = unit_price(&self.config.video_seconds, resolution, "", dearest);
                    sum.add_scaled(*millis, each, PER / 1_000);
                }
            }
        }
    }
}

/// Returns the sum of both parts in nano-units, rounded up once.
fn total(sum: Sum, wide: Option<WideSum>) -> i64 {
    match wide {
        None => sum.nanos(),
        Some(mut wide) => {
            wide.add(WideSum::product(sum.0, Scale::ONE));
            wide.nanos()
        }
    }
}
