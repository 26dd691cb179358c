//! Keywords of a schema, merged from its references and its `allOf`.

use super::shape::{Chain, Shaper, Type};
use super::tree::Node;
use crate::canonical::{Index, IndexKey};
use json::{JsonStr, RawJson};

/// Keywords that restrict a value and have no counterpart in OpenAPI 3.0.
const NARROWING: [&str; 17] = [
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "patternProperties",
    "propertyNames",
    "if",
    "then",
    "else",
    "not",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "uniqueItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentEncoding",
];

/// Merged keywords of a schema, its references and its `allOf`.
#[derive(Default)]
pub(super) struct Merged<'t, 'a> {
    /// Keywords and properties with the chain of references that leads to each.
    keywords: Vec<(&'t Node<'a>, Chain)>,
    pub(super) properties: Vec<(JsonStr<'a>, &'t Node<'a>, Chain)>,
    pub(super) required: Vec<JsonStr<'a>>,
    /// References that have been merged.
    pub(super) merged: Index,
    /// Index of `keywords` by name. `known` and `needed` are those of `properties` and `required`.
    words: Index,
    pub(super) known: Index,
    needed: Index,
}

impl<'t, 'a> Merged<'t, 'a> {
    pub(super) fn add(
        &mut self,
        name: JsonStr<'a>,
        value: &'t Node<'a>,
        chain: Chain,
        shaper: &mut Shaper<'t, 'a>,
    ) {
        if shaper.is_too_much(1 + value.members().len() + value.items().len()) {
            shaper.narrowed = true;
            return;
        }
        match name.escaped() {
            "properties" => {
                for (name, node) in value.members() {
                    if self.known.add(IndexKey::of(*name)) {
                        self.properties.push((*name, node, chain));
                    }
                }
            }
            "required" => {
                for name in value.items().iter().filter_map(Node::string) {
                    if self.needed.add(IndexKey::of(name)) {
                        self.required.push(name);
                    }
                }
            }
            "$ref" | "allOf" => {}
            other => {
                let of_no_effect = value.leaf().is_some_and(|value| value.text() == "false");
                shaper.narrowed |= NARROWING.contains(&other) && !of_no_effect;
                if self.words.add(IndexKey::of(name)) {
                    self.keywords.push((value, chain));
                }
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<(&'t Node<'a>, Chain)> {
        let at = self.words.first(IndexKey::of(JsonStr::from_escaped(name)))?;
        self.keywords.get(at).copied()
    }

    pub(super) fn node(&self, name: &str) -> Option<&'t Node<'a>> {
        self.get(name).map(|(node, _)| node)
    }

    pub(super) fn leaf(&self, name: &str) -> Option<RawJson<'a>> {
        self.node(name).and_then(Node::leaf)
    }

    pub(super) fn text(&self, name: &str) -> Option<JsonStr<'a>> {
        self.node(name).and_then(Node::string).filter(|text| !text.is_empty())
    }

    pub(super) fn list(
        &self,
        name: &str,
    ) -> impl Iterator<Item = (&'t Node<'a>, Chain)> + Clone + use<'t, 'a> {
        let (items, chain) = self.get(name).map_or((&[][..], None), |(node, chain)| (node.items(), chain));
        items.iter().map(move |item| (item, chain))
    }

    /// Returns the allowed values: `enum`, and the value of `const`.
    pub(super) fn values(&self) -> impl Iterator<Item = &'t Node<'a>> + use<'t, 'a> {
        self.list("enum").map(|(value, _)| value).chain(self.node("const"))
    }

    /// Returns the types of the `type` keyword, and whether null is one of them.
    pub(super) fn types(&self) -> (Vec<Type>, bool) {
        let mut types = Vec::new();
        let mut null = false;
        let words = self.node("type").into_iter().flat_map(|node| match node {
            Node::Array(items) => items.as_slice(),
            node => std::slice::from_ref(node),
        });
        for word in words.filter_map(Node::string) {
            null |= word.decode().eq_ignore_ascii_case("null");
            if let Some(kind) = Type::of(word).filter(|kind| !types.contains(kind)) {
                types.push(kind);
            }
        }
        (types, null)
    }

    /// Infers the type of a schema without `type` from its values and keywords; string if they do not imply one,
    /// because text can express any value.
    pub(super) fn guess(&self) -> Type {
        let has = |names: &[&str]| names.iter().any(|name| self.get(name).is_some());
        let value = self.values().filter_map(Node::leaf).find(|value| !value.is_null());
        match value.map(RawJson::text) {
            Some("true" | "false") => return Type::Boolean,
            Some(text) if text.starts_with('"') => return Type::String,
            Some(text) if text.parse::<i64>().is_ok() => return Type::Integer,
            Some(_) => return Type::Number,
            None => {}
        }
        if !self.properties.is_empty() || has(&["additionalProperties", "patternProperties", "minProperties"])
        {
            Type::Object
        } else if has(&["items", "prefixItems", "minItems", "maxItems"]) {
            Type::Array
        } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
            Type::Number
        } else {
            Type::String
        }
    }
}
