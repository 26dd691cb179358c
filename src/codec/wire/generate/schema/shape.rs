//! Steps of the reduction: from any JSON schema to a shape that OpenAPI 3.0 can express.

use std::collections::HashMap;

use super::merged::Merged;
use super::tree::Node;
use crate::canonical::{Index, IndexKey};
use json::{JsonStr, RawJson};

/// Maximum number of members and elements that are visited. With references, a small schema can expand to a huge one.
const MAX_WORK: usize = 20_000;

/// Maximum length of a chain of references.
const MAX_PATH: usize = 64;

/// Maximum number of tuple positions that are read.
const MAX_TUPLE: usize = 32;

/// Maximum depth of the expanded schema.
const MAX_DEPTH: usize = 32;

/// Returns the definitions of a schema by group (for example `$defs`) and name. The first of equal names wins.
fn definitions<'t, 'a>(root: &'t Node<'a>) -> HashMap<(IndexKey, IndexKey), &'t Node<'a>> {
    let mut all = HashMap::new();
    for (group, members) in root.members() {
        for (name, node) in members.members() {
            all.entry((IndexKey::of(&*group.decode()), IndexKey::of(&*name.decode()))).or_insert(node);
        }
    }
    all
}

/// Type of a value.
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
    pub(super) fn of(word: JsonStr<'_>) -> Option<Type> {
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

/// Reduced schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shape<'a> {
    /// `None` only if `any_of` is set.
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
    /// Numeric limits by keyword.
    pub(super) limits: Vec<(&'static str, RawJson<'a>)>,
}

/// Keywords with a numeric limit, with the types that they apply to.
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

/// Chain of references that lead to a schema: the index of its last link, or `None` outside of all definitions. A
/// reference that is already in the chain is cyclic.
pub(super) type Chain = Option<usize>;

/// Link of a chain.
struct Link {
    reference: IndexKey,
    before: Chain,
    length: usize,
}

/// Reducer of one schema.
pub(super) struct Shaper<'t, 'a> {
    root: &'t Node<'a>,
    /// Nodes two levels below the root, by both names; nearly all references lead there. Built for the first
    /// reference.
    definitions: Option<HashMap<(IndexKey, IndexKey), &'t Node<'a>>>,
    /// Links of all chains of references.
    links: Vec<Link>,
    depth: usize,
    work: usize,
    pub(super) narrowed: bool,
}

impl<'t, 'a> Shaper<'t, 'a> {
    pub(super) fn new(root: &'t Node<'a>) -> Self {
        Shaper { root, definitions: None, links: Vec::new(), depth: 0, work: 0, narrowed: false }
    }

