//! What a model at a provider can be asked for, by the provider's row and the family of the model, from the providers'
//! documentation of November 2026. A model that no row names is taken for a recent one of its provider.

use super::presets;
use super::{Kind, Preset, Provider};
use crate::canonical::dialect::{Reasoning, Sampling, Structured};
use crate::canonical::{Dialect, Effort, Quirks};
use crate::wire::Api;

/// Output tokens to ask for where the format wants a figure, for models whose limit is not known: what the oldest
/// models that are still served can give.
const MAX_OUTPUT: u64 = 8_192;

impl Provider {
    /// How `model` is spoken to through `api`.
    pub fn dialect<'d>(&'d self, api: Api, model: &'d str) -> Dialect<'d> {
        let dialect = self.usual_dialect(api, model);
        let prefill = self.prefill.unwrap_or(dialect.prefill);
        Dialect { prefill, ..dialect }
    }

    /// The same, as the provider's row says it.
    fn usual_dialect<'d>(&'d self, api: Api, model: &'d str) -> Dialect<'d> {
        // A cloud's names have its own parts around the provider's: `us.anthropic.claude-...`, `models/gemini-...`.
        let plain = model.rsplit('/').next().unwrap_or(model);
        let base = Dialect {
            model,
            issuer: &self.issuer,
            reasoning: Reasoning::Fixed,
            max_output: MAX_OUTPUT,
            sampling: Sampling::All,
            structured: Structured::Native,
            json_schema: true,
            call_ids: true,
            developer_role: false,
            max_completion_tokens: false,
            system_in_middle: true,
            prefill: false,
            reasoning_replay: false,
            media_urls: true,
            extensions: &[],
            think_tags: self.think_tags,
            habits: &Quirks::PLAIN,
        };
        match api {
            Api::Messages | Api::CountTokens => Dialect {
                habits: if self.kind == Kind::VertexAnthropic {
                    const { &VERTEX_CLAUDE }
                } else {
                    base.habits
                },
                ..messages(base, plain)
            },
            Api::Generate => {
                // This cloud refuses ids of calls.
                Dialect { call_ids: self.kind != Kind::Vertex, ..generate(base, plain) }
            }
            _ if matches!(self.row, Preset::OpenAi | Preset::Azure) => openai(base, plain),
            _ => presets::dialect(self.row, base, plain, self.base.prefix().ends_with("/beta")),
        }
    }

    /// Whether a request in the provider's own format may still have to be said anew: the provider is known not to take
    /// all of its format.
    pub fn is_particular(&self) -> bool {
        !matches!(
            self.row,
            Preset::OpenAi | Preset::Azure | Preset::Anthropic | Preset::Gemini | Preset::Compatible
        )
    }

    /// Whether the model answers through the responses API alone (OpenAI API, "Models").
    pub fn serves_responses_only(&self, model: &str) -> bool {
        matches!(self.row, Preset::OpenAi | Preset::Azure) && is_responses_only(model)
    }

    /// Whether a chat stream can be asked for its usage.
    pub fn takes_stream_options(&self) -> bool {
        !self.dialect(Api::Chat, "").habits.lacks("stream_options")
    }

    /// A member that the provider wants instead of the model's name, and its value.
    pub fn instead_of_model(&self) -> Option<(&'static str, &'static str)> {
        (self.kind == Kind::VertexAnthropic).then_some(VERTEX_CLAUDE.instead_of_model)?
    }
}

/// Vertex AI, "Claude models": the model stands in the path, and the version of the API in the body.
const VERTEX_CLAUDE: Quirks =
    Quirks { instead_of_model: Some(("anthropic_version", "vertex-2023-10-16")), ..Quirks::PLAIN };

/// Models of OpenAI that chat completions refuse: the pro models that reason for minutes, the models of its coding
/// agent, those that do research, and the one that uses a computer.
fn is_responses_only(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    // Behind a version or a family: a date is a part of the name, another word is another model.
    let pro = ["o1-pro", "o3-pro", "computer-use-preview"].iter().any(|name| model.starts_with(name));
    let newer = version_after(model, "gpt-").is_some_and(|version| version >= (5, 0));
    let named = |word: &str| model.split('-').any(|part| part == word);
    pro || (newer && (named("pro") || named("codex")))
        || model.starts_with("codex-")
        || model.contains("-deep-research")
}

/// The first number behind `word` in a name, as major and minor: `claude-opus-4-5-20251101` has (4, 5) behind
/// `opus-`. A date is neither.
pub(super) fn version_after(name: &str, word: &str) -> Option<(u32, u32)> {
    let rest = name.split_once(word)?.1;
    let mut parts = rest.split(['-', '.', '@', ':']);
    let major = parts.next().filter(|part| part.len() <= 2)?.parse().ok()?;
    let minor = parts.next().filter(|part| part.len() <= 2).and_then(|part| part.parse().ok()).unwrap_or(0);
    Some((major, minor))
}

