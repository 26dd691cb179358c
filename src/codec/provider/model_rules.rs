//! Tests of what single models take: corrections of rules that were wrong once, each with the models beside it.

use super::{BaseUrl, Preset, Provider, ProviderKind, Setup};
use crate::canonical::dialect::{ReasoningOff, ReasoningParameter, ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, Effort, RequestFeatures, Thinking};
use crate::wire::Api;

fn provider(kind: ProviderKind, preset: Option<Preset>) -> Provider {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let mut provider =
        Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![Api::Chat, Api::Responses], base });
    provider.preset = preset.unwrap_or(provider.preset);
    provider
}

/// Returns the words of the accepted efforts, with `none` in front if reasoning can be off by one.
fn efforts(dialect: &Dialect<'_>) -> String {
    let (efforts, off) = match dialect.reasoning {
        ReasoningSupport::Effort { efforts, off } | ReasoningSupport::Adaptive { efforts, off } => {
            (efforts, off)
        }
        ReasoningSupport::Fixed => return "fixed".to_owned(),
        ReasoningSupport::Budget { min, max, off } => return format!("{min}..{max} {off}"),
    };
    let off = match off {
        ReasoningOff::Never => None,
        ReasoningOff::Full => Some("none".to_owned()),
        ReasoningOff::UpTo(effort) => Some(format!("none<={}", effort.name())),
        ReasoningOff::BetweenTools => Some("between".to_owned()),
    };
    let words: Vec<String> =
        off.into_iter().chain(efforts.iter().map(|effort| effort.name().to_owned())).collect();
    words.join(" ")
}

#[test]
fn efforts_of_openai_models_are_those_that_each_one_takes() {
    let openai = provider(ProviderKind::OpenAi, None);
    for (model, responses, chat) in [
        ("gpt-6.2-astra", "low medium high xhigh max", "low medium high xhigh"),
        ("gpt-6.2-sol", "low medium high xhigh max", "low medium high xhigh"),
        ("gpt-6.1-sol-2026-10-01", "low medium high xhigh max", "low medium high xhigh"),
        ("gpt-6-astra", "low medium high xhigh max", "low medium high xhigh"),
        ("gpt-6-sol", "none low medium high xhigh max", "none low medium high xhigh"),
        ("gpt-6-luna", "none low medium high xhigh max", "none low medium high xhigh"),
        ("gpt-6.1-terra", "none low medium high xhigh max", "none low medium high xhigh"),
        ("gpt-5.6-sol", "none low medium high xhigh max", "none low medium high xhigh"),
        ("gpt-5.5", "none low medium high xhigh", "none low medium high xhigh"),
        ("gpt-5.4-mini", "none low medium high xhigh", "none low medium high xhigh"),
        ("gpt-5.5-pro", "medium high xhigh", "medium high xhigh"),
        ("gpt-5.4-pro", "medium high xhigh", "medium high xhigh"),
        ("gpt-5.2-pro-2025-12-11", "medium high xhigh", "medium high xhigh"),
        ("gpt-5.2", "none low medium high xhigh", "none low medium high xhigh"),
        ("gpt-5.1", "none low medium high", "none low medium high"),
        ("gpt-5", "minimal low medium high", "minimal low medium high"),
        ("gpt-5-pro", "high", "high"),
        ("chat-latest", "medium", "medium"),
        ("gpt-5.1-chat-latest", "medium", "medium"),
        ("o3", "low medium high", "low medium high"),
        ("gpt-4.1", "fixed", "fixed"),
        ("chatgpt-4o-latest", "fixed", "fixed"),
    ] {
        assert_eq!(efforts(&openai.dialect(Api::Responses, model)), responses, "{model}");
        assert_eq!(efforts(&openai.dialect(Api::Chat, model)), chat, "{model} in chat");
    }
}

#[test]
fn sampling_is_for_models_that_do_not_reason_at_the_time() {
    let openai = provider(ProviderKind::OpenAi, None);
    for (model, unset, off, on) in [
        ("gpt-5.1", true, true, false),
        ("gpt-5.4", true, true, false),
        ("gpt-5.5", false, true, false),
        ("gpt-5.6-terra", false, true, false),
        ("gpt-6-luna", false, true, false),
        ("gpt-6.2-sol", false, false, false),
        ("gpt-5", false, false, false),
        ("chat-latest", false, false, false),
        ("gpt-4.1", true, true, true),
    ] {
        let dialect = openai.dialect(Api::Responses, model);
        let taken = [Thinking::Unset, Thinking::Off, Thinking::Effort(Effort::Low)]
            .map(|thinking| dialect.sampling_beside(thinking) == SamplingSupport::All);
        assert_eq!(taken, [unset, off, on], "{model}");
    }
}

