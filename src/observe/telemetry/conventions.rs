//! Semantic conventions: the names that OpenTelemetry defines for generative AI, by version.
//!
//! All of them have the status "Development", and names change between versions. What the gateway emits is therefore
//! pinned, and a newer version is an option: OpenTelemetry asks instrumentations for that
//! (`OTEL_SEMCONV_STABILITY_OPT_IN`).

/// Version of the GenAI conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conventions {
    /// v1.41.0 of the semantic conventions: the last release that has them, before they moved to a repository of their
    /// own.
    #[default]
    V1_41,
    /// v0.1.0 of the GenAI semantic conventions: the first release of that repository.
    GenAi0_1,
}

impl Conventions {
    /// All versions.
    pub const ALL: [Conventions; 2] = [Conventions::V1_41, Conventions::GenAi0_1];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Conventions::V1_41 => "1.41.0",
            Conventions::GenAi0_1 => "genai-0.1.0",
        }
    }

    /// Returns the version of a name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        Conventions::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Returns the schema URL; empty for a version whose schema is not published.
    pub const fn schema_url(self) -> &'static str {
        match self {
            Conventions::V1_41 => "https://opentelemetry.io/schemas/1.41.0",
            Conventions::GenAi0_1 => "",
        }
    }

    /// Returns the attribute of input tokens that were written to the provider's cache.
    pub const fn cache_write_tokens(self) -> &'static str {
        match self {
            Conventions::V1_41 => "gen_ai.usage.cache_creation.input_tokens",
            Conventions::GenAi0_1 => "gen_ai.usage.cache_write.input_tokens",
        }
    }

    /// Returns whether spans have the attributes that came after v1.41.0: `gen_ai.request.stream`,
    /// `gen_ai.response.time_to_first_chunk`, `gen_ai.usage.reasoning.output_tokens`.
    pub const fn has_stream_attributes(self) -> bool {
        matches!(self, Conventions::GenAi0_1)
    }

    /// Returns the names of the histograms of input and output tokens of a request, and whether a data point has the
    /// attribute `gen_ai.token.type`.
    pub const fn token_histograms(self) -> [&'static str; 2] {
        match self {
            Conventions::V1_41 => ["gen_ai.client.token.usage"; 2],
            Conventions::GenAi0_1 => [
                "gen_ai.client.inference.operation.input_tokens",
                "gen_ai.client.inference.operation.output_tokens",
            ],
        }
    }
}

/// Returns the well-known value of `gen_ai.operation.name` for an endpoint of the gateway. Endpoints without one keep
/// their own name.
pub fn operation_name(endpoint: &'static str) -> &'static str {
    match endpoint {
        "chat" | "messages" | "responses" | "converse" | "invoke" => "chat",
        "generate" => "generate_content",
        "embeddings" | "embed_content" => "embeddings",
        other => other,
    }
}
