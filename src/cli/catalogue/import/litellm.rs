//! Reader of `model_prices_and_context_window.json` of `LiteLLM`: US dollars per token, one entry for each geography.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::proposal::{Kinds, Proposal, ProposedRow, factor_of, price_of};
use codec::catalogue::PriceFactor;

/// Providers of the file, with those of the catalogue.
const PROVIDERS: &[(&str, &str)] = &[
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("gemini", "gemini"),
    ("xai", "xai"),
    ("deepseek", "deepseek"),
    ("moonshot", "moonshot"),
    ("zai", "glm"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("dashscope", "qwen"),
    ("volcengine", "ark"),
    ("cohere", "cohere"),
    ("cohere_chat", "cohere"),
    ("bedrock", "bedrock"),
    ("bedrock_converse", "bedrock"),
];

/// Beginnings of keys of token prices, with the kinds of the catalogue. Longer ones precede those that they begin with.
const KINDS: &[(&str, &str)] = &[
    ("cache_creation_input_token_cost_above_1hr", "cache_write_1h"),
    ("cache_creation_input_token_cost_above_12hr", "cache_write_12h"),
    ("cache_creation_input_token_cost", "cache_write"),
    ("cache_read_input_audio_token_cost", "cached_audio_input"),
    ("cache_read_input_token_cost_per_audio_token", "cached_audio_input"),
    ("cache_read_input_image_token_cost", "cached_image_input"),
    ("cache_read_input_token_cost", "cached_input"),
    ("input_cost_per_audio_token", "audio_input"),
    ("input_cost_per_image_token", "image_input"),
    ("input_cost_per_token", "input"),
    ("output_cost_per_audio_token", "audio_output"),
    ("output_cost_per_image_token", "image_output"),
    ("output_cost_per_reasoning_token", "reasoning"),
    ("output_cost_per_token", "output"),
];

/// Ends of keys, with the tiers of the catalogue.
const TIERS: &[(&str, &str)] =
    &[("_batches", "batch"), ("_flex", "flex"), ("_priority", "priority"), ("_ultrafast", "ultrafast")];

/// Prices of what is no token and which the provider sells beside any model, and a duplicate.
const BESIDE: &[&str] =
    &["google_maps_grounding_cost_per_query", "fedramp_uplift_multiplier", "input_cost_per_token_cache_hit"];

/// End of keys of another API than those of the gateway.
const OTHER_API: &str = "_decisions";

pub(super) fn read(document: &Value) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for (name, entry) in document.as_object().into_iter().flatten() {
        let Some(entry) = entry.as_object() else { continue };
        let provider = entry.get("litellm_provider").and_then(Value::as_str);
        let Some((_, provider)) = PROVIDERS.iter().find(|(name, _)| Some(*name) == provider) else {
            continue;
        };
        let (path, id) = name.rsplit_once('/').unwrap_or(("", name));
        // Entries for one AWS region each (`bedrock/us-east-1/...`), and for one size of images each
        // (`low/1024-x-1024/...`), are no models of their own.
        if (*provider == "bedrock" && !path.is_empty()) || path.contains("-x-") {
            continue;
        }
        proposals.push(read_entry(provider, id, entry));
    }
    super::regions::merged(proposals)
}

fn read_entry(provider: &'static str, id: &str, entry: &Map<String, Value>) -> Proposal {
    let mut proposal = Proposal { provider, id: id.to_owned(), ..Proposal::default() };
    let mut row = ProposedRow::default();
    let mut unknown = Vec::new();
    for (key, value) in entry {
        if !value.is_null() && !read_price(&mut row, provider, key, value) {
            unknown.push(key.as_str());
        }
    }
    if !unknown.is_empty() {
        proposal.refused = Some(format!("unknown prices: {}", unknown.join(", ")));
    }
    // Models without output have an output price of 0.
    if matches!(entry.get("mode").and_then(Value::as_str), Some("embedding" | "rerank")) {
        let has_search = row.search.is_some();
        row.base.retain(|kind, price| *price > 0 || (*kind == "input" && !has_search));
        row.tiers.values_mut().for_each(|kinds| kinds.retain(|_, price| *price > 0));
    }
    let count = |key: &str| entry.get(key).and_then(Value::as_u64);
    // The input limit, which is not the context window.
    proposal.input_limit = count("max_input_tokens");
    proposal.output = count("max_output_tokens");
    proposal.retires = entry.get("deprecation_date").and_then(Value::as_str).and_then(|day| day.parse().ok());
    proposal.successor = entry.get("successor_model").and_then(Value::as_str).map(str::to_owned);
    proposal.rows.push(row);
    proposal
}

