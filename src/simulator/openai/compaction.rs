//! Compaction: checks of its input items, and `POST /v1/responses/compact`.
//!
//! A compaction item stands for the conversation before it. Its content is opaque, and valid only at the provider that
//! made it.

use serde_json::{Value, json};

use super::super::clock;
use super::super::http::Reply;
use super::super::ids::{self, Ids, is_encrypted};
use super::errors::{ApiError, missing};
use super::responses::Asked;

/// Members of a request to compact. Source: `ResponseCompactParams` of openai-python 3.52.
pub(super) const KNOWN: [&str; 9] = [
    "image",
    "input",
    "instructions",
    "model",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
];

/// Checks a compaction item: it must have content that the simulator made.
pub(super) fn check_item(item: &Value, path: &str) -> Result<(), ApiError> {
    let sealed = item.get("encrypted_content").and_then(Value::as_str);
    let sealed = sealed.ok_or_else(|| missing(&format!("{path}.encrypted_content")))?;
    if is_encrypted(sealed) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "The encrypted content of a compaction item could not be verified. Reason: Encrypted content could not be \
         decrypted or parsed.",
    )
    .param(format!("{path}.encrypted_content"))
    .code("invalid_encrypted_content"))
}

/// Returns whether the request asks for a compaction: its last item is a trigger.
///
/// # Errors
/// Returns an error for a trigger that is not the last item.
pub(super) fn is_triggered(items: &[Value]) -> Result<bool, ApiError> {
    let is_trigger = |item: &Value| item.get("type").and_then(Value::as_str) == Some("compaction_trigger");
    match items.iter().position(is_trigger) {
        None => Ok(false),
        Some(at) if at + 1 == items.len() => Ok(true),
        Some(at) => Err(ApiError::invalid("'compaction_trigger' must be the final input item.")
            .param(format!("input[{at}]"))),
    }
}

/// Returns a new compaction item.
pub(super) fn item(ids: &mut Ids) -> (String, String) {
    (ids.hex("cmp_", 50), ids::encrypted(ids.next()))
}

/// Returns the compacted conversation: its messages of the user, and one compaction item.
pub(super) fn reply(asked: &Asked<'_>, mut ids: Ids) -> Reply {
    let id = ids.hex("resp_", 50);
    let items = asked.history.iter().chain(&asked.input);
    let mut output: Vec<Value> = items
        .filter(|item| item.get("role").and_then(Value::as_str) == Some("user"))
        .map(|item| {
            let content = match item.get("content") {
                Some(Value::String(text)) => json!([{"type": "input_text", "text": text}]),
                content => content.cloned().unwrap_or_default(),
            };
            json!({"id": ids.hex("msg_", 50), "type": "message", "status": "completed", "content": content,
                   "role": "user"})
        })
        .collect();
    let (item_id, sealed) = item(&mut ids);
    output.push(json!({"id": item_id, "type": "compaction", "encrypted_content": sealed}));
    let (input, output_tokens) = (asked.ask.prompt_tokens, 20);
    Reply::json(
        200,
        &json!({"id": id, "object": "response.compaction", "created_at": clock::unix(), "output": output,
            "usage": {"input_tokens": input, "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
                "output_tokens": output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": input + output_tokens}}),
    )
}
