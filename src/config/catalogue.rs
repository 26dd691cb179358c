//! Catalogue of models: the file that is laid over the embedded one, and the prices that the catalogue gives to targets.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::Date;

use super::catalogue_rows;
use super::report::{Problem, Report};
use super::routes::ReadFile;
use codec::catalogue::{Catalogue, CatalogueModel, day_of};
use codec::provider::{Provider, ProviderKind};
use routing::account::price::Price;
use routing::route::{ListedLimits, PriceOrigin, Target};

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
}

impl<'c> CataloguePrices<'c> {
    pub(super) fn new(catalogue: &'c Catalogue) -> Self {
        CataloguePrices { catalogue }
    }

    /// Gives each target without a price of its own that of the catalogue. Returns the price of the model: that of the first
    /// target that has one, which is empty if none has.
    pub(super) fn price_targets(&self, targets: &mut [Target]) -> (Arc<Price>, PriceOrigin) {
        let mut first = None;
        for target in targets {
            if target.price.is_none() {
                target.price = self.price(target);
                target.price_origin = PriceOrigin::Catalogue;
            }
            first = first.or_else(|| Some((target.price.clone()?, target.price_origin)));
        }
        first.unwrap_or_default()
    }

    /// Returns the context window that all targets have: the smallest. `None` if that of one is not known.
    pub(super) fn context_window(&self, targets: &[Target]) -> Option<u32> {
        self.smallest(targets, |model| model.context)
    }

    /// Returns the limits that all targets have, within the context window of the model.
    pub(super) fn limits(&self, targets: &[Target], window: Option<u32>) -> ListedLimits {
        let input = self.smallest(targets, |model| model.input_limit.or(model.context));
        let output = self.smallest(targets, |model| model.output);
        ListedLimits {
            input: input.filter(|input| window.is_none_or(|window| *input < window)),
            output: output.map(|output| window.map_or(output, |window| output.min(window))),
        }
    }

    /// Returns the smallest number of all targets. `None` if that of one is not known.
    fn smallest(&self, targets: &[Target], of: impl Fn(&CatalogueModel) -> Option<u64>) -> Option<u32> {
        let numbers: Option<Vec<u64>> = targets
            .iter()
            .map(|target| {
                let family = || self.catalogue.model(target.family.as_deref()?);
                of(self.catalogue.model(&target.model).or_else(family)?)
            })
            .collect();
        numbers?.into_iter().min().and_then(|number| u32::try_from(number).ok())
    }

    /// Returns the price of a target, by its name at the provider or else by its configured family.
    fn price(&self, target: &Target) -> Option<Arc<Price>> {
        let provider = catalogue_provider(self.catalogue, &target.provider)?;
        let mut names = [Some(&*target.model), target.family.as_deref()].into_iter().flatten();
        names.find_map(|name| listed_price(self.catalogue, provider, name))
    }
}

/// Returns the price of a name at a provider of the catalogue: its rows by date. The last row has no end: a request is not free
/// because a list is old.
pub(super) fn listed_price(catalogue: &Catalogue, provider: &str, name: &str) -> Option<Arc<Price>> {
    let hours = catalogue.provider(provider).and_then(|provider| provider.off_peak.as_ref());
    let mut rows = catalogue_rows::rows(&catalogue.prices(provider, name), hours);
    rows.iter_mut().max_by_key(|row| row.days.from)?.days.until = None;
    Some(Arc::new(Price::of_rows(rows)))
}
