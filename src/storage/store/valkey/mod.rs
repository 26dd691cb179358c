//! Access to a Valkey or Redis server: a single server, behind sentinels, or a cluster.
//!
//! The connection, the names of keys, and the Lua scripts that run on the server live here. Here must not live: the
//! meaning of a charge (`ledger`), or any use of a record beyond storing it.
//!
//! All keys of an account have its name as their hash tag, so that one script can access them in a cluster, too. Only
//! scripts change money, because a script runs atomically.

pub(crate) mod connection;
pub(crate) mod keys;
pub(crate) mod script;

pub use connection::{ServerAddress, ServerAddressError};
