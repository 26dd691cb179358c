//! Catalogue of models: the file that is laid over the embedded one, and the prices that the catalogue gives to targets.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::Date;

use super::report::{Problem, Report};
use super::routes::ReadFile;
use crate::account::price::{Price, PriceConfig, Rates, TokenKind, UnitPrice};
use crate::catalogue::{
    Catalogue, DatedPrice, ListedPrice, LongRule, PriceFactor, TokenRate, UnitRate, day_of,
};
use crate::provider::{Provider, ProviderKind};
use crate::route::Target;

/// Reads the catalogue in effect. `None` is the embedded one alone.
///
/// # Errors
/// Returns [`Report`] if the file cannot be read, or with all of its faults.
pub(super) fn load(path: Option<&Path>, read: ReadFile<'_>) -> Result<Arc<Catalogue>, Report> {
    let Some(path) = path else { return Ok(Catalogue::embedded().clone()) };
    let text = read(path).map_err(|error| Report::of_file(path, format!("cannot be read: {error}")))?;
    let name = path.display().to_string();
    Catalogue::overlaid(&[(&name, &text)]).map(Arc::new).map_err(|faults| Report {
        problems: faults
            .into_iter()
            .map(|fault| Problem {
                file: fault.file.to_string().into(),
                line: fault.line,
                column: fault.column,
                key: fault.key,
                message: fault.message,
                hint: fault.hint,
            })
            .collect(),
    })
}

/// Returns the current day in UTC.
pub fn today() -> Date {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    day_of(i64::try_from(now).unwrap_or(i64::MAX))
}

/// Returns the id of a provider in the catalogue: its own name if a row has it, else that of its kind or preset. `None` if the
/// catalogue does not know it.
pub fn catalogue_provider<'c>(catalogue: &'c Catalogue, provider: &Provider) -> Option<&'c str> {
    let of_kind = match provider.kind {
        ProviderKind::Bedrock => "bedrock",
        ProviderKind::Vertex => "vertex",
        ProviderKind::VertexAnthropic => "vertex-anthropic",
        ProviderKind::OpenAiCompatible
        | ProviderKind::OpenAi
        | ProviderKind::Anthropic
        | ProviderKind::Gemini => provider.preset.name(),
        ProviderKind::DashScope => "qwen",
        other => other.name(),
    };
    let found = catalogue.provider(&provider.name).or_else(|| catalogue.provider(of_kind));
    found.map(|provider| &*provider.id)
}

/// Prices and limits that the catalogue gives to targets.
pub(super) struct CataloguePrices<'c> {
    catalogue: &'c Catalogue,
    /// Day on which the configuration is loaded.
    day: Date,
}

impl<'c> CataloguePrices<'c> {
    pub(super) fn new(catalogue: &'c Catalogue) -> Self {
        CataloguePrices { catalogue, day: today() }
    }

    /// Gives each target without a price of its own that of the catalogue. Returns the price of the model: that of the first
    /// target that has one, which is empty if none has.
    pub(super) fn price_targets(&self, targets: &mut [Target]) -> Arc<Price> {
        let mut first = None;
        for target in targets {
            if target.price.is_none() {
                target.price = self.price(target);
            }
            first = first.or_else(|| target.price.clone());
        }
        first.unwrap_or_default()
    }

    /// Returns the context window that all targets have: the smallest. `None` if that of one is not known.
    pub(super) fn context_window(&self, targets: &[Target]) -> Option<u32> {
        let windows: Option<Vec<u64>> = targets
            .iter()
            .map(|target| {
                let family = || self.catalogue.model(target.family.as_deref()?);
                self.catalogue.model(&target.model).or_else(family)?.context
            })
            .collect();
        windows?.into_iter().min().and_then(|window| u32::try_from(window).ok())
    }

    /// Returns the price of a target, by its name at the provider or else by its configured family.
    fn price(&self, target: &Target) -> Option<Arc<Price>> {
        let provider = catalogue_provider(self.catalogue, &target.provider)?;
        let mut names = [Some(&*target.model), target.family.as_deref()].into_iter().flatten();
        names.find_map(|name| listed_price(self.catalogue, provider, name, self.day))
    }
}

/// Returns the price of a name at a provider of the catalogue on a day. A row that has ended without another one still counts: a
/// request is not free because a list is old.
pub(super) fn listed_price(
    catalogue: &Catalogue,
    provider: &str,
    name: &str,
    day: Date,
) -> Option<Arc<Price>> {
    let prices = catalogue.prices(provider, name);
    let holds = |price: &&DatedPrice<'_>| {
        price.from.is_none_or(|from| from <= day) && price.until.is_none_or(|until| day <= until)
    };
    let row = prices.iter().find(holds).or(prices.last())?.row;
    let region = catalogue.region_of(name);
    let factor = row.regions.iter().find(|(key, _)| Some(&**key) == region);
    Some(Arc::new(price_of(row, factor.map_or(PriceFactor::ONE, |(_, factor)| *factor))))
}

/// Converts a row of the catalogue: its standard tier, in one region.
fn price_of(row: &ListedPrice, region: PriceFactor) -> Price {
    let rates = rates_of(&row.rates, |_| region);
    let mut tiers: Vec<(u64, Rates)> = Vec::new();
    if let Some(LongRule { above, input, output }) = row.long {
        let factor = |kind: &str| if is_output(kind) { times(output, region) } else { times(input, region) };
        tiers.push((above, rates_of(&row.rates, factor)));
    }
    tiers.extend(row.steps.iter().map(|step| (step.above, rates_of(&step.rates, |_| region))));
    Price::new(PriceConfig {
        rates,
        tiers,
        images: row.images.iter().map(unit_of).collect(),
        video_seconds: row.video_seconds.iter().map(unit_of).collect(),
        search: row.search,
        request: row.request,
    })
}

fn is_output(kind: &str) -> bool {
    kind == "reasoning" || kind.ends_with("output")
}

fn times(a: PriceFactor, b: PriceFactor) -> PriceFactor {
    PriceFactor {
        numerator: a.numerator.saturating_mul(b.numerator),
        denominator: a.denominator.saturating_mul(b.denominator),
    }
}

/// Returns the rates times a factor, rounded up to a nano-unit. Kinds that the gateway does not count are left out.
fn rates_of(listed: &[TokenRate], factor: impl Fn(&str) -> PriceFactor) -> Rates {
    let mut rates = Rates::default();
    for rate in listed {
        let Some(kind) = TokenKind::ALL.into_iter().find(|kind| kind.name() == rate.kind) else { continue };
        let PriceFactor { numerator, denominator } = factor(rate.kind);
        let product = u128::from(rate.nanos.unsigned_abs()).saturating_mul(u128::from(numerator));
        let nanos = product.div_ceil(u128::from(denominator.max(1)));
        rates.set(kind, i64::try_from(nanos).unwrap_or(i64::MAX));
    }
    rates
}

fn unit_of(unit: &UnitRate) -> UnitPrice {
    UnitPrice { size: unit.size.clone(), quality: unit.quality.clone(), price: unit.nanos }
}
