//! Documents on a Valkey server: responses, provider signatures, tasks and owners.

mod owners;
mod store;
mod tasks;

pub use store::ValkeyStore;
