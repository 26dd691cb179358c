//! The store of a fleet, on a Valkey or Redis server: alone, behind sentinels, or a cluster.
//!
//! Here live the connection, the scripts that the server runs, the ledger of a gateway of the fleet, what is kept of
//! conversations and tasks, and what people ask. Here must not live: what a charge is for (`account`), and what else is
//! done with a record than to keep it.
//!
//! All keys of an account have its name as their hash tag, so that one script reaches them in a cluster, too. Money
//! is changed by scripts alone, each of which does all that it does or nothing.

mod bring;
mod clerk;
mod desk;
mod fleet;
mod hand;
mod kept;
mod keys;
mod limits;
mod link;
mod owners;
mod parcel;
mod purse;
mod report;
mod round;
mod script;
mod tasks;
#[cfg(test)]
mod tests;

pub use desk::ValkeyAdmin;
pub use fleet::{ClusterLedger, ClusterLedgerConfig, OnOutage};
pub use kept::ValkeyStore;
pub use link::{ServerAddress, ServerAddressError};
