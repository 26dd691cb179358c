//! The store of a fleet, on a Valkey or Redis server: alone, behind sentinels, or a cluster.
//!
//! Here live the connection, the scripts that the server runs, the ledger of a gateway of the fleet, what is kept of
//! conversations and tasks, and what people ask. Here must not live: what a charge is for (`account`), and what else is
//! done with a record than to keep it.
//!
//! All keys of an account have its name as their hash tag, so that one script reaches them in a cluster, too. Money
//! is changed by scripts alone, each of which does all that it does or nothing.

mod account_lease;
mod admin;
mod cluster_ledger;
mod connection;
mod keys;
mod lease_manager;
mod leased_balance;
mod limits;
mod maintenance;
mod owners;
mod report;
mod script;
mod ship;
mod store;
mod tasks;
#[cfg(test)]
mod tests;
mod usage_batch;

pub use admin::ValkeyAdmin;
pub use cluster_ledger::{ClusterLedger, ClusterLedgerConfig, OnOutage};
pub use connection::{ServerAddress, ServerAddressError};
pub use store::ValkeyStore;
