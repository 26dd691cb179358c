//! WebSocket frames (RFC 6455, section 5): a reader of the frames of either side, and the frame headers to write.
//!
//! Sans-I/O: [`FrameReader`] takes bytes out of the caller's buffer and returns the payload of a message in the parts in
//! which it arrived, so that the caller holds and counts exactly what was received. Nothing is reserved for a length
//! that a peer only announces. [`put_header`] writes the header before a payload that is not copied.
//!
//! The handshake and the meaning of messages do not live here. Extensions are not supported: none is negotiated.

mod close;
mod header;
mod read;

#[cfg(test)]
mod tests;

pub use close::{CloseCode, MAX_REASON, close_payload};
pub use header::{MAX_HEADER, OpCode, mask, put_header, put_masked};
pub use read::{FrameFault, FrameReader, Incoming, MessageKind, SocketRole};
