//! The events of an answer, in the strictest grammar of all formats: blocks are opened and closed, their indexes are
//! dense, and everything that belongs to a block lies between its start and its stop.

use super::Usage;
use crate::json::{JsonStr, RawJson};

/// One step of an answer. Borrows the frame that it was read from and lives for one callback.
///
/// The order: `Start`; then any number of blocks, `Usage` and `Ping`; then one `Finish` for each choice, after all
/// blocks of that choice were stopped; `Usage` may still follow; then `End`. Several blocks may be open at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The answer begins.
    Start(Start<'a>),
    /// A block begins. Indexes count from 0 over the whole answer, in the order of the starts.
    BlockStart {
        /// The block's index.
        index: u32,
        /// Which of several answers to the same request it belongs to (`n`, `candidateCount`); 0 for the only one.
        choice: u32,
        /// What the block is.
        kind: BlockKind<'a>,
    },
    /// Something is added to an open block.
    Delta {
        /// The block's index.
        index: u32,
        /// What is added.
        delta: Delta<'a>,
    },
    /// A block is complete.
    BlockStop {
        /// The block's index.
        index: u32,
    },
    /// What the answer has used so far. Cumulative: see [`Usage::update`].
    Usage(Usage),
    /// Why a choice ended.
    Finish {
        /// The choice.
        choice: u32,
        /// The reason.
        finish: Finish<'a>,
    },
    /// The provider says that it is still there.
    Ping,
    /// The provider reports an error in its stream: the error as it wrote it. Nothing follows.
    Error(RawJson<'a>),
    /// The answer is complete. Nothing follows.
    End,
}

/// What is known of an answer when it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start<'a> {
    /// The provider's id of the answer; empty when it gave none.
    pub id: JsonStr<'a>,
    /// The model that the provider says has answered; empty when it did not say.
    pub model: JsonStr<'a>,
    /// When the provider says that it began (Unix seconds).
    pub created: Option<u64>,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind<'a> {
    /// Text for the reader.
    Text,
    /// The model's words for why it will not answer.
    Refusal,
    /// Reasoning that may be shown. It may have a [`Delta::Seal`].
    Reasoning,
    /// Reasoning that may not be shown, but must come back to the provider: all of it is in its seal.
    HiddenReasoning,
    /// A tool is called.
    ToolUse {
        /// The call's id; never empty.
        id: JsonStr<'a>,
        /// The tool's name.
        name: JsonStr<'a>,
        /// What kind of tool.
        kind: ToolKind,
        /// The group that the tool stands in; usually empty.
        namespace: JsonStr<'a>,
    },
    /// An image, a sound or another file that the model made.
    Media {
        /// Its media type (`image/png`).
        mime: JsonStr<'a>,
    },
    /// Something that only the format it came in has a word for: a tool that the provider ran, say.
    Opaque {
        /// Its type, in that format's word.
        name: JsonStr<'a>,
        /// All that was said of it at the start.
        raw: RawJson<'a>,
    },
}

/// What kind of tool is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    /// With arguments: one JSON object.
    #[default]
    Function,
    /// With input: free text.
    Custom,
}

/// What is added to a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delta<'a> {
    /// Text of a `Text`, `Refusal` or `Reasoning` block.
    Text(JsonStr<'a>),
    /// A part of a call's input, as the inside of a JSON string: of a function the text of its arguments, of a custom
    /// tool its input. All parts joined are the input; no part at all means `{}`.
    Arguments(JsonStr<'a>),
    /// A call's whole arguments, as an object. Comes alone.
    Object(RawJson<'a>),
    /// A part of a media block's bytes, base64.
    Data(JsonStr<'a>),
    /// Where a media block can be fetched. Comes alone.
    Url(JsonStr<'a>),
    /// What the provider wants to see again with this block, unchanged: a signature, or encrypted reasoning. Once.
    Seal(JsonStr<'a>),
    /// Where a text is from.
    Citation(Citation<'a>),
    /// Log probabilities of the tokens of this delta: an array of `{token, logprob, bytes, top_logprobs}`.
    Logprobs(RawJson<'a>),
}

/// Where a text is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Citation<'a> {
    /// The source's address.
    pub url: JsonStr<'a>,
    /// The source's title; may be empty.
    pub title: JsonStr<'a>,
    /// What the source says; may be empty.
    pub quote: JsonStr<'a>,
    /// The characters of the choice's whole text that are cited: first, and behind the last.
    pub span: Option<(u64, u64)>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish<'a> {
    /// It is complete.
    Stop,
    /// A stop sequence was met: which, if the provider said.
    StopSequence(Option<JsonStr<'a>>),
    /// The limit of output tokens is reached.
    Length,
    /// The model's context is full.
    ContextFull,
    /// Tools are called.
    ToolUse,
    /// A filter, or the model itself, refused.
    ContentFilter,
    /// The provider paused a long turn; the client may send it back to go on.
    Pause,
    /// The provider gave up for a reason of its own (in its word), with or without content.
    Other(JsonStr<'a>),
}