/// Reads one member. Returns false for a price that is not known.
fn read_price(row: &mut ProposedRow, provider: &str, key: &str, value: &Value) -> bool {
    if BESIDE.contains(&key) || key.ends_with(OTHER_API) {
        return true;
    }
    match key {
        "search_context_cost_per_query" => {
            let prices: Vec<Option<i64>> =
                value.as_object().into_iter().flatten().map(|(_, price)| price_of(price, 0)).collect();
            row.search = prices.first().copied().flatten();
            return prices.iter().all(|price| price.is_some() && *price == row.search);
        }
        "input_cost_per_query" => {
            row.search = price_of(value, 0);
            return row.search.is_some();
        }
        "regional_processing_uplift_multiplier_eu" => return add_factor(&mut row.regions, "eu", value),
        "regional_processing_uplift_multiplier_us" => return add_factor(&mut row.regions, "us", value),
        "regional_endpoint_uplift_multiplier" => {
            return add_factor(&mut row.regions, "vertex_regional", value);
        }
        "provider_specific_entry" => {
            return value.as_object().into_iter().flatten().all(|(name, factor)| match name.as_str() {
                "us" | "eu" => add_factor(&mut row.regions, name, factor),
                "fast" => add_factor(&mut row.tier_factors, name, factor),
                _ => false,
            });
        }
        "tiered_pricing" => return read_ranges(row, value),
        _ => {}
    }
    let Some((kind, mut rest)) =
        KINDS.iter().find_map(|(start, kind)| Some((*kind, key.strip_prefix(start)?)))
    else {
        return !["cost", "price", "pricing", "multiplier", "uplift"].iter().any(|word| key.contains(word))
            || key.starts_with("supports_");
    };
    let Some(price) = price_of(value, 6) else { return false };
    let (mut above, mut tier) = (None, None);
    while !rest.is_empty() {
        if let Some((name, after)) =
            TIERS.iter().find_map(|(end, name)| Some((*name, rest.strip_prefix(end)?)))
        {
            tier = Some(name.to_owned());
            rest = after;
        } else if let Some((number, after)) = threshold(rest) {
            above = Some(number);
            rest = after;
        } else {
            return false;
        }
    }
    // xAI charges more from the threshold on, the others above it.
    let above = above.map(|above: u64| if provider == "xai" { above.saturating_sub(1) } else { above });
    let kinds: &mut Kinds = match (tier, above) {
        (None, None) => &mut row.base,
        (Some(tier), None) => row.tiers.entry(tier).or_default(),
        (None, Some(above)) => row.long.entry(above).or_default(),
        (Some(tier), Some(above)) => row.long_tiers.entry((tier, above)).or_default(),
    };
    kinds.insert(kind, price);
    true
}

/// Parses `_above_200k_tokens`.
fn threshold(rest: &str) -> Option<(u64, &str)> {
    let (number, after) = rest.strip_prefix("_above_")?.split_once("k_tokens")?;
    Some((number.parse::<u64>().ok()?.checked_mul(1_000)?, after))
}

fn add_factor(factors: &mut BTreeMap<String, PriceFactor>, name: &str, value: &Value) -> bool {
    factor_of(value).is_some_and(|factor| {
        if factor != PriceFactor::ONE {
            factors.insert(name.to_owned(), factor);
        }
        true
    })
}

/// Reads prices by ranges of the input.
fn read_ranges(row: &mut ProposedRow, value: &Value) -> bool {
    let Some(ranges) = value.as_array() else { return false };
    for range in ranges.iter().filter_map(Value::as_object) {
        let start = range.get("range").and_then(|range| range.get(0)?.as_f64()).unwrap_or(-1.0);
        let Some(start) = format!("{start:.0}").parse::<u64>().ok() else { return false };
        let kinds = if start == 0 { &mut row.base } else { row.long.entry(start).or_default() };
        for (key, value) in range.iter().filter(|(key, _)| *key != "range") {
            let kind = KINDS.iter().find(|(name, _)| name == key).map(|(_, kind)| *kind);
            match (kind, price_of(value, 6)) {
                (Some(kind), Some(price)) => drop(kinds.insert(kind, price)),
                _ => return false,
            }
        }
    }
    true
}
