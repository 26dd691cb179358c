//! Claude at cloud platforms: paths, credentials and the members of the body that differ.
//!
//! Sources: Vertex AI, "Claude models"; Microsoft Foundry, "Deploy and use Claude models"; the clients of these
//! platforms in anthropic-python.

use serde_json::Value;

use super::super::http::Request;
use super::errors::{ApiError, extra, required};

/// Value of `anthropic_version` at Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// Platform that serves the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Platform {
    /// Anthropic itself.
    #[default]
    Anthropic,
    /// Microsoft Foundry: below `/anthropic`, with an API key or a token.
    Foundry,
    /// Vertex AI: the model is in the path, and the version in the body.
    Vertex,
}

/// Prediction at Vertex AI, as its path names it.
pub(super) struct Prediction<'r> {
    pub(super) model: &'r str,
    pub(super) streams: bool,
}

impl Platform {
    /// Checks the credential of a request.
    pub(super) fn authorize(self, request: &Request, credential: Option<&str>) -> Result<(), ApiError> {
        let Some(expected) = credential else { return Ok(()) };
        let key = match self {
            Platform::Anthropic => request.header("x-api-key"),
            Platform::Foundry => request.header("api-key").or_else(|| request.header("x-api-key")),
            // A key is of no use there.
            Platform::Vertex => None,
        };
        // If both are present, the provider uses the key and ignores the token.
        let refused = match (key, request.bearer()) {
            (Some(key), _) if key == expected => return Ok(()),
            (Some(_), _) => "invalid x-api-key",
            (None, Some(token)) if token == expected => return Ok(()),
            (None, Some(_)) => "Invalid bearer token",
            (None, None) => "x-api-key header is required",
        };
        Err(ApiError::new(401, "authentication_error", refused))
    }

    /// Returns the path of the API itself: without the prefix of the platform.
    pub(super) fn own_path(self, path: &str) -> &str {
        match self {
            Platform::Foundry => path.strip_prefix("/anthropic").unwrap_or_default(),
            Platform::Anthropic | Platform::Vertex => path,
        }
    }
}

/// Parses a path of Vertex AI; `None` for any other path.
pub(super) fn prediction(path: &str) -> Option<Prediction<'_>> {
    let segments: Vec<&str> = path.split('/').collect();
    let ["", "v1", "projects", _, "locations", _, "publishers", "anthropic", "models", last] =
        segments.as_slice()
    else {
        return None;
    };
    let (model, verb) = last.rsplit_once(':')?;
    match verb {
        "rawPredict" => Some(Prediction { model, streams: false }),
        "streamRawPredict" => Some(Prediction { model, streams: true }),
        _ => None,
    }
}

/// Returns whether the conversation is the last member of a body. If it is not, Vertex AI often does not find the
/// prompt in its cache (<https://github.com/maximhq/bifrost/issues/6406>); the simulated one never does.
pub(super) fn has_conversation_last(body: &Value) -> bool {
    body.as_object().and_then(|members| members.keys().next_back()).is_some_and(|last| last == "messages")
}

/// Returns the body of the API itself: with the model of the path, and without the version.
pub(super) fn own_body(mut body: Value, prediction: &Prediction<'_>) -> Result<Value, ApiError> {
    let Some(members) = body.as_object_mut() else { return Ok(body) };
    match members.remove("anthropic_version") {
        None => return Err(required("anthropic_version")),
        Some(version) if version != VERTEX_VERSION => {
            return Err(ApiError::invalid(format!("anthropic_version: {version} is not supported")));
        }
        Some(_) => {}
    }
    if members.contains_key("model") {
        return Err(extra("model"));
    }
    if members.get("stream").is_some_and(|stream| *stream == true) != prediction.streams {
        return Err(ApiError::invalid("stream: does not fit the method of the path"));
    }
    members.insert("model".to_owned(), prediction.model.replace("%40", "@").into());
    Ok(body)
}
