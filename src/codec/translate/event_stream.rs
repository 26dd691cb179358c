//! Data of a frame of an event stream: the event as one JSON object, whose only member is named like the event.
//!
//! The name of an event is a header of its message, and the payload does not repeat it. The service model of Bedrock
//! (`ConverseStreamOutput`, <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>)
//! defines the stream as a union of such members, which decoders read without knowing the framing.

use super::StreamError;
use framing::event_stream::{EventMessage, EventStreamSplitter, MessageError};
use json::push_escaped;

/// Returns the data of a message: `{"contentBlockDelta":{...}}`, or `{"throttlingException":{...}}` for an exception.
/// `None` for a message without a name. The data is in `scratch`, which is reused, so that no frame allocates.
///
/// # Errors
/// Returns [`StreamError::Invalid`] if the bytes are no message, or one of an unknown type.
// Apart from the code for arrays in its caller, which would have fewer registers.
#[inline(never)]
pub(super) fn data<'s>(frame: &[u8], scratch: &'s mut Vec<u8>) -> Result<Option<&'s [u8]>, StreamError> {
    message_data(&parse(frame)?, scratch)
}

/// Returns the data of the last message of some complete messages. `None` if there is none, or if one is invalid.
pub fn last_data(messages: &[u8]) -> Option<Vec<u8>> {
    let mut splitter = EventStreamSplitter::default();
    let (mut last, mut from) = (None, 0);
    while let Some(end) = splitter.next_boundary(messages, from) {
        last = messages.get(from..end);
        from = end;
    }
    let mut scratch = Vec::new();
    data(last?, &mut scratch).ok()??;
    Some(scratch)
}

/// Parses a message. Its headers are not checked yet.
///
/// # Errors
/// Returns [`StreamError::Invalid`] if the bytes are no message.
#[inline]
pub(super) fn parse(frame: &[u8]) -> Result<EventMessage<'_>, StreamError> {
    EventMessage::parse_checksums(frame).map_err(invalid)
}

#[cold]
fn invalid(error: MessageError) -> StreamError {
    StreamError::Invalid(error.to_string())
}

/// Same as [`data`], of a message that is parsed already.
///
/// # Errors
/// Returns [`StreamError::Invalid`] if a header is malformed, or the type of the message is unknown.
pub(super) fn message_data<'s>(
    message: &EventMessage<'_>,
    scratch: &'s mut Vec<u8>,
) -> Result<Option<&'s [u8]>, StreamError> {
    scratch.clear();
    if let Some(name) = usual_name(message.header_bytes()) {
        put_event(name, message.payload(), scratch);
        return Ok(Some(scratch));
    }
    message.check_headers().map_err(invalid)?;
    let name = match message.text(":message-type") {
        Some("event") => message.text(":event-type"),
        Some("exception") => message.text(":exception-type"),
        Some("error") => {
            put_error(message, scratch);
            return Ok(Some(scratch));
        }
        other => {
            let kind = other.unwrap_or("none");
            return Err(StreamError::Invalid(format!("unknown type of an event stream message: {kind}")));
        }
    };
    // A name that needs escapes is none of an event.
    let Some(name) = name.filter(|name| is_name(name.as_bytes())) else {
        return Ok(None);
    };
    put_event(name.as_bytes(), message.payload(), scratch);
    Ok(Some(scratch))
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric)
}

/// Returns the name of an event whose headers are exactly those that Bedrock writes, in its order. `None` for any other
/// message. Nearly all messages match, so this fast path avoids a parser over all headers.
#[inline]
fn usual_name(headers: &[u8]) -> Option<&[u8]> {
    const BEFORE: &[u8] = b"\x0b:event-type\x07\x00";
    const BEHIND: &[u8] = b"\x0d:content-type\x07\x00\x10application/json\x0d:message-type\x07\x00\x05event";
    let (length, rest) = headers.strip_prefix(BEFORE)?.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    (rest == BEHIND && is_name(name)).then_some(name)
}

/// Writes an event as an object whose only member has its name.
#[inline]
fn put_event(name: &[u8], payload: &[u8], scratch: &mut Vec<u8>) {
    scratch.reserve(name.len() + payload.len() + 8);
    for part in [&b"{\""[..], name, b"\":", payload, b"}"] {
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
}

/// Writes an error that has no payload: its code and message are headers.
fn put_error(message: &EventMessage<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":{\"code\":\"");
    push_escaped(out, message.text(":error-code").unwrap_or_default());
    out.extend_from_slice(b"\",\"message\":\"");
    push_escaped(out, message.text(":error-message").unwrap_or_default());
    out.extend_from_slice(b"\"}}");
}
