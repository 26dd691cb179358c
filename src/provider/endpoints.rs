//! How providers are asked for vectors and orders, and where: one table, by the kind of provider and the name of the
//! model.

use super::{Kind, Provider};
use crate::canonical::embed::{EmbedDialect, EmbedShape, PurposeWords};
use crate::canonical::rank::{RankDialect, RankShape};
use crate::wire::Api;

/// Where DashScope's three addresses differ: what OpenAI's clients speak, what stands beside it, and its own.
const COMPATIBLE: &str = "/compatible-mode/v1";
const BESIDE: &str = "/compatible-api/v1";
const OWN: &str = "/api/v1";

impl Provider {
    /// How vectors of a model are asked for through an API.
    pub fn embedding(&self, api: Api, model: &str) -> EmbedDialect {
        const LIST: EmbedDialect = EmbedDialect::LIST;
        if api == Api::EmbedContent {
            // "Batch requests": at most 100 contents.
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
            Kind::Cohere => EmbedDialect {
                shape: EmbedShape::Texts,
                batch: 96,
                dimensions: "output_dimension",
                purpose: "input_type",
                words: PurposeWords::Search,
                base64: false,
                tokens: false,
                plain: false,
            },
            Kind::Voyage => EmbedDialect {
                batch: 1_000,
                dimensions: "output_dimension",
                purpose: "input_type",
                words: PurposeWords::Sides,
                tokens: false,
                plain: false,
                ..LIST
            },
            // It has another word for base64 than others of its form; numbers are asked for and turned here.
            Kind::Jina => EmbedDialect {
                purpose: "task",
                words: PurposeWords::Dotted,
                base64: false,
                tokens: false,
                plain: false,
                ..LIST
            },
            Kind::DashScope => {
                // "Text embedding": 10 texts, 25 for the first two versions.
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
            // "Text embedding": 256 texts.
            Kind::Ark => EmbedDialect { batch: 256, tokens: false, ..LIST },
            // It answers with its own model's name, whatever was asked for.
            Kind::Tei => EmbedDialect { batch: 32, tokens: false, plain: false, ..LIST },
            _ => LIST,
        }
    }

    /// How an order is asked for.
    pub fn ranking(&self, model: &str) -> RankDialect {
        const PLAIN: RankDialect = RankDialect::PLAIN;
        match self.kind {
            Kind::Voyage => RankDialect { top: "top_k", ..PLAIN },
            Kind::DashScope if self.ranks_in_own_words(model) => {
                RankDialect { shape: RankShape::Nested, batch: 500, ..PLAIN }
            }
            Kind::DashScope => RankDialect { batch: 500, ..PLAIN },
            // As many as it takes in one request unless it is started otherwise.
            Kind::Tei => RankDialect { shape: RankShape::Texts, batch: 32, top: "", extensions: false },
            _ => PLAIN,
        }
    }

    /// DashScope's base URL is its own address, not the one for OpenAI's clients.
    fn is_own_dashscope(&self) -> bool {
        let prefix = self.base.prefix();
        prefix.ends_with(OWN) && !prefix.ends_with(COMPATIBLE) && !prefix.ends_with(BESIDE)
    }

    /// What DashScope's addresses have in common.
    pub(super) fn dashscope_root(&self) -> &str {
        let prefix = self.base.prefix();
        let root = [COMPATIBLE, BESIDE, OWN].into_iter().find_map(|end| prefix.strip_suffix(end));
        root.unwrap_or(prefix)
    }

    /// DashScope's own address, whichever of the three is configured.
    pub(super) fn own_dashscope(&self) -> String {
        format!("{}{OWN}", self.dashscope_root())
    }

    /// Its older models for orders are behind its own address alone.
    fn ranks_in_own_words(&self, model: &str) -> bool {
        self.is_own_dashscope() || model.starts_with("gte-")
    }

    /// The path of a resource that is elsewhere than at other providers.
    pub(super) fn unusual_path(&self, api: Api, model: &str) -> Option<String> {
        let prefix = self.base.prefix();
        match (self.kind, api) {
            (Kind::Cohere, Api::Embeddings) => Some(format!("{prefix}/embed")),
            (Kind::Tei, Api::Embeddings) => Some(format!("{}/v1/embeddings", without(prefix, "/v1"))),
            (Kind::Tei, Api::Rerank) => Some(format!("{}/rerank", without(prefix, "/v1"))),
            (Kind::DashScope, Api::Embeddings) if self.is_own_dashscope() => {
                Some(format!("{prefix}/services/embeddings/text-embedding/text-embedding"))
            }
            (Kind::DashScope, Api::Rerank) => {
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

fn without<'t>(text: &'t str, end: &str) -> &'t str {
    text.strip_suffix(end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{BaseUrl, Setup};

    fn provider(kind: Kind, base: &str) -> Provider {
        let base = BaseUrl::parse(base).unwrap();
        Provider::new(Setup { name: "p".to_owned(), kind, apis: kind.default_apis().to_vec(), base })
    }

    #[test]
    fn each_provider_s_resources_are_where_it_has_them() {
        for (kind, base, api, model, path) in [
            (Kind::OpenAi, "https://h/v1", Api::Embeddings, "m", "/v1/embeddings"),
            (Kind::OpenAiCompatible, "http://h/v1", Api::Rerank, "m", "/v1/rerank"),
            (Kind::Cohere, "https://h/v2", Api::Embeddings, "m", "/v2/embed"),
            (Kind::Cohere, "https://h/v2", Api::Rerank, "m", "/v2/rerank"),
            (Kind::Voyage, "https://h/v1", Api::Rerank, "m", "/v1/rerank"),
            (Kind::Tei, "http://h", Api::Embeddings, "m", "/v1/embeddings"),
            (Kind::Tei, "http://h/v1", Api::Rerank, "m", "/rerank"),
            (
                Kind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Embeddings,
                "m",
                "/compatible-mode/v1/embeddings",
            ),
            (
                Kind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Rerank,
                "qwen3-rerank",
                "/compatible-api/v1/reranks",
            ),
            (
                Kind::DashScope,
                "https://h/compatible-mode/v1",
                Api::Rerank,
                "gte-rerank-v2",
                "/api/v1/services/rerank/text-rerank/text-rerank",
            ),
            (
                Kind::DashScope,
                "https://h/api/v1",
                Api::Embeddings,
                "m",
                "/api/v1/services/embeddings/text-embedding/text-embedding",
            ),
            (
                Kind::DashScope,
                "https://h/api/v1",
                Api::Rerank,
                "m",
                "/api/v1/services/rerank/text-rerank/text-rerank",
            ),
        ] {
            assert_eq!(provider(kind, base).path(api, model, None), path, "{} {base}", kind.name());
        }
    }

    #[test]
    fn dashscope_is_asked_in_the_words_of_its_address() {
        let compatible = provider(Kind::DashScope, "https://h/compatible-mode/v1");
        let own = provider(Kind::DashScope, "https://h/api/v1");
        assert_eq!(compatible.embedding(Api::Embeddings, "text-embedding-v4").shape, EmbedShape::List);
        assert_eq!(own.embedding(Api::Embeddings, "text-embedding-v4").shape, EmbedShape::Nested);
        assert_eq!(own.embedding(Api::Embeddings, "text-embedding-v2").batch, 25);
        assert_eq!(compatible.ranking("qwen3-rerank").shape, RankShape::Plain);
        assert_eq!(own.ranking("qwen3-rerank").shape, RankShape::Nested);
    }
}
