//! JSON schema conversion: from the OpenAPI 3.0 dialect of Gemini (upper-case types, `nullable`) to plain JSON schema.

use json::{Cursor, JsonError, JsonStr, RawJson, Sink, ValueKind, Writer};

/// Maximum nesting depth that is converted. Deeper parts are copied unchanged.
const MAX_DEPTH: u32 = 64;

/// Writes an OpenAPI schema as JSON schema. The order of members is preserved. Text that is not a schema is copied
/// unchanged.
pub fn from_openapi(schema: RawJson<'_>, out: &mut impl Sink) {
    let mut text = Vec::with_capacity(schema.text().len() + 32);
    match put_schema(&mut Cursor::new(schema.text()), 0, &mut Writer::new(&mut text)) {
        Ok(()) => out.put_slice(&text),
        Err(_) => out.put_slice(schema.text().as_bytes()),
    }
}

fn put_schema(json: &mut Cursor<'_>, depth: u32, out: &mut Writer<'_, Vec<u8>>) -> Result<(), JsonError> {
    if json.kind()? != ValueKind::Object || depth > MAX_DEPTH {
        let value = json.raw()?;
        out.raw(value);
        return Ok(());
    }
    // Look ahead: `nullable` may follow the type that it modifies.
    let nullable = is_nullable(json.clone())?;
    out.begin_object();
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => put_type(json.raw()?, nullable, out),
            "nullable" | "propertyOrdering" | "property_ordering" => json.skip()?,
            "enum" if nullable => {
                out.key("enum").begin_array();
                each_element(json, |json| {
                    let value = json.raw()?;
                    out.raw(value);
                    Ok(())
                })?;
                out.null().end_array();
            }
            name @ ("items" | "additionalProperties" | "additional_properties" | "not") => {
                out.key(if name == "additional_properties" { "additionalProperties" } else { name });
                put_schema(json, depth + 1, out)?;
            }
            name @ ("anyOf" | "any_of" | "oneOf" | "allOf" | "prefixItems") => {
                out.key(if name == "any_of" { "anyOf" } else { name }).begin_array();
                each_element(json, |json| put_schema(json, depth + 1, out))?;
                out.end_array();
            }
            name @ ("properties" | "$defs" | "defs" | "definitions") => {
                out.key(if name == "defs" { "$defs" } else { name });
                put_named(json, depth, out)?;
            }
            name => match count_name(name) {
                Some(name) => put_count(name, json.raw()?, out),
                None => {
                    let value = json.raw()?;
                    out.paste_key(key).raw(value);
                }
            },
        }
    }
    out.end_object();
    Ok(())
}

/// Converts an object whose members are schemas.
fn put_named(json: &mut Cursor<'_>, depth: u32, out: &mut Writer<'_, Vec<u8>>) -> Result<(), JsonError> {
    if json.kind()? != ValueKind::Object {
        let value = json.raw()?;
        out.raw(value);
        return Ok(());
    }
    out.begin_object();
    json.begin_object()?;
    while let Some(name) = json.next_key()? {
        out.paste_key(name);
        put_schema(json, depth + 1, out)?;
    }
    out.end_object();
    Ok(())
}

fn each_element<'a>(
    json: &mut Cursor<'a>,
    mut each: impl FnMut(&mut Cursor<'a>) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    json.begin_array()?;
    while json.next_element()? {
        each(json)?;
    }
    Ok(())
}

fn is_nullable(mut json: Cursor<'_>) -> Result<bool, JsonError> {
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key.is("nullable") {
            return Ok(json.raw()?.as_bool() == Some(true));
        }
        json.skip()?;
    }
    Ok(false)
}

fn put_type(value: RawJson<'_>, nullable: bool, out: &mut Writer<'_, Vec<u8>>) {
    let Some(name) = value.as_str() else {
        out.key("type").raw(value);
        return;
    };
    let name = name.escaped().to_ascii_lowercase();
    match (name.as_str(), nullable) {
        // Gemini's value for "not specified".
        ("type_unspecified", _) => {}
        (name, true) => {
            let name = JsonStr::from_escaped(name);
            out.key("type").begin_array().paste(name).string("null").end_array();
        }
        (name, false) => {
            out.key("type").paste(JsonStr::from_escaped(name));
        }
    }
}

/// Returns the JSON schema name of a count. Gemini writes counts as strings, because they are 64-bit integers, and
/// accepts snake case too. `None` for other names.
fn count_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "minItems" | "min_items" => "minItems",
        "maxItems" | "max_items" => "maxItems",
        "minLength" | "min_length" => "minLength",
        "maxLength" | "max_length" => "maxLength",
        "minProperties" | "min_properties" => "minProperties",
        "maxProperties" | "max_properties" => "maxProperties",
        _ => return None,
    })
}

fn put_count(name: &str, value: RawJson<'_>, out: &mut Writer<'_, Vec<u8>>) {
    let digits = value.as_str().and_then(|text| text.escaped().parse::<u64>().ok());
    match digits {
        Some(count) => out.key(name).number(count),
        None => out.key(name).raw(value),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(schema: &str) -> String {
        let mut out = Vec::new();
        from_openapi(RawJson::from_text(schema), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn openapi_types_become_lower_case_at_every_depth() {
        assert_eq!(
            converted(
                r#"{"type":"OBJECT","properties":{"type":{"type":"STRING"},"l":{"type":"ARRAY","items":{"type":"INTEGER"}}},"required":["type"]}"#
            ),
            r#"{"type":"object","properties":{"type":{"type":"string"},"l":{"type":"array","items":{"type":"integer"}}},"required":["type"]}"#
        );
        assert_eq!(
            converted(r#"{"anyOf":[{"type":"NUMBER"},{"type":"BOOLEAN"}]}"#),
            r#"{"anyOf":[{"type":"number"},{"type":"boolean"}]}"#
        );
    }

    #[test]
    fn openapi_nullable_becomes_a_type_and_an_enum_value() {
        assert_eq!(
            converted(r#"{"type":"STRING","enum":["a"],"nullable":true}"#),
            r#"{"type":["string","null"],"enum":["a",null]}"#
        );
        assert_eq!(converted(r#"{"nullable":false,"type":"STRING"}"#), r#"{"type":"string"}"#);
    }

    #[test]
    fn openapi_keywords_are_dropped_and_counts_become_numbers() {
        assert_eq!(
            converted(
                r#"{"type":"TYPE_UNSPECIFIED","propertyOrdering":["a"],"minItems":"2","max_length":5,"title":"T"}"#
            ),
            r#"{"minItems":2,"maxLength":5,"title":"T"}"#
        );
    }

    #[test]
    fn openapi_conversion_keeps_plain_schemas_and_other_json() {
        for schema in [r#"{"type":"object","additionalProperties":false,"x":{"type":"KEEP"}}"#, "true", "[1]"]
        {
            assert_eq!(converted(schema), schema);
        }
    }
}
