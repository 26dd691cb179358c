//! Streams of this format: [`Decoder`] from frames to events, [`Encoder`] from events to frames.
//!
//! Here live the state of a stream and nothing that a whole answer needs as well: how parts look is in
//! [`part`](super::part), which both share.

mod candidate;
mod decode;
mod encode;
mod fast_path;
mod partial;

pub use decode::Decoder;
pub use encode::Encoder;
