//! Embedding and rerank endpoints: paths and request shapes, by provider kind and model name.

use super::profile::KnownModel;
use super::{Provider, ProviderKind, bedrock};
use crate::canonical::embed::{EmbedDialect, EmbedShape, PurposeWords};
use crate::canonical::rank::{RankDialect, RankShape};
use crate::wire::Api;

/// Path suffixes of DashScope's three APIs: OpenAI-compatible, the compatible API for rerank, and its native API.
const COMPATIBLE: &str = "/compatible-mode/v1";
const BESIDE: &str = "/compatible-api/v1";
const OWN: &str = "/api/v1";

impl Provider {
    /// Returns the embedding profile of a model for requests through `api`.
    pub fn embedding(&self, api: Api, model: &str) -> EmbedDialect {
        const LIST: EmbedDialect = EmbedDialect::LIST;
        if self.kind == ProviderKind::Vertex {
            return vertex(api, &self.known(model));
        }
        if api == Api::EmbedContent {
            // At most 100 contents. Source: Gemini API, "Batch requests".
            return EmbedDialect {
                shape: EmbedShape::Parts,
                batch: 100,
                dimensions: "outputDimensionality",
                purpose: "taskType",
                words: PurposeWords::Tasks,
                base64: false,
                tokens: false,
                plain: false,
            };
        }
        match self.kind {
            ProviderKind::Cohere => EmbedDialect {
                shape: EmbedShape::Texts,
                batch: 96,
                dimensions: "output_dimension",
                purpose: "input_type",
                words: PurposeWords::Search,
                base64: false,
                tokens: false,
                plain: false,
            },
            ProviderKind::Voyage => EmbedDialect {
                batch: 1_000,
                dimensions: "output_dimension",
                purpose: "input_type",
                words: PurposeWords::Sides,
                tokens: false,
                plain: false,
                ..LIST
            },
            // Jina's name for base64 differs from OpenAI's: request numbers, and convert them in the gateway.
            ProviderKind::Jina => EmbedDialect {
                purpose: "task",
                words: PurposeWords::Dotted,
                base64: false,
                tokens: false,
                plain: false,
                ..LIST
            },
            ProviderKind::DashScope => {
                // 10 texts, or 25 for the first two versions. Source: Model Studio, "Text embedding".
                let batch = if model.ends_with("-v1") || model.ends_with("-v2") { 25 } else { 10 };
                if self.is_own_dashscope() {
                    EmbedDialect {
                        shape: EmbedShape::Nested,
                        batch,
                        dimensions: "dimension",
                        purpose: "text_type",
                        words: PurposeWords::Sides,
                        base64: false,
                        tokens: false,
                        plain: false,
                    }
                } else {
                    EmbedDialect { batch, tokens: false, ..LIST }
                }
            }
            ProviderKind::Bedrock => bedrock::embedding(&self.known(model)),
            // 256 texts. Source: Volcengine Ark, "Text embedding".
            ProviderKind::Ark => EmbedDialect { batch: 256, tokens: false, ..LIST },
            // TEI returns the name of its own model, whatever the request names.
            ProviderKind::Tei => EmbedDialect { batch: 32, tokens: false, plain: false, ..LIST },
            _ => LIST,
        }
    }

    /// Returns the rerank profile of a model.
    pub fn ranking(&self, model: &str) -> RankDialect {
        const PLAIN: RankDialect = RankDialect::PLAIN;
        match self.kind {
            ProviderKind::Voyage => RankDialect { top: "top_k", ..PLAIN },
            ProviderKind::Bedrock => bedrock::ranking(&self.known(model)),
            ProviderKind::DashScope if self.ranks_in_own_words(model) => {
                RankDialect { shape: RankShape::Nested, batch: 500, ..PLAIN }
            }
            ProviderKind::DashScope => RankDialect { batch: 500, ..PLAIN },
            // 32 is the default of the server's maximum client batch size.
            ProviderKind::Tei => {
                RankDialect { shape: RankShape::Texts, batch: 32, top: "", extensions: false }
            }
            _ => PLAIN,
        }
    }

    /// Returns whether the base URL is that of DashScope's native API, not of an OpenAI-compatible one.
    fn is_own_dashscope(&self) -> bool {
        let prefix = self.base.prefix();
        prefix.ends_with(OWN) && !prefix.ends_with(COMPATIBLE) && !prefix.ends_with(BESIDE)
    }

    /// Returns the common prefix of DashScope's APIs.
    pub(super) fn dashscope_root(&self) -> &str {
        let prefix = self.base.prefix();
        let root = [COMPATIBLE, BESIDE, OWN].into_iter().find_map(|end| prefix.strip_suffix(end));
        root.unwrap_or(prefix)
    }

    /// Returns the base path of DashScope's native API, whichever of the three is configured.
    pub(super) fn native_dashscope(&self) -> String {
        format!("{}{OWN}", self.dashscope_root())
    }

    /// Returns whether a rerank model needs the native API: the older models are available there only.
    fn ranks_in_own_words(&self, model: &str) -> bool {
        self.is_own_dashscope() || model.starts_with("gte-")
    }

    /// Returns the path of a resource that differs from the common layout, or `None` if it does not.
    pub(super) fn special_path(&self, api: Api, model: &str) -> Option<String> {
        let prefix = self.base.prefix();
        match (self.kind, api) {
            (ProviderKind::Cohere, Api::Embeddings) => Some(format!("{prefix}/embed")),
            (ProviderKind::Tei, Api::Embeddings) => Some(format!("{}/v1/embeddings", without(prefix, "/v1"))),
            (ProviderKind::Tei, Api::Rerank) => Some(format!("{}/rerank", without(prefix, "/v1"))),
            (ProviderKind::DashScope, Api::Embeddings) if self.is_own_dashscope() => {
                Some(format!("{prefix}/services/embeddings/text-embedding/text-embedding"))
            }
            (ProviderKind::DashScope, Api::Rerank) => {
                let root = self.dashscope_root();
                Some(if self.ranks_in_own_words(model) {
                    format!("{root}{OWN}/services/rerank/text-rerank/text-rerank")
                } else {
                    format!("{root}{BESIDE}/reranks")
                })
            }
            _ => None,
        }
    }
}

