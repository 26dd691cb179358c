//! Task store interface. A task is work of minutes at a provider (a video, for example); only its owner knows its id.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::Pending;
use sync::supervise::Supervised;

/// Idempotency key of a task: hash of what two submissions of the same task have in common.
pub type IdempotencyKey = [u8; 32];

/// Store of tasks.
///
/// Guarantees:
/// * No method blocks. A confirmed write is visible to every later read, also after a restart of the process, and to
///   every gateway that shares the store.
/// * An owner finds, changes and removes only its own tasks. Tasks of others behave as if they did not exist.
/// * Of two submissions of one owner with the same idempotency key, one creates a task and the other receives its id,
///   while the key is valid.
/// * A state is replaced by compare-and-swap on its version: of several writers with the same version, one succeeds.
/// * A due task is leased to one poller, and to no other before the lease expires.
/// * A task that has expired or was removed is never returned again.
pub trait TaskStore: Send + Sync {
    /// Stores a new task. The outcome is `None` if it was stored, or the id of the task that has the same idempotency
    /// key already; then nothing is stored.
    fn submit(&self, task: NewTask) -> Pending<Option<String>>;

    /// Finds a task. The outcome is `None` if the owner has no unexpired task with this id.
    fn task(&self, owner: &str, id: &str) -> Pending<Option<StoredTask>>;

    /// Replaces a task's state if its version is still `version`. The outcome is true if it was replaced. The task is
    /// due after `due`, or never if it is `None`.
    fn change(
        &self,
        owner: &str,
        id: &str,
        version: u64,
        state: Bytes,
        due: Option<Duration>,
    ) -> Pending<bool>;

    /// Removes a task and its idempotency key. The outcome is true if there was one.
    fn remove(&self, owner: &str, id: &str) -> Pending<bool>;

    /// Leases at most `most` tasks that are due. They are due again when the lease expires.
    fn due(&self, most: usize, lease: Duration) -> Pending<Vec<StoredTask>>;

    /// Returns the threads that do the work of this store.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }
}

/// New task, as it is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Owner: account or key name.
    pub owner: String,
    /// Id, which cannot be guessed.
    pub id: String,
    /// Idempotency key and its lifetime.
    pub idempotency_key: Option<(IdempotencyKey, Duration)>,
    /// Lifetime of the task.
    pub lifetime: Duration,
    /// Time until the first poll is due.
    pub due: Duration,
    /// Immutable part, serialized.
    pub facts: Bytes,
    /// Mutable part, serialized.
    pub state: Bytes,
}

/// Stored task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredTask {
    /// Owner: account or key name.
    pub owner: String,
    /// Id.
    pub id: String,
    /// Version: how often the state has been replaced.
    pub version: u64,
    /// Immutable part, serialized.
    pub facts: Bytes,
    /// Mutable part, serialized.
    pub state: Bytes,
}
