//! Features of requests that models refuse in their own format: what decides whether a client's bytes pass unchanged.
//!
//! Most follow from the capability profile. What an API refuses for all of its models is a row of a table here, with its
//! source.

use super::dialect::ANTHROPIC;
use super::profile::KnownModel;
use super::{Preset, Provider};
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, Effort, RequestFeatures as Features};
use crate::catalogue::How;
use crate::wire::Api;

/// Claude, wherever it is served: 400 "Invalid `signature` in `thinking` block", "String should match pattern
/// '^[a-zA-Z0-9_-]+$'", "should have at most 64 characters", "input_schema does not support oneOf, allOf, or anyOf at the
/// top level", "Thinking may not be enabled when tool_choice forces tool use" (Anthropic API, November 2026).
const CLAUDE: Features = Features::UNSIGNED
    .with(Features::ODD_ID)
    .with(Features::OVERLONG_ID)
    .with(Features::ROOT_UNION)
    .with(Features::FORCED_WITH_BUDGET);
/// Converse: member `toolUseId` of 1 to 64 of `[a-zA-Z0-9_.:-]` (Amazon Bedrock API reference, "ToolUseBlock", November
/// 2026); reasoning without signature is refused by the models that sign it.
const CONVERSE: Features = Features::UNSIGNED.with(Features::STRANGE_ID).with(Features::OVERLONG_ID);
/// OpenAI: 400 "Invalid schema for function: schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf' at the top
/// level" (OpenAI API, "Function calling", November 2026).
const OPENAI: Features = Features::ROOT_UNION;
/// OpenAI, chat completions: 400 "Unrecognized request argument supplied: thinking", also for a null (OpenAI API, November 2026).
const OPENAI_CHAT: Features = OPENAI.with(Features::LONG_ID).with(Features::ADDED_MEMBER);

/// Providers of chat completions that take no members of messages but OpenAI's and their own name of reasoning: 400
/// "Additional properties are not allowed ('...' was unexpected) - 'messages.1'" (OpenAI's models at Azure), 422 "extra_forbidden" (Mistral), 400 "property ... is unsupported" (Groq),
/// "Extra inputs are not permitted" (Fireworks); the others ignore them, and what another provider has signed is none of their
/// business (the providers' pages "Create chat completion", November 2026).
const OWN_MEMBERS_ONLY: [Preset; 12] = [
    Preset::OpenAi,
    Preset::Azure,
    Preset::Mistral,
    Preset::Groq,
    Preset::Fireworks,
    Preset::DeepSeek,
    Preset::Moonshot,
    Preset::Glm,
    Preset::Qwen,
    Preset::Ark,
    Preset::Vllm,
    Preset::Ollama,
];

/// Returns whether a provider of chat completions takes no members of messages that others have added.
pub(super) fn refuses_message_members(preset: Preset, api: Api) -> bool {
    api == Api::Chat && OWN_MEMBERS_ONLY.contains(&preset)
}

/// Every provider: 400 "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected `tool_use_id`
/// found in `tool_result` blocks" (Claude), "An assistant message with 'tool_calls' must be followed by tool messages", "No tool
/// output found for function call" (OpenAI), "function response parts ... equal to the number of function call parts" (Google).
const UNMATCHED: Features = Features::UNMATCHED_CALL;

/// Returns what a model refuses in requests of the API's format.
pub(super) fn refused(provider: &Provider, api: Api, dialect: &Dialect<'_>, known: &KnownModel) -> Features {
    let is_openai = matches!(provider.preset, Preset::OpenAi | Preset::Azure);
    let of_api = match api {
        Api::Messages if known.is_of(ANTHROPIC) => CLAUDE.with(of_claude(dialect)),
        // The schemas of tools are checked by Claude's API behind it.
        Api::Converse => CONVERSE
            .with(of_converse(dialect, known))
            .with(Features::SIGNED.when(!dialect.signs))
            .with(Features::ROOT_UNION.when(known.is_of(ANTHROPIC))),
        Api::Chat if is_openai => OPENAI_CHAT.with(of_openai(dialect)),
        Api::Responses if is_openai => OPENAI.with(Features::OVERLONG_ID).with(of_openai(dialect)),
        Api::Generate => of_gemini(dialect, known),
        // 422 "extra_forbidden" (Mistral API), 400 "property ... is unsupported" (Groq API), "Extra inputs are not permitted"
        // (Fireworks API), November 2026.
        Api::Chat if matches!(provider.preset, Preset::Mistral | Preset::Groq | Preset::Fireworks) => {
            Features::ADDED_MEMBER
        }
        // What Claude signed, before the gateway put envelopes around what others sign.
        Api::Messages if dialect.own_envelopes => Features::SIGNED.when(known.facts.maker.is_some()),
        Api::Chat | Api::Messages | Api::Responses => Features::NONE,
        _ => return Features::NONE,
    };
    let efforts = match api {
        Api::Messages | Api::Generate => of_efforts(dialect),
        Api::Chat | Api::Responses if is_openai => of_efforts(dialect).with(of_fixed(dialect, known)),
        _ => Features::NONE,
    };
    let envelope = if dialect.own_envelopes { Features::SEALED } else { Features::ENVELOPE };
    envelope
        .with(of_api)
        .with(efforts)
        .with(UNMATCHED)
        .with(Features::MESSAGE_MEMBER.when(refuses_message_members(provider.preset, api)))
        .with(Features::IMAGE.when(!dialect.image_input))
        .with(Features::OUTPUT_LIMIT.when(dialect.most_output.is_some()))
}

