//! Validator for the subset of JSON Schema, Draft 4, that the schemas of the configuration use.

use regex::Regex;
use serde_json::{Map, Value};

/// Keywords that say something about a value without restricting it.
const ANNOTATIONS: [&str; 5] = ["$schema", "title", "description", "default", "format"];

/// Returns every violation of a schema, with the path of the value. Panics on a keyword that it does not know.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let members = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema} is no schema"));
    for (keyword, rule) in members {
        if !ANNOTATIONS.contains(&keyword.as_str()) && !holds(keyword, rule, value) {
            found.push(format!("{path}: {value} violates {keyword} {rule}"));
        }
    }
    if let Some(object) = value.as_object() {
        check_members(members, object, path, found);
    }
    if let (Some(items), Some(list)) = (members.get("items"), value.as_array()) {
        for (index, element) in list.iter().enumerate() {
            check(items, element, &format!("{path}[{index}]"), found);
        }
    }
}

fn check_members(
    schema: &Map<String, Value>,
    object: &Map<String, Value>,
    path: &str,
    found: &mut Vec<String>,
) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in object {
        let path = format!("{path}.{name}");
        match (properties.and_then(|properties| properties.get(name)), schema.get("additionalProperties")) {
            (Some(property), _) => check(property, value, &path, found),
            (None, Some(Value::Bool(false))) => found.push(format!("{path}: unknown key")),
            (None, Some(other)) => check(other, value, &path, found),
            (None, None) => {}
        }
    }
}

/// Whether a value obeys one keyword by itself. A keyword holds for values of the types that it is not about.
fn holds(keyword: &str, rule: &Value, value: &Value) -> bool {
    let names = |rule: &Value| {
        rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    match keyword {
        "type" => has_type(rule.as_str().unwrap(), value),
        "enum" => rule.as_array().unwrap().contains(value),
        "pattern" => {
            let pattern = Regex::new(rule.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "required" => {
            value.as_object().is_none_or(|object| names(rule).iter().all(|name| object.contains_key(name)))
        }
        "minProperties" => {
            value.as_object().is_none_or(|object| object.len() as u64 >= rule.as_u64().unwrap())
        }
        "maxProperties" => {
            value.as_object().is_none_or(|object| object.len() as u64 <= rule.as_u64().unwrap())
        }
        "anyOf" => rule.as_array().unwrap().iter().any(|other| violations(other, value).is_empty()),
        // Checked for each member and element.
        "properties" | "additionalProperties" | "items" => true,
        other => panic!("unknown keyword {other}"),
    }
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn validator_finds_each_violation() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false, "maxProperties": 3,
        "properties": {
            "a": { "type": "integer", "minimum": 1, "maximum": 5 },
            "b": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } },
            "c": { "anyOf": [{ "type": "number" }, { "type": "string", "pattern": "^z+$" }] }
        }
    });
    let count = |value: Value| violations(&schema, &value).len();
    assert_eq!(count(serde_json::json!({ "a": 1, "b": ["x"], "c": "zz" })), 0);
    assert_eq!(count(serde_json::json!({ "a": 6 })), 1);
    assert_eq!(count(serde_json::json!({ "a": 1.5 })), 1);
    assert_eq!(count(serde_json::json!({ "b": ["x", "z", 1] })), 4);
    assert_eq!(count(serde_json::json!({ "a": 1, "c": "y" })), 1);
    assert_eq!(count(serde_json::json!({ "a": 1, "d": 1 })), 1);
    assert_eq!(count(serde_json::json!([])), 1);
}
