//! Roots of the schemas of tools, for targets that take plain objects only.

use super::watch::{elements, members};
use crate::canonical::{Index, IndexKey};
use crate::json::{Cursor, JsonStr, RawJson, Writer, push_escaped};

/// Unions, whose alternatives are merged into the object.
const UNIONS: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Returns the schema as an object without a union at its root; `None` if it is one already. The properties of all
/// alternatives become those of the object, and the union itself goes into the description.
pub fn plain_object(schema: RawJson<'_>, merges: bool) -> Option<String> {
    if !schema.text().starts_with('{') {
        return None;
    }
    let mut root = Vec::new();
    members(&mut Cursor::new(schema.text()), |key, json| {
        root.push((key, json.raw()?));
        Ok(())
    })
    .ok()?;
    let is_union = |key: JsonStr<'_>| UNIONS.iter().any(|name| key.is(name));
    let has_union = merges && root.iter().any(|(key, _)| is_union(*key));
    let is_object = root.iter().any(|(key, value)| key.is("type") && value.as_str().is_some());
    if is_object && !has_union {
        return None;
    }
    let mut out = Vec::with_capacity(schema.text().len() + 64);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("type").string("object");
    let mut merged = Merged::default();
    for (key, value) in &root {
        match key.escaped() {
            "type" => {}
            "properties" if has_union => merged.properties(*value),
            "required" if has_union => merged.required(*value),
            "description" if has_union => {
                merged.text = value.as_str().unwrap_or_default().escaped().to_owned()
            }
            name if has_union && UNIONS.contains(&name) => merged.union(name, *value),
            _ => {
                json.paste_key(*key).raw(*value);
            }
        }
    }
    if has_union {
        merged.write(&mut json);
    }
    json.end_object();
    String::from_utf8(out).ok()
}

/// Properties of an object and of the alternatives of its union.
#[derive(Default)]
struct Merged<'a> {
    properties: Vec<(JsonStr<'a>, RawJson<'a>)>,
    names: Index,
    required: Vec<RawJson<'a>>,
    /// Description, as the inside of a JSON string.
    text: String,
}

impl<'a> Merged<'a> {
    fn properties(&mut self, object: RawJson<'a>) {
        // A value of another type has no members.
        let _ = members(&mut Cursor::new(object.text()), |key, json| {
            let value = json.raw()?;
            let name = IndexKey::of(key);
            if !self.names.has(name) {
                self.names.push(name);
                self.properties.push((key, value));
            }
            Ok(())
        });
    }

    fn required(&mut self, list: RawJson<'a>) {
        let _ = elements(&mut Cursor::new(list.text()), |json| {
            self.required.push(json.raw()?);
            Ok(())
        });
    }

    fn union(&mut self, name: &str, list: RawJson<'a>) {
        let _ = elements(&mut Cursor::new(list.text()), |json| {
            let alternative = json.raw()?;
            let _ = members(&mut Cursor::new(alternative.text()), |key, json| {
                let value = json.raw()?;
                match key.escaped() {
                    "properties" => self.properties(value),
                    // Only what every alternative requires is required; of `allOf` that is everything.
                    "required" if name == "allOf" => self.required(value),
                    _ => {}
                }
                Ok(())
            });
            Ok(())
        });
        let mut said = Vec::new();
        push_escaped(&mut said, list.text());
        let apart = if self.text.is_empty() { "" } else { "\\n\\n" };
        self.text = format!("{}{apart}{name}: {}", self.text, String::from_utf8(said).unwrap_or_default());
    }

    fn write(self, json: &mut Writer<'_, Vec<u8>>) {
        json.key("properties").begin_object();
        for (key, value) in &self.properties {
            json.paste_key(*key).raw(*value);
        }
        json.end_object();
        if !self.required.is_empty() {
            json.key("required").begin_array();
            let mut written = Index::default();
            for name in &self.required {
                let key = IndexKey::of(name.text());
                if !written.has(key) {
                    written.push(key);
                    json.raw(*name);
                }
            }
            json.end_array();
        }
        json.key("description").paste(JsonStr::from_escaped(&self.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(schema: &str, merges: bool) -> Option<String> {
        plain_object(RawJson::from_text(schema), merges)
    }

    #[test]
    fn root_union_becomes_an_object_with_the_properties_of_all_alternatives() {
        let union = r#"{"description":"d","properties":{"a":{}},"required":["a"],"oneOf":[{"properties":{"b":{"type":"string"},"a":{"type":"null"}},"required":["b"]},{"type":"object"}],"$defs":{}}"#;
        let expected = r#"{"type":"object","$defs":{},"properties":{"a":{},"b":{"type":"string"}},"required":["a"],"description":"d\n\noneOf: [{\"properties\":{\"b\":{\"type\":\"string\"},\"a\":{\"type\":\"null\"}},\"required\":[\"b\"]},{\"type\":\"object\"}]"}"#;
        assert_eq!(plain(union, true).as_deref(), Some(expected));
        let all = r#"{"allOf":[{"required":["b","c"]},{"required":["b"]}]}"#;
        let value: serde_json::Value = serde_json::from_str(&plain(all, true).unwrap()).unwrap();
        assert_eq!(value["required"], serde_json::json!(["b", "c"]));
    }

    #[test]
    fn root_schema_without_a_type_is_an_object() {
        assert_eq!(plain("{}", false).as_deref(), Some(r#"{"type":"object"}"#));
        assert_eq!(plain(r#"{"oneOf":[]}"#, false).as_deref(), Some(r#"{"type":"object","oneOf":[]}"#));
        assert_eq!(plain(r#"{"type":"object","properties":{}}"#, true), None);
        assert_eq!(plain("5", true), None);
    }
}
