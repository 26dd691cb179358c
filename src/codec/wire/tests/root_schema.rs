//! Tests of the roots of tools' schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire::root_schema::plain_object;
use json::RawJson;

fn object(schema: RawJson<'_>) -> Option<String> {
    plain_object(schema, true)
}

fn rooted(schema: &Value) -> Value {
    let text = schema.to_string();
    let made = object(RawJson::from_text(&text));
    made.map_or_else(|| schema.clone(), |made| serde_json::from_str(&made).unwrap())
}

#[test]
fn root_that_is_an_object_is_copied() {
    for schema in [
        json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}, "required": ["a"]}),
        json!({"type": "string"}),
        json!(true),
    ] {
        assert!(object(RawJson::from_text(&schema.to_string())).is_none(), "{schema}");
    }
}

#[test]
fn root_without_type_is_an_object() {
    assert_eq!(rooted(&json!({})), json!({"type": "object"}));
    assert_eq!(
        rooted(&json!({"properties": {"a": {}}, "x": 1})),
        json!({"type": "object", "properties": {"a": {}}, "x": 1})
    );
}

#[test]
fn root_union_is_merged_and_named_in_the_description() {
    let made = rooted(&json!({
        "type": "object",
        "description": "Fetch.",
        "oneOf": [
            {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}, "required": ["path", "n"]},
            {"type": "object", "properties": {"url": {"type": "string"}, "n": {"type": "string"}}, "required": ["n", "url"]},
        ],
        "additionalProperties": false,
    }));
    assert_eq!(
        made["properties"],
        json!({
            "path": {"type": "string"},
            "n": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "url": {"type": "string"},
        })
    );
    assert_eq!(made["required"], json!(["n"]), "what each alternative requires");
    assert_eq!(made["additionalProperties"], json!(false));
    let told = made["description"].as_str().unwrap();
    assert!(told.starts_with("Fetch.\n\n{oneOf: [{\"type\":\"object\""), "{told}");
    assert_eq!(made.get("oneOf"), None);
}

#[test]
fn root_intersection_is_merged_without_a_word() {
    let made = rooted(&json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"$ref": "#/$defs/Rest"},
    ], "$defs": {"Rest": {"type": "object", "properties": {"b": {}}, "required": ["b", "a"]}}}));
    assert_eq!(
        made,
        json!({
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {}},
            "required": ["a", "b"],
            "$defs": {"Rest": {"type": "object", "properties": {"b": {}}, "required": ["b", "a"]}},
        })
    );
}

#[test]
fn root_of_several_types_or_a_reference_is_the_object() {
    assert_eq!(
        rooted(&json!({"type": ["object", "null"], "properties": {"a": {}}})),
        json!({"type": "object", "properties": {"a": {}}})
    );
    assert_eq!(
        rooted(&json!({"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"a": {}}}}}))["properties"],
        json!({"a": {}})
    );
    let elsewhere = rooted(&json!({"$ref": "https://example.org/schema"}));
    assert_eq!(elsewhere["description"], json!("{$ref: \"https://example.org/schema\"}"));
}

#[test]
fn root_of_references_to_themselves_ends() {
    let made = rooted(&json!({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}],
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"properties": {"a": {}}}]}}}));
    assert_eq!(made["properties"], json!({"a": {}}));
}

#[test]
fn root_union_stays_where_only_the_type_is_required() {
    let made = plain_object(RawJson::from_text(r#"{"oneOf":[],"type":["object","null"]}"#), false);
    assert_eq!(made.as_deref(), Some(r#"{"type":"object","oneOf":[]}"#));
    assert_eq!(plain_object(RawJson::from_text(r#"{"oneOf":[],"type":"object"}"#), false), None);
}

/// Schemas with unions, references and other JSON at any place.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({"type": "string"})),
        Just(json!({"$ref": "#/$defs/A"})),
        Just(json!({"enum": [1, "a"]})),
        Just(json!(null)),
        Just(json!([1])),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let named = prop::collection::vec(("[a-c\"\\\\]", inner.clone()), 0..4);
        let named = named.prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
        prop_oneof![
            ("(oneOf|anyOf|allOf|required|type)", list).prop_map(|(key, list)| json!({(key): list})),
            ("(properties|\\$defs|not|items)", named.clone()).prop_map(|(key, named)| json!({(key): named})),
            (named.clone(), named).prop_map(|(one, other)| {
                json!({"type": "object", "properties": one, "$defs": other, "required": ["a"]})
            }),
        ]
    })
}

proptest! {
    #[test]
    fn root_is_valid_json_without_unions(schema in schemas()) {
        let text = schema.to_string();
        if let Some(made) = object(RawJson::from_text(&text)) {
            let made: Value = serde_json::from_str(&made).unwrap();
            for name in ["oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"] {
                prop_assert!(made.get(name).is_none(), "{name} in {made}");
            }
            prop_assert_eq!(&made["type"], &json!("object"), "{} of {}", made, schema);
        }
    }
}
