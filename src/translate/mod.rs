//! Where two formats meet, or the same format meets itself.
//!
//! Here lives the decision of an exchange, taken once: pass everything as it is ([`verbatim`]), and the meter that
//! reads along ([`Meter`]). Here must not live: sockets, vendors, routes; an exchange sees bytes and formats.

mod meter;
mod run;
pub mod verbatim;

#[cfg(test)]
mod tests;

pub use meter::Meter;
pub use verbatim::{StreamError, Verbatim};
