//! Presets of providers with OpenAI-compatible chat completions: supported elements and quirks. Data only.
//!
//! One function for each preset, with the page titles of its source; all from the providers' documentation of November
//! 2026. `doc_table` renders the data into docs/providers.md.

use super::open_presets;
use super::preset::Preset;
use super::profile::KnownModel;
use crate::canonical::dialect::{ReasoningSupport, Structured};
use crate::canonical::quirks::{Quirks, ToolChoiceSupport};
use crate::canonical::{Dialect, Effort};
use crate::wire::Api;

/// Request members of OpenAI only, which providers of the same API ignore or reject.
pub(super) const OPENAI_ONLY: &[&str] = &[
    "developer_role",
    "metadata",
    "moderation",
    "prediction",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "verbosity",
];

/// Request member by which OpenAI and some others send the requests of a conversation to the same machines.
pub(super) const CACHE_KEY: &[&str] = &["prompt_cache_key"];

/// Members of a message with reasoning of earlier turns: 422 "extra_forbidden" at Mistral, 400 "property is unsupported" at
/// Groq.
const REPLAY: &[&str] = &["reasoning_content", "reasoning"];

/// Quirks of a typical server of OpenAI-compatible chat completions.
pub(super) const USUAL: Quirks =
    Quirks { choices: ToolChoiceSupport::USUAL, custom_tools: false, ..Quirks::PLAIN };

const EVERYTHING: &[&str] = &["*"];

pub(super) const fn effort(min: Effort, max: Effort, off: bool) -> ReasoningSupport {
    ReasoningSupport::efforts(min, max, off)
}

/// Returns the profile of a preset for a model through `api`. `known` is what is known of the model, or of an unknown one of
/// the provider. `beta` is true for a base URL of preview features.
pub(super) fn dialect<'d>(
    row: Preset,
    base: Dialect<'d>,
    known: &KnownModel,
    api: Api,
    beta: bool,
) -> Dialect<'d> {
    let own = |base| known.apply(base, api, beta);
    match row {
        Preset::DeepSeek => deepseek(own(base), known),
        Preset::Qwen => qwen(own(base), known),
        Preset::Moonshot => moonshot(own(base), known),
        Preset::Glm => glm(own(base), known),
        Preset::Xai => xai(own(base), api),
        Preset::Groq => groq(base, known, api),
        Preset::Mistral => mistral(own(base)),
        Preset::OpenRouter => open_presets::openrouter(base, known),
        Preset::Together => open_presets::together(base, known, api),
        Preset::Fireworks => open_presets::fireworks(base),
        Preset::Ark => open_presets::ark(base, known, api),
        Preset::Vllm => open_presets::vllm(base),
        Preset::Ollama => open_presets::ollama(base),
        Preset::OpenAi | Preset::Azure | Preset::Anthropic | Preset::Gemini | Preset::Compatible => Dialect {
            reasoning: effort(Effort::Low, Effort::High, true),
            reasoning_replay: true,
            extensions: EVERYTHING,
            quirks: const { &USUAL },
            ..base
        },
    }
}

/// Source: DeepSeek API, "Create chat completion", "Thinking mode", "JSON output".
fn deepseek<'d>(own: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    const HABITS: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            CACHE_KEY,
            &["logit_bias", "n", "parallel_tool_calls", "seed", "tool_strict", "user", "web_search"],
        ],
        temperature: Some(("0", "2")),
        // 0 itself is rejected.
        top_p: Some(("0.01", "1")),
        joins_texts: true,
        flat_files: true,
        calls_need_reasoning: true,
        // "Thinking mode does not support this tool_choice"; the mode is on if the member is absent.
        choices: ToolChoiceSupport { while_reasoning: false, ..ToolChoiceSupport::USUAL },
        ..USUAL
    };
    // R1 rejects reasoning text in the conversation.
    const FIRST: Quirks = Quirks { calls_need_reasoning: false, ..HABITS };
    let extensions: &[&str] = match (known.is_fixed(), own.prefill) {
        (true, _) => &[],
        (false, true) => &["thinking", "prefix"],
        (false, false) => &["thinking"],
    };
    let quirks: &'static Quirks = if known.is_fixed() { const { &FIRST } } else { const { &HABITS } };
    Dialect { extensions, quirks, reasoning_replay: !known.is_fixed(), ..own }
}

/// Source: Alibaba Cloud Model Studio, "OpenAI compatible - Chat", "Deep thinking", "Structured output", "Partial
/// mode".
fn qwen<'d>(own: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    const HABITS: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, CACHE_KEY, &["logit_bias", "reasoning_effort", "tool_strict", "user"]],
        choices: ToolChoiceSupport { any: None, while_reasoning: false, ..ToolChoiceSupport::USUAL },
        // A temperature of 2 and a `top_p` of 0 are rejected.
        temperature: Some(("0", "1.99")),
        top_p: Some(("0.01", "1")),
        ..USUAL
    };
    const STREAMS: Quirks = Quirks { streams_only: true, ..HABITS };
    const QUIET: Quirks = Quirks { quiet_whole: true, ..HABITS };
    const EXTENSIONS: &[&str] = &[
        "asr_options",
        "cache_control",
        "enable_search",
        "enable_thinking",
        "incremental_output",
        "modalities",
        "partial",
        "preserve_thinking",
        "repetition_penalty",
        "search_options",
        "thinking_budget",
        "top_k",
        "translation_options",
        "video_url",
        "vl_high_resolution_images",
    ];
    let facts = &known.facts;
    let habits: &'static Quirks = match () {
        () if facts.streams_only == Some(true) => const { &STREAMS },
        () if facts.reasons_in_streams == Some(true) => const { &QUIET },
        () => const { &HABITS },
    };
    // `required` is refused, and a tool by name is not: the quirk has both.
    Dialect { forced_tools: true, reasoning_replay: true, extensions: EXTENSIONS, quirks: habits, ..own }
}