/// Claude: "Models overview", "Extended thinking", "Adaptive thinking", "Structured outputs".
fn messages<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let budget = Reasoning::Budget { min: 1_024, max: 128_000, off: true };
    let Some(at) = model.find("claude") else {
        // Another provider's model behind this format: the parts of it that everybody has copied.
        return Dialect { reasoning: budget, max_output: 8_192, ..base };
    };
    let model = model.get(at..).unwrap_or_default();
    let families = ["opus-", "sonnet-", "haiku-", "fable-", "mythos-"];
    let named = families.into_iter().find_map(|family| Some((family, version_after(model, family)?)));
    let old = version_after(model, "claude-").unwrap_or((0, 0));
    let (family, version) = named.unwrap_or(("", old));
    let newest = Dialect {
        reasoning: Reasoning::Adaptive { max: Effort::Max, off: true },
        max_output: 64_000,
        sampling: Sampling::None,
        ..base.clone()
    };
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
            structured: Structured::Tool,
            prefill: true,
            ..base
        },
        (_, (4, 0..=1)) => Dialect {
            reasoning: Reasoning::Budget { min: 1_024, max: 32_000, off: true },
            max_output: 32_000,
            sampling: if version.1 == 1 { Sampling::One } else { Sampling::All },
            structured: if version.1 == 1 { Structured::Native } else { Structured::Tool },
            prefill: true,
            ..base
        },
        (_, (4, 5)) => Dialect {
            reasoning: Reasoning::Budget { min: 1_024, max: 64_000, off: true },
            max_output: 64_000,
            sampling: Sampling::One,
            prefill: true,
            ..base
        },
        (_, (4, 6)) => Dialect { sampling: Sampling::One, ..newest },
        ("fable-" | "mythos-", _) => {
            Dialect { reasoning: Reasoning::Adaptive { max: Effort::Max, off: false }, ..newest }
        }
        _ => newest,
    }
}

/// Gemini: "Models", "Thinking", "Structured output".
fn generate<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let budget = |min, off| Reasoning::Budget { min, max: 24_576, off };
    let levels = |min, off| Reasoning::Effort { min, max: Effort::High, off };
    let base =
        Dialect { media_urls: false, system_in_middle: false, prefill: true, max_output: 65_536, ..base };
    let version = version_after(model, "gemini-").unwrap_or((3, 0));
    let (lite, flash) = (model.contains("flash-lite"), model.contains("flash"));
    if model.contains("image") || model.contains("tts") || model.contains("embedding") {
        return Dialect { structured: Structured::NativeWithoutTools, ..base };
    }
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
                () => Reasoning::Budget { min: 128, max: 32_768, off: false },
            },
            structured: Structured::NativeWithoutTools,
            ..base
        },
        _ if flash => Dialect { reasoning: levels(Effort::Minimal, false), media_urls: true, ..base },
        _ => Dialect { reasoning: levels(Effort::Low, false), media_urls: true, ..base },
    }
}

/// OpenAI: "Models", "Reasoning models".
fn openai<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let reasoning = |min, max, off| Dialect {
        reasoning: Reasoning::Effort { min, max, off },
        sampling: Sampling::None,
        developer_role: true,
        max_completion_tokens: true,
        max_output: 100_000,
        ..base.clone()
    };
    let old = ["gpt-3", "gpt-4", "chatgpt-4", "gpt-audio", "davinci", "babbage"];
    if old.iter().any(|family| model.starts_with(family)) || model.contains("-chat-latest") {
        return base;
    }
    if let Some((5, minor)) = version_after(model, "gpt-") {
        // "none" came with 5.1, "xhigh" with 5.2; before, "minimal" was the least.
        return match minor {
            0 => reasoning(Effort::Minimal, Effort::High, false),
            1 => reasoning(Effort::Low, Effort::High, true),
            _ => reasoning(Effort::Low, Effort::XHigh, true),
        };
    }
    let o_series = model.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if o_series {
        return reasoning(Effort::Low, Effort::High, false);
    }
    let newest = reasoning(Effort::Low, Effort::XHigh, true);
    if ["gpt-", "codex-"].iter().any(|family| model.starts_with(family)) {
        return newest;
    }
    // A name that is none of OpenAI's: which sampling the model takes is for whoever answers to say.
    Dialect { sampling: Sampling::All, ..newest }
}

