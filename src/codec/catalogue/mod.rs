//! Catalogue of models: what each model takes, how long its context is, what it costs and when it ends.
//!
//! The facts stand in one file, `conf/catalogue.toml`, which is embedded in the binary; files of the operator are laid over it
//! ([`Catalogue::overlaid`]). This module turns the text into tables, and finds the row of a name. A lookup is made when a
//! configuration is loaded, once for each target, never for a request. This module must not read files, and must not know the
//! configuration, providers' addresses or requests.
//!
//! Names are compared in lower case, without a path and without the prefixes of a cloud. A name is *listed* if a row has it,
//! as it is or with a date or version behind it. For other names the longest *guess* gives the behavior; a guess never gives
//! a price, a limit or a date.

mod compile;
mod document;
mod entry;
mod factor;
mod facts;
mod fault;
mod layers;
mod media_facts;
mod names;
mod price;
mod row;
mod serving;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use jiff::civil::Date;

pub use entry::{CatalogueModel, CatalogueProvider, Family, How, NameAlias, Offer, RowSource};
pub use factor::{PriceFactor, parse_price, price_text};
pub use facts::{BudgetRange, EffortNames, ModelFacts};
pub use fault::CatalogueFault;
pub use price::{
    ListedPrice, ListedTier, LongRule, PeakWindow, PriceStep, ReducedHours, TOKEN_KINDS, TokenRate, UnitRate,
};
pub use words::{
    ApiFormat, ContentKind, DefaultEffort, InstructionsRole, LimitMember, ModelKind, PrefillRule,
    ReasoningControl, ReasoningOff, RowStatus, SamplingRule, SchemaSupport,
};

/// Text of the embedded catalogue.
pub const EMBEDDED: &str = include_str!("../../../conf/catalogue.toml");
/// Name of the embedded catalogue in messages.
pub const EMBEDDED_NAME: &str = "catalogue.toml of the gateway";
/// Most parts of a name at which a family is sought, so that a long name takes no longer.
const MAX_PARTS: usize = 8;
/// Longest name that is compared with patterns, for the same reason.
const MAX_PATTERNED: usize = 128;

/// Catalogue of models: compiled rows, found by name.
#[derive(Debug, Default)]
pub struct Catalogue {
    edition: Date,
    files: Vec<Box<str>>,
    sources: Vec<(Box<str>, Box<str>)>,
    providers: Vec<CatalogueProvider>,
    families: Vec<Family>,
    models: Vec<CatalogueModel>,
    aliases: Vec<NameAlias>,
    servings: Vec<serving::Serving>,
    index: NameIndex,
}

/// Offers of one provider by name: model, and offer of the model.
type OfferPlaces = HashMap<Box<str>, (usize, usize)>;

/// Places of rows by name.
#[derive(Debug, Default)]
struct NameIndex {
    /// Prefixes of clouds.
    prefixes: Vec<Box<str>>,
    matches: HashMap<Box<str>, usize>,
    guesses: HashMap<Box<str>, usize>,
    longest_guess: usize,
    /// Patterns, those with the most characters first.
    patterns: Vec<(serving::NamePattern, usize)>,
    models: HashMap<Box<str>, usize>,
    /// By provider, then by name: model, and offer of the model.
    offers: HashMap<Box<str>, OfferPlaces>,
    aliases: HashMap<Box<str>, Vec<usize>>,
}

impl NameIndex {
    /// Returns a name as the index has it.
    fn plain(&self, name: &str) -> Box<str> {
        names::without_prefixes(&names::without_path(name), &self.prefixes).into()
    }

    fn listed(&self, name: &str) -> Option<usize> {
        names::continuations(name).find_map(|name| self.matches.get(name)).copied()
    }

    /// Returns the family of the longest pattern that a name has, and the number of its characters.
    fn patterned(&self, name: &str) -> Option<(usize, usize)> {
        if name.len() > MAX_PATTERNED {
            return None;
        }
        self.patterns
            .iter()
            .find(|(pattern, _)| pattern.is_in(name))
            .map(|(pattern, at)| (*at, pattern.length()))
    }

    /// Returns the family of the longest guess that a name begins with, and the length of the guess.
    fn guessed(&self, name: &str) -> Option<(usize, usize)> {
        let longest = self.longest_guess.min(name.len());
        (1..=longest).rev().find_map(|end| Some((*self.guesses.get(name.get(..end)?)?, end)))
    }
}

/// Returns the day of a time in Unix seconds, in UTC.
pub fn day_of(unix_seconds: i64) -> Date {
    crate::canonical::time::date_of_day(unix_seconds.div_euclid(crate::canonical::time::DAY_SECONDS))
}

