//! What is known of a target: its facts and the end of its model in the catalogue, and the price in effect, each with its source.

use jiff::civil::Date;
use serde_json::{Map, Value, json};

use crate::schema::{MemberType, Record, member, optional};
use codec::catalogue::{Catalogue, How, RowSource, day_of};
use config::catalogue_provider;
use routing::account::Amount;
use routing::account::price::{PriceConfig, Rates, TierPrice, TokenKind, UnitPrice, date};
use routing::route::{Model, PriceOrigin, Target};

/// Price of a target.
pub(crate) const TARGET_PRICE: Record = Record {
    name: "TargetPrice",
    text: "Price in effect for requests that a target serves. Amounts are decimals, those of tokens per million.",
    members: &[
        member(
            "origin",
            MemberType::Text,
            "Where it stands: `model`, `price_file`, `catalogue`, or `nowhere` if the model has none.",
        ),
        member("free", MemberType::Flag, "Whether the model is free on purpose."),
        optional("from", MemberType::Text, "First day, in UTC."),
        optional("until", MemberType::Text, "Last day, in UTC."),
        member("rates", MemberType::Open, "Amounts by kind of tokens; `search` and `request` each."),
        optional("images", MemberType::List(&MemberType::Open), "Amounts per image, by size and quality."),
        optional(
            "video_seconds",
            MemberType::List(&MemberType::Open),
            "Amounts per second of video, by resolution.",
        ),
        optional(
            "long",
            MemberType::Open,
            "Factors of requests with more input than `above`: `input` and `output`.",
        ),
        optional(
            "steps",
            MemberType::List(&MemberType::Open),
            "Amounts of requests with more input than `above`.",
        ),
        optional(
            "service_tiers",
            MemberType::List(&MemberType::Open),
            "Factor of each service tier, with amounts that are no multiple.",
        ),
        optional("regions", MemberType::List(&MemberType::Open), "Factor of each region."),
        optional("region", MemberType::Text, "Region of this target, if it has a price of its own."),
        optional("off_peak", MemberType::Open, "Factor outside of the peak hours, with these hours."),
        optional("next", MemberType::Text, "Day on which another price begins."),
        optional("source", MemberType::Text, "Source of the row of the catalogue."),
        optional("status", MemberType::Text, "`documented`, `measured`, `listed` or `unverified`, likewise."),
        optional("disputed", MemberType::Text, "What other sources state, likewise."),
        optional("file", MemberType::Text, "File of the row, likewise."),
        optional("answered_by", MemberType::Text, "Model that answers, if it is not the one that is named."),
    ],
};

/// Entry of a target in the catalogue.
pub(crate) const CATALOGUE_ENTRY: Record = Record {
    name: "CatalogueEntry",
    text: "What the catalogue knows of the model of a target.",
    members: &[
        member("edition", MemberType::Text, "Day of the facts."),
        member("age_days", MemberType::Count, "Age of the edition in days."),
        optional("provider", MemberType::Text, "Id of the provider in the catalogue; null if it has none."),
        optional("family", MemberType::Text, "Family; null if the name resembles none."),
        optional(
            "found",
            MemberType::Text,
            "`listed`, or `guessed`: the name resembles those of the family, and price, limits and end are not known.",
        ),
        member(
            "facts",
            MemberType::Open,
            "What the model takes at this provider, by the key of the catalogue.",
        ),
        optional("context_window", MemberType::Count, "Context window in tokens."),
        optional("input_limit", MemberType::Count, "Most input in tokens, if it is less."),
        optional("max_output_tokens", MemberType::Count, "Most output in tokens."),
        optional("retires", MemberType::Text, "Day on which the model stops to answer."),
        optional("retires_not_before", MemberType::Text, "Day before which it does not."),
        optional("successor", MemberType::Text, "Model that the provider recommends instead."),
        optional("source", MemberType::Text, "Source of the family's row."),
        optional("status", MemberType::Text, "`documented`, `measured`, `listed` or `unverified`, likewise."),
        optional("disputed", MemberType::Text, "What other sources state, likewise."),
        optional("file", MemberType::Text, "File of the row, likewise."),
    ],
};

