//! Errors of the messages format.

use bytes::BytesMut;

use crate::error::{ApiError, Kind};
use crate::json::Writer;
use crate::wire::error::error_member;

/// `{"type":"error","error":{"type","message"},"request_id"}`: Anthropic's envelope with the type names of the
/// specification's section 7.
pub fn encode(error: &ApiError, request_id: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("error").key("error").begin_object();
    json.key("type").string(type_name(error)).key("message").string(&error.message);
    json.end_object();
    json.key("request_id").string(request_id);
    json.end_object();
}

/// The kind's name, made precise by the status that an upstream error came with.
fn type_name(error: &ApiError) -> &'static str {
    match (error.kind, error.status) {
        (Kind::UpstreamRejected, 404) => "not_found_error",
        (Kind::UpstreamRejected, 413) => "request_too_large",
        (Kind::UpstreamFailed, 529) => "overloaded_error",
        (kind, _) => kind.row().messages_type,
    }
}

/// Anthropic's own envelope, complete.
pub fn is_in_shape(body: &str) -> bool {
    let (mut message, mut kind) = (false, false);
    let found = error_member(body, |key, value| match key {
        "message" => message = value.as_str().is_some_and(|text| !text.is_empty()),
        "type" => kind = value.as_str().is_some(),
        _ => {}
    });
    let envelope = crate::wire::messages::watch::answer(body).is_ok_and(|sight| sight.error.is_some());
    found == Ok(true) && message && kind && envelope
}
