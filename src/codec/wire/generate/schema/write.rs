//! Writer of reduced schemas. Members have a fixed order, so that equal schemas give equal text.

use super::shape::{Shape, Type};
use json::{JsonStr, Writer};

type Json<'o> = Writer<'o, Vec<u8>>;

/// Returns the text of a schema.
pub(super) fn text(shape: &Shape<'_>) -> String {
    let mut out = Vec::new();
    write(shape, &mut Writer::new(&mut out));
    String::from_utf8(out).unwrap_or_default()
}

fn write(shape: &Shape<'_>, json: &mut Json<'_>) {
    json.begin_object();
    if let Some(kind) = shape.kind {
        json.key("type").string(match kind {
            Type::Object => "OBJECT",
            Type::Array => "ARRAY",
            Type::String => "STRING",
            Type::Number => "NUMBER",
            Type::Integer => "INTEGER",
            Type::Boolean => "BOOLEAN",
        });
    }
    let texts = [
        ("title", shape.title),
        ("description", shape.description),
        ("format", shape.format),
        ("pattern", shape.pattern),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            json.key(name).paste(text);
        }
    }
    if shape.nullable {
        json.key("nullable").boolean(true);
    }
    names("enum", &shape.choices, json);
    for (name, value) in &shape.limits {
        json.key(name).raw(*value);
    }
    if let Some(items) = &shape.items {
        json.key("items");
        write(items, json);
    }
    if !shape.properties.is_empty() {
        json.key("properties").begin_object();
        for (name, property) in &shape.properties {
            json.paste_key(*name);
            write(property, json);
        }
        json.end_object();
    }
    names("required", &shape.required, json);
    names("propertyOrdering", &shape.ordering, json);
    if !shape.any_of.is_empty() {
        json.key("anyOf").begin_array();
        shape.any_of.iter().for_each(|branch| write(branch, json));
        json.end_array();
    }
    json.end_object();
}

fn names(name: &str, all: &[JsonStr<'_>], json: &mut Json<'_>) {
    if all.is_empty() {
        return;
    }
    json.key(name).begin_array();
    for one in all {
        json.paste(*one);
    }
    json.end_array();
}
