//! Capability profiles of models, by the provider's preset and the model family.
//!
//! Source: the providers' documentation of November 2026, with the page titles beside each function. An unknown model
//! gets the profile of a recent model of its provider.

use super::bedrock::{INVOKE_CLAUDE, ToolBetas};
use super::presets;
use super::{Preset, Provider, ProviderKind};
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::request::EffortSetting;
use crate::canonical::{Dialect, Effort, EffortSet, Quirks};
use crate::wire::Api;

/// Default output token limit for models with an unknown limit, where the format requires a value: the limit of the
/// oldest models that are still served.
const MAX_OUTPUT: u64 = 8_192;

impl Provider {
    /// Returns the capability profile of `model` for requests through `api`.
    pub fn dialect<'d>(&'d self, api: Api, model: &'d str) -> Dialect<'d> {
        let dialect = self.usual_dialect(api, model);
        let prefill = self.prefill.unwrap_or(dialect.prefill);
        let dialect = Dialect { prefill, ..dialect };
        Dialect { refuses: super::refusals::refused(self, api, &dialect), ..dialect }
    }

    /// Returns the profile without the provider's configured overrides.
    fn usual_dialect<'d>(&'d self, api: Api, model: &'d str) -> Dialect<'d> {
        // Cloud providers add parts to model names: `us.anthropic.claude-...`, `models/gemini-...`.
        let plain = model.rsplit('/').next().unwrap_or(model);
        let plain_dialect = Dialect::plain(model, &self.issuer);
        let image_input = !is_text_only(plain);
        let base =
            Dialect { max_output: MAX_OUTPUT, think_tags: self.think_tags, image_input, ..plain_dialect };
        match api {
            Api::Messages | Api::CountTokens => Dialect {
                quirks: match self.kind {
                    ProviderKind::VertexAnthropic => const { &VERTEX_CLAUDE },
                    ProviderKind::Bedrock => const { &INVOKE_CLAUDE },
                    _ => base.quirks,
                },
                // Bedrock fetches no media.
                media_urls: base.media_urls && self.kind != ProviderKind::Bedrock,
                ..messages(base, plain)
            },
            Api::Generate => {
                // Vertex AI rejects tool-call ids.
                Dialect { call_ids: self.kind != ProviderKind::Vertex, ..generate(base, plain) }
            }
            Api::Converse => super::bedrock::dialect(base, plain),
            _ if matches!(self.preset, Preset::OpenAi | Preset::Azure) => openai(base, plain, api),
            _ => presets::dialect(self.preset, base, plain, api, self.base.prefix().ends_with("/beta")),
        }
    }

    /// Returns whether even a request in the provider's own format may have to be rewritten, because the provider does
    /// not support all of that format.
    pub fn needs_adaptation(&self) -> bool {
        !matches!(
            self.preset,
            Preset::OpenAi | Preset::Azure | Preset::Anthropic | Preset::Gemini | Preset::Compatible
        )
    }

    /// Returns whether the model is available through the responses API only (OpenAI API, "Models").
    pub fn serves_responses_only(&self, model: &str) -> bool {
        matches!(self.preset, Preset::OpenAi | Preset::Azure) && is_responses_only(model)
    }

    /// Returns whether function tools of a request need the responses API: 400 "Function tools with reasoning_effort are not
    /// supported in /v1/chat/completions" (OpenAI API, November 2026; GPT-5.4 reasons only if it is asked to).
    pub fn needs_responses_for_tools(&self, model: &str, effort: EffortSetting) -> bool {
        let plain = model.rsplit('/').next().unwrap_or(model);
        let version = version_after(plain, "gpt-").unwrap_or_default();
        matches!(self.preset, Preset::OpenAi | Preset::Azure)
            && self.apis.contains(&Api::Responses)
            && match effort {
                EffortSetting::Unset => version >= (5, 5),
                EffortSetting::Off => false,
                EffortSetting::On => version >= (5, 4),
            }
    }

