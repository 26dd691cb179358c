//! Prices: of a model in routes.toml, and of many models in a price file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::node::{ConfigTable, TomlDocument};
use super::report::Report;
use crate::account::Pattern;
use crate::account::price::{Price, PriceConfig, Rates, TokenKind, UnitPrice};

/// List prices of well-known models: conf/prices.toml.
pub const LIST_PRICES: &str = include_str!("../../conf/prices.toml");

/// Entries of [`LIST_PRICES`] with their patterns.
static ENTRIES: LazyLock<Vec<(Vec<Pattern>, &'static str)>> = LazyLock::new(|| {
    let entries = LIST_PRICES.split("\n[[price]]\n").skip(1);
    entries
        .map(|entry| (patterns_of(entry), entry.split("\n# --- ").next().unwrap_or_default().trim()))
        .collect()
});

fn patterns_of(entry: &str) -> Vec<Pattern> {
    let document = entry.parse::<toml_edit::DocumentMut>().ok();
    let models = document.as_ref().and_then(|entry| entry.get("models")?.as_array());
    models.into_iter().flatten().filter_map(|model| model.as_str().map(Pattern::new)).collect()
}

/// Returns the keys of the entry of [`LIST_PRICES`] that applies to the first of these names that has one, as they stand
/// there.
pub fn list_price<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<&'static str> {
    names.find_map(|name| {
        let fits = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        ENTRIES.iter().find(|(patterns, _)| fits(patterns)).map(|(_, entry)| *entry)
    })
}

/// Price list. The first price of the file that has a name counts.
#[derive(Debug, Default)]
pub(super) struct PriceList {
    prices: Vec<Arc<Price>>,
    /// Index of the first price of each name without a star.
    by_name: HashMap<Box<str>, usize>,
    /// Patterns with the index of their price, in the order of the file.
    patterns: Vec<(Pattern, usize)>,
}

impl PriceList {
    fn add(&mut self, names: Vec<String>, price: Arc<Price>) {
        let index = self.prices.len();
        self.prices.push(price);
        for name in names {
            if name.contains('*') {
                self.patterns.push((Pattern::new(name), index));
            } else {
                self.by_name.entry(name.into_boxed_str()).or_insert(index);
            }
        }
    }

    /// Returns the first price of the first name that has one, or `None` if no name has one.
    pub(super) fn find<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<Arc<Price>> {
        names.find_map(|name| {
            let exact = self.by_name.get(name).copied();
            let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(name));
            let first = exact.into_iter().chain(pattern.map(|(_, index)| *index)).min()?;
            self.prices.get(first).cloned()
        })
    }
}

pub(super) fn read(file: &Path, text: &str) -> Result<PriceList, Report> {
    let document = TomlDocument::new(file, text);
    let list = document.read(|root| {
        let mut list = PriceList::default();
        root.tables("price", |table| {
            let mut names = Vec::new();
            if let Some(models) = table.require("models", "models = [\"gpt-4o\", \"gpt-4o-2024-*\"]")
                && models.elements(|element| names.extend(element.as_str().map(str::to_owned))) == Some(0)
            {
                models.wrong("a price must name at least one model", None);
            }
            list.add(names, read_price(table));
        });
        list
    });
    document.into_report().into_result()?;
    list.ok_or_else(|| Report::of_file(file, "is not valid"))
}

/// Reads the amounts of one price from a table that may have other keys too.
pub(super) fn read_price(table: &ConfigTable<'_>) -> Arc<Price> {
    let rates = read_rates(table);
    let mut tiers: Vec<(u64, Rates)> = Vec::new();
    let mut bounds = HashSet::new();
    table.tables("tiers", |tier| {
        let above = tier
            .require("above", "above = 200000")
            .and_then(|value| u64::try_from(value.as_integer(&(1..=1_000_000_000))?).ok());
        let rates = read_rates(tier);
        let Some(above) = above else { return };
        if !bounds.insert(above) {
            tier.wrong(format!("two tiers have the same above = {above}"), None);
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

fn read_rates(table: &ConfigTable<'_>) -> Rates {
    let mut rates = Rates::default();
    for kind in TokenKind::ALL {
        if let Some(nanos) = table.amount(kind.name()) {
            rates.set(kind, nanos);
        }
    }
    rates
}

/// Reads one amount, or a list of prices by size and quality, of which the first match applies.
fn read_units(table: &ConfigTable<'_>, key: &'static str, quality: bool) -> Vec<UnitPrice> {
    let Some(value) = table.get(key) else { return Vec::new() };
    if !value.is_list() {
        return value
            .as_amount()
            .map(|each| UnitPrice { price: each, ..UnitPrice::default() })
            .into_iter()
            .collect();
    }
    let mut units = Vec::new();
    value.elements(|element| {
        element.as_table(|table| {
            let size = table.string("size").map(Into::into);
            let quality = if quality { table.string("quality").map(Into::into) } else { None };
            let each = table.require("each", "each = 0.04").and_then(|value| value.as_amount());
            units.extend(each.map(|each| UnitPrice { size, quality, price: each }));
        });
    });
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_price_is_the_entry_that_the_reader_finds() {
        let list = read(Path::new("prices.toml"), LIST_PRICES).unwrap();
        assert!(ENTRIES.len() > 50);
        for name in
            ["gpt-4o", "gpt-4o-2024-05-13", "claude-sonnet-4-5", "grok-4", "rerank-v3.5", "gemini-2.5-pro"]
        {
            let entry = list_price(["unknown", name].into_iter()).unwrap();
            let alone = read(Path::new("prices.toml"), &format!("[[price]]\n{entry}\n")).unwrap();
            assert_eq!(alone.find([name].into_iter()), list.find([name].into_iter()), "{entry}");
        }
        assert_eq!(list_price(["unknown"].into_iter()), None);
    }
}
