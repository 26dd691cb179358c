//! The steps: from any JSON schema to a shape that OpenAPI 3.0 can say.

use std::collections::HashMap;

use super::tree::Node;
use crate::canonical::{Index, Key};
use crate::json::{JsonStr, RawJson};

/// Work that a schema may make: members and elements looked at. References let a small schema mean a huge one.
const MAX_WORK: usize = 20_000;

/// References that are followed one from another.
const MAX_PATH: usize = 64;

/// Places of a tuple that are looked at.
const MAX_TUPLE: usize = 32;

/// Depth to which a schema unfolds.
const MAX_DEPTH: usize = 32;

/// The definitions of a schema, by the two names under which they stand. What came first wins.
fn definitions<'t, 'a>(root: &'t Node<'a>) -> HashMap<(Key, Key), &'t Node<'a>> {
    let mut all = HashMap::new();
    for (group, members) in root.members() {
        for (name, node) in members.members() {
            all.entry((Key::of(&*group.decode()), Key::of(&*name.decode()))).or_insert(node);
        }
    }
    all
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
}

impl Type {
    fn of(word: JsonStr<'_>) -> Option<Type> {
        Some(match word.decode().to_ascii_lowercase().as_str() {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "number" => Type::Number,
            "integer" => Type::Integer,
            "boolean" => Type::Boolean,
            _ => return None,
        })
    }
}

/// A schema of this format.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shape<'a> {
    /// Nothing only where `any_of` says it.
    pub(super) kind: Option<Type>,
    pub(super) nullable: bool,
    pub(super) title: Option<JsonStr<'a>>,
    pub(super) description: Option<JsonStr<'a>>,
    pub(super) format: Option<JsonStr<'a>>,
    pub(super) pattern: Option<JsonStr<'a>>,
    pub(super) choices: Vec<JsonStr<'a>>,
    pub(super) properties: Vec<(JsonStr<'a>, Shape<'a>)>,
    pub(super) required: Vec<JsonStr<'a>>,
    pub(super) ordering: Vec<JsonStr<'a>>,
    pub(super) items: Option<Box<Shape<'a>>>,
    pub(super) any_of: Vec<Shape<'a>>,
    /// Numbers that limit the value, under their names.
    pub(super) limits: Vec<(&'static str, RawJson<'a>)>,
}

/// Keywords that limit values of a type by a number.
const LIMITS: [(&str, &[Type]); 8] = [
    ("minItems", &[Type::Array]),
    ("maxItems", &[Type::Array]),
    ("minProperties", &[Type::Object]),
    ("maxProperties", &[Type::Object]),
    ("minLength", &[Type::String]),
    ("maxLength", &[Type::String]),
    ("minimum", &[Type::Number, Type::Integer]),
    ("maximum", &[Type::Number, Type::Integer]),
];

/// Keywords that narrow what a value may be, and have no counterpart.
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

/// Shapes one schema.
pub(super) struct Shaper<'t, 'a> {
    root: &'t Node<'a>,
    /// What stands one below the members of the root, by both names: where nearly all references lead.
    definitions: Option<HashMap<(Key, Key), &'t Node<'a>>>,
    /// References that are being followed.
    path: Vec<JsonStr<'a>>,
    depth: usize,
    work: usize,
    pub(super) narrowed: bool,
}

impl<'t, 'a> Shaper<'t, 'a> {
    pub(super) fn new(root: &'t Node<'a>) -> Self {
        Shaper { root, definitions: None, path: Vec::new(), depth: 0, work: 0, narrowed: false }
    }

