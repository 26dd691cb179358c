//! Embedding requests and the request shapes of providers.

use std::borrow::Cow;

use super::request::Extra;
use json::RawJson;

/// Embedding request, borrowed from the request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embed<'a> {
    /// Inputs, in the order of the request.
    pub items: Vec<EmbedItem<'a>>,
    /// Whether vectors are returned as base64 of little-endian 32-bit floats.
    pub base64: bool,
    /// Members without a field above, in the order of the request.
    pub extra: Vec<Extra<'a>>,
}

/// One input of an embedding request.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedItem<'a> {
    /// The input.
    pub input: EmbedInput<'a>,
    /// Purpose of the vector.
    pub purpose: Option<Purpose>,
    /// Number of dimensions; `None` for the model's default.
    pub dimensions: Option<u64>,
    /// Members of the item that only its own format has.
    pub extra: Vec<Extra<'a>>,
}

/// Input to embed.
#[derive(Clone, Debug, PartialEq)]
pub enum EmbedInput<'a> {
    /// Text, as the inside of a JSON string.
    Text(Cow<'a, str>),
    /// Token ids: an array of integers.
    Tokens(RawJson<'a>),
    /// Multimodal parts: an object that only the format it came in can represent.
    Parts(RawJson<'a>),
}

/// Purpose of a vector. Providers compute different vectors for queries and for documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Search query.
    Query,
    /// Document to be found.
    Document,
    /// Symmetric similarity.
    Similarity,
    /// Classification.
    Classification,
    /// Clustering.
    Clustering,
    /// Question to be answered.
    Question,
    /// Statement to be verified.
    Fact,
    /// Query for code.
    Code,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Purpose; 8] = [
        Purpose::Query,
        Purpose::Document,
        Purpose::Similarity,
        Purpose::Classification,
        Purpose::Clustering,
        Purpose::Question,
        Purpose::Fact,
        Purpose::Code,
    ];

    /// Returns true for the query side of a search.
    pub const fn is_query(self) -> bool {
        matches!(self, Purpose::Query | Purpose::Question | Purpose::Fact | Purpose::Code)
    }
}

/// Shape of a provider's embedding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedShape {
    /// `{model, input: [...]}`.
    List,
    /// One content with parts for each text, each with its own settings.
    Parts,
    /// `{model, texts: [...], embedding_types}`.
    Texts,
    /// `{texts: [...], embedding_types}`: the model is in the path.
    UnnamedTexts,
    /// `{inputText}`: one text, and the model is in the path.
    InputText,
    /// `{model, input: {texts: [...]}, parameters}`.
    Nested,
    /// `{instances: [{content, task_type}], parameters}`: the model is in the path.
    Instances,
    /// One content with parts: the model is in the path only.
    Content,
}

/// Vocabulary that a provider has for purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurposeWords {
    /// None: the provider has no such setting.
    None,
    /// `RETRIEVAL_QUERY` and so on: one word for each purpose.
    Tasks,
    /// `search_query`, `search_document`, `classification`, `clustering`; the provider requires one of them.
    Search,
    /// `query` or `document`.
    Sides,
    /// `retrieval.query`, `retrieval.passage`, `text-matching`, `classification`, `separation`.
    Dotted,
}

/// Embedding capabilities of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedDialect {
    /// Shape of the request.
    pub shape: EmbedShape,
    /// Maximum number of texts in one request.
    pub batch: usize,
    /// Name of the member for the number of dimensions; empty if the provider has none.
    pub dimensions: &'static str,
    /// Name of the member for the purpose; empty if the provider has none.
    pub purpose: &'static str,
    /// Vocabulary of that member.
    pub words: PurposeWords,
    /// Whether `encoding_format` may request base64.
    pub base64: bool,
    /// Whether token ids are accepted as well as texts.
    pub tokens: bool,
    /// Whether a request in the provider's own format may pass unchanged, unknown members included.
    pub plain: bool,
}

impl EmbedDialect {
    /// Request form that most providers share.
    pub const LIST: EmbedDialect = EmbedDialect {
        shape: EmbedShape::List,
        batch: 2_048,
        dimensions: "dimensions",
        purpose: "",
        words: PurposeWords::None,
        base64: true,
        tokens: true,
        plain: true,
    };
}

impl PurposeWords {
    /// Returns the word for a purpose; `None` if no word fits or none is needed.
    pub const fn word(self, purpose: Option<Purpose>) -> Option<&'static str> {
        use Purpose::{Classification, Clustering, Code, Document, Fact, Query, Question, Similarity};
        Some(match (self, purpose) {
            (PurposeWords::None, _) => return None,
            (PurposeWords::Search, None) => "search_document",
            (_, None) => return None,
            (PurposeWords::Tasks, Some(purpose)) => match purpose {
                Query => "RETRIEVAL_QUERY",
                Document => "RETRIEVAL_DOCUMENT",
                Similarity => "SEMANTIC_SIMILARITY",
                Classification => "CLASSIFICATION",
                Clustering => "CLUSTERING",
                Question => "QUESTION_ANSWERING",
                Fact => "FACT_VERIFICATION",
                Code => "CODE_RETRIEVAL_QUERY",
            },
            (PurposeWords::Search, Some(purpose)) => match purpose {
                Query | Question | Fact | Code => "search_query",
                Document | Similarity => "search_document",
                Classification => "classification",
                Clustering => "clustering",
            },
            (PurposeWords::Sides, Some(purpose)) => match purpose {
                Query | Question | Fact | Code => "query",
                Document => "document",
                // Neither query nor document: this vocabulary has no word, and the member is left out.
                Similarity | Classification | Clustering => return None,
            },
            (PurposeWords::Dotted, Some(purpose)) => match purpose {
                Query | Question | Fact | Code => "retrieval.query",
                Document => "retrieval.passage",
                Similarity => "text-matching",
                Classification => "classification",
                Clustering => "separation",
            },
        })
    }

    /// Returns the purpose of a word from any provider's vocabulary; `None` for an unknown word.
    pub fn purpose(word: &str) -> Option<Purpose> {
        let all = [PurposeWords::Tasks, PurposeWords::Search, PurposeWords::Sides, PurposeWords::Dotted];
        let means = |purpose: &Purpose| all.iter().any(|words| words.word(Some(*purpose)) == Some(word));
        Purpose::ALL.into_iter().find(means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_word_maps_to_its_first_purpose() {
        for (word, purpose) in [
            ("RETRIEVAL_QUERY", Some(Purpose::Query)),
            ("FACT_VERIFICATION", Some(Purpose::Fact)),
            ("search_query", Some(Purpose::Query)),
            ("search_document", Some(Purpose::Document)),
            ("document", Some(Purpose::Document)),
            ("separation", Some(Purpose::Clustering)),
            ("classification", Some(Purpose::Classification)),
            ("image", None),
        ] {
            assert_eq!(PurposeWords::purpose(word), purpose, "{word}");
        }
    }
}
