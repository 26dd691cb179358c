//! Message shapes: the fields of request messages and their types. Names in camelCase and in snake_case are equivalent.
//! Unknown names are refused, as by the provider's JSON parser.
//!
//! Sources: the reference of the Gemini API (v1beta) and the types of google-genai 3.4.

use serde_json::Value;

use super::super::ids::decode_base64;
use super::errors::{ApiError, violation};

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// Any value.
    Any,
    Text,
    Number,
    Flag,
    /// Base64.
    Bytes,
    /// Enumeration: one of these names in any case, or a number.
    Enum(&'static str, &'static [&'static str]),
    /// Any JSON object.
    Struct,
    /// Schema in the provider's subset of OpenAPI.
    Schema,
    List(&'static Shape),
    Message(&'static str, &'static [(&'static str, Shape)]),
}

use Shape::{Any, Bytes, Enum, Flag, List, Message, Number, Schema, Struct, Text};

/// Request of `generateContent` and `streamGenerateContent`.
pub(super) const GENERATE: Shape = Message(
    "GenerateContentRequest",
    &[
        ("model", Text),
        ("contents", List(&CONTENT)),
        ("systemInstruction", CONTENT),
        ("tools", List(&TOOL)),
        ("toolConfig", TOOL_CONFIG),
        ("safetySettings", List(&SAFETY)),
        ("generationConfig", CONFIG),
        ("cachedContent", Text),
        ("serviceTier", Any),
        ("labels", Any),
        ("store", Flag),
    ],
);

/// Request of `countTokens`.
pub(super) const COUNT: Shape = Message(
    "CountTokensRequest",
    &[("model", Text), ("contents", List(&CONTENT)), ("generateContentRequest", GENERATE)],
);

/// Request of `embedContent`, and element of a `batchEmbedContents` request.
pub(super) const EMBED: Shape = Message(
    "EmbedContentRequest",
    &[
        ("model", Text),
        ("content", CONTENT),
        ("taskType", Any),
        ("title", Text),
        ("outputDimensionality", Number),
        ("embedContentConfig", Any),
    ],
);

/// Request of `batchEmbedContents`.
pub(super) const BATCH_EMBED: Shape = Message("BatchEmbedContentsRequest", &[("requests", List(&EMBED))]);

const CONTENT: Shape = Message("Content", &[("role", Text), ("parts", List(&PART))]);

const PART: Shape = Message(
    "Part",
    &[
        ("text", Text),
        ("inlineData", BLOB),
        ("fileData", Message("FileData", &[("mimeType", Text), ("fileUri", Text), ("displayName", Text)])),
        ("functionCall", CALL),
        ("functionResponse", RESPONSE),
        ("executableCode", Any),
        ("codeExecutionResult", Any),
        ("toolCall", Any),
        ("toolResponse", Any),
        ("thought", Flag),
        ("thoughtSignature", Bytes),
        ("videoMetadata", Any),
        ("mediaResolution", Any),
        ("partMetadata", Any),
        ("audioTranscription", Any),
        ("mediaProcessing", Any),
        ("speechMetadata", Any),
        ("documentMetadata", Any),
        ("spreadsheetMetadata", Any),
        ("audioMetadata", Any),
    ],
);

const BLOB: Shape = Message("Blob", &[("mimeType", Text), ("data", Bytes), ("displayName", Text)]);

const CALL: Shape = Message(
    "FunctionCall",
    &[("id", Text), ("name", Text), ("args", Struct), ("partialArgs", Any), ("willContinue", Flag)],
);

const RESPONSE: Shape = Message(
    "FunctionResponse",
    &[
        ("id", Text),
        ("name", Text),
        ("response", Struct),
        ("parts", Any),
        ("willContinue", Flag),
        ("scheduling", Any),
    ],
);

const TOOL: Shape = Message(
    "Tool",
    &[
        ("functionDeclarations", List(&DECLARATION)),
        ("googleSearch", Any),
        ("googleSearchRetrieval", Any),
        ("codeExecution", Any),
        ("urlContext", Any),
        ("googleMaps", Any),
        ("fileSearch", Any),
        ("computerUse", Any),
        ("mcpServers", Any),
    ],
);

const DECLARATION: Shape = Message(
    "FunctionDeclaration",
    &[
        ("name", Text),
        ("description", Text),
        ("parameters", Schema),
        ("parametersJsonSchema", Any),
        ("response", Schema),
        ("responseJsonSchema", Any),
        ("behavior", Any),
    ],
);

const TOOL_CONFIG: Shape = Message(
    "ToolConfig",
    &[
        (
            "functionCallingConfig",
            Message(
                "FunctionCallingConfig",
                &[
                    (
                        "mode",
                        Enum(
                            "FunctionCallingConfig.Mode",
                            &["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"],
                        ),
                    ),
                    ("allowedFunctionNames", List(&Text)),
                    ("streamFunctionCallArguments", Flag),
                ],
            ),
        ),
        ("retrievalConfig", Any),
        ("includeServerSideToolInvocations", Flag),
    ],
);

const SAFETY: Shape = Message(
    "SafetySetting",
    &[
        ("category", Any),
        (
            "threshold",
            Enum(
                "SafetySetting.HarmBlockThreshold",
                &[
                    "HARM_BLOCK_THRESHOLD_UNSPECIFIED",
                    "BLOCK_LOW_AND_ABOVE",
                    "BLOCK_MEDIUM_AND_ABOVE",
                    "BLOCK_ONLY_HIGH",
                    "BLOCK_NONE",
                    "OFF",
                ],
            ),
        ),
    ],
);

const CONFIG: Shape = Message(
    "GenerationConfig",
    &[
        ("temperature", Number),
        ("topP", Number),
        ("topK", Number),
        ("candidateCount", Number),
        ("maxOutputTokens", Number),
        ("stopSequences", List(&Text)),
        ("responseLogprobs", Flag),
        ("logprobs", Number),
        ("presencePenalty", Number),
        ("frequencyPenalty", Number),
        ("seed", Number),
        ("responseMimeType", Text),
        ("responseSchema", Schema),
        ("responseJsonSchema", Any),
        ("responseFormat", Any),
        ("responseModalities", Any),
        ("mediaResolution", Any),
        ("speechConfig", Any),
        ("imageConfig", Any),
        ("thinkingConfig", THINKING),
        ("enableEnhancedCivicAnswers", Flag),
        ("enableAffectiveDialog", Flag),
        ("translationConfig", Any),
        ("audioTranscriptionConfig", Any),
    ],
);

const THINKING: Shape = Message(
    "ThinkingConfig",
    &[
        ("includeThoughts", Flag),
        ("thinkingBudget", Number),
        (
            "thinkingLevel",
            Enum(
                "ThinkingConfig.ThinkingLevel",
                &["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"],
            ),
        ),
    ],
);

/// Keywords of a schema. Only newer back ends support the last three.
const SCHEMA: [&str; 25] = [
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "propertyOrdering",
    "required",
    "title",
    "type",
    "additionalProperties",
    "defs",
    "ref",
];

/// Returns a member by either spelling. `None` if it is absent or null.
pub(super) fn get<'a>(value: &'a Value, camel: &str) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake(camel))).filter(|value| !value.is_null())
}

/// Returns the elements of a list member, none if it is absent.
pub(super) fn list<'a>(value: &'a Value, camel: &str) -> &'a [Value] {
    get(value, camel).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a string member.
