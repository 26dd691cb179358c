//! Model list.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::errors::ApiError;

/// Models: id, owner and creation time in Unix seconds.
const MODELS: [(&str, &str, u64); 10] = [
    ("gpt-4o", "system", 1_715_367_049),
    ("gpt-4o-mini", "system", 1_721_172_741),
    ("gpt-4.1", "system", 1_744_316_542),
    ("gpt-4.1-mini", "system", 1_744_318_173),
    ("gpt-5", "system", 1_754_425_777),
    ("gpt-5-mini", "system", 1_754_425_928),
    ("o4-mini", "system", 1_744_225_351),
    ("text-embedding-3-small", "system", 1_705_948_997),
    ("text-embedding-3-large", "system", 1_705_953_180),
    ("text-embedding-ada-002", "openai-internal", 1_671_217_299),
];

/// Answers `GET /v1/models`.
pub(super) fn list() -> Reply {
    let data: Vec<Value> = MODELS.iter().map(|(id, owner, created)| entry(id, owner, *created)).collect();
    Reply::json(200, &json!({"object": "list", "data": data}))
}

/// Answers `GET /v1/models/{id}`. Any model name that other endpoints accept exists.
pub(super) fn one(id: &str) -> Result<Reply, ApiError> {
    let id = super::super::http::percent_decode(id);
    if id.starts_with("missing-") {
        return Err(ApiError::new(404, "invalid_request_error", format!("The model '{id}' does not exist"))
            .param("model")
            .code("model_not_found"));
    }
    let known = MODELS.iter().find(|(name, ..)| *name == id);
    let (owner, created) = known.map_or(("system", 1_700_000_000), |(_, owner, created)| (*owner, *created));
    Ok(Reply::json(200, &entry(&id, owner, created)))
}

fn entry(id: &str, owner: &str, created: u64) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": owner})
}
