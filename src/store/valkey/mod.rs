//! Store of a fleet on a Valkey or Redis server: a single server, behind sentinels, or a cluster.
//!
//! The connection, the Lua scripts that run on the server, the cluster ledger, the stores of responses, provider
//! signatures, tasks and owners, and their administration live here. Here must not live: the meaning of a charge
//! (`account`), or any use of a record beyond storing it.
//!
//! All keys of an account have its name as their hash tag, so that one script can access them in a cluster, too. Only
//! scripts change money, because a script runs atomically.

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