    /// Returns whether requests for a model through `api` can have what OpenAI introduced with GPT-5: `verbosity`, and
    /// custom tools, whose input is free text (OpenAI API, "Using GPT-5", "Function calling").
    pub fn has_gpt5_parameters(&self, api: Api, model: &str) -> bool {
        let plain = model.rsplit('/').next().unwrap_or(model);
        matches!(api, Api::Chat | Api::Responses)
            && matches!(self.preset, Preset::OpenAi | Preset::Azure)
            && version_after(plain, "gpt-").is_some_and(|version| version >= (5, 0))
    }

    /// Returns whether chat streams can request usage.
    pub fn takes_stream_options(&self) -> bool {
        !self.dialect(Api::Chat, "").quirks.lacks("stream_options")
    }

    /// Returns the member, with its value, that replaces the model name in the body. `None` if the body names the
    /// model.
    pub fn model_replacement(&self, api: Api) -> Option<(&'static str, &'static str)> {
        match (self.kind, api) {
            (ProviderKind::VertexAnthropic, _) => VERTEX_CLAUDE.model_replacement,
            (ProviderKind::Bedrock, Api::Messages) => INVOKE_CLAUDE.model_replacement,
            _ => None,
        }
    }

    /// Returns whether requests of the messages format go to Bedrock's InvokeModel, where the path selects a stream, beta
    /// features are a member of the body, and a stream arrives as an event stream.
    pub fn invokes(&self, api: Api) -> bool {
        self.kind == ProviderKind::Bedrock && api == Api::Messages
    }

    /// Returns a profile for a request with these beta features, which decide which members of tools InvokeModel takes.
    pub fn with_betas<'d>(&self, dialect: Dialect<'d>, api: Api, betas: ToolBetas) -> Dialect<'d> {
        if self.invokes(api) { Dialect { quirks: betas.quirks(), ..dialect } } else { dialect }
    }

    /// Returns whether requests through an API can have a guardrail of Amazon Bedrock.
    pub fn takes_guardrail(&self, api: Api) -> bool {
        self.invokes(api) || self.kind == ProviderKind::Bedrock && api == Api::Converse
    }
}

/// The model is in the path, and the API version in the body. Source: Vertex AI, "Claude models".
const VERTEX_CLAUDE: Quirks =
    Quirks { model_replacement: Some(("anthropic_version", "vertex-2023-10-16")), ..Quirks::PLAIN };

/// Returns whether a model reads text only. The names are those of open-weight families, which many providers serve; a
/// model that is not listed counts as one that reads images. Source: the model cards of their makers, November 2026.
fn is_text_only(model: &str) -> bool {
    let name = model.to_ascii_lowercase();
    let sees = ["vl", "vision", "ocr", "omni"].iter().any(|word| name.contains(word));
    let families = ["deepseek", "gpt-oss", "qwq", "qwen3-coder", "qwen3-next", "codestral", "devstral"];
    // Models of GLM that read images have a `v` behind the version; Kimi reads them from K2.5 on.
    let glm = name.starts_with("glm-") && !name.contains('v');
    let kimi = version_after(&name, "kimi-k").is_some_and(|version| version < (2, 5));
    !sees && (glm || kimi || families.iter().any(|family| name.starts_with(family)))
}

/// Returns whether an OpenAI model is not available through chat completions: the pro reasoning models, the Codex
/// models, the deep research models and the computer-use model.
fn is_responses_only(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    // Match whole parts of the name: a date suffix belongs to the same model, another word makes another model.
    let pro = ["o1-pro", "o3-pro", "computer-use-preview"].iter().any(|name| model.starts_with(name));
    let newer = version_after(model, "gpt-").is_some_and(|version| version >= (5, 0));
    let named = |word: &str| model.split('-').any(|part| part == word);
    pro || (newer && (named("pro") || named("codex")))
        || model.starts_with("codex-")
        || model.contains("-deep-research")
}

