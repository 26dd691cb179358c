//! Capability profile of a model, beyond the format that its provider speaks.

use super::breakpoints::BreakpointSupport;
use super::effort_set::EffortSet;
use super::features::RequestFeatures;
use super::member_set::MemberSet;
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
    /// Whether the model reasons in a request that does not set reasoning.
    pub reasons_by_default: bool,
    /// Whether the accepted efforts are known, so that others need not be tried.
    pub knows_efforts: bool,
    /// Value of the output token limit, in tokens, where the format requires one and the client gave none.
    pub max_output: u64,
    /// Highest output token limit that the model takes, in tokens. `None` if it is not known.
    pub most_output: Option<u64>,
    /// Highest output token limit of a response that is not streamed, if it is lower.
    pub most_output_whole: Option<u64>,
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
    /// Whether the model may sign its reasoning. If not, no signature in a conversation is its own.
    pub signs: bool,
    /// Whether signatures of the model's responses get an envelope in the target's own format, too. Otherwise they could not be
    /// told from those of the provider that defined the format. The model itself takes reasoning of any issuer.
    pub own_envelopes: bool,
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
    /// Members that the model refuses, beside those that the provider lacks.
    pub refused: MemberSet,
    /// Whether calls must be sent with the provider's signature. Such models also take files in the results of functions,
    /// functions beside the provider's search, and schemas that bind without a forced call.
    pub signed_calls: bool,
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
    /// Effort name.
    Effort {
        /// Accepted efforts.
        efforts: EffortSet,
        /// Whether `none` (or an equivalent) switches reasoning off.
        off: ReasoningOff,
    },
    /// Adaptive: the model decides how much to reason, and an effort name guides it.
    Adaptive {
        /// Accepted efforts.
        efforts: EffortSet,
        /// Whether reasoning can be switched off.
        off: ReasoningOff,
    },
}

/// Whether the reasoning of a model can be switched off, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningOff {
    /// The model always reasons.
    Never,
    /// It can be off.
    Full,
    /// It can be off beside efforts up to this one; with a higher effort the request is refused.
    UpTo(Effort),
    /// It can be off but between the calls of tools.
    BetweenTools,
}

impl ReasoningOff {
    /// Returns the parameter that switches reasoning off, as far as it can be. `None` if it cannot.
    const fn parameter(self) -> Option<ReasoningParameter> {
        match self {
            ReasoningOff::Never => None,
            ReasoningOff::Full | ReasoningOff::UpTo(_) => Some(ReasoningParameter::Off),
            ReasoningOff::BetweenTools => Some(ReasoningParameter::BetweenTools),
        }
    }

    /// Returns [`Full`](ReasoningOff::Full) if `can`, and [`Never`](ReasoningOff::Never) otherwise.
    pub const fn when(can: bool) -> ReasoningOff {
        if can { ReasoningOff::Full } else { ReasoningOff::Never }
    }

    /// Returns whether reasoning can be off entirely.
    pub const fn is_full(self) -> bool {
        matches!(self, ReasoningOff::Full | ReasoningOff::UpTo(_))
    }
}

/// Supported sampling parameters of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSupport {
    /// All parameters of the format.
    All,
    /// Either `temperature` or `top_p`, not both.
    One,
    /// All parameters of the format while the model does not reason, and none while it does.
    IfOff,
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
    /// Reasoning off but between the calls of tools.
    BetweenTools,
    /// Effort name.
    Effort(Effort),
    /// Budget in tokens.
    Budget(u64),
    /// Adaptive reasoning, with an optional effort name.
    Adaptive(Option<Effort>),
}

impl ReasoningSupport {
    /// Returns an effort from `lowest` to `highest`, which can be off or not.
    pub const fn efforts(lowest: Effort, highest: Effort, off: bool) -> ReasoningSupport {
        ReasoningSupport::Effort { efforts: EffortSet::range(lowest, highest), off: ReasoningOff::when(off) }
    }

    /// Returns adaptive reasoning with an effort from `low` to `highest`, which can be off or not.
    pub const fn adaptive(highest: Effort, off: bool) -> ReasoningSupport {
        let efforts = EffortSet::range(Effort::Low, highest);
        ReasoningSupport::Adaptive { efforts, off: ReasoningOff::when(off) }
    }

