//! Prices of models, and the cost of requests: integer arithmetic, rounded up once per request.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::amount::NANOS;
use super::estimate::{ExpectedUsage, PremiumInputKinds};
use crate::canonical::{Product, Usage};

/// Kind of tokens that may have a price of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Input.
    Input,
    /// Input read from the provider's prompt cache.
    CachedInput,
    /// Input written to the provider's prompt cache for 5 minutes, or for an unstated time.
    CacheWrite,
    /// Input written to the provider's prompt cache for 1 hour.
    CacheWrite1h,
    /// Output.
    Output,
    /// Output that is reasoning.
    Reasoning,
    /// Input that is audio.
    AudioInput,
    /// Output that is audio.
    AudioOutput,
    /// Input that is images.
    ImageInput,
    /// Output that is images.
    ImageOutput,
}

impl TokenKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [TokenKind; 10] = [
        TokenKind::Input,
        TokenKind::CachedInput,
        TokenKind::CacheWrite,
        TokenKind::CacheWrite1h,
        TokenKind::Output,
        TokenKind::Reasoning,
        TokenKind::AudioInput,
        TokenKind::AudioOutput,
        TokenKind::ImageInput,
        TokenKind::ImageOutput,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TokenKind::Input => "input",
            TokenKind::CachedInput => "cached_input",
            TokenKind::CacheWrite => "cache_write",
            TokenKind::CacheWrite1h => "cache_write_1h",
            TokenKind::Output => "output",
            TokenKind::Reasoning => "reasoning",
            TokenKind::AudioInput => "audio_input",
            TokenKind::AudioOutput => "audio_output",
            TokenKind::ImageInput => "image_input",
            TokenKind::ImageOutput => "image_output",
        }
    }

    /// Returns the kind whose price applies if this kind has none. `None` for plain input and output.
    pub const fn falls_back_to(self) -> Option<TokenKind> {
        match self {
            TokenKind::Input | TokenKind::Output => None,
            TokenKind::CacheWrite1h => Some(TokenKind::CacheWrite),
            TokenKind::CachedInput
            | TokenKind::CacheWrite
            | TokenKind::AudioInput
            | TokenKind::ImageInput => Some(TokenKind::Input),
            TokenKind::Reasoning | TokenKind::AudioOutput | TokenKind::ImageOutput => Some(TokenKind::Output),
        }
    }
}

/// Configured prices by kind of token, in nano-units per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates([Option<i64>; TokenKind::ALL.len()]);

impl Rates {
    /// Sets the price of a kind.
    pub fn set(&mut self, kind: TokenKind, nanos: i64) {
        if let Some(slot) = self.0.get_mut(kind as usize) {
            *slot = Some(nanos);
        }
    }

    /// Returns the configured price of a kind; `None` if it has none.
    pub fn configured(&self, kind: TokenKind) -> Option<i64> {
        self.0.get(kind as usize).copied().flatten()
    }

    /// Returns the effective price of a kind: its own, or that of the kind it falls back to, or 0.
    pub fn rate(&self, kind: TokenKind) -> i64 {
        let mut kind = kind;
        loop {
            match (self.configured(kind), kind.falls_back_to()) {
                (Some(rate), _) => return rate,
                (None, Some(next)) => kind = next,
                (None, None) => return 0,
            }
        }
    }

    fn or(mut self, below: &Rates) -> Rates {
        for (slot, other) in self.0.iter_mut().zip(below.0) {
            *slot = slot.or(other);
        }
        self
    }
}

/// Unit price of an image or of a second of video, which may depend on size and quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitPrice {
    /// Size or resolution that it applies to; `None` for all.
    pub size: Option<Box<str>>,
    /// Quality that it applies to; `None` for all.
    pub quality: Option<Box<str>>,
    /// Price per unit, in nano-units.
    pub price: i64,
}

/// Returns true if the choice of a size or quality is left to the provider.
fn is_open(name: &str) -> bool {
    matches!(name, "" | "auto")
}

impl UnitPrice {
    fn fits(&self, size: &str, quality: &str) -> bool {
        let fits = |configured: &Option<Box<str>>, value: &str| {
            configured.as_deref().is_none_or(|configured| configured == value)
        };
        fits(&self.size, size) && fits(&self.quality, quality)
    }

    /// Returns true if this price may apply in the end, where the provider chooses what the request leaves open.
    fn may_fit(&self, size: &str, quality: &str) -> bool {
        let may = |configured: &Option<Box<str>>, value: &str| {
            is_open(value) || configured.as_deref().is_none_or(|configured| configured == value)
        };
        may(&self.size, size) && may(&self.quality, quality)
    }

    /// Returns true if this price applies whatever the provider chooses.
    fn always_fits(&self, size: &str, quality: &str) -> bool {
        let fits = |configured: &Option<Box<str>>, value: &str| {
            configured.as_deref().is_none_or(|configured| !is_open(value) && configured == value)
        };
        fits(&self.size, size) && fits(&self.quality, quality)
    }
}

