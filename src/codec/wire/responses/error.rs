//! Errors of the responses format inside a stream, and of an exhausted budget. All others have the shape of the chat
//! format.

use bytes::BytesMut;

use crate::error::ApiError;
use crate::wire::error::nullable;
use json::Writer;

/// Writes the event `error`, which ends a stream that has already begun
/// (<https://platform.openai.com/docs/api-reference/responses-streaming>). It has no `response` object, so it does
/// not depend on what the stream contained so far. The nested `error` beside the flat members makes the official SDK
/// raise an exception; otherwise it passes the event to application code, which may ignore it.
pub fn encode_event(error: &ApiError, out: &mut BytesMut) {
    let row = error.kind.row();
    out.extend_from_slice(b"event: error\ndata: ");
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("error");
    let code = error.code.as_deref().or(row.openai_code);
    nullable(&mut json, "code", code);
    json.key("message").string(&error.message);
    nullable(&mut json, "param", error.param.as_deref());
    json.key("error").begin_object();
    json.key("message").string(&error.message);
    json.key("type").string(row.openai_type);
    nullable(&mut json, "param", error.param.as_deref());
    nullable(&mut json, "code", code);
    json.end_object().end_object();
    out.extend_from_slice(b"\n\n");
}

/// Writes the error of a budget that is exhausted until a known time. Codex shows this type as a usage limit and does not
/// retry it; any other 429 it retries (Codex CLI 0.169). The code stays the one that the official SDKs document.
pub fn encode_usage_limit(error: &ApiError, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("error").begin_object();
    json.key("message").string(&error.message);
    json.key("type").string("usage_limit_reached");
    nullable(&mut json, "param", error.param.as_deref());
    nullable(&mut json, "code", error.code.as_deref().or(error.kind.row().openai_code));
    if let Some(at) = error.resets_at() {
        json.key("resets_at").number(at);
    }
    json.end_object().end_object();
}
