//! JSON Schemas of the configuration files, for editors that check and complete TOML.
//!
//! Draft 4, which is the latest that TOML editors understand. Descriptions, defaults and required keys are those of
//! docs/configuration.md ([`reference`](super::reference)); the types are those of [`key_types`](super::key_types). A schema
//! is never stricter than the reader, and sees one file only: references between entries and files are left to
//! `model-gateway check`.

use serde_json::{Map, Value, json};

use super::key_types::{KeyType, Names, shape};
use super::reference::{ConfigFile, ReferenceKey, keys, plain};

/// Returns the schema of a file as JSON text with a final line break.
pub fn schema(file: ConfigFile) -> String {
    let keys = keys(file);
    let mut root = Map::new();
    root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-04/schema#"));
    root.insert("title".to_owned(), json!(format!("{}.toml of model-gateway", file.name())));
    root.extend(table(&keys, ""));
    format!("{:#}\n", Value::Object(root))
}

/// Returns the members that describe a table: those whose path is `parent` and one name.
fn table(keys: &[ReferenceKey], parent: &str) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys {
        let name = key.path.strip_prefix(parent).filter(|name| !name.is_empty() && !name.contains('.'));
        let Some(name) = name else { continue };
        properties.insert(name.to_owned(), property(keys, key));
        if key.default == "required" {
            required.push(json!(name));
        }
    }
    let mut table = Map::new();
    table.insert("type".to_owned(), json!("object"));
    if !required.is_empty() {
        table.insert("required".to_owned(), Value::Array(required));
    }
    table.insert("properties".to_owned(), Value::Object(properties));
    table.insert("additionalProperties".to_owned(), json!(false));
    table
}

fn property(keys: &[ReferenceKey], key: &ReferenceKey) -> Value {
    let below = || table(keys, &format!("{}.", key.path));
    let mut property = Map::new();
    let description = description(key);
    if !description.is_empty() {
        property.insert("description".to_owned(), json!(description));
    }
    let shape = shape(&key.path);
    match shape {
        Some(KeyType::Table) => property.extend(below()),
        Some(KeyType::SecretSource) => {
            property.extend(below());
            property.insert("minProperties".to_owned(), json!(1));
            property.insert("maxProperties".to_owned(), json!(1));
        }
        Some(KeyType::Tables) => {
            property.insert("type".to_owned(), json!("array"));
            property.insert("items".to_owned(), Value::Object(below()));
        }
        Some(KeyType::TableOrTables) => {
            let list = json!({ "type": "array", "items": below() });
            property.insert("anyOf".to_owned(), json!([below(), list]));
        }
        Some(KeyType::AmountOrTables) => {
            let list = json!({ "type": "array", "items": below() });
            property.insert("anyOf".to_owned(), json!([amount(), list]));
        }
        Some(shape) => property.extend(simple(shape)),
        None => {}
    }
    if let Some(default) = default(&key.default) {
        property.insert("default".to_owned(), default);
    }
    Value::Object(property)
}

/// Returns the meaning, and the default where it is a text about other keys.
fn description(key: &ReferenceKey) -> String {
    let meaning = plain(&key.meaning);
    let stated = ["", "required", "none"].contains(&key.default.as_str()) || default(&key.default).is_some();
    let default = if stated { String::new() } else { format!("Default: {}.", plain(&key.default)) };
    [meaning, default].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a default that is written as a value of TOML. `None` for a text about it.
fn default(cell: &str) -> Option<Value> {
    let code = cell.strip_prefix('`')?.strip_suffix('`')?;
    let value: toml::Table = format!("value = {code}").parse().ok()?;
    serde_json::to_value(value.get("value")?).ok()
}

fn amount() -> Value {
    json!({ "type": "number", "minimum": 0 })
}

/// Returns the members that describe a value without keys.
fn simple(shape: KeyType) -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let names = |names: Names| json!({ "type": "string", "enum": names.list() });
    let address = json!({ "type": "string", "pattern": "^[^ ]+:[0-9]{1,5}$" });
    let value = match shape {
        KeyType::Text | KeyType::SecretText | KeyType::Url => text,
        KeyType::Flag => json!({ "type": "boolean" }),
        KeyType::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        KeyType::Amount => amount(),
        KeyType::Duration => json!({ "type": "string", "pattern": "^[0-9]+ *(ms|s|m|min|h|d)$" }),
        KeyType::Size => json!({ "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB|kB|KB|MB|GB)$" }),
        KeyType::Address => address,
        KeyType::Addresses => json!({ "type": "array", "items": address }),
        KeyType::Digest => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" }),
        KeyType::Time => json!({ "type": "string", "format": "date-time" }),
        KeyType::Day => json!({ "type": "string", "format": "date" }),
        KeyType::Days => json!({ "type": "array", "items": { "type": "string", "format": "date" } }),
        KeyType::OneOf(list) => names(list),
        KeyType::Some(list) => json!({ "type": "array", "items": names(list) }),
        KeyType::Texts => json!({ "type": "array", "items": text }),
        KeyType::TextOrTexts => json!({ "anyOf": [text, { "type": "array", "items": text }] }),
        KeyType::UrlsOrSource => {
            let source = json!({
                "type": "object",
                "properties": { "env": text, "file": text, "value": text },
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1,
            });
            let url = json!({ "anyOf": [text, source] });
            json!({ "anyOf": [text, source, { "type": "array", "items": url }] })
        }
        KeyType::Open | KeyType::SecretTexts => json!({ "type": "object", "additionalProperties": text }),
        // Described by the caller.
        KeyType::Table
        | KeyType::SecretSource
        | KeyType::Tables
        | KeyType::AmountOrTables
        | KeyType::TableOrTables => return Map::new(),
    };
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
