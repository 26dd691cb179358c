//! Prices: of a model in routes.toml, and of many models in a price file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::node::TomlDocument;
use super::price_rows::{check_days, read_row};
use super::report::Report;
use routing::account::Pattern;
use routing::account::price::{Price, PriceConfig};

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
