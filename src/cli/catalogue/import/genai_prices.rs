//! Reader of `data.json` of genai-prices: US dollars per million tokens, with rows by their first day. Clauses that match
//! names by their beginning are ignored: a pattern would give a newer model the price of an older one.

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
    ("zhipuai", "glm"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("cohere", "cohere"),
];

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
    proposals
}

fn read_model(provider: &'static str, model: &Value) -> Option<Proposal> {
    let id = model.get("id")?.as_str()?.to_owned();
    let mut proposal = Proposal { provider, id, ..Proposal::default() };
    proposal.context = model.get("context_window").and_then(Value::as_u64);
    match model.get("prices")? {
        Value::Object(prices) => read_row(&mut proposal, None, prices),
        Value::Array(rows) => {
            for row in rows {
                let constraint = row.get("constraint").filter(|constraint| !constraint.is_null());
                let from = constraint.map(|constraint| constraint.get("start_date").and_then(Value::as_str));
                let from = match from {
                    None => None,
                    Some(Some(day)) => day.parse().ok(),
                    Some(None) => {
                        proposal.refused = Some("a price depends on the time of day".to_owned());
                        continue;
                    }
                };
                if let Some(prices) = row.get("prices").and_then(Value::as_object) {
                    read_row(&mut proposal, from, prices);
                }
            }
        }
        _ => proposal.refused = Some("its prices are in an unknown form".to_owned()),
    }
    if let Some(variants) = model.get("price_variants").and_then(Value::as_array) {
        variants.iter().for_each(|variant| read_variant(&mut proposal, variant));
    }
    Some(proposal)
}

fn read_row(proposal: &mut Proposal, from: Option<jiff::civil::Date>, prices: &Map<String, Value>) {
    let mut row = ProposedRow { from, ..ProposedRow::default() };
    for (key, value) in prices.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(reason) = read_price(&mut row, proposal.provider, key, value) {
            proposal.refused = Some(reason);
        }
    }
    proposal.rows.push(row);
}

/// Reads one price. Returns the reason if it cannot be imported.
fn read_price(row: &mut ProposedRow, provider: &str, key: &str, value: &Value) -> Option<String> {
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
        // The file writes 199,999 for xAI itself.
        let _ = provider;
        row.long.entry(start).or_default().insert(kind, price);
    }
    None
}

/// Reads the prices of a service tier, which hold beside the latest row.
fn read_variant(proposal: &mut Proposal, variant: &Value) {
    let tier =
        variant.get("when").and_then(Value::as_object).filter(|when| when.len() == 1).and_then(|when| {
            let (key, value) = when.iter().next()?;
            ["processing", "service_tier", "speed"].contains(&key.as_str()).then(|| value.as_str()).flatten()
        });
    let Some(tier) = tier else { return };
    let Some(prices) = variant.get("prices").and_then(Value::as_object) else { return };
    let mut row = ProposedRow::default();
    let plain = prices.iter().filter(|(_, value)| !value.is_null());
    let wrong = plain.filter_map(|(key, value)| read_price(&mut row, proposal.provider, key, value)).next();
    if let Some(reason) = wrong {
        proposal.refused = Some(reason);
    } else if let Some(last) = proposal.rows.last_mut() {
        for (above, kinds) in row.long {
            last.long_tiers.insert((tier.to_owned(), above), kinds);
        }
        last.tiers.insert(tier.to_owned(), row.base);
    }
}
