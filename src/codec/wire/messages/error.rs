//! Error bodies of the messages format.

use std::ops::Range;

use bytes::BytesMut;

use crate::error::{ApiError, ErrorKind, ErrorSource};
use crate::wire::error::error_member;
use crate::wire::spelling::{find, is_object, member_ranges};
use crate::wire::watch::named_members;
use json::{RawJson, Writer};

/// Writes `{"type":"error","error":{"type","message"},"request_id"}`: Anthropic's envelope
/// (<https://docs.anthropic.com/en/api/errors>) with the error types of the gateway's specification.
pub fn encode(error: &ApiError, request_id: &str, out: &mut BytesMut) {
    encode_as(told_type(error), error, request_id, out);
}

/// Returns the type of an error: that of its kind, or the one of a model that the provider does not have.
fn told_type(error: &ApiError) -> &'static str {
    match (error.kind, error.status) {
        (ErrorKind::UpstreamRejected, 404) => NOT_FOUND,
        (kind, _) => kind.row().messages_type,
    }
}

/// Type beside status 404, by which clients switch to another model.
const NOT_FOUND: &str = "not_found_error";

/// Statuses of providers' errors that clients decide by, so that they stay. All others become those of the specification's
/// table: 400 for a fault of the request, 500 for a fault of the provider. `docs/decisions/019-errors.md` names the clients.
const DECISIVE: [u16; 5] = [404, 409, 413, 429, 529];

/// Returns the status with which clients receive an error.
pub fn status(error: &ApiError) -> u16 {
    let row = error.kind.row();
    match row.source {
        ErrorSource::Upstream if DECISIVE.contains(&error.status) => error.status,
        // Google and xAI answer so to the gateway's own key.
        ErrorSource::Upstream if error.kind == ErrorKind::UpstreamAuth && error.status == 400 => 400,
        ErrorSource::Upstream if row.messages_type == "upstream_error" => 500,
        ErrorSource::Upstream => 400,
        // Statuses of HTTP itself, and of a gateway that is overloaded: servers between client and gateway read them.
        ErrorSource::Downstream | ErrorSource::Internal => error.status,
    }
}

/// Writes an error event of a stream, with Anthropic's own type. The specification gives its types by HTTP status, which
/// an event has none of, and clients decide by the type of the event: Claude Code 2.1.330 repeats a request whose stream
/// ended with `api_error` or `overloaded_error`, and gives up after any type that it does not know.
pub fn encode_event(error: &ApiError, request_id: &str, out: &mut BytesMut) {
    let kind = match told_type(error) {
        "invalid_request" => "invalid_request_error",
        "upstream_error" | "svc_api_error" => "api_error",
        other => other,
    };
    out.extend_from_slice(b"event: error\ndata: ");
    encode_as(kind, error, request_id, out);
    out.extend_from_slice(b"\n\n");
}

fn encode_as(kind: &str, error: &ApiError, request_id: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("error").key("error").begin_object();
    json.key("type").string(kind).key("message").string(&error.message);
    json.end_object();
    json.key("request_id").string(request_id);
    json.end_object();
}

/// Returns the specification's type for an error type of Anthropic in a response with this status.
fn type_of(own: &str, status: u16) -> &'static str {
    match (own, status) {
        ("not_found_error", _) | (_, 404) => NOT_FOUND,
        ("invalid_request_error" | "request_too_large", _) => "invalid_request",
        ("rate_limit_error", _) | (_, 429) => "rate_limit_error",
        ("api_error" | "overloaded_error" | "timeout_error", _) => "upstream_error",
        // Types of other providers. A refused credential does not get here, because it is the gateway's fault.
        (_, 400..=499) => "invalid_request",
        _ => "upstream_error",
    }
}

/// Returns the edit that replaces an error's type by that of the specification and adds the original as
/// `provider_type`: byte range and new text. `None` if both are the same, or if the body has no error type.
fn mapped(body: &str, status: u16) -> Option<(Range<usize>, String)> {
    let body_members = member_ranges(body, 0);
    let error = find(&body_members, "error").filter(|place| is_object(place.value))?;
    let members = member_ranges(error.value.text(), error.at.start);
    let kind = find(&members, "type")?;
    let own = kind.value.as_str()?;
    let mapped = type_of(&own.decode(), status);
    let text = format!("\"{mapped}\",\"provider_type\":{}", kind.value.text());
    (!own.is(mapped)).then(|| (kind.at.clone(), text))
}

/// Returns a whole error body with the type of the specification. `None` if it need not change.
pub fn standardised(body: &str, status: u16) -> Option<String> {
    let (at, kind) = mapped(body, status)?;
    Some([body.get(..at.start)?, &kind, body.get(at.end..)?].concat())
}

/// Returns whether a provider's error body is a complete Anthropic envelope.
pub fn is_in_shape(body: &str) -> bool {
    let (mut message, mut kind) = (false, false);
    let found = error_member(body, |key, value| match key {
        "message" => message = value.as_str().is_some_and(|text| !text.is_empty()),
        "type" => kind = value.as_str().is_some(),
        _ => {}
    });
    let kinds = named_members(RawJson::from_text(body.trim_ascii()), ["type"]);
    let envelope = kinds.is_ok_and(|[kind]| kind.is_some_and(|kind| kind.text() == "\"error\""));
    found == Ok(true) && message && kind && envelope
}
