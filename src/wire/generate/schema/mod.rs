//! JSON schemas cut down to what the older schema field of this format takes: a part of OpenAPI 3.0.
//!
//! Here live a small tree of a schema ([`tree`]) and the steps that make it smaller. Only models and clouds that do not
//! take plain JSON schema need it. Whatever comes in, something that is accepted comes out; what is cut off from what a
//! value may be is told.

mod shape;
mod tree;
mod write;

#[cfg(test)]
mod tests;

use crate::json::RawJson;

/// What a schema is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The arguments of a function: an object.
    Arguments,
    /// An answer: anything.
    Answer,
}

/// A schema, cut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The schema; nothing for arguments of which there are none.
    pub(super) text: Option<String>,
    /// Something that narrows the values is gone.
    pub(super) narrowed: bool,
}

/// Cuts a schema down.
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
