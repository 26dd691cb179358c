//! What a request, an answer and an event mean, in nobody's format.
//!
//! Here lives the hub that every wire format is decoded into and encoded from. Here must not live: the name of a
//! format or of a vendor, or any input or output.

pub mod usage;

pub use usage::Usage;
