//! The kinds of providers (`kind = "..."`), and what each offers without being told.

use crate::wire::Api;

/// A kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// OpenAI itself.
    OpenAi,
    /// OpenAI's models at Azure.
    Azure,
    /// Anything that speaks OpenAI's chat completions: vLLM, Ollama, OpenRouter, DeepSeek, Mistral ...
    OpenAiCompatible,
    /// Anthropic itself.
    Anthropic,
    /// Anthropic's models at Vertex AI.
    VertexAnthropic,
    /// Google's Gemini API.
    Gemini,
    /// Google's models at Vertex AI.
    Vertex,
    /// Cohere.
    Cohere,
    /// Jina.
    Jina,
    /// Voyage.
    Voyage,
    /// Alibaba's DashScope.
    DashScope,
    /// Volcengine's Ark.
    Ark,
    /// Text embeddings inference: a server of one model for vectors or orders.
    Tei,
}

impl Kind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Kind; 13] = [
        Kind::OpenAi,
        Kind::OpenAiCompatible,
        Kind::Azure,
        Kind::Anthropic,
        Kind::VertexAnthropic,
        Kind::Gemini,
        Kind::Vertex,
        Kind::Cohere,
        Kind::Jina,
        Kind::Voyage,
        Kind::DashScope,
        Kind::Ark,
        Kind::Tei,
    ];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::OpenAi => "openai",
            Kind::OpenAiCompatible => "openai-compatible",
            Kind::Azure => "azure",
            Kind::Anthropic => "anthropic",
            Kind::VertexAnthropic => "vertex-anthropic",
            Kind::Gemini => "gemini",
            Kind::Vertex => "vertex",
            Kind::Cohere => "cohere",
            Kind::Jina => "jina",
            Kind::Voyage => "voyage",
            Kind::DashScope => "dashscope",
            Kind::Ark => "ark",
            Kind::Tei => "tei",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The value of `gen_ai.provider.name` (OpenTelemetry GenAI semantic conventions).
    pub const fn otel_name(self) -> &'static str {
        match self {
            Kind::OpenAi => "openai",
            Kind::OpenAiCompatible => "openai_compatible",
            Kind::Azure => "azure.ai.openai",
            Kind::Anthropic => "anthropic",
            Kind::VertexAnthropic | Kind::Vertex => "gcp.vertex_ai",
            Kind::Gemini => "gcp.gemini",
            Kind::Cohere => "cohere",
            Kind::Jina => "jina",
            Kind::Voyage => "voyage",
            Kind::DashScope => "dashscope",
            Kind::Ark => "ark",
            Kind::Tei => "tei",
        }
    }

    /// What the provider offers, preferred first; `apis` in the configuration narrows or reorders it.
    pub const fn default_apis(self) -> &'static [Api] {
        match self {
            Kind::OpenAi => &[Api::Responses, Api::Chat, Api::Embeddings, Api::Images, Api::Videos],
            Kind::OpenAiCompatible => &[Api::Chat, Api::Embeddings, Api::Rerank],
            Kind::Azure => &[Api::Responses, Api::Chat, Api::Embeddings, Api::Images, Api::Videos],
            Kind::Anthropic | Kind::VertexAnthropic => &[Api::Messages, Api::CountTokens],
            Kind::Vertex => &[Api::Generate, Api::Images, Api::Videos],
            Kind::Gemini => &[Api::Generate, Api::EmbedContent, Api::Images, Api::Videos],
            Kind::Cohere => &[Api::Rerank, Api::Embeddings],
            Kind::Jina | Kind::Voyage => &[Api::Embeddings, Api::Rerank],
            Kind::DashScope => {
                &[Api::Chat, Api::Embeddings, Api::Rerank, Api::Images, Api::Videos, Api::Tasks]
            }
            Kind::Ark => &[Api::Chat, Api::Responses, Api::Images, Api::Videos, Api::Tasks],
            Kind::Tei => &[Api::Embeddings, Api::Rerank],
        }
    }

    /// Where the provider is, for providers that are in one place; the others need `base_url`.
    pub const fn default_base_url(self) -> Option<&'static str> {
        match self {
            Kind::OpenAi => Some("https://api.openai.com/v1"),
            Kind::OpenAiCompatible | Kind::Azure | Kind::VertexAnthropic | Kind::Vertex | Kind::Tei => None,
            Kind::Anthropic => Some("https://api.anthropic.com/v1"),
            Kind::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Kind::Cohere => Some("https://api.cohere.com/v2"),
            Kind::Jina => Some("https://api.jina.ai/v1"),
            Kind::Voyage => Some("https://api.voyageai.com/v1"),
            Kind::DashScope => Some("https://dashscope.aliyuncs.com/compatible-mode/v1"),
            Kind::Ark => Some("https://ark.cn-beijing.volces.com/api/v3"),
        }
    }

    /// Whether the provider answers without a credential: only servers of one's own may.
    pub const fn needs_credential(self) -> bool {
        !matches!(self, Kind::OpenAiCompatible | Kind::Tei)
    }
}
