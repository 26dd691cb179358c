//! Presets of servers and hosts of open models: as in [`presets`](super::presets), data only.

use super::presets::{CACHE_KEY, OPENAI_ONLY, USUAL, effort};
use super::profile::KnownModel;
use crate::canonical::quirks::{Quirks, ToolChoiceSupport};
use crate::canonical::{Dialect, Effort};
use crate::wire::Api;

/// Maker of the models that Volcengine Ark serves under its own rules.
const BYTEDANCE: &str = "bytedance";

/// Source: OpenRouter, "Parameters", "Reasoning tokens", "Prompt caching".
pub(super) fn openrouter<'d>(base: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    const HABITS: Quirks = Quirks { renames: &[("reasoning_content", "reasoning")], ..USUAL };
    const EXTENSIONS: &[&str] = &[
        "file_url",
        "images",
        "min_p",
        "modalities",
        "models",
        "plugins",
        "provider",
        "reasoning",
        "repetition_penalty",
        "top_a",
        "top_k",
        "transforms",
        "usage",
        "video_url",
        "cache_control",
    ];
    let marks = known.facts.cache_marks == Some(true);
    let all = EXTENSIONS.len();
    Dialect {
        reasoning: effort(Effort::Minimal, Effort::XHigh, true),
        max_completion_tokens: true,
        reasoning_replay: true,
        // `cache_control` is last: only models of providers with cache marks support it.
        extensions: EXTENSIONS.get(..if marks { all } else { all - 1 }).unwrap_or_default(),
        quirks: const { &HABITS },
        ..base
    }
}

/// Source: Together, "Chat completions", "Reasoning".
pub(super) fn together<'d>(base: Dialect<'d>, known: &KnownModel, api: Api) -> Dialect<'d> {
    const HABITS: Quirks = Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, &["user", "web_search"]], ..USUAL };
    // Hybrid models: reasoning can be switched on and off, without an effort.
    const SWITCHED: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, &["user", "web_search"], &["reasoning_effort"]], ..USUAL };
    let dialect = Dialect {
        extensions: &["min_p", "repetition_penalty", "top_k", "video_url"],
        quirks: const { &HABITS },
        ..base
    };
    if known.form() == "effort" {
        return known.reason(dialect, api);
    }
    Dialect {
        reasoning: effort(Effort::Low, Effort::High, true),
        extensions: &["min_p", "reasoning", "repetition_penalty", "top_k", "video_url"],
        quirks: const { &SWITCHED },
        ..dialect
    }
}

/// Source: Fireworks, "Create chat completion", "Reasoning".
pub(super) fn fireworks(base: Dialect<'_>) -> Dialect<'_> {
    const HABITS: Quirks = Quirks {
        lacks: &[OPENAI_ONLY, CACHE_KEY, &["tool_strict", "web_search"]],
        choices: ToolChoiceSupport { any: Some("any"), ..ToolChoiceSupport::USUAL },
        ..USUAL
    };
    Dialect {
        reasoning: effort(Effort::Low, Effort::High, true),
        reasoning_replay: true,
        extensions: &["min_p", "prompt_truncate_len", "reasoning_history", "repetition_penalty", "top_k"],
        quirks: const { &HABITS },
        ..base
    }
}

/// Source: Volcengine Ark, "Chat API", "Deep thinking".
pub(super) fn ark<'d>(base: Dialect<'d>, known: &KnownModel, api: Api) -> Dialect<'d> {
    const HABITS: Quirks =
        Quirks { lacks: &[OPENAI_ONLY, CACHE_KEY, &["seed", "tool_strict", "user", "web_search"]], ..USUAL };
    let dialect = Dialect {
        reasoning: effort(Effort::Minimal, Effort::High, true),
        reasoning_replay: true,
        extensions: &["thinking", "video_url"],
        quirks: const { &HABITS },
        ..base
    };
    if known.is_of(BYTEDANCE) { known.reason(dialect, api) } else { dialect }
}

/// Source: vLLM, "OpenAI-compatible server", "Reasoning outputs".
pub(super) fn vllm(base: Dialect<'_>) -> Dialect<'_> {
    const HABITS: Quirks = Quirks {
        lacks: &[&["web_search"]],
        renames: &[("reasoning_content", "reasoning")],
        template_switch: true,
        prefill_members: &[("continue_final_message", "true"), ("add_generation_prompt", "false")],
        ..USUAL
    };
    Dialect {
        reasoning: effort(Effort::Low, Effort::High, true),
        max_completion_tokens: true,
        prefill: true,
        reasoning_replay: true,
        extensions: &[
            "add_generation_prompt",
            "audio_url",
            "chat_template_kwargs",
            "continue_final_message",
            "guided_json",
            "ignore_eos",
            "include_reasoning",
            "min_p",
            "repetition_penalty",
            "stop_token_ids",
            "structured_outputs",
            "top_k",
            "video_url",
        ],
        quirks: const { &HABITS },
        ..base
    }
}

/// Source: Ollama, "OpenAI compatibility".
pub(super) fn ollama(base: Dialect<'_>) -> Dialect<'_> {
    const HABITS: Quirks = Quirks {
        lacks: &[
            OPENAI_ONLY,
            CACHE_KEY,
            &["logit_bias", "logprobs", "n", "parallel_tool_calls", "tool_strict", "user", "web_search"],
        ],
        renames: &[("reasoning_content", "reasoning")],
        choices: ToolChoiceSupport::AUTO,
        ..USUAL
    };
    Dialect {
        reasoning: effort(Effort::Low, Effort::High, true),
        reasoning_replay: true,
        media_urls: false,
        quirks: const { &HABITS },
        ..base
    }
}