fn of_converse(dialect: &Dialect<'_>, known: &KnownModel) -> Features {
    Features::FORCED_TOOL
        .when(!dialect.forced_tools)
        .with(Features::PREFILL.when(!dialect.prefill))
        .with(Features::SAMPLING.when(dialect.sampling == SamplingSupport::None))
        .with(Features::CACHE_MARK.when(dialect.breakpoints.is_none()))
        .with(Features::BARE_REASONING.when(known.is_of(ANTHROPIC)))
}

/// A model of OpenAI that does not reason refuses the member: "Unsupported parameter" (OpenAI API, November 2026).
fn of_fixed(dialect: &Dialect<'_>, known: &KnownModel) -> Features {
    let is_fixed = dialect.reasoning == ReasoningSupport::Fixed && known.how == Some(How::Listed);
    Features::EFFORTS.with(Features::NO_EFFORT).when(is_fixed)
}

fn of_claude(dialect: &Dialect<'_>) -> Features {
    let reasoning = match dialect.reasoning {
        ReasoningSupport::Fixed => Features::ADAPTIVE.with(Features::BUDGET),
        ReasoningSupport::Budget { .. } | ReasoningSupport::Effort { .. } => Features::ADAPTIVE,
        // Models of 4.6 still take a budget, and have sampling parameters.
        ReasoningSupport::Adaptive { off, .. } => {
            let beside = match off {
                ReasoningOff::UpTo(highest) => {
                    let higher = Effort::ALL.into_iter().filter(|effort| *effort > highest);
                    higher.map(Features::off_beside).fold(Features::NONE, Features::with)
                }
                _ => Features::NONE,
            };
            Features::BUDGET
                .when(dialect.sampling == SamplingSupport::None)
                .with(Features::REASONING_OFF.when(!off.is_full()))
                .with(beside)
        }
    };
    let sampling = match dialect.sampling {
        SamplingSupport::All => Features::NONE,
        SamplingSupport::One => Features::BOTH_SAMPLING,
        SamplingSupport::None | SamplingSupport::IfOff => Features::SAMPLING,
    };
    let system = match (dialect.system_in_middle, dialect.system_follows_user) {
        (true, false) => Features::NONE,
        (true, true) => Features::MISPLACED_SYSTEM,
        (false, _) => Features::LATER_SYSTEM,
    };
    reasoning
        .with(Features::BARE_CALL)
        .with(sampling)
        .with(system)
        .with(Features::EFFORT.when(!dialect.effort_beside_budget))
        .with(Features::FORCED_TOOL.when(!dialect.forced_tools))
        .with(Features::PREFILL.when(!dialect.prefill))
}

/// Models that always reason take no sampling parameters. Those whose reasoning can be off take them while it is off,
/// which is their default.
fn of_openai(dialect: &Dialect<'_>) -> Features {
    match dialect.sampling {
        SamplingSupport::All | SamplingSupport::One => Features::NONE,
        SamplingSupport::None => Features::SAMPLING,
        SamplingSupport::IfOff => {
            Features::SAMPLING_BESIDE_EFFORT.with(Features::SAMPLING_ALONE.when(dialect.reasons_by_default))
        }
    }
}

/// Returns the efforts that a model refuses, if it is known which ones it takes.
fn of_efforts(dialect: &Dialect<'_>) -> Features {
    let (efforts, off) = match dialect.reasoning {
        ReasoningSupport::Effort { efforts, off } => (efforts, off.is_full()),
        // `none` is no effort of Claude: reasoning is off by another member.
        ReasoningSupport::Adaptive { efforts, .. } => (efforts, true),
        ReasoningSupport::Fixed | ReasoningSupport::Budget { .. } => return Features::NONE,
    };
    let refused = Effort::ALL.into_iter().filter(|effort| !efforts.has(*effort)).map(Features::effort);
    let refused = refused.fold(Features::NO_EFFORT.when(!off), Features::with);
    refused.when(dialect.knows_efforts && !efforts.is_empty())
}

/// Generation 2.5 has budgets only (Gemini API, "Thinking", November 2026); later models take both, but those of generation 4.
/// Models that do not reason refuse the settings. Models that sign calls refuse one without a signature.
fn of_gemini(dialect: &Dialect<'_>, known: &KnownModel) -> Features {
    let is_fixed = dialect.reasoning == ReasoningSupport::Fixed && known.how == Some(How::Listed);
    Features::EFFORT
        .when(is_fixed || matches!(dialect.reasoning, ReasoningSupport::Budget { .. }))
        .with(Features::BUDGET.when(is_fixed || known.facts.takes_budget == Some(false)))
        .with(Features::UNSIGNED.when(dialect.signed_calls))
        .with(Features::SAMPLING.when(dialect.sampling == SamplingSupport::None))
        .with(Features::PREFILL.when(!dialect.prefill))
}
