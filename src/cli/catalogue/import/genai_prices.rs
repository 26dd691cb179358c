//! Reader of `data.json` of genai-prices: US dollars per million tokens, with rows by their first day. Clauses that match
//! names by their beginning are ignored: a pattern would give a newer model the price of an older one.

use std::collections::BTreeSet;

use jiff::civil::Date;
use serde_json::{Map, Value};

use super::proposal::{Proposal, ProposedRow, price_of};

/// Providers of the file, with those of the catalogue.
const PROVIDERS: &[(&str, &str)] = &[
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("google", "gemini"),
    ("x-ai", "xai"),
    ("deepseek", "deepseek"),
    ("moonshotai", "moonshot"),
    // Not `zhipuai`: that seller has other prices, in another currency.
    ("zai", "glm"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("cohere", "cohere"),
    ("aws", "bedrock"),
];

/// Prices of what is no token and which the provider sells beside any model.
const BESIDE: [&str; 1] = ["storage_searches_kcount"];

const KINDS: &[(&str, &str)] = &[
    ("input_mtok", "input"),
    ("cache_read_mtok", "cached_input"),
    ("cache_write_mtok", "cache_write"),
    ("cache_write_5m_mtok", "cache_write"),
    ("cache_write_1h_mtok", "cache_write_1h"),
    ("output_mtok", "output"),
    ("output_reasoning_mtok", "reasoning"),
    ("input_audio_mtok", "audio_input"),
    ("cache_audio_read_mtok", "cached_audio_input"),
    ("output_audio_mtok", "audio_output"),
    ("input_image_mtok", "image_input"),
    ("cache_image_read_mtok", "cached_image_input"),
    ("output_image_mtok", "image_output"),
];

/// Members of a variant's condition that name a service tier.
const TIER_MEMBERS: [&str; 3] = ["processing", "service_tier", "speed"];

pub(super) fn read(document: &Value) -> Vec<Proposal> {
    let providers = document.as_array().or_else(|| document.get("providers")?.as_array());
    let mut proposals = Vec::new();
    for entry in providers.into_iter().flatten() {
        let id = entry.get("id").and_then(Value::as_str);
        let Some((_, provider)) = PROVIDERS.iter().find(|(name, _)| Some(*name) == id) else { continue };
        for model in entry.get("models").and_then(Value::as_array).into_iter().flatten() {
            proposals.extend(read_model(provider, model));
        }
    }
    super::regions::merged(proposals)
}

fn read_model(provider: &'static str, model: &Value) -> Option<Proposal> {
    let id = model.get("id")?.as_str()?.to_owned();
    // Ids that are made up for all regions of a cloud.
    if id.starts_with("regional.") {
        return None;
    }
    let mut proposal = Proposal { provider: seller(provider, &id), id, ..Proposal::default() };
    proposal.context = model.get("context_window").and_then(Value::as_u64);
    if proposal.id.ends_with(['-', '.']) {
        proposal.refused = Some("its id is the beginning of names".to_owned());
    }
    match model.get("prices")? {
        Value::Object(prices) => read_row(&mut proposal, None, prices),
        Value::Array(rows) => {
            for row in rows {
                match first_day(row) {
                    Some(from) => {
                        if let Some(prices) = row.get("prices").and_then(Value::as_object) {
                            read_row(&mut proposal, from, prices);
                        }
                    }
                    None => proposal.refused = Some("a price depends on the time of day".to_owned()),
                }
            }
        }
        _ => proposal.refused = Some("its prices are in an unknown form".to_owned()),
    }
    let variants =
        model.get("price_variants").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    read_variants(&mut proposal, variants);
    Some(proposal)
}

/// Returns who sells a model: models of other makers, which the file has under Google, are sold by Vertex AI.
fn seller(provider: &'static str, id: &str) -> &'static str {
    match provider {
        "gemini" if id.starts_with("claude-") => "vertex-anthropic",
        "gemini" if id.ends_with("-maas") => "vertex",
        other => other,
    }
}

/// Returns the first day of a row or variant: `None` within if it has no beginning, `None` if it has another condition.
fn first_day(row: &Value) -> Option<Option<Date>> {
    match row.get("constraint").filter(|constraint| !constraint.is_null()) {
        None => Some(None),
        Some(constraint) => constraint.get("start_date")?.as_str()?.parse().ok().map(Some),
    }
}

fn read_row(proposal: &mut Proposal, from: Option<Date>, prices: &Map<String, Value>) {
    let mut row = ProposedRow { from, ..ProposedRow::default() };
    if let Some(reason) = read_prices(&mut row, prices) {
        proposal.refused = Some(reason);
    }
    proposal.rows.push(row);
}

/// Reads prices. Returns the reason if one cannot be imported.
fn read_prices(row: &mut ProposedRow, prices: &Map<String, Value>) -> Option<String> {
    let given = prices.iter().filter(|(key, value)| !value.is_null() && !BESIDE.contains(&key.as_str()));
    given.filter_map(|(key, value)| read_price(row, key, value)).last()
}

/// Reads one price. Returns the reason if it cannot be imported.
fn read_price(row: &mut ProposedRow, key: &str, value: &Value) -> Option<String> {
    if key == "web_searches_kcount" {
        row.search = price_of(value, -3);
        return row.search.is_none().then(|| format!("{key} is no price"));
    }
    let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == key) else {
        return Some(format!("unknown price: {key}"));
    };
    let base = value.get("base").unwrap_or(value);
    let Some(price) = price_of(base, 0) else { return Some(format!("{key} is no price")) };
    row.base.insert(kind, price);
    for tier in value.get("tiers").and_then(Value::as_array).into_iter().flatten() {
        let start = tier.get("start").and_then(Value::as_u64);
        let (Some(start), Some(price)) = (start, tier.get("price").and_then(|price| price_of(price, 0)))
        else {
            return Some(format!("{key} has a step in an unknown form"));
        };
        row.long.entry(start).or_default().insert(kind, price);
    }
    None
}

/// Prices of a service tier from a day on.
struct TierVariant {
    tier: String,
    from: Option<Date>,
    prices: ProposedRow,
}

/// Reads the prices of service tiers. A variant has the prices that differ from those of the row; the first one of a tier that
/// holds on a day counts for each price. A row is divided where a variant begins.
fn read_variants(proposal: &mut Proposal, list: &[Value]) {
    let mut variants = Vec::new();
    for value in list {
        match read_variant(proposal.provider, value) {
            Ok(variant) => variants.extend(variant),
            Err(reason) => proposal.refused = Some(reason),
        }
    }
    let mut days: Vec<Date> = variants.iter().filter_map(|variant| variant.from).collect();
    days.sort_unstable();
    days.dedup();
    for day in days {
        if proposal.rows.iter().any(|row| row.from == Some(day)) {
            continue;
        }
        let of_day = proposal.rows.iter().filter(|row| row.from.is_none_or(|from| from < day));
        if let Some(mut row) = of_day.max_by_key(|row| row.from).cloned() {
            row.from = Some(day);
            proposal.rows.push(row);
        }
    }
    for row in &mut proposal.rows {
        let first = row.from.unwrap_or(Date::MIN);
        let mut given = BTreeSet::new();
        for variant in variants.iter().filter(|variant| variant.from.is_none_or(|from| from <= first)) {
            add_variant(row, variant, &mut given);
        }
    }
}

/// Adds the prices of a variant to a row, as far as no earlier variant of the tier has given them.
fn add_variant<'v>(
    row: &mut ProposedRow,
    variant: &'v TierVariant,
    given: &mut BTreeSet<(&'v str, &'static str)>,
) {
    let base = &row.base;
    let kinds = row.tiers.entry(variant.tier.clone()).or_insert_with(|| base.clone());
    for (kind, price) in &variant.prices.base {
        if !given.insert((&variant.tier, kind)) {
            continue;
        }
        kinds.insert(kind, *price);
        // A price of the tier has its own steps, or none.
        for (above, base) in &row.long {
            let long = row.long_tiers.entry((variant.tier.clone(), *above)).or_insert_with(|| base.clone());
            let step = variant.prices.long.get(above).and_then(|step| step.get(kind));
            long.insert(kind, *step.unwrap_or(price));
        }
    }
}

/// Reads a variant. `None` for one that is the row itself.
///
/// # Errors
/// Returns the reason why the model cannot be imported.
fn read_variant(provider: &str, variant: &Value) -> Result<Option<TierVariant>, String> {
    let condition = variant.get("when").and_then(Value::as_object).filter(|when| when.len() == 1);
    let condition = condition.and_then(|when| {
        let (key, value) = when.iter().next()?;
        Some((key, value.as_str().filter(|_| TIER_MEMBERS.contains(&key.as_str()))?))
    });
    let Some((member, name)) = condition else {
        return Err("a price depends on something that is no service tier".to_owned());
    };
    let Some(from) = first_day(variant) else {
        return Err(format!("the price of {name} depends on the time of day"));
    };
    let tier = match name {
        "default" | "standard" => return Ok(None),
        // The word of a client for priority.
        "fast" if provider == "openai" && member == "service_tier" => "priority",
        other => other,
    };
    let mut prices = ProposedRow::default();
    if let Some(given) = variant.get("prices").and_then(Value::as_object)
        && let Some(reason) = read_prices(&mut prices, given)
    {
        return Err(reason);
    }
    Ok(Some(TierVariant { tier: tier.to_owned(), from, prices }))
}
