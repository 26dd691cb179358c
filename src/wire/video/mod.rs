//! Videos: what clients send and get (specification, sections 2.8 and 4.8 to 4.10), what vendors are asked in, and what they
//! answer.
//!
//! Here live the reader of requests ([`ask`]) with the markers of prompts ([`markers`]), the four forms that vendors want
//! ([`write`]), what they say of a task ([`read`]) and what a client is told of it ([`answer`]). Which model takes what
//! comes in a [`VideoDialect`](crate::canonical::video::VideoDialect). Here must not live: when a vendor is asked, and
//! where its addresses are.

pub mod answer;
pub mod ask;
pub mod markers;
pub mod members;
pub mod read;
#[cfg(test)]
mod tests;
pub mod write;

pub use ask::decode;