/// Returns the unit price in nano-units: the first one that applies, or else the highest of all. For an estimate
/// (`dearest`) returns the highest of those that may apply; of all prices, if the provider may choose something that
/// none applies to.
fn unit_price(units: &[UnitPrice], size: &str, quality: &str, dearest: bool) -> u64 {
    let found = if dearest {
        let is_certain = units.iter().any(|unit| unit.always_fits(size, quality));
        let may_hold = |unit: &&UnitPrice| !is_certain || unit.may_fit(size, quality);
        units.iter().filter(may_hold).map(|unit| unit.price).max()
    } else {
        let found = units.iter().find(|unit| unit.fits(size, quality)).map(|unit| unit.price);
        found.or_else(|| units.iter().map(|unit| unit.price).max())
    };
    u64::try_from(found.unwrap_or(0)).unwrap_or(0)
}

/// Price as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceConfig {
    /// Token prices.
    pub rates: Rates,
    /// Token prices of requests whose total input exceeds a bound, by that bound. A kind that a tier does not name has
    /// the price of the tier below.
    pub tiers: Vec<(u64, Rates)>,
    /// Image prices; the first one that applies is charged.
    pub images: Vec<UnitPrice>,
    /// Prices per second of video; the first one that applies is charged.
    pub video_seconds: Vec<UnitPrice>,
    /// Price of each web search that the provider ran, in nano-units.
    pub search: Option<i64>,
    /// Price of each request, in nano-units.
    pub request: Option<i64>,
}

/// Price of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Price {
    config: PriceConfig,
    /// Tiers with inherited prices, by ascending bound; the bound of the first one is 0.
    tiers: Vec<Tier>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tier {
    above: u64,
    rates: [u64; TokenKind::ALL.len()],
}

impl Tier {
    fn new(above: u64, rates: &Rates) -> Tier {
        Tier { above, rates: TokenKind::ALL.map(|kind| u64::try_from(rates.rate(kind)).unwrap_or(0)) }
    }

    fn rate(&self, kind: TokenKind) -> u64 {
        self.rates.get(kind as usize).copied().unwrap_or(0)
    }
}

/// Number of tokens that a token price refers to.
const PER: u64 = 1_000_000;

impl Price {
    /// Builds a price from its configuration.
    pub fn new(mut config: PriceConfig) -> Price {
        config.tiers.sort_by_key(|(above, _)| *above);
        let mut tiers = Vec::with_capacity(config.tiers.len().saturating_add(1));
        tiers.push(Tier::new(0, &config.rates));
        let mut below = config.rates;
        for (above, rates) in &config.tiers {
            below = rates.or(&below);
            tiers.push(Tier::new(*above, &below));
        }
        Price { config, tiers }
    }

    /// Returns the configuration of the price.
    pub fn config(&self) -> &PriceConfig {
        &self.config
    }

    /// Returns true if nothing has a price, so that requests are free.
    pub fn is_empty(&self) -> bool {
        self.config == PriceConfig::default()
    }

    /// Returns true if a price per second of video applies to this resolution.
    pub fn has_resolution_price(&self, resolution: &str) -> bool {
        self.config.video_seconds.iter().any(|unit| unit.fits(resolution, ""))
    }

    /// Returns the tier of a request with this total input.
    fn tier(&self, input: u64) -> Option<&Tier> {
        self.tiers.iter().rev().find(|tier| tier.above == 0 || input > tier.above)
    }

    /// Returns the cost of a request in nano-units: the request itself, its tokens and searches, and the products it
    /// made. The exact sum is rounded up once.
    pub fn cost(&self, usage: &Usage, products: &[Product]) -> i64 {
        let mut sum = Sum(0);
        let input = input_parts(usage);
        if let Some(tier) = self.tier(input.total) {
            for (kind, tokens) in input.parts.into_iter().chain(output_parts(usage)) {
                sum.add(tokens, tier.rate(kind));
            }
        }
        let each = |nanos: Option<i64>| u64::try_from(nanos.unwrap_or(0)).unwrap_or(0);
        sum.add_scaled(usage.searches.unwrap_or(0), each(self.config.search), PER);
        self.add_products(&mut sum, products, false);
        sum.nanos()
    }

    /// Returns what the provider's prompt cache changed in the cost of a request, in nano-units: the savings of reads
    /// and the surcharges of writes, each against the price of plain input, and each 0 if it is none.
    pub fn cache_effect(&self, usage: &Usage) -> CacheEffect {
        let input = input_parts(usage);
        let Some(tier) = self.tier(input.total) else { return CacheEffect::default() };
        let plain = tier.rate(TokenKind::Input);
        let (mut saved, mut surcharge) = (Sum(0), Sum(0));
        for (kind, tokens) in input.parts {
            match kind {
                TokenKind::CachedInput => saved.add(tokens, plain.saturating_sub(tier.rate(kind))),
                TokenKind::CacheWrite | TokenKind::CacheWrite1h => {
                    surcharge.add(tokens, tier.rate(kind).saturating_sub(plain));
                }
                _ => {}
            }
        }
        let nanos = |sum: &Sum| sum.nanos().unsigned_abs();
        CacheEffect { saved: nanos(&saved), surcharge: nanos(&surcharge) }
    }