    /// Reduces a schema. A schema that is cyclic, too deep or too much work becomes an object without properties.
    pub(super) fn shape(&mut self, node: &'t Node<'a>) -> Shape<'a> {
        self.shape_in(node, None)
    }

    fn shape_in(&mut self, node: &'t Node<'a>, chain: Chain) -> Shape<'a> {
        if self.is_too_much(1) || self.depth >= MAX_DEPTH {
            self.narrowed = true;
            return Shape { kind: Some(Type::Object), ..Shape::default() };
        }
        self.depth += 1;
        let mut merged = Merged::default();
        let cyclic = self.merge(node, chain, &mut merged);
        let shape = if cyclic {
            Shape { kind: Some(Type::Object), description: merged.text("description"), ..Shape::default() }
        } else {
            self.build(&merged)
        };
        self.depth -= 1;
        shape
    }

    /// Counts work. Returns whether the limit is exceeded.
    pub(super) fn is_too_much(&mut self, work: usize) -> bool {
        self.work += work;
        self.work > MAX_WORK
    }

    /// Merges a schema, its `$ref` and its `allOf` into `into`; the first of equal keywords wins. Returns whether the
    /// schema refers to itself.
    ///
    /// `chain` leads to `node`. What is merged keeps the chain that leads to it, because each part has its own: parts
    /// may refer to the same definition, and a property of one part to the definition of another, without a cycle.
    fn merge(&mut self, node: &'t Node<'a>, chain: Chain, into: &mut Merged<'t, 'a>) -> bool {
        if self.is_too_much(1) {
            self.narrowed = true;
            return true;
        }
        let mut cyclic = false;
        for (name, value) in node.members() {
            into.add(*name, value, chain, self);
        }
        if let Some(reference) = node.get("$ref").and_then(Node::string) {
            let key = IndexKey::of(reference);
            if !self.is_followable(key, chain) {
                self.narrowed = true;
                return true;
            }
            // A definition that has been merged adds nothing a second time. Without this, definitions that refer twice
            // to the next one would be merged 2^n times.
            if into.merged.add(key) {
                let root: &'t Node<'a> = self.root;
                let definitions = self.definitions.get_or_insert_with(|| definitions(root));
                match root.follow_among(&reference.decode(), definitions) {
                    Some(target) => {
                        let chain = self.link(key, chain);
                        cyclic |= self.merge(target, chain, into);
                    }
                    None => self.narrowed = true,
                }
            }
        }
        for part in node.get("allOf").map(Node::items).unwrap_or_default() {
            cyclic |= self.merge(part, chain, into);
        }
        cyclic
    }

    /// Returns whether a reference is not yet in the chain, and the chain is not too long.
    fn is_followable(&self, reference: IndexKey, chain: Chain) -> bool {
        let link = |chain: Chain| self.links.get(chain?);
        let mut links = std::iter::successors(link(chain), |last| link(last.before));
        link(chain).is_none_or(|last| last.length < MAX_PATH) && links.all(|link| link.reference != reference)
    }

    /// Appends a reference to a chain.
    fn link(&mut self, reference: IndexKey, before: Chain) -> Chain {
        let length = before.and_then(|last| self.links.get(last)).map_or(0, |last| last.length) + 1;
        self.links.push(Link { reference, before, length });
        Some(self.links.len() - 1)
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
            // OpenAPI 3.0 cannot combine `anyOf` with a type here. Keep the outer schema, which holds for all
            // alternatives.
            self.narrowed = true;
        }
        if types.len() > 1 {
            let each = types.iter().map(|kind| self.typed(*kind, merged, Shape::default())).collect();
            return shape.any(each);
        }
        let kind = types.first().copied().unwrap_or_else(|| merged.guess());
        self.typed(kind, merged, shape)
    }

    /// Returns the alternatives except null, which makes the whole schema nullable.
    fn branches(&mut self, merged: &Merged<'t, 'a>, shape: &mut Shape<'a>) -> Vec<Shape<'a>> {
        let mut branches = Vec::new();
        let parts = merged.list("anyOf").chain(merged.list("oneOf"));
        for (part, chain) in parts {
            let is_null = |node: &Node<'a>| {
                let word = node.get("type").and_then(Node::string);
                word.is_some_and(|word| word.decode().eq_ignore_ascii_case("null"))
                    || node.get("const").and_then(Node::leaf).is_some_and(RawJson::is_null)
            };
            if is_null(part) {
                shape.nullable = true;
            } else {
                branches.push(self.shape_in(part, chain));
            }
        }
        branches
    }

    /// Returns a shape of one type.
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
                for (name, node, chain) in &merged.properties {
                    let property = self.shape_in(node, *chain);
                    shape.properties.push((*name, property));
                }
                let known = |name: &JsonStr<'_>| merged.known.has(IndexKey::of(*name));
                shape.required = merged.required.iter().filter(|name| known(name)).copied().collect();
                let order = merged.list("propertyOrdering").filter_map(|(name, _)| name.string());
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

    /// Adds the allowed values of a string. Other types have no `enum` in this format.
    fn choices(&mut self, merged: &Merged<'t, 'a>, shape: &mut Shape<'a>) {
        let mut known = Index::default();
        for value in merged.values() {
            match value.leaf() {
                Some(value) if value.is_null() => shape.nullable = true,
                // The provider rejects an empty `enum` value.
                Some(value) => match value.as_str() {
                    Some(word) if !word.is_empty() && known.add(IndexKey::of(word)) => {
                        shape.choices.push(word)
                    }
                    Some(_) => {}
                    None => self.narrowed = true,
                },
                None => self.narrowed = true,
            }
        }
    }

    fn items(&mut self, merged: &Merged<'t, 'a>) -> Shape<'a> {
        if let Some((items, chain)) =
            merged.get("items").filter(|(items, _)| matches!(items, Node::Object(_)))
        {
            return self.shape_in(items, chain);
        }
        let tuple = merged.list("prefixItems").chain(merged.list("items"));
        self.narrowed |= tuple.clone().nth(1).is_some();
        let mut shapes: Vec<Shape<'a>> = Vec::new();
        for (item, chain) in tuple.take(MAX_TUPLE) {
            let shape = self.shape_in(item, chain);
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
    /// Makes a union of the branches. A single branch replaces the union, with the outer title and description.
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

    /// Converts the shape to function arguments, which must be an object. Alternatives are merged: all properties of
    /// all branches, and those required by every branch.
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
                if known.add(IndexKey::of(name)) {
                    all.properties.push((name, shape));
                }
            }
            match &mut required {
                Some(names) => {
                    let here: Index = branch.required.iter().map(|name| IndexKey::of(*name)).collect();
                    names.retain(|name| here.has(IndexKey::of(*name)));
                }
                None => required = Some(branch.required),
            }
        }
        all.required = required.unwrap_or_default();
        all
    }
}
