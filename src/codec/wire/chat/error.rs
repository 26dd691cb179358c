//! Error bodies of the chat format, which the responses format shares.

use bytes::BytesMut;

use crate::error::ApiError;
use crate::wire::error::{error_member, nullable};
use json::Writer;

/// Writes `{"error":{"message","type","param","code"}}` (<https://platform.openai.com/docs/guides/error-codes>).
pub fn encode(error: &ApiError, out: &mut BytesMut) {
    let row = error.kind.row();
    let mut json = Writer::new(out);
    json.begin_object().key("error").begin_object();
    json.key("message").string(&error.message);
    json.key("type").string(row.openai_type);
    nullable(&mut json, "param", error.param.as_deref());
    nullable(&mut json, "code", error.code.as_deref().or(row.openai_code));
    json.end_object().end_object();
}

/// Returns whether a provider's error body has the shape that clients rely on: a non-empty message, a type that is a
/// string, and a code that is a string or null.
pub fn is_in_shape(body: &str) -> bool {
    let (mut message, mut kind, mut code) = (false, false, false);
    let found = error_member(body, |key, value| match key {
        "message" => message = value.as_str().is_some_and(|text| !text.is_empty()),
        "type" => kind = value.as_str().is_some(),
        "code" => code = value.as_str().is_some() || value.is_null(),
        _ => {}
    });
    found == Ok(true) && message && kind && code
}