/// Returns the members of a source.
fn source(row: &RowSource) -> [(&'static str, Value); 4] {
    [
        ("source", json!(&*row.source)),
        ("status", json!(row.status.name())),
        ("disputed", json!(row.disputed.as_deref())),
        ("file", json!(&*row.file)),
    ]
}

fn add(members: &mut Map<String, Value>, list: impl IntoIterator<Item = (&'static str, Value)>) {
    members.extend(list.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

/// Returns what the catalogue knows of a target.
pub(super) fn entry(catalogue: &Catalogue, target: &Target, now: i64) -> Value {
    let provider = catalogue_provider(catalogue, &target.provider);
    let name = target.known_model();
    let found = catalogue.family_of(name);
    let facts = target.provider.facts_of(name);
    let facts: Map<String, Value> =
        facts.entries().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let model = [&*target.model, name].into_iter().find_map(|name| catalogue.model(name));
    let offer =
        provider.and_then(|id| [&*target.model, name].into_iter().find_map(|name| catalogue.offer(id, name)));
    let today = day_of(now);
    let age = today.since(catalogue.edition()).map_or(0, |age| age.get_days().max(0));
    let day = |day: Option<Date>| day.map(|day| day.to_string());
    let Value::Object(mut members) = json!({
        "edition": catalogue.edition().to_string(),
        "age_days": age,
        "provider": provider,
        "family": found.map(|(family, _)| &*family.id),
        "found": found.map(|(_, how)| match how {
            How::Listed => "listed",
            How::Guessed => "guessed",
        }),
        "facts": facts,
        "context_window": model.and_then(|model| model.context),
        "input_limit": model.and_then(|model| model.input_limit),
        "max_output_tokens": model.and_then(|model| model.output),
        "retires": day(offer.and_then(|offer| offer.retires)),
        "retires_not_before": day(offer.and_then(|offer| offer.retires_not_before)),
        "successor": offer.and_then(|offer| offer.successor.as_deref()),
    }) else {
        return Value::Null;
    };
    if let Some((family, _)) = found {
        add(&mut members, source(&family.source));
    }
    Value::Object(members)
}

/// Returns the price in effect for requests that a target serves.
pub(super) fn price(catalogue: &Catalogue, model: &Model, target: &Target, now: i64) -> Value {
    let origin = model.price_origin_of(target);
    let price = target.price.as_deref().unwrap_or(&model.price);
    let row = price.row_at(now);
    let mut members = row.map(show_row).unwrap_or_default();
    let name = match origin {
        PriceOrigin::Nowhere => "nowhere",
        PriceOrigin::Model => "model",
        PriceOrigin::PriceFile => "price_file",
        PriceOrigin::Catalogue => "catalogue",
    };
    let begins = price.rows().filter_map(|row| row.days.from);
    let today = now.div_euclid(codec::canonical::time::DAY_SECONDS);
    let next = begins.filter(|from| *from > today).min().map(date);
    add(
        &mut members,
        [
            ("origin", json!(name)),
            ("free", json!(row.is_some_and(|row| row.free))),
            ("next", json!(next)),
            ("region", json!(target.region.map(|region| region.name()))),
        ],
    );
    members.entry("rates").or_insert_with(|| json!({}));
    if origin == PriceOrigin::Catalogue {
        add_row_source(&mut members, catalogue, target, now);
    }
    Value::Object(members)
}

/// Adds the source of the catalogue's row for a day.
fn add_row_source(members: &mut Map<String, Value>, catalogue: &Catalogue, target: &Target, now: i64) {
    let Some(provider) = catalogue_provider(catalogue, &target.provider) else { return };
    let mut names = [Some(&*target.model), target.family.as_deref()].into_iter().flatten();
    let Some((name, prices)) = names.find_map(|name| {
        let prices = catalogue.prices(provider, name);
        (!prices.is_empty()).then_some((name, prices))
    }) else {
        return;
    };
    let today = day_of(now);
    let holds = |from: Option<Date>, until: Option<Date>| {
        from.is_none_or(|from| from <= today) && until.is_none_or(|until| today <= until)
    };
    // The last row holds on.
    let Some(dated) = prices.iter().find(|price| holds(price.from, price.until)).or_else(|| prices.last())
    else {
        return;
    };
    let is_other = catalogue.model(name).is_none_or(|model| model.id != dated.model.id);
    add(
        members,
        [
            ("source", json!(&*dated.row.source)),
            ("status", json!(dated.row.status.name())),
            ("disputed", json!(dated.row.disputed.as_deref())),
            ("file", json!(&*dated.offer.source.file)),
            ("answered_by", json!(is_other.then_some(&*dated.model.id))),
        ],
    );
}

fn amount(nanos: i64) -> Value {
    Value::from(Amount(nanos).to_string())
}

fn rates(rates: &Rates) -> Map<String, Value> {
    let configured = TokenKind::ALL.into_iter();
    configured.filter_map(|kind| Some((kind.name().to_owned(), amount(rates.configured(kind)?)))).collect()
}

/// Returns the amounts and factors of a row.
fn show_row(row: &PriceConfig) -> Map<String, Value> {
    let mut own = rates(&row.rates);
    for (name, nanos) in [("search", row.search), ("request", row.request)] {
        add(&mut own, nanos.map(|nanos| (name, amount(nanos))));
    }
    let unit =
        |unit: &UnitPrice| json!({ "size": unit.size, "quality": unit.quality, "each": amount(unit.price) });
    let step = |(above, more): &(u64, Rates)| {
        let mut members = rates(more);
        members.insert("above".to_owned(), (*above).into());
        Value::Object(members)
    };
    let tier = |tier: &TierPrice| {
        let mut members = rates(&tier.rates);
        add(&mut members, [("tier", json!(tier.tier.name())), ("factor", json!(tier.factor.to_string()))]);
        Value::Object(members)
    };
    let list = |list: Vec<Value>| (!list.is_empty()).then_some(list);
    let region = row
        .regions
        .iter()
        .map(|(region, factor)| json!({ "region": region.name(), "factor": factor.to_string() }));
    let Value::Object(members) = json!({
        "from": row.days.from.map(date),
        "until": row.days.until.map(date),
        "rates": own,
        "images": list(row.images.iter().map(unit).collect()),
        "video_seconds": list(row.video_seconds.iter().map(unit).collect()),
        "long": row.long.map(|long| json!({
            "above": long.above,
            "input": long.input.to_string(),
            "output": long.output.to_string(),
        })),
        "steps": list(row.steps.iter().map(step).collect()),
        "service_tiers": list(row.tiers.iter().map(tier).collect()),
        "regions": list(region.collect()),
        "off_peak": row.off_peak.as_ref().map(|hours| json!({
            "factor": hours.factor.to_string(),
            "peak": hours.peak.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })),
    }) else {
        return Map::new();
    };
    members
}
