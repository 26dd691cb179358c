//! Input items of `POST /v1/responses`, and the rules between them.

use serde_json::{Map, Value, json};

use super::super::conversation::Conversation;
use super::super::ids::is_encrypted;
use super::compaction;
use super::errors::{ApiError, missing, wrong_type, wrong_value};
use super::store::StoreView;
use super::tools::{check_call_id, check_image};

/// Items of tools that the provider runs itself. They are accepted without checks.
const PASSED: [&str; 21] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
    "tool_search_call_output",
];

/// Returns the items of an input. A string becomes a user message, and references are resolved.
pub(super) fn items(input: &Value, store: StoreView<'_>) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        Value::String(text) => {
            vec![
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
            ]
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, item)| item_of(item, at, store)).collect::<Result<_, _>>()?
        }
        other => return Err(wrong_type("input", "one of a string or array of input items", other)),
    };
    check_reasoning(&items)?;
    Ok(items)
}

fn item_of(item: &Value, at: usize, store: StoreView<'_>) -> Result<Value, ApiError> {
    let path = format!("input[{at}]");
    let Some(members) = item.as_object() else {
        return Err(wrong_type(&path, "an object", item));
    };
    let string = |name: &str| {
        let value = item.get(name).and_then(Value::as_str);
        value.ok_or_else(|| missing(&format!("{path}.{name}")))
    };
    let kind = match item.get("type").and_then(Value::as_str) {
        Some(kind) => kind,
        None if members.contains_key("role") => "message",
        None if members.contains_key("id") => "item_reference",
        None => return Err(missing(&format!("{path}.type"))),
    };
    match kind {
        "message" => {
            check_message(item, &path)?;
            // A message in the short form has no `type`.
            let mut message = Map::from_iter([("type".to_owned(), json!("message"))]);
            message.extend(members.clone());
            return Ok(Value::Object(message));
        }
        "function_call" => {
            check_call_id(string("call_id")?, &format!("{path}.call_id"), 64)?;
            for name in ["call_id", "name", "arguments"] {
                string(name)?;
            }
        }
        "custom_tool_call" => {
            for name in ["call_id", "name", "input"] {
                string(name)?;
            }
        }
        "function_call_output" | "custom_tool_call_output" => {
            string("call_id")?;
            match item.get("output") {
                Some(Value::String(_)) => {}
                Some(Value::Array(parts)) => check_parts(parts, &format!("{path}.output"), &INPUT_PARTS)?,
                Some(other) if !other.is_null() => {
                    return Err(wrong_type(
                        &format!("{path}.output"),
                        "one of a string or array of objects",
                        other,
                    ));
                }
                _ => return Err(missing(&format!("{path}.output"))),
            }
        }
        "reasoning" => check_sealed(item, &path, store)?,
        "compaction" => compaction::check_item(item, &path)?,
        // Its place is checked when all items are known.
        "compaction_trigger" => {}
        "additional_tools" => check_added_tools(item, &path)?,
        "item_reference" => {
            let id = string("id")?;
            return store.item(id).ok_or_else(|| item_not_found(id));
        }
        other if PASSED.contains(&other) => {}
        other => {
            let mut supported = PASSED.to_vec();
            supported.extend([
                "additional_tools",
                "compaction",
                "compaction_trigger",
                "custom_tool_call",
                "custom_tool_call_output",
                "function_call",
                "function_call_output",
                "item_reference",
                "message",
                "reasoning",
            ]);
            supported.sort_unstable();
            return Err(wrong_value(&path, other, &supported));
        }
    }
    Ok(item.clone())
}

/// Checks an item that adds tools. The tools themselves are read with those of the request.
fn check_added_tools(item: &Value, path: &str) -> Result<(), ApiError> {
    let role = item.get("role").and_then(Value::as_str).ok_or_else(|| missing(&format!("{path}.role")))?;
    if role != "developer" {
        return Err(wrong_value(&format!("{path}.role"), role, &["developer"]));
    }
    match item.get("tools") {
        Some(Value::Array(_)) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{path}.tools"), "an array of objects", other)),
        None => Err(missing(&format!("{path}.tools"))),
    }
}

const INPUT_PARTS: [&str; 3] = ["input_text", "input_image", "input_file"];
const OUTPUT_PARTS: [&str; 2] = ["output_text", "refusal"];

fn check_message(message: &Value, path: &str) -> Result<(), ApiError> {
    let role = message.get("role").and_then(Value::as_str).ok_or_else(|| missing(&format!("{path}.role")))?;
    let parts: &[&str] = match role {
        "user" | "system" | "developer" => &INPUT_PARTS,
        "assistant" => &OUTPUT_PARTS,
        other => {
            let supported = ["assistant", "system", "developer", "user"];
            return Err(wrong_value(&format!("{path}.role"), other, &supported));
        }
    };
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(content)) => check_parts(content, &format!("{path}.content"), parts),
        None | Some(Value::Null) => Err(missing(&format!("{path}.content"))),
        Some(other) => {
            Err(wrong_type(&format!("{path}.content"), "one of an array of objects or string", other))
        }
    }
}

