//! Payload of close frames (RFC 6455, section 5.5.1).

use bytes::{BufMut as _, Bytes, BytesMut};
use tungstenite::protocol::frame::coding::CloseCode;

/// Longest reason of a close frame, in bytes: a control frame has 125 bytes of payload, and the code takes two.
pub const MAX_REASON: usize = 123;

/// Returns the payload of a close frame. A reason longer than [`MAX_REASON`] is cut at a character boundary.
pub fn close_payload(code: CloseCode, reason: &str) -> Bytes {
    let end = (0..=reason.len().min(MAX_REASON)).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    let mut payload = BytesMut::with_capacity(2 + end);
    payload.put_u16(code.into());
    payload.put_slice(reason.get(..end).unwrap_or_default().as_bytes());
    payload.freeze()
}
