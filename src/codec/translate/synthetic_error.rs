//! Error bodies in place of a provider's, for responses that are none. They are read like those of a provider.

use bytes::{Bytes, BytesMut};

use json::{JsonStr, Writer};

/// Returns an error body of this type. `message` is in pieces, each the inside of a JSON string.
pub(super) fn error_body(kind: &str, message: &[&str]) -> Bytes {
    let mut out = BytesMut::with_capacity(160);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("error").begin_object().key("type").string(kind).key("message").pasted(|out| {
        message.iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
    });
    json.end_object().end_object();
    out.freeze()
}

/// Returns an error body for a response that ended without content for a reason that the gateway does not know.
pub(super) fn empty_response(reason: JsonStr<'_>) -> Bytes {
    error_body("server_error", &["The model stopped before it had produced content: ", reason.escaped()])
}
