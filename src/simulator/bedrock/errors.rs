//! Errors of Amazon Bedrock: bodies, headers, and exceptions within a stream.
//!
//! Source of the texts: recorded responses, and error messages that users of the service quote.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::super::http::Reply;
use super::frames;

/// Status of a service without capacity.
pub(super) const OVERLOADED: u16 = 503;

/// Error response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    pub(super) status: u16,
    /// Name of the exception, in the form of `x-amzn-errortype`.
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl ApiError {
    /// Returns an error for an invalid request: 400 `ValidationException`.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "ValidationException", message)
    }

    /// Returns an error that the model itself reports.
    pub(super) fn of_model(message: &str) -> ApiError {
        ApiError::invalid(format!("The model returned the following errors: {message}"))
    }

    /// Returns an error for a request that is not authenticated: 403.
    pub(super) fn forbidden(kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(403, kind, message)
    }

    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into() }
    }

    fn body(&self) -> Value {
        match self.status {
            424 => json!({"message": self.message, "originalStatusCode": 500, "originalMessage": "upstream"}),
            _ => json!({"message": self.message}),
        }
    }

    pub(super) fn reply(&self) -> Reply {
        let space = match self.kind {
            "UnrecognizedClientException" | "ExpiredTokenException" | "InvalidSignatureException" => {
                "com.amazon.coral.service"
            }
            _ => "com.amazon.bedrock",
        };
        let kind = format!("{}:http://internal.amazon.com/coral/{space}/", self.kind);
        Reply::json(self.status, &self.body()).with("x-amzn-errortype", kind)
    }

    /// Returns the exception frame with which a stream ends.
    pub(super) fn exception(&self) -> Bytes {
        let mut name = self.kind.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        frames::exception(&name, &self.body())
    }
}

/// Returns the error for a status.
pub(super) fn for_status(status: u16) -> ApiError {
    let (kind, message) = match status {
        401 | 403 => {
            ("AccessDeniedException", "You don't have access to the model with the specified model ID.")
        }
        404 => (
            "ResourceNotFoundException",
            "This model version has reached the end of its life. Please refer to the AWS documentation for more \
             details.",
        ),
        408 => (
            "ModelTimeoutException",
            "Model has timed out in processing the request. Try your request again.",
        ),
        424 => ("ModelStreamErrorException", "The model stopped."),
        429 => ("ThrottlingException", "Too many requests, please wait before trying again."),
        503 => ("ServiceUnavailableException", "Bedrock is unable to process your request."),
        500..=599 => (
            "InternalServerException",
            "The system encountered an unexpected error during processing. Try your request again.",
        ),
        _ => ("ValidationException", "The request was staged to fail."),
    };
    ApiError::new(status, kind, message)
}

/// Object of a request, with its path for errors.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    pub(super) object: &'a Map<String, Value>,
    /// Names and indices, joined with dots.
    pub(super) path: String,
}

impl<'a> Fields<'a> {
    pub(super) fn new(value: &'a Value, path: impl Into<String>) -> Result<Fields<'a>, ApiError> {
        let path = path.into();
        let object = value.as_object().ok_or_else(|| wrong_type(&path, "a JSON object"))?;
        Ok(Fields { object, path })
    }

    /// Returns the path of a member.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns a member. `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, ApiError> {
        self.typed(name, "a number", Value::as_f64)
    }

    pub(super) fn array(&self, name: &str) -> Result<Option<&'a Vec<Value>>, ApiError> {
        self.typed(name, "a list", Value::as_array)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.get(name).map(|value| Fields::new(value, self.at(name))).transpose()
    }

    /// Returns a required member.
    pub(super) fn require(&self, name: &str) -> Result<&'a str, ApiError> {
        self.string(name)?.ok_or_else(|| missing(&self.at(name)))
    }

    /// Returns the name and the value of an object with exactly one member, as unions have.
    pub(super) fn one(&self) -> Result<(&'a str, &'a Value), ApiError> {
        let mut members = self.object.iter().filter(|(_, value)| !value.is_null());
        match (members.next(), members.next()) {
            (Some((name, value)), None) => Ok((name, value)),
            _ => Err(ApiError::invalid(format!(
                "Exactly one member must be set at '{}'. Set one member and try again.",
                self.path
            ))),
        }
    }

    /// Refuses the first unknown member.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.object.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(extraneous(&self.path, name)),
            None => Ok(()),
        }
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| wrong_type(&self.at(name), expected)),
        }
    }
}

/// Returns the error for an unknown member.
pub(super) fn extraneous(path: &str, name: &str) -> ApiError {
    let pointer = if path.is_empty() { String::new() } else { format!("/{}", path.replace('.', "/")) };
    ApiError::invalid(format!(
        "Malformed input request: #{pointer}: extraneous key [{name}] is not permitted, please reformat your input \
         and try again."
    ))
}

pub(super) fn missing(path: &str) -> ApiError {
    ApiError::invalid(format!(
        "1 validation error detected: Value at '{path}' failed to satisfy constraint: Member must not be null"
    ))
}

/// Returns the error for a value that does not satisfy a constraint.
pub(super) fn constraint(path: &str, value: &str, rule: &str) -> ApiError {
    ApiError::invalid(format!(
        "1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: Member must {rule}"
    ))
}

fn wrong_type(path: &str, expected: &str) -> ApiError {
    ApiError::invalid(format!(
        "The format of the value at {path} is invalid. Provide {expected} for the field and try again."
    ))
}
