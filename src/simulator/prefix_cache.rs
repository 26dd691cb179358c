//! Prompt cache: the prompt prefixes of earlier requests, and the cache usage of a request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::ids::{combine, hash};
use super::text::{tokens, weigh};

/// Maximum number of remembered prefixes. The oldest one is evicted first.
const MAX_PREFIXES: usize = 4096;
/// Number of blocks, from a breakpoint backwards, that are searched for a known prefix.
const LOOKBACK: usize = 20;
/// Lifetimes of an entry in seconds. A read renews the lifetime.
const SHORT_LIFETIME: u64 = 300;
const LONG_LIFETIME: u64 = 3_600;

/// Known prefixes.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    entries: Mutex<VecDeque<Entry>>,
}

/// Cache entry of one prefix.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    /// Lifetime in seconds.
    lifetime: u64,
    /// Unix time in seconds from which on the entry is not read.
    expires: u64,
}

/// Cached tokens of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) read: u64,
    /// Tokens written with a lifetime of five minutes.
    pub(super) short: u64,
    /// Tokens written with a lifetime of an hour.
    pub(super) long: u64,
}

/// Prefix of a prompt.
#[derive(Debug)]
struct Prefix {
    hash: u64,
    tokens: u64,
    /// Cache breakpoint at the end of the prefix: true for an hour, false for five minutes. `None` without a
    /// breakpoint.
    breakpoint: Option<bool>,
}

/// All prefixes of a prompt, in the order in which the model reads it.
#[derive(Debug)]
pub(super) struct Prefixes {
    list: Vec<Prefix>,
    state: u64,
    bytes: usize,
}

impl Prefixes {
    /// Creates the empty prompt for a model. Prompts of different models share no prefix.
    pub(super) fn of(model: &str) -> Self {
        Prefixes { list: Vec::new(), state: hash(model.as_bytes()), bytes: 0 }
    }

    /// Adds a block, without its breakpoint. `label` is its role.
    pub(super) fn add(&mut self, label: &str, block: &Value) {
        self.state = combine(combine(self.state, hash(label.as_bytes())), hash(block.to_string().as_bytes()));
        self.bytes += weigh(block);
        self.list.push(Prefix { hash: self.state, tokens: tokens(self.bytes), breakpoint: None });
    }

    /// Sets a breakpoint behind the last block, with a lifetime of an hour or of five minutes.
    pub(super) fn mark(&mut self, long: bool) {
        if let Some(last) = self.list.last_mut() {
            last.breakpoint = Some(long);
        }
    }
}

impl PrefixCache {
    /// Returns the tokens that a prompt reads from and writes to the cache at a Unix time in seconds, and remembers the
    /// written prefixes. Those of less than `minimum` tokens are silently not cached.
    pub(super) fn account(&self, Prefixes { list, .. }: &Prefixes, minimum: u64, now: u64) -> Cached {
        let at_breakpoint = |prefix: &Prefix| prefix.breakpoint.is_some() && prefix.tokens >= minimum;
        let breakpoints: Vec<usize> =
            (0..list.len()).filter(|at| list.get(*at).is_some_and(at_breakpoint)).collect();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.expires > now);
        let mut renew = |at: usize| {
            let hash = list.get(at).map(|prefix| prefix.hash);
            let entry = entries.iter_mut().find(|entry| Some(entry.hash) == hash)?;
            entry.expires = now + entry.lifetime;
            Some(at)
        };
        let mut search = |at: usize| (at.saturating_sub(LOOKBACK - 1)..=at).rev().find_map(&mut renew);
        let hit = breakpoints.iter().filter_map(|at| search(*at)).max();
        let read = hit.and_then(|at| list.get(at)).map_or(0, |prefix| prefix.tokens);
        let mut cached = Cached { read, ..Cached::default() };
        let mut done = read;
        for prefix in breakpoints.iter().filter_map(|at| list.get(*at)) {
            if entries.iter().any(|entry| entry.hash == prefix.hash) {
                continue;
            }
            let long = prefix.breakpoint == Some(true);
            let written = prefix.tokens.saturating_sub(done);
            *(if long { &mut cached.long } else { &mut cached.short }) += written;
            done = done.max(prefix.tokens);
            let lifetime = if long { LONG_LIFETIME } else { SHORT_LIFETIME };
            entries.push_back(Entry { hash: prefix.hash, lifetime, expires: now + lifetime });
        }
        while entries.len() > MAX_PREFIXES {
            entries.pop_front();
        }
        cached
    }
}
