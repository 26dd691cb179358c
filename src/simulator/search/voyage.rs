//! Voyage: `POST /v1/embeddings` and `POST /v1/rerank`.

use serde_json::{Value, json};

use super::{Answered, Asked, Refusal, number, query, ranked, texts, tokens, vector, word};
use crate::embedding;

/// Maximum number of texts, and of documents.
const MOST: usize = 1_000;

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/v1/embeddings" => embed(asked),
        "/v1/rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "Not Found")),
    }
}

fn embed(asked: &Asked<'_>) -> Answered {
    asked.only(&[
        "input",
        "model",
        "input_type",
        "truncation",
        "output_dimension",
        "output_dtype",
        "encoding_format",
    ])?;
    let model = asked.model()?;
    let inputs = texts(asked.body.get("input"), "input", MOST)?;
    let purpose = word(asked.body, "input_type", &["query", "document"])?;
    let base64 = word(asked.body, "encoding_format", &["base64"])?.is_some();
    let dimensions = number(asked.body, "output_dimension")?;
    asked.staged(inputs.last().unwrap_or(&""), || {
        let vector = |input: &&str| {
            let vector = vector(input, purpose, dimensions);
            if base64 { json!(embedding::base64(&vector)) } else { embedding::numbers(&vector) }
        };
        let entry =
            |(index, input)| json!({"object": "embedding", "embedding": vector(input), "index": index});
        let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
        json!({"object": "list", "data": data, "model": model, "usage": {"total_tokens": tokens(&inputs)}})
    })
}

fn rerank(asked: &Asked<'_>) -> Answered {
    asked.only(&["query", "documents", "model", "top_k", "return_documents", "truncation"])?;
    let model = asked.model()?;
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("documents"), "documents", MOST)?;
    let top = number(asked.body, "top_k")?;
    asked.staged(query, || {
        let results = ranked(query, &documents, top).into_iter();
        let data = results.map(|(index, score)| json!({"relevance_score": score, "index": index}));
        json!({
            "object": "list", "data": data.collect::<Vec<_>>(), "model": model,
            "usage": {"total_tokens": tokens(&documents)},
        })
    })
}
