//! Streams of the chat format: chunks that say a delta each.
//!
//! Here live the reader of what the many providers of this format send ([`Decoder`], with what it must remember of a
//! choice and of its calls) and the writer of what OpenAI's own SDKs read ([`Encoder`]).
//!
//! Here must not live: the framing of server-sent events, or the meaning of an event.

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
