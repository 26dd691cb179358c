//! Tools, tool choice and structured output.

use serde_json::Value;

use super::super::script::{Choice, Format, Tool};
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};

/// Type prefixes of tools that the provider defines or runs itself.
const TYPED: [&str; 12] = [
    "advisor_",
    "bash_",
    "browser_",
    "code_execution_",
    "computer_",
    "mcp_toolset",
    "memory_",
    "str_replace_",
    "text_editor_",
    "tool_search_tool_",
    "web_fetch_",
    "web_search_",
];

/// Members of a client tool.
const TOOL: [&str; 10] = [
    "name",
    "description",
    "input_schema",
    "type",
    "strict",
    "cache_control",
    "eager_input_streaming",
    "defer_loading",
    "input_examples",
    "allowed_callers",
];

/// Returns the tools that the model may call. Server tools are accepted and never called.
pub(super) fn tools(body: &Fields<'_>) -> Result<Vec<Tool>, ApiError> {
    let mut tools: Vec<Tool> = Vec::new();
    for (at, tool) in body.array("tools")?.into_iter().flatten().enumerate() {
        let path = format!("tools.{at}");
        if !tool.is_object() {
            return Err(should_be(&path, "a valid dictionary"));
        }
        match Fields::new(tool, &*path).string("type")? {
            None | Some("custom") => {
                let tool = custom(&Fields::new(tool, format!("{path}.custom")))?;
                if tools.iter().any(|other| other.name == tool.name) {
                    return Err(ApiError::invalid("tools: Tool names must be unique."));
                }
                tools.push(tool);
            }
            Some(kind) if TYPED.iter().any(|prefix| kind.starts_with(prefix)) => {}
            Some(kind) => return Err(wrong_tag(&path, kind, &EXPECTED)),
        }
    }
    Ok(tools)
}

/// Types that the error for an unknown type lists: the newest of each family.
const EXPECTED: [&str; 8] = [
    "bash_20250124",
    "code_execution_20260120",
    "custom",
    "memory_20250818",
    "text_editor_20250728",
    "tool_search_tool_bm25_20251119",
    "web_fetch_20260209",
    "web_search_20260209",
];

fn custom(tool: &Fields<'_>) -> Result<Tool, ApiError> {
    tool.only(&[&TOOL])?;
    let name = tool.require("name")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 128 || !name.chars().all(legal) {
        return Err(ApiError::invalid(format!(
            "{}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
            tool.at("name")
        )));
    }
    tool.string("description")?;
    let schema = tool.object("input_schema")?.ok_or_else(|| required(&tool.at("input_schema")))?;
    match schema.get("type") {
        Some(kind) if kind == "object" => {}
        Some(_) => return Err(should_be(&schema.at("type"), "'object'")),
        None => return Err(required(&schema.at("type"))),
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|key| schema.get(key).is_some()) {
        return Err(ApiError::invalid(format!(
            "{}: input_schema does not support oneOf, allOf, or anyOf at the top level",
            schema.path
        )));
    }
    if tool.boolean("strict")? == Some(true) {
        check_closed(schema.value, &schema.path)?;
    }
    Ok(Tool { name: name.to_owned(), schema: schema.value.clone(), custom: false })
}

/// Returns the tool choice, and whether parallel calls are disabled.
pub(super) fn choice(body: &Fields<'_>, tools: &[Tool]) -> Result<(Choice, bool), ApiError> {
    let Some(choice) = body.object("tool_choice")? else {
        return Ok((Choice::Auto, false));
    };
    if body.get("tools").is_none() {
        return Err(ApiError::invalid(
            "tool_choice: tool_choice may only be specified while providing tools.",
        ));
    }
    let one = choice.boolean("disable_parallel_tool_use")?.unwrap_or(false);
    let kind = match choice.require("type")? {
        "auto" => Choice::Auto,
        "any" => Choice::Required,
        "none" => Choice::None,
        "tool" => {
            let name = Fields::new(choice.value, "tool_choice.tool").require("name")?;
            let typed = body.get("tools").and_then(Value::as_array).into_iter().flatten();
            if !tools.iter().any(|tool| tool.name == name) && !typed.into_iter().any(|t| t["name"] == name) {
                return Err(ApiError::invalid(format!("Tool '{name}' not found in provided tools")));
            }
            Choice::Named(vec![name.to_owned()])
        }
        other => return Err(wrong_tag("tool_choice", other, &["auto", "any", "tool", "none"])),
    };
    Ok((kind, one))
}

/// Returns the response format: `output_config.format`, or `output_format` as in the earlier beta.
pub(super) fn format(body: &Fields<'_>) -> Result<Format, ApiError> {
    let config = body.object("output_config")?;
    if let Some(config) = &config {
        config.only(&[&["effort", "format", "task_budget"]])?;
        match config.string("effort")? {
            None | Some("low" | "medium" | "high" | "xhigh" | "max") => {}
            Some(_) => {
                return Err(should_be("output_config.effort", "'low', 'medium', 'high', 'xhigh' or 'max'"));
            }
        }
    }
    let format = match &config {
        Some(config) => config.object("format")?,
        None => None,
    };
    let Some(format) = (match format {
        Some(format) => Some(format),
        None => body.object("output_format")?,
    }) else {
        return Ok(Format::Text);
    };
    match format.require("type")? {
        "json_schema" => {
            let schema = format.object("schema")?.ok_or_else(|| required(&format.at("schema")))?;
            check_closed(schema.value, &schema.path)?;
            Ok(Format::Schema(schema.value.clone()))
        }
        other => Err(wrong_tag(&format.path, other, &["json_schema"])),
    }
}

/// Keywords that constrained decoding does not support, by type.
const UNSUPPORTED: [(&str, &[&str]); 4] = [
    ("string", &["minLength", "maxLength"]),
    ("integer", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ("array", &["maxItems", "uniqueItems"]),
];

/// Checks a schema for constrained decoding: objects must be closed, and some keywords are unsupported.
fn check_closed(schema: &Value, path: &str) -> Result<(), ApiError> {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "object" && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err(ApiError::invalid(format!(
            "{path}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        )));
    }
    let keywords = UNSUPPORTED.iter().filter(|(name, _)| *name == kind).flat_map(|(_, keywords)| *keywords);
    let found: Vec<&str> = keywords.copied().filter(|keyword| schema.get(keyword).is_some()).collect();
    if !found.is_empty() {
        return Err(ApiError::invalid(format!(
            "{path}: For '{kind}' type, properties {} are not supported",
            found.join(", ")
        )));
    }
    for key in ["properties", "$defs", "definitions"] {
        for child in schema.get(key).and_then(Value::as_object).into_iter().flat_map(|m| m.values()) {
            check_closed(child, path)?;
        }
    }
    for key in ["anyOf", "allOf"] {
        for child in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            check_closed(child, path)?;
        }
    }
    schema.get("items").map_or(Ok(()), |items| check_closed(items, path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_must_be_closed_and_without_numeric_limits() {
        let open = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}},
                          "additionalProperties": false});
        assert!(check_closed(&open, "s").is_err_and(|e| e.to_string().starts_with("s: For 'object' type")));
        let limited = json!({"type": "integer", "minimum": 1});
        assert!(check_closed(&limited, "s").is_err_and(|e| e.to_string().contains("properties minimum")));
        assert!(
            check_closed(&json!({"type": "array", "items": {"type": "string"}, "minItems": 1}), "s").is_ok()
        );
    }
}
