//! Causes of missed prompt caches, by key and model, in memory of bounded size.
//!
//! A prompt is fingerprinted only while its key is watched: after a request that read nothing from the cache, for some
//! requests. A key whose cache works costs nothing.

use parking_lot::Mutex;

use super::affinity::fingerprint;
use codec::canonical::prompt_sections::{PromptSection, PromptSections};

/// Number of keys and models that are watched at a time, at most. Those that hash to the same entry share it.
const WATCHED: usize = 1_024;
/// Requests with a read from the cache after which a key is no longer watched.
const CALM: u8 = 16;
/// Prompts that are kept of each: two conversations of one key often alternate.
const PROMPTS: usize = 2;

/// Why a request has read nothing from the provider's prompt cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMiss {
    /// The key was not watched yet: there is no earlier prompt to compare with.
    Unwatched,
    /// The prompt differs from the most similar earlier one from this section on.
    Changed(PromptSection),
    /// An earlier prompt is the beginning of this one: its entry has expired, was evicted, or is on another machine.
    Unchanged,
}

impl CacheMiss {
    /// Returns the label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            CacheMiss::Unwatched => "unknown",
            CacheMiss::Changed(section) => section.label(),
            CacheMiss::Unchanged => "nothing",
        }
    }
}

/// Watch of the requests of one key to one model.
#[derive(Debug, Default)]
struct CacheWatch {
    /// Key and model, as a hash.
    of: u64,
    /// Requests with a read for which the watch goes on.
    left: u8,
    /// Latest prompts, the newest at the end.
    prompts: Vec<PromptSections>,
}

impl CacheWatch {
    /// Returns what differs between a prompt and the most similar one before, and keeps the prompt.
    fn compare(&mut self, prompt: PromptSections) -> CacheMiss {
        let similar = self.prompts.iter().enumerate().max_by_key(|(_, earlier)| prompt.shared(earlier));
        let similar = similar.map(|(at, earlier)| (at, prompt.first_change(earlier)));
        let miss = match similar {
            None => CacheMiss::Unwatched,
            Some((_, Some(section))) => CacheMiss::Changed(section),
            Some((_, None)) => CacheMiss::Unchanged,
        };
        // The next turn of a conversation takes the place of the one before.
        match similar {
            Some((at, None)) => _ = self.prompts.remove(at),
            _ if self.prompts.len() >= PROMPTS => _ = self.prompts.remove(0),
            _ => {}
        }
        self.prompts.push(prompt);
        miss
    }
}

/// Watches by key and model.
#[derive(Debug)]
pub struct CacheMissTable(Box<[Mutex<Option<Box<CacheWatch>>>]>);

impl Default for CacheMissTable {
    fn default() -> Self {
        CacheMissTable((0..WATCHED).map(|_| Mutex::default()).collect())
    }
}

impl CacheMissTable {
    fn entry(&self, of: u64) -> Option<&Mutex<Option<Box<CacheWatch>>>> {
        self.0.get(usize::try_from(of % WATCHED as u64).unwrap_or(0))
    }

    /// Returns whether the prompts of a key to a model are to be fingerprinted.
    pub fn watches(&self, key: &str, model: &str) -> bool {
        let of = hash(key, model);
        self.entry(of).is_some_and(|entry| entry.lock().as_ref().is_some_and(|watch| watch.of == of))
    }

    /// Records a request: `prompt` has its fingerprints if it was watched, `has_read` is whether it read from the
    /// cache. Returns the cause of a miss; `None` for a read.
    pub fn record(
        &self,
        key: &str,
        model: &str,
        prompt: Option<PromptSections>,
        has_read: bool,
    ) -> Option<CacheMiss> {
        let of = hash(key, model);
        let mut entry = self.entry(of)?.lock();
        let watched = entry.as_ref().is_some_and(|watch| watch.of == of);
        if has_read {
            let watch = entry.as_mut().filter(|_| watched)?;
            watch.left = watch.left.saturating_sub(1);
            if watch.left == 0 {
                *entry = None;
            } else if let Some(prompt) = prompt {
                watch.compare(prompt);
            }
            return None;
        }
        if !watched {
            *entry = Some(Box::new(CacheWatch { of, ..CacheWatch::default() }));
        }
        let watch = entry.as_mut()?;
        watch.left = CALM;
        Some(prompt.map_or(CacheMiss::Unwatched, |prompt| watch.compare(prompt)))
    }
}

fn hash(key: &str, model: &str) -> u64 {
    fingerprint(fingerprint(0, key.as_bytes()), model.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(tools: u64, turns: &[u32]) -> Option<PromptSections> {
        Some(PromptSections { tools, instructions: 1, turns: turns.to_vec() })
    }

    #[test]
    fn cache_miss_is_explained_from_the_second_one_on() {
        let table = CacheMissTable::default();
        assert!(!table.watches("k", "m"));
        assert_eq!(table.record("k", "m", None, false), Some(CacheMiss::Unwatched));
        assert!(table.watches("k", "m") && !table.watches("k", "other"));
        assert_eq!(table.record("k", "m", prompt(1, &[1]), false), Some(CacheMiss::Unwatched));
        assert_eq!(table.record("k", "m", prompt(1, &[1, 2]), false), Some(CacheMiss::Unchanged));
        let changed = |section| Some(CacheMiss::Changed(section));
        assert_eq!(table.record("k", "m", prompt(2, &[1, 2]), false), changed(PromptSection::Tools));
        // Another conversation in between: each is compared with its own last request.
        assert_eq!(table.record("k", "m", prompt(2, &[1, 3, 4]), false), changed(PromptSection::Turn(2)));
        assert_eq!(table.record("k", "m", prompt(2, &[1, 2, 9]), false), Some(CacheMiss::Unchanged));
    }

    #[test]
    fn cache_watch_ends_when_the_cache_is_read() {
        let table = CacheMissTable::default();
        assert_eq!(table.record("k", "m", None, true), None);
        assert!(!table.watches("k", "m"));
        table.record("k", "m", None, false);
        for _ in 0..CALM {
            assert!(table.watches("k", "m"));
            assert_eq!(table.record("k", "m", prompt(1, &[1]), true), None);
        }
        assert!(!table.watches("k", "m"));
    }

    #[test]
    fn cache_watches_are_bounded() {
        let table = CacheMissTable::default();
        for key in 0..3 * WATCHED {
            for turn in 0..4 {
                table.record(&key.to_string(), "m", prompt(turn, &[1]), false);
            }
        }
        let kept: usize =
            table.0.iter().map(|entry| entry.lock().as_ref().map_or(0, |watch| watch.prompts.len())).sum();
        assert!(kept <= WATCHED * PROMPTS, "{kept}");
    }
}
