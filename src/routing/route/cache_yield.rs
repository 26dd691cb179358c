//! Cache yield: whether the prompt-cache reads of a key repay its writes, by counters of bounded size.
//!
//! A cache write costs more than plain input, and a read less. A key whose prompts change at their beginning pays for
//! writes that it never reads. After a series of requests with a loss, automatic breakpoints pause for it.

use super::cache_counters::CacheCounters;
use codec::canonical::Usage;
use sync::atomic::Ordering;

/// Number of requests after which the balance is judged.
const WINDOW: u16 = 32;
/// Loss in input tokens at which automatic breakpoints pause before the end of a window.
const MAX_LOSS: i64 = 200_000;
/// Number of requests for which automatic breakpoints pause.
const PAUSE: u16 = 512;

/// Balance of the prompt cache for the requests of one key to one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheYield {
    /// Savings of reads minus surcharges of writes, in input tokens.
    balance: i32,
    /// Number of requests in the current window.
    requests: u16,
    /// Number of requests that are still paused.
    paused: u16,
}

impl CacheYield {
    fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        CacheYield {
            balance: i32::from_le_bytes([a, b, c, d]),
            requests: u16::from_le_bytes([e, f]),
            paused: u16::from_le_bytes([g, h]),
        }
    }

    fn to_bits(self) -> u64 {
        let ([a, b, c, d], [e, f], [g, h]) =
            (self.balance.to_le_bytes(), self.requests.to_le_bytes(), self.paused.to_le_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns whether automatic breakpoints are paused.
    pub fn is_paused(self) -> bool {
        self.paused > 0
    }

    /// Returns the state after a request that was sent during a pause.
    pub fn after_paused_request(self) -> Self {
        CacheYield { paused: self.paused.saturating_sub(1), ..self }
    }

    /// Returns the state after a request with automatic breakpoints whose savings were `saved` input tokens, negative
    /// for a loss.
    pub fn after_request(self, saved: i64) -> Self {
        let balance = i64::from(self.balance).saturating_add(saved).clamp(i32::MIN.into(), i32::MAX.into());
        let requests = self.requests.saturating_add(1);
        if balance < -MAX_LOSS || (requests >= WINDOW && balance < 0) {
            return CacheYield { paused: PAUSE, ..CacheYield::default() };
        }
        let balance = i32::try_from(balance).unwrap_or(0);
        if requests >= WINDOW {
            // Halved, so that savings of long ago do not hide present losses.
            return CacheYield { balance: balance / 2, requests: 0, paused: 0 };
        }
        CacheYield { balance, requests, paused: 0 }
    }
}

/// Returns the savings of a request against plain input, in input tokens, negative for a loss. A read costs a tenth of
/// plain input, a write 1.25 times as much, and a write for an hour twice as much (Anthropic, "Prompt caching",
/// "Pricing"), and one for twelve hours 2.5 times as much (OpenAI, "Pricing").
pub fn saved_tokens(usage: &Usage) -> i64 {
    let tokens = |n: Option<u64>| i64::try_from(n.unwrap_or(0)).unwrap_or(i64::MAX);
    let percent = |n: Option<u64>, percent| tokens(n).saturating_mul(percent);
    percent(usage.cached, 90)
        .saturating_sub(percent(usage.cache_write, 25))
        .saturating_sub(percent(usage.cache_write_1h, 100))
        .saturating_sub(percent(usage.cache_write_12h, 150))
        / 100
}

/// Cache yields by key and model.
#[derive(Debug, Default)]
pub struct CacheYieldTable {
    counters: CacheCounters,
}

impl CacheYieldTable {
    /// Returns whether a request of a key to a model gets automatic breakpoints. A paused request counts towards the
    /// end of the pause.
    pub fn admits(&self, key: &str, model: &str) -> bool {
        let Some(slot) = self.counters.of(key, model) else { return true };
        let paused = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let state = CacheYield::from_bits(bits);
            state.is_paused().then(|| state.after_paused_request().to_bits())
        });
        paused.is_err()
    }

    /// Records the usage of a request with automatic breakpoints. Returns true if it begins a pause.
    pub fn record(&self, key: &str, model: &str, usage: &Usage) -> bool {
        let saved = saved_tokens(usage);
        let Some(slot) = self.counters.of(key, model) else { return false };
        let mut begins = false;
        // A request that was sent before a pause began does not prolong it.
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let state = CacheYield::from_bits(bits);
            let next = (!state.is_paused()).then(|| state.after_request(saved))?;
            begins = next.is_paused();
            Some(next.to_bits())
        });
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(read: u64, written: u64) -> Usage {
        Usage { cached: Some(read), cache_write: Some(written), ..Usage::default() }
    }

    #[test]
    fn cache_yield_bits_are_the_state() {
        for state in [
            CacheYield::default(),
            CacheYield { balance: -5, requests: 7, paused: 9 },
            CacheYield { balance: i32::MIN, requests: u16::MAX, paused: u16::MAX },
        ] {
            assert_eq!(CacheYield::from_bits(state.to_bits()), state);
        }
    }

    #[test]
    fn cache_yield_of_writes_that_are_never_read_pauses_and_resumes() {
        let table = CacheYieldTable::default();
        let mut sent = 0;
        while table.admits("k", "m") {
            table.record("k", "m", &usage(0, 4_000));
            sent += 1;
        }
        assert_eq!(sent, u32::from(WINDOW));
        assert!(table.admits("other", "m"), "another key is not paused");
        let paused = (1..).find(|_| table.admits("k", "m")).unwrap();
        assert_eq!(paused, i32::from(PAUSE));
        // Large losses pause at once.
        assert!(table.record("k", "m", &usage(0, 1_000_000)));
    }

    #[test]
    fn cache_yield_of_conversations_with_reads_does_not_pause() {
        let table = CacheYieldTable::default();
        for request in 0..10_000 {
            assert!(table.admits("k", "m"));
            // Every tenth request begins a conversation.
            let usage = if request % 10 == 0 { usage(0, 20_000) } else { usage(20_000, 1_000) };
            assert!(!table.record("k", "m", &usage));
        }
    }

    #[test]
    fn cache_yield_in_tokens_does_not_overflow() {
        assert_eq!(saved_tokens(&usage(1_000, 400)), 800);
        let long = Usage { cache_write_1h: Some(100), ..Usage::default() };
        assert_eq!(saved_tokens(&long), -100);
        saved_tokens(&usage(u64::MAX, u64::MAX));
        let mut state = CacheYield::default();
        for saved in [i64::MAX, i64::MIN, i64::MAX] {
            state = state.after_request(saved);
        }
    }
}
