//! Requests of the messages format: decoder and encoder.
//!
//! [`decode`] reads a client's request: parameters, turns and blocks. [`encode`] writes a provider's request:
//! parameters, the conversation as the provider requires it, tools and schemas. [`prepare`] replaces what only Anthropic
//! understands before a request goes to a provider of another format. Capabilities of the target come from
//! the dialect; names of providers do not belong here.

mod blocks;
mod decode;
mod encode;
mod foreign;
mod own;
mod plan;
mod tools;
mod turns;

pub use decode::decode;
pub use encode::encode;
pub use foreign::prepare;
pub use own::split_element;
