//! HTTP/1.1 with providers: one exchange on a connection, without a buffer while the provider is silent.
//!
//! `session` is the exchange: it writes head and body, in one write if they are small, and reads the response. `head`
//! parses response heads, `body` finds the end of a body and removes the framing of chunks.
//!
//! Pingora's session of a client allocates 64 KiB for the body of each response and keeps the heads of request and
//! response until the end (docs/decisions/004). This one reads to a buffer of the thread, and keeps nothing.
//!
//! Must not live here: connecting and pooling (`connection`, `pool`), gathering and decoding of bodies (`reader`).

mod body;
mod head;
mod session;

pub(crate) use session::READ_BUFFER;
pub use session::{BodyRead, Http1Exchange};
