//! What outlives a request: at present the responses that the gateway keeps for vendors that keep none.
//!
//! Here lives the trait [`Store`] with its promises, and its implementations: [`sqlite`], the embedded one. Only this
//! room names a database. Here must not live: what the kept texts mean (`wire`), who asks (`account`), when something
//! is kept (`proxy`). To the store, what it keeps is bytes under a name.

pub mod sqlite;

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

/// Keeps responses.
///
/// Promises:
/// * No method waits. Each hands a job to the store's own thread over a bounded queue, and returns the [`Pending`]
///   outcome; a queue that is full is an outcome at once.
/// * What an outcome has confirmed is found by whoever asks after that, also when the process has ended in between.
/// * An account finds and removes its own and nothing else: for every other it is as if there were nothing.
/// * What is expired or removed is never found again.
/// * The limits hold: what is larger than one response may be is refused, and what would make the whole larger than it
///   may be takes the place of the oldest.
pub trait Store: Send + Sync {
    /// Keeps a response. Under an id that the account has already, the new one replaces the old one.
    fn keep(&self, response: Response) -> Pending<()>;

    /// Finds a response.
    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>>;

    /// Removes a response; tells whether there was one.
    fn remove(&self, account: &str, id: &str) -> Pending<bool>;

    /// Bytes that all that is kept counts for, by the latest account.
    fn size(&self) -> u64;
}

/// A response to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
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
pub struct Limits {
    /// How long a response is kept. Zero keeps nothing.
    pub lifetime: Duration,
    /// Largest response with its conversation, in bytes.
    pub response: usize,
    /// Most bytes of all together.
    pub total: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The response is larger than one may be.
    #[error("{size} bytes are more than the {limit} that a response may have")]
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
    fn new() -> (oneshot::Sender<Result<T, StoreError>>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Pending(receiver))
    }

    /// An outcome that is known.
    fn known(outcome: Result<T, StoreError>) -> Self {
        let (sender, pending) = Pending::new();
        // The other end is in the hand of the caller.
        let _ = sender.send(outcome);
        pending
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
