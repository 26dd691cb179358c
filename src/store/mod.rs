//! What outlives a request: money, usage, and what is kept of conversations.
//!
//! Here live five traits with their promises: [`Store`] keeps responses for providers that keep none, and seals for
//! clients that drop them; [`Ledger`] keeps balances and one record for each request; [`Limiter`] counts limits for
//! several gateways; [`TaskStore`] keeps what providers work on for minutes; and [`OwnerStore`] knows whose a response
//! is that its provider keeps. Here live their implementations, too: [`sqlite`], [`sqlite_ledger`] and
//! [`sqlite_tasks`], embedded, in one file, and [`valkey`], for a fleet. Only this room names a database. Here must not
//! live: what the kept texts mean (`wire`), who asks and what that costs (`account`), when something is kept (`proxy`).

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
pub use limiter::{Limiter, Whose};
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

/// How often a thread outside of a runtime looks for an outcome.
const LOOK: Duration = Duration::from_micros(20);

/// Keeps responses and seals.
///
/// Promises:
/// * No method waits. Each hands a job to the store's own thread over a bounded queue, and returns the [`Pending`]
///   outcome; a queue that is full is an outcome at once.
/// * What an outcome has confirmed is found by whoever asks after that, also when the process has ended in between.
/// * An account finds and removes its own and nothing else: for every other it is as if there were nothing.
/// * What is expired or removed is never found again.
/// * The limits hold: what is larger than one response may be is refused, and what would make the whole larger than it
///   may be takes the place of the oldest. Responses and seals have limits of their own.
pub trait Store: Send + Sync {
    /// Keeps a response. Under an id that the account has already, the new one replaces the old one.
    fn keep(&self, response: StoredResponse) -> Pending<()>;

    /// Whether responses are kept for any time.
    fn keeps_responses(&self) -> bool;

    /// Finds a response.
    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>>;

    /// Removes a response; tells whether there was one.
    fn remove(&self, account: &str, id: &str) -> Pending<bool>;

    /// Keeps seals: what a provider wants back word for word, and a client does not know how to keep. Under a key that
    /// the account has already, the new one replaces the old one.
    fn remember(&self, account: &str, entries: Vec<(SealKey, Bytes)>) -> Pending<()>;

    /// Finds seals: for each key, in order, what is kept under it.
    fn recall(&self, account: &str, keys: Vec<SealKey>) -> Pending<Vec<Option<Bytes>>>;

    /// Bytes that all responses count for, by the latest account.
    fn size(&self) -> u64;

    /// The threads that do its work.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }
}

/// A hash of what a seal belongs to.
pub type SealKey = [u8; 32];

/// A response to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponse {
    /// Whose it is.
    pub account: String,
    /// Its id.
    pub id: String,
    /// The conversation that it answered.
    pub items: Bytes,
    /// The response itself.
    pub document: Bytes,
}

/// A response that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The conversation that it answered.
    pub items: Bytes,
    /// The response itself.
    pub document: Bytes,
}

/// How long and how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// How long a response is kept. Zero keeps nothing.
    pub lifetime: Duration,
    /// Largest response with its conversation, in bytes.
    pub response: usize,
    /// Most bytes of all together.
    pub total: u64,
    /// How long a seal is kept. Zero keeps none.
    pub seal_lifetime: Duration,
    /// Most bytes of all seals together.
    pub seal_total: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is larger than one may be.
    #[error("{size} bytes are more than the {limit} that may be kept together")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// There is more to do than the queue holds.
    #[error("the store does not keep up")]
    Busy,
    /// It took too long.
    #[error("the store did not answer in time")]
    Late,
    /// The database failed.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            StoreError::TooLarge { .. } => "too_large",
            StoreError::Busy => "busy",
            StoreError::Late => "late",
            StoreError::Failed(_) => "failed",
        }
    }
}

/// An outcome that is on its way.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Pending<T> {
    /// The two ends of an outcome.
    pub(crate) fn new() -> (oneshot::Sender<Result<T, StoreError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Pending(receiver))
    }

    /// An outcome that is known.
    pub(crate) fn known(outcome: Result<T, StoreError>) -> Self {
        let (sender, pending) = Pending::new();
        // The other end is in the hand of the caller.
        let _ = sender.send(outcome);
        pending
    }

    /// Waits for the outcome outside of a runtime, but not longer than this.
    ///
    /// # Errors
    /// It was not done, or not in time.
    pub fn wait(mut self, time: Duration) -> Result<T, StoreError> {
        let end = Instant::now() + time;
        loop {
            match self.0.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Closed) => {
                    return Err(StoreError::Failed("its thread has ended".to_owned()));
                }
                Err(TryRecvError::Empty) if Instant::now() >= end => return Err(StoreError::Late),
                Err(TryRecvError::Empty) => std::thread::park_timeout(LOOK),
            }
        }
    }

    /// Waits for the outcome, but not longer than this. What takes longer may still be done later.
    ///
    /// # Errors
    /// It was not done, or not in time.
    pub async fn within(self, time: Duration) -> Result<T, StoreError> {
        match tokio::time::timeout(time, self.0).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(StoreError::Failed("its thread has ended".to_owned())),
            Err(_) => Err(StoreError::Late),
        }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Unix milliseconds.
fn now() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
