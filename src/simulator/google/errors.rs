//! Errors of the Gemini API.
//!
//! Source of the texts: recorded responses of the API, and error messages that its users quote.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::json::{self as text, Style};

/// Status of an overloaded provider.
pub(super) const OVERLOADED: u16 = 503;

/// Error response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    code: u16,
    status: &'static str,
    message: String,
    details: Vec<Value>,
}

impl ApiError {
    /// Returns an error for an invalid request: 400 `INVALID_ARGUMENT`.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "INVALID_ARGUMENT", message)
    }

    pub(super) fn new(code: u16, status: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { code, status, message: message.into(), details: Vec::new() }
    }

    fn detail(mut self, detail: Value) -> ApiError {
        self.details.push(detail);
        self
    }

    pub(super) fn body(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "status": self.status});
        if let Some(members) = error.as_object_mut().filter(|_| !self.details.is_empty()) {
            members.insert("details".to_owned(), Value::Array(self.details.clone()));
        }
        json!({ "error": error })
    }

    /// Returns the response in the requested style. For an array stream, the error is an array too. For an event
    /// stream, the error is plain JSON with the content type of events.
    pub(super) fn reply(&self, style: Style) -> Reply {
        let body = match style {
            Style::Array => Value::Array(vec![self.body()]),
            Style::Whole | Style::Events => self.body(),
        };
        Reply::new(self.code, style.content_type(), text::pretty(&body))
    }
}

/// Returns the provider's error for a status.
pub(super) fn for_status(code: u16) -> ApiError {
    match code {
        401 => bad_token(),
        403 => no_key(),
        404 => ApiError::new(404, "NOT_FOUND", "Requested entity was not found."),
        409 => ApiError::new(409, "ABORTED", "The operation was aborted."),
        413 => too_large(),
        429 => ApiError::new(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details. For more information on this \
             error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: \
             generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 3\nPlease retry in 7s.",
        )
        .detail(json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "3"}]}))
        .detail(json!({"@type": "type.googleapis.com/google.rpc.Help", "links": [{
            "description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits"}]}))
        .detail(json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"})),
        499 => ApiError::new(499, "CANCELLED", "The operation was cancelled."),
        501 => ApiError::new(501, "UNIMPLEMENTED", "Operation is not implemented, or supported, or enabled."),
        503 => ApiError::new(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        504 => ApiError::new(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
        500..=599 => ApiError::new(
            code,
            "INTERNAL",
            "An internal error has occurred. Please retry or report in \
             https://developers.generativeai.google/guide/troubleshooting",
        ),
        400 => ApiError::invalid("Request contains an invalid argument."),
        _ => ApiError::new(code, "UNKNOWN", "The request was staged to fail."),
    }
}

pub(super) fn too_large() -> ApiError {
    ApiError::new(413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 104857600 bytes.")
}

pub(super) fn wrong_key() -> ApiError {
    let message = "API key not valid. Please pass a valid API key.";
    ApiError::invalid(message)
        .detail(json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
                       "domain": "googleapis.com",
                       "metadata": {"service": "generativelanguage.googleapis.com"}}))
        .detail(json!({"@type": "type.googleapis.com/google.rpc.LocalizedMessage", "locale": "en-US",
                       "message": message}))
}

pub(super) fn bad_token() -> ApiError {
    ApiError::new(
        401,
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid \
         authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
    )
}

pub(super) fn no_key() -> ApiError {
    ApiError::new(
        403,
        "PERMISSION_DENIED",
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other \
         form of API consumer identity to call this API.",
    )
}

pub(super) fn model_not_found(model: &str, version: &str, method: &str) -> ApiError {
    ApiError::new(
        404,
        "NOT_FOUND",
        format!(
            "models/{model} is not found for API version {version}, or is not supported for {method}. Call \
             ModelService.ListModels to see the list of available models and their supported methods."
        ),
    )
}

/// Returns the error for a value that its field cannot hold. `field` is the path in the spelling of the protocol
/// buffer.
pub(super) fn violation(field: &str, message: String) -> ApiError {
    let violation = match field {
        "" => json!({"description": message}),
        field => json!({"field": field, "description": message}),
    };
    ApiError::invalid(message)
        .detail(json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}))
}

/// Returns the error of a check by the model's back end, in the provider's list format.
pub(super) fn listed(message: &str) -> ApiError {
    ApiError::invalid(format!("* GenerateContentRequest.{message}\n"))
}

/// Returns an HTML page, as the provider's front end does for an unknown method or path.
pub(super) fn page(status: u16, method: &str, path: &str) -> Reply {
    let shown: String = path
        .chars()
        .map(|c| match c {
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '&' => "&amp;".to_owned(),
            other => other.to_string(),
        })
        .collect();
    let (title, sentence) = match status {
        405 => (
            "Error 405 (Method Not Allowed)!!1",
            format!(
                "The request method <code>{method}</code> is inappropriate for the URL <code>{shown}</code>."
            ),
        ),
        _ => (
            "Error 404 (Not Found)!!1",
            format!("The requested URL <code>{shown}</code> was not found on this server."),
        ),
    };
    let body = format!(
        "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>{title}</title>\n  <p><b>{status}.</b> \
         <ins>That’s an error.</ins>\n  <p>{sentence}  <ins>That’s all we know.</ins>\n"
    );
    Reply::new(status, "text/html; charset=UTF-8", body)
}