/// Returns the version after `word` in a model name as major and minor: `claude-opus-4-5-20251101` has (4, 5) after
/// `opus-`. Parts of more than two digits are dates. Returns `None` if no version follows.
pub(super) fn version_after(name: &str, word: &str) -> Option<(u32, u32)> {
    let rest = name.split_once(word)?.1;
    let mut parts = rest.split(['-', '.', '@', ':']);
    let major = parts.next().filter(|part| part.len() <= 2)?.parse().ok()?;
    let minor = parts.next().filter(|part| part.len() <= 2).and_then(|part| part.parse().ok()).unwrap_or(0);
    Some((major, minor))
}

/// Returns the profile of a Claude model. Source: Anthropic, "Models overview", "Extended thinking", "Adaptive
/// thinking", "Structured outputs".
pub(super) fn messages<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let budget = ReasoningSupport::Budget { min: 1_024, max: 128_000, off: true };
    let Some(at) = model.find("claude") else {
        // A model other than Claude in the messages format: the subset that such servers implement.
        return Dialect { reasoning: budget, max_output: 8_192, system_in_middle: false, ..base };
    };
    let model = model.get(at..).unwrap_or_default();
    let families = ["opus-", "sonnet-", "haiku-", "fable-", "mythos-"];
    let named = families.into_iter().find_map(|family| Some((family, version_after(model, family)?)));
    let old = version_after(model, "claude-").unwrap_or((0, 0));
    let (family, version) = named.unwrap_or(("", old));
    // Source: Anthropic, "Mid-conversation system messages" (Opus 4.8 and later), "Effort", "Tool choice" and "What's new"
    // of the models, November 2026. A name without a version is that of a recent model.
    let is_unnamed = version == (0, 0);
    let is_haiku = family == "haiku-";
    let base = Dialect {
        system_in_middle: base.system_in_middle && (is_unnamed || version >= (4, 8)),
        system_follows_user: true,
        forced_tools: is_unnamed || version <= (5, 0) || is_haiku,
        effort_beside_budget: version >= (4, 6) || is_unnamed || (family, version) == ("opus-", (4, 5)),
        max_call_id: Some(64),
        ..base
    };
    // Also the default for unknown and future models.
    let newest = Dialect {
        reasoning: ReasoningSupport::adaptive(Effort::Max, true),
        reasons_by_default: is_unnamed || version >= (5, 0),
        knows_efforts: true,
        max_output: 128_000,
        most_output: (!is_unnamed).then_some(128_000),
        sampling: SamplingSupport::None,
        ..base.clone()
    };
    let adaptive =
        |off| ReasoningSupport::Adaptive { efforts: EffortSet::range(Effort::Low, Effort::Max), off };
    match (family, version) {
        ("", (0..=2, _)) if old != (0, 0) => {
            Dialect { max_output: 4_096, structured: Structured::Tool, prefill: true, ..base }
        }
        (_, (3, 0..=5)) => Dialect {
            max_output: if version.1 == 5 { 8_192 } else { 4_096 },
            structured: Structured::Tool,
            prefill: true,
            ..base
        },
        (_, (3, _)) => Dialect {
            reasoning: budget,
            max_output: 64_000,
            most_output: Some(64_000),
            structured: Structured::Tool,
            prefill: true,
            ..base
        },
        (_, (4, 0..=1)) => Dialect {
            reasoning: ReasoningSupport::Budget { min: 1_024, max: 32_000, off: true },
            max_output: 32_000,
            most_output: Some(32_000),
            sampling: if version.1 == 1 { SamplingSupport::One } else { SamplingSupport::All },
            structured: if version.1 == 1 { Structured::Native } else { Structured::Tool },
            prefill: true,
            ..base
        },
        (_, (4, 5)) => Dialect {
            reasoning: ReasoningSupport::Budget { min: 1_024, max: 64_000, off: true },
            max_output: 64_000,
            most_output: Some(64_000),
            sampling: SamplingSupport::One,
            prefill: true,
            ..base
        },
        // Without `xhigh`.
        (_, (4, 6)) => Dialect {
            reasoning: ReasoningSupport::Adaptive {
                efforts: EffortSet::range(Effort::Low, Effort::High).with(Effort::Max),
                off: ReasoningOff::Full,
            },
            sampling: SamplingSupport::One,
            ..newest
        },
        ("sonnet-", (5, 5)) => Dialect { reasoning: adaptive(ReasoningOff::BetweenTools), ..newest },
        ("opus-", (5, 0)) | ("haiku-", (5, 5)) => {
            Dialect { reasoning: adaptive(ReasoningOff::UpTo(Effort::High)), ..newest }
        }
        // Their reasoning cannot be switched off.
        ("opus-" | "sonnet-", (5, 1..) | (6.., _)) | ("fable-" | "mythos-", _) => {
            Dialect { reasoning: adaptive(ReasoningOff::Never), ..newest }
        }
        _ => newest,
    }
}

