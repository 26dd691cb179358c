//! Assembly of call arguments that arrive value by value, each with a JSON path (`partialArgs`).

use crate::canonical::{Index, IndexKey};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, push_escaped};

/// Maximum number of steps of a path behind its first name. A value with a longer path is ignored.
const MAX_DEPTH: usize = 64;

/// Maximum number of elements of an array. An index determines the length of its array, so it must be bounded.
const MAX_INDEX: usize = 10_000;

/// Maximum number of array elements of one call: arrays of arrays could otherwise have billions.
const MAX_ELEMENTS: usize = 100_000;

/// Call whose arguments are still arriving.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// Canonical index of the call's block.
    pub(super) block: u32,
    root: Members,
    /// Number of elements of all arrays.
    elements: usize,
}

/// Members of an object, with an index of their names.
#[derive(Debug, Default)]
struct Members {
    list: Vec<(String, Node)>,
    names: Index,
}

#[derive(Debug, Default)]
enum Node {
    #[default]
    Nothing,
    /// Inside of a JSON string; further pieces are appended.
    Text(String),
    Raw(String),
    Object(Members),
    Array(Vec<Node>),
}

impl Partial {
    pub(super) fn new(block: u32) -> Self {
        Partial { block, root: Members::default(), elements: 0 }
    }

    /// Returns whether no value has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.root.list.is_empty()
    }

    /// Adds the values of `partialArgs`. Values without a path are ignored.
    pub(super) fn add(&mut self, list: RawJson<'_>) -> Result<(), JsonError> {
        elements(&mut Cursor::new(list.text()), |json| {
            let mut path = None;
            let mut value = None;
            members(json, |key, json| {
                let member = json.raw()?;
                match key.escaped() {
                    "jsonPath" | "json_path" => path = member.as_str(),
                    "stringValue" | "string_value" | "numberValue" | "number_value" | "boolValue"
                    | "bool_value" => value = Some(member),
                    "nullValue" | "null_value" => value = Some(RawJson::NULL),
                    _ => {}
                }
                Ok(())
            })?;
            if let (Some(path), Some(value)) = (path, value) {
                self.set(path, value);
            }
            Ok(())
        })
        .map(|_| ())
    }

    fn set(&mut self, path: JsonStr<'_>, value: RawJson<'_>) {
        let path = path.decode();
        let mut rest = path.strip_prefix('$').unwrap_or(&path);
        // The root is an object, so the first step must be a name.
        let Some(Step::Name(first)) = step(&mut rest) else { return };
        // Nothing is written for a path that does not lead to its end: the value would replace all that is there.
        if !is_whole(rest) {
            return;
        }
        let Some(mut node) = child(&mut self.root, first) else { return };
        while let Some(step) = step(&mut rest) {
            match step {
                Step::Name(name) => {
                    if !matches!(node, Node::Object(_)) {
                        *node = Node::Object(Members::default());
                    }
                    let Node::Object(members) = node else { return };
                    let Some(member) = child(members, name) else { return };
                    node = member;
                }
                Step::Index(index) => {
                    if !matches!(node, Node::Array(_)) {
                        *node = Node::Array(Vec::new());
                    }
                    let Node::Array(items) = node else { return };
                    if let Some(more) = (index + 1).checked_sub(items.len()) {
                        if more > MAX_ELEMENTS.saturating_sub(self.elements) {
                            return;
                        }
                        self.elements += more;
                        items.resize_with(index + 1, Node::default);
                    }
                    let Some(item) = items.get_mut(index) else { return };
                    node = item;
                }
            }
        }
        match (value.as_str(), node) {
            // A string may arrive in several pieces.
            (Some(text), Node::Text(known)) => known.push_str(text.escaped()),
            (Some(text), node) => *node = Node::Text(text.escaped().to_owned()),
            (None, node) => *node = Node::Raw(value.text().to_owned()),
        }
    }

    /// Returns the arguments as the text of a JSON object.
    pub(super) fn json(&self) -> String {
        let mut out = Vec::new();
        write_object(&self.root, &mut out);
        String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned())
    }
}

fn child<'n>(members: &'n mut Members, name: &str) -> Option<&'n mut Node> {
    let Members { list, names } = members;
    let key = IndexKey::of(name);
    let at = names.first(key).unwrap_or_else(|| {
        names.push(key);
        list.push((name.to_owned(), Node::Nothing));
        list.len() - 1
    });
    list.get_mut(at).map(|(_, node)| node)
}

fn write_object(members: &Members, out: &mut Vec<u8>) {
    out.push(b'{');
    for (number, (name, node)) in members.list.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"\"" } else { b",\"" });
        push_escaped(out, name);
        out.extend_from_slice(b"\":");
        write(node, out);
    }
    out.push(b'}');
}

fn write(node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Nothing => out.extend_from_slice(b"null"),
        Node::Raw(raw) => out.extend_from_slice(raw.as_bytes()),
        Node::Text(text) => {
            out.push(b'"');
            out.extend_from_slice(text.as_bytes());
            out.push(b'"');
        }
        Node::Object(members) => write_object(members, out),
        Node::Array(items) => {
            out.push(b'[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
    }
}

enum Step<'p> {
    Name(&'p str),
    Index(usize),
}

/// Returns whether a path consists of at most [`MAX_DEPTH`] well-formed steps.
fn is_whole(mut path: &str) -> bool {
    std::iter::from_fn(|| step(&mut path)).take(MAX_DEPTH).for_each(drop);
    path.is_empty()
}

/// Removes the next step from a path: `.name`, `[0]`, `['name']` or `["name"]`. Returns `None` at the end, and for a
/// malformed step or an index that is too large, which remain in the path.
fn step<'p>(rest: &mut &'p str) -> Option<Step<'p>> {
    if let Some(tail) = rest.strip_prefix('.') {
        let end = tail.find(['.', '[']).unwrap_or(tail.len());
        let (name, tail) = tail.split_at(end);
        *rest = tail;
        return Some(Step::Name(name));
    }
    let tail = rest.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(quoted) = tail.strip_prefix(quote) {
            let end = quoted.find(quote)?;
            let (name, tail) = quoted.split_at(end);
            *rest = tail.get(1..)?.strip_prefix(']')?;
            return Some(Step::Name(name));
        }
    }
    let (index, tail) = tail.split_once(']')?;
    let index = index.parse().ok().filter(|index| *index < MAX_INDEX)?;
    *rest = tail;
    Some(Step::Index(index))
}
