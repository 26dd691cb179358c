//! Access to the databases: one SQLite file, or a Valkey server.
//!
//! The file with its schema ([`schema`]), the connection to a server with its key names and Lua scripts ([`valkey`]),
//! the lock that one gateway holds on its file (`store_lock`), databases of other programs that are imported ([`foreign`]), and the outcome of an operation that runs on another
//! thread ([`Pending`]) live here. [`crate::ledger`] and
//! [`crate::kv`] build on it; only these three modules name a database. Here must not live: the meaning of what is
//! stored.

pub mod foreign;
pub(crate) mod journal_files;
pub mod schema;
mod store_lock;
#[cfg(test)]
pub(crate) mod tests;
pub mod valkey;

pub use schema::OpenError;
pub use store_lock::StoreLock;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Polling interval of [`Pending::wait`], which runs outside a Tokio runtime.
const WAIT_POLL_INTERVAL: Duration = Duration::from_micros(20);

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
    pub fn new() -> (oneshot::Sender<Result<T, StoreError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Pending(receiver))
    }

    /// Returns an outcome that is known already.
    pub fn known(outcome: Result<T, StoreError>) -> Self {
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

/// Returns a time span in milliseconds.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the current time in Unix milliseconds.
pub(crate) fn now() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
