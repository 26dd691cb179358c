//! Tools: what may be called, what must be, and with what.

use super::CacheMark;
use super::ToolKind;
use super::request::Extra;
use crate::json::{JsonStr, RawJson};

/// A tool that the model may call, and the client runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool<'a> {
    /// Its name.
    pub name: JsonStr<'a>,
    /// What it does; may be empty.
    pub description: JsonStr<'a>,
    /// The JSON schema of its arguments; nothing means that it takes none.
    pub schema: Option<RawJson<'a>>,
    /// The schema is in the dialect of OpenAPI 3.0 (types in capitals, `nullable`), not plain JSON schema.
    pub openapi: bool,
    /// Whether the provider is to hold the model to the schema.
    pub strict: Option<bool>,
    /// A function, or a tool with free text.
    pub kind: ToolKind,
    /// For free text: the format it must have, as the client said it (a grammar).
    pub format: Option<RawJson<'a>>,
    /// The group that the tool stands in, as the client named it; usually empty.
    pub namespace: JsonStr<'a>,
    /// What the group is for, as the client said it of the group; usually empty.
    pub namespace_about: JsonStr<'a>,
    /// The prompt is cached up to here.
    pub cache: Option<CacheMark>,
    /// Members that have no place above, for the client's own format.
    pub extra: Vec<Extra<'a>>,
}

/// Whether tools may or must be called.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolChoice<'a> {
    /// As the model sees fit.
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Tool(JsonStr<'a>),
    /// One of these; `required` says whether one must be called.
    Allowed {
        /// The names.
        names: Vec<JsonStr<'a>>,
        /// One of them must be called.
        required: bool,
    },
}

/// What a tool is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// The inside of a JSON string: the text of an object for a function, anything for a custom tool.
    Text(JsonStr<'a>),
    /// An object.
    Object(RawJson<'a>),
}
