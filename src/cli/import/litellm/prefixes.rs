//! Providers of LiteLLM: the prefix of `litellm_params.model`, and what it is in the configuration.
//!
//! Sources: <https://docs.litellm.ai/docs/providers> (prefixes, environment variables, base URLs) and the API
//! documentation of each provider, November 2026.

use codec::provider::ProviderKind;

/// What a custom `api_base` becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::import) enum BaseRule {
    /// Used as it is: LiteLLM appends the path of the resource only.
    Whole,
    /// The root of the server: `/v1` is appended if it has no version.
    Root,
    /// The resource of Azure: the path is removed.
    Azure,
}

/// Provider of LiteLLM.
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct ProviderPrefix {
    /// Prefix of the model, and name of the provider in the result.
    pub(in crate::import) prefix: &'static str,
    pub(in crate::import) kind: ProviderKind,
    /// Base URL; `None` for the default of the kind, or if `api_base` is required.
    pub(in crate::import) base: Option<&'static str>,
    /// Preset for a custom base URL.
    pub(in crate::import) dialect: Option<&'static str>,
    /// Environment variable that LiteLLM reads without `api_key`; `None` if no credential is needed.
    pub(in crate::import) env: Option<&'static str>,
    pub(in crate::import) rule: BaseRule,
    /// What differs from LiteLLM; empty if nothing does.
    pub(in crate::import) note: &'static str,
}

const fn entry(prefix: &'static str, kind: ProviderKind, env: &'static str) -> ProviderPrefix {
    ProviderPrefix {
        prefix,
        kind,
        base: None,
        dialect: None,
        env: Some(env),
        rule: BaseRule::Whole,
        note: "",
    }
}

const fn compatible(prefix: &'static str, base: &'static str, env: &'static str) -> ProviderPrefix {
    ProviderPrefix { base: Some(base), ..entry(prefix, ProviderKind::OpenAiCompatible, env) }
}

const fn dialect(entry: ProviderPrefix, dialect: &'static str) -> ProviderPrefix {
    ProviderPrefix { dialect: Some(dialect), ..entry }
}

/// Server that has no address of its own.
const fn server(prefix: &'static str) -> ProviderPrefix {
    ProviderPrefix { env: None, ..entry(prefix, ProviderKind::OpenAiCompatible, "") }
}

const fn noted(entry: ProviderPrefix, note: &'static str) -> ProviderPrefix {
    ProviderPrefix { note, ..entry }
}

const fn rule(entry: ProviderPrefix, rule: BaseRule) -> ProviderPrefix {
    ProviderPrefix { rule, ..entry }
}

const OLLAMA: &str = "Ollama is reached through its OpenAI-compatible API below /v1";
const OLLAMA_BASE: &str = "http://localhost:11434/v1";

