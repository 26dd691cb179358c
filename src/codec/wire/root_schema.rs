//! Roots of the schemas of tools, for targets that take plain objects only.
//!
//! Providers refuse any other root: OpenAI "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/
//! 'not' at the top level", Anthropic "input_schema does not support oneOf, allOf, or anyOf at the top level", Amazon
//! Bedrock "inputSchema.json.type must be one of: object" (error messages as reported in November 2026).

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, Writer, push_escaped};

/// Depth of unions within unions whose members are merged. What is deeper is named in the description only.
const MAX_NESTING: u32 = 8;
/// Schemas of one property that are kept apart. Further ones are named in the description only.
const MAX_VARIANTS: usize = 16;
/// Bytes that are read from references, as a multiple of the schema's length: definitions may refer to each other.
const MAX_READ: usize = 4;

/// Keywords that a root must not have.
const REFUSED: [&str; 7] = ["oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"];

/// Returns the schema as an object without a union at its root; `None` if it is one already, or if it is not valid. The
/// properties of all alternatives become those of the object, and what else they say goes into the description. Without
/// `merges`, only the type is set.
pub fn plain_object(schema: RawJson<'_>, merges: bool) -> Option<String> {
    if is_plain(schema) {
        return None;
    }
    let root = Root::read(schema).ok()?;
    let fault = root.fault?;
    let mut text = Vec::with_capacity(schema.text().len() + 64);
    let mut json = Writer::new(&mut text);
    match fault {
        Fault::Union if merges => {
            let mut merged =
                Merged { budget: schema.text().len().saturating_mul(MAX_READ), ..Merged::default() };
            let required = merged.gather(schema, schema, 0).ok()?;
            merged.write(&root, &required, &mut json);
        }
        _ if root.is_typed => return None,
        _ => root.write_typed(&mut json),
    }
    String::from_utf8(text).ok()
}

/// Returns whether a schema is a plain object for certain, as most are: it is asked for each tool of each request.
fn is_plain(schema: RawJson<'_>) -> bool {
    let (mut is_typed, mut is_plain) = (false, true);
    let read = members(&mut Cursor::new(schema.text()), |key, json| {
        match key.escaped() {
            "type" => is_typed |= json.raw()?.text().starts_with('"'),
            "oneOf" | "anyOf" | "allOf" | "enum" | "const" | "not" | "$ref" => {
                is_plain = false;
                json.skip()?;
            }
            name => {
                is_plain &= !name.contains('\\');
                json.skip()?;
            }
        }
        Ok(())
    });
    read.is_ok() && is_typed && is_plain
}

/// Reason why a root is not a plain object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It has no type, or several.
    Untyped,
    /// It has a refused keyword.
    Union,
}

/// Members of the root.
#[derive(Debug, Default)]
struct Root<'a> {
    list: SmallVec<[(JsonStr<'a>, RawJson<'a>); 8]>,
    /// Whether it has one type.
    is_typed: bool,
    fault: Option<Fault>,
}

impl<'a> Root<'a> {
    fn read(schema: RawJson<'a>) -> Result<Self, JsonError> {
        let mut root = Root::default();
        if !schema.text().starts_with('{') {
            return Ok(root);
        }
        let (mut is_typed, mut union) = (false, false);
        members(&mut Cursor::new(schema.text()), |key, json| {
            let value = json.raw()?;
            is_typed |= key.is("type") && !has_object_among_types(value)?;
            union |= REFUSED.iter().any(|name| key.is(name));
            root.list.push((key, value));
            Ok(())
        })?;
        root.is_typed = is_typed;
        root.fault = match (is_typed, union) {
            (_, true) => Some(Fault::Union),
            (false, false) => Some(Fault::Untyped),
            (true, false) => None,
        };
        Ok(root)
    }

    /// Writes the members with the type `object`.
    fn write_typed(&self, json: &mut Writer<'_, Vec<u8>>) {
        json.begin_object().key("type").string("object");
        for (key, value) in self.list.iter().filter(|(key, _)| !key.is("type")) {
            json.paste_key(*key).raw(*value);
        }
        json.end_object();
    }
}

/// Returns whether a value of `type` is a list that permits an object.
fn has_object_among_types(value: RawJson<'_>) -> Result<bool, JsonError> {
    let mut found = false;
    elements(&mut Cursor::new(value.text()), |json| {
        found |= json.raw()?.as_str().is_some_and(|word| word.is("object"));
        Ok(())
    })?;
    Ok(found)
}

/// Properties of all alternatives.
#[derive(Debug, Default)]
struct Merged<'a> {
    /// In the order in which they occur.
    properties: Vec<Property<'a>>,
    index: HashMap<&'a str, usize>,
    /// Whether a schema says more than what is merged.
    says_more: bool,
    /// Definitions of the document by group and name, once a reference needs them.
    definitions: Option<HashMap<(&'a str, &'a str), RawJson<'a>>>,
    /// Bytes that may still be read.
    budget: usize,
}

#[derive(Debug)]
struct Property<'a> {
    name: JsonStr<'a>,
    schemas: SmallVec<[RawJson<'a>; 1]>,
}

/// Names of required properties, in their order.
type Required<'a> = Vec<&'a str>;

