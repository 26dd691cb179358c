//! Cohere: `POST /v2/embed` and `POST /v2/rerank`.

use serde_json::json;

use super::{Answered, Asked, Refusal, number, query, ranked, texts, tokens, vector, word};
use crate::embedding;

/// Maximum number of texts, and of documents.
const TEXTS: usize = 96;
const DOCUMENTS: usize = 1_000;

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/v2/embed" => embed(asked),
        "/v2/rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "page not found")),
    }
}

fn embed(asked: &Asked<'_>) -> Answered {
    asked.only(&[
        "model",
        "input_type",
        "texts",
        "images",
        "inputs",
        "max_tokens",
        "output_dimension",
        "embedding_types",
        "truncate",
    ])?;
    asked.model()?;
    let kinds = ["search_document", "search_query", "classification", "clustering", "image"];
    let purpose = word(asked.body, "input_type", &kinds)?;
    if purpose.is_none() {
        return Err(Refusal::invalid("valid input_type must be provided with the provided model"));
    }
    word(asked.body, "truncate", &["NONE", "START", "END"])?;
    let inputs = texts(asked.body.get("texts"), "texts", TEXTS)?;
    let dimensions = number(asked.body, "output_dimension")?;
    if dimensions.is_some_and(|dimensions| ![256, 512, 1_024, 1_536].contains(&dimensions)) {
        return Err(Refusal::invalid("output_dimension must be one of 256, 512, 1024, 1536"));
    }
    asked.staged(inputs.last().unwrap_or(&""), || {
        let vectors = inputs.iter().map(|input| embedding::numbers(&vector(input, purpose, dimensions)));
        json!({
            "id": asked.id, "texts": inputs, "response_type": "embeddings_by_type",
            "embeddings": {"float": vectors.collect::<Vec<_>>()},
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens(&inputs)}},
        })
    })
}

fn rerank(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"])?;
    asked.model()?;
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("documents"), "documents", DOCUMENTS)?;
    let top = number(asked.body, "top_n")?;
    asked.staged(query, || {
        let results = ranked(query, &documents, top).into_iter();
        let results = results.map(|(index, score)| json!({"index": index, "relevance_score": score}));
        json!({
            "id": asked.id, "results": results.collect::<Vec<_>>(),
            "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": documents.len().div_ceil(100)}},
        })
    })
}