/// The name under which a provider's seals travel: letters, digits and single dashes, so that it can be told from what
/// stands around it.
pub(super) fn issuer_of(name: &str) -> Box<str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.is_empty() && name.bytes().all(fits) {
        return name.into();
    }
    // FNV-1a: names that differ must have issuers that differ.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("p{hash:016x}").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{BaseUrl, Setup};

    fn provider(kind: Kind) -> Provider {
        Provider::new(Setup {
            name: "p".to_owned(),
            kind,
            apis: Vec::new(),
            base: BaseUrl::parse("http://127.0.0.1:1/v1").unwrap(),
        })
    }

    #[test]
    fn versions_stand_behind_the_family() {
        assert_eq!(version_after("claude-opus-4-5-20251101", "opus-"), Some((4, 5)));
        assert_eq!(version_after("claude-sonnet-4-20250514", "sonnet-"), Some((4, 0)));
        assert_eq!(version_after("claude-3-5-sonnet-20240620", "claude-"), Some((3, 5)));
        assert_eq!(version_after("gemini-2.5-flash", "gemini-"), Some((2, 5)));
        assert_eq!(version_after("gpt-5.1", "gpt-"), Some((5, 1)));
        assert_eq!(version_after("gpt-5", "gpt-"), Some((5, 0)));
    }

    #[test]
    fn models_reason_in_their_own_way() {
        let claude = provider(Kind::Anthropic);
        let reasoning = |model| claude.dialect(Api::Messages, model).reasoning;
        assert_eq!(reasoning("claude-3-5-sonnet-20240620"), Reasoning::Fixed);
        assert_eq!(
            reasoning("claude-3-7-sonnet-latest"),
            Reasoning::Budget { min: 1024, max: 128_000, off: true }
        );
        assert_eq!(reasoning("claude-sonnet-4-5"), Reasoning::Budget { min: 1024, max: 64_000, off: true });
        assert_eq!(
            reasoning("us.anthropic.claude-opus-4-1-20250805-v1:0"),
            Reasoning::Budget { min: 1024, max: 32_000, off: true },
        );
        assert_eq!(reasoning("claude-opus-4-7"), Reasoning::Adaptive { max: Effort::Max, off: true });
        assert_eq!(reasoning("claude-sonnet-5"), Reasoning::Adaptive { max: Effort::Max, off: true });

        let google = provider(Kind::Gemini);
        let reasoning = |model| google.dialect(Api::Generate, model).reasoning;
        assert_eq!(reasoning("gemini-2.0-flash"), Reasoning::Fixed);
        assert_eq!(reasoning("gemini-2.5-pro"), Reasoning::Budget { min: 128, max: 32_768, off: false });
        assert_eq!(reasoning("gemini-2.5-flash"), Reasoning::Budget { min: 1, max: 24_576, off: true });
        assert!(matches!(reasoning("gemini-3-pro-preview"), Reasoning::Effort { min: Effort::Low, .. }));
        assert!(matches!(reasoning("gemini-3-flash"), Reasoning::Effort { min: Effort::Minimal, .. }));

        let openai = provider(Kind::OpenAi);
        let dialect = |model| openai.dialect(Api::Chat, model);
        assert_eq!(dialect("gpt-4o-mini").reasoning, Reasoning::Fixed);
        assert!(!dialect("gpt-4.1").max_completion_tokens);
        assert!(dialect("o3-mini").max_completion_tokens);
        assert!(matches!(dialect("gpt-5.1").reasoning, Reasoning::Effort { off: true, .. }));
        for (model, sampling) in [
            ("gpt-4o", Sampling::All),
            ("gpt-5.2", Sampling::None),
            ("gpt-6", Sampling::None),
            ("codex-mini-latest", Sampling::None),
            ("o4-mini", Sampling::None),
            ("some-model-of-our-own", Sampling::All),
        ] {
            assert_eq!(dialect(model).sampling, sampling, "{model}");
        }
        assert!(matches!(
            dialect("gpt-5").reasoning,
            Reasoning::Effort { min: Effort::Minimal, off: false, .. }
        ));
    }

    #[test]
    fn some_models_answer_through_responses_alone() {
        let openai = provider(Kind::OpenAi);
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
            assert!(openai.serves_responses_only(model), "{model}");
        }
        for model in
            ["o3", "o1", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4.1", "my-pro", "chatgpt-4o-latest"]
        {
            assert!(!openai.serves_responses_only(model), "{model}");
        }
        assert!(!provider(Kind::OpenAiCompatible).serves_responses_only("o3-pro"));
    }

    #[test]
    fn issuers_can_stand_in_an_id() {
        assert_eq!(&*issuer_of("anthropic-eu"), "anthropic-eu");
        for name in ["", "a__b", "a.b", "ü"] {
            let issuer = issuer_of(name);
            assert!(issuer.len() == 17 && issuer.bytes().all(|b| b.is_ascii_alphanumeric()), "{issuer}");
        }
        assert_ne!(issuer_of("a_b"), issuer_of("a.b"));
    }
}