/// Price of a name at a provider during a range of days.
#[derive(Clone, Debug)]
pub struct DatedPrice<'c> {
    /// First day, in UTC. `None` if it has no beginning.
    pub from: Option<Date>,
    /// Last day, in UTC. `None` if it has no end.
    pub until: Option<Date>,
    /// Model that answers.
    pub model: &'c CatalogueModel,
    /// Offer that the row belongs to.
    pub offer: &'c Offer,
    /// Row. Its own days do not matter.
    pub row: &'c ListedPrice,
}

static COMPILED: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::overlaid(&[]).unwrap_or_default()));

impl Catalogue {
    /// Returns the embedded catalogue.
    pub fn embedded() -> &'static Arc<Catalogue> {
        &COMPILED
    }

    /// Compiles the embedded catalogue with files laid over it, each given as its name and text; later files lie above
    /// earlier ones.
    ///
    /// # Errors
    /// Returns all faults if there is any.
    pub fn overlaid(files: &[(&str, &str)]) -> Result<Catalogue, Vec<CatalogueFault>> {
        let mut all = vec![(EMBEDDED_NAME, EMBEDDED)];
        all.extend(files);
        Catalogue::read(&all)
    }

    /// Compiles the given files, the first of which is complete and the others of which are laid over it.
    ///
    /// # Errors
    /// Returns all faults if there is any.
    pub fn read(files: &[(&str, &str)]) -> Result<Catalogue, Vec<CatalogueFault>> {
        let faults = fault::FaultList::default();
        let mut rows = row::FileRows::default();
        for (at, (_, text)) in files.iter().enumerate() {
            let upper = row::read(&faults, at, text, at > 0);
            upper.check_unique(&faults);
            rows.lay_over(upper);
        }
        // Rows that could not be read would be missed by those that name them.
        if !faults.is_empty() {
            return Err(faults.into_faults(files));
        }
        let compiler =
            compile::Compiler { faults: &faults, files: files.iter().map(|(name, _)| *name).collect() };
        let catalogue = compiler.compile(rows);
        if faults.is_empty() { Ok(catalogue) } else { Err(faults.into_faults(files)) }
    }

    /// Returns the day of the facts: the latest of all files.
    pub fn edition(&self) -> Date {
        self.edition
    }

    /// Returns the names of the files, the embedded one first.
    pub fn files(&self) -> &[Box<str>] {
        &self.files
    }

    /// Returns what a word in the sources of rows stands for.
    pub fn sources(&self) -> &[(Box<str>, Box<str>)] {
        &self.sources
    }

    /// Returns all families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Returns all models.
    pub fn models(&self) -> &[CatalogueModel] {
        &self.models
    }

    /// Returns all aliases.
    pub fn aliases(&self) -> &[NameAlias] {
        &self.aliases
    }

    /// Returns all providers.
    pub fn providers(&self) -> &[CatalogueProvider] {
        &self.providers
    }

    /// Returns a provider by its id.
    pub fn provider(&self, id: &str) -> Option<&CatalogueProvider> {
        self.providers.iter().find(|provider| &*provider.id == id)
    }

    /// Returns a family by its id.
    pub fn family(&self, id: &str) -> Option<&Family> {
        self.families.iter().find(|family| &*family.id == id)
    }

    /// Returns the family of a model's name, and whether the name is listed or only resembles those that are. Names that
    /// begin otherwise are sought from each of their parts on (`databricks-claude-...`). Returns `None` for a name that
    /// resembles none.
    pub fn family_of(&self, name: &str) -> Option<(&Family, How)> {
        let (at, how) = self.family_index(name)?;
        Some((self.families.get(at)?, how))
    }

    fn family_index(&self, name: &str) -> Option<(usize, How)> {
        let plain = self.index.plain(name);
        if let Some(at) = self.index.listed(&plain) {
            return Some((at, How::Listed));
        }
        if let Some(at) = self.patterned(&plain) {
            return Some((at, How::Guessed));
        }
        let plain = names::without_variant(&plain).unwrap_or(&plain);
        let parts = plain.match_indices(['-', '.', '_', ':']).map(|(at, _)| at.saturating_add(1));
        let starts = std::iter::once(0).chain(parts).take(MAX_PARTS);
        let found = starts.filter_map(|start| plain.get(start..)).find_map(|rest| {
            self.index.listed(rest).or_else(|| self.index.guessed(rest).map(|(at, _)| at))
        })?;
        Some((found, How::Guessed))
    }

    /// Returns the family of a pattern that a name has. It comes before a guess; but of two families without conversations the
    /// one with the longer text is meant.
    fn patterned(&self, name: &str) -> Option<usize> {
        let (pattern, length) = self.index.patterned(name)?;
        let is_chat = |at: usize| {
            self.families.get(at).is_none_or(|family| family.facts.kind_or_chat() == ModelKind::Chat)
        };
        let guessed = self.index.guessed(name).filter(|(at, end)| *end >= length && !is_chat(*at));
        Some(guessed.filter(|_| !is_chat(pattern)).map_or(pattern, |(at, _)| at))
    }

    /// Returns what a model takes: the facts of its own row if it is listed, else those of its family.
    pub fn facts_of(&self, name: &str) -> Option<(&ModelFacts, How)> {
        if let Some(model) = self.model(name) {
            return Some((&model.facts, How::Listed));
        }
        self.family_of(name).map(|(family, how)| (&family.facts, how))
    }

    /// Returns the family of a listed model.
    pub fn family_of_model(&self, model: &CatalogueModel) -> Option<&Family> {
        self.families.get(model.family)
    }

    /// Returns a listed model by its name, as it is or with a date or version behind it.
    pub fn model(&self, name: &str) -> Option<&CatalogueModel> {
        let plain = self.index.plain(name);
        let at = names::continuations(&plain).find_map(|name| self.index.models.get(name))?;
        self.models.get(*at)
    }

    /// Returns the offer of a provider under a name, as it is or with a date or version behind it. Aliases are not followed.
    pub fn offer(&self, provider: &str, name: &str) -> Option<&Offer> {
        self.offer_index(provider, name).map(|(_, offer)| offer)
    }

    fn offer_index(&self, provider: &str, name: &str) -> Option<(&CatalogueModel, &Offer)> {
        let plain = self.index.plain(name);
        let of = |provider: &str| {
            let names = self.index.offers.get(provider)?;
            names::continuations(&plain).find_map(|name| names.get(name)).copied()
        };
        let same_as = || of(self.provider(provider)?.same_as.as_deref()?);
        let (model, offer) = of(provider).or_else(same_as)?;
        let model = self.models.get(model)?;
        Some((model, model.offers.get(offer)?))
    }

    /// Returns the aliases of a name at a provider.
    pub fn aliases_of(&self, provider: &str, name: &str) -> Vec<&NameAlias> {
        let same_as = self.provider(provider).and_then(|provider| provider.same_as.as_deref());
        let places =
            self.index.aliases.get(&*names::without_path(name)).map(Vec::as_slice).unwrap_or_default();
        let aliases = places.iter().filter_map(|at| self.aliases.get(*at));
        aliases.filter(|alias| &*alias.provider == provider || Some(&*alias.provider) == same_as).collect()
    }

    /// Returns a name as names are compared: in lower case, without a path and without the prefixes of a cloud.
    pub fn plain_name(&self, name: &str) -> Box<str> {
        self.index.plain(name)
    }

    /// Returns the prices of a name at a provider, in the order of their days. An alias comes before the model of the same
    /// name on the days on which it holds. Empty if no price is known.
    pub fn prices(&self, provider: &str, name: &str) -> Vec<DatedPrice<'_>> {
        let mut prices = Vec::new();
        let mut open = vec![(None, None)];
        for alias in self.aliases_of(provider, name) {
            let days = (alias.from, alias.until);
            if let Some((model, offer)) = self.offer_index(provider, &alias.model) {
                prices.extend(rows_within(model, offer, days));
            }
            open = open.into_iter().flat_map(|range| layers::days_without(range, days)).collect();
        }
        if let Some((model, offer)) = self.offer_index(provider, name) {
            for days in open {
                prices.extend(rows_within(model, offer, days));
            }
        }
        prices.sort_by_key(|price| price.from.unwrap_or(Date::MIN));
        prices
    }

    /// Returns the region that a model id of a cloud begins with: `us` of `us.anthropic.claude-...`.
    pub fn region_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        names::region_prefix(name.rsplit('/').next().unwrap_or(name), &self.index.prefixes)
    }
}

/// Returns the rows of an offer, cut to a range of days.
fn rows_within<'c>(
    model: &'c CatalogueModel,
    offer: &'c Offer,
    days: layers::DayRange,
) -> Vec<DatedPrice<'c>> {
    let rows = offer.prices.iter();
    rows.filter_map(|row| {
        let (from, until) = layers::common_days((row.from, row.until), days)?;
        Some(DatedPrice { from, until, model, offer, row })
    })
    .collect()
}
