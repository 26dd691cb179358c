//! Prices: of a model in routes.toml, and of many models in a price file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::node::TomlDocument;
use super::price_rows::{check_days, read_row};
use super::report::Report;
use crate::account::Pattern;
use crate::account::price::{Price, PriceConfig};

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
        // Entries with the same list of models and days of their own are rows of one price.
        let mut entries: Vec<(Vec<String>, Vec<PriceConfig>)> = Vec::new();
        let mut known: HashMap<Vec<String>, usize> = HashMap::new();
        root.tables("price", |table| {
            let mut names = Vec::new();
            if let Some(models) = table.require("models", "models = [\"gpt-4o\", \"gpt-4o-2024-*\"]")
                && models.elements(|element| names.extend(element.as_str().map(str::to_owned))) == Some(0)
            {
                models.wrong("a price must name at least one model", None);
            }
            let row = read_row(table);
            match known.get(&names).and_then(|at| entries.get_mut(*at)) {
                // Without days the first entry of a name counts.
                Some((_, rows)) if row.days.are_bounded() => {
                    check_days(&row, rows, |message| table.wrong(message, None));
                    rows.push(row);
                }
                Some(_) => {}
                None => {
                    known.insert(names.clone(), entries.len());
                    entries.push((names, vec![row]));
                }
            }
        });
        let mut list = PriceList::default();
        for (names, rows) in entries {
            list.add(names, Arc::new(Price::of_rows(rows)));
        }
        list
    });
    document.into_report().into_result()?;
    list.ok_or_else(|| Report::of_file(file, "is not valid"))
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
