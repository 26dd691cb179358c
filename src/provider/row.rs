//! Which provider's manner of speaking a provider has: by its kind, by the host of its address, or as it is said.

use super::{BaseUrl, Kind};

/// A manner of speaking (`dialect = "..."`): a row of the table of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
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

impl Row {
    /// All rows, in the order of the documentation.
    pub const ALL: [Row; 18] = [
        Row::OpenAi,
        Row::Azure,
        Row::Anthropic,
        Row::Gemini,
        Row::DeepSeek,
        Row::Qwen,
        Row::Moonshot,
        Row::Glm,
        Row::Xai,
        Row::Groq,
        Row::Mistral,
        Row::OpenRouter,
        Row::Together,
        Row::Fireworks,
        Row::Ark,
        Row::Vllm,
        Row::Ollama,
        Row::Compatible,
    ];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Row::OpenAi => "openai",
            Row::Azure => "azure",
            Row::Anthropic => "anthropic",
            Row::Gemini => "gemini",
            Row::DeepSeek => "deepseek",
            Row::Qwen => "qwen",
            Row::Moonshot => "moonshot",
            Row::Glm => "glm",
            Row::Xai => "xai",
            Row::Groq => "groq",
            Row::Mistral => "mistral",
            Row::OpenRouter => "openrouter",
            Row::Together => "together",
            Row::Fireworks => "fireworks",
            Row::Ark => "ark",
            Row::Vllm => "vllm",
            Row::Ollama => "ollama",
            Row::Compatible => "compatible",
        }
    }

    /// The row of this name.
    pub fn from_name(name: &str) -> Option<Row> {
        Row::ALL.into_iter().find(|row| row.name() == name)
    }

    /// The ends of the names of hosts that speak so.
    pub const fn hosts(self) -> &'static [&'static str] {
        match self {
            Row::OpenAi => &["api.openai.com"],
            Row::Azure => &[".openai.azure.com", ".cognitiveservices.azure.com"],
            Row::DeepSeek => &["api.deepseek.com"],
            Row::Qwen => &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", ".maas.aliyuncs.com"],
            Row::Moonshot => &["api.moonshot.ai", "api.moonshot.cn"],
            Row::Glm => &["api.z.ai", "open.bigmodel.cn"],
            Row::Xai => &["api.x.ai", ".api.x.ai"],
            Row::Groq => &["api.groq.com"],
            Row::Mistral => &["api.mistral.ai", "codestral.mistral.ai"],
            Row::OpenRouter => &["openrouter.ai"],
            Row::Together => &["api.together.xyz", "api.together.ai"],
            Row::Fireworks => &["api.fireworks.ai"],
            Row::Ark => &["ark.cn-beijing.volces.com", ".volces.com", ".bytepluses.com"],
            Row::Ollama => &["ollama.com"],
            Row::Anthropic | Row::Gemini | Row::Vllm | Row::Compatible => &[],
        }
    }

    /// The row of a provider of which nothing is said.
    pub fn of(kind: Kind, base: &BaseUrl) -> Row {
        match kind {
            Kind::OpenAi => Row::OpenAi,
            Kind::Azure => Row::Azure,
            Kind::Anthropic | Kind::VertexAnthropic => Row::Anthropic,
            Kind::Gemini | Kind::Vertex => Row::Gemini,
            Kind::DashScope => Row::Qwen,
            Kind::Ark => Row::Ark,
            Kind::OpenAiCompatible => Row::at(base),
            Kind::Cohere | Kind::Jina | Kind::Voyage | Kind::Tei => Row::Compatible,
        }
    }

    fn at(base: &BaseUrl) -> Row {
        let host = base.host();
        let is_there = |name: &str| match name.strip_prefix('.') {
            Some(_) => host.ends_with(name),
            None => host == name,
        };
        let known = Row::ALL.into_iter().find(|row| row.hosts().iter().any(|name| is_there(name)));
        // A server of one's own is known by its port, if by anything.
        known.unwrap_or(if base.port() == OLLAMA_PORT { Row::Ollama } else { Row::Compatible })
    }
}

/// Where Ollama listens unless it is told otherwise.
const OLLAMA_PORT: u16 = 11_434;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_says_who_it_is() {
        let row = |url: &str| Row::of(Kind::OpenAiCompatible, &BaseUrl::parse(url).unwrap());
        for (url, wanted) in [
            ("https://api.deepseek.com/v1", Row::DeepSeek),
            ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Row::Qwen),
            ("https://api.moonshot.cn/v1", Row::Moonshot),
            ("https://open.bigmodel.cn/api/paas/v4", Row::Glm),
            ("https://api.x.ai/v1", Row::Xai),
            ("https://api.groq.com/openai/v1", Row::Groq),
            ("https://api.mistral.ai/v1", Row::Mistral),
            ("https://openrouter.ai/api/v1", Row::OpenRouter),
            ("https://api.together.xyz/v1", Row::Together),
            ("https://api.fireworks.ai/inference/v1", Row::Fireworks),
            ("https://x.openai.azure.com/openai/v1", Row::Azure),
            ("http://127.0.0.1:11434/v1", Row::Ollama),
            ("http://127.0.0.1:8000/v1", Row::Compatible),
            ("https://notapi.deepseek.com.example/v1", Row::Compatible),
        ] {
            assert_eq!(row(url), wanted, "{url}");
        }
        let base = BaseUrl::parse("https://dashscope.aliyuncs.com/compatible-mode/v1").unwrap();
        assert_eq!(Row::of(Kind::DashScope, &base), Row::Qwen);
        assert_eq!(Row::of(Kind::OpenAi, &base), Row::OpenAi);
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for row in Row::ALL {
            assert_eq!(Row::from_name(row.name()), Some(row));
        }
        assert_eq!(Row::from_name("nobody"), None);
    }
}
