//! Model list.

use serde_json::{Value, json};

use super::super::http::{Reply, Request, percent_decode};
use super::errors::ApiError;

/// Models: id, display name, line, creation time, maximum input and output tokens. Newest first, in the provider's
/// order.
const MODELS: [(&str, &str, &str, &str, u64, u64); 6] = [
    ("claude-opus-4-8", "Claude Opus 4.8", "opus", "2026-05-27T00:00:00Z", 1_000_000, 128_000),
    ("claude-sonnet-4-6", "Claude Sonnet 4.6", "sonnet", "2026-02-17T00:00:00Z", 1_000_000, 64_000),
    ("claude-opus-4-6", "Claude Opus 4.6", "opus", "2026-02-04T00:00:00Z", 1_000_000, 128_000),
    ("claude-opus-4-5-20251101", "Claude Opus 4.5", "opus", "2025-11-24T00:00:00Z", 200_000, 64_000),
    ("claude-haiku-4-5-20251001", "Claude Haiku 4.5", "haiku", "2025-10-15T00:00:00Z", 200_000, 64_000),
    ("claude-sonnet-4-5-20250929", "Claude Sonnet 4.5", "sonnet", "2025-09-29T00:00:00Z", 200_000, 64_000),
];

/// Answers `GET /v1/models`, with pagination.
pub(super) fn list(request: &Request) -> Result<Reply, ApiError> {
    let limit = match request.query("limit").map(str::parse::<usize>) {
        None => 20,
        Some(Ok(limit)) if (1..=1000).contains(&limit) => limit,
        Some(Ok(_)) => {
            return Err(ApiError::invalid(
                "limit: Input should be greater than or equal to 1 and at most 1000",
            ));
        }
        Some(Err(_)) => {
            return Err(ApiError::invalid(
                "limit: Input should be a valid integer, unable to parse string as an integer",
            ));
        }
    };
    let position = |name: &str| match request.query(name) {
        None => Ok(None),
        Some(id) => match MODELS.iter().position(|model| model.0 == id) {
            Some(at) => Ok(Some(at)),
            None => Err(ApiError::invalid(format!("{name}: unknown model {id}"))),
        },
    };
    let (from, until) = match (position("after_id")?, position("before_id")?) {
        (Some(after), _) => (after + 1, (after + 1 + limit).min(MODELS.len())),
        (None, Some(before)) => (before.saturating_sub(limit), before),
        (None, None) => (0, limit.min(MODELS.len())),
    };
    let more = if request.query("before_id").is_some() { from > 0 } else { until < MODELS.len() };
    let data: Vec<Value> = MODELS.get(from..until).unwrap_or_default().iter().map(entry).collect();
    let id = |model: Option<&Value>| model.and_then(|model| model.get("id")).cloned();
    Ok(Reply::json(
        200,
        &json!({"data": data, "has_more": more, "first_id": id(data.first()), "last_id": id(data.last())}),
    ))
}

/// Answers `GET /v1/models/{id}`. Any model name that other endpoints accept exists.
pub(super) fn one(id: &str) -> Result<Reply, ApiError> {
    let id = percent_decode(id);
    if id.starts_with("missing-") {
        return Err(ApiError::new(404, "not_found_error", format!("model: {id}")));
    }
    let known = MODELS.iter().find(|model| model.0 == id);
    let other = (id.as_str(), id.as_str(), "", "1970-01-01T00:00:00Z", 200_000, 64_000);
    Ok(Reply::json(200, &entry(known.unwrap_or(&other))))
}

fn entry(model: &(&str, &str, &str, &str, u64, u64)) -> Value {
    let (id, title, line, created, input, output) = model;
    let line = (!line.is_empty()).then_some(line);
    json!({"type": "model", "id": id, "display_name": title, "created_at": created, "max_input_tokens": input,
           "max_tokens": output, "capabilities": null, "lifecycle": "active", "deprecated_at": null,
           "retires_at": null, "line": line})
}
