//! Requests of the Converse format: decoder and encoder.
//!
//! [`decode`] reads a client's request, [`encode`] writes a provider's: the conversation in the order that the service
//! requires, tools, documents with names that it accepts, and parameters of the model. Capabilities of the target come
//! from the dialect; names of providers do not belong here.

mod blocks;
mod decode;
mod document;
mod encode;
mod fields;
mod own;
mod plan;
mod read;
mod tools;
mod turns;

pub(in crate::wire) use blocks::blob_signature;
pub use decode::decode;
pub use encode::encode;
pub use own::split_element;
