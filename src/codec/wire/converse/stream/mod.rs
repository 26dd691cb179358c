//! Streams of the Converse format: decoder and encoder.
//!
//! [`Decoder`] reads the events of a provider, [`Encoder`] writes the messages for a client. The messages of the event
//! stream themselves are read by `framing`.

mod decode;
mod encode;
mod part;

pub use decode::Decoder;
pub use encode::Encoder;
pub use part::DELTA_HEADERS;
pub(super) use part::{blob, envelope, envelope_of_call, put_input};
