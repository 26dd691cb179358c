//! JSON value as a tree of limited depth.

use std::collections::HashMap;

use crate::canonical::IndexKey;
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Maximum depth of the tree. Deeper values are kept as unparsed text.
const MAX_DEPTH: usize = 64;

/// JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node<'a> {
    Object(Vec<(JsonStr<'a>, Node<'a>)>),
    Array(Vec<Node<'a>>),
    /// A string, a number, `true`, `false` or `null`, or unparsed text of a value that is too deep.
    Leaf(RawJson<'a>),
}

impl<'a> Node<'a> {
    /// Reads a value. Returns an empty object if it is not valid JSON.
    pub(super) fn read(value: RawJson<'a>) -> Self {
        Self::parse(&mut Cursor::new(value.text()), 0).unwrap_or(Node::Object(Vec::new()))
    }

    fn parse(json: &mut Cursor<'a>, depth: usize) -> Result<Self, JsonError> {
        match json.kind()? {
            ValueKind::Object if depth < MAX_DEPTH => {
                let mut members = Vec::new();
                json.begin_object()?;
                while let Some(key) = json.next_key()? {
                    members.push((key, Self::parse(json, depth + 1)?));
                }
                Ok(Node::Object(members))
            }
            ValueKind::Array if depth < MAX_DEPTH => {
                let mut items = Vec::new();
                json.begin_array()?;
                while json.next_element()? {
                    items.push(Self::parse(json, depth + 1)?);
                }
                Ok(Node::Array(items))
            }
            _ => Ok(Node::Leaf(json.raw()?)),
        }
    }

    /// Returns the members of an object; an empty slice for any other value.
    pub(super) fn members(&self) -> &[(JsonStr<'a>, Node<'a>)] {
        match self {
            Node::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the elements of an array; an empty slice for any other value.
    pub(super) fn items(&self) -> &[Node<'a>] {
        match self {
            Node::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns the first member with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        self.members().iter().find(|member| member.0.is(name)).map(|member| &member.1)
    }

    /// Returns the value of a string; `None` for any other value.
    pub(super) fn string(&self) -> Option<JsonStr<'a>> {
        match self {
            Node::Leaf(raw) => raw.as_str(),
            _ => None,
        }
    }

    /// Returns the text of a scalar; `None` for objects and arrays.
    pub(super) fn leaf(&self) -> Option<RawJson<'a>> {
        match self {
            Node::Leaf(raw) if !raw.text().starts_with(['{', '[']) => Some(*raw),
            _ => None,
        }
    }

    /// Resolves a reference within the document (`#/$defs/name`). The first two steps are looked up in `definitions`,
    /// because nearly all references lead there. Returns `None` if the target does not exist.
    pub(super) fn follow_among<'t>(
        &'t self,
        reference: &str,
        definitions: &HashMap<(IndexKey, IndexKey), &'t Node<'a>>,
    ) -> Option<&'t Node<'a>> {
        let path = reference.strip_prefix('#')?;
        let mut steps = path.split('/').skip(1);
        let mut ahead = steps.clone();
        let definition = ahead.next().zip(ahead.next()).and_then(|(group, name)| {
            definitions.get(&(IndexKey::of(&*unescape(group)), IndexKey::of(&*unescape(name))))
        });
        let mut node = self;
        if let Some(definition) = definition {
            (node, steps) = (*definition, ahead);
        }
        for step in steps {
            let step = unescape(step);
            node = match node {
                Node::Array(items) => items.get(step.parse::<usize>().ok()?)?,
                node => node.get(&step)?,
            };
        }
        Some(node)
    }
}

/// Unescapes a step of a JSON pointer in a URI fragment (RFC 6901, section 6): `~1` is `/`, `~0` is `~`, `%20` is a
/// space.
fn unescape(step: &str) -> String {
    let step = percent_encoding::percent_decode_str(step).decode_utf8_lossy();
    step.replace("~1", "/").replace("~0", "~")
}
