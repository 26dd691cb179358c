//! Provider presets: selected by kind, by the host of the base URL, or by the configuration.

use super::{BaseUrl, ProviderKind};

/// Provider preset (`dialect = "..."`): a row of docs/providers.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// OpenAI.
    OpenAi,
    /// Azure OpenAI.
    Azure,
    /// Anthropic models, at any provider.
    Anthropic,
    /// Google models, at any provider.
    Gemini,
    /// DeepSeek.
    DeepSeek,
    /// Qwen, at DashScope.
    Qwen,
    /// Kimi, at Moonshot.
    Moonshot,
    /// GLM, at Zhipu and Z.ai.
    Glm,
    /// Grok, at xAI.
    Xai,
    /// Groq.
    Groq,
    /// Mistral.
    Mistral,
    /// OpenRouter.
    OpenRouter,
    /// Together.
    Together,
    /// Fireworks.
    Fireworks,
    /// Doubao and others, at Volcengine Ark.
    Ark,
    /// vLLM.
    Vllm,
    /// Ollama.
    Ollama,
    /// Unknown server of chat completions.
    Compatible,
}

impl Preset {
    /// All presets, in the order of docs/providers.md.
    pub const ALL: [Preset; 18] = [
        Preset::OpenAi,
        Preset::Azure,
        Preset::Anthropic,
        Preset::Gemini,
        Preset::DeepSeek,
        Preset::Qwen,
        Preset::Moonshot,
        Preset::Glm,
        Preset::Xai,
        Preset::Groq,
        Preset::Mistral,
        Preset::OpenRouter,
        Preset::Together,
        Preset::Fireworks,
        Preset::Ark,
        Preset::Vllm,
        Preset::Ollama,
        Preset::Compatible,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::OpenAi => "openai",
            Preset::Azure => "azure",
            Preset::Anthropic => "anthropic",
            Preset::Gemini => "gemini",
            Preset::DeepSeek => "deepseek",
            Preset::Qwen => "qwen",
            Preset::Moonshot => "moonshot",
            Preset::Glm => "glm",
            Preset::Xai => "xai",
            Preset::Groq => "groq",
            Preset::Mistral => "mistral",
            Preset::OpenRouter => "openrouter",
            Preset::Together => "together",
            Preset::Fireworks => "fireworks",
            Preset::Ark => "ark",
            Preset::Vllm => "vllm",
            Preset::Ollama => "ollama",
            Preset::Compatible => "compatible",
        }
    }

    /// Returns the preset of this name, or `None` if there is no such preset.
    pub fn from_name(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|row| row.name() == name)
    }

    /// Returns the value of `gen_ai.provider.name` of an OpenAI-compatible provider with this preset: the well-known one of
    /// the conventions, or else the preset's own name.
    pub const fn otel_name(self) -> &'static str {
        match self {
            Preset::Azure => "azure.ai.openai",
            Preset::Gemini => "gcp.gemini",
            Preset::Qwen => "dashscope",
            Preset::Moonshot => "moonshot_ai",
            Preset::Xai => "x_ai",
            Preset::Mistral => "mistral_ai",
            Preset::Compatible => "openai_compatible",
            other => other.name(),
        }
    }

    /// Returns the hosts of the preset. An entry with a leading dot matches all hosts with that suffix.
    pub const fn hosts(self) -> &'static [&'static str] {
        match self {
            Preset::OpenAi => &["api.openai.com"],
            Preset::Azure => &[".openai.azure.com", ".cognitiveservices.azure.com"],
            Preset::DeepSeek => &["api.deepseek.com"],
            Preset::Qwen => &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", ".maas.aliyuncs.com"],
            Preset::Moonshot => &["api.moonshot.ai", "api.moonshot.cn"],
            Preset::Glm => &["api.z.ai", "open.bigmodel.cn"],
            Preset::Xai => &["api.x.ai", ".api.x.ai"],
            Preset::Groq => &["api.groq.com"],
            Preset::Mistral => &["api.mistral.ai", "codestral.mistral.ai"],
            Preset::OpenRouter => &["openrouter.ai"],
            Preset::Together => &["api.together.xyz", "api.together.ai"],
            Preset::Fireworks => &["api.fireworks.ai"],
            Preset::Ark => &["ark.cn-beijing.volces.com", ".volces.com", ".bytepluses.com"],
            Preset::Ollama => &["ollama.com"],
            Preset::Anthropic | Preset::Gemini | Preset::Vllm | Preset::Compatible => &[],
        }
    }

    /// Returns the preset of a provider without a configured `dialect`.
    pub fn of(kind: ProviderKind, base: &BaseUrl) -> Preset {
        match kind {
            ProviderKind::OpenAi => Preset::OpenAi,
            ProviderKind::Azure => Preset::Azure,
            ProviderKind::Anthropic | ProviderKind::VertexAnthropic | ProviderKind::AzureAnthropic => {
                Preset::Anthropic
            }
            ProviderKind::Gemini | ProviderKind::Vertex => Preset::Gemini,
            ProviderKind::DashScope => Preset::Qwen,
            ProviderKind::Ark => Preset::Ark,
            ProviderKind::OpenAiCompatible => Preset::at(base),
            ProviderKind::Bedrock
            | ProviderKind::Cohere
            | ProviderKind::Jina
            | ProviderKind::Voyage
            | ProviderKind::Tei => Preset::Compatible,
        }
    }

    fn at(base: &BaseUrl) -> Preset {
        let host = base.host();
        let is_there = |name: &str| match name.strip_prefix('.') {
            Some(_) => host.ends_with(name),
            None => host == name,
        };
        let known = Preset::ALL.into_iter().find(|row| row.hosts().iter().any(|name| is_there(name)));
        // Self-hosted servers have no known host; Ollama is recognized by its port.
        known.unwrap_or(if base.port() == OLLAMA_PORT { Preset::Ollama } else { Preset::Compatible })
    }
}