    /// The shape of a schema.
    pub(super) fn shape(&mut self, node: &'t Node<'a>) -> Shape<'a> {
        if self.is_too_much(1) || self.depth >= MAX_DEPTH {
            self.narrowed = true;
            return Shape { kind: Some(Type::Object), ..Shape::default() };
        }
        self.depth += 1;
        let mut merged = Merged::default();
        let steps = self.path.len();
        let cyclic = self.merge(node, &mut merged);
        let shape = if cyclic {
            Shape { kind: Some(Type::Object), description: merged.text("description"), ..Shape::default() }
        } else {
            self.build(&merged)
        };
        self.path.truncate(steps);
        self.depth -= 1;
        shape
    }

    /// Counts work, and tells whether it is enough.
    fn is_too_much(&mut self, work: usize) -> bool {
        self.work += work;
        self.work > MAX_WORK
    }

    /// Takes in a schema, what it refers to, and all that it must fulfil as well. What came first wins. Tells whether
    /// it leads to itself.
    fn merge(&mut self, node: &'t Node<'a>, into: &mut Merged<'t, 'a>) -> bool {
        if self.is_too_much(1) {
            return true;
        }
        let mut cyclic = false;
        for (name, value) in node.members() {
            into.add(*name, value, self);
        }
        if let Some(reference) = node.get("$ref").and_then(Node::string) {
            if self.path.contains(&reference) || self.path.len() >= MAX_PATH {
                self.narrowed = true;
                return true;
            }
            let root: &'t Node<'a> = self.root;
            let definitions = self.definitions.get_or_insert_with(|| definitions(root));
            match root.follow_among(&reference.decode(), definitions) {
                Some(target) => {
                    self.path.push(reference);
                    cyclic |= self.merge(target, into);
                }
                None => self.narrowed = true,
            }
        }
        for part in node.get("allOf").map(Node::items).unwrap_or_default() {
            cyclic |= self.merge(part, into);
        }
        cyclic
    }

    fn build(&mut self, merged: &Merged<'t, 'a>) -> Shape<'a> {
        let mut shape = Shape {
            title: merged.text("title"),
            description: merged.text("description"),
            nullable: merged.leaf("nullable").is_some_and(|value| value.text() == "true"),
            ..Shape::default()
        };
        let (types, null) = merged.types();
        shape.nullable |= null;
        let branches = self.branches(merged, &mut shape);
        let structured = !merged.properties.is_empty() || !types.is_empty();
        if !branches.is_empty() && !structured {
            return shape.any(branches);
        }
        if !branches.is_empty() {
            // Both at once cannot be said; what stands outside of the alternatives holds for all of them.
            self.narrowed = true;
        }
        if types.len() > 1 {
            let each = types.iter().map(|kind| self.typed(*kind, merged, Shape::default())).collect();
            return shape.any(each);
        }
        let kind = types.first().copied().unwrap_or_else(|| merged.guess());
        self.typed(kind, merged, shape)
    }

    /// The alternatives, without null ones, which make the whole nullable.
    fn branches(&mut self, merged: &Merged<'t, 'a>, shape: &mut Shape<'a>) -> Vec<Shape<'a>> {
        let mut branches = Vec::new();
        let parts = merged.list("anyOf").iter().chain(merged.list("oneOf"));
        for part in parts {
            let is_null = |node: &Node<'a>| {
                let word = node.get("type").and_then(Node::string);
                word.is_some_and(|word| word.decode().eq_ignore_ascii_case("null"))
                    || node.get("const").and_then(Node::leaf).is_some_and(RawJson::is_null)
            };
            if is_null(part) {
                shape.nullable = true;
            } else {
                branches.push(self.shape(part));
            }
        }
        branches
    }

    /// A shape of one type.
    fn typed(&mut self, kind: Type, merged: &Merged<'t, 'a>, mut shape: Shape<'a>) -> Shape<'a> {
        shape.kind = Some(kind);
        for (name, types) in LIMITS {
            if let Some(value) = merged.leaf(name).filter(|_| types.contains(&kind))
                && value.text().parse::<f64>().is_ok_and(f64::is_finite)
            {
                shape.limits.push((name, value));
            }
        }
        match kind {
            Type::Object => {
                for (name, node) in &merged.properties {
                    let property = self.shape(node);
                    shape.properties.push((*name, property));
                }
                let known = |name: &JsonStr<'_>| merged.known.has(Key::of(*name));
                shape.required = merged.required.iter().filter(|name| known(name)).copied().collect();
                let order = merged.list("propertyOrdering").iter().filter_map(Node::string);
                shape.ordering = order.filter(|name| known(name)).collect();
            }
            Type::Array => shape.items = Some(Box::new(self.items(merged))),
            Type::String => {
                shape.pattern = merged.text("pattern");
                self.choices(merged, &mut shape);
                let format = merged.text("format");
                shape.format = format.filter(|format| format.is("enum") || format.is("date-time"));
            }
            Type::Number | Type::Integer => {
                let words = if kind == Type::Number { ["float", "double"] } else { ["int32", "int64"] };
                let format = merged.text("format");
                shape.format = format.filter(|format| words.iter().any(|word| format.is(word)));
                self.narrowed |= merged.values().next().is_some();
            }
            Type::Boolean => self.narrowed |= merged.values().next().is_some(),
        }
        shape
    }

    /// The words that a string may be. Others than strings have no list of values here.
    fn choices(&mut self, merged: &Merged<'t, 'a>, shape: &mut Shape<'a>) {
        let mut known = Index::default();
        for value in merged.values() {
            match value.leaf() {
                Some(value) if value.is_null() => shape.nullable = true,
                // An empty word is refused.
                Some(value) => match value.as_str() {
                    Some(word) if !word.is_empty() && known.add(Key::of(word)) => shape.choices.push(word),
                    Some(_) => {}
                    None => self.narrowed = true,
                },
                None => self.narrowed = true,
            }
        }
    }

    fn items(&mut self, merged: &Merged<'t, 'a>) -> Shape<'a> {
        if let Some(items) = merged.get("items").filter(|items| matches!(items, Node::Object(_))) {
            return self.shape(items);
        }
        let tuple = merged.list("prefixItems").iter().chain(merged.list("items"));
        self.narrowed |= tuple.clone().nth(1).is_some();
        let mut shapes: Vec<Shape<'a>> = Vec::new();
        for item in tuple.take(MAX_TUPLE) {
            let shape = self.shape(item);
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        if shapes.is_empty() {
            return Shape { kind: Some(Type::String), ..Shape::default() };
        }
        Shape::default().any(shapes)
    }
}

