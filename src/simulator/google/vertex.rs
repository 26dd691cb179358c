//! Gemini on Vertex AI: paths, credentials, and what the Gemini API accepts and Vertex AI does not.
//!
//! Sources: Vertex AI, "Generate content with the Gemini API in Vertex AI", "Text embeddings API", "API keys in express
//! mode".

use serde_json::{Value, json};

use super::super::http::{Reply, Request};
use super::super::{embedding, text};
use super::errors::{self, ApiError};
use super::json::{Style, pretty};
use super::shape::{get, list, number, text as text_of};

/// Most texts of a prediction.
const MAX_INSTANCES: usize = 250;

/// Returns the path of the Gemini API for a path of Vertex AI; `None` for any other path.
pub(super) fn own_path(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').collect();
    let (version, last) = match segments.as_slice() {
        ["", version, "projects", project, "locations", location, "publishers", "google", "models", last]
            if !project.is_empty() && !location.is_empty() =>
        {
            (version, last)
        }
        // Express mode.
        ["", version, "publishers", "google", "models", last] => (version, last),
        _ => return None,
    };
    let version = match *version {
        "v1" => "v1",
        "v1beta1" => "v1beta",
        _ => return None,
    };
    // There is no method for several contents, and no listing at this path.
    last.contains(':')
        .then(|| format!("/{version}/models/{last}"))
        .filter(|path| !path.ends_with(":batchEmbedContents"))
}

/// Checks the credential: a token with a project, an API key in express mode.
pub(super) fn authorize(request: &Request, credential: Option<&str>) -> Result<(), ApiError> {
    let Some(expected) = credential else { return Ok(()) };
    let key = request.header("x-goog-api-key").or(request.query("key"));
    let is_express = !request.path.contains("/projects/");
    match (is_express, key, request.bearer()) {
        (true, Some(key), None) if key == expected => Ok(()),
        (true, Some(_), None) => Err(errors::wrong_key()),
        (false, None, Some(token)) if token == expected => Ok(()),
        (false, Some(_), _) => Err(ApiError::new(
            401,
            "UNAUTHENTICATED",
            "API keys are not supported by this API. Expected OAuth2 access token or other authentication credentials \
             that assert a principal.",
        )),
        _ => Err(errors::bad_token()),
    }
}

/// Checks what Vertex AI demands of contents.
pub(super) fn check(body: &Value) -> Result<(), ApiError> {
    for (at, content) in list(body, "contents").iter().enumerate() {
        if !matches!(text_of(content, "role"), Some("user" | "model")) {
            return Err(ApiError::invalid("Please use a valid role: user, model."));
        }
        for (part_at, part) in list(content, "parts").iter().enumerate() {
            for name in ["functionCall", "functionResponse"] {
                if get(part, name).is_some_and(|call| get(call, "id").is_some()) {
                    let path = format!("contents[{at}].parts[{part_at}].{name}");
                    let message = format!(
                        "Invalid JSON payload received. Unknown name \"id\" at '{path}': Cannot find field."
                    );
                    return Err(errors::violation(&path, message));
                }
            }
        }
    }
    Ok(())
}

/// Answers `predict` of an embedding model.
pub(super) fn predict(body: &Value, model: &str) -> Result<Reply, ApiError> {
    let instances = list(body, "instances");
    let most = if model.starts_with("gemini-embedding-") { 1 } else { MAX_INSTANCES };
    if instances.is_empty() || instances.len() > most {
        let message = format!("{} instance(s) is allowed per prediction. Actual: {}", most, instances.len());
        return Err(ApiError::invalid(message));
    }
    let full = embedding::dimension(model);
    let asked = get(body, "parameters").and_then(|parameters| number(parameters, "outputDimensionality"));
    let dimensions = match asked {
        None => full,
        Some(asked) if (1.0..=full as f64).contains(&asked) => asked as usize,
        Some(_) => {
            return Err(ApiError::invalid(format!("outputDimensionality must be in the range [1, {full}].")));
        }
    };
    let mut predictions = Vec::new();
    for instance in instances {
        let content = text_of(instance, "content").filter(|content| !content.is_empty());
        let content = content.ok_or_else(|| ApiError::invalid("The text content is empty."))?;
        predictions.push(json!({"embeddings": {
            "values": embedding::numbers(&embedding::vector(content.as_bytes(), dimensions)),
            "statistics": {"truncated": false, "token_count": text::tokens(content.len())},
        }}));
    }
    Ok(Reply::new(200, Style::Whole.content_type(), pretty(&json!({ "predictions": predictions }))))
}