#[test]
fn reasoning_of_claude_is_off_in_the_form_of_each_model() {
    let claude = provider(ProviderKind::Anthropic, None);
    let all = "low medium high xhigh max";
    for (model, expected, forced) in [
        ("claude-fable-5-2", all.to_owned(), false),
        ("claude-mythos-5-1", all.to_owned(), false),
        ("claude-opus-5-5", all.to_owned(), false),
        ("claude-sonnet-5-5", format!("between {all}"), false),
        ("claude-haiku-5-5", format!("none<=high {all}"), true),
        ("claude-opus-5", format!("none<=high {all}"), true),
        ("claude-sonnet-5", format!("none {all}"), true),
        ("claude-opus-4-8", format!("none {all}"), true),
        ("claude-opus-4-6", "none low medium high max".to_owned(), true),
        ("claude-sonnet-4-6", "none low medium high max".to_owned(), true),
    ] {
        let dialect = claude.dialect(Api::Messages, model);
        assert_eq!((efforts(&dialect), dialect.forced_tools), (expected, forced), "{model}");
        assert_eq!(dialect.max_output, 128_000, "{model}");
    }
    let sonnet = claude.dialect(Api::Messages, "claude-sonnet-5-5");
    assert_eq!(sonnet.reasoning.reasoning_parameter(Thinking::Off), ReasoningParameter::BetweenTools);
    assert!(sonnet.refuses.intersects(RequestFeatures::REASONING_OFF));
    let opus = claude.dialect(Api::Messages, "claude-opus-5");
    assert!(!opus.refuses.intersects(RequestFeatures::REASONING_OFF));
    assert!(opus.refuses.intersects(RequestFeatures::off_beside(Effort::Max)));
    assert!(!opus.refuses.intersects(RequestFeatures::off_beside(Effort::High)));
}

#[test]
fn levels_of_gemini_are_those_that_each_model_takes() {
    let google = provider(ProviderKind::Gemini, None);
    for (model, expected, takes_more) in [
        ("gemini-4-argon", "low medium high", false),
        ("gemini-4-hydrogen", "low medium high xhigh", false),
        ("gemini-3.8-flash", "low medium high", false),
        ("gemini-3.7-flash", "low medium high", false),
        ("gemini-flash-latest", "low medium high", false),
        ("gemini-3.6-flash", "minimal low medium high", false),
        ("gemini-3.5-flash-lite", "minimal low medium high", false),
        ("gemini-3.5-flash", "minimal low medium high", true),
        ("gemini-3.1-pro-preview", "low medium high", true),
        ("gemini-2.5-pro", "128..32768 false", true),
    ] {
        let dialect = google.dialect(Api::Generate, model);
        assert_eq!(efforts(&dialect), expected, "{model}");
        // Prefill, and sampling parameters.
        let taken = (dialect.prefill, dialect.sampling == SamplingSupport::All);
        assert_eq!(taken, (takes_more, takes_more), "{model}");
    }
    let argon = google.dialect(Api::Generate, "gemini-4-argon");
    assert_eq!((argon.highest_limit(false), argon.highest_limit(true)), (Some(32_768), Some(65_536)));
}

#[test]
fn efforts_of_open_models_are_those_that_each_one_takes() {
    for (preset, model, expected) in [
        (Preset::Moonshot, "kimi-k3", "low high max"),
        (Preset::Moonshot, "kimi-k3.1-pro", "low high max"),
        (Preset::DeepSeek, "deepseek-v4-pro", "none low high max"),
        (Preset::DeepSeek, "deepseek-flash", "none low high max"),
        (Preset::Glm, "glm-5.3", "low high max"),
        (Preset::Xai, "grok-4.7", "low medium high xhigh"),
        (Preset::Xai, "grok-4.6", "low medium high xhigh"),
        (Preset::Xai, "grok-4.5", "low medium high"),
        (Preset::Xai, "grok-4.3", "none low medium high"),
        (Preset::Xai, "grok-4.20-0309-reasoning", "fixed"),
        (Preset::Mistral, "mistral-medium-3-5", "none high"),
        (Preset::Mistral, "mistral-small-2603", "none high"),
        (Preset::Mistral, "mistral-large-4", "low medium high"),
        (Preset::Mistral, "mistral-large-2512", "fixed"),
    ] {
        let provider = provider(ProviderKind::OpenAiCompatible, Some(preset));
        assert_eq!(efforts(&provider.dialect(Api::Chat, model)), expected, "{model}");
    }
}

