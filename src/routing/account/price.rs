//! Prices of models, and the cost of requests: integer arithmetic, rounded up once per request.
//!
//! A price has rows by date; the row of the day on which a request began counts. A row multiplies: its token prices, by
//! kind and by the length of the request, times the factors of the service tier, the region and the hour.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod calendar;
mod factor;
mod kind;
mod parts;
mod row;
mod unit;

pub use calendar::{Days, OffPeakRule, PeakHours, date, now};
pub use factor::Multiplier;
pub use kind::{Rates, TokenKind};
pub use row::{LongFactors, PriceConfig, TierPrice};
pub use unit::UnitPrice;

use row::CompiledRow;

use super::amount::NANOS;
use super::estimate::{ExpectedUsage, PremiumInputKinds};
use codec::canonical::{Product, Region, ServiceTier, Usage};

/// Terms under which a request was served, as far as its price depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Start of the request, in Unix seconds.
    pub at: i64,
    /// Service tier.
    pub tier: ServiceTier,
    /// Region; `None` for none with a price of its own.
    pub region: Option<Region>,
}

/// Price of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Rows by their first day.
    rows: Vec<CompiledRow>,
    /// Kinds of input that cost more than plain input in at least one row.
    premium_input: PremiumInputKinds,
}

/// Number of tokens that a token price refers to.
const PER: u64 = 1_000_000;

impl Price {
    /// Builds a price of one row.
    pub fn new(config: PriceConfig) -> Price {
        Price::of_rows(vec![config])
    }

    /// Builds a price of several rows. If two hold on the same day, the later one counts.
    pub fn of_rows(mut rows: Vec<PriceConfig>) -> Price {
        rows.sort_by_key(|row| row.days.from);
        let rows: Vec<CompiledRow> = rows.into_iter().map(CompiledRow::new).collect();
        let premium = rows.iter().map(CompiledRow::premium_input);
        let premium_input = premium.fold(PremiumInputKinds::default(), PremiumInputKinds::or);
        Price { rows, premium_input }
    }

    /// Returns the rows as configured, by their first day.
    pub fn rows(&self) -> impl Iterator<Item = &PriceConfig> {
        self.rows.iter().map(|row| &row.config)
    }

    /// Returns the row of a point in time, in Unix seconds. `None` if none holds then.
    fn row(&self, at: i64) -> Option<&CompiledRow> {
        self.rows.iter().rev().find(|row| row.config.days.have(at))
    }

    /// Returns the row as configured that holds at a point in time, in Unix seconds. `None` if none does.
    pub fn row_at(&self, at: i64) -> Option<&PriceConfig> {
        self.row(at).map(|row| &row.config)
    }

    /// Returns true if nothing has a price, on any day, so that requests are free.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(CompiledRow::is_empty)
    }

    /// Returns true if it is not known what a request costs at this time, in Unix seconds: no row holds then, or one
    /// without any price that is not free on purpose.
    pub fn is_unknown(&self, at: i64) -> bool {
        self.row(at).is_none_or(|row| row.is_empty() && !row.config.free)
    }

    /// Returns true if the price of a service tier is known at this time, in Unix seconds: it has a price of its own, or
    /// costs the list price at most.
    pub fn has_tier(&self, tier: ServiceTier, at: i64) -> bool {
        self.row(at).is_none_or(|row| row.has_tier(tier))
    }

    /// Returns true if service tiers have prices at this time, in Unix seconds.
    pub fn has_tiers(&self, at: i64) -> bool {
        self.row(at).is_some_and(|row| !row.config.tiers.is_empty())
    }

    /// Returns true if a price per second of video applies to this resolution.
    pub fn has_resolution_price(&self, resolution: &str) -> bool {
        self.rows.iter().any(|row| row.has_resolution_price(resolution))
    }

    /// Returns the cost of a request in nano-units: the request itself, its tokens and searches, and the products it
    /// made. The exact sum is rounded up once.
    pub fn cost(&self, usage: &Usage, products: &[Product], terms: &Terms) -> i64 {
        self.row(terms.at).map_or(0, |row| row.cost(usage, products, terms))
    }

    /// Returns what the provider's prompt cache changed in the cost of a request, in nano-units: the savings of reads
    /// and the surcharges of writes, each against the price of plain input, and each 0 if it is none.
    pub fn cache_effect(&self, usage: &Usage, terms: &Terms) -> CacheEffect {
        self.row(terms.at).map_or_else(CacheEffect::default, |row| row.cache_effect(usage, terms))
    }

    /// Returns the estimated cost of a request in nano-units: at least the actual cost if the request uses no more than
    /// expected and is served in an expected tier. Where several prices may apply, the highest is taken.
    pub fn estimate(&self, expected: &ExpectedUsage<'_>) -> i64 {
        let Some(row) = self.row(expected.at) else { return 0 };
        let region = expected.region;
        let terms = expected.tiers.tiers().map(|tier| Terms { at: expected.at, tier, region });
        terms.map(|terms| row.estimate(expected, &terms)).max().unwrap_or(0)
    }

    /// Returns the kinds of input that cost more than plain input in at least one step of one row.
    pub fn premium_input(&self) -> PremiumInputKinds {
        self.premium_input
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
mod factor_tests;
#[cfg(test)]
mod invoices;
#[cfg(test)]
mod tests;
