//! Who asks, and what they may do.
//!
//! Here live keys, as hashes only ([`Keys`]), and permissions ([`Permission`]), and how a key takes losses
//! ([`Losses`]). Here must not live: HTTP, or where a
//! key stands in a request.

mod key;
mod losses;
mod permission;

pub use key::{Key, KeyHash, Keys, NewKey, State, is_mistyped};
pub use losses::Losses;
pub use permission::{Pattern, Permission};
