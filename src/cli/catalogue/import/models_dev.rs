//! Reader of `api.json` of models.dev: US dollars per million tokens. `context_over_200k` is ignored, because most entries with
//! it have another threshold; `cost.tiers` has the true one.

use serde_json::{Map, Value};

use super::proposal::{Kinds, Proposal, ProposedRow, price_of};

/// Providers of the file, with those of the catalogue.
const PROVIDERS: &[(&str, &str)] = &[
    ("openai", "openai"),
    ("anthropic", "anthropic"),
    ("google", "gemini"),
    ("xai", "xai"),
    ("deepseek", "deepseek"),
    ("moonshotai", "moonshot"),
    ("zai", "glm"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("alibaba", "qwen"),
    ("cohere", "cohere"),
    ("amazon-bedrock", "bedrock"),
];

const KINDS: &[(&str, &str)] = &[
    ("input", "input"),
    ("output", "output"),
    ("cache_read", "cached_input"),
    ("cache_write", "cache_write"),
    ("reasoning", "reasoning"),
    ("input_audio", "audio_input"),
    ("output_audio", "audio_output"),
];

/// Members of a cost that are no price of their own.
const BESIDE: [&str; 3] = ["context_over_200k", "tiers", "tier"];

pub(super) fn read(document: &Value) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for (name, provider) in PROVIDERS {
        let models = document.get(name).and_then(|entry| entry.get("models")?.as_object());
        for (id, model) in models.into_iter().flatten() {
            proposals.push(read_model(provider, id, model));
        }
    }
    super::regions::merged(proposals)
}

fn read_model(provider: &'static str, id: &str, model: &Value) -> Proposal {
    let mut proposal = Proposal { provider, id: id.to_owned(), ..Proposal::default() };
    let limit = |key: &str| model.get("limit").and_then(|limit| limit.get(key)?.as_u64());
    (proposal.context, proposal.input_limit, proposal.output) =
        (limit("context"), limit("input"), limit("output"));
    let Some(cost) = model.get("cost").and_then(Value::as_object) else {
        proposal.refused = Some("it has no cost".to_owned());
        return proposal;
    };
    let mut row = ProposedRow::default();
    let mut unknown = read_kinds(&mut row.base, cost);
    for tier in cost.get("tiers").and_then(Value::as_array).into_iter().flatten() {
        let bound = tier.get("tier");
        let is_context = bound.and_then(|bound| bound.get("type")?.as_str()) == Some("context");
        let size = bound.and_then(|bound| bound.get("size")?.as_u64()).filter(|_| is_context);
        let (Some(size), Some(tier)) = (size, tier.as_object()) else {
            unknown.push("tiers".to_owned());
            continue;
        };
        // xAI charges more from the threshold on, the others above it.
        let above = if provider == "xai" { size.saturating_sub(1) } else { size };
        unknown.extend(read_kinds(row.long.entry(above).or_default(), tier));
    }
    if !unknown.is_empty() {
        proposal.refused = Some(format!("unknown prices: {}", unknown.join(", ")));
    }
    proposal.rows.push(row);
    proposal
}

/// Reads the prices of a table. Returns the keys that are not known.
fn read_kinds(kinds: &mut Kinds, table: &Map<String, Value>) -> Vec<String> {
    let mut unknown = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| !BESIDE.contains(&key.as_str())) {
        let kind = KINDS.iter().find(|(name, _)| name == key).map(|(_, kind)| *kind);
        match (kind, price_of(value, 0)) {
            (Some(kind), Some(price)) => drop(kinds.insert(kind, price)),
            _ => unknown.push(key.clone()),
        }
    }
    unknown
}
