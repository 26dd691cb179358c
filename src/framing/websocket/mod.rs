//! WebSocket frames of a server (RFC 6455, section 5): a reader of the frames of a client, and the frame headers to
//! write.
//!
//! Headers, opcodes and close codes are those of `tungstenite`. Its reader of messages is not used: it reserves the
//! length that a frame announces, and returns a message when it is complete. [`FrameReader`] takes bytes out of the
//! caller's buffer and returns the payload of a message in the parts in which it arrived, so that the caller holds and
//! counts exactly what was received. [`put_header`] writes the header before a payload that is not copied.
//!
//! Sans-I/O. Sockets to providers (`tokio-tungstenite`), the handshake and the meaning of messages do not live here.
//! Extensions are not supported: none is negotiated.

mod close;
mod header;
mod read;
mod utf8;

#[cfg(test)]
mod tests;

pub use close::{MAX_REASON, close_payload};
pub use header::{MAX_HEADER, put_header};
pub use read::{FrameFault, FrameReader, Incoming, MessageKind};
pub use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
