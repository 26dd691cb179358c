//! What a model costs, and what a request costs by it: integers, one rounding a request, upwards.

use super::amount::NANOS;
use super::estimate::{ExpectedUsage, PremiumInputKinds};
use crate::canonical::{Product, Usage};

/// Kinds of tokens that may have a price of their own.
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

/// Unit price of an image or of a second of video, which may depend on size and quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitPrice {
    /// The size, or resolution, that it is for; nothing for all.
    pub size: Option<Box<str>>,
    /// The quality that it is for; nothing for all.
    pub quality: Option<Box<str>>,
    /// Nano-units each.
    pub each: i64,
}

/// Whether a size or quality is left to the provider.
fn is_open(name: &str) -> bool {
    matches!(name, "" | "auto")
}

impl UnitPrice {
    fn fits(&self, size: &str, quality: &str) -> bool {
        let fits = |wanted: &Option<Box<str>>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.size, size) && fits(&self.quality, quality)
    }

    /// Whether it may be what holds in the end, where the provider chooses what the request does not name.
    fn may_fit(&self, size: &str, quality: &str) -> bool {
        let may = |wanted: &Option<Box<str>>, is: &str| {
            is_open(is) || wanted.as_deref().is_none_or(|wanted| wanted == is)
        };
        may(&self.size, size) && may(&self.quality, quality)
    }

    /// Whether it fits whatever the provider chooses.
    fn fits_surely(&self, size: &str, quality: &str) -> bool {
        let fits = |wanted: &Option<Box<str>>, is: &str| {
            wanted.as_deref().is_none_or(|wanted| !is_open(is) && wanted == is)
        };
        fits(&self.size, size) && fits(&self.quality, quality)
    }
}

/// The first price that fits; what none fits costs the dearest of all. For an estimate (`dearest`) the dearest of those
/// that may hold: of all where something is open and none fits whatever is chosen.
fn each(units: &[UnitPrice], size: &str, quality: &str, dearest: bool) -> u64 {
    let found = if dearest {
        let is_certain = units.iter().any(|unit| unit.fits_surely(size, quality));
        let may_hold = |unit: &&UnitPrice| !is_certain || unit.may_fit(size, quality);
        units.iter().filter(may_hold).map(|unit| unit.each).max()
    } else {
        let found = units.iter().find(|unit| unit.fits(size, quality)).map(|unit| unit.each);
        found.or_else(|| units.iter().map(|unit| unit.each).max())
    };
    u64::try_from(found.unwrap_or(0)).unwrap_or(0)
}

/// Price as it stands in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceConfig {
    /// Tokens.
    pub rates: Rates,
    /// Tokens of requests with more input than a bound, by that bound. What one does not name stays as it is below.
    pub tiers: Vec<(u64, Rates)>,
    /// Images, the first that fits.
    pub images: Vec<UnitPrice>,
    /// Seconds of video, the first that fits.
    pub video_seconds: Vec<UnitPrice>,
    /// Nano-units for each search that the provider ran.
    pub search: Option<i64>,
    /// Nano-units for each request.
    pub request: Option<i64>,
}

/// What a model costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Price {
    given: PriceConfig,
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
    pub fn new(mut given: PriceConfig) -> Price {
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
    pub fn given(&self) -> &PriceConfig {
        &self.given
    }

    /// Whether there is none: then everything is free.
    pub fn is_empty(&self) -> bool {
        self.given == PriceConfig::default()
    }

    /// Whether a second of video of a resolution has a price that is for it.
    pub fn knows_resolution(&self, resolution: &str) -> bool {
        self.given.video_seconds.iter().any(|unit| unit.fits(resolution, ""))
    }

    /// The tier of a request with so much input.
    fn tier(&self, input: u64) -> Option<&Tier> {
        self.tiers.iter().rev().find(|tier| tier.above == 0 || input > tier.above)
    }

    /// What a request costs, in nano-units: one request, its tokens and searches, and what was made besides. The exact
    /// sum is rounded up once.
    pub fn cost(&self, usage: &Usage, made: &[Product]) -> i64 {
        let mut sum = Sum(0);
        let input = input_parts(usage);
        if let Some(tier) = self.tier(input.total) {
            for (kind, tokens) in input.parts.into_iter().chain(output_parts(usage)) {
                sum.add(tokens, tier.rate(kind));
            }
        }
        let each = |nanos: Option<i64>| u64::try_from(nanos.unwrap_or(0)).unwrap_or(0);
        sum.add_scaled(usage.searches.unwrap_or(0), each(self.given.search), PER);
        self.add_pieces(&mut sum, made, false);
        sum.nanos()
    }

    /// What a request may cost, in nano-units: never less than what it does cost if it uses no more than is expected.
    /// Where it is open which price will hold, it is the dearest.
    pub fn estimate(&self, expected: &ExpectedUsage<'_>) -> i64 {
        let reached = |tier: &&Tier| tier.above == 0 || expected.input > tier.above;
        let dearest = |kinds: &[TokenKind]| {
            let tiers = self.tiers.iter().filter(reached);
            tiers.flat_map(|tier| kinds.iter().map(|kind| tier.rate(*kind))).max().unwrap_or(0)
        };
        let mut sum = Sum(0);
        let input = [TokenKind::Input, TokenKind::CachedInput].map(|kind| dearest(&[kind]));
        let dear = expected.dear.kinds().map(|kind| dearest(&[kind]));
        sum.add(expected.input, input.into_iter().chain(dear).max().unwrap_or(0));
        sum.add(expected.all_output(), dearest(&OUTPUT));
        self.add_pieces(&mut sum, expected.made, true);
        sum.nanos()
    }

    /// Kinds of input that cost more than plain input, and may cost it whenever a request has them.
    pub fn dear(&self) -> PremiumInputKinds {
        let dear =
            |kind: &TokenKind| self.tiers.iter().any(|tier| tier.rate(*kind) > tier.rate(TokenKind::Input));
        PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter().filter(dear))
    }

    /// Adds what is paid for by the piece, and the request itself.
    fn add_pieces(&self, sum: &mut Sum, made: &[Product], dearest: bool) {
        sum.add_scaled(1, u64::try_from(self.given.request.unwrap_or(0)).unwrap_or(0), PER);
        for made in made {
            match made {
                Product::Images { count, size, quality } => {
                    sum.add_scaled(*count, each(&self.given.images, size, quality, dearest), PER);
                }
                Product::Video { millis, resolution } => {
                    let each = each(&self.given.video_seconds, resolution, "", dearest);
                    sum.add_scaled(*millis, each, PER / 1_000);
                }
            }
        }
    }
}

/// Kinds of output.
const OUTPUT: [TokenKind; 4] =
    [TokenKind::Output, TokenKind::Reasoning, TokenKind::AudioOutput, TokenKind::ImageOutput];

/// Input by kind. The parts of what a provider reports may exceed its total; nothing is charged beyond that.
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
