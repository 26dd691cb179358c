//! Requests of the messages format.
//!
//! Here live the reader of a client's request ([`decode`]: parameters, and its turns and blocks) and the writer of a
//! provider's ([`encode`]: parameters, the conversation as the provider wants it, tools and schemas). What a target can
//! do at all is told by the dialect; what must not live here is the name of anybody who speaks the format.

mod blocks;
mod decode;
mod encode;
mod plan;
mod schema;
mod tools;
mod turns;

pub use decode::decode;
pub use encode::encode;