    /// Returns the estimated cost of a request in nano-units: at least the actual cost if the request uses no more than
    /// expected. Where several prices may apply, the highest is taken.
    pub fn estimate(&self, expected: &ExpectedUsage<'_>) -> i64 {
        let reached = |tier: &&Tier| tier.above == 0 || expected.input > tier.above;
        let dearest = |kinds: &[TokenKind]| {
            let tiers = self.tiers.iter().filter(reached);
            tiers.flat_map(|tier| kinds.iter().map(|kind| tier.rate(*kind))).max().unwrap_or(0)
        };
        let mut sum = Sum(0);
        // Of which kinds the input will be is unknown: take the highest possible price for all of it.
        let input = [TokenKind::Input, TokenKind::CachedInput].map(|kind| dearest(&[kind]));
        let dear = expected.premium_input.kinds().map(|kind| dearest(&[kind]));
        sum.add(expected.input, input.into_iter().chain(dear).max().unwrap_or(0));
        sum.add(expected.reserved_output(), dearest(&OUTPUT));
        self.add_products(&mut sum, expected.products, true);
        sum.nanos()
    }

    /// Returns the kinds of input that cost more than plain input in at least one tier.
    pub fn premium_input(&self) -> PremiumInputKinds {
        let dear =
            |kind: &TokenKind| self.tiers.iter().any(|tier| tier.rate(*kind) > tier.rate(TokenKind::Input));
        PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter().filter(dear))
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

/// Effect of the provider's prompt cache on the cost of a request, in nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheEffect {
    /// Savings of reads against plain input.
    pub saved: u64,
    /// Surcharges of writes against plain input.
    pub surcharge: u64,
}

/// Kinds of output.
const OUTPUT: [TokenKind; 4] =
    [TokenKind::Output, TokenKind::Reasoning, TokenKind::AudioOutput, TokenKind::ImageOutput];

/// Input by kind. If the reported parts exceed the reported total, the excess is not charged.
struct InputParts {
    total: u64,
    parts: [(TokenKind, u64); 6],
}

fn input_parts(usage: &Usage) -> InputParts {
    let named = [
        (TokenKind::CachedInput, usage.cached),
        (TokenKind::CacheWrite, usage.cache_write),
        (TokenKind::CacheWrite1h, usage.cache_write_1h),
        (TokenKind::AudioInput, usage.audio_input),
        (TokenKind::ImageInput, usage.image_input),
    ];
    let (total, [cached, write, write_1h, audio, image], plain) = split(usage.input, named);
    InputParts { total, parts: [(TokenKind::Input, plain), cached, write, write_1h, audio, image] }
}

fn output_parts(usage: &Usage) -> [(TokenKind, u64); 4] {
    let named = [
        (TokenKind::Reasoning, usage.reasoning),
        (TokenKind::AudioOutput, usage.audio_output),
        (TokenKind::ImageOutput, usage.image_output),
    ];
    let (_, [reasoning, audio, image], plain) = split(usage.output, named);
    [(TokenKind::Output, plain), reasoning, audio, image]
}

/// Splits a total into the named parts, in order, and the rest. Without a total, the sum of the parts is the total.
/// Parts beyond the total are cut off.
fn split<const N: usize>(
    total: Option<u64>,
    named: [(TokenKind, Option<u64>); N],
) -> (u64, [(TokenKind, u64); N], u64) {
    let sum = || named.iter().filter_map(|(_, tokens)| *tokens).fold(0, u64::saturating_add);
    let total = total.unwrap_or_else(sum);
    let mut left = total;
    let parts = named.map(|(kind, tokens)| {
        let taken = tokens.unwrap_or(0).min(left);
        // `taken` is at most `left`.
        left = left.saturating_sub(taken);
        (kind, taken)
    });
    (total, parts, left)
}

/// Sum of money in millionths of nano-units, so that products of tokens and prices are exact.
struct Sum(u128);

impl Sum {
    fn add(&mut self, tokens: u64, rate: u64) {
        // The product of two 64-bit numbers fits into 128 bits. A sum beyond that saturates: it must not become a small
        // charge.
        self.0 = self.0.saturating_add(u128::from(tokens).saturating_mul(u128::from(rate)));
    }

    fn add_scaled(&mut self, count: u64, each: u64, scale: u64) {
        let amount = u128::from(count).saturating_mul(u128::from(each)).saturating_mul(u128::from(scale));
        self.0 = self.0.saturating_add(amount);
    }

    /// Returns the sum in nano-units, rounded up; saturates.
    fn nanos(&self) -> i64 {
        // A 64-bit division takes a tenth of the time of a 128-bit one, and all realistic sums fit into 64 bits.
        let nanos = match u64::try_from(self.0) {
            Ok(sum) => u128::from(sum.div_ceil(PER)),
            Err(_) => self.0.div_ceil(u128::from(PER)),
        };
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }
}

const _: () = assert!(NANOS == 1_000_000_000, "rates are nano-units per million tokens");

#[cfg(test)]
mod tests;
