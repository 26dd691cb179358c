//! Documents that are to be put in order for a query, and how a provider wants to be asked for it.

use super::request::Extra;
use crate::json::JsonStr;

/// What is to be put in order, borrowed from the request's body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank<'a> {
    /// What is searched for.
    pub query: JsonStr<'a>,
    /// What is put in order.
    pub documents: Vec<JsonStr<'a>>,
    /// How many of them are wanted; all where nothing is said.
    pub top: Option<usize>,
    /// The answer repeats the documents.
    pub echo: bool,
    /// Members that have no place above, with their names and in their order.
    pub extra: Vec<Extra<'a>>,
}

/// How a provider's request for an order is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankShape {
    /// `{model, query, documents, ...}`.
    Plain,
    /// `{model, input: {query, documents}, parameters}`.
    Nested,
    /// `{query, texts}`: a server of one model.
    Texts,
}

/// How an order is asked for at a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankDialect {
    /// The form of the request.
    pub shape: RankShape,
    /// Documents in one request at most.
    pub batch: usize,
    /// The member for how many are wanted; empty where it cannot be asked for.
    pub top: &'static str,
    /// Members that nobody here knows are passed on.
    pub extensions: bool,
}

impl RankDialect {
    /// The form that most providers share.
    pub const PLAIN: RankDialect =
        RankDialect { shape: RankShape::Plain, batch: 1_000, top: "top_n", extensions: true };
}
