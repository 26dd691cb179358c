//! `conf/prices.toml`: the prices of the catalogue by the name of the model alone, for models of providers that the catalogue does
//! not know. `UPDATE_GOLDEN=1` (`make golden`) writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::super::catalogue::listed_price;
use super::super::{prices, print_price};
use super::assert_golden;
use codec::catalogue::Catalogue;
use routing::account::{Pattern, Price};

const HEAD: &str = "\
# List prices of models by name, in US dollars per million tokens (per piece for images, seconds of video, searches). Made from
# catalogue.toml, which has their sources; do not edit it.
#
# A model whose provider the catalogue knows has these prices without this file. It is for others: resellers, proxies and servers
# that ask the list price of the maker. `prices = \"prices.toml\"` in routes.toml; the `price` of a model comes before it. The first
# entry that matches applies. A pattern covers the dated snapshots of one model, never other models of its family.
";

/// Entry of the file: names with one price.
struct Entry {
    provider: String,
    names: Vec<String>,
    price: Arc<Price>,
}

/// Returns the names of an offer: as it is, with the prefixes of regions, and with a date behind it.
fn names_of(provider: &str, name: &str) -> Vec<String> {
    let dated: &[&str] = match provider {
        "openai" => &["-20*"],
        "anthropic" => &["-20*", "@20*"],
        _ => &[],
    };
    let mut names = vec![name.to_owned()];
    names.extend(dated.iter().map(|end| format!("{name}{end}")));
    if provider == "bedrock" {
        // A region without a factor has the base price.
        names.extend(["global", "us", "eu", "apac", "jp", "au"].map(|region| format!("{region}.{name}")));
    }
    let lower = name.to_ascii_lowercase();
    names.extend((lower != name).then_some(lower));
    names
}

fn entries(catalogue: &Catalogue) -> Vec<Entry> {
    let (mut entries, mut known): (Vec<Entry>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for provider in catalogue.providers().iter().filter(|provider| provider.same_as.is_none()) {
        let offers = catalogue.models().iter().flat_map(|model| &model.offers);
        let offers = offers.filter(|offer| offer.provider == provider.id).map(|offer| (&offer.name, true));
        let aliases = catalogue.aliases().iter().filter(|alias| alias.provider == provider.id);
        // Names that a family lists: dated ones, and those that a model has had before.
        let is_cloud = &*provider.id == "bedrock";
        let listed = catalogue.families().iter().filter(|_| !is_cloud).flat_map(|family| &family.matches);
        let names =
            offers.chain(aliases.map(|alias| (&alias.name, true))).chain(listed.map(|name| (name, false)));
        for (name, is_sold) in names {
            let Some(price) = listed_price(catalogue, &provider.id, name) else { continue };
            // The maker's price counts for a name that others have too.
            if !known.insert(name.to_ascii_lowercase()) {
                continue;
            }
            let id = provider.id.to_string();
            let names = if is_sold { names_of(&id, name) } else { vec![name.to_string()] };
            match entries
                .iter_mut()
                .find(|entry| entry.provider == id && entry.price == price && names.len() == 1)
            {
                Some(entry) => entry.names.extend(names),
                None => entries.push(Entry { provider: id, names, price }),
            }
        }
    }
    // A name before the pattern that it has.
    let matches = |entry: &Entry, other: &Entry| {
        let patterns =
            other.names.iter().filter(|name| name.contains('*')).map(|name| Pattern::new(name.as_str()));
        patterns.into_iter().any(|pattern| entry.names.iter().any(|name| pattern.matches(name)))
    };
    let is_special: Vec<bool> = entries
        .iter()
        .enumerate()
        .map(|(at, entry)| entries.iter().enumerate().any(|(other, of)| other != at && matches(entry, of)))
        .collect();
    let mut all: Vec<(bool, Entry)> = is_special.into_iter().zip(entries).collect();
    all.sort_by_key(|(is_special, _)| !is_special);
    all.into_iter().map(|(_, entry)| entry).collect()
}

#[test]
fn price_file_has_the_prices_of_the_catalogue() {
    let catalogue = Catalogue::embedded();
    let entries = entries(catalogue);
    let mut text = HEAD.to_owned();
    for entry in &entries {
        let names: Vec<String> = entry.names.iter().map(|name| format!("{name:?}")).collect();
        let models = names.join(", ");
        for row in entry.price.rows() {
            let _ = write!(text, "\n[[price]]\nmodels = [{models}]\n");
            for member in print_price::members(row) {
                let _ = writeln!(text, "{member}");
            }
        }
    }
    // What is read of the file is what the catalogue says, to the last member.
    let list = prices::read(Path::new("prices.toml"), &text).unwrap();
    for entry in &entries {
        for name in &entry.names {
            let name = name.replace('*', "26-01-01");
            assert_eq!(list.find([&*name].into_iter()).as_ref(), Some(&entry.price), "{name}");
        }
    }
    assert!(entries.len() > 150, "{}", entries.len());
    assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/prices.toml"), &text);
}
