//! Errors of the responses format inside a stream; outside of it they are those of the chat format.

use bytes::BytesMut;

use crate::error::ApiError;
use crate::json::Writer;
use crate::wire::error::nullable;

/// The event `error`, which ends a stream that has begun elsewhere (OpenAI API, "Streaming events"). It has no
/// `response` object, so it can be sent without knowing what the stream held so far. The nested `error` beside the
/// flat fields makes the official SDK raise instead of handing the event to code that does not look for it.
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
