//! Jina: `POST /v1/embeddings` and `POST /v1/rerank`.

use serde_json::{Value, json};

use super::{Answered, Asked, Refusal, number, query, ranked, texts, tokens, vector, word};
use crate::embedding;

/// Maximum number of texts.
const MOST: usize = 2_048;

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/v1/embeddings" => embed(asked),
        "/v1/rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "Not Found")),
    }
}

fn embed(asked: &Asked<'_>) -> Answered {
    asked.only(&[
        "model",
        "input",
        "task",
        "dimensions",
        "embedding_type",
        "late_chunking",
        "normalized",
        "truncate",
    ])?;
    let model = asked.model()?;
    let inputs = texts(asked.body.get("input"), "input", MOST)?;
    let tasks = ["retrieval.query", "retrieval.passage", "text-matching", "classification", "separation"];
    let purpose = word(asked.body, "task", &tasks)?;
    let base64 = word(asked.body, "embedding_type", &["float", "base64"])? == Some("base64");
    let dimensions = number(asked.body, "dimensions")?;
    asked.staged(inputs.last().unwrap_or(&""), || {
        let vector = |input: &&str| {
            let vector = vector(input, purpose, dimensions);
            if base64 { json!(embedding::base64(&vector)) } else { embedding::numbers(&vector) }
        };
        let entry = |(index, input)| json!({"object": "embedding", "index": index, "embedding": vector(input)});
        let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
        let used = tokens(&inputs);
        json!({"model": model, "object": "list", "data": data, "usage": {"total_tokens": used, "prompt_tokens": used}})
    })
}

/// Returns the documents in any case: `return_documents` is ignored.
fn rerank(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "query", "documents", "top_n", "return_documents"])?;
    let model = asked.model()?;
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("documents"), "documents", MOST)?;
    let top = number(asked.body, "top_n")?;
    asked.staged(query, || {
        let result = |(index, score): (usize, f64)| {
            let document = documents.get(index).copied().unwrap_or_default();
            json!({"index": index, "relevance_score": score, "document": {"text": document}})
        };
        let results: Vec<Value> = ranked(query, &documents, top).into_iter().map(result).collect();
        json!({"model": model, "results": results, "usage": {"total_tokens": tokens(&documents)}})
    })
}
