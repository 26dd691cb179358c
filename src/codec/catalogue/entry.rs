//! Compiled rows: inherited, checked and complete.

use jiff::civil::Date;

use super::factor::PriceFactor;
use super::facts::ModelFacts;
use super::price::{ListedPrice, ReducedHours};
use super::words::RowStatus;

/// Where a row comes from and how far it is confirmed.
#[derive(Clone, Debug)]
pub struct RowSource {
    /// Name of the file.
    pub file: Box<str>,
    /// Pages, recordings or catalogues that state the facts.
    pub source: Box<str>,
    /// How far it is confirmed.
    pub status: RowStatus,
    /// What other sources state.
    pub disputed: Option<Box<str>>,
    /// Remark.
    pub note: Option<Box<str>>,
}

/// Family of models: they take the same requests, wherever they are served.
#[derive(Clone, Debug)]
pub struct Family {
    /// Id.
    pub id: Box<str>,
    /// Family from which facts are inherited.
    pub like: Option<Box<str>>,
    /// Names of its models.
    pub matches: Vec<Box<str>>,
    /// Beginnings of names of models that are not listed.
    pub guesses: Vec<Box<str>>,
    /// What the models take.
    pub facts: ModelFacts,
    /// Where the row comes from.
    pub source: RowSource,
}

/// Model, as far as it is the same at all providers.
#[derive(Clone, Debug)]
pub struct CatalogueModel {
    /// Id at its maker.
    pub id: Box<str>,
    /// Index of the family.
    pub(super) family: usize,
    /// Context window, in tokens.
    pub context: Option<u64>,
    /// Most input tokens of a request, if fewer than the context window.
    pub input_limit: Option<u64>,
    /// Most output tokens of a request.
    pub output: Option<u64>,
    /// What the model takes: the facts of the family, with those of its own.
    pub facts: ModelFacts,
    /// Offers of providers.
    pub offers: Vec<Offer>,
    /// Where the row comes from.
    pub source: RowSource,
}

/// Model as one provider sells it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Id of the provider in the catalogue.
    pub provider: Box<str>,
    /// Name at the provider.
    pub name: Box<str>,
    /// Day on which it stops to answer.
    pub retires: Option<Date>,
    /// Day before which it will not stop to answer.
    pub retires_not_before: Option<Date>,
    /// Model that the provider recommends instead.
    pub successor: Option<Box<str>>,
    /// Provider whose prices these are.
    pub same_as: Option<Box<str>>,
    /// Prices, in the order of their days, without an overlap and without a gap. Empty if no price is known.
    pub prices: Vec<ListedPrice>,
    /// Where the row comes from.
    pub source: RowSource,
}

impl Offer {
    /// Returns the price of a day.
    pub fn price_on(&self, day: Date) -> Option<&ListedPrice> {
        self.prices.iter().find(|row| row.holds_on(day))
    }
}

/// Name that a provider moves, or that another model answers after the end of the one that it named.
#[derive(Clone, Debug)]
pub struct NameAlias {
    /// Name.
    pub name: Box<str>,
    /// Provider that answers to it.
    pub provider: Box<str>,
    /// Id of the model that answers.
    pub model: Box<str>,
    /// First day. `None` if it has always been so.
    pub from: Option<Date>,
    /// Last day.
    pub until: Option<Date>,
    /// Where the row comes from.
    pub source: RowSource,
}

/// Provider, as far as it names tiers, regions and models in its own way.
#[derive(Clone, Debug)]
pub struct CatalogueProvider {
    /// Id.
    pub id: Box<str>,
    /// Provider whose offers these are, as far as it has none of its own.
    pub same_as: Option<Box<str>>,
    /// Prefixes of its model ids.
    pub strip: Vec<Box<str>>,
    /// The provider's words for tiers, with those of price rows.
    pub tier_names: Vec<(Box<str>, Box<str>)>,
    /// Members of requests that ask for a tier.
    pub asks: Option<Box<str>>,
    /// Members of responses that state the tier.
    pub tells: Option<Box<str>>,
    /// What decides on the region of a request.
    pub region: Option<Box<str>>,
    /// The provider's own list of models.
    pub lists: Option<Box<str>>,
    /// Family that its models are taken for whose names resemble none.
    pub family: Option<Box<str>>,
    /// Hours of a lower price.
    pub off_peak: Option<ReducedHours>,
    /// Where the row comes from.
    pub source: RowSource,
}

/// How a family was found for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The name is listed, as it is or with a date or version behind it.
    Listed,
    /// The name only begins like those of the family: it says nothing about price, limits and dates.
    Guessed,
}

/// Prices of one offer, with the factors of another one's row replaced.
pub(super) fn replace_factors(
    row: &ListedPrice,
    tiers: Option<&Vec<(Box<str>, PriceFactor)>>,
    regions: Option<&Vec<(Box<str>, PriceFactor)>>,
) -> ListedPrice {
    let mut row = row.clone();
    if let Some(tiers) = tiers {
        row.odd.retain(|odd| tiers.iter().any(|(tier, _)| *tier == odd.tier));
        row.tiers.clone_from(tiers);
    }
    if let Some(regions) = regions {
        row.regions.clone_from(regions);
    }
    row
}
