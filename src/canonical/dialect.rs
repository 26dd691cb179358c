//! Capability profile of a model, beyond the format that its provider speaks.

use super::breakpoints::BreakpointSupport;
use super::features::RequestFeatures;
use super::quirks::Quirks;
use super::request::{Effort, Thinking};

/// Capability profile of one model at one provider: what its format can say there.
#[derive(Clone, Debug)]
pub struct Dialect<'d> {
    /// Model name at the provider, which the encoder writes where its format names the model.
    pub model: &'d str,
    /// Issuer of provider signatures at this target: see [`ProviderSignature`](super::ProviderSignature).
    pub issuer: &'d str,
    /// Supported reasoning settings.
    pub reasoning: ReasoningSupport,
    /// Value of the output token limit, in tokens, where the format requires one and the client gave none.
    pub max_output: u64,
    /// Supported sampling parameters (`temperature`, `top_p` and the like). Some reasoning models refuse them.
    pub sampling: SamplingSupport,
    /// How structured output is requested.
    pub structured: Structured,
    /// Whether schemas of tools and responses may be plain JSON schema. If false, they are reduced to OpenAPI 3.0.
    pub json_schema: bool,
    /// Whether tool-call ids may be sent (one provider's cloud refuses them).
    pub call_ids: bool,
    /// Whether the role of instructions is `developer` instead of `system`.
    pub developer_role: bool,
    /// Whether the output token limit has its newer name, where the format has two.
    pub max_completion_tokens: bool,
    /// Whether instructions are allowed in the middle of a conversation, where the format itself allows it.
    pub system_in_middle: bool,
    /// Whether instructions in the middle must follow a turn of the user, and precede one of the model or end the
    /// conversation, each in one turn.
    pub system_follows_user: bool,
    /// Whether a tool call can be required at all.
    pub forced_tools: bool,
    /// Whether an effort can be set beside a reasoning budget, in formats that have both.
    pub effort_beside_budget: bool,
    /// Maximum length of the id of a tool call, in bytes. `None` if no limit is known.
    pub max_call_id: Option<usize>,
    /// Whether a conversation may end with a prefill.
    pub prefill: bool,
    /// Whether reasoning text of earlier turns is sent back, in formats where that is an extension.
    pub reasoning_replay: bool,
    /// Whether media may be given by URL, in formats where not every model can fetch it.
    pub media_urls: bool,
    /// Whether the model reads images.
    pub image_input: bool,
    /// Whether the model can call several tools in one turn.
    pub parallel_tool_calls: bool,
    /// Extension members of other providers (`top_k`, `enable_thinking` ...) that this one supports; `*` for all.
    pub extensions: &'static [&'static str],
    /// Cache breakpoints that requests may have, in formats where not every model takes them. `None` if the provider
    /// refuses requests with breakpoints for the model.
    pub breakpoints: Option<BreakpointSupport>,
    /// Whether the text of a response may start with reasoning between `<think>` and `</think>`.
    pub think_tags: bool,
    /// Features that the model refuses in requests of the format. A request of that format with one of them is encoded
    /// again, as if the client spoke another format.
    pub refuses: RequestFeatures,
    /// Deviations of the provider from the format.
    pub quirks: &'static Quirks,
}

/// Supported reasoning settings of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningSupport {
    /// Reasoning cannot be configured.
    Fixed,
    /// Token budget within a range.
    Budget {
        /// Minimum, in tokens.
        min: u64,
        /// Maximum, in tokens.
        max: u64,
        /// Whether a budget of 0 switches reasoning off.
        off: bool,
    },
    /// Effort name within a range.
    Effort {
        /// Lowest effort.
        min: Effort,
        /// Highest effort.
        max: Effort,
        /// Whether `none` (or an equivalent) switches reasoning off.
        off: bool,
    },
    /// Adaptive: the model decides how much to reason, and an effort name guides it.
    Adaptive {
        /// Highest effort.
        max: Effort,
        /// Whether reasoning can be switched off.
        off: bool,
    },
}

