//! Common parts of chat completions and responses: functions, tool choice, schemas, images.

use serde_json::{Value, json};

use super::super::ids::decode_base64;
use super::super::schema::strict_violation;
use super::super::script::{Choice, Format, Tool};
use super::errors::{ApiError, Fields, missing, wrong_type, wrong_value};

/// Parses a function: the member `function` of a tool in chat completions, the tool itself in responses.
pub(super) fn function_tool(function: &Value, path: &str, strict_known: bool) -> Result<Tool, ApiError> {
    let name = function.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| missing(&format!("{path}.name")))?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err(ApiError::invalid(format!(
            "Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]+$'."
        ))
        .param(format!("{path}.name"))
        .code("invalid_value"));
    }
    if name.len() > 64 {
        return Err(ApiError::invalid(format!(
            "Invalid '{path}.name': string too long. Expected a string with maximum length 64, but got a string with \
             length {} instead.",
            name.len()
        ))
        .param(format!("{path}.name"))
        .code("string_above_max_length"));
    }
    let invalid = |why: String| {
        ApiError::invalid(format!("Invalid schema for function '{name}': {why}"))
            .param(format!("{path}.parameters"))
            .code("invalid_function_parameters")
    };
    let schema = match function.get("parameters").filter(|parameters| !parameters.is_null()) {
        None => json!({"type": "object", "properties": {}}),
        Some(schema) if schema.get("type").and_then(Value::as_str) == Some("object") => schema.clone(),
        Some(schema) => {
            let got = schema.get("type").map_or("\"None\"".to_owned(), Value::to_string);
            return Err(invalid(format!(
                "schema must be a JSON Schema of 'type: \"object\"', got 'type: {got}'."
            )));
        }
    };
    let strict = strict_known && function.get("strict").and_then(Value::as_bool) == Some(true);
    if let Some((context, why)) = strict.then(|| strict_violation(&schema)).flatten() {
        return Err(invalid(format!("In context={context}, {why}")));
    }
    Ok(Tool { name: name.to_owned(), schema, custom: false })
}

/// Parses a tool choice: a word, a tool (nested as in chat, or flat as in responses), or a list of allowed tools.
pub(super) fn read_choice(value: &Value, path: &str) -> Result<Choice, ApiError> {
    if let Some(word) = value.as_str() {
        return match word {
            "none" => Ok(Choice::None),
            "auto" => Ok(Choice::Auto),
            "required" => Ok(Choice::Required),
            other => Err(wrong_value(path, other, &["none", "auto", "required"])),
        };
    }
    if !value.is_object() {
        return Err(wrong_type(path, "one of a string or an object", value));
    }
    let named = |tool: &Value| {
        ["/function/name", "/custom/name", "/name"]
            .iter()
            .find_map(|pointer| tool.pointer(pointer)?.as_str().map(str::to_owned))
    };
    if value.get("type").and_then(Value::as_str) == Some("allowed_tools") {
        let inner = value.get("allowed_tools").unwrap_or(value);
        let names = inner.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let names = names.iter().filter_map(named).collect();
        let required = inner.get("mode").and_then(Value::as_str) == Some("required");
        return Ok(if required { Choice::Named(names) } else { Choice::Allowed(names) });
    }
    match named(value) {
        Some(name) => Ok(Choice::Named(vec![name])),
        // A tool that the provider runs itself.
        None if value.get("type").is_some() => Ok(Choice::Auto),
        None => Err(missing(&format!("{path}.function"))),
    }
}

/// Parses the name, schema and strictness of a structured output format.
pub(super) fn read_schema(format: &Value, path: &str, param: &str) -> Result<Format, ApiError> {
    let name = format.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| missing(&format!("{path}.name")))?;
    let Some(schema) = format.get("schema").filter(|schema| !schema.is_null()) else {
        return Ok(Format::Json);
    };
    let strict = format.get("strict").and_then(Value::as_bool) == Some(true);
    if let Some((context, why)) = strict.then(|| strict_violation(schema)).flatten() {
        return Err(ApiError::invalid(format!(
            "Invalid schema for response_format '{name}': In context={context}, {why}"
        ))
        .param(param));
    }
    Ok(Format::Schema(schema.clone()))
}

/// Returns true if a text contains "json", which the provider requires before it enables JSON mode.
pub(super) fn mentions_json(value: &Value) -> bool {
    match value {
        Value::String(text) => text.to_ascii_lowercase().contains("json"),
        Value::Array(items) => items.iter().any(mentions_json),
        Value::Object(members) => members.values().any(mentions_json),
        _ => false,
    }
}

/// Checks the user location of a web search, whose type is required.
pub(super) fn check_location(location: Fields<'_>, path: &str) -> Result<(), ApiError> {
    match location.string("type")? {
        Some("approximate") => Ok(()),
        Some(other) => Err(wrong_value(&format!("{path}.type"), other, &["approximate"])),
        None => Err(missing(&format!("{path}.type"))),
    }
}

/// Checks an image: a URL, or a data URL.
pub(super) fn check_image(url: &str, path: &str) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::invalid(message).param(path).code("invalid_value"));
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(());
    }
    let Some(data) = url.strip_prefix("data:") else {
        return invalid(format!(
            "Invalid '{path}'. Expected a valid URL, but got a value with an invalid format."
        ));
    };
    match data.split_once(";base64,") {
        Some((kind, data)) if kind.starts_with("image/") => {
            if decode_base64(data).is_some_and(|bytes| !bytes.is_empty()) {
                Ok(())
            } else {
                invalid(format!(
                    "Invalid '{path}'. Expected a base64-encoded data URL with an image MIME type."
                ))
            }
        }
        _ => invalid("Invalid MIME type. Only image types are supported.".to_owned()),
    }
}

/// Checks the length of the id of a call.
pub(super) fn check_call_id<'i>(id: &'i str, path: &str, most: usize) -> Result<&'i str, ApiError> {
    if id.len() <= most {
        return Ok(id);
    }
    Err(ApiError::invalid(format!(
        "Invalid '{path}': string too long. Expected a string with maximum length {most}, but got a string with length {} \
         instead.",
        id.len()
    ))
    .param(path.to_owned())
    .code("string_above_max_length"))
}

/// Members that other providers have added to messages and calls. Azure's API refuses what it does not know: "Additional
/// properties are not allowed ('is_example' was unexpected) - 'messages.0'" (deepsense-ai/db-ally#95, openai/openai-node#1161).
const ADDED: [&str; 6] = [
    "extra_content",
    "provider_specific_fields",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
];

/// Refuses a message with members that other providers have added.
pub(super) fn check_message(message: &Value, at: usize) -> Result<(), ApiError> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let objects = calls.flat_map(|call| [call, &call["function"]]).chain([message]);
    match objects.flat_map(|object| ADDED.into_iter().filter(|name| object.get(*name).is_some())).next() {
        Some(name) => Err(ApiError::invalid(format!(
            "Additional properties are not allowed ('{name}' was unexpected) - 'messages.{at}'"
        ))),
        None => Ok(()),
    }
}
