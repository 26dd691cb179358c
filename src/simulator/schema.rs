//! Example values for JSON schemas: tool arguments and structured output.
//!
//! Both dialects are supported: JSON Schema as accepted by OpenAI and Anthropic, and the OpenAPI subset of the Gemini
//! API (upper-case types, `nullable`, snake_case or camelCase keywords).

use std::cell::Cell;

use serde_json::{Map, Number, Value, json};

/// Maximum nesting depth, for recursive schemas. Deeper arrays and objects are empty.
const MAX_DEPTH: usize = 8;
/// Maximum number of values. Further values are null: a small schema can describe millions.
const MAX_VALUES: usize = 10_000;

/// Returns an example value that conforms to the schema: every required property (all, if `required` is absent), the
/// first member of an enumeration, one element per array. The result is deterministic.
pub(super) fn example(schema: &Value) -> Value {
    Maker { root: schema, left: Cell::new(MAX_VALUES) }.value(schema, 0)
}

struct Maker<'a> {
    root: &'a Value,
    left: Cell<usize>,
}

impl<'a> Maker<'a> {
    fn value(&self, schema: &'a Value, depth: usize) -> Value {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Value::Null;
        };
        self.left.set(left);
        if let Some(fixed) = schema.get("const") {
            return fixed.clone();
        }
        if let Some(first) = list(schema, "enum").iter().find(|member| !member.is_null()) {
            return first.clone();
        }
        if let Some(target) = self.resolve(schema) {
            // References that only refer to each other add no nesting level of their own, so they end here.
            return if depth > 4 * MAX_DEPTH { Value::Null } else { self.value(target, depth + 1) };
        }
        for key in ["anyOf", "any_of", "oneOf"] {
            if let Some(choice) = self.choose(list(schema, key), depth) {
                return self.value(choice, depth + 1);
            }
        }
        let parts = list(schema, "allOf");
        if !parts.is_empty() {
            return self.merge(parts, depth);
        }
        match self.type_of(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => whole(schema),
            "number" => decimal(schema),
            "boolean" => Value::Bool(true),
            "null" => Value::Null,
            _ => Value::String(text(schema)),
        }
    }

    /// Returns the target of a `$ref` (or `ref`). `None` if the schema is not a reference.
    fn resolve(&self, schema: &'a Value) -> Option<&'a Value> {
        let reference = schema.get("$ref").or_else(|| schema.get("ref"))?.as_str()?;
        match reference.strip_prefix('#') {
            Some(pointer) => self.root.pointer(pointer),
            None => self.root.get("defs")?.get(reference),
        }
    }

    /// Returns the alternative to use: the first that is not null. At the maximum depth, null if it is allowed.
    fn choose(&self, choices: &'a [Value], depth: usize) -> Option<&'a Value> {
        let null = choices.iter().find(|choice| self.type_of(choice) == "null");
        let other = choices.iter().find(|choice| self.type_of(choice) != "null");
        if depth >= MAX_DEPTH { null.or(other) } else { other.or(null) }
    }

    fn type_of(&self, schema: &Value) -> &'static str {
        let named = match schema.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).find(|name| !name.eq_ignore_ascii_case("null"))
            }
            _ => None,
        };
        const KNOWN: [&str; 7] = ["object", "array", "integer", "number", "boolean", "null", "string"];
        match named {
            Some(name) => {
                KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or("string")
            }
            None if schema.get("properties").is_some() => "object",
            None if schema.get("items").is_some() => "array",
            None => "string",
        }
    }

    fn object(&self, schema: &'a Value, depth: usize) -> Value {
        let mut object = Map::new();
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Value::Object(object);
        };
        if depth >= MAX_DEPTH {
            return Value::Object(object);
        }
        let required = schema.get("required").and_then(Value::as_array);
        for (name, property) in properties {
            let wanted = required.is_none_or(|names| names.iter().any(|n| n.as_str() == Some(name)));
            if wanted {
                object.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        Value::Object(object)
    }

    fn array(&self, schema: &'a Value, depth: usize) -> Value {
        let limit = |camel, snake| schema.get(camel).or_else(|| schema.get(snake)).and_then(limit_of);
        if depth >= MAX_DEPTH || limit("maxItems", "max_items") == Some(0) {
            return json!([]);
        }
        if let Some(tuple) = schema.get("prefixItems").and_then(Value::as_array) {
            return tuple.iter().map(|item| self.value(item, depth + 1)).collect();
        }
        // Schemas with a large `minItems` get 32 elements; more equal ones would add nothing.
        let count = limit("minItems", "min_items").unwrap_or(1).clamp(1, 32);
        let items = schema.get("items");
        (0..count).map(|_| items.map_or(json!("example"), |items| self.value(items, depth + 1))).collect()
    }

    /// Merges the objects of all parts, or returns the first part that is not an object.
    fn merge(&self, parts: &'a [Value], depth: usize) -> Value {
        let mut all = Map::new();
        for part in parts {
            match self.value(part, depth + 1) {
                Value::Object(object) => all.extend(object),
                other => return other,
            }
        }
        Value::Object(all)
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Parses a limit. The Gemini API writes 64-bit integers as strings.
fn limit_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn whole(schema: &Value) -> Value {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let least = [limit("minimum").map(f64::ceil), limit("exclusiveMinimum").map(|n| n.floor() + 1.0)];
    let most = [limit("maximum").map(f64::floor), limit("exclusiveMaximum").map(|n| n.ceil() - 1.0)];
    let step = limit("multipleOf").filter(|step| *step >= 1.0);
    let mut number = step.unwrap_or(1.0);
    for least in least.into_iter().flatten() {
        number = number.max(step.map_or(least, |step| (least / step).ceil() * step));
    }
    for most in most.into_iter().flatten() {
        number = number.min(step.map_or(most, |step| (most / step).floor() * step));
    }
    json!(number as i64)
}

fn decimal(schema: &Value) -> Value {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let mut number = 1.5f64;
    for (key, gap) in [("minimum", 0.0), ("exclusiveMinimum", 0.5)] {
        number = limit(key).map_or(number, |least| number.max(least + gap));
    }
    for (key, gap) in [("maximum", 0.0), ("exclusiveMaximum", 0.5)] {
        number = limit(key).map_or(number, |most| number.min(most - gap));
    }
    Number::from_f64(number).map_or(json!(1.5), Value::Number)
}

fn text(schema: &Value) -> String {
    let sample = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-02T03:04:05Z",
        Some("date") => "2026-01-02",
        Some("time") => "03:04:05Z",
        Some("duration") => "PT1H",
        Some("email") => "someone@example.com",
        Some("hostname") => "example.com",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "123e4567-e89b-42d3-a456-426614174000",
        _ => "example",
    };
    let limit = |camel, snake| schema.get(camel).or_else(|| schema.get(snake)).and_then(limit_of);
    let least = limit("minLength", "min_length").unwrap_or(0).min(1000) as usize;
    let most = limit("maxLength", "max_length").map_or(usize::MAX, |n| n as usize);
    sample.chars().chain(std::iter::repeat('e')).take(sample.len().max(least).min(most)).collect()
}

/// Returns the first reason why a schema is invalid for `strict: true`, with the path of the object as OpenAI formats
/// it (`()` is the root). `None` if the schema is valid. The texts are those of the OpenAI API.
pub(super) fn strict_violation(schema: &Value) -> Option<(String, String)> {
    violation(schema, &mut Vec::new())
}

fn violation(schema: &Value, path: &mut Vec<String>) -> Option<(String, String)> {
    let context = |path: &[String]| match path {
        [] => "()".to_owned(),
        [one] => format!("('{one}',)"),
        many => format!("({})", many.iter().map(|p| format!("'{p}'")).collect::<Vec<_>>().join(", ")),
    };
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Some((
                context(path),
                "'additionalProperties' is required to be supplied and to be false.".to_owned(),
            ));
        }
        let required = list(schema, "required");
        if let Some(missing) = properties.keys().find(|name| !required.iter().any(|r| r == *name)) {
            return Some((
                context(path),
                format!(
                    "'required' is required to be supplied and to be an array including every key in properties. \
                     Missing '{missing}'."
                ),
            ));
        }
    }
    for key in ["properties", "$defs", "definitions"] {
        for (name, child) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
            if let Some(found) = descend(child, path, &[key, name]) {
                return Some(found);
            }
        }
    }
    if let Some(found) = schema.get("items").and_then(|items| descend(items, path, &["items"])) {
        return Some(found);
    }
    list(schema, "anyOf")
        .iter()
        .enumerate()
        .find_map(|(at, child)| descend(child, path, &["anyOf", &at.to_string()]))
}