    /// Maps the client's reasoning setting to the nearest one that this model supports.
    pub fn reasoning_parameter(self, wish: Thinking) -> ReasoningParameter {
        let effort_wished = match wish {
            Thinking::Unset => return ReasoningParameter::Omitted,
            Thinking::Off => None,
            Thinking::Adaptive => Some(Effort::High),
            Thinking::Effort(effort) => Some(effort),
            Thinking::Budget(0) => None,
            Thinking::Budget(tokens) => Some(Effort::of_budget(tokens)),
        };
        match self {
            ReasoningSupport::Fixed => ReasoningParameter::Omitted,
            ReasoningSupport::Budget { min, max, off } => match (wish, effort_wished) {
                (_, None) if off => ReasoningParameter::Off,
                (_, None) => ReasoningParameter::Budget(min),
                (Thinking::Budget(tokens), _) => ReasoningParameter::Budget(tokens.clamp(min, max)),
                // Adaptive does not become a fixed budget: the model decides.
                (Thinking::Adaptive, _) => ReasoningParameter::Adaptive(None),
                (_, Some(effort)) => ReasoningParameter::Budget(effort.budget().clamp(min, max)),
            },
            ReasoningSupport::Effort { efforts, off } => {
                let effort = |found: Option<Effort>| {
                    found.map_or(ReasoningParameter::Omitted, ReasoningParameter::Effort)
                };
                match (wish, effort_wished) {
                    (_, None) => off.parameter().unwrap_or_else(|| effort(efforts.lowest())),
                    (Thinking::Adaptive, _) => ReasoningParameter::Omitted,
                    (_, Some(wished)) => effort(efforts.nearest(wished)),
                }
            }
            ReasoningSupport::Adaptive { efforts, off } => match (wish, effort_wished) {
                (_, None) => off.parameter().unwrap_or(ReasoningParameter::Adaptive(efforts.lowest())),
                (Thinking::Adaptive, _) => ReasoningParameter::Adaptive(None),
                (_, Some(wished)) => ReasoningParameter::Adaptive(efforts.nearest(wished)),
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
            reasons_by_default: false,
            knows_efforts: false,
            max_output: 8_192,
            most_output: None,
            most_output_whole: None,
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
            signs: true,
            own_envelopes: false,
            media_urls: true,
            image_input: true,
            parallel_tool_calls: true,
            extensions: &[],
            breakpoints: Some(BreakpointSupport::full(0)),
            think_tags: false,
            refuses: RequestFeatures::ENVELOPE,
            refused: MemberSet::EMPTY,
            signed_calls: false,
            quirks: &Quirks::PLAIN,
        }
    }

    /// Returns whether the provider or the model refuses or ignores an element.
    pub fn lacks(&self, element: &str) -> bool {
        self.quirks.lacks(element) || self.refused.has(element)
    }

    /// Returns whether the model reasons in a request with this setting.
    pub fn reasons(&self, thinking: Thinking) -> bool {
        match self.reasoning.reasoning_parameter(thinking) {
            ReasoningParameter::Omitted => self.reasons_by_default,
            ReasoningParameter::Off => false,
            _ => true,
        }
    }

    /// Returns the sampling parameters that a request with this reasoning setting can have: never
    /// [`SamplingSupport::IfOff`].
    pub fn sampling_beside(&self, thinking: Thinking) -> SamplingSupport {
        match self.sampling {
            SamplingSupport::IfOff if self.reasons(thinking) => SamplingSupport::None,
            SamplingSupport::IfOff => SamplingSupport::All,
            sampling => sampling,
        }
    }

    /// Returns the highest output token limit that the model takes in a request. `None` if it is not known.
    pub fn highest_limit(&self, stream: bool) -> Option<u64> {
        let whole = self.most_output_whole.filter(|_| !stream);
        whole.or(self.most_output)
    }

    /// Returns a reasoning budget and the output token limit that includes it, for a limit that covers the text only and is
    /// not larger than the budget: both within the output limit of the model, if it is known.
    pub fn budget_beside(&self, budget: u64, text: u64, least_budget: u64) -> (u64, u64) {
        let sum = budget.saturating_add(text);
        let most = self.most_output.filter(|most| sum > *most && *most > least_budget);
        let Some(most) = most else { return (budget, sum) };
        let text = text.min(most - least_budget);
        ((most - text).max(least_budget), most)
    }

    /// Returns true if an extension member is supported.
    pub fn supports(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| *known == "*" || *known == extension)
    }
}
