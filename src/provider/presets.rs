//! Presets of providers with OpenAI-compatible chat completions: supported elements and quirks. Data only.
//!
//! One function for each preset, with the page titles of its source; all from the providers' documentation of November
//! 2026. `doc_table` renders the data into docs/providers.md.

use super::dialect::version_after;
use super::open_presets;
use super::preset::Preset;
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::quirks::{Quirks, ToolChoiceSupport};
use crate::canonical::{Dialect, Effort, EffortSet};
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

fn of_efforts(efforts: &[Effort], off: bool) -> ReasoningSupport {
    let efforts = EffortSet::of(efforts.iter().copied());
    ReasoningSupport::Effort { efforts, off: ReasoningOff::when(off) }
}

/// Returns the profile of a preset for a model through `api`. `beta` is true for a base URL of preview features.
pub(super) fn dialect<'d>(row: Preset, base: Dialect<'d>, model: &str, api: Api, beta: bool) -> Dialect<'d> {
    let name = model.to_ascii_lowercase();
    match row {
        Preset::DeepSeek => deepseek(base, &name, beta),
        Preset::Qwen => qwen(base, &name),
        Preset::Moonshot => moonshot(base, &name),
        Preset::Glm => glm(base, &name),
        Preset::Xai => xai(base, &name, api),
        Preset::Groq => groq(base, &name),
        Preset::Mistral => mistral(base, &name),
        Preset::OpenRouter => open_presets::openrouter(base, &name),
        Preset::Together => open_presets::together(base, &name),
        Preset::Fireworks => open_presets::fireworks(base),
        Preset::Ark => open_presets::ark(base),
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
fn deepseek<'d>(base: Dialect<'d>, model: &str, beta: bool) -> Dialect<'d> {
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
    const FIRST: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            CACHE_KEY,
            &["logit_bias", "n", "parallel_tool_calls", "seed", "tool_strict", "user", "web_search"],
            &["logprobs"],
        ],
        calls_need_reasoning: false,
        ..HABITS
    };
    let (prefill, extensions): (bool, &[&str]) =
        if beta { (true, &["thinking", "prefix"]) } else { (false, &["thinking"]) };
    let dialect = Dialect { structured: Structured::Json, prefill, extensions, ..base };
    if model.contains("-r1") {
        return Dialect { extensions: &[], quirks: const { &FIRST }, ..dialect };
    }
    Dialect {
        reasoning: of_efforts(&[Effort::Low, Effort::High, Effort::Max], true),
        reasons_by_default: true,
        knows_efforts: true,
        reasoning_replay: true,
        quirks: const { &HABITS },
        ..dialect
    }
}

/// Source: Alibaba Cloud Model Studio, "OpenAI compatible - Chat", "Deep thinking", "Structured output", "Partial
/// mode".
fn qwen<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
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
    let streams = ["qwq", "qvq", "omni"].iter().any(|word| model.contains(word));
    // Open-weight models have their size in the name. Those without a variant word can reason or not; outside of
    // streams they require reasoning to be switched off explicitly.
    let sized = model.split(['-', ':']).any(|part| {
        part.strip_suffix('b').is_some_and(|size| size.trim_start_matches('a').parse::<f32>().is_ok())
    });
    let version = version_after(model, "qwen").unwrap_or((0, 0));
    let decided = ["instruct", "thinking", "coder", "vl", "omni"].iter().any(|word| model.contains(word));
    let habits = match () {
        () if streams => const { &STREAMS },
        () if sized && version.0 >= 3 && !decided => const { &QUIET },
        () => const { &HABITS },
    };
    Dialect {
        reasoning: ReasoningSupport::Budget { min: 1, max: 81_920, off: true },
        structured: if version >= (3, 5) { Structured::Native } else { Structured::Json },
        prefill: true,
        reasoning_replay: true,
        extensions: EXTENSIONS,
        quirks: habits,
        ..base
    }
}

/// Source: Moonshot platform, "Chat API", "Partial mode", "Thinking models".
fn moonshot<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    const LACKS: &[&str] = &["logit_bias", "logprobs", "parallel_tool_calls", "seed", "user", "web_search"];
    const OLD: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, LACKS],
        choices: ToolChoiceSupport { any: None, ..ToolChoiceSupport::USUAL },
        temperature: Some(("0", "1")),
        joins_texts: true,
        ..USUAL
    };
    // "thinking is enabled but reasoning_content is missing in assistant tool call message", from K2.5 on.
    const SWITCHED: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, LACKS, &["reasoning_effort"]], calls_need_reasoning: true, ..OLD };
    const NEW: Quirks = Quirks { choices: ToolChoiceSupport::USUAL, calls_need_reasoning: true, ..OLD };
    let version = version_after(model, "kimi-k").unwrap_or((0, 0));
    let dialect = Dialect {
        structured: if version >= (2, 0) { Structured::Native } else { Structured::Json },
        prefill: true,
        reasoning_replay: true,
        extensions: &["partial"],
        quirks: const { &OLD },
        ..base
    };
    match version {
        (0..=1, _) | (2, 0..=4) => dialect,
        (2, _) => Dialect {
            reasoning: effort(Effort::Low, Effort::High, true),
            reasons_by_default: true,
            sampling: SamplingSupport::None,
            extensions: &["partial", "thinking", "video_url"],
            quirks: const { &SWITCHED },
            ..dialect
        },
        _ => Dialect {
            // Thinking cannot be off, and there are three efforts (Moonshot, "Chat API", October 2026).
            reasoning: of_efforts(&[Effort::Low, Effort::High, Effort::Max], false),
            reasons_by_default: true,
            knows_efforts: true,
            sampling: SamplingSupport::None,
            extensions: &["partial", "video_url"],
            quirks: const { &NEW },
            ..dialect
        },
    }
}

