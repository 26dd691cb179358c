//! Tools: definitions, tool choice and the input of a call.

use super::CacheBreakpoint;
use super::ToolKind;
use super::request::Extra;
use json::{JsonStr, RawJson};

/// Tool definition. The model may call the tool; the client runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool<'a> {
    /// Name of the tool.
    pub name: JsonStr<'a>,
    /// Description for the model; may be empty.
    pub description: JsonStr<'a>,
    /// JSON schema of the arguments; `None` if the tool takes no arguments.
    pub schema: Option<RawJson<'a>>,
    /// Whether the schema is in the dialect of OpenAPI 3.0 (types in capitals, `nullable`) instead of plain JSON
    /// schema.
    pub openapi: bool,
    /// Whether the provider must constrain the arguments to the schema.
    pub strict: Option<bool>,
    /// Function with JSON arguments, or custom tool with free text.
    pub kind: ToolKind,
    /// Input format of a custom tool (a grammar), as the client wrote it.
    pub format: Option<RawJson<'a>>,
    /// Namespace (group) of the tool, as the client named it; usually empty.
    pub namespace: JsonStr<'a>,
    /// Description of the namespace, as the client wrote it; usually empty.
    pub namespace_about: JsonStr<'a>,
    /// Whether a search over tools has loaded it in the conversation, and only there. In the format of that search the
    /// result of the search offers it.
    pub loaded: bool,
    /// Prompt-cache breakpoint: the provider caches the prompt up to and including this tool.
    pub cache: Option<CacheBreakpoint>,
    /// Members without a field above; only the client's own format knows them.
    pub extra: Vec<Extra<'a>>,
}

impl<'a> Tool<'a> {
    /// Creates a tool without description and arguments.
    pub fn new(name: JsonStr<'a>, kind: ToolKind) -> Self {
        Tool {
            name,
            description: JsonStr::default(),
            schema: None,
            openapi: false,
            strict: None,
            kind,
            format: None,
            namespace: JsonStr::default(),
            namespace_about: JsonStr::default(),
            loaded: false,
            cache: None,
            extra: Vec::new(),
        }
    }
}

/// Tool choice: whether the model may, must or must not call tools.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolChoice<'a> {
    /// The model decides.
    Auto,
    /// No tool may be called.
    None,
    /// At least one tool must be called.
    Required,
    /// The tool of this name must be called.
    Tool(JsonStr<'a>),
    /// The provider's web search must be used.
    Search,
    /// Only the tools in this list may be called.
    Allowed {
        /// Names of the allowed tools.
        names: Vec<JsonStr<'a>>,
        /// Whether one of them must be called.
        required: bool,
    },
}

/// Input of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Inside of a JSON string: the text of a JSON object for a function, any text for a custom tool.
    Text(JsonStr<'a>),
    /// JSON object.
    Object(RawJson<'a>),
}
