//! Earlier texts of rotated keys, which are valid for a while longer.

use std::collections::HashMap;
use std::sync::Arc;

use super::key::{Key, KeyHash};

/// Largest number of earlier texts of one key.
pub const MAX_PREVIOUS: usize = 4;

/// Key by an earlier text.
#[derive(Clone, Debug)]
struct PreviousKey {
    key: Arc<Key>,
    /// End of its validity in Unix seconds.
    until: i64,
}

/// Earlier texts of keys, by their hashes. Most keys have none.
#[derive(Clone, Debug, Default)]
pub(super) struct PreviousKeys {
    by_hash: HashMap<KeyHash, PreviousKey, foldhash::fast::RandomState>,
    by_name: HashMap<Arc<str>, Vec<(KeyHash, i64)>>,
}

impl PreviousKeys {
    /// Adds an earlier text of a key. Returns the name of the key that has it already, if there is one; it is then not added.
    pub(super) fn insert(&mut self, hash: KeyHash, key: Arc<Key>, until: i64) -> Option<Arc<str>> {
        if let Some(other) = self.by_hash.get(&hash) {
            return Some(other.key.name.clone());
        }
        self.by_name.entry(key.name.clone()).or_default().push((hash, until));
        self.by_hash.insert(hash, PreviousKey { key, until });
        None
    }

    /// Returns the key that had this text, valid or not. `None` if none had.
    pub(super) fn any(&self, hash: KeyHash) -> Option<&Arc<Key>> {
        self.by_hash.get(&hash).map(|previous| &previous.key)
    }

    /// Returns the key whose earlier text is valid at `now`, in Unix seconds. `None` if there is none.
    pub(super) fn find(&self, hash: KeyHash, now: i64) -> Option<&Arc<Key>> {
        self.by_hash.get(&hash).filter(|previous| previous.until > now).map(|previous| &previous.key)
    }

    /// Returns the earlier texts of a key with the ends of their validity, the latest end first.
    pub(super) fn of(&self, name: &str) -> Vec<(KeyHash, i64)> {
        let mut all = self.by_name.get(name).cloned().unwrap_or_default();
        all.sort_by_key(|(_, until)| std::cmp::Reverse(*until));
        all
    }
}
