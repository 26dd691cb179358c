//! Model list.

use serde_json::{Value, json};

use super::super::http::{Reply, Request};
use super::errors::{ApiError, model_not_found};
use super::json::{Style, pretty};

/// Models: id, version, display name, maximum input and output tokens, and whether the model thinks.
const MODELS: [(&str, &str, &str, u64, u64, bool); 6] = [
    ("gemini-2.5-flash", "001", "Gemini 2.5 Flash", 1_048_576, 65_536, true),
    ("gemini-2.5-pro", "2.5", "Gemini 2.5 Pro", 1_048_576, 65_536, true),
    ("gemini-2.5-flash-lite", "001", "Gemini 2.5 Flash-Lite", 1_048_576, 65_536, true),
    ("gemini-3-pro-preview", "3-pro-preview-11-2025", "Gemini 3 Pro Preview", 1_048_576, 65_536, true),
    ("gemini-3-flash-preview", "3-flash-preview-12-2025", "Gemini 3 Flash Preview", 1_048_576, 65_536, true),
    ("gemini-embedding-001", "001", "Gemini Embedding 001", 2048, 1, false),
];

/// Answers `GET /v1beta/models`, with pagination. A page token is the index of the page's first model.
pub(super) fn list(request: &Request) -> Result<Reply, ApiError> {
    let size = match request.query("pageSize").or(request.query("page_size")).map(str::parse::<usize>) {
        None | Some(Ok(0)) => 50,
        Some(Ok(size)) => size.min(1000),
        Some(Err(_)) => return Err(ApiError::invalid("Invalid value at 'page_size' (TYPE_INT32)")),
    };
    let token = request.query("pageToken").or(request.query("page_token")).filter(|token| !token.is_empty());
    let from = match token.map(str::parse::<usize>) {
        None => 0,
        Some(Ok(from)) if from < MODELS.len() => from,
        Some(_) => return Err(ApiError::invalid("Page token is invalid.")),
    };
    let until = from.saturating_add(size).min(MODELS.len());
    let models: Vec<Value> = MODELS.get(from..until).unwrap_or_default().iter().map(entry).collect();
    let mut page = json!({ "models": models });
    if let Some(members) = page.as_object_mut().filter(|_| until < MODELS.len()) {
        members.insert("nextPageToken".to_owned(), json!(until.to_string()));
    }
    Ok(Reply::new(200, Style::Whole.content_type(), pretty(&page)))
}

/// Answers `GET /v1beta/models/{id}`. Any model name that other methods accept exists.
pub(super) fn one(id: &str, version: &str) -> Result<Reply, ApiError> {
    if id.starts_with("missing-") {
        return Err(model_not_found(id, version, "generateContent"));
    }
    let other = (id, "001", id, 1_048_576, 65_536, true);
    let model = MODELS.iter().find(|model| model.0 == id).unwrap_or(&other);
    Ok(Reply::new(200, Style::Whole.content_type(), pretty(&entry(model))))
}

fn entry(model: &(&str, &str, &str, u64, u64, bool)) -> Value {
    let (id, version, title, input, output, thinks) = model;
    let name = format!("models/{id}");
    if id.contains("embedding") {
        return json!({"name": name, "version": version, "displayName": title,
                      "description": "Obtain a distributed representation of a text.", "inputTokenLimit": input,
                      "outputTokenLimit": output,
                      "supportedGenerationMethods": ["embedContent", "countTextTokens", "countTokens"]});
    }
    json!({"name": name, "version": version, "displayName": title, "description": format!("Simulated {title}"),
           "inputTokenLimit": input, "outputTokenLimit": output,
           "supportedGenerationMethods": ["generateContent", "countTokens", "createCachedContent",
                                          "batchGenerateContent"],
           "temperature": 1, "topP": 0.95, "topK": 64, "maxTemperature": 2, "thinking": thinks})
}
