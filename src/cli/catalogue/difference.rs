//! `catalogue diff`: what a file changes when it is laid over the catalogue of the gateway.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::super::out::say;
use super::super::style;
use codec::catalogue::{Catalogue, CatalogueModel, ListedPrice, Offer, price_text};

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// File in the form of the catalogue.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(options: &DiffArgs) -> ExitCode {
    let Some(after) = super::read_over(&options.file) else { return ExitCode::FAILURE };
    let lines = differences(Catalogue::embedded(), &after);
    for line in &lines {
        say!("{line}");
    }
    if lines.is_empty() {
        say!("{}", style::faint("the file changes nothing"));
    }
    ExitCode::SUCCESS
}

/// Returns what differs between two catalogues, one line for each fact or price.
pub(super) fn differences(before: &Catalogue, after: &Catalogue) -> Vec<String> {
    let mut lines = Vec::new();
    for family in after.families() {
        let Some(old) = before.family(&family.id) else {
            lines.push(format!("family {}: added", family.id));
            continue;
        };
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (old.facts.entries().into_iter().collect(), family.facts.entries().into_iter().collect());
        compare(&format!("family {}", family.id), &old, &new, &mut lines);
    }
    let known: BTreeMap<&str, &CatalogueModel> =
        before.models().iter().map(|model| (&*model.id, model)).collect();
    for model in after.models() {
        let Some(old) = known.get(&*model.id) else {
            lines.push(format!("model {}: added", model.id));
            continue;
        };
        compare(&format!("model {}", model.id), &members(old), &members(model), &mut lines);
        for offer in &model.offers {
            let head = format!("{} at {}", model.id, offer.provider);
            match old.offers.iter().find(|old| old.provider == offer.provider) {
                Some(old) => compare_offers(&head, old, offer, &mut lines),
                None => lines.push(format!("{head}: added")),
            }
        }
    }
    lines
}

fn members(model: &CatalogueModel) -> BTreeMap<&'static str, String> {
    let counts = [("context", model.context), ("input_limit", model.input_limit), ("output", model.output)];
    counts.into_iter().filter_map(|(key, count)| Some((key, count?.to_string()))).collect()
}

fn compare(
    head: &str,
    old: &BTreeMap<&'static str, String>,
    new: &BTreeMap<&'static str, String>,
    lines: &mut Vec<String>,
) {
    let keys: std::collections::BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    for key in keys {
        let unknown = || "not known".to_owned();
        let (before, after) = (old.get(key), new.get(key));
        if before != after {
            let text = |value: Option<&String>| value.cloned().unwrap_or_else(unknown);
            lines.push(format!("{head}: {key} {} -> {}", text(before), text(after)));
        }
    }
}

fn compare_offers(head: &str, old: &Offer, new: &Offer, lines: &mut Vec<String>) {
    let ends = |offer: &Offer| offer.retires.map_or_else(|| "not known".to_owned(), |day| day.to_string());
    if old.retires != new.retires {
        lines.push(format!("{head}: ends {} -> {}", ends(old), ends(new)));
    }
    for row in &new.prices {
        let days = match (row.from, row.until) {
            (None, None) => String::new(),
            (from, until) => {
                let day = |day: Option<jiff::civil::Date>| day.map(|day| day.to_string()).unwrap_or_default();
                format!(" ({} to {})", day(from), day(until))
            }
        };
        let below = old.prices.iter().rev().find(|below| below.from.is_none() || below.from <= row.from);
        let Some(below) = below else {
            lines.push(format!("{head}{days}: prices added"));
            continue;
        };
        compare_prices(&format!("{head}{days}"), below, row, lines);
    }
}

fn compare_prices(head: &str, old: &ListedPrice, new: &ListedPrice, lines: &mut Vec<String>) {
    for kind in codec::catalogue::TOKEN_KINDS {
        let (before, after) = (old.rate(kind), new.rate(kind));
        if before == after {
            continue;
        }
        let text = |price: Option<i64>| price.map_or_else(|| "none".to_owned(), price_text);
        lines.push(format!("{head}: {kind} {} -> {}{}", text(before), text(after), ratio(before, after)));
    }
    for (what, same) in [
        ("tiers", old.tiers == new.tiers && old.odd == new.odd),
        ("regions", old.regions == new.regions),
        ("long requests", old.long == new.long && old.steps == new.steps),
        ("search or request", old.search == new.search && old.request == new.request),
        ("images or videos", old.images == new.images && old.video_seconds == new.video_seconds),
    ] {
        if !same {
            lines.push(format!("{head}: {what} changed"));
        }
    }
}

/// Formats how many times as high a price is.
fn ratio(before: Option<i64>, after: Option<i64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if before > 0 => {
            let hundredths =
                after.saturating_mul(100).saturating_add(before / 2).checked_div(before).unwrap_or(0);
            format!(" (x{}.{:02})", hundredths / 100, hundredths % 100)
        }
        _ => String::new(),
    }
}
