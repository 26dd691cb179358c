//! Streams of the messages format: named events, one block open at a time, indexes from 0, and the reason why the
//! answer ended in `message_delta`, which `message_stop` follows.
//!
//! Here live the reader and the writer of these events, and nothing that is not about a stream: what a block holds,
//! what a reason means and how tokens are counted stands beside this folder, because a whole answer says it too.

mod decode;
mod encode;
mod part;

pub use decode::Decoder;
pub use encode::Encoder;
