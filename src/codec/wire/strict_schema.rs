//! Encoder of JSON schemas for Claude: with an object type for tools, and with only the supported keywords in strict mode.
//!
//! Sources, November 2026: Anthropic API, "Structured outputs"; Amazon Bedrock User Guide, "Get validated JSON results from
//! models", which has the same limits.

use smallvec::SmallVec;

use super::schema::from_openapi;
use super::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, Writer, push_escaped};

/// Maximum nesting depth that is converted. Deeper parts are copied unchanged.
const MAX_DEPTH: u32 = 64;

/// Number of types in JSON schema. A schema with more types is copied unchanged.
const TYPES: usize = 7;

/// Conversions of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether the schema is in the OpenAPI 3.0 dialect, with upper-case types and `nullable`.
    pub(super) openapi: bool,
    /// Strict mode: all objects are closed, and keywords that the provider does not enforce are moved into the
    /// description.
    pub(super) strict: bool,
}

/// String formats that the provider enforces.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Writes a schema. With `object`, a schema without type gets the type `object`.
pub(super) fn write<B: Sink>(schema: RawJson<'_>, rules: Rules, object: bool, json: &mut Writer<'_, B>) {
    if !rules.openapi {
        return write_plain(schema, rules.strict, object, json);
    }
    let mut text = Vec::with_capacity(schema.text().len() + 64);
    from_openapi(schema, &mut text);
    let text = String::from_utf8(text).unwrap_or_default();
    write_plain(RawJson::from_text(&text), rules.strict, object, json);
}

/// Returns the text of a response's schema.
pub(super) fn text(schema: RawJson<'_>, rules: Rules) -> String {
    let mut text = Vec::with_capacity(schema.text().len() + 64);
    write(schema, rules, false, &mut Writer::new(&mut text));
    String::from_utf8(text).unwrap_or_default()
}

fn write_plain<B: Sink>(schema: RawJson<'_>, strict: bool, object: bool, json: &mut Writer<'_, B>) {
    if !strict {
        return paste(schema, object, json);
    }
    let mut text = Vec::with_capacity(schema.text().len() + 64);
    let done = node(schema, 0, &mut Writer::new(&mut text));
    match (done, String::from_utf8(text)) {
        (Ok(()), Ok(text)) => paste(RawJson::from_text(&text), object, json),
        _ => paste(schema, object, json),
    }
}

fn paste<B: Sink>(schema: RawJson<'_>, object: bool, json: &mut Writer<'_, B>) {
    // Most schemas begin with their type, which need not be looked for.
    let begins_typed = || {
        let inside = schema.text().strip_prefix('{').unwrap_or_default();
        inside.trim_start().starts_with("\"type\"")
    };
    if !object || begins_typed() {
        json.raw(schema);
        return;
    }
    let mut typed = false;
    let read = members(&mut Cursor::new(schema.text()), |key, json| {
        typed |= key.escaped() == "type";
        json.skip()
    });
    let inside = schema.text().strip_prefix('{').filter(|_| read.is_ok() && !typed);
    let Some(inside) = inside else {
        json.raw(schema);
        return;
    };
    let comma = if inside.trim_start().starts_with('}') { "" } else { "," };
    json.raw(RawJson::from_text(&format!("{{\"type\":\"object\"{comma}{inside}")));
}

/// Members of a schema.
type Members<'a> = SmallVec<[(&'a str, RawJson<'a>); 8]>;

fn node<B: Sink>(schema: RawJson<'_>, depth: u32, json: &mut Writer<'_, B>) -> Result<(), JsonError> {
    if depth > MAX_DEPTH || !schema.text().starts_with('{') {
        json.raw(schema);
        return Ok(());
    }
    let mut list = Members::new();
    members(&mut Cursor::new(schema.text()), |key, json| {
        list.push((key.escaped(), json.raw()?));
        Ok(())
    })?;
    let node = Node { depth, list };
    if node.types()?.len() > TYPES {
        json.raw(schema);
        return Ok(());
    }
    node.write(None, json)
}

/// Schema in strict mode.
struct Node<'a> {
    depth: u32,
    list: Members<'a>,
}

impl<'a> Node<'a> {
    fn get(&self, name: &str) -> Option<RawJson<'a>> {
        self.list.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn child<B: Sink>(&self, schema: RawJson<'_>, json: &mut Writer<'_, B>) -> Result<(), JsonError> {
        node(schema, self.depth + 1, json)
    }

    /// Writes an object of named schemas.
    fn map<B: Sink>(&self, value: RawJson<'_>, json: &mut Writer<'_, B>) -> Result<(), JsonError> {
        json.begin_object();
        members(&mut Cursor::new(value.text()), |key, cursor| {
            json.paste_key(key);
            self.child(cursor.raw()?, json)
        })?;
        json.end_object();
        Ok(())
    }

    /// Writes a list of schemas.
    fn list<B: Sink>(&self, value: RawJson<'_>, json: &mut Writer<'_, B>) -> Result<(), JsonError> {
        json.begin_array();
        elements(&mut Cursor::new(value.text()), |cursor| self.child(cursor.raw()?, json))?;
        json.end_array();
        Ok(())
    }

