//! Tasks as the gateway sees them: what a provider works on for minutes, under an id that is its owner's alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Pending;
use crate::supervise::Supervised;

/// Idempotency key of a task: hash of what two submissions of the same task have in common.
pub type IdempotencyKey = [u8; 32];

/// Keeps tasks.
///
/// Promises:
/// * No method waits. What an outcome has confirmed is found by whoever asks after that, also when the process has
///   ended in between, and by every gateway that shares the store.
/// * An owner finds, changes and removes its own and nothing else: for every other it is as if there were nothing.
/// * Of two submissions of one owner with the same mark, one makes a task and the other learns its id, for as long as
///   the mark holds.
/// * A state is changed by whoever knows the version that it replaces; of several who know it, by one.
/// * A task that is due is given to one of those who look for such, and to nobody else before the lease is over.
/// * What is expired or removed is never found again.
pub trait TaskStore: Send + Sync {
    /// Keeps a new task. The outcome is the id of the task that has its mark already, if there is one; then nothing
    /// is kept.
    fn submit(&self, task: NewTask) -> Pending<Option<String>>;

    /// Finds a task.
    fn task(&self, owner: &str, id: &str) -> Pending<Option<StoredTask>>;

    /// Replaces a task's state, if it still has this version; tells whether it had. It is due after the time that is
    /// given; never, where none is.
    fn change(
        &self,
        owner: &str,
        id: &str,
        version: u64,
        state: Bytes,
        due: Option<Duration>,
    ) -> Pending<bool>;

    /// Removes a task, and its mark; tells whether there was one.
    fn forget(&self, owner: &str, id: &str) -> Pending<bool>;

    /// Tasks that are due, at most so many. They are due again when the lease is over.
    fn due(&self, most: usize, lease: Duration) -> Pending<Vec<StoredTask>>;

    /// The threads that do its work.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }
}

/// A task that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Whose it is.
    pub owner: String,
    /// Its id, which nobody can guess.
    pub id: String,
    /// What makes it the same as another one, and for how long.
    pub mark: Option<(IdempotencyKey, Duration)>,
    /// How long it is kept.
    pub lifetime: Duration,
    /// After which time somebody should look after it.
    pub due: Duration,
    /// What never changes.
    pub facts: Bytes,
    /// What does.
    pub state: Bytes,
}

/// A task that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredTask {
    /// Whose it is.
    pub owner: String,
    /// Its id.
    pub id: String,
    /// How often its state has changed.
    pub version: u64,
    /// What never changes.
    pub facts: Bytes,
    /// What does.
    pub state: Bytes,
}
