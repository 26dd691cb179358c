//! Prices: those of a model in routes.toml, and a file of prices of many models that routes.toml names.

use std::path::Path;
use std::sync::Arc;

use super::node::{Document, Table};
use super::report::Report;
use crate::account::Pattern;
use crate::account::price::{Price, PriceConfig, Rates, TokenKind, UnitPrice};

/// Prices by names of models, in the order of their file.
#[derive(Debug, Default)]
pub(super) struct PriceList(Vec<(Vec<Pattern>, Arc<Price>)>);

impl PriceList {
    /// The first price for the first of these names that has one.
    pub(super) fn find<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<Arc<Price>> {
        names.find_map(|name| {
            let fits = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
            self.0.iter().find(|(patterns, _)| fits(patterns)).map(|(_, price)| price.clone())
        })
    }
}

pub(super) fn read(file: &Path, text: &str) -> Result<PriceList, Report> {
    let document = Document::new(file, text);
    let list = document.read(|root| {
        let mut list = Vec::new();
        root.tables("price", |table| {
            let mut patterns = Vec::new();
            if let Some(models) = table.require("models", "models = [\"gpt-4o\", \"gpt-4o-2024-*\"]")
                && models.elements(|element| patterns.extend(element.as_str().map(Pattern::new))) == Some(0)
            {
                models.wrong("a price without a model is nobody's", None);
            }
            list.push((patterns, read_price(table)));
        });
        PriceList(list)
    });
    document.into_report().into_result()?;
    list.ok_or_else(|| Report::of_file(file, "cannot be understood"))
}

/// Reads the amounts of one price, which may stand among other keys.
pub(super) fn read_price(table: &Table<'_>) -> Arc<Price> {
    let rates = read_rates(table);
    let mut tiers: Vec<(u64, Rates)> = Vec::new();
    table.tables("tiers", |tier| {
        let above = tier
            .require("above", "above = 200000")
            .and_then(|value| u64::try_from(value.as_integer(&(1..=1_000_000_000))?).ok());
        let rates = read_rates(tier);
        let Some(above) = above else { return };
        if tiers.iter().any(|(other, _)| *other == above) {
            tier.wrong(format!("there are two tiers above {above}"), None);
        }
        tiers.push((above, rates));
    });
    Arc::new(Price::new(PriceConfig {
        rates,
        tiers,
        images: read_units(table, "image", true),
        video_seconds: read_units(table, "video_second", false),
        search: table.amount("search"),
        request: table.amount("request"),
    }))
}

fn read_rates(table: &Table<'_>) -> Rates {
    let mut rates = Rates::default();
    for kind in TokenKind::ALL {
        if let Some(nanos) = table.amount(kind.name()) {
            rates.set(kind, nanos);
        }
    }
    rates
}

/// One amount for all, or a list by size and quality, of which the first that fits holds.
fn read_units(table: &Table<'_>, key: &'static str, quality: bool) -> Vec<UnitPrice> {
    let Some(value) = table.get(key) else { return Vec::new() };
    if !value.is_list() {
        return value
            .as_amount()
            .map(|each| UnitPrice { each, ..UnitPrice::default() })
            .into_iter()
            .collect();
    }
    let mut units = Vec::new();
    value.elements(|element| {
        element.as_table(|table| {
            let size = table.string("size").map(Into::into);
            let quality = if quality { table.string("quality").map(Into::into) } else { None };
            let each = table.require("each", "each = 0.04").and_then(|value| value.as_amount());
            units.extend(each.map(|each| UnitPrice { size, quality, each }));
        });
    });
    units
}