/// Returns the embedding profile of a model at Vertex AI: the older models have `predict`, for 250 texts or for one, and
/// the newer ones `embedContent`, which takes one content; there is no method for several. Source: Vertex AI, "Text
/// embeddings API", "Multimodal embeddings with Gemini".
fn vertex(api: Api, known: &KnownModel) -> EmbedDialect {
    let is_content = api == Api::EmbedContent;
    EmbedDialect {
        shape: if is_content { EmbedShape::Content } else { EmbedShape::Instances },
        batch: if is_content || known.form() == "text" { 1 } else { 250 },
        dimensions: "outputDimensionality",
        purpose: "taskType",
        words: PurposeWords::Tasks,
        base64: false,
        tokens: false,
        plain: false,
    }
}

fn without<'t>(text: &'t str, end: &str) -> &'t str {
    text.strip_suffix(end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_embeddings_and_rerank_depends_on_the_provider() {
        for (kind, base, api, model, path) in [
            (ProviderKind::OpenAi, "https://h/v1", Api::Embeddings, "m", "/v1/embeddings"),
            (ProviderKind::OpenAiCompatible, "http://h/v1", Api::Rerank, "m", "/v1/rerank"),
            (ProviderKind::Cohere, "https://h/v2", Api::Embeddings, "m", "/v2/embed"),
            (ProviderKind::Cohere, "https://h/v2", Api::Rerank, "m", "/v2/rerank"),
            (ProviderKind::Voyage, "https://h/v1", Api::Rerank, "m", "/v1/rerank"),
            (
                ProviderKind::Vertex,
                "https://h/v1/projects/p/locations/l",
                Api::Embeddings,
                "text-embedding-005",
                "/v1/projects/p/locations/l/publishers/google/models/text-embedding-005:predict",
            ),
            (ProviderKind::Tei, "http://h", Api::Embeddings, "m", "/v1/embeddings"),
            (ProviderKind::Tei, "http://h/v1", Api::Rerank, "m", "/rerank"),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Embeddings,
                "m",
                "/compatible-mode/v1/embeddings",
            ),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Rerank,
                "qwen3-rerank",
                "/compatible-api/v1/reranks",
            ),
            (
                ProviderKind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Rerank,
                "gte-rerank-v2",
                "/api/v1/services/rerank/text-rerank/text-rerank",
            ),
            (
                ProviderKind::DashScope,
                "https://h/api/v1",
                Api::Embeddings,
                "m",
                "/api/v1/services/embeddings/text-embedding/text-embedding",
            ),
            (
                ProviderKind::DashScope,
                "https://h/api/v1",
                Api::Rerank,
                "m",
                "/api/v1/services/rerank/text-rerank/text-rerank",
            ),
        ] {
            assert_eq!(Provider::at(kind, base).path(api, model, None), path, "{} {base}", kind.name());
        }
    }

    #[test]
    fn vertex_embeds_by_predict_or_by_one_content() {
        let vertex = Provider::at(ProviderKind::Vertex, "https://h/v1/projects/p/locations/l");
        for (model, api, shape, batch) in [
            ("text-embedding-005", Api::Embeddings, EmbedShape::Instances, 250),
            ("gemini-embedding-001", Api::Embeddings, EmbedShape::Instances, 1),
            // No method takes several contents.
            ("gemini-embedding-2-preview", Api::EmbedContent, EmbedShape::Content, 1),
        ] {
            let other = if api == Api::Embeddings { Api::EmbedContent } else { Api::Embeddings };
            assert_eq!((vertex.serves(api, model), vertex.serves(other, model)), (true, false), "{model}");
            let dialect = vertex.embedding(api, model);
            assert_eq!((dialect.shape, dialect.batch), (shape, batch), "{model}");
        }
    }

    #[test]
    fn vertex_in_express_mode_takes_an_api_key() {
        for (base, name) in [
            ("https://aiplatform.googleapis.com/v1", "x-goog-api-key"),
            ("https://aiplatform.googleapis.com/v1/projects/p/locations/l", "authorization"),
        ] {
            let mut vertex = Provider::at(ProviderKind::Vertex, base);
            vertex.set_credential("key").unwrap();
            assert_eq!(vertex.credential(Api::Generate).unwrap().0.as_str(), name, "{base}");
            let path =
                vertex.path(Api::Generate, "gemini-2.5-flash", Some(crate::wire::path::Action::Generate));
            assert!(path.ends_with("/publishers/google/models/gemini-2.5-flash:generateContent"), "{path}");
        }
    }

    #[test]
    fn dashscope_request_shape_depends_on_the_base_url() {
        let compatible = Provider::at(ProviderKind::DashScope, "https://h/compatible-mode/v1");
        let own = Provider::at(ProviderKind::DashScope, "https://h/api/v1");
        assert_eq!(compatible.embedding(Api::Embeddings, "text-embedding-v4").shape, EmbedShape::List);
        assert_eq!(own.embedding(Api::Embeddings, "text-embedding-v4").shape, EmbedShape::Nested);
        assert_eq!(own.embedding(Api::Embeddings, "text-embedding-v2").batch, 25);
        assert_eq!(compatible.ranking("qwen3-rerank").shape, RankShape::Plain);
        assert_eq!(own.ranking("qwen3-rerank").shape, RankShape::Nested);
    }
}