fn check_parts(parts: &[Value], path: &str, supported: &[&str]) -> Result<(), ApiError> {
    for (at, part) in parts.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let string = |name: &str| part.get(name).and_then(Value::as_str);
        let required = |name: &str| string(name).ok_or_else(|| missing(&format!("{path}.{name}")));
        let kind = required("type")?;
        if !supported.contains(&kind) {
            return Err(wrong_value(&path, kind, supported));
        }
        match kind {
            "refusal" => {
                required("refusal")?;
            }
            "input_image" => match string("image_url") {
                Some(url) => check_image(url, &format!("{path}.image_url"))?,
                None if string("file_id").is_some() => {}
                None => return Err(missing(&format!("{path}.image_url"))),
            },
            "input_file" => {
                if ["file_id", "file_data", "file_url"].iter().all(|name| string(name).is_none()) {
                    return Err(missing(&format!("{path}.file_id")));
                }
            }
            _ => {
                required("text")?;
            }
        }
    }
    Ok(())
}

/// Checks a reasoning item: its encrypted content must be one that the simulator issued, or the item must be stored.
fn check_sealed(item: &Value, path: &str, store: StoreView<'_>) -> Result<(), ApiError> {
    match item.get("summary") {
        Some(Value::Array(_)) => {}
        None | Some(Value::Null) => return Err(missing(&format!("{path}.summary"))),
        Some(other) => return Err(wrong_type(&format!("{path}.summary"), "an array of objects", other)),
    }
    if let Some(sealed) = item.get("encrypted_content").and_then(Value::as_str) {
        if is_encrypted(sealed) {
            return Ok(());
        }
        let start: String = sealed.chars().take(4).collect();
        let end: Vec<char> = sealed.chars().rev().take(4).collect();
        let end: String = end.into_iter().rev().collect();
        return Err(ApiError::invalid(format!(
            "The encrypted content {start}...{end} could not be verified. Reason: Encrypted content could not be \
             decrypted or parsed."
        ))
        .code("invalid_encrypted_content"));
    }
    let id = item.get("id").and_then(Value::as_str).ok_or_else(|| missing(&format!("{path}.id")))?;
    store.item(id).map(|_| ()).ok_or_else(|| item_not_found(id))
}

fn item_not_found(id: &str) -> ApiError {
    ApiError::new(
        404,
        "invalid_request_error",
        format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with \
             `store` set to true, or remove this item from your input."
        ),
    )
    .param("input")
}

fn kind(item: &Value) -> &str {
    item.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Checks that each reasoning item precedes an item that the model made.
fn check_reasoning(items: &[Value]) -> Result<(), ApiError> {
    for (at, item) in items.iter().enumerate().filter(|(_, item)| kind(item) == "reasoning") {
        let followed = items.get(at + 1).is_some_and(|next| match kind(next) {
            "message" => next.get("role").and_then(Value::as_str) == Some("assistant"),
            other => !other.ends_with("_output"),
        });
        if !followed {
            let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
            return Err(ApiError::invalid(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ))
            .param("input"));
        }
    }
    Ok(())
}

/// Returns the conversation of the items. Calls and outputs must match.
pub(super) fn conversation(instructions: &str, items: &[Value]) -> Result<Conversation, ApiError> {
    check_pairs(items)?;
    let mut talk = Conversation::default();
    talk.instruct(instructions);
    for item in items {
        let string = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        match kind(item) {
            "message" => match string("role") {
                "user" => {
                    talk.user();
                    content(item.get("content"), &mut talk);
                }
                "assistant" => talk.assistant(),
                _ => texts(item.get("content")).iter().for_each(|text| talk.instruct(text)),
            },
            "function_call" | "custom_tool_call" => {
                talk.assistant();
                talk.call(string("call_id"), string("name"));
            }
            "function_call_output" | "custom_tool_call_output" => {
                count_media(item.get("output"), &mut talk);
                talk.result(string("call_id"), texts(item.get("output")).join("\n"));
            }
            _ => {}
        }
    }
    Ok(talk)
}

fn check_pairs(items: &[Value]) -> Result<(), ApiError> {
    let ids = |wanted: [&'static str; 2]| {
        items
            .iter()
            .filter(move |item| wanted.contains(&kind(item)))
            .filter_map(|item| item.get("call_id").and_then(Value::as_str))
    };
    let calls: Vec<&str> = ids(["function_call", "custom_tool_call"]).collect();
    let outputs: Vec<&str> = ids(["function_call_output", "custom_tool_call_output"]).collect();
    if let Some(id) = outputs.iter().find(|id| !calls.contains(id)) {
        let message = format!("No tool call found for function call output with call_id {id}.");
        return Err(ApiError::invalid(message).param("input"));
    }
    if let Some(id) = calls.iter().find(|id| !outputs.contains(id)) {
        return Err(ApiError::invalid(format!("No tool output found for function call {id}.")).param("input"));
    }
    Ok(())
}

fn content(content: Option<&Value>, talk: &mut Conversation) {
    for text in texts(content) {
        talk.say(text);
    }
    count_media(content, talk);
}

fn count_media(content: Option<&Value>, talk: &mut Conversation) {
    for part in content.and_then(Value::as_array).into_iter().flatten() {
        match kind(part) {
            "input_image" => talk.media.images += 1,
            "input_file" => talk.media.documents += 1,
            _ => {}
        }
    }
}

fn texts(content: Option<&Value>) -> Vec<&str> {
    match content {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the error for a request without any input.
pub(super) fn none_given() -> ApiError {
    ApiError::invalid(
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
    )
    .code("missing_required_parameter")
}
