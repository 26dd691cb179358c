//! Streams of the Converse format: decoder and encoder.
//!
//! [`Decoder`] reads the events of a provider, [`Encoder`] writes the messages for a client. The messages of the event
//! stream themselves are read by `framing`.

mod block;
mod decode;
mod encode;

pub(super) use block::{blob, envelope, put_call_id, put_input};
pub use decode::Decoder;
pub use encode::Encoder;