#[test]
fn reasoning_and_sampling_depend_on_the_model() {
    let claude = provider(ProviderKind::Anthropic, None);
    let reasoning = |model| claude.dialect(Api::Messages, model).reasoning;
    assert_eq!(reasoning("claude-3-5-sonnet-20240620"), ReasoningSupport::Fixed);
    assert_eq!(
        reasoning("claude-3-7-sonnet-latest"),
        ReasoningSupport::Budget { min: 1024, max: 128_000, off: true }
    );
    assert_eq!(
        reasoning("claude-sonnet-4-5"),
        ReasoningSupport::Budget { min: 1024, max: 64_000, off: true }
    );
    assert_eq!(
        reasoning("us.anthropic.claude-opus-4-1-20250805-v1:0"),
        ReasoningSupport::Budget { min: 1024, max: 32_000, off: true },
    );
    assert_eq!(reasoning("claude-opus-4-7"), ReasoningSupport::adaptive(Effort::Max, true));
    assert_eq!(reasoning("claude-sonnet-5"), ReasoningSupport::adaptive(Effort::Max, true));

    let google = provider(ProviderKind::Gemini, None);
    let reasoning = |model| google.dialect(Api::Generate, model).reasoning;
    assert_eq!(reasoning("gemini-2.0-flash"), ReasoningSupport::Fixed);
    assert_eq!(reasoning("gemini-2.5-pro"), ReasoningSupport::Budget { min: 128, max: 32_768, off: false });
    assert_eq!(reasoning("gemini-2.5-flash"), ReasoningSupport::Budget { min: 1, max: 24_576, off: true });
    let levels = |least| ReasoningSupport::efforts(least, Effort::High, false);
    assert_eq!(reasoning("gemini-3-pro-preview"), levels(Effort::Low));
    assert_eq!(reasoning("gemini-3-flash"), levels(Effort::Minimal));

    let openai = provider(ProviderKind::OpenAi, None);
    let dialect = |model| openai.dialect(Api::Chat, model);
    assert_eq!(dialect("gpt-4o-mini").reasoning, ReasoningSupport::Fixed);
    assert!(!dialect("gpt-4.1").max_completion_tokens);
    assert!(dialect("o3-mini").max_completion_tokens);
    assert_eq!(dialect("gpt-5.1").reasoning, ReasoningSupport::efforts(Effort::Low, Effort::High, true));
    for (model, sampling) in [
        ("gpt-4o", SamplingSupport::All),
        ("gpt-5", SamplingSupport::None),
        ("gpt-5.2", SamplingSupport::IfOff),
        ("gpt-6", SamplingSupport::None),
        ("codex-mini-latest", SamplingSupport::None),
        ("o4-mini", SamplingSupport::None),
        ("some-model-of-our-own", SamplingSupport::All),
    ] {
        assert_eq!(dialect(model).sampling, sampling, "{model}");
    }
    assert_eq!(dialect("gpt-5").reasoning, ReasoningSupport::efforts(Effort::Minimal, Effort::High, false));
}

#[test]
fn responses_only_models_are_known() {
    let openai = provider(ProviderKind::OpenAi, None);
    for model in [
        "o1-pro",
        "o1-pro-2025-03-19",
        "o3-pro",
        "o3-pro-2025-06-10",
        "gpt-5-pro",
        "gpt-5.2-pro",
        "gpt-5-codex",
        "gpt-5.1-codex-mini",
        "codex-mini-latest",
        "o3-deep-research",
        "o4-mini-deep-research-2025-06-26",
        "computer-use-preview",
    ] {
        assert!(openai.model_rules(model).responses_only, "{model}");
    }
    for model in
        ["o3", "o1", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4.1", "my-pro", "chatgpt-4o-latest"]
    {
        assert!(!openai.model_rules(model).responses_only, "{model}");
    }
    assert!(!provider(ProviderKind::OpenAiCompatible, None).model_rules("o3-pro").responses_only);
}

#[test]
fn images_are_for_models_that_read_them() {
    let server = provider(ProviderKind::OpenAiCompatible, None);
    for (model, reads) in [
        ("deepseek-v4-pro", false),
        ("deepseek-v4-flash", false),
        ("deepseek-flash", true),
        ("deepseek-vl2", true),
        ("zai-org/GLM-4.6", false),
        ("glm-5.3", false),
        ("glm-5.3-flash", true),
        ("glm-4.5v", true),
        ("kimi-k2-0905-preview", false),
        ("kimi-k2.5", true),
        ("openai/gpt-oss-20b", false),
        ("MiniMax-M2.5", false),
        ("MiniMax-M3", true),
        ("qwen3-coder-480b-a35b-instruct", false),
        ("qwen3-vl-235b-a22b-thinking", true),
        ("qwen3.6-plus", true),
        ("codestral-2508", false),
        ("mistral-small-3.2", true),
        ("my-model", true),
    ] {
        assert_eq!(server.dialect(Api::Chat, model).image_input, reads, "{model}");
    }
}

#[test]
fn models_without_conversations_are_known_by_their_names() {
    let server = provider(ProviderKind::OpenAiCompatible, None);
    for model in [
        "text-embedding-3-small",
        "bge-reranker-v2-m3",
        "jina-embeddings-v3",
        "gpt-image-2",
        "dall-e-3",
        "doubao-seedream-4-0-250828",
        "seededit-3-0",
        "sora-2",
        "veo-3.1",
        "wan2.2-t2v-plus",
        "whisper-large-v3",
        "gpt-4o-mini-tts",
        "gpt-4o-transcribe",
        "omni-moderation-latest",
        "gpt-realtime-2.1",
        "qwen-image-edit",
        "mistral-ocr-latest",
        "gemini-nano-banana-2.1",
        "grok-imagine",
    ] {
        assert!(!server.model_rules(model).is_chat, "{model}");
    }
    for model in ["gpt-5", "qwen3-32b", "my-model", "", "gemini-2.5-flash", "claude-opus-5"] {
        assert!(server.model_rules(model).is_chat, "{model}");
    }
}
