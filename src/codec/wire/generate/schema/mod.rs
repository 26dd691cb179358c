//! Schema reduction: converts JSON schemas to the subset of OpenAPI 3.0 that the older schema field of this format
//! accepts.
//!
//! This module has a small schema tree ([`tree`]) and the steps that reduce it. It is needed only for models and
//! clouds that do not accept plain JSON schema. The result is always accepted, whatever the input is; `Cut::narrowed`
//! reports that a restriction was dropped.

mod merged;
mod shape;
mod tree;
mod write;

#[cfg(test)]
mod tests;

use json::RawJson;

/// Use of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Arguments of a function: the schema must be an object.
    Arguments,
    /// Response format: any schema.
    Answer,
}

/// Reduced schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Text of the schema; `None` for arguments without properties.
    pub(super) text: Option<String>,
    /// Whether a keyword that restricts the values was dropped.
    pub(super) narrowed: bool,
}

/// Reduces a schema.
pub(super) fn openapi(schema: RawJson<'_>, root: Root) -> Cut {
    let tree = tree::Node::read(schema);
    let mut shaper = shape::Shaper::new(&tree);
    let mut shape = shaper.shape(&tree);
    if root == Root::Arguments {
        shape = shape.into_object();
    }
    let empty = root == Root::Arguments && shape.properties.is_empty();
    Cut { text: (!empty).then(|| write::text(&shape)), narrowed: shaper.narrowed }
}
