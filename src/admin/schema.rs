//! Types of the admin API's documents: bodies are checked against them, and the OpenAPI document describes them.

use serde_json::{Map, Value, json};

use super::error::AdminApiError;
use config::EntryKind;
use routing::account::amount::is_plain;

/// Type of a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemberType {
    /// Text.
    Text,
    /// Whole number that is not negative.
    Count,
    /// Number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Amount of money as a decimal in a string, with up to 9 places.
    Amount,
    /// Point in time, RFC 3339.
    Time,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Object with these members.
    Object(&'static Record),
    /// List of values of a type.
    List(&'static MemberType),
    /// Object whose members are amounts, counts or texts by name.
    Open,
    /// Entry of a configuration file; its members are those of docs/configuration.md.
    Entry(EntryKind),
}

/// Member of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaMember {
    /// Name.
    pub(super) name: &'static str,
    /// Type.
    pub(super) of: MemberType,
    /// Whether it is always there. An optional member may be null in answers.
    pub(super) required: bool,
    /// Meaning.
    pub(super) text: &'static str,
}

/// Object.
#[derive(Debug)]
pub(super) struct Record {
    /// Name in the OpenAPI document.
    pub(super) name: &'static str,
    /// Meaning.
    pub(super) text: &'static str,
    /// Members.
    pub(super) members: &'static [SchemaMember],
}

/// Describes a member that is always there.
pub(super) const fn member(name: &'static str, of: MemberType, text: &'static str) -> SchemaMember {
    SchemaMember { name, of, required: true, text }
}

/// Describes a member that may be absent or null.
pub(super) const fn optional(name: &'static str, of: MemberType, text: &'static str) -> SchemaMember {
    SchemaMember { name, of, required: false, text }
}

/// Body of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyType {
    /// No body.
    None,
    /// Object with these members and no others.
    Object(&'static Record),
    /// Entry of a configuration file, which the configuration reader checks.
    Entry(EntryKind),
}

/// Checks the members of a body.
///
/// # Errors
/// Returns the error of the first wrong member, which names it.
pub(super) fn check(body: &Map<String, Value>, of: BodyType) -> Result<(), AdminApiError> {
    match of {
        BodyType::None => match body.keys().next() {
            None => Ok(()),
            Some(name) => Err(AdminApiError::field(name, "the operation has no members")),
        },
        BodyType::Object(record) => check_record(body, record, ""),
        // The reader knows its members and their types, and names what is wrong.
        BodyType::Entry(_) => Ok(()),
    }
}

fn check_record(object: &Map<String, Value>, record: &Record, path: &str) -> Result<(), AdminApiError> {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in object.keys() {
        if !record.members.iter().any(|member| member.name == name) {
            let known: Vec<&str> = record.members.iter().map(|member| member.name).collect();
            let message = format!("unknown member; known members: {}", known.join(", "));
            return Err(AdminApiError::field(&below(name), message));
        }
    }
    for member in record.members {
        match object.get(member.name).filter(|value| !value.is_null()) {
            Some(value) => check_value(value, member.of, &below(member.name))?,
            None if member.required => return Err(AdminApiError::field(&below(member.name), "is missing")),
            None => {}
        }
    }
    Ok(())
}

fn check_value(value: &Value, of: MemberType, path: &str) -> Result<(), AdminApiError> {
    let expected = match of {
        MemberType::Amount if value.as_str().is_some_and(is_amount) => return Ok(()),
        MemberType::Text | MemberType::Time if value.is_string() => return Ok(()),
        MemberType::Text => "a string",
        MemberType::Amount => "a decimal in a string, such as \"2.5\"",
        MemberType::Time => "a time in a string, such as \"2027-01-31T00:00:00Z\"",
        MemberType::Count if value.is_u64() => return Ok(()),
        MemberType::Count => "a whole number that is not negative",
        MemberType::Number if value.is_number() => return Ok(()),
        MemberType::Number => "a number",
        MemberType::Flag if value.is_boolean() => return Ok(()),
        MemberType::Flag => "true or false",
        MemberType::OneOf(names) => {
            if value.as_str().is_some_and(|text| names.contains(&text)) {
                return Ok(());
            }
            return Err(AdminApiError::field(path, format!("write one of {}", names.join(", "))));
        }
        MemberType::Object(record) => match value.as_object() {
            Some(object) => return check_record(object, record, path),
            None => "an object",
        },
        MemberType::List(of) => match value.as_array() {
            Some(list) => {
                for (index, element) in list.iter().enumerate() {
                    check_value(element, *of, &format!("{path}[{index}]"))?;
                }
                return Ok(());
            }
            None => "a list",
        },
        MemberType::Open | MemberType::Entry(_) if value.is_object() => return Ok(()),
        MemberType::Open | MemberType::Entry(_) => "an object",
    };
    Err(AdminApiError::field(path, format!("expected {expected}")))
}

