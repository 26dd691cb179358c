//! Errors of the Anthropic API: their bodies, and the checks of single fields.
//!
//! Source of the texts: recorded responses of the API, and error messages that its users quote.

use serde_json::{Value, json};

use super::super::http::Reply;

/// Status of an overloaded provider.
pub(super) const OVERLOADED: u16 = 529;

/// Error response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    status: u16,
    kind: &'static str,
    message: String,
}

impl ApiError {
    /// Returns an error for an invalid request: 400 `invalid_request_error`.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid_request_error", message)
    }

    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into() }
    }

    /// Returns the body, which is also the data of a stream's error event.
    pub(super) fn body(&self, request_id: &str) -> Value {
        json!({"type": "error", "error": {"type": self.kind, "message": self.message}, "request_id": request_id})
    }

    pub(super) fn reply(&self, request_id: &str) -> Reply {
        let reply = Reply::json(self.status, &self.body(request_id));
        // Recorded client errors have this header, by which the provider stops its SDKs from retrying.
        if matches!(self.status, 400..=404 | 413) { reply.with("x-should-retry", "false") } else { reply }
    }
}

/// Returns the provider's error for a status.
pub(super) fn for_status(status: u16) -> ApiError {
    let (kind, message) = match status {
        401 => ("authentication_error", "invalid x-api-key"),
        402 => ("billing_error", "There is an issue with your billing or payment information."),
        403 => ("permission_error", "Your API key does not have permission to use the specified resource."),
        404 => ("not_found_error", "model: simulated"),
        405 => ("invalid_request_error", "Method Not Allowed"),
        409 => ("conflict_error", "The request conflicts with the current state of the resource."),
        413 => return too_large(),
        429 => (
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 50 requests per minute. For details, refer \
             to: https://docs.claude.com/en/api/rate-limits. You can see the response headers for current usage.",
        ),
        504 => ("timeout_error", "The request timed out while processing."),
        529 => ("overloaded_error", "Overloaded"),
        500..=599 => ("api_error", "Internal server error"),
        _ => ("invalid_request_error", "The request was staged to fail."),
    };
    ApiError::new(status, kind, message)
}

pub(super) fn too_large() -> ApiError {
    ApiError::new(413, "request_too_large", "Request exceeds the maximum size")
}

pub(super) fn required(path: &str) -> ApiError {
    ApiError::invalid(format!("{path}: Field required"))
}

pub(super) fn extra(path: &str) -> ApiError {
    ApiError::invalid(format!("{path}: Extra inputs are not permitted"))
}

/// Returns the error for an invalid value. `expected` describes a valid one, e.g. `a valid string`.
pub(super) fn should_be(path: &str, expected: &str) -> ApiError {
    ApiError::invalid(format!("{path}: Input should be {expected}"))
}

/// Returns the error for an unknown `type`.
pub(super) fn wrong_tag(path: &str, tag: &str, expected: &[&str]) -> ApiError {
    let expected: Vec<String> = expected.iter().map(|tag| format!("'{tag}'")).collect();
    ApiError::invalid(format!(
        "{path}: Input tag '{tag}' found using 'type' does not match any of the expected tags: {}",
        expected.join(", ")
    ))
}

/// Object of a request, with its path for errors.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl<'a> Fields<'a> {
    pub(super) fn new(value: &'a Value, path: impl Into<String>) -> Fields<'a> {
        Fields { value, path: path.into() }
    }

    /// Returns the path of a member.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns a member. `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a valid string", Value::as_str)
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "a valid boolean", Value::as_bool)
    }

    pub(super) fn array(&self, name: &str) -> Result<Option<&'a Vec<Value>>, ApiError> {
        self.typed(name, "a valid array", Value::as_array)
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.typed(name, "a valid integer", Value::as_i64)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        let path = self.at(name);
        self.typed(name, "an object", |value| value.is_object().then(|| Fields::new(value, path)))
    }

    /// Returns a required string.
    pub(super) fn require(&self, name: &str) -> Result<&'a str, ApiError> {
        self.string(name)?.ok_or_else(|| required(&self.at(name)))
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| should_be(&self.at(name), expected)),
        }
    }

    /// Refuses the first unknown member, as the provider does.
    pub(super) fn only(&self, known: &[&[&str]]) -> Result<(), ApiError> {
        let members = self.value.as_object().into_iter().flatten();
        let unknown = |name: &&String| !known.iter().any(|names| names.contains(&name.as_str()));
        match members.map(|(name, _)| name).find(unknown) {
            Some(name) => Err(extra(&self.at(name))),
            None => Ok(()),
        }
    }
}
