//! Earlier texts of rotated keys, which are valid for a while longer.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::key::{Key, KeyHash, PassThrough};

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
pub(super) struct PreviousKeys(HashMap<KeyHash, PreviousKey, BuildHasherDefault<PassThrough>>);

impl PreviousKeys {
    /// Adds an earlier text of a key. Returns the name of the key that has it already, if there is one; it is then not added.
    pub(super) fn insert(&mut self, hash: KeyHash, key: Arc<Key>, until: i64) -> Option<Arc<str>> {
        if let Some(other) = self.0.get(&hash) {
            return Some(other.key.name.clone());
        }
        self.0.insert(hash, PreviousKey { key, until });
        None
    }

    /// Returns the key that had this text, valid or not. `None` if none had.
    pub(super) fn any(&self, hash: KeyHash) -> Option<&Arc<Key>> {
        self.0.get(&hash).map(|previous| &previous.key)
    }

    /// Returns the key whose earlier text is valid at `now`, in Unix seconds. `None` if there is none.
    pub(super) fn find(&self, hash: KeyHash, now: i64) -> Option<&Arc<Key>> {
        self.0.get(&hash).filter(|previous| previous.until > now).map(|previous| &previous.key)
    }

    /// Returns the earlier texts of a key with the ends of their validity, the latest end first.
    pub(super) fn of(&self, name: &str) -> Vec<(KeyHash, i64)> {
        let all = self.0.iter().filter(|(_, previous)| *previous.key.name == *name);
        let mut all: Vec<(KeyHash, i64)> = all.map(|(hash, previous)| (*hash, previous.until)).collect();
        all.sort_by_key(|(_, until)| std::cmp::Reverse(*until));
        all
    }
}
