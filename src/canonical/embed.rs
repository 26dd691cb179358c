//! Texts that are to become vectors, and how a provider wants to be asked for them.

use std::borrow::Cow;

use super::request::Extra;
use crate::json::RawJson;

/// What is to be embedded, borrowed from the request's body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embed<'a> {
    /// In the order of the request.
    pub items: Vec<EmbedItem<'a>>,
    /// Vectors are wanted as base64 of little-endian 32-bit floats.
    pub base64: bool,
    /// Members that have no place above, with their names and in their order.
    pub extra: Vec<Extra<'a>>,
}

/// One thing to embed.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedItem<'a> {
    /// What it is.
    pub input: EmbedInput<'a>,
    /// What the vector is for.
    pub purpose: Option<Purpose>,
    /// How many numbers the vector has; the model's own number where nothing is said.
    pub dimensions: Option<u64>,
    /// Members of the item that only its own format has.
    pub extra: Vec<Extra<'a>>,
}

/// What is embedded.
#[derive(Clone, Debug, PartialEq)]
pub enum EmbedInput<'a> {
    /// A text, as the inside of a JSON string.
    Text(Cow<'a, str>),
    /// Tokens of a text: an array of whole numbers.
    Tokens(RawJson<'a>),
    /// Parts of which some are no text: an object that only the format it came in has a word for.
    Parts(RawJson<'a>),
}

/// What a vector is for: providers make different ones of questions and of what answers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Something that is searched for.
    Query,
    /// Something that is found.
    Document,
    /// To be compared with its like.
    Similarity,
    /// To be put into a class.
    Classification,
    /// To be grouped with its like.
    Clustering,
    /// A question.
    Question,
    /// A statement that is to be checked.
    Fact,
    /// A question about code.
    Code,
}

impl Purpose {
    /// All of them.
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

    /// Whether it is the side that asks.
    pub const fn asks(self) -> bool {
        matches!(self, Purpose::Query | Purpose::Question | Purpose::Fact | Purpose::Code)
    }
}

/// How a provider's request for vectors is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedShape {
    /// `{model, input: [...]}`.
    List,
    /// A content of parts for each text, each with settings of its own.
    Parts,
    /// `{model, texts: [...], embedding_types}`.
    Texts,
    /// `{model, input: {texts: [...]}, parameters}`.
    Nested,
}

/// The words for a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurposeWords {
    /// None: the provider cannot be told.
    None,
    /// `RETRIEVAL_QUERY` and so on: one for each.
    Tasks,
    /// `search_query`, `search_document`, `classification`, `clustering`; one of them must be said.
    Search,
    /// `query` or `document`.
    Sides,
    /// `retrieval.query`, `retrieval.passage`, `text-matching`, `classification`, `separation`.
    Dotted,
}

/// How vectors are asked for at a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedDialect {
    /// The form of the request.
    pub shape: EmbedShape,
    /// Texts in one request at most.
    pub batch: usize,
    /// The member for the number of dimensions; empty where it cannot be asked for.
    pub dimensions: &'static str,
    /// The member for the purpose; empty where there is none.
    pub purpose: &'static str,
    /// Its words.
    pub words: PurposeWords,
    /// `encoding_format` may ask for base64.
    pub base64: bool,
    /// Tokens are taken as well as texts.
    pub tokens: bool,
    /// A request in the provider's own words may be passed on as it is, with members that nobody here knows.
    pub plain: bool,
}

impl EmbedDialect {
    /// The form that most providers share.
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
    /// The word for a purpose; nothing where none fits, or none need be said.
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
                // For what is neither, these providers want nothing said.
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

    /// The purpose that a word means, in whichever provider's words.
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
    fn words_mean_the_purpose_that_they_stand_for_first() {
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
