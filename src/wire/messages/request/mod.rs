//! Requests of the messages format: decoder and encoder.
//!
//! [`decode`] reads a client's request: parameters, turns and blocks. [`encode`] writes a provider's request:
//! parameters, the conversation as the provider requires it, tools and schemas. Capabilities of the target come from
//! the dialect; names of providers do not belong here.

mod automatic;
mod blocks;
mod decode;
mod encode;
mod plan;
mod schema;
mod tools;
mod turns;

pub use decode::decode;
pub use encode::encode;
pub(super) use plan::is_blank;
