//! Embedding methods: `embedContent` and `batchEmbedContents`.

use serde_json::{Value, json};

use super::super::http::{Reply, stage};
use super::super::{directive, embedding, text};
use super::errors::{ApiError, OVERLOADED, for_status};
use super::json::{Style, pretty};
use super::shape::{self, get, list, number, text as text_of};

/// Answers `embedContent` with one vector.
pub(super) fn one(body: &Value, model: &str) -> Result<Reply, ApiError> {
    shape::check(body, &shape::EMBED, "")?;
    let input = read(body, model, "EmbedContentRequest")?;
    let answer = || {
        let embedding = json!({"values": embedding::numbers(&input.vector())});
        with_usage(json!({ "embedding": embedding }), model, std::slice::from_ref(&input))
    };
    Ok(reply(&input.text, answer))
}

/// Answers `batchEmbedContents` with a vector per request.
pub(super) fn many(body: &Value, model: &str) -> Result<Reply, ApiError> {
    shape::check(body, &shape::BATCH_EMBED, "")?;
    let requests = list(body, "requests");
    if requests.is_empty() {
        return Err(ApiError::invalid("* BatchEmbedContentsRequest.requests: requests is not specified\n"));
    }
    if requests.len() > 100 {
        return Err(ApiError::invalid(
            "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch\n",
        ));
    }
    let mut inputs = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let path = format!("BatchEmbedContentsRequest.requests[{at}]");
        let named = text_of(request, "model").unwrap_or_default();
        if named.strip_prefix("models/") != Some(model) {
            return Err(ApiError::invalid(format!(
                "* {path}.model: model name must match the model in the batch: models/{model}\n"
            )));
        }
        inputs.push(read(request, model, &path)?);
    }
    let answer = || {
        let embeddings: Vec<Value> =
            inputs.iter().map(|input| json!({"values": embedding::numbers(&input.vector())})).collect();
        with_usage(json!({ "embeddings": embeddings }), model, &inputs)
    };
    Ok(reply(inputs.last().map_or("", |input| &input.text), answer))
}

fn reply(last: &str, answer: impl FnOnce() -> Value) -> Reply {
    let (directives, _) = directive::take(last);
    let error = |status| for_status(status).reply(Style::Whole);
    stage(&directives, OVERLOADED, error, || Reply::new(200, Style::Whole.content_type(), pretty(&answer())))
}

struct Input {
    text: String,
    /// Parts other than text, such as images, as JSON.
    media: String,
    dimensions: usize,
}

impl Input {
    fn vector(&self) -> Vec<f32> {
        let text = directive::take(&self.text).1 + &self.media;
        embedding::vector(text.as_bytes(), self.dimensions)
    }
}

fn read(request: &Value, model: &str, path: &str) -> Result<Input, ApiError> {
    let Some(content) = get(request, "content") else {
        return Err(ApiError::invalid(format!("* {path}.content: contents is not specified\n")));
    };
    let parts = list(content, "parts");
    let texts: Vec<&str> = parts.iter().filter_map(|part| text_of(part, "text")).collect();
    let media: String =
        parts.iter().filter(|part| get(part, "text").is_none()).map(Value::to_string).collect();
    if texts.concat().is_empty() && media.is_empty() {
        return Err(ApiError::invalid(format!("* {path}.content: contents.parts must not be empty.\n")));
    }
    let full = embedding::dimension(model);
    let dimensions = match number(request, "outputDimensionality") {
        None => full,
        Some(asked) if (1.0..=full as f64).contains(&asked) => asked as usize,
        Some(_) => {
            return Err(ApiError::invalid(format!(
                "* {path}.output_dimensionality: output_dimensionality must be in the range [1, {full}].\n"
            )));
        }
    };
    Ok(Input { text: texts.join("\n"), media, dimensions })
}

/// Adds usage, which only newer models report.
fn with_usage(mut body: Value, model: &str, inputs: &[Input]) -> Value {
    let newer = model.starts_with("gemini-embedding-2");
    if let Some(members) = body.as_object_mut().filter(|_| newer) {
        let count: u64 = inputs.iter().map(|input| text::tokens(input.text.len())).sum();
        members.insert(
            "usageMetadata".to_owned(),
            json!({"promptTokenCount": count, "promptTokenDetails": [{"modality": "TEXT", "tokenCount": count}]}),
        );
    }
    body
}