/// Returns the profile of a Gemini model. Source: Gemini API, "Models", "Thinking", "Structured output", and the pages of
/// the models, November 2026.
fn generate<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let base =
        Dialect { media_urls: false, system_in_middle: false, prefill: true, max_output: 65_536, ..base };
    let budget = |min, off| ReasoningSupport::Budget { min, max: 24_576, off };
    let levels = |least, most| Dialect {
        reasoning: ReasoningSupport::efforts(least, most, false),
        reasons_by_default: true,
        knows_efforts: true,
        media_urls: true,
        ..base.clone()
    };
    let version = version_after(model, "gemini-").unwrap_or((3, 8));
    let (lite, flash) = (model.contains("flash-lite"), model.contains("flash"));
    if model.contains("image") || model.contains("tts") || model.contains("embedding") {
        return Dialect { structured: Structured::NativeWithoutTools, ..base };
    }
    // Models since July 2026 refuse a conversation that ends with the model, and ignore or refuse sampling parameters.
    let newer = |dialect| Dialect { prefill: false, sampling: SamplingSupport::None, ..dialect };
    match version {
        (0..=1, _) => Dialect {
            json_schema: false,
            structured: Structured::NativeWithoutTools,
            max_output: 8_192,
            ..base
        },
        (2, 0..=4) => Dialect { structured: Structured::NativeWithoutTools, max_output: 8_192, ..base },
        (2, _) => Dialect {
            reasoning: match () {
                () if lite => budget(512, true),
                () if flash => budget(1, true),
                () => ReasoningSupport::Budget { min: 128, max: 32_768, off: false },
            },
            reasons_by_default: !lite,
            structured: Structured::NativeWithoutTools,
            ..base
        },
        (3, 5) if lite => newer(levels(Effort::Minimal, Effort::High)),
        (3, 0..=5) if flash => levels(Effort::Minimal, Effort::High),
        (3, 0..=5) => levels(Effort::Low, Effort::High),
        (3, 6) if flash => newer(levels(Effort::Minimal, Effort::High)),
        _ if model.contains("hydrogen") => newer(levels(Effort::Low, Effort::XHigh)),
        (4, _) if model.contains("argon") => {
            Dialect { most_output_whole: Some(32_768), ..newer(levels(Effort::Low, Effort::High)) }
        }
        _ => newer(levels(Effort::Low, Effort::High)),
    }
}

/// Models of the o series take no `parallel_tool_calls`. Source: OpenAI API, "Reasoning models", November 2026.
const O_SERIES: Quirks = Quirks { lacks: &[&["parallel_tool_calls"]], ..Quirks::PLAIN };

/// Models of GPT-6 whose reasoning can be switched off: 400 for the others. Source: OpenAI API, pages of the models,
/// November 2026.
const SWITCHED: [&str; 3] = ["gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra"];

