//! Backends of the ledger: an SQLite file, and a Valkey server for a fleet.

pub mod sqlite;
pub mod valkey;
