//! Streams of the chat format: decoder from chunks to events, encoder from events to chunks.
//!
//! [`Decoder`] reads the dialects of all providers of this format, with the state of each choice and of its tool calls.
//! [`Encoder`] writes the chunks that OpenAI's own SDKs read.
//!
//! The framing of server-sent events and the meaning of events do not belong here.

mod calls;
mod choice;
mod decode;
mod encode;
mod fast_path;
mod ids;
mod parsed_choice;
pub(in crate::wire::chat) mod pending;
mod tags;
mod writer_state;

pub use decode::Decoder;
pub use encode::Encoder;
