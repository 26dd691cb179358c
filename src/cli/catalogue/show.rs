//! `catalogue show`: one model, with every row that says something about it.

use std::process::ExitCode;

use clap::Args;

use super::super::fail;
use super::super::out::say;
use super::super::style;
use super::super::table::grouped;
use super::CatalogueSource;
use codec::catalogue::{Catalogue, How, ListedPrice, RowSource, price_text};
use config::today;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Name of a model, as routes or providers write it.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Provider: an id of the catalogue, such as openai, bedrock or vertex. All of them without it.
    #[arg(long, value_name = "PROVIDER")]
    at: Option<String>,
    #[command(flatten)]
    source: CatalogueSource,
}

pub(super) fn run(options: &ShowArgs) -> ExitCode {
    let Some(catalogue) = options.source.read() else { return ExitCode::FAILURE };
    if let Some(provider) = options.at.as_deref().filter(|id| catalogue.provider(id).is_none()) {
        let known: Vec<&str> = catalogue.providers().iter().map(|provider| &*provider.id).collect();
        return fail(format_args!("the catalogue has no provider {provider:?}; it has {}", known.join(", ")));
    }
    let Some((family, how)) = catalogue.family_of(&options.model) else {
        return fail(format_args!("the catalogue knows no model like {:?}", options.model));
    };
    let model = catalogue.model(&options.model);
    say!("{}", style::title(model.map_or(&*options.model, |model| &model.id)));
    match how {
        How::Listed => say!("  family         {} (the name is listed)", family.id),
        How::Guessed => say!(
            "  family         {} (a guess by the beginning of the name: behavior, no price, limit or end)",
            family.id
        ),
    }
    say_source(&family.source, "  ");
    for (key, value) in
        catalogue.facts_of(&options.model).map(|(facts, _)| facts.entries()).unwrap_or_default()
    {
        say!("  {key:14} {value}");
    }
    if let Some(model) = model {
        let tokens = |count: u64| grouped(i64::try_from(count).unwrap_or(i64::MAX));
        for (key, count) in
            [("context", model.context), ("input_limit", model.input_limit), ("output", model.output)]
        {
            if let Some(count) = count {
                say!("  {key:14} {} tokens", tokens(count));
            }
        }
    }
    say_prices(&catalogue, options);
    say!();
    say!(
        "{}",
        style::faint(format!("edition {}, of {}", catalogue.edition(), catalogue.files().join(" and ")))
    );
    ExitCode::SUCCESS
}

fn say_source(source: &RowSource, indent: &str) {
    say!("{indent}source         {} ({}, {})", source.source, source.status.name(), source.file);
    if let Some(disputed) = &source.disputed {
        say!("{indent}disputed       {disputed}");
    }
    if let Some(note) = &source.note {
        say!("{indent}note           {note}");
    }
}

/// Prints the offers of all providers, or of the one that was asked for.
fn say_prices(catalogue: &Catalogue, options: &ShowArgs) {
    let mut priced = false;
    for provider in catalogue.providers() {
        let is_asked = options.at.as_deref().map_or(provider.same_as.is_none(), |id| id == &*provider.id);
        if !is_asked {
            continue;
        }
        let prices = catalogue.prices(&provider.id, &options.model);
        let Some(first) = prices.first() else { continue };
        priced = true;
        say!();
        say!("{}", style::title(format!("at {}, as {}", provider.id, first.offer.name)));
        if let Some(day) = first.offer.retires {
            say!("  ends           {day}{}", successor(first.offer.successor.as_deref()));
        } else if let Some(day) = first.offer.retires_not_before {
            say!("  ends           not before {day}{}", successor(first.offer.successor.as_deref()));
        }
        for price in &prices {
            let day = today();
            let holds =
                price.from.is_none_or(|from| from <= day) && price.until.is_none_or(|until| day <= until);
            let days = match (price.from, price.until) {
                (None, None) => "always".to_owned(),
                (Some(from), None) => format!("from {from}"),
                (None, Some(until)) => format!("until {until}"),
                (Some(from), Some(until)) => format!("{from} to {until}"),
            };
            let other = catalogue.model(&options.model).is_none_or(|model| model.id != price.model.id);
            let served = if other { format!(", answered by {}", price.model.id) } else { String::new() };
            say!("  {days}{served}{}", if holds { " (today)" } else { "" });
            say_price(price.row);
        }
    }
    if !priced {
        say!();
        say!("no price is known{}", options.at.as_deref().map(|id| format!(" at {id}")).unwrap_or_default());
    }
}

fn successor(id: Option<&str>) -> String {
    id.map(|id| format!("; successor {id}")).unwrap_or_default()
}

fn say_price(row: &ListedPrice) {
    let mut parts: Vec<String> =
        row.rates.iter().map(|rate| format!("{} {}", rate.kind, price_text(rate.nanos))).collect();
    for (key, units) in [("image", &row.images), ("video_second", &row.video_seconds)] {
        for unit in units {
            let words = [unit.size.as_deref(), unit.quality.as_deref()];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            parts.push(format!("{key} {} {}", words.join(" "), price_text(unit.nanos)));
        }
    }
    for (key, price) in [("search", row.search), ("request", row.request)] {
        parts.extend(price.map(|nanos| format!("{key} {}", price_text(nanos))));
    }
    if row.free {
        parts.push("free".to_owned());
    }
    say!("    price        {}", parts.join(", "));
    if let Some(long) = &row.long {
        say!("    long         above {} tokens: input x{}, output x{}", long.above, long.input, long.output);
    }
    for step in &row.steps {
        let rates: Vec<String> =
            step.rates.iter().map(|rate| format!("{} {}", rate.kind, price_text(rate.nanos))).collect();
        say!("    step         above {} tokens: {}", step.above, rates.join(", "));
    }
    for (key, factors) in [("tiers", &row.tiers), ("regions", &row.regions)] {
        if !factors.is_empty() {
            let factors: Vec<String> =
                factors.iter().map(|(name, factor)| format!("{name} x{factor}")).collect();
            say!("    {key:12} {}", factors.join(", "));
        }
    }
    for odd in &row.odd {
        let rates: Vec<String> =
            odd.rates.iter().map(|rate| format!("{} {}", rate.kind, price_text(rate.nanos))).collect();
        say!("    in {:9} {}", odd.tier, rates.join(", "));
    }
    say!("    source       {} ({})", row.source, row.status.name());
    if let Some(disputed) = &row.disputed {
        say!("    disputed     {disputed}");
    }
    if let Some(note) = &row.note {
        say!("    note         {note}");
    }
}