/// Source: Moonshot platform, "Chat API", "Partial mode", "Thinking models".
fn moonshot<'d>(own: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    const LACKS: &[&str] = &["logit_bias", "logprobs", "parallel_tool_calls", "seed", "user", "web_search"];
    const OLD: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, LACKS],
        choices: ToolChoiceSupport { any: None, ..ToolChoiceSupport::USUAL },
        temperature: Some(("0", "1")),
        joins_texts: true,
        ..USUAL
    };
    // "tool_choice 'specified' is incompatible with thinking enabled", and
    // "thinking is enabled but reasoning_content is missing in assistant tool call message", from K2.5 on.
    const SWITCHED: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, LACKS, &["reasoning_effort"]],
        choices: ToolChoiceSupport { while_reasoning: false, ..OLD.choices },
        calls_need_reasoning: true,
        ..OLD
    };
    const NEW: Quirks = Quirks { choices: ToolChoiceSupport::USUAL, calls_need_reasoning: true, ..OLD };
    let (extensions, quirks): (&[&str], &'static Quirks) = match () {
        () if known.is_fixed() => (&["partial"], const { &OLD }),
        () if known.is_switched() => (&["partial", "thinking", "video_url"], const { &SWITCHED }),
        () => (&["partial", "video_url"], const { &NEW }),
    };
    Dialect { reasoning_replay: true, extensions, quirks, ..own }
}

/// Source: Z.ai, "Chat completion", "Thinking mode", "Tool streaming output".
fn glm<'d>(own: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    const LACKS: &[&str] = &[
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "seed",
        "tool_strict",
    ];
    const ALWAYS: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, CACHE_KEY, LACKS],
        renames: &[("user", "user_id")],
        tool_stream: Some("tool_stream"),
        search_tool: Some(r#"{"type":"web_search","web_search":{"enable":true}}"#),
        choices: ToolChoiceSupport::AUTO,
        // 0 and 1 themselves are rejected.
        temperature: Some(("0.01", "0.99")),
        top_p: Some(("0.01", "1")),
        ..USUAL
    };
    // Without reasoning, or with a switch only, an effort is not sent.
    const SWITCHED: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, LACKS, &["reasoning_effort"]], ..ALWAYS };
    let by_effort = !known.is_fixed() && !known.is_switched();
    Dialect {
        reasoning_replay: true,
        extensions: &["cache_control", "do_sample", "file_url", "request_id", "thinking", "video_url"],
        quirks: if by_effort { const { &ALWAYS } } else { const { &SWITCHED } },
        ..own
    }
}

/// Source: xAI, "Chat completions", "Reasoning".
fn xai(own: Dialect<'_>, api: Api) -> Dialect<'_> {
    const HABITS: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, &["logit_bias", "web_search"]], ..USUAL };
    // A chat request has the key of its prompt cache in a header of xAI's own.
    const RESPONSES: Quirks = Quirks { lacks: &[OPENAI_ONLY, &["logit_bias", "web_search"]], ..USUAL };
    Dialect {
        max_completion_tokens: true,
        quirks: if api == Api::Responses { const { &RESPONSES } } else { const { &HABITS } },
        ..own
    }
}

/// Source: Groq, "API reference", "Reasoning", "Structured outputs".
fn groq<'d>(base: Dialect<'d>, known: &KnownModel, api: Api) -> Dialect<'d> {
    const HABITS: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            CACHE_KEY,
            REPLAY,
            &["logit_bias", "logprobs", "n", "name", "user", "web_search"],
        ],
        ..USUAL
    };
    // Without `reasoning_format`, reasoning arrives in tags within the text.
    const PARSED: Quirks =
        Quirks { adds: &[("reasoning_format", "\"parsed\"")], efforts: Some(["default"; 6]), ..HABITS };
    let dialect = Dialect {
        max_completion_tokens: true,
        structured: Structured::Json,
        quirks: const { &HABITS },
        ..base
    };
    match known.form() {
        "effort" => Dialect {
            structured: Structured::Native,
            extensions: &["include_reasoning"],
            ..known.reason(dialect, api)
        },
        "parsed" => Dialect {
            reasoning: effort(Effort::Low, Effort::High, true),
            extensions: &["reasoning_format"],
            quirks: const { &PARSED },
            ..dialect
        },
        "schema" => Dialect { structured: Structured::Native, ..dialect },
        _ => dialect,
    }
}

/// Source: Mistral, "Chat completion", "Function calling", "Prefix".
fn mistral(own: Dialect<'_>) -> Dialect<'_> {
    const HABITS: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            REPLAY,
            &["logit_bias", "logprobs", "name", "stream_options", "tool_strict", "user", "web_search"],
        ],
        renames: &[("seed", "random_seed")],
        choices: ToolChoiceSupport { any: Some("any"), named: false, ..ToolChoiceSupport::USUAL },
        nine_letter_ids: true,
        // "Unexpected role 'user' after role 'tool'", code 3230.
        bridges_results: true,
        repeats_prefill: true,
        // "Expected last role User or Tool (or Assistant with prefix True)", code 3230.
        needs_prefill_mark: true,
        ..USUAL
    };
    Dialect {
        system_in_middle: false,
        extensions: &["prefix", "safe_prompt", "tool_name"],
        quirks: const { &HABITS },
        ..own
    }
}