/// Returns the profile of an OpenAI model. Source: OpenAI API, "Models", "Reasoning models".
fn openai<'d>(base: Dialect<'d>, model: &str, api: Api) -> Dialect<'d> {
    // Both APIs refuse longer ids: "string too long".
    let base = Dialect { max_call_id: Some(if api == Api::Chat { 40 } else { 64 }), ..base };
    let reasoning = |least, most, off| Dialect {
        reasoning: ReasoningSupport::efforts(least, most, off),
        reasons_by_default: true,
        knows_efforts: true,
        // "Unsupported parameter" while the model reasons.
        sampling: if off { SamplingSupport::IfOff } else { SamplingSupport::None },
        developer_role: true,
        max_completion_tokens: true,
        max_output: 100_000,
        ..base.clone()
    };
    let is_version = |most| version_after(model, "gpt-").is_some_and(|version| version <= most);
    // `max` is an effort of the responses API only.
    let highest = if api == Api::Responses { Effort::Max } else { Effort::XHigh };
    // These follow ChatGPT: their effort is fixed.
    if model == "chat-latest"
        || model.contains("-chat-latest") && !is_version((4, 99)) && !model.starts_with("chatgpt-")
    {
        return reasoning(Effort::Medium, Effort::Medium, false);
    }
    let old = ["gpt-3", "gpt-4", "chatgpt-4", "gpt-audio", "davinci", "babbage"];
    if old.iter().any(|family| model.starts_with(family)) {
        return base;
    }
    if let Some((5, minor)) = version_after(model, "gpt-") {
        let is_pro = model.split('-').any(|part| part == "pro");
        // 5.1 added "none", 5.2 "xhigh", 5.6 "max"; 5.0 has "minimal" as its lowest effort. Up to 5.4 "none" is the default.
        return match minor {
            0 if is_pro => reasoning(Effort::High, Effort::High, false),
            0 => reasoning(Effort::Minimal, Effort::High, false),
            _ if is_pro => reasoning(Effort::Medium, Effort::XHigh, false),
            1 => Dialect { reasons_by_default: false, ..reasoning(Effort::Low, Effort::High, true) },
            2..=4 => Dialect { reasons_by_default: false, ..reasoning(Effort::Low, Effort::XHigh, true) },
            5 => reasoning(Effort::Low, Effort::XHigh, true),
            _ => reasoning(Effort::Low, highest, true),
        };
    }
    let o_series = model.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if o_series {
        return Dialect { quirks: const { &O_SERIES }, ..reasoning(Effort::Low, Effort::High, false) };
    }
    if version_after(model, "gpt-").is_some_and(|version| version > (5, 0)) {
        let off = SWITCHED.iter().any(|name| model.starts_with(name));
        return reasoning(Effort::Low, highest, off);
    }
    if ["gpt-", "codex-"].iter().any(|family| model.starts_with(family)) {
        return reasoning(Effort::Low, Effort::XHigh, false);
    }
    // Not an OpenAI model name: forward the sampling parameters and let the server accept or reject them.
    Dialect {
        sampling: SamplingSupport::All,
        knows_efforts: false,
        ..reasoning(Effort::Low, Effort::XHigh, true)
    }
}

/// Returns the issuer name of a provider: letters, digits and single dashes, so that it can be parsed out of an id.
pub(super) fn issuer_of(name: &str) -> Box<str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.is_empty() && name.bytes().all(fits) {
        return name.into();
    }
    // FNV-1a hash: different names need different issuers.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("p{hash:016x}").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_version_is_read_after_the_family_name() {
        assert_eq!(version_after("claude-opus-4-5-20251101", "opus-"), Some((4, 5)));
        assert_eq!(version_after("claude-sonnet-4-20250514", "sonnet-"), Some((4, 0)));
        assert_eq!(version_after("claude-3-5-sonnet-20240620", "claude-"), Some((3, 5)));
        assert_eq!(version_after("gemini-2.5-flash", "gemini-"), Some((2, 5)));
        assert_eq!(version_after("gpt-5.1", "gpt-"), Some((5, 1)));
        assert_eq!(version_after("gpt-5", "gpt-"), Some((5, 0)));
    }

    #[test]
    fn issuer_name_is_made_safe_for_an_id() {
        assert_eq!(&*issuer_of("anthropic-eu"), "anthropic-eu");
        for name in ["", "a__b", "a.b", "ü"] {
            let issuer = issuer_of(name);
            assert!(issuer.len() == 17 && issuer.bytes().all(|b| b.is_ascii_alphanumeric()), "{issuer}");
        }
        assert_ne!(issuer_of("a_b"), issuer_of("a.b"));
    }
}
