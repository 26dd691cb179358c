//! Storage that outlives a request: balances, usage records, stored responses, provider signatures and tasks.
//!
//! Five traits live here, each with its guarantees: [`Store`] holds responses for providers that store none, and
//! provider signatures for clients that drop them; [`Ledger`] holds balances and one usage record per request;
//! [`Limiter`] enforces limits across several gateways; [`TaskStore`] holds long-running tasks; [`OwnerStore`] records
//! which account owns a response that its provider stores. Their implementations live here too: [`sqlite`],
//! [`sqlite_ledger`] and [`sqlite_tasks`] (embedded, one file) and [`valkey`] (for a fleet). Only this module names a
//! database. Here must not live: the meaning of stored documents (`wire`), authentication and prices (`account`), the
//! decision when to store something (`proxy`).

pub mod admin;
pub mod journal;
pub mod ledger;
pub mod limiter;
pub mod owners;
pub mod record;
pub mod schema;
pub mod sqlite;
pub mod sqlite_ledger;
pub mod sqlite_tasks;
pub mod task;
pub mod valkey;
mod vault;

#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;

pub use ledger::{AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent};
pub use limiter::{LimitOwner, Limiter};
pub use owners::OwnerStore;
pub use record::UsageRecord;
pub use schema::OpenError;
pub use task::{NewTask, StoredTask, TaskStore};

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::supervise::Supervised;

/// Polling interval of [`Pending::wait`], which runs outside a Tokio runtime.
const WAIT_POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Store of responses and of provider signatures.
///
/// Guarantees:
/// * No method blocks. Each queues a job for the store's own thread and returns a [`Pending`] outcome. If the bounded
///   queue is full, the outcome is known at once ([`StoreError::Busy`]).
/// * A confirmed write is visible to every later read, also after a restart of the process.
/// * An account finds and removes only its own entries. Entries of other accounts behave as if they did not exist.
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

/// Failure of a store operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The entries of one call are larger than the limit for them.
    #[error("{size} bytes are more than the limit of {limit} bytes")]
    TooLarge {
        /// Size of the entries, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The job queue is full.
    #[error("the store is overloaded")]
    Busy,
    /// The outcome did not arrive in time. The operation may still be carried out later.
    #[error("the store did not respond in time")]
    Timeout,
    /// The database failed, or the store's thread has ended.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Returns the value of the metric label for this error.
    pub fn label(&self) -> &'static str {
        match self {
            StoreError::TooLarge { .. } => "too_large",
            StoreError::Busy => "busy",
            StoreError::Timeout => "late",
            StoreError::Failed(_) => "failed",
        }
    }
}

/// Outcome of a store operation that runs on another thread.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Pending<T> {
    /// Creates the sender and the receiver of an outcome.
    pub(crate) fn new() -> (oneshot::Sender<Result<T, StoreError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Pending(receiver))
    }

    /// Returns an outcome that is known already.
    pub(crate) fn known(outcome: Result<T, StoreError>) -> Self {
        let (sender, pending) = Pending::new();
        // This cannot fail: the receiver is in `pending`.
        let _ = sender.send(outcome);
        pending
    }

    /// Waits for the outcome for at most `time`, outside a Tokio runtime, by polling.
    ///
    /// # Errors
    /// Returns the error of the operation, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub fn wait(mut self, time: Duration) -> Result<T, StoreError> {
        let end = Instant::now() + time;
        loop {
            match self.0.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Closed) => {
                    return Err(StoreError::Failed("its thread has ended".to_owned()));
                }
                Err(TryRecvError::Empty) if Instant::now() >= end => return Err(StoreError::Timeout),
                Err(TryRecvError::Empty) => std::thread::park_timeout(WAIT_POLL_INTERVAL),
            }
        }
    }

    /// Waits for the outcome for at most `time`. An operation that times out here may still be carried out later.
    ///
    /// # Errors
    /// Returns the error of the operation, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub async fn within(self, time: Duration) -> Result<T, StoreError> {
        match tokio::time::timeout(time, self.0).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(StoreError::Failed("its thread has ended".to_owned())),
            Err(_) => Err(StoreError::Timeout),
        }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the current time in Unix milliseconds.
fn now() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
