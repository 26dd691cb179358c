//! Who asks, and what they may do.
//!
//! Here live keys, as hashes only ([`Keys`]), and permissions ([`Permission`]). Here must not live: HTTP, or where a
//! key stands in a request.

mod key;
mod permission;

pub use key::{Key, KeyHash, Keys, NewKey, State, is_mistyped};
pub use permission::{Pattern, Permission};
