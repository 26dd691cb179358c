//! What a model can be asked for, beyond the format that its provider speaks.

use super::quirks::Quirks;
use super::request::{Effort, Thinking};

/// Capability profile of one model at one provider: what its format can say there.
#[derive(Clone, Debug)]
pub struct Dialect<'d> {
    /// The model's name at the provider, which the encoder writes where its format names the model.
    pub model: &'d str,
    /// Who will issue and take back seals: see [`Seal`](super::Seal).
    pub issuer: &'d str,
    /// How the model is told to reason.
    pub reasoning: Reasoning,
    /// Output tokens to ask for where the format wants a figure and the client gave none.
    pub max_output: u64,
    /// Whether the model takes `temperature`, `top_p` and the like at all. Some reasoning models refuse them.
    pub sampling: Sampling,
    /// Whether a schema can be asked of the answer.
    pub structured: Structured,
    /// Whether schemas of tools and answers may be plain JSON schema, or must be cut down to OpenAPI 3.0.
    pub json_schema: bool,
    /// Whether ids of calls may be sent (one provider's cloud refuses them).
    pub call_ids: bool,
    /// Whether instructions are called `developer` rather than `system`.
    pub developer_role: bool,
    /// Whether the limit of output tokens is called by its newer name, where the format has two.
    pub max_completion_tokens: bool,
    /// Whether instructions may stand in the middle of a conversation, where the format itself allows it.
    pub system_in_middle: bool,
    /// Whether a conversation may end with the beginning of the answer.
    pub prefill: bool,
    /// Whether reasoning text of earlier turns is sent back, in formats where that is an extension.
    pub reasoning_replay: bool,
    /// Whether media may be given by address, in formats where not every model can fetch it.
    pub media_urls: bool,
    /// Extension members of other providers (`top_k`, `enable_thinking` ...) that this one understands; `*` for all.
    pub extensions: &'static [&'static str],
    /// Whether answers may begin with reasoning between `<think>` and `</think>` in the text itself.
    pub think_tags: bool,
    /// How the provider deviates from the format.
    pub habits: &'static Quirks,
}

/// How a model is told to reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// It cannot be told.
    Fixed,
    /// With a budget of tokens in this range; `off` says whether it can be switched off.
    Budget {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// Whether 0 is taken.
        off: bool,
    },
    /// With a word in this range; `off` says whether it can be switched off.
    Effort {
        /// The least.
        min: Effort,
        /// The most.
        max: Effort,
        /// Whether `none` (or the like) is taken.
        off: bool,
    },
    /// It reasons as it sees fit, guided by a word in this range.
    Adaptive {
        /// The most.
        max: Effort,
        /// Whether it can be switched off.
        off: bool,
    },
}

/// Which sampling a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// All that its format has.
    All,
    /// Temperature or `top_p`, not both.
    One,
    /// None.
    None,
}

/// How an answer is held to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structured {
    /// The format's own way.
    Native,
    /// The format's own way, unless tools are offered as well.
    NativeWithoutTools,
    /// Any JSON in the format's own way; a schema is a word in the instructions beside it.
    Json,
    /// By a tool that the model must call, whose arguments are the answer.
    Tool,
    /// Not at all; a word in the instructions is all that can be done.
    Hint,
}

/// What a model is to be told about reasoning, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMarks {
    /// Nothing.
    Nothing,
    /// Not to reason, in the way of a model that can be told so.
    Off,
    /// A word.
    Effort(Effort),
    /// A budget (tokens), within what the model takes.
    Budget(u64),
    /// To reason as it sees fit, with a word to guide it, or none.
    Adaptive(Option<Effort>),
}

impl Reasoning {
    /// What a wish means for this model: the nearest that it can be told.
    pub fn tell(self, wish: Thinking) -> CacheMarks {
        let effort = match wish {
            Thinking::Unsaid => return CacheMarks::Nothing,
            Thinking::Off => None,
            Thinking::Adaptive => Some(Effort::High),
            Thinking::Effort(effort) => Some(effort),
            Thinking::Budget(0) => None,
            Thinking::Budget(tokens) => Some(Effort::of_budget(tokens)),
        };
        match self {
            Reasoning::Fixed => CacheMarks::Nothing,
            Reasoning::Budget { min, max, off } => match (wish, effort) {
                (_, None) if off => CacheMarks::Off,
                (_, None) => CacheMarks::Budget(min),
                (Thinking::Budget(tokens), _) => CacheMarks::Budget(tokens.clamp(min, max)),
                // Left to the model, where it can be.
                (Thinking::Adaptive, _) => CacheMarks::Adaptive(None),
                (_, Some(effort)) => CacheMarks::Budget(effort.budget().clamp(min, max)),
            },
            Reasoning::Effort { min, max, off } => match (wish, effort) {
                (_, None) if off => CacheMarks::Off,
                (_, None) => CacheMarks::Effort(min),
                (Thinking::Adaptive, _) => CacheMarks::Nothing,
                (_, Some(effort)) => CacheMarks::Effort(effort.clamp(min, max)),
            },
            Reasoning::Adaptive { max, off } => match (wish, effort) {
                (_, None) if off => CacheMarks::Off,
                (_, None) => CacheMarks::Adaptive(Some(Effort::Low)),
                (Thinking::Adaptive, _) => CacheMarks::Adaptive(None),
                (_, Some(effort)) => CacheMarks::Adaptive(Some(effort.clamp(Effort::Low, max))),
            },
        }
    }
}

impl Dialect<'_> {
    /// Whether an extension is understood.
    pub fn understands(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| *known == "*" || *known == extension)
    }
}
