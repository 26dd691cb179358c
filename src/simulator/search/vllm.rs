//! vLLM: `POST /rerank`, also below `/v1` and `/v2`. A model with `logit` in its name returns scores outside 0 to 1, as
//! models do that were not trained for reranking.

use serde_json::{Value, json};

use super::{Answered, Asked, Refusal, number, query, ranked, texts, tokens};

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/rerank" | "/v1/rerank" | "/v2/rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "Not Found")),
    }
}

fn rerank(asked: &Asked<'_>) -> Answered {
    // vLLM ignores unknown members.
    let model = asked.model()?;
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("documents"), "documents", usize::MAX)?;
    let top = number(asked.body, "top_n")?;
    asked.staged(query, || {
        let result = |(index, score): (usize, f64)| {
            let score = if model.contains("logit") { score * 16.0 - 8.0 } else { score };
            let document = documents.get(index).copied().unwrap_or_default();
            json!({"index": index, "document": {"text": document}, "relevance_score": score})
        };
        let results: Vec<Value> = ranked(query, &documents, top).into_iter().map(result).collect();
        json!({"id": asked.id, "model": model, "usage": {"total_tokens": tokens(&documents)}, "results": results})
    })
}
