//! Counters of prompt caching by key and model: a table of fixed size without locks.

use super::affinity::fingerprint;
use sync::atomic::AtomicU64;

/// Number of counters.
const COUNTERS: usize = 4_096;

/// Counters by key and model. Keys and models that hash to the same counter share it.
#[derive(Debug)]
pub(super) struct CacheCounters(Box<[AtomicU64]>);

impl Default for CacheCounters {
    fn default() -> Self {
        CacheCounters((0..COUNTERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl CacheCounters {
    /// Returns the counter of a key and a model. `None` if the table is empty.
    pub(super) fn of(&self, key: &str, model: &str) -> Option<&AtomicU64> {
        let hash = fingerprint(fingerprint(0, key.as_bytes()), model.as_bytes());
        self.0.get(usize::try_from(hash % COUNTERS as u64).unwrap_or(0))
    }
}
