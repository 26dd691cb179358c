//! What a client asks for.

use super::content::Turn;
use super::tools::{Tool, ToolChoice};
use crate::json::{JsonStr, RawJson};

/// A request, borrowed from the body that it was read from. What is not said is nothing, never a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// The answer is to be a stream.
    pub stream: bool,
    /// The stream is to say what was used, in formats where that must be asked for.
    pub usage_wanted: bool,
    /// The conversation. Instructions stand where the client put them; formats with a field of their own for them
    /// put it first.
    pub turns: Vec<Turn<'a>>,
    /// Tools.
    pub tools: Vec<Tool<'a>>,
    /// Whether they may or must be called.
    pub tool_choice: Option<ToolChoice<'a>>,
    /// Whether several may be called in one turn.
    pub parallel_tools: Option<bool>,
    /// The web may be searched by the provider.
    pub search: Option<Search<'a>>,
    /// What the answer must look like.
    pub output: OutputFormat<'a>,
    /// Output tokens at most, reasoning included.
    pub max_output: Option<u64>,
    /// Sequences that end the answer.
    pub stop: Vec<JsonStr<'a>>,
    /// How tokens are chosen.
    pub sampling: Sampling<'a>,
    /// Whether and how much to reason.
    pub thinking: Thinking,
    /// Whether the client wants to see the reasoning; nothing where the format does not say.
    pub show_thinking: Option<bool>,
    /// How many answers.
    pub choices: Option<u64>,
    /// Log probabilities: how many alternatives of each token; `Some(0)` for the chosen token alone.
    pub logprobs: Option<u64>,
    /// How long the answer should be (`low`, `medium`, `high`).
    pub verbosity: Option<JsonStr<'a>>,
    /// An id of the end user.
    pub user: Option<JsonStr<'a>>,
    /// The client's own notes: an object of strings.
    pub metadata: Option<RawJson<'a>>,
    /// How urgent, in the client's word.
    pub service_tier: Option<JsonStr<'a>>,
    /// What requests with the same prompt have in common, for the provider's cache.
    pub cache_key: Option<JsonStr<'a>>,
    /// Whether the answer is kept to be continued.
    pub store: Option<bool>,
    /// The answer that this request continues.
    pub previous: Option<JsonStr<'a>>,
    /// What may come out besides text (`IMAGE`, `AUDIO`, in the client's words); empty when not said.
    pub modalities: Vec<JsonStr<'a>>,
    /// Members that have no place above, with their names and in their order: provider extensions, and what only the
    /// client's own format has. The encoder carries what its format has too, and accounts for the rest.
    pub extra: Vec<Extra<'a>>,
}

/// A member that has no place in the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra<'a> {
    /// Its path in the client's request (`logit_bias`, `generationConfig.mediaResolution`).
    pub name: &'a str,
    /// Its value.
    pub value: RawJson<'a>,
}

/// How tokens are chosen. Numbers stay as they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling<'a> {
    /// 0 to 2.
    pub temperature: Option<RawJson<'a>>,
    /// 0 to 1.
    pub top_p: Option<RawJson<'a>>,
    /// A count.
    pub top_k: Option<RawJson<'a>>,
    /// -2 to 2.
    pub presence_penalty: Option<RawJson<'a>>,
    /// -2 to 2.
    pub frequency_penalty: Option<RawJson<'a>>,
    /// A whole number.
    pub seed: Option<RawJson<'a>>,
}

/// What the answer must look like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OutputFormat<'a> {
    /// Anything.
    #[default]
    Text,
    /// Any JSON.
    Json,
    /// JSON of this schema.
    Schema {
        /// The schema's name; may be empty.
        name: JsonStr<'a>,
        /// What it is for; may be empty.
        description: JsonStr<'a>,
        /// The schema.
        schema: RawJson<'a>,
        /// It is in the dialect of OpenAPI 3.0.
        openapi: bool,
        /// Whether the provider is to hold the model to it.
        strict: Option<bool>,
    },
    /// One word of the schema's `enum`, bare.
    Choice {
        /// The schema.
        schema: RawJson<'a>,
    },
}

/// Whether and how much to reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Not said: the model's own default.
    #[default]
    Unsaid,
    /// Not at all, or as little as the model can.
    Off,
    /// As the model sees fit.
    Adaptive,
    /// This hard.
    Effort(Effort),
    /// With at most so many tokens.
    Budget(u64),
}

/// How hard to reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// Barely.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// Hard.
    High,
    /// Harder.
    XHigh,
    /// As hard as it can.
    Max,
}

impl Effort {
    /// All, from the least.
    pub const ALL: [Effort; 6] =
        [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

    /// The word that the formats share.
    pub const fn name(self) -> &'static str {
        match self {
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::XHigh => "xhigh",
            Effort::Max => "max",
        }
    }

    /// The effort of this name, in letters of any case.
    pub fn from_name(name: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.name().eq_ignore_ascii_case(name))
    }

    /// A budget that stands for this effort (tokens).
    pub const fn budget(self) -> u64 {
        match self {
            Effort::Minimal => 1_024,
            Effort::Low => 2_048,
            Effort::Medium => 8_192,
            Effort::High => 16_384,
            Effort::XHigh => 24_576,
            Effort::Max => 32_768,
        }
    }

    /// The effort that a budget stands for (tokens).
    pub const fn of_budget(tokens: u64) -> Effort {
        match tokens {
            0..1_024 => Effort::Minimal,
            1_024..4_096 => Effort::Low,
            4_096..12_288 => Effort::Medium,
            12_288..20_480 => Effort::High,
            20_480..28_672 => Effort::XHigh,
            _ => Effort::Max,
        }
    }
}

/// A search of the web by the provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search<'a> {
    /// How much of what is found is read (`low`, `medium`, `high`); empty when not said.
    pub context: JsonStr<'a>,
    /// Searches at most.
    pub max_uses: Option<u64>,
    /// Only these domains: an array of strings.
    pub allowed_domains: Option<RawJson<'a>>,
    /// Never these: an array of strings.
    pub blocked_domains: Option<RawJson<'a>>,
    /// Where the user is: an object with `country`, `region`, `city`, `timezone`, flat.
    pub location: Option<RawJson<'a>>,
    /// The prompt is cached up to this tool.
    pub cache: Option<super::CacheMark>,
}
