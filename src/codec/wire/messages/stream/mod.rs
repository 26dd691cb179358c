//! Streams of the messages format: named events, one open block at a time, indexes from 0, and the finish reason in
//! `message_delta` before `message_stop`.
//!
//! This folder holds the decoder and the encoder of these events. Content blocks, finish reasons and usage are in the
//! parent module, because whole responses share them.

mod decode;
mod encode;
mod part;

pub use decode::Decoder;
pub use encode::Encoder;
