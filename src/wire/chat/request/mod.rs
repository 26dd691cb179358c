//! Requests of the chat format.
//!
//! Here live the reader of what clients send, in all the spellings of OpenAI, of its compatible providers and of the
//! gateway's own specification ([`decode`]), and the writer of what a provider of this format takes ([`encode`]). A
//! file each for the request itself, for the conversation, for its parts, for tools and for how reasoning is asked for.
//!
//! Here must not live: what one provider takes and another does not; that is said by the
//! [`Dialect`](crate::canonical::Dialect).

mod conversation;
mod decode;
mod encode;
mod fits;
mod media;
mod message;
mod parts;
mod read;
mod reasoning;
mod response_format;
mod thinking;
mod tools;

pub use decode::decode;
pub use encode::encode;
pub use fits::fits;
