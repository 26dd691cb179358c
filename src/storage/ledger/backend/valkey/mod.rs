//! Ledger of a fleet on a Valkey or Redis server: balances are leased, and usage is shipped in batches.

mod account_lease;
mod admin;
mod cluster_ledger;
mod fleet;
mod lease_manager;
mod limits;
mod maintenance;
mod report;
mod ship;
#[cfg(test)]
mod tests;
mod usage_batch;

pub use admin::ValkeyAdmin;
pub use cluster_ledger::{ClusterLedger, ClusterLedgerConfig, OnOutage};
