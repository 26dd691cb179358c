//! Arguments of a call that arrive value by value under their paths, put together.

use crate::canonical::{Index, Key};
use crate::json::{Cursor, JsonError, JsonStr, RawJson, push_escaped};
use crate::wire::watch::{elements, members};

/// Steps of a path that are followed at most.
const MAX_DEPTH: usize = 64;

/// Elements of an array at most: an index says how many there are, so it must not be believed blindly.
const MAX_INDEX: usize = 10_000;

/// A call whose arguments are still arriving.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// The call's block.
    pub(super) block: u32,
    root: Members,
}

/// The members of an object, and where each name stands.
#[derive(Debug, Default)]
struct Members {
    list: Vec<(String, Node)>,
    names: Index,
}

#[derive(Debug, Default)]
enum Node {
    #[default]
    Nothing,
    /// The inside of a string, which may grow.
    Text(String),
    /// Any other value.
    Raw(String),
    Object(Members),
    Array(Vec<Node>),
}

impl Partial {
    pub(super) fn new(block: u32) -> Self {
        Partial { block, root: Members::default() }
    }

    /// Whether no value has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.root.list.is_empty()
    }

    /// Takes `partialArgs`: an array of values, each with its path.
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
        let Some(Step::Name(first)) = step(&mut rest) else { return };
        let Some(mut node) = child(&mut self.root, first) else { return };
        for _ in 0..MAX_DEPTH {
            match step(&mut rest) {
                Some(Step::Name(name)) => {
                    if !matches!(node, Node::Object(_)) {
                        *node = Node::Object(Members::default());
                    }
                    let Node::Object(members) = node else { return };
                    let Some(member) = child(members, name) else { return };
                    node = member;
                }
                Some(Step::Index(index)) => {
                    if !matches!(node, Node::Array(_)) {
                        *node = Node::Array(Vec::new());
                    }
                    let Node::Array(items) = node else { return };
                    if index >= items.len() {
                        items.resize_with(index + 1, Node::default);
                    }
                    let Some(item) = items.get_mut(index) else { return };
                    node = item;
                }
                None => break,
            }
        }
        match (value.as_str(), node) {
            (Some(text), Node::Text(known)) => known.push_str(text.escaped()),
            (Some(text), node) => *node = Node::Text(text.escaped().to_owned()),
            (None, node) => *node = Node::Raw(value.text().to_owned()),
        }
    }

    /// The arguments as an object.
    pub(super) fn json(&self) -> String {
        let mut out = Vec::new();
        write_object(&self.root, &mut out);
        String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned())
    }
}

fn child<'n>(members: &'n mut Members, name: &str) -> Option<&'n mut Node> {
    let Members { list, names } = members;
    let key = Key::of(name);
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

/// Takes the next step off a path: `.name`, `[0]`, `['name']` or `["name"]`.
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
    *rest = tail;
    index.parse().ok().filter(|index| *index < MAX_INDEX).map(Step::Index)
}