/// Returns whether a text is an amount as the document describes it. That it has at most 9 places is checked with its value.
fn is_amount(text: &str) -> bool {
    is_plain(text.strip_prefix('-').unwrap_or(text))
}

impl Record {
    /// Returns the JSON Schema, with references to the records that it uses.
    pub(super) fn schema(&self) -> Value {
        let mut properties = Map::new();
        for member in self.members {
            let mut schema = member.of.schema();
            if !member.required {
                schema = or_null(schema);
            }
            if let Some(schema) = schema.as_object_mut() {
                schema.insert("description".to_owned(), member.text.into());
            }
            properties.insert(member.name.to_owned(), schema);
        }
        let required: Vec<&str> =
            self.members.iter().filter(|member| member.required).map(|member| member.name).collect();
        let mut schema = json!({ "type": "object", "description": self.text, "properties": properties });
        if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
            schema.insert("required".to_owned(), json!(required));
        }
        schema
    }

    /// Calls `each` for the record and all records and entries that it uses.
    pub(super) fn visit(&'static self, each: &mut dyn FnMut(MemberType)) {
        each(MemberType::Object(self));
        for member in self.members {
            member.of.visit(each);
        }
    }
}

/// Returns the name of an entry's schema.
pub(super) const fn entry_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Key => "KeyEntry",
        EntryKind::Account => "AccountEntry",
        EntryKind::Provider => "ProviderEntry",
        EntryKind::Model => "ModelEntry",
    }
}

/// Returns a schema that also permits null.
fn or_null(mut schema: Value) -> Value {
    let Some(members) = schema.as_object_mut() else { return schema };
    let Some(of) = members.get("type").cloned() else {
        // A reference permits no types beside it.
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    members.insert("type".to_owned(), json!([of, "null"]));
    if let Some(values) = members.get_mut("enum").and_then(Value::as_array_mut) {
        values.push(Value::Null);
    }
    schema
}

/// Returns a reference to a schema of the document.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl MemberType {
    fn schema(self) -> Value {
        match self {
            MemberType::Text => json!({ "type": "string" }),
            MemberType::Count => json!({ "type": "integer", "minimum": 0 }),
            MemberType::Number => json!({ "type": "number" }),
            MemberType::Flag => json!({ "type": "boolean" }),
            MemberType::Amount => json!({ "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?$" }),
            MemberType::Time => json!({ "type": "string", "format": "date-time" }),
            MemberType::OneOf(names) => json!({ "type": "string", "enum": names }),
            MemberType::Object(record) => reference(record.name),
            MemberType::List(of) => json!({ "type": "array", "items": of.schema() }),
            MemberType::Open => json!({ "type": "object" }),
            MemberType::Entry(kind) => reference(entry_name(kind)),
        }
    }

    fn visit(self, each: &mut dyn FnMut(MemberType)) {
        match self {
            MemberType::Object(record) => record.visit(each),
            MemberType::List(of) => of.visit(each),
            MemberType::Entry(_) => each(self),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: Record = Record { name: "Inner", text: "", members: &[member("at", MemberType::Time, "")] };
    const OUTER: Record = Record {
        name: "Outer",
        text: "",
        members: &[
            member("amount", MemberType::Amount, ""),
            optional("list", MemberType::List(&MemberType::Object(&INNER)), ""),
            optional("word", MemberType::OneOf(&["a", "b"]), ""),
        ],
    };

    #[test]
    fn body_errors_name_the_member() {
        for (body, field) in [
            (json!({ "amount": "1" }), None),
            (json!({ "amount": "1", "list": null, "word": "b" }), None),
            (json!({ "amount": "1", "list": [{ "at": "x" }] }), None),
            (json!({}), Some("amount")),
            (json!({ "amount": 1 }), Some("amount")),
            (json!({ "amount": "1e3" }), Some("amount")),
            (json!({ "amount": "+5" }), Some("amount")),
            (json!({ "amount": " 5" }), Some("amount")),
            (json!({ "amount": "1_0" }), Some("amount")),
            (json!({ "amount": ".5" }), Some("amount")),
            (json!({ "amount": "-2.5" }), None),
            (json!({ "amount": "1", "more": 1 }), Some("more")),
            (json!({ "amount": "1", "list": {} }), Some("list")),
            (json!({ "amount": "1", "list": [{ "at": "x" }, {}] }), Some("list[1].at")),
            (json!({ "amount": "1", "list": [{ "at": 1 }] }), Some("list[0].at")),
            (json!({ "amount": "1", "word": "c" }), Some("word")),
        ] {
            let checked = check(body.as_object().unwrap(), BodyType::Object(&OUTER));
            assert_eq!(checked.err().and_then(|error| error.field).as_deref(), field, "{body}");
        }
    }
}