impl<'a> Merged<'a> {
    /// Adds the properties of a schema and of its alternatives. Returns the properties that each valid value has.
    fn gather(
        &mut self,
        schema: RawJson<'a>,
        document: RawJson<'a>,
        depth: u32,
    ) -> Result<Required<'a>, JsonError> {
        let Some(budget) = self.budget.checked_sub(schema.text().len()).filter(|_| depth <= MAX_NESTING)
        else {
            self.says_more = true;
            return Ok(Vec::new());
        };
        self.budget = budget;
        let mut required = Required::new();
        members(&mut Cursor::new(schema.text()), |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "properties" => self.add(value)?,
                "required" => {
                    elements(&mut Cursor::new(value.text()), |json| {
                        required.extend(json.raw()?.as_str().map(JsonStr::escaped));
                        Ok(())
                    })?;
                }
                "allOf" => {
                    elements(&mut Cursor::new(value.text()), |json| {
                        required.append(&mut self.gather(json.raw()?, document, depth + 1)?);
                        Ok(())
                    })?;
                }
                "anyOf" | "oneOf" => {
                    self.says_more = true;
                    required.append(&mut self.gather_alternatives(value, document, depth)?);
                }
                "$ref" => match value.as_str().and_then(|path| self.definition(document, path.escaped())) {
                    Some(target) => required.append(&mut self.gather(target, document, depth + 1)?),
                    None => self.says_more = true,
                },
                "type"
                | "title"
                | "description"
                | "additionalProperties"
                | "$schema"
                | "$id"
                | "$defs"
                | "definitions" => {}
                // The root keeps its other keywords.
                _ if depth == 0 && !REFUSED.iter().any(|name| key.is(name)) => {}
                _ => self.says_more = true,
            }
            Ok(())
        })?;
        Ok(required)
    }

    /// Returns the definition that a reference names (`#/$defs/name`). `None` for any other reference.
    fn definition(&mut self, document: RawJson<'a>, reference: &str) -> Option<RawJson<'a>> {
        let path = reference.strip_prefix("#/")?.split_once('/')?;
        self.definitions.get_or_insert_with(|| definitions(document)).get(&path).copied()
    }

    /// Adds alternatives of which one holds. Required is what each of them requires.
    fn gather_alternatives(
        &mut self,
        list: RawJson<'a>,
        document: RawJson<'a>,
        depth: u32,
    ) -> Result<Required<'a>, JsonError> {
        let mut common: Option<Required<'a>> = None;
        elements(&mut Cursor::new(list.text()), |json| {
            let required = self.gather(json.raw()?, document, depth + 1)?;
            common = Some(match common.take() {
                None => required,
                Some(common) => {
                    let here: HashSet<&str> = required.into_iter().collect();
                    common.into_iter().filter(|name| here.contains(name)).collect()
                }
            });
            Ok(())
        })?;
        Ok(common.unwrap_or_default())
    }

    fn add(&mut self, properties: RawJson<'a>) -> Result<(), JsonError> {
        members(&mut Cursor::new(properties.text()), |name, json| {
            let schema = json.raw()?;
            let next = self.properties.len();
            let at = *self.index.entry(name.escaped()).or_insert(next);
            match self.properties.get_mut(at) {
                None => self.properties.push(Property { name, schemas: [schema].into_iter().collect() }),
                Some(known) if known.schemas.iter().any(|other| other.text() == schema.text()) => {}
                Some(known) if known.schemas.len() < MAX_VARIANTS => known.schemas.push(schema),
                Some(_) => self.says_more = true,
            }
            Ok(())
        })
    }

    fn write(&self, root: &Root<'_>, required: &[&str], json: &mut Writer<'_, Vec<u8>>) {
        json.begin_object().key("type").string("object");
        self.description(root, json);
        json.key("properties").begin_object();
        for Property { name, schemas } in &self.properties {
            json.paste_key(*name);
            match schemas.as_slice() {
                [one] => {
                    json.raw(*one);
                }
                several => {
                    json.begin_object().key("anyOf").begin_array();
                    for schema in several {
                        json.raw(*schema);
                    }
                    json.end_array().end_object();
                }
            }
        }
        json.end_object();
        let mut seen = HashSet::new();
        let mut required = required.iter().filter(|name| seen.insert(**name)).peekable();
        if required.peek().is_some() {
            json.key("required").begin_array();
            for name in required {
                json.paste(JsonStr::from_escaped(name));
            }
            json.end_array();
        }
        let written = ["type", "description", "properties", "required"];
        for (key, value) in &root.list {
            if !written.iter().chain(&REFUSED).any(|name| key.is(name)) {
                json.paste_key(*key).raw(*value);
            }
        }
        json.end_object();
    }

    /// Writes the description, with the refused keywords if they say more than the merged properties.
    fn description(&self, root: &Root<'_>, json: &mut Writer<'_, Vec<u8>>) {
        let told = root.list.iter().find(|(key, _)| key.is("description"));
        let told = told.and_then(|(_, value)| value.as_str()).unwrap_or_default();
        let mut text = told.escaped().as_bytes().to_vec();
        let is_named = |key: JsonStr<'_>| self.says_more && REFUSED.iter().any(|name| key.is(name));
        let mut rest = root.list.iter().filter(|(key, _)| is_named(*key)).peekable();
        if rest.peek().is_some() {
            text.put_slice(if told.is_empty() { b"{" } else { b"\\n\\n{" });
            while let Some((key, value)) = rest.next() {
                text.put_slice(key.escaped().as_bytes());
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

/// Reads the definitions of a document by the text of a reference to them, without `#/`.
fn definitions(document: RawJson<'_>) -> HashMap<(&str, &str), RawJson<'_>> {
    let mut found = HashMap::new();
    // What was read before a fault is used: the schema is copied where a reference is not found.
    let _ = members(&mut Cursor::new(document.text()), |group, json| {
        if !(group.is("$defs") || group.is("definitions")) {
            return json.skip();
        }
        members(json, |name, json| {
            found.insert((group.escaped(), name.escaped()), json.raw()?);
            Ok(())
        })
    });
    found
}