impl<'a> Shape<'a> {
    /// One of these; where there is only one, that one, under the outer name.
    fn any(mut self, mut branches: Vec<Shape<'a>>) -> Shape<'a> {
        if branches.len() == 1
            && let Some(mut only) = branches.pop()
        {
            only.nullable |= self.nullable;
            only.title = self.title.or(only.title);
            only.description = self.description.or(only.description);
            return only;
        }
        self.any_of = branches;
        self
    }

    /// As the arguments of a function, which are an object: of alternatives, all that any of them has.
    pub(super) fn into_object(mut self) -> Shape<'a> {
        self.nullable = false;
        if self.any_of.is_empty() {
            if self.kind != Some(Type::Object) {
                return Shape { kind: Some(Type::Object), description: self.description, ..Shape::default() };
            }
            return self;
        }
        let mut all = Shape {
            kind: Some(Type::Object),
            title: self.title,
            description: self.description,
            ..Shape::default()
        };
        let mut required: Option<Vec<JsonStr<'a>>> = None;
        let mut known = Index::default();
        for branch in self.any_of {
            let branch = branch.into_object();
            for (name, shape) in branch.properties {
                if known.add(Key::of(name)) {
                    all.properties.push((name, shape));
                }
            }
            match &mut required {
                Some(names) => {
                    let here: Index = branch.required.iter().map(|name| Key::of(*name)).collect();
                    names.retain(|name| here.has(Key::of(*name)));
                }
                None => required = Some(branch.required),
            }
        }
        all.required = required.unwrap_or_default();
        all
    }
}

/// The keywords of a schema and of all that belongs to it.
#[derive(Default)]
struct Merged<'t, 'a> {
    keywords: Vec<(JsonStr<'a>, &'t Node<'a>)>,
    properties: Vec<(JsonStr<'a>, &'t Node<'a>)>,
    required: Vec<JsonStr<'a>>,
    /// Names of the three above.
    words: Index,
    known: Index,
    needed: Index,
}

impl<'t, 'a> Merged<'t, 'a> {
    fn add(&mut self, name: JsonStr<'a>, value: &'t Node<'a>, shaper: &mut Shaper<'t, 'a>) {
        if shaper.is_too_much(1 + value.members().len() + value.items().len()) {
            shaper.narrowed = true;
            return;
        }
        match name.escaped() {
            "properties" => {
                for (name, node) in value.members() {
                    if self.known.add(Key::of(*name)) {
                        self.properties.push((*name, node));
                    }
                }
            }
            "required" => {
                for name in value.items().iter().filter_map(Node::string) {
                    if self.needed.add(Key::of(name)) {
                        self.required.push(name);
                    }
                }
            }
            "$ref" | "allOf" => {}
            other => {
                let of_no_effect = value.leaf().is_some_and(|value| value.text() == "false");
                shaper.narrowed |= NARROWING.contains(&other) && !of_no_effect;
                if self.words.add(Key::of(name)) {
                    self.keywords.push((name, value));
                }
            }
        }
    }

    fn get(&self, name: &str) -> Option<&'t Node<'a>> {
        let at = self.words.first(Key::of(JsonStr::from_escaped(name)))?;
        self.keywords.get(at).map(|known| known.1)
    }

    fn leaf(&self, name: &str) -> Option<RawJson<'a>> {
        self.get(name).and_then(Node::leaf)
    }

    fn text(&self, name: &str) -> Option<JsonStr<'a>> {
        self.get(name).and_then(Node::string).filter(|text| !text.is_empty())
    }

    fn list(&self, name: &str) -> &'t [Node<'a>] {
        self.get(name).map(Node::items).unwrap_or_default()
    }

    /// `enum`, or the one value of `const`.
    fn values(&self) -> impl Iterator<Item = &'t Node<'a>> {
        self.list("enum").iter().chain(self.get("const"))
    }

    /// The types that are named, and whether null is among them.
    fn types(&self) -> (Vec<Type>, bool) {
        let mut types = Vec::new();
        let mut null = false;
        let words = self.get("type").into_iter().flat_map(|node| match node {
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

    /// The type of a schema that names none: what its keywords are about, and otherwise text, which can say anything.
    fn guess(&self) -> Type {
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
