//! Documents in an SQLite file: a thread for responses and provider signatures, and one for tasks and owners.

mod owners;
mod signatures;
mod store;
mod tasks;
#[cfg(test)]
mod tests;

pub use store::SqliteStore;
pub use tasks::SqliteTasks;