/// Source: Z.ai, "Chat completion", "Thinking mode", "Tool streaming output".
fn glm<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
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
    const SWITCHED: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, LACKS, &["reasoning_effort"]], ..ALWAYS };
    let dialect = Dialect {
        structured: Structured::Json,
        reasoning_replay: true,
        extensions: &["cache_control", "do_sample", "file_url", "request_id", "thinking", "video_url"],
        quirks: const { &SWITCHED },
        ..base
    };
    match version_after(model, "glm-").unwrap_or((5, 3)) {
        (0..=3, _) | (4, 0..=4) => dialect,
        (4, _) | (5, 0..=2) => Dialect { reasoning: effort(Effort::Low, Effort::High, true), ..dialect },
        _ => Dialect {
            reasoning: of_efforts(&[Effort::Low, Effort::High, Effort::Max], false),
            knows_efforts: true,
            quirks: const { &ALWAYS },
            ..dialect
        },
    }
}

/// Source: xAI, "Chat completions", "Reasoning".
fn xai<'d>(base: Dialect<'d>, model: &str, api: Api) -> Dialect<'d> {
    const HABITS: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, &["logit_bias", "web_search"]], ..USUAL };
    const FOURTH: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            CACHE_KEY,
            &["logit_bias", "web_search"],
            &["frequency_penalty", "presence_penalty", "stop"],
        ],
        ..HABITS
    };
    // A chat request has the key of its prompt cache in a header of xAI's own.
    const RESPONSES: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            &["logit_bias", "web_search"],
            &["frequency_penalty", "presence_penalty", "stop"],
        ],
        ..HABITS
    };
    let version = version_after(model, "grok-");
    let newer = version.is_none_or(|version| version.0 >= 4);
    Dialect {
        reasoning: match version {
            _ if model.contains("mini") => of_efforts(&[Effort::Low, Effort::High], false),
            // Source: xAI, "Reasoning", and refusals that users report, November 2026.
            Some((4, 3)) => effort(Effort::Low, Effort::High, true),
            Some((4, 5)) => effort(Effort::Low, Effort::High, false),
            Some((4, 6..=19) | (5.., _)) => effort(Effort::Low, Effort::XHigh, false),
            _ => ReasoningSupport::Fixed,
        },
        knows_efforts: true,
        max_completion_tokens: true,
        quirks: match api {
            Api::Responses => const { &RESPONSES },
            _ if newer => const { &FOURTH },
            _ => const { &HABITS },
        },
        ..base
    }
}

/// Source: Groq, "API reference", "Reasoning", "Structured outputs".
fn groq<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
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
    match () {
        () if model.contains("gpt-oss") => Dialect {
            reasoning: effort(Effort::Low, Effort::High, false),
            structured: Structured::Native,
            extensions: &["include_reasoning"],
            ..dialect
        },
        () if model.contains("qwen") => Dialect {
            reasoning: effort(Effort::Low, Effort::High, true),
            extensions: &["reasoning_format"],
            quirks: const { &PARSED },
            ..dialect
        },
        () if ["kimi", "llama-4"].iter().any(|word| model.contains(word)) => {
            Dialect { structured: Structured::Native, ..dialect }
        }
        () => dialect,
    }
}

/// Source: Mistral, "Chat completion", "Function calling", "Prefix".
fn mistral<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
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
        ..USUAL
    };
    // Medium 3.5 and Small 4 reason if they are asked to: effort `none` or `high`. Large 4 has three efforts (Mistral,
    // "Reasoning").
    let medium = [
        "mistral-medium-3-5",
        "mistral-medium-3.5",
        "mistral-medium-2604",
        "mistral-medium-latest",
        "mistral-small-2603",
        "mistral-small-latest",
    ];
    let dialect = Dialect {
        prefill: true,
        system_in_middle: false,
        extensions: &["prefix", "safe_prompt", "tool_name"],
        quirks: const { &HABITS },
        ..base
    };
    match () {
        () if medium.iter().any(|name| model.starts_with(name)) => {
            Dialect { reasoning: effort(Effort::High, Effort::High, true), knows_efforts: true, ..dialect }
        }
        () if model.starts_with("mistral-large-4") => {
            Dialect { reasoning: effort(Effort::Low, Effort::High, false), knows_efforts: true, ..dialect }
        }
        () => dialect,
    }
}
