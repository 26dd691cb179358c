//! Streams of the generate format: [`Decoder`] from frames to events, [`Encoder`] from events to frames.
//!
//! This module has only stream state. Code that whole responses need as well, such as the writers of parts, is in
//! [`part`](super::part).

mod candidate;
mod decode;
mod encode;
mod fast_path;
mod frame_members;
mod partial;

pub use decode::Decoder;
pub use encode::Encoder;