/// Default port of Ollama.
const OLLAMA_PORT: u16 = 11_434;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_has_the_well_known_name_of_the_conventions() {
        use crate::provider::Provider;
        let name = |kind, url: &str| Provider::at(kind, url).otel_name();
        for (url, wanted) in [
            ("https://api.deepseek.com/v1", "deepseek"),
            ("https://api.moonshot.ai/v1", "moonshot_ai"),
            ("https://api.x.ai/v1", "x_ai"),
            ("https://api.groq.com/openai/v1", "groq"),
            ("https://api.mistral.ai/v1", "mistral_ai"),
            ("https://api.perplexity.ai", "perplexity"),
            ("https://api.cohere.ai/compatibility/v1", "cohere"),
            ("https://api.openai.com/v1", "openai"),
            ("https://openrouter.ai/api/v1", "openrouter"),
            ("http://127.0.0.1:8000/v1", "openai_compatible"),
        ] {
            assert_eq!(name(ProviderKind::OpenAiCompatible, url), wanted, "{url}");
        }
        assert_eq!(name(ProviderKind::Bedrock, "https://h.example"), "aws.bedrock");
    }

    #[test]
    fn preset_is_recognized_by_the_host() {
        let row = |url: &str| Preset::of(ProviderKind::OpenAiCompatible, &BaseUrl::parse(url).unwrap());
        for (url, wanted) in [
            ("https://api.deepseek.com/v1", Preset::DeepSeek),
            ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Preset::Qwen),
            ("https://api.moonshot.cn/v1", Preset::Moonshot),
            ("https://open.bigmodel.cn/api/paas/v4", Preset::Glm),
            ("https://api.x.ai/v1", Preset::Xai),
            ("https://api.groq.com/openai/v1", Preset::Groq),
            ("https://api.mistral.ai/v1", Preset::Mistral),
            ("https://openrouter.ai/api/v1", Preset::OpenRouter),
            ("https://api.together.xyz/v1", Preset::Together),
            ("https://api.fireworks.ai/inference/v1", Preset::Fireworks),
            ("https://x.openai.azure.com/openai/v1", Preset::Azure),
            ("http://127.0.0.1:11434/v1", Preset::Ollama),
            ("http://127.0.0.1:8000/v1", Preset::Compatible),
            ("https://notapi.deepseek.com.example/v1", Preset::Compatible),
        ] {
            assert_eq!(row(url), wanted, "{url}");
        }
        let base = BaseUrl::parse("https://dashscope.aliyuncs.com/compatible-mode/v1").unwrap();
        assert_eq!(Preset::of(ProviderKind::DashScope, &base), Preset::Qwen);
        assert_eq!(Preset::of(ProviderKind::OpenAi, &base), Preset::OpenAi);
    }

    #[test]
    fn preset_name_is_unique_and_found() {
        for row in Preset::ALL {
            assert_eq!(Preset::from_name(row.name()), Some(row));
        }
        assert_eq!(Preset::from_name("nobody"), None);
    }
}