fn descend(child: &Value, path: &mut Vec<String>, steps: &[&str]) -> Option<(String, String)> {
    // The recursion ends: serde_json limits the nesting of its input.
    let length = path.len();
    path.extend(steps.iter().map(|step| (*step).to_owned()));
    let found = violation(child, path);
    path.truncate(length);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_has_the_required_properties_of_every_type() {
        let schema = json!({"type": "object", "required": ["s", "e", "i", "n", "b", "a", "o", "u"], "properties": {
            "s": {"type": "string"}, "e": {"enum": ["red", "blue"]}, "i": {"type": "integer"},
            "n": {"type": "number"}, "b": {"type": "boolean"}, "a": {"type": "array", "items": {"type": "string"}},
            "o": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 5}}, "required": ["x"]},
            "u": {"type": ["null", "string"]}, "left_out": {"type": "string"}}});
        assert_eq!(
            example(&schema),
            json!({"s": "example", "e": "red", "i": 1, "n": 1.5, "b": true, "a": ["example"], "o": {"x": 5},
                   "u": "example"})
        );
    }

    #[test]
    fn example_of_recursive_references_ends() {
        let schema = json!({"$defs": {"Node": {"type": "object", "required": ["name", "children", "next"],
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}}, "$ref": "#/$defs/Node"});
        let value = example(&schema);
        assert_eq!(value["name"], "example");
        assert_eq!(value["children"][0]["name"], "example");
        assert_eq!(example(&json!({"$ref": "#"})), Value::Null);
        let wide: Map<String, Value> = (0..10).map(|n| (n.to_string(), json!({"$ref": "#"}))).collect();
        assert!(example(&json!({"properties": wide})).is_object());
        let deep = json!({"type": "array", "minItems": 32, "items": {"$ref": "#"}});
        assert_eq!(example(&deep).as_array().map(Vec::len), Some(32));
    }

    #[test]
    fn example_accepts_the_gemini_dialect() {
        let schema = json!({"type": "OBJECT", "properties": {"when": {"type": "STRING", "format": "date"},
            "tags": {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": "2"}}});
        assert_eq!(example(&schema), json!({"when": "2026-01-02", "tags": ["example", "example"]}));
    }

    #[test]
    fn example_respects_numeric_and_length_limits() {
        assert_eq!(example(&json!({"type": "integer", "maximum": 0})), json!(0));
        assert_eq!(example(&json!({"type": "integer", "multipleOf": 5, "minimum": 12})), json!(15));
        assert_eq!(example(&json!({"type": "number", "exclusiveMinimum": 2})), json!(2.5));
        assert_eq!(example(&json!({"type": "string", "minLength": 9})), json!("exampleee"));
        assert_eq!(example(&json!({"type": "string", "maxLength": 2})), json!("ex"));
        assert_eq!(example(&json!(true)), json!("example"));
    }

    #[test]
    fn strict_violation_names_the_place() {
        let strict = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {},
            "additionalProperties": false}}, "required": ["a"], "additionalProperties": false});
        assert_eq!(strict_violation(&strict), None);
        let mut open = strict.clone();
        open["properties"]["a"]["additionalProperties"] = json!(true);
        assert_eq!(strict_violation(&open).map(|(at, _)| at), Some("('properties', 'a')".to_owned()));
        let mut optional = strict.clone();
        optional["required"] = json!([]);
        assert!(
            strict_violation(&optional).is_some_and(|(at, why)| at == "()" && why.ends_with("Missing 'a'."))
        );
    }
}
