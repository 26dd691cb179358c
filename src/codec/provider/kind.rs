//! Provider kinds (`kind = "..."`) and their defaults.

use crate::wire::Api;

/// Provider kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// OpenAI.
    OpenAi,
    /// Azure OpenAI.
    Azure,
    /// Anthropic models at Microsoft Foundry (Azure).
    AzureAnthropic,
    /// Any server of OpenAI's chat completions: vLLM, Ollama, OpenRouter, DeepSeek, Mistral ...
    OpenAiCompatible,
    /// Anthropic.
    Anthropic,
    /// Anthropic models at Vertex AI.
    VertexAnthropic,
    /// Google's Gemini API.
    Gemini,
    /// Google models at Vertex AI.
    Vertex,
    /// Amazon Bedrock.
    Bedrock,
    /// Cohere.
    Cohere,
    /// Jina.
    Jina,
    /// Voyage.
    Voyage,
    /// Alibaba Cloud Model Studio (DashScope).
    DashScope,
    /// Volcengine Ark.
    Ark,
    /// Text Embeddings Inference, a server of one embedding or rerank model.
    Tei,
}

impl ProviderKind {
    /// All kinds, in the order of docs/configuration.md.
    pub const ALL: [ProviderKind; 15] = [
        ProviderKind::OpenAi,
        ProviderKind::OpenAiCompatible,
        ProviderKind::Azure,
        ProviderKind::AzureAnthropic,
        ProviderKind::Anthropic,
        ProviderKind::VertexAnthropic,
        ProviderKind::Gemini,
        ProviderKind::Vertex,
        ProviderKind::Bedrock,
        ProviderKind::Cohere,
        ProviderKind::Jina,
        ProviderKind::Voyage,
        ProviderKind::DashScope,
        ProviderKind::Ark,
        ProviderKind::Tei,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            ProviderKind::OpenAi => "openai",
            ProviderKind::OpenAiCompatible => "openai-compatible",
            ProviderKind::Azure => "azure",
            ProviderKind::AzureAnthropic => "azure-anthropic",
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::VertexAnthropic => "vertex-anthropic",
            ProviderKind::Gemini => "gemini",
            ProviderKind::Vertex => "vertex",
            ProviderKind::Bedrock => "bedrock",
            ProviderKind::Cohere => "cohere",
            ProviderKind::Jina => "jina",
            ProviderKind::Voyage => "voyage",
            ProviderKind::DashScope => "dashscope",
            ProviderKind::Ark => "ark",
            ProviderKind::Tei => "tei",
        }
    }

    /// Returns the kind of this name, or `None` if there is no such kind.
    pub fn from_name(name: &str) -> Option<ProviderKind> {
        ProviderKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the value of `gen_ai.provider.name` (OpenTelemetry GenAI semantic conventions) of a provider of this kind;
    /// `Provider::otel_name` knows more about one that is only compatible.
    pub const fn otel_name(self) -> &'static str {
        match self {
            ProviderKind::OpenAi => "openai",
            ProviderKind::OpenAiCompatible => "openai_compatible",
            ProviderKind::Azure => "azure.ai.openai",
            ProviderKind::AzureAnthropic => "azure.ai.inference",
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::VertexAnthropic | ProviderKind::Vertex => "gcp.vertex_ai",
            ProviderKind::Gemini => "gcp.gemini",
            ProviderKind::Bedrock => "aws.bedrock",
            ProviderKind::Cohere => "cohere",
            ProviderKind::Jina => "jina",
            ProviderKind::Voyage => "voyage",
            ProviderKind::DashScope => "dashscope",
            ProviderKind::Ark => "ark",
            ProviderKind::Tei => "tei",
        }
    }

    /// Returns the APIs of the provider, in order of preference; `apis` in the configuration restricts or reorders
    /// them.
    pub const fn default_apis(self) -> &'static [Api] {
        match self {
            ProviderKind::OpenAi => &[Api::Responses, Api::Chat, Api::Embeddings, Api::Images, Api::Videos],
            ProviderKind::OpenAiCompatible => &[Api::Chat, Api::Embeddings, Api::Rerank],
            ProviderKind::Azure => &[Api::Responses, Api::Chat, Api::Embeddings, Api::Images, Api::Videos],
            ProviderKind::Anthropic | ProviderKind::VertexAnthropic | ProviderKind::AzureAnthropic => {
                &[Api::Messages, Api::CountTokens]
            }
            ProviderKind::Vertex => {
                &[Api::Generate, Api::Embeddings, Api::EmbedContent, Api::Images, Api::Videos]
            }
            ProviderKind::Gemini => &[Api::Generate, Api::EmbedContent, Api::Images, Api::Videos],
            ProviderKind::Bedrock => &[Api::Converse, Api::Messages, Api::Embeddings, Api::Rerank],
            ProviderKind::Cohere => &[Api::Rerank, Api::Embeddings],
            ProviderKind::Jina | ProviderKind::Voyage => &[Api::Embeddings, Api::Rerank],
            ProviderKind::DashScope => {
                &[Api::Chat, Api::Embeddings, Api::Rerank, Api::Images, Api::Videos, Api::Tasks]
            }
            ProviderKind::Ark => &[Api::Chat, Api::Responses, Api::Images, Api::Videos, Api::Tasks],
            ProviderKind::Tei => &[Api::Embeddings, Api::Rerank],
        }
    }

    /// Returns the default base URL, or `None` if `base_url` is required.
    pub const fn default_base_url(self) -> Option<&'static str> {
        match self {
            ProviderKind::OpenAi => Some("https://api.openai.com/v1"),
            ProviderKind::OpenAiCompatible
            | ProviderKind::Azure
            | ProviderKind::AzureAnthropic
            | ProviderKind::VertexAnthropic
            | ProviderKind::Vertex
            | ProviderKind::Bedrock
            | ProviderKind::Tei => None,
            ProviderKind::Anthropic => Some("https://api.anthropic.com/v1"),
            ProviderKind::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            ProviderKind::Cohere => Some("https://api.cohere.com/v2"),
            ProviderKind::Jina => Some("https://api.jina.ai/v1"),
            ProviderKind::Voyage => Some("https://api.voyageai.com/v1"),
            ProviderKind::DashScope => Some("https://dashscope.aliyuncs.com/compatible-mode/v1"),
            ProviderKind::Ark => Some("https://ark.cn-beijing.volces.com/api/v3"),
        }
    }

    /// Returns whether a credential is required. Only kinds that can be self-hosted work without one.
    pub const fn needs_credential(self) -> bool {
        !matches!(self, ProviderKind::OpenAiCompatible | ProviderKind::Tei)
    }
}
