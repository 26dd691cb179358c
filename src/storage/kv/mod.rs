//! Documents that outlive a request, found by their key: stored responses, provider signatures, tasks and owners.
//!
//! Three traits live here, each with its guarantees: [`Store`] holds responses for providers that store none, and
//! provider signatures for clients that drop them; [`TaskStore`] holds long-running tasks; [`OwnerStore`] records which
//! account owns a response that its provider stores. Their implementations live here too: [`sqlite`] (embedded, one
//! file) and [`valkey`] (for a fleet). Here must not live: the meaning of stored documents (`wire`), money (`ledger`),
//! the decision when to store something (`proxy`).

mod owners;
pub mod sqlite;
mod tasks;
pub mod valkey;

pub use owners::OwnerStore;
pub use tasks::{IdempotencyKey, NewTask, StoredTask, TaskStore};

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::Pending;
use sync::supervise::Supervised;

/// Store of responses and of provider signatures.
///
/// Guarantees:
/// * No method blocks. Each queues a job for the store's own thread and returns a [`Pending`] outcome. If the bounded
///   queue is full, the outcome is known at once ([`StoreError::Busy`]).
/// * A confirmed write is visible to every later read, also after a restart of the process.
/// * An account finds and removes only its own entries. Entries of other accounts behave as if they did not exist, except
///   that [`Store::holder`] tells that an id is taken.
/// * An entry that has expired or was removed is never returned again.
/// * Size limits hold: a response above the limit for one response is rejected; a write that exceeds the total evicts
///   the oldest entries. Responses and provider signatures have separate limits.
pub trait Store: Send + Sync {
    /// Stores a response. Replaces the response that this account has stored under the same id.
    fn store_response(&self, response: StoredResponse) -> Pending<()>;

    /// Returns true if responses are stored at all, that is, if [`StoreLimits::lifetime`] is not zero.
    fn stores_responses(&self) -> bool;

    /// Finds a response. The outcome is `None` if the account has no unexpired response with this id.
    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>>;

    /// Tells who has an unexpired response with this id, from this account's point of view. It is the only method that
    /// looks at entries of other accounts; it reveals no more than that one exists, for ids that must not be used.
    fn holder(&self, account: &str, id: &str) -> Pending<Holder>;

    /// Finds the documents of responses, without the conversations that led to them. The outcome has one element per id,
    /// in their order; `None` if the account has no unexpired response with this id.
    fn find_documents(&self, account: &str, ids: Vec<String>) -> Pending<Vec<Option<Bytes>>>;

    /// Removes a response. The outcome is true if there was one.
    fn remove(&self, account: &str, id: &str) -> Pending<bool>;

    /// Stores provider signatures: opaque bytes (thinking signatures, encrypted reasoning) that a provider wants back
    /// verbatim and that the client's format cannot carry. Replaces what this account has stored under the same key.
    fn store_signatures(&self, account: &str, entries: Vec<(StoreKey, Bytes)>) -> Pending<()>;

    /// Finds provider signatures. The outcome has one element per key, in the order of `keys`; `None` if nothing is
    /// stored.
    fn load_signatures(&self, account: &str, keys: Vec<StoreKey>) -> Pending<Vec<Option<Bytes>>>;

    /// Returns the accounted size of all stored responses, in bytes, as of the store's last count.
    fn size(&self) -> u64;

    /// Returns the threads that do the work of this store.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }
}

/// Key of a provider signature: hash of the content that the signature belongs to.
pub type StoreKey = [u8; 32];

/// Response to be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponse {
    /// Account that owns the response.
    pub account: String,
    /// Id of the response.
    pub id: String,
    /// Conversation that led to the response, as a serialized list of items.
    pub items: Bytes,
    /// The response, as a serialized document.
    pub document: Bytes,
}

/// Holder of a response id, from an account's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// No account has stored a response with this id.
    #[default]
    NoAccount,
    /// The account itself has.
    Asker,
    /// Another account has, and this one has not.
    OtherAccount,
}

/// Stored response, as [`Store::find`] returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Conversation that led to the response, as a serialized list of items.
    pub items: Bytes,
    /// The response, as a serialized document.
    pub document: Bytes,
}

/// Retention and size limits of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Lifetime of a response. Zero disables the storage of responses.
    pub lifetime: Duration,
    /// Largest response including its conversation, in bytes.
    pub response: usize,
    /// Largest total size of all responses, in bytes.
    pub total: u64,
    /// Lifetime of a provider signature. Zero disables their storage.
    pub signature_lifetime: Duration,
    /// Largest total size of all provider signatures, in bytes.
    pub signature_total: u64,
}
