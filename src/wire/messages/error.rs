//! Errors of the messages format.

use std::ops::Range;

use bytes::BytesMut;

use crate::error::ApiError;
use crate::json::Writer;
use crate::wire::error::error_member;
use crate::wire::spelling::{find, is_object, places};

/// `{"type":"error","error":{"type","message"},"request_id"}`: Anthropic's envelope with the type names of the
/// specification's section 7.
pub fn encode(error: &ApiError, request_id: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("error").key("error").begin_object();
    json.key("type").string(error.kind.row().messages_type).key("message").string(&error.message);
    json.end_object();
    json.key("request_id").string(request_id);
    json.end_object();
}

/// The type that an error of Anthropic's has in the specification's table (section 7). In a stream it has no status.
fn type_of(own: &str, status: Option<u16>) -> &'static str {
    match (own, status) {
        ("invalid_request_error" | "not_found_error" | "request_too_large", _) => "invalid_request",
        ("rate_limit_error", _) | (_, Some(429)) => "rate_limit_error",
        ("api_error" | "overloaded_error" | "timeout_error", _) => "upstream_error",
        // A type of its own, or of another provider's; a refused credential, which is the gateway's, is not told here.
        (_, Some(400..=499)) => "invalid_request",
        _ => "upstream_error",
    }
}

/// Where the type stands in an error of Anthropic's, and what stands there by the specification's table: the type of the
/// table, and the provider's own as another member. Nothing where both are the same.
pub fn mapped(body: &str, status: Option<u16>) -> Option<(Range<usize>, String)> {
    let body_members = places(body, 0);
    let error = find(&body_members, "error").filter(|place| is_object(place.value))?;
    let members = places(error.value.text(), error.at.start);
    let kind = find(&members, "type")?;
    let own = kind.value.as_str()?;
    let mapped = type_of(&own.decode(), status);
    let text = format!("\"{mapped}\",\"provider_type\":{}", kind.value.text());
    (!own.is(mapped)).then(|| (kind.at.clone(), text))
}

/// The same for a whole body.
pub fn standardised(body: &str, status: u16) -> Option<String> {
    let (at, kind) = mapped(body, Some(status))?;
    Some([body.get(..at.start)?, &kind, body.get(at.end..)?].concat())
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
