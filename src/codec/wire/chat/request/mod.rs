//! Requests of the chat format: decoder and encoder.
//!
//! [`decode`] reads requests of clients, in the spellings of OpenAI, of compatible providers and of the gateway's own
//! specification. [`encode`] writes a request for a provider of this format. There is one file each for the request
//! itself, the conversation, its content parts, tools, and the reasoning settings.
//!
//! Differences between providers do not belong here; the encoder reads them from the
//! [`Dialect`](crate::canonical::Dialect).

mod conversation;
mod decode;
mod encode;
mod extensions;
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
pub use extensions::{is_added, loss_in_message, takes_in_message};
pub use fits::fits;
