//! Data of a frame of an event stream: the event as one JSON object, whose only member is named like the event.
//!
//! The name of an event is a header of its message, and the payload does not repeat it. The service model of Bedrock
//! (`ConverseStreamOutput`, <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>)
//! defines the stream as a union of such members, which decoders read without knowing the framing.

use super::StreamError;
use crate::framing::event_stream::{EventMessage, MessageError};
use crate::json::push_escaped;

/// Returns the data of a message: `{"contentBlockDelta":{...}}`, or `{"throttlingException":{...}}` for an exception.
/// `None` for a message without a name. The data is in `scratch`, which is reused, so that no frame allocates.
///
/// # Errors
/// Returns [`StreamError::Invalid`] if the bytes are no message, or one of an unknown type.
pub(super) fn data<'s>(frame: &[u8], scratch: &'s mut Vec<u8>) -> Result<Option<&'s [u8]>, StreamError> {
    let invalid = |error: MessageError| StreamError::Invalid(error.to_string());
    let message = EventMessage::parse(frame).map_err(invalid)?;
    scratch.clear();
    let name = match message.text(":message-type") {
        Some("event") => message.text(":event-type"),
        Some("exception") => message.text(":exception-type"),
        Some("error") => {
            put_error(&message, scratch);
            return Ok(Some(scratch));
        }
        other => {
            let kind = other.unwrap_or("none");
            return Err(StreamError::Invalid(format!("unknown type of an event stream message: {kind}")));
        }
    };
    // A name that needs escapes is none of an event.
    let Some(name) =
        name.filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    else {
        return Ok(None);
    };
    let payload = message.payload();
    for part in [&b"{\""[..], name.as_bytes(), b"\":", payload, b"}"] {
        scratch.extend_from_slice(part);
    }
    if payload.trim_ascii().is_empty() {
        scratch.truncate(scratch.len() - 1);
        scratch.extend_from_slice(b"{}}");
    }
    // Line breaks occur only between tokens of JSON. Values that are copied into a line of another stream would break it.
    if memchr::memchr2(b'\n', b'\r', payload).is_some() {
        scratch.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    Ok(Some(scratch))
}

/// Writes an error that has no payload: its code and message are headers.
fn put_error(message: &EventMessage<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":{\"code\":\"");
    push_escaped(out, message.text(":error-code").unwrap_or_default());
    out.extend_from_slice(b"\",\"message\":\"");
    push_escaped(out, message.text(":error-message").unwrap_or_default());
    out.extend_from_slice(b"\"}}");
}
