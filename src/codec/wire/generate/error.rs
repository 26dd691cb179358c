//! Errors of the generate format.

use bytes::BytesMut;

use crate::error::{ApiError, ErrorKind, ErrorSource, RetryAfter};
use crate::wire::error::error_member;
use json::Writer;

/// Writes an error body: `{"error":{"code","message","status"}}`, a `google.rpc.Status` as Google's APIs write it.
pub fn encode(error: &ApiError, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("error").begin_object();
    json.key("code").number(status(error));
    json.key("message").string(&error.message);
    json.key("status").string(status_name(error));
    // Google's clients read the delay from here; its servers send no `Retry-After` header.
    if let Some(seconds) = error.retry_after.as_ref().and_then(RetryAfter::seconds) {
        json.key("details").begin_array().begin_object();
        json.key("@type").string("type.googleapis.com/google.rpc.RetryInfo");
        json.key("retryDelay").string(&format!("{seconds}s"));
        json.end_object().end_array();
    }
    json.end_object().end_object();
}

/// Returns the name for `status`: the one of the error's kind, or a more precise one for the HTTP status of the
/// upstream.
fn status_name(error: &ApiError) -> &'static str {
    match (error.kind, error.status) {
        (ErrorKind::UpstreamRejected, 404) => "NOT_FOUND",
        (ErrorKind::UpstreamRejected, 409) => "ABORTED",
        (ErrorKind::UpstreamFailed, 503 | 529) => "UNAVAILABLE",
        (ErrorKind::UpstreamTimeout, _) | (ErrorKind::UpstreamFailed, 504) => "DEADLINE_EXCEEDED",
        (kind, _) => kind.row().generate_status,
    }
}

/// Statuses of `google.rpc.Code` that errors of providers keep
/// (<https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto>): 503 and 504 are repeated by Google's
/// SDK, and 404, 429 and 503 have a meaning of their own for Gemini CLI.
const KNOWN: [u16; 5] = [404, 409, 429, 503, 504];

/// Returns the status with which clients receive an error: for errors of providers one that Google's API has.
pub fn status(error: &ApiError) -> u16 {
    match (error.kind.row().source, error.kind, error.status) {
        (ErrorSource::Downstream | ErrorSource::Internal, _, status) => status,
        (_, _, status) if KNOWN.contains(&status) => status,
        (_, ErrorKind::UpstreamTimeout, _) => 504,
        // Anthropic's overload, which Google's SDK does not know.
        (_, _, 529) => 503,
        (_, ErrorKind::UpstreamRejected | ErrorKind::ContextOverflow, _) => 400,
        // Google's own answer to a key that is not valid.
        (_, ErrorKind::UpstreamAuth, 400) => 400,
        _ => 500,
    }
}

/// Returns whether an error body has the shape of this format: a `code` equal to the HTTP status, a `message` and a
/// `status`.
pub fn is_in_shape(http_status: u16, body: &str) -> bool {
    let (mut code, mut message, mut status) = (false, false, false);
    let found = error_member(body, |key, value| match key {
        "code" => code = value.as_u64() == Some(u64::from(http_status)),
        "message" => message = value.as_str().is_some_and(|text| !text.is_empty()),
        "status" => status = value.as_str().is_some_and(|text| !text.is_empty()),
        _ => {}
    });
    found == Ok(true) && code && message && status
}
