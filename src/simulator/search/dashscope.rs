//! DashScope: embeddings and reranking with its native API and its two compatibility APIs.

use serde_json::{Map, Value, json};

use super::{Answered, Asked, Refusal, number, only, query, ranked, texts, tokens, vector, word};
use crate::embedding;

/// Maximum number of documents.
const DOCUMENTS: usize = 500;

pub(super) fn answer(path: &str, asked: &Asked<'_>) -> Answered {
    match path {
        "/compatible-mode/v1/embeddings" => compatible(asked),
        "/api/v1/services/embeddings/text-embedding/text-embedding" => own(asked),
        "/compatible-api/v1/reranks" => reranks(asked),
        "/api/v1/services/rerank/text-rerank/text-rerank" => rerank(asked),
        _ => Err(Refusal::new(404, "Not Found")),
    }
}

/// Returns the model's maximum number of texts.
fn most(model: &str) -> usize {
    if model.ends_with("-v1") || model.ends_with("-v2") { 25 } else { 10 }
}

fn compatible(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "input", "dimensions", "encoding_format", "user"])?;
    let model = asked.model()?;
    let inputs = texts(asked.body.get("input"), "input.contents", most(model))?;
    let base64 = word(asked.body, "encoding_format", &["float", "base64"])? == Some("base64");
    let dimensions = number(asked.body, "dimensions")?;
    asked.staged(inputs.last().unwrap_or(&""), || {
        let vector = |input: &&str| {
            let vector = vector(input, None, dimensions);
            if base64 { json!(embedding::base64(&vector)) } else { embedding::numbers(&vector) }
        };
        let entry =
            |(index, input)| json!({"embedding": vector(input), "index": index, "object": "embedding"});
        let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
        let used = tokens(&inputs);
        json!({"data": data, "object": "list", "model": model, "id": asked.id,
               "usage": {"prompt_tokens": used, "total_tokens": used}})
    })
}

fn own(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "input", "parameters"])?;
    let model = asked.model()?;
    let input = object(asked, "input")?;
    only(input, &["texts"])?;
    let inputs = texts(input.get("texts"), "input.texts", most(model))?;
    let parameters = object(asked, "parameters")?;
    only(parameters, &["text_type", "dimension", "output_type", "instruct"])?;
    let purpose = word(parameters, "text_type", &["query", "document"])?;
    let dimensions = number(parameters, "dimension")?;
    asked.staged(inputs.last().unwrap_or(&""), || {
        let entry = |(index, input): (usize, &&str)| {
            json!({"text_index": index, "embedding": embedding::numbers(&vector(input, purpose, dimensions))})
        };
        // DashScope returns vectors in order of completion: reverse them, so that tests rely on `text_index`.
        let embeddings: Vec<Value> = inputs.iter().enumerate().rev().map(entry).collect();
        json!({"output": {"embeddings": embeddings}, "usage": {"total_tokens": tokens(&inputs)},
               "request_id": asked.id})
    })
}

fn reranks(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "query", "documents", "top_n", "return_documents", "instruct"])?;
    let model = asked.model()?;
    if model.starts_with("gte-") {
        return Err(Refusal::new(404, format!("Unsupported model `{model}` for OpenAI compatibility mode.")));
    }
    let query = query(asked.body)?;
    let documents = texts(asked.body.get("documents"), "documents", DOCUMENTS)?;
    let results = ranked(query, &documents, number(asked.body, "top_n")?);
    asked.staged(query, || {
        json!({"object": "list", "results": results_of(&results), "model": model, "id": asked.id,
               "usage": {"total_tokens": tokens(&documents)}})
    })
}

fn rerank(asked: &Asked<'_>) -> Answered {
    asked.only(&["model", "input", "parameters"])?;
    asked.model()?;
    let input = object(asked, "input")?;
    only(input, &["query", "documents"])?;
    let query = query(input)?;
    let documents = texts(input.get("documents"), "input.documents", DOCUMENTS)?;
    let parameters = object(asked, "parameters")?;
    only(parameters, &["top_n", "return_documents", "instruct"])?;
    let results = ranked(query, &documents, number(parameters, "top_n")?);
    asked.staged(query, || {
        json!({"output": {"results": results_of(&results)}, "usage": {"total_tokens": tokens(&documents)},
               "request_id": asked.id})
    })
}

fn results_of(ranked: &[(usize, f64)]) -> Vec<Value> {
    ranked.iter().map(|(index, score)| json!({"index": index, "relevance_score": score})).collect()
}

fn object<'a>(asked: &'a Asked<'_>, name: &str) -> Result<&'a Map<String, Value>, Refusal> {
    let object = asked.body.get(name).and_then(Value::as_object);
    object.ok_or_else(|| Refusal::invalid(format!("{name} is required")))
}
