//! Events of a response, in the strictest grammar of all formats: blocks are opened and closed, block indexes are
//! dense, and everything that belongs to a block comes between its start and its stop.

use super::Usage;
use json::{JsonStr, RawJson};

/// Event of a response. It borrows the frame that it was read from and lives for one callback.
///
/// Order: `Start`; then any number of blocks; then one `Finish` for each choice, after all blocks of that choice have
/// stopped; then `End`. Several blocks may be open at once. `Usage` and `Ping` may come anywhere before `End`, also
/// before `Start`: formats whose first event has usage need it then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Start of the response.
    Start(Start<'a>),
    /// Start of a block. Indexes count from 0 over the whole response, in the order of the starts.
    BlockStart {
        /// Index of the block.
        index: u32,
        /// Choice that the block belongs to, if the request asked for several (`n`, `candidateCount`); 0 for a single
        /// choice.
        choice: u32,
        /// Kind of the block.
        kind: BlockKind<'a>,
    },
    /// Content that is appended to an open block.
    Delta {
        /// Index of the block.
        index: u32,
        /// The content.
        delta: Delta<'a>,
    },
    /// End of a block.
    BlockStop {
        /// Index of the block.
        index: u32,
    },
    /// Usage so far. Cumulative: see [`Usage::update`].
    Usage(Usage),
    /// End of a choice.
    Finish {
        /// Index of the choice.
        choice: u32,
        /// Finish reason.
        finish: Finish<'a>,
    },
    /// Keep-alive of the provider.
    Ping,
    /// Error that the provider reports in its stream, as the provider wrote it. No event follows.
    Error(RawJson<'a>),
    /// End of a complete response. No event follows.
    End,
}

/// Response metadata that is known when the response starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start<'a> {
    /// Response id of the provider; empty if the provider sent none.
    pub id: JsonStr<'a>,
    /// Model name as the provider reports it; empty if it reports none.
    pub model: JsonStr<'a>,
    /// Creation time as the provider reports it, in Unix seconds.
    pub created: Option<u64>,
}

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind<'a> {
    /// Visible text.
    Text,
    /// Refusal: text in which the model explains why it does not answer.
    Refusal,
    /// Visible reasoning. It may carry a provider signature ([`Delta::Signature`]).
    Reasoning,
    /// Hidden reasoning (encrypted or redacted): it has no text, only a provider signature ([`Delta::Signature`]) that
    /// must be returned to the provider.
    HiddenReasoning,
    /// Tool call.
    ToolUse {
        /// Id of the call; never empty.
        id: JsonStr<'a>,
        /// Name of the tool.
        name: JsonStr<'a>,
        /// Function or custom tool.
        kind: ToolKind,
        /// Namespace of the tool; usually empty.
        namespace: JsonStr<'a>,
    },
    /// Image, audio or another file that the model generated.
    Media {
        /// Media type, for example `image/png`.
        mime: JsonStr<'a>,
    },
    /// Block that only its own format can represent, for example a tool that the provider ran.
    Opaque {
        /// Type of the block, as its format names it.
        name: JsonStr<'a>,
        /// Whole JSON value of the block at its start.
        raw: RawJson<'a>,
    },
}

/// Kind of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    /// Function: its arguments are one JSON object.
    #[default]
    Function,
    /// Custom tool: its input is free text.
    Custom,
}

/// Content that is appended to a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delta<'a> {
    /// Text of a `Text`, `Refusal` or `Reasoning` block.
    Text(JsonStr<'a>),
    /// Fragment of a call's input, as the inside of a JSON string: the text of the arguments for a function, the input
    /// itself for a custom tool. The concatenation of all fragments is the input; no fragment at all means `{}`.
    Arguments(JsonStr<'a>),
    /// Whole arguments of a call, as a JSON object. It excludes any other input delta of the block.
    Object(RawJson<'a>),
    /// Fragment of a media block's bytes, in base64.
    Data(JsonStr<'a>),
    /// Address of a media block. It excludes any other content delta of the block.
    Url(JsonStr<'a>),
    /// Provider signature (thinking signature or encrypted reasoning), to be returned unchanged with this block. At
    /// most one per block.
    Signature(JsonStr<'a>),
    /// Source that the text cites.
    Citation(Citation<'a>),
    /// Log probabilities of the tokens of this delta: an array of `{token, logprob, bytes, top_logprobs}`.
    Logprobs(RawJson<'a>),
}

/// Citation: source of a passage of text. It has an address (a page of the web) or a location (a document or a search
/// result of the request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Citation<'a> {
    /// Address of a web page; may be empty.
    pub url: JsonStr<'a>,
    /// Title of the source; may be empty.
    pub title: JsonStr<'a>,
    /// Cited passage of the source; may be empty.
    pub quote: JsonStr<'a>,
    /// Name that the client gave a search result of the request, often an address; may be empty.
    pub source: JsonStr<'a>,
    /// Place of the cited passage in the request. `None` for web pages and if the provider reports none.
    pub location: Option<SourceLocation>,
    /// Cited range of the choice's whole text, in characters: start (inclusive) and end (exclusive).
    pub span: Option<(u64, u64)>,
}

/// Source location: the place of a cited passage within the documents or search results of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// Kind of the source, and the unit of the range.
    pub unit: LocationUnit,
    /// Position of the source among those of its kind in the request, from 0.
    pub index: u64,
    /// Start of the range (inclusive): from 0, pages from 1.
    pub start: u64,
    /// End of the range (exclusive).
    pub end: u64,
}

/// Unit of a source location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationUnit {
    /// Characters of a text document.
    Characters,
    /// Pages of a paged document.
    Pages,
    /// Content blocks of a document that consists of blocks.
    DocumentBlocks,
    /// Content blocks of a search result.
    SearchResultBlocks,
}

/// Finish reason of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish<'a> {
    /// The model completed its answer.
    Stop,
    /// The model generated a stop sequence: its text, if the provider reports it.
    StopSequence(Option<JsonStr<'a>>),
    /// The limit of output tokens was reached.
    Length,
    /// The context window of the model is full.
    ContextFull,
    /// The model calls tools.
    ToolUse,
    /// A content filter stopped the output, or the model refused.
    ContentFilter,
    /// The provider paused a long turn; the client may send the turn back to continue it.
    Pause,
    /// Another reason, in the provider's own word, with or without content.
    Other(JsonStr<'a>),
}