/// Supported sampling parameters of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSupport {
    /// All parameters of the format.
    All,
    /// Either `temperature` or `top_p`, not both.
    One,
    /// No sampling parameters.
    None,
}

/// Way to request structured output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structured {
    /// Native parameter of the format.
    Native,
    /// Native parameter of the format, unless the request also has tools.
    NativeWithoutTools,
    /// Native JSON mode without a schema; the schema is added to the instructions.
    Json,
    /// Forced tool call whose arguments are the response.
    Tool,
    /// Not supported; the schema is added to the instructions.
    Hint,
}

/// Reasoning parameter to send to a model, within what the model supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningParameter {
    /// No parameter.
    Omitted,
    /// Reasoning off.
    Off,
    /// Effort name.
    Effort(Effort),
    /// Budget in tokens.
    Budget(u64),
    /// Adaptive reasoning, with an optional effort name.
    Adaptive(Option<Effort>),
}

impl ReasoningSupport {
    /// Maps the client's reasoning setting to the nearest one that this model supports.
    pub fn reasoning_parameter(self, wish: Thinking) -> ReasoningParameter {
        let effort = match wish {
            Thinking::Unset => return ReasoningParameter::Omitted,
            Thinking::Off => None,
            Thinking::Adaptive => Some(Effort::High),
            Thinking::Effort(effort) => Some(effort),
            Thinking::Budget(0) => None,
            Thinking::Budget(tokens) => Some(Effort::of_budget(tokens)),
        };
        match self {
            ReasoningSupport::Fixed => ReasoningParameter::Omitted,
            ReasoningSupport::Budget { min, max, off } => match (wish, effort) {
                (_, None) if off => ReasoningParameter::Off,
                (_, None) => ReasoningParameter::Budget(min),
                (Thinking::Budget(tokens), _) => ReasoningParameter::Budget(tokens.clamp(min, max)),
                // Adaptive does not become a fixed budget: the model decides.
                (Thinking::Adaptive, _) => ReasoningParameter::Adaptive(None),
                (_, Some(effort)) => ReasoningParameter::Budget(effort.budget().clamp(min, max)),
            },
            ReasoningSupport::Effort { min, max, off } => match (wish, effort) {
                (_, None) if off => ReasoningParameter::Off,
                (_, None) => ReasoningParameter::Effort(min),
                (Thinking::Adaptive, _) => ReasoningParameter::Omitted,
                (_, Some(effort)) => ReasoningParameter::Effort(effort.clamp(min, max)),
            },
            ReasoningSupport::Adaptive { max, off } => match (wish, effort) {
                (_, None) if off => ReasoningParameter::Off,
                (_, None) => ReasoningParameter::Adaptive(Some(Effort::Low)),
                (Thinking::Adaptive, _) => ReasoningParameter::Adaptive(None),
                (_, Some(effort)) => ReasoningParameter::Adaptive(Some(effort.clamp(Effort::Low, max))),
            },
        }
    }
}

impl<'d> Dialect<'d> {
    /// Returns the profile of a model with the whole format, without extensions and deviations: its reasoning cannot be
    /// configured, and it continues no prefill.
    pub const fn plain(model: &'d str, issuer: &'d str) -> Self {
        Dialect {
            model,
            issuer,
            reasoning: ReasoningSupport::Fixed,
            max_output: 8_192,
            sampling: SamplingSupport::All,
            structured: Structured::Native,
            json_schema: true,
            call_ids: true,
            developer_role: false,
            max_completion_tokens: false,
            system_in_middle: true,
            system_follows_user: false,
            forced_tools: true,
            effort_beside_budget: true,
            max_call_id: None,
            prefill: false,
            reasoning_replay: false,
            media_urls: true,
            image_input: true,
            parallel_tool_calls: true,
            extensions: &[],
            breakpoints: Some(BreakpointSupport::full(0)),
            think_tags: false,
            refuses: RequestFeatures::ENVELOPE,
            quirks: &Quirks::PLAIN,
        }
    }

    /// Returns true if an extension member is supported.
    pub fn supports(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| *known == "*" || *known == extension)
    }
}