pub(super) fn text<'a>(value: &'a Value, camel: &str) -> Option<&'a str> {
    get(value, camel).and_then(Value::as_str)
}

/// Returns a number member, which may be a string.
pub(super) fn number(value: &Value, camel: &str) -> Option<f64> {
    let value = get(value, camel)?;
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Converts a name to snake_case, as in errors.
pub(super) fn snake(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// Checks a value. `path` names it in errors, and is empty for the request itself.
pub(super) fn check(value: &Value, shape: &Shape, path: &str) -> Result<(), ApiError> {
    if value.is_null() {
        return Ok(());
    }
    let fits = match shape {
        Any => true,
        Text => value.is_string(),
        Number => value.is_number() || value.as_str().is_some_and(|text| text.parse::<f64>().is_ok()),
        Flag => value.is_boolean(),
        Struct => value.is_object(),
        Enum(_, names) => {
            value.is_number()
                || value.as_str().is_some_and(|text| names.iter().any(|name| name.eq_ignore_ascii_case(text)))
        }
        Bytes => {
            let Some(text) = value.as_str() else {
                return Err(invalid(value, shape, path));
            };
            if decode_base64(text).is_none() {
                let message =
                    format!("Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed for \"{text}\"");
                return Err(violation(path, message));
            }
            true
        }
        Schema => return check_schema(value, path),
        List(inner) => {
            let Some(items) = value.as_array() else {
                return Err(invalid(value, inner, path));
            };
            for (at, item) in items.iter().enumerate() {
                check(item, inner, &format!("{path}[{at}]"))?;
            }
            true
        }
        Message(_, fields) => {
            let Some(members) = value.as_object() else {
                return Err(invalid(value, shape, path));
            };
            for (name, member) in members {
                let Some((known, shape)) =
                    fields.iter().find(|(known, _)| name == known || *name == snake(known))
                else {
                    return Err(unknown(name, path, "Cannot find field."));
                };
                let spelled = snake(known);
                let path = if path.is_empty() { spelled } else { format!("{path}.{spelled}") };
                check(member, shape, &path)?;
            }
            true
        }
    };
    if fits { Ok(()) } else { Err(invalid(value, shape, path)) }
}

fn check_schema(schema: &Value, path: &str) -> Result<(), ApiError> {
    let Some(members) = schema.as_object() else {
        return Err(violation(
            path,
            format!(
                "Invalid value at '{path}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Schema), {schema}"
            ),
        ));
    };
    for (name, member) in members {
        let Some(known) = SCHEMA.iter().find(|known| name == *known || *name == snake(known)) else {
            return Err(unknown(name, path, "Cannot find field."));
        };
        let inner = format!("{path}.{}", snake(known));
        match (*known, member) {
            ("type", Value::Array(_)) => {
                return Err(unknown(name, path, "Proto field is not repeating, cannot start list."));
            }
            ("properties" | "defs", Value::Object(children)) => {
                for (at, child) in children.values().enumerate() {
                    check_schema(child, &format!("{inner}[{at}].value"))?;
                }
            }
            ("items", child) => check_schema(child, &inner)?,
            ("anyOf", Value::Array(children)) => {
                for (at, child) in children.iter().enumerate() {
                    check_schema(child, &format!("{inner}[{at}]"))?;
                }
            }
            ("enum" | "required", list) => check(list, &List(&Text), &inner)?,
            _ => {}
        }
    }
    Ok(())
}

fn unknown(name: &str, path: &str, why: &str) -> ApiError {
    let place = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
    violation(path, format!("Invalid JSON payload received. Unknown name \"{name}\"{place}: {why}"))
}

fn invalid(value: &Value, shape: &Shape, path: &str) -> ApiError {
    let kind = match shape {
        Text => "TYPE_STRING".to_owned(),
        Number => "TYPE_FLOAT".to_owned(),
        Flag => "TYPE_BOOL".to_owned(),
        Bytes => "TYPE_BYTES".to_owned(),
        Struct => "type.googleapis.com/google.protobuf.Struct".to_owned(),
        Enum(name, _) | Message(name, _) => {
            format!("type.googleapis.com/google.ai.generativelanguage.v1beta.{name}")
        }
        Any | Schema | List(_) => "TYPE_MESSAGE".to_owned(),
    };
    violation(path, format!("Invalid value at '{path}' ({kind}), {value}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(body: Value) -> String {
        check(&body, &GENERATE, "").err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn shape_accepts_snake_case_and_camel_case() {
        let body = json!({"contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]}],
                          "generation_config": {"thinkingConfig": {"thinking_level": "low"}}});
        assert_eq!(refused(body), "");
    }

    #[test]
    fn shape_invalid_fields_and_types_are_refused() {
        assert_eq!(
            refused(json!({"foo": 1})),
            "Invalid JSON payload received. Unknown name \"foo\": Cannot find field."
        );
        assert!(
            refused(json!({"contents": "hi"}))
                .starts_with("Invalid value at 'contents' (type.googleapis.com/")
        );
        assert!(
            refused(json!({"generationConfig": {"topK": true}}))
                .contains("'generation_config.top_k' (TYPE_FLOAT)")
        );
        let schema = json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}});
        assert_eq!(
            refused(json!({"tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]})),
            "Invalid JSON payload received. Unknown name \"type\" at 'tools[0].function_declarations[0].parameters.\
             properties[0].value': Proto field is not repeating, cannot start list."
        );
        assert!(
            refused(json!({"generationConfig": {"responseSchema": {"$ref": "x"}}}))
                .contains("Unknown name \"$ref\"")
        );
        assert!(
            refused(json!({"contents": [{"parts": [{"thoughtSignature": "!"}]}]}))
                .contains("Base64 decoding failed")
        );
    }
}
