//! Which provider's manner of speaking a provider has: by its kind, by the host of its address, or as it is said.

use super::{BaseUrl, Kind};

/// Provider preset (`dialect = "..."`): a row of docs/providers.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// OpenAI itself.
    OpenAi,
    /// OpenAI's models at Azure.
    Azure,
    /// Anthropic's models, wherever they are.
    Anthropic,
    /// Google's models, wherever they are.
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
    /// Doubao and others, at Volcengine's Ark.
    Ark,
    /// A server of vLLM.
    Vllm,
    /// A server of Ollama.
    Ollama,
    /// Anything that speaks chat completions and of which no more is known.
    Compatible,
}

impl Preset {
    /// All rows, in the order of the documentation.
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

    /// The name in the configuration.
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

    /// The row of this name.
    pub fn from_name(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|row| row.name() == name)
    }

    /// The ends of the names of hosts that speak so.
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

    /// The row of a provider of which nothing is said.
    pub fn of(kind: Kind, base: &BaseUrl) -> Preset {
        match kind {
            Kind::OpenAi => Preset::OpenAi,
            Kind::Azure => Preset::Azure,
            Kind::Anthropic | Kind::VertexAnthropic => Preset::Anthropic,
            Kind::Gemini | Kind::Vertex => Preset::Gemini,
            Kind::DashScope => Preset::Qwen,
            Kind::Ark => Preset::Ark,
            Kind::OpenAiCompatible => Preset::at(base),
            Kind::Cohere | Kind::Jina | Kind::Voyage | Kind::Tei => Preset::Compatible,
        }
    }

    fn at(base: &BaseUrl) -> Preset {
        let host = base.host();
        let is_there = |name: &str| match name.strip_prefix('.') {
            Some(_) => host.ends_with(name),
            None => host == name,
        };
        let known = Preset::ALL.into_iter().find(|row| row.hosts().iter().any(|name| is_there(name)));
        // A server of one's own is known by its port, if by anything.
        known.unwrap_or(if base.port() == OLLAMA_PORT { Preset::Ollama } else { Preset::Compatible })
    }
}

/// Where Ollama listens unless it is told otherwise.
const OLLAMA_PORT: u16 = 11_434;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_says_who_it_is() {
        let row = |url: &str| Preset::of(Kind::OpenAiCompatible, &BaseUrl::parse(url).unwrap());
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
        assert_eq!(Preset::of(Kind::DashScope, &base), Preset::Qwen);
        assert_eq!(Preset::of(Kind::OpenAi, &base), Preset::OpenAi);
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for row in Preset::ALL {
            assert_eq!(Preset::from_name(row.name()), Some(row));
        }
        assert_eq!(Preset::from_name("nobody"), None);
    }
}
