//! Canonical request of a client.

use super::breakpoints::BreakpointRule;
use super::content::Turn;
use super::source::ClientText;
use super::tools::{Tool, ToolChoice};
use json::{JsonStr, RawJson};

/// Request, borrowed from the body that it was read from. An absent setting is `None` or empty, never a default value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// Whether the response is a stream.
    pub stream: bool,
    /// Whether the stream reports usage, in formats where the client must ask for it.
    pub usage_wanted: bool,
    /// Conversation. Instructions are at the position where the client put them; formats that have a separate field for
    /// instructions put them first.
    pub turns: Vec<Turn<'a>>,
    /// Tool definitions.
    pub tools: Vec<Tool<'a>>,
    /// Tool choice.
    pub tool_choice: Option<ToolChoice<'a>>,
    /// Whether the model may call several tools in one turn.
    pub parallel_tools: Option<bool>,
    /// Web search that the provider runs.
    pub search: Option<Search<'a>>,
    /// Required form of the response text.
    pub output: OutputFormat<'a>,
    /// Maximum number of output tokens, reasoning included.
    pub max_output: Option<u64>,
    /// Stop sequences.
    pub stop: Vec<JsonStr<'a>>,
    /// Sampling parameters.
    pub sampling: Sampling<'a>,
    /// Reasoning setting.
    pub thinking: Thinking,
    /// Whether the response includes the reasoning text; `None` if the format has no such setting or the client did not
    /// set it.
    pub show_thinking: Option<bool>,
    /// Number of choices (`n`, `candidateCount`).
    pub choices: Option<u64>,
    /// Log probabilities: number of alternatives per token; `Some(0)` for the chosen token alone.
    pub logprobs: Option<u64>,
    /// Length of the response text (`low`, `medium`, `high`).
    pub verbosity: Option<JsonStr<'a>>,
    /// Id of the end user.
    pub user: Option<JsonStr<'a>>,
    /// Metadata of the client: an object of strings.
    pub metadata: Option<RawJson<'a>>,
    /// Service tier, as the client wrote it.
    pub service_tier: Option<JsonStr<'a>>,
    /// Prompt-cache key: shared by requests with the same prompt prefix.
    pub cache_key: Option<JsonStr<'a>>,
    /// Rule for automatic prompt-cache breakpoints. `None` if the encoder must not set any. The gateway sets it; it is
    /// not part of the client's request.
    pub breakpoints: Option<BreakpointRule>,
    /// Whether the response is stored, so that a later request can continue it.
    pub store: Option<bool>,
    /// Id of the response that this request continues.
    pub previous: Option<JsonStr<'a>>,
    /// Output modalities (`IMAGE`, `AUDIO`, as the client wrote them); empty if the client gave none.
    pub modalities: Vec<JsonStr<'a>>,
    /// Members without a field above, in the order of the request: provider extensions and members that only the
    /// client's own format has. An encoder writes those that its format has too, and reports the rest as losses.
    pub extra: Vec<Extra<'a>>,
    /// The client's text, for an encoder of the same format. `None` if the formats differ.
    pub source: Option<Box<ClientText<'a>>>,
}

/// Request member without a field in the canonical model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra<'a> {
    /// Path in the client's request (`logit_bias`, `generationConfig.mediaResolution`).
    pub name: &'a str,
    /// JSON value.
    pub value: RawJson<'a>,
}

/// Sampling parameters. Numbers stay as the client wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling<'a> {
    /// Temperature, 0 to 2.
    pub temperature: Option<RawJson<'a>>,
    /// Nucleus sampling threshold, 0 to 1.
    pub top_p: Option<RawJson<'a>>,
    /// Number of candidate tokens.
    pub top_k: Option<RawJson<'a>>,
    /// Presence penalty, -2 to 2.
    pub presence_penalty: Option<RawJson<'a>>,
    /// Frequency penalty, -2 to 2.
    pub frequency_penalty: Option<RawJson<'a>>,
    /// Random seed, an integer.
    pub seed: Option<RawJson<'a>>,
}

/// Required form of the response text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OutputFormat<'a> {
    /// Free text.
    #[default]
    Text,
    /// Any JSON value.
    Json,
    /// JSON that conforms to a schema.
    Schema {
        /// Name of the schema; may be empty.
        name: JsonStr<'a>,
        /// Description of the schema; may be empty.
        description: JsonStr<'a>,
        /// JSON schema; a string whose text is the schema, in a request that was decoded from a format that carries it
        /// so and is not adapted yet.
        schema: RawJson<'a>,
        /// Whether the schema is in the dialect of OpenAPI 3.0.
        openapi: bool,
        /// Whether the provider must constrain the output to the schema.
        strict: Option<bool>,
    },
    /// One value of the schema's `enum`, as plain text.
    Choice {
        /// JSON schema with the `enum`.
        schema: RawJson<'a>,
    },
}

/// Reasoning setting of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Not set: the model's own default.
    #[default]
    Unset,
    /// No reasoning, or as little as the model allows.
    Off,
    /// The model decides how much to reason.
    Adaptive,
    /// Reasoning effort.
    Effort(Effort),
    /// Maximum number of reasoning tokens.
    Budget(u64),
}

/// Whether a request sets a reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortSetting {
    /// It sets none: the model's default applies.
    Unset,
    /// It switches reasoning off.
    Off,
    /// It sets an effort.
    On,
}

impl EffortSetting {
    /// All three.
    pub const ALL: [EffortSetting; 3] = [EffortSetting::Unset, EffortSetting::Off, EffortSetting::On];
}

/// Reasoning effort, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// Lowest effort.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// Above high.
    XHigh,
    /// Highest effort.
    Max,
}

impl Effort {
    /// All efforts, in ascending order.
    pub const ALL: [Effort; 6] =
        [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

    /// Returns the name that the formats share.
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

    /// Parses the name of an effort, ignoring case. Returns `None` for another word.
    pub fn from_name(name: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.name().eq_ignore_ascii_case(name))
    }

    /// Returns the reasoning budget that stands for this effort, in tokens.
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

    /// Returns the effort that a reasoning budget (in tokens) stands for.
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

/// Web search settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search<'a> {
    /// Amount of search results in the context (`low`, `medium`, `high`); empty if the client gave none.
    pub context: JsonStr<'a>,
    /// Maximum number of searches.
    pub max_uses: Option<u64>,
    /// Allowed domains: an array of strings.
    pub allowed_domains: Option<RawJson<'a>>,
    /// Blocked domains: an array of strings.
    pub blocked_domains: Option<RawJson<'a>>,
    /// User location: a flat object with `country`, `region`, `city`, `timezone`.
    pub location: Option<RawJson<'a>>,
    /// Prompt-cache breakpoint behind this tool.
    pub cache: Option<super::CacheBreakpoint>,
}
