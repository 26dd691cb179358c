//! Frames of AWS event streams: prelude with lengths and checksum, headers, payload, checksum.
//!
//! Source: the Amazon event stream specification (<https://smithy.io/2.0/aws/amazon-eventstream.html>), and recorded
//! streams for the order of the headers and the padding.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::ids::Ids;
use super::super::stream::{Frame, Kind};

/// Characters of the padding in their order: each event has the beginning of this text, of random length.
const PADDING: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Type of a header value: string.
const STRING: u8 = 7;

/// Returns an event with padding.
pub(super) fn event(kind: Kind, name: &str, mut payload: Value, ids: &mut Ids) -> Frame {
    let length = 1 + (ids.next() % PADDING.len() as u64) as usize;
    if let Some(members) = payload.as_object_mut() {
        members.insert("p".to_owned(), json!(PADDING.get(..length)));
    }
    Frame::new(kind, encode((":event-type", name), "event", &payload))
}

/// Returns an exception, without padding.
pub(super) fn exception(name: &str, payload: &Value) -> Bytes {
    encode((":exception-type", name), "exception", payload)
}

fn encode(name: (&str, &str), message: &str, payload: &Value) -> Bytes {
    let mut headers = Vec::new();
    for (name, value) in [name, (":content-type", "application/json"), (":message-type", message)] {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(STRING);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let payload = payload.to_string();
    let total = 16 + headers.len() + payload.len();
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&(total as u32).to_be_bytes());
    frame.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    Bytes::from(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_has_the_bytes_of_a_published_vector() {
        let frame = exception("internalServerException", &json!({"message": "Internal error"}));
        assert_eq!(frame.len(), 0x91);
        assert_eq!(frame.get(..8), Some(&[0, 0, 0, 0x91, 0, 0, 0, 0x65][..]));
        // The name comes first here; the published frame begins with the message type.
        assert!(
            frame.get(12..).is_some_and(|rest| rest.starts_with(b"\x0f:exception-type\x07\x00\x17internal"))
        );
        let (start, checksum) = frame.split_at(frame.len() - 4);
        assert_eq!(crc32fast::hash(start).to_be_bytes(), checksum);
    }
}