    /// Returns the types of the schema, without duplicates.
    fn types(&self) -> Result<SmallVec<[&'a str; 2]>, JsonError> {
        let mut types = SmallVec::new();
        match self.get("type") {
            Some(value) if value.as_str().is_some() => types.extend(value.as_str().map(JsonStr::escaped)),
            Some(value) => {
                elements(&mut Cursor::new(value.text()), |json| {
                    let word = json.string()?.escaped();
                    // Each type becomes a branch that repeats the whole schema, so limit their number.
                    if types.len() <= TYPES && !types.contains(&word) {
                        types.push(word);
                    }
                    Ok(())
                })?;
            }
            None => {}
        }
        Ok(types)
    }

    /// Writes the schema with the keywords that the provider enforces; the others go into the description. For a schema
    /// of several types, `only_type` selects the one to write.
    fn write<B: Sink>(&self, only_type: Option<&str>, json: &mut Writer<'_, B>) -> Result<(), JsonError> {
        json.begin_object();
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = self.get(key).filter(|_| only_type.is_none()) {
                json.key(key);
                self.map(definitions, json)?;
            }
        }
        // A reference is written alone; the schema that it refers to has the keywords.
        if let Some(reference) = self.get("$ref") {
            json.key("$ref").raw(reference).end_object();
            return Ok(());
        }
        let literal = ["enum", "const"].into_iter().find_map(|key| Some((key, self.get(key)?)));
        let union = ["anyOf", "oneOf"].into_iter().find_map(|key| self.get(key));
        let all = self.get("allOf").filter(|_| union.is_none());
        let types = self.types()?;
        let words = only_type.as_ref().map_or(&types[..], std::slice::from_ref);
        if let Some((key, value)) = literal {
            json.key(key).raw(value);
        } else if let Some(union) = union {
            json.key("anyOf");
            self.list(union, json)?;
        } else if let Some(all) = all {
            json.key("allOf");
            self.list(all, json)?;
        } else if words.len() > 1 {
            return self.branches(words, json);
        }
        let word = match words {
            [word] if literal.is_none() && union.is_none() && all.is_none() => word,
            // A schema with properties but without type is an object schema.
            [] if self.get("properties").is_some() => "object",
            _ => "",
        };
        if !word.is_empty() {
            json.key("type").string(word);
        }
        self.described(word, json);
        match word {
            "object" => {
                json.key("properties");
                self.map(self.get("properties").unwrap_or(RawJson::from_text("{}")), json)?;
                if let Some(required) = self.get("required") {
                    json.key("required").raw(required);
                }
                json.key("additionalProperties").boolean(false);
            }
            "array" => {
                if let Some(items) = self.get("items") {
                    json.key("items");
                    self.child(items, json)?;
                }
                if let Some(least) = self.get("minItems").filter(|least| is_small(*least)) {
                    json.key("minItems").raw(least);
                }
            }
            "string" => {
                if let Some(format) = self.get("format").filter(|format| is_enforced(*format)) {
                    json.key("format").raw(format);
                }
            }
            _ => {}
        }
        json.end_object();
        Ok(())
    }

    /// Writes one branch per type.
    fn branches<B: Sink>(&self, words: &[&str], json: &mut Writer<'_, B>) -> Result<(), JsonError> {
        json.key("anyOf").begin_array();
        for word in words {
            if *word == "null" {
                json.begin_object().key("type").string("null").end_object();
            } else {
                self.write(Some(word), json)?;
            }
        }
        json.end_array().end_object();
        Ok(())
    }

    /// Writes `title` and `description`. Keywords that are not enforced are appended to the description.
    fn described<B: Sink>(&self, word: &str, json: &mut Writer<'_, B>) {
        if let Some(title) = self.get("title").filter(|title| title.as_str().is_some()) {
            json.key("title").raw(title);
        }
        let told = self.get("description").and_then(RawJson::as_str).unwrap_or_default();
        let mut text = told.escaped().as_bytes().to_vec();
        let mut rest = self.list.iter().filter(|(key, value)| !is_said(word, key, *value)).peekable();
        if rest.peek().is_some() {
            text.put_slice(if told.is_empty() { b"{" } else { b"\\n\\n{" });
            while let Some((key, value)) = rest.next() {
                text.put_slice(key.as_bytes());
                text.put_slice(b": ");
                push_escaped(&mut text, value.text());
                text.put_slice(if rest.peek().is_some() { b", " } else { b"}" });
            }
        }
        if let Some(text) = String::from_utf8(text).ok().filter(|text| !text.is_empty()) {
            json.key("description").paste(JsonStr::from_escaped(&text));
        }
    }
}

/// Returns whether a member of a schema of this type is written as a member, or has no meaning for the model.
fn is_said(word: &str, key: &str, value: RawJson<'_>) -> bool {
    match key {
        "type" | "enum" | "const" | "anyOf" | "oneOf" | "allOf" | "$ref" | "$defs" | "definitions"
        | "title" | "description" | "$schema" | "$id" => true,
        // Every object is closed, so a boolean is redundant. A schema for other properties goes into the description.
        "additionalProperties" => value.as_bool().is_some(),
        "properties" | "required" => word == "object",
        "items" => word == "array",
        "minItems" => word == "array" && is_small(value),
        "format" => word == "string" && is_enforced(value),
        _ => false,
    }
}

fn is_small(least: RawJson<'_>) -> bool {
    matches!(least.text(), "0" | "1")
}

fn is_enforced(format: RawJson<'_>) -> bool {
    format.as_str().is_some_and(|format| FORMATS.contains(&format.escaped()))
}
