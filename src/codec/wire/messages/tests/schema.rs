//! Tests of schemas that are sent to a provider.

use serde_json::{Value, json};

use super::{dialect, send, send_as};
use crate::canonical::{OutputFormat, Request, Tool, ToolKind};
use crate::wire::Format;
use json::{JsonStr, RawJson};

/// Returns the response schema for a request of another format with this schema.
fn held_to(schema: &Value, openapi: bool) -> Value {
    let text = schema.to_string();
    let output = OutputFormat::Schema {
        name: JsonStr::from_escaped("city"),
        description: JsonStr::default(),
        schema: RawJson::from_text(&text),
        openapi,
        strict: Some(true),
    };
    let request = Request { output, ..Request::default() };
    let sent = send(Format::Chat, &request, &dialect());
    assert_eq!(sent.body["output_config"]["format"]["type"], "json_schema");
    sent.body["output_config"]["format"]["schema"].clone()
}

/// Returns the schema of a tool whose schema is in the OpenAPI dialect.
fn of_tool(schema: &Value) -> Value {
    let text = schema.to_string();
    let tool = Tool {
        schema: Some(RawJson::from_text(&text)),
        openapi: true,
        ..Tool::new(JsonStr::from_escaped("f"), ToolKind::Function)
    };
    let request = Request { tools: vec![tool], ..Request::default() };
    send(Format::Generate, &request, &dialect()).body["tools"][0]["input_schema"].clone()
}

#[test]
fn client_6_and_bug_64_schema_is_sent_natively() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
        "additionalProperties": false});
    assert_eq!(held_to(&schema, false), schema);
}

#[test]
fn mapping_5_schema_unsupported_keywords_move_to_the_description() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "T",
        "properties": {
            "n\"": {"type": "integer", "description": "A number", "minimum": 1, "maximum": 10},
            "s": {"type": "string", "pattern": "^\"a", "format": "uuid"},
            "f": {"type": "string", "format": "phone"},
            "l": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}, "minItems": 2},
            "one": {"type": "array", "items": {"$ref": "#/$defs/p"}, "minItems": 1},
            "m": {"type": ["string", "null"], "maxLength": 3},
            "e": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "c": {"const": 7},
            "u": {"anyOf": [{"type": "object"}, {"type": "null"}]}
        },
        "required": ["s"],
        "$defs": {"p": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}}}
    });
    assert_eq!(
        held_to(&schema, false),
        json!({
            "$defs": {"p": {"type": "object", "additionalProperties": false,
                "properties": {"x": {"type": "number", "description": "{exclusiveMinimum: 0}"}}}},
            "type": "object", "title": "T",
            "properties": {
                "n\"": {"type": "integer", "description": "A number\n\n{minimum: 1, maximum: 10}"},
                "s": {"type": "string", "description": "{pattern: \"^\\\"a\"}", "format": "uuid"},
                "f": {"type": "string", "description": "{format: \"phone\"}"},
                "l": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                    "description": "{minItems: 2}"},
                "one": {"type": "array", "items": {"$ref": "#/$defs/p"}, "minItems": 1},
                "m": {"anyOf": [{"type": "string", "description": "{maxLength: 3}"}, {"type": "null"}]},
                "e": {"enum": ["a", "b"], "description": "{default: \"a\"}"},
                "c": {"const": 7},
                "u": {"anyOf": [{"type": "object", "properties": {}, "additionalProperties": false}, {"type": "null"}]}
            },
            "required": ["s"], "additionalProperties": false
        })
    );
}

#[test]
fn schema_with_a_reference_at_the_root_keeps_its_definitions() {
    let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {}}}});
    let held = held_to(&schema, false);
    assert_eq!(held["$ref"], "#/$defs/a");
    assert_eq!(held["$defs"]["a"]["additionalProperties"], false);
}

#[test]
fn client_4_schema_types_in_capitals_are_converted() {
    let schema = json!({"type": "OBJECT", "properties": {
            "a": {"type": "STRING", "nullable": true, "format": "enum", "enum": ["x"]},
            "b": {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": "2"},
            "c": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}]}},
        "propertyOrdering": ["b", "a"], "required": ["a"]});
    assert_eq!(
        of_tool(&schema),
        json!({"type": "object", "properties": {
                "a": {"type": ["string", "null"], "format": "enum", "enum": ["x", null]},
                "b": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
                "c": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}},
            "required": ["a"]})
    );
    let held =
        held_to(&json!({"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": true}}}), true);
    assert_eq!(held["properties"]["a"], json!({"anyOf": [{"type": "string"}, {"type": "null"}]}));
}

#[test]
fn schema_of_the_same_format_is_unchanged() {
    let schema = r#"{"type":"object","properties":{"n":{"minimum":1,"type":"integer"}}}"#;
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"Hi"}}],"output_format":{{"type":"json_schema","schema":{schema}}}}}"#
    );
    assert!(send_as(Format::Messages, &body, &dialect()).raw.contains(schema));
}

#[test]
fn mapping_5_response_format_without_a_schema_is_a_loss() {
    for output in
        [OutputFormat::Json, OutputFormat::Choice { schema: RawJson::from_text(r#"{"enum":["a"]}"#) }]
    {
        let sent = send(Format::Chat, &Request { output, ..Request::default() }, &dialect());
        assert!(sent.body.get("output_config").is_none());
        assert_eq!((sent.losses, sent.refused), (vec!["response_format".to_owned()], None));
    }
}

#[test]
fn schema_of_unusual_form_is_passed_on() {
    assert_eq!(held_to(&json!({}), false), json!({}));
    let odd = json!({"type": "array", "items": true});
    assert_eq!(held_to(&odd, false), odd);
    let untyped = json!({"properties": {"a": {}}});
    assert_eq!(
        held_to(&untyped, false),
        json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false})
    );
}
