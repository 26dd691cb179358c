//! Close frames (RFC 6455, section 7.4).

use bytes::{BufMut as _, Bytes, BytesMut};

/// Longest reason of a close frame, in bytes: a control frame has 125 bytes of payload, and the code takes two.
pub const MAX_REASON: usize = 123;

/// Status code of a close frame, as registered at IANA ("WebSocket Close Code Number Registry").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// 1000: the purpose of the connection is fulfilled.
    Normal,
    /// 1001: the endpoint goes away.
    Away,
    /// 1002: the peer has violated the protocol.
    Protocol,
    /// 1003: a kind of data that the endpoint does not accept.
    Unsupported,
    /// 1008: a policy forbids the connection.
    Policy,
    /// 1009: a message is too large.
    TooBig,
    /// 1011: an unexpected condition.
    Internal,
    /// 1012: the service restarts.
    Restart,
    /// 1013: the service is overloaded; try again later.
    TryAgain,
}

impl CloseCode {
    /// Returns the number of the code.
    pub const fn number(self) -> u16 {
        match self {
            CloseCode::Normal => 1000,
            CloseCode::Away => 1001,
            CloseCode::Protocol => 1002,
            CloseCode::Unsupported => 1003,
            CloseCode::Policy => 1008,
            CloseCode::TooBig => 1009,
            CloseCode::Internal => 1011,
            CloseCode::Restart => 1012,
            CloseCode::TryAgain => 1013,
        }
    }
}

/// Returns the payload of a close frame. A reason longer than [`MAX_REASON`] is cut at a character boundary.
pub fn close_payload(code: CloseCode, reason: &str) -> Bytes {
    let end = (0..=reason.len().min(MAX_REASON)).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    let mut payload = BytesMut::with_capacity(2 + end);
    payload.put_u16(code.number());
    payload.put_slice(reason.get(..end).unwrap_or_default().as_bytes());
    payload.freeze()
}

/// Whether a close frame may carry this code (RFC 6455, section 7.4.2, and the registry).
pub(super) fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
