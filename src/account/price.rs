//! What a model costs, and what a request costs by it: integers, one rounding a request, upwards.

use super::amount::NANOS;
use crate::canonical::{Product, Usage};

/// Kinds of tokens that may have a price of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Input.
    Input,
    /// Input read from the vendor's prompt cache.
    CachedInput,
    /// Input written to the vendor's prompt cache for 5 minutes, or for an unstated time.
    CacheWrite,
    /// Input written to the vendor's prompt cache for 1 hour.
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
    /// All of them, in the order in which they are documented.
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

    /// The name in the configuration.
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

    /// The kind whose price stands in where this one has none.
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

/// Amounts by kind of token, in nano-units per million tokens, as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates([Option<i64>; TokenKind::ALL.len()]);

impl Rates {
    /// Sets the amount of a kind.
    pub fn set(&mut self, kind: TokenKind, nanos: i64) {
        if let Some(slot) = self.0.get_mut(kind as usize) {
            *slot = Some(nanos);
        }
    }

    /// The amount that was given for a kind.
    pub fn given(&self, kind: TokenKind) -> Option<i64> {
        self.0.get(kind as usize).copied().flatten()
    }

    /// The amount that holds for a kind: its own, or that of the kind that it falls back to, or nothing.
    pub fn rate(&self, kind: TokenKind) -> i64 {
        let mut kind = kind;
        loop {
            match (self.given(kind), kind.falls_back_to()) {
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

/// The price of one thing that is made (an image, a second of video), which may depend on its size and quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The size, or resolution, that it is for; nothing for all.
    pub size: Option<Box<str>>,
    /// The quality that it is for; nothing for all.
    pub quality: Option<Box<str>>,
    /// Nano-units each.
    pub each: i64,
}

impl Unit {
    fn fits(&self, size: &str, quality: &str) -> bool {
        let fits = |wanted: &Option<Box<str>>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.size, size) && fits(&self.quality, quality)
    }
}

/// What was made besides tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    /// Images of one size and quality.
    Images {
        /// How many.
        count: u64,
        /// Their size, as the request names it (`1024x1024`); empty when it does not.
        size: &'a str,
        /// Their quality, likewise.
        quality: &'a str,
    },
    /// A video.
    Video {
        /// Its length.
        millis: u64,
        /// Its resolution (`720p`); empty when it is not known.
        resolution: &'a str,
    },
}

impl<'a> From<&'a Product> for Made<'a> {
    fn from(product: &'a Product) -> Self {
        match product {
            Product::Images { count, size, quality } => Made::Images { count: *count, size, quality },
            Product::Video { millis, resolution } => Made::Video { millis: *millis, resolution },
        }
    }
}

/// What is known of a price from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Tokens.
    pub rates: Rates,
    /// Tokens of requests with more input than a bound, by that bound. What one does not name stays as it is below.
    pub tiers: Vec<(u64, Rates)>,
    /// Images, the first that fits.
    pub images: Vec<Unit>,
    /// Seconds of video, the first that fits.
    pub video_seconds: Vec<Unit>,
    /// Nano-units for each search that the vendor ran.
    pub search: Option<i64>,
    /// Nano-units for each request.
    pub request: Option<i64>,
}

/// What a model costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Price {
    given: Given,
    /// With what is inherited, by rising bound; the bound of the first is nothing.
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

/// Tokens of a rate: rates are per so many.
const PER: u64 = 1_000_000;

impl Price {
    /// Puts a price together.
    pub fn new(mut given: Given) -> Price {
        given.tiers.sort_by_key(|(above, _)| *above);
        let mut tiers = Vec::with_capacity(1 + given.tiers.len());
        tiers.push(Tier::new(0, &given.rates));
        let mut below = given.rates;
        for (above, rates) in &given.tiers {
            below = rates.or(&below);
            tiers.push(Tier::new(*above, &below));
        }
        Price { given, tiers }
    }

    /// As it was given.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Whether there is none: then everything is free.
    pub fn is_empty(&self) -> bool {
        self.given == Given::default()
    }

    /// The tier of a request with so much input.
    fn tier(&self, input: u64) -> Option<&Tier> {
        self.tiers.iter().rev().find(|tier| tier.above == 0 || input > tier.above)
    }

    /// What a request costs, in nano-units. The exact sum is rounded up once.
    pub fn cost(&self, usage: &Usage, made: &[Made<'_>]) -> i64 {
        let mut sum = Sum(0);
        let input = input_parts(usage);
        if let Some(tier) = self.tier(input.total) {
            for (kind, tokens) in input.parts.into_iter().chain(output_parts(usage)) {
                sum.add(tokens, tier.rate(kind));
            }
        }
        let each = |nanos: Option<i64>| u64::try_from(nanos.unwrap_or(0)).unwrap_or(0);
        sum.add_scaled(usage.searches.unwrap_or(0), each(self.given.search), PER);
        sum.add_scaled(1, each(self.given.request), PER);
        for made in made {
            match *made {
                Made::Images { count, size, quality } => {
                    let unit = self.given.images.iter().find(|unit| unit.fits(size, quality));
                    sum.add_scaled(count, each(unit.map(|unit| unit.each)), PER);
                }
                Made::Video { millis, resolution } => {
                    let unit = self.given.video_seconds.iter().find(|unit| unit.fits(resolution, ""));
                    sum.add_scaled(millis, each(unit.map(|unit| unit.each)), PER / 1_000);
                }
            }
        }
        sum.nanos()
    }

    /// What a request may cost that sends `input` tokens and may get `output`, in nano-units.
    pub fn estimate(&self, input: u64, output: u64) -> i64 {
        let mut usage = Usage { input: Some(input), output: Some(output), ..Usage::default() };
        let tier = self.tier(input).copied().unwrap_or_default();
        if tier.rate(TokenKind::Reasoning) > tier.rate(TokenKind::Output) {
            usage.reasoning = Some(output);
        }
        self.cost(&usage, &[])
    }
}

/// Input by kind. The parts of what a vendor reports may exceed its total; nothing is charged beyond that.
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

/// Takes the named parts out of a total, in their order, as far as it goes. Without a total the parts are all.
fn split<const N: usize>(
    total: Option<u64>,
    named: [(TokenKind, Option<u64>); N],
) -> (u64, [(TokenKind, u64); N], u64) {
    let sum = || named.iter().filter_map(|(_, tokens)| *tokens).fold(0, u64::saturating_add);
    let total = total.unwrap_or_else(sum);
    let mut left = total;
    let parts = named.map(|(kind, tokens)| {
        let taken = tokens.unwrap_or(0).min(left);
        left -= taken;
        (kind, taken)
    });
    (total, parts, left)
}

/// A sum of money in millionths of nano-units.
struct Sum(u128);

impl Sum {
    fn add(&mut self, tokens: u64, rate: u64) {
        self.0 = self.0.saturating_add(u128::from(tokens) * u128::from(rate));
    }

    fn add_scaled(&mut self, count: u64, each: u64, scale: u64) {
        let amount = (u128::from(count) * u128::from(each)).saturating_mul(u128::from(scale));
        self.0 = self.0.saturating_add(amount);
    }

    /// Rounded up.
    fn nanos(&self) -> i64 {
        // A division of 64 bits takes a tenth of the time; it holds for all but absurd sums.
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