/// Providers with a counterpart in the configuration.
pub(in crate::import) const PREFIXES: &[ProviderPrefix] = &[
    entry("openai", ProviderKind::OpenAi, "OPENAI_API_KEY"),
    rule(entry("azure", ProviderKind::Azure, "AZURE_API_KEY"), BaseRule::Azure),
    rule(entry("anthropic", ProviderKind::Anthropic, "ANTHROPIC_API_KEY"), BaseRule::Root),
    entry("gemini", ProviderKind::Gemini, "GEMINI_API_KEY"),
    noted(
        compatible("cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        "conversations use Cohere's OpenAI-compatible API",
    ),
    entry("jina_ai", ProviderKind::Jina, "JINA_AI_API_KEY"),
    entry("voyage", ProviderKind::Voyage, "VOYAGE_API_KEY"),
    ProviderPrefix {
        base: Some("https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
        ..entry("dashscope", ProviderKind::DashScope, "DASHSCOPE_API_KEY")
    },
    entry("volcengine", ProviderKind::Ark, "VOLCENGINE_API_KEY"),
    dialect(compatible("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"), "mistral"),
    dialect(compatible("codestral", "https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"), "mistral"),
    dialect(compatible("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"), "groq"),
    dialect(compatible("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"), "deepseek"),
    dialect(compatible("xai", "https://api.x.ai/v1", "XAI_API_KEY"), "xai"),
    dialect(compatible("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"), "openrouter"),
    dialect(compatible("together_ai", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"), "together"),
    dialect(
        compatible("fireworks_ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        "fireworks",
    ),
    dialect(compatible("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"), "moonshot"),
    dialect(compatible("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"), "glm"),
    compatible("perplexity", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    compatible("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    compatible("nvidia_nim", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    compatible("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    compatible("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    compatible("hyperbolic", "https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    compatible("novita", "https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
    compatible("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    compatible("meta_llama", "https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    compatible("ai21", "https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    compatible("ai21_chat", "https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    noted(
        compatible("github", "https://models.inference.ai.azure.com", "GITHUB_API_KEY"),
        "GitHub Models has a newer address, https://models.github.ai/inference, with other model names",
    ),
    noted(
        compatible("huggingface", "https://router.huggingface.co/v1", "HUGGINGFACE_API_KEY"),
        "the models are requested through Hugging Face's router, which serves conversations only",
    ),
    dialect(server("hosted_vllm"), "vllm"),
    dialect(server("vllm"), "vllm"),
    server("openai_like"),
    server("custom_openai"),
    server("lm_studio"),
    server("llamafile"),
    server("xinference"),
    server("infinity"),
    server("litellm_proxy"),
    server("databricks"),
    server("cloudflare"),
    noted(
        rule(
            dialect(ProviderPrefix { base: Some(OLLAMA_BASE), ..server("ollama") }, "ollama"),
            BaseRule::Root,
        ),
        OLLAMA,
    ),
    noted(
        rule(
            dialect(ProviderPrefix { base: Some(OLLAMA_BASE), ..server("ollama_chat") }, "ollama"),
            BaseRule::Root,
        ),
        OLLAMA,
    ),
];

/// Prefixes without a counterpart, with the reason.
pub(in crate::import) const UNSUPPORTED: &[(&str, &str)] = &[
    ("sagemaker", "the gateway has no provider kind for Amazon SageMaker"),
    ("sagemaker_chat", "the gateway has no provider kind for Amazon SageMaker"),
    ("watsonx", "the gateway has no provider kind for watsonx.ai"),
    ("replicate", "the gateway has no provider kind for Replicate"),
    ("predibase", "the gateway has no provider kind for Predibase"),
    ("petals", "the gateway has no provider kind for Petals"),
    ("triton", "the gateway has no provider kind for Triton"),
    ("oci", "the gateway has no provider kind for Oracle Cloud"),
    ("snowflake", "the gateway has no provider kind for Snowflake"),
    ("github_copilot", "the gateway has no provider kind for GitHub Copilot"),
    (
        "text-completion-openai",
        "the gateway has no endpoint for plain text completions; use a model for conversations",
    ),
    ("text-completion-codestral", "the gateway has no endpoint for fill-in-the-middle completions"),
    (
        "auto_router",
        "the gateway does not choose a model by the content of a request; let clients name the model",
    ),
    ("assemblyai", "the gateway has no endpoint for audio"),
    ("deepgram", "the gateway has no endpoint for audio"),
    ("elevenlabs", "the gateway has no endpoint for audio"),
];

/// Finds the provider of a prefix.
pub(in crate::import) fn find(prefix: &str) -> Option<ProviderPrefix> {
    PREFIXES.iter().find(|entry| entry.prefix == prefix).copied()
}

/// Guesses the prefix of a model without one, as LiteLLM does from its list of models.
pub(in crate::import) fn prefix_of(model: &str) -> Option<&'static str> {
    const STARTS: &[(&str, &[&str])] = &[
        ("openai", &["gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-", "dall-e-", "sora-", "codex-"]),
        ("anthropic", &["claude-"]),
        ("gemini", &["gemini-", "gemini/"]),
        ("cohere", &["command-", "embed-english-", "embed-multilingual-", "rerank-"]),
        ("deepseek", &["deepseek-chat", "deepseek-reasoner"]),
    ];
    let starts = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
    STARTS.iter().find(|(_, names)| starts(names)).map(|(prefix, _)| *prefix)
}
