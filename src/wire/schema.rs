//! Schemas in the dialect of OpenAPI 3.0 (types in capitals, `nullable`), rewritten as plain JSON schema for the
//! formats that know only that.

use bytes::BufMut;

use crate::json::{Cursor, JsonError, JsonStr, Kind, RawJson, Writer};

/// Nesting that is rewritten; what lies deeper is taken over as it is.
const MAX_DEPTH: u32 = 64;

/// Writes a schema of the OpenAPI dialect as JSON schema. The order of members is kept. What is not a schema is taken
/// over as it is.
pub fn from_openapi(schema: RawJson<'_>, out: &mut impl BufMut) {
    let mut text = Vec::with_capacity(schema.text().len() + 32);
    match put_schema(&mut Cursor::new(schema.text()), 0, &mut Writer::new(&mut text)) {
        Ok(()) => out.put_slice(&text),
        Err(_) => out.put_slice(schema.text().as_bytes()),
    }
}

fn put_schema(json: &mut Cursor<'_>, depth: u32, out: &mut Writer<'_, Vec<u8>>) -> Result<(), JsonError> {
    if json.kind()? != Kind::Object || depth > MAX_DEPTH {
        let value = json.raw()?;
        out.raw(value);
        return Ok(());
    }
    // It may stand behind the type that it belongs to.
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

/// An object whose members are schemas.
fn put_named(json: &mut Cursor<'_>, depth: u32, out: &mut Writer<'_, Vec<u8>>) -> Result<(), JsonError> {
    if json.kind()? != Kind::Object {
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
        // The provider's word for "not said".
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

/// The provider's types write these as strings, being 64 bits wide, and know them with underscores too.
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
    fn types_are_written_small_at_every_depth() {
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
    fn nullable_becomes_a_type_and_a_value() {
        assert_eq!(
            converted(r#"{"type":"STRING","enum":["a"],"nullable":true}"#),
            r#"{"type":["string","null"],"enum":["a",null]}"#
        );
        assert_eq!(converted(r#"{"nullable":false,"type":"STRING"}"#), r#"{"type":"string"}"#);
    }

    #[test]
    fn what_only_the_provider_knows_is_left_out_and_counts_are_numbers() {
        assert_eq!(
            converted(
                r#"{"type":"TYPE_UNSPECIFIED","propertyOrdering":["a"],"minItems":"2","max_length":5,"title":"T"}"#
            ),
            r#"{"minItems":2,"maxLength":5,"title":"T"}"#
        );
    }

    #[test]
    fn plain_schemas_and_what_is_none_pass() {
        for schema in [r#"{"type":"object","additionalProperties":false,"x":{"type":"KEEP"}}"#, "true", "[1]"]
        {
            assert_eq!(converted(schema), schema);
        }
    }
}
