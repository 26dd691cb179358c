//! Rerank request: documents to sort by relevance to a query, and the request shapes of providers.

use super::request::Extra;
use json::JsonStr;

/// Rerank request, borrowed from the request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank<'a> {
    /// Search query.
    pub query: JsonStr<'a>,
    /// Documents to sort, in the order of the request.
    pub documents: Vec<JsonStr<'a>>,
    /// Maximum number of results (`top_n`); `None` means all documents.
    pub top: Option<usize>,
    /// Whether the response repeats the documents.
    pub echo: bool,
    /// Members without a field above, in the order of the request.
    pub extra: Vec<Extra<'a>>,
}

/// Shape of a provider's rerank request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankShape {
    /// `{model, query, documents, ...}`.
    Plain,
    /// `{model, input: {query, documents}, parameters}`.
    Nested,
    /// `{query, texts}`: a server that hosts one model.
    Texts,
    /// `{query, documents}`, with this `api_version`: the model is in the path. 0 for none.
    Unnamed(u8),
}

/// Rerank capabilities of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankDialect {
    /// Shape of the request.
    pub shape: RankShape,
    /// Maximum number of documents in one request.
    pub batch: usize,
    /// Name of the member that limits the number of results; empty if the provider has no such member.
    pub top: &'static str,
    /// Whether unknown members are passed on.
    pub extensions: bool,
}

impl RankDialect {
    /// Request form that most providers share.
    pub const PLAIN: RankDialect =
        RankDialect { shape: RankShape::Plain, batch: 1_000, top: "top_n", extensions: true };
}
