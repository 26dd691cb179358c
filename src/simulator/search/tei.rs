//! Text Embeddings Inference: `POST /v1/embeddings` and `POST /rerank`. It serves a single model and ignores the
//! requested one.

use serde_json::{Value, json};

use super::{Answered, Asked, Refusal, query, ranked, texts, tokens, vector, word};
use crate::embedding;

/// Default maximum number of texts per request.
const MOST: usize = 32;

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/v1/embeddings" => embed(asked),
        "/rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "Not Found")),
    }
}

fn embed(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "input", "dimensions", "encoding_format", "user"])?;
    let inputs = texts(asked.body.get("input"), "input", MOST)?;
    let base64 = word(asked.body, "encoding_format", &["float", "base64"])? == Some("base64");
    let dimensions = super::number(asked.body, "dimensions")?;
    asked.staged(inputs.last().unwrap_or(&""), || {
        let vector = |input: &&str| {
            let vector = vector(input, None, dimensions);
            if base64 { json!(embedding::base64(&vector)) } else { embedding::numbers(&vector) }
        };
        let entry =
            |(index, input)| json!({"object": "embedding", "embedding": vector(input), "index": index});
        let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
        let used = tokens(&inputs);
        json!({"object": "list", "data": data, "model": "BAAI/bge-m3",
               "usage": {"prompt_tokens": used, "total_tokens": used}})
    })
}

/// TEI's rerank API has neither a limit of results nor usage.
fn rerank(asked: &Asked<'_>) -> Answered {
    asked.only(&["query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction"])?;
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("texts"), "texts", MOST)?;
    asked.staged(query, || {
        let results = ranked(query, &documents, None).into_iter();
        results.map(|(index, score)| json!({"index": index, "score": score})).collect()
    })
}
