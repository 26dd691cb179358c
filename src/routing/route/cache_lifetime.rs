//! Cache lifetime: whether the pauses between the requests of a key make a cache lifetime of an hour cheaper than one
//! of five minutes, by counters of bounded size.
//!
//! Tools and instructions are the same in all conversations of an application, so that each of its requests reads the
//! entry that the one before wrote or renewed, unless the pause between them exceeds the lifetime. In units of the
//! price of plain input (Anthropic, "Prompt caching", "Pricing", November 2026) a request costs, for this part of its
//! prompt:
//!
//! | Pause before the request | 5 minutes | 1 hour |
//! |---|---|---|
//! | up to 5 minutes | 0.1 (read) | 0.1 (read) |
//! | up to 1 hour | 1.25 (written again) | 0.1 (read) |
//! | longer, and the first request | 1.25 (written) | 2 (written) |
//!
//! So an hour saves 1.15 for each medium pause and loses 0.75 for each long one: it pays if there are at least two
//! medium pauses for three long ones. Turns stay at five minutes: each request writes its own part of them, which would
//! cost 0.75 more each time.
//!
//! A change of the lifetime loses nothing: an entry is found by its content, and lives as long as it was written for.

use super::cache_counters::CacheCounters;
use sync::atomic::Ordering;

/// Lifetimes of cache entries, in seconds.
const SHORT: u32 = 300;
const LONG: u32 = 3_600;
/// Savings and losses in hundredths of the price of plain input, see above.
const SAVED: u32 = 115;
const LOST: u32 = 75;
/// Number of medium pauses without which an hour is not tried: one pause may be an accident.
const MIN_MEDIUM: u16 = 2;
/// Number of pauses at which both counters are halved, so that the traffic of long ago does not decide.
const MAX_PAUSES: u16 = 64;

/// Pauses between the requests of one key to one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseCounts {
    /// Time of the last request, in Unix seconds. 0 if there was none.
    last: u32,
    /// Number of pauses of more than 5 minutes and up to 1 hour.
    medium: u16,
    /// Number of longer pauses, and the first request.
    long: u16,
}

impl PauseCounts {
    fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        PauseCounts {
            last: u32::from_le_bytes([a, b, c, d]),
            medium: u16::from_le_bytes([e, f]),
            long: u16::from_le_bytes([g, h]),
        }
    }

    fn to_bits(self) -> u64 {
        let ([a, b, c, d], [e, f], [g, h]) =
            (self.last.to_le_bytes(), self.medium.to_le_bytes(), self.long.to_le_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns whether a lifetime of an hour is the cheaper one for these pauses.
    pub fn long_pays(self) -> bool {
        self.medium >= MIN_MEDIUM && u32::from(self.medium) * SAVED > u32::from(self.long) * LOST
    }

    /// Returns the counts after a request at this time, in Unix seconds.
    pub fn after_request(self, now: u32) -> Self {
        // A clock that was set back makes no pause.
        let now = now.max(self.last).max(1);
        let mut next = PauseCounts { last: now, ..self };
        let pause = now - self.last;
        if self.last == 0 || pause > LONG {
            next.long += 1;
        } else if pause > SHORT {
            next.medium += 1;
        }
        if next.medium + next.long >= MAX_PAUSES {
            next.medium /= 2;
            next.long /= 2;
        }
        next
    }
}

/// Pauses by key and model.
#[derive(Debug, Default)]
pub struct CacheLifetimeTable {
    counters: CacheCounters,
}

impl CacheLifetimeTable {
    /// Records a request of a key to a model at this time, in Unix seconds. Returns whether a lifetime of an hour is
    /// the cheaper one for tools and instructions.
    pub fn observe(&self, key: &str, model: &str, now: u64) -> bool {
        let Some(slot) = self.counters.of(key, model) else { return false };
        let now = u32::try_from(now).unwrap_or(u32::MAX);
        let before = PauseCounts::from_bits(slot.load(Ordering::Relaxed));
        let after = before.after_request(now);
        // Of requests at the same time one counts the pause. Within a second nothing changes, and nothing is written.
        if after != before {
            let (before, after) = (before.to_bits(), after.to_bits());
            let _ = slot.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
        after.long_pays()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    #[test]
    fn pause_counts_bits_are_the_state() {
        for state in [
            PauseCounts::default(),
            PauseCounts { last: 5, medium: 7, long: 9 },
            PauseCounts { last: u32::MAX, medium: u16::MAX, long: u16::MAX },
        ] {
            assert_eq!(PauseCounts::from_bits(state.to_bits()), state);
        }
    }

    /// Returns the lifetimes that requests after these pauses, in minutes, get: true for an hour.
    fn lifetimes(pauses: &[u64]) -> Vec<bool> {
        let table = CacheLifetimeTable::default();
        let mut now = 1_000_000;
        pauses
            .iter()
            .map(|pause| {
                now += pause * MINUTE;
                table.observe("k", "m", now)
            })
            .collect()
    }

    /// Returns the cost of tools and instructions over requests after these pauses, with these lifetimes, in hundredths
    /// of plain input. An entry lives as long as it was written for, whatever a later request asks.
    fn cost(pauses: &[u64], long: impl IntoIterator<Item = bool>) -> u64 {
        let mut lives = 0;
        let requests = pauses.iter().zip(long);
        let costs = requests.map(|(pause, long)| {
            if *pause <= lives {
                return 10;
            }
            lives = if long { 60 } else { 5 };
            if long { 200 } else { 125 }
        });
        costs.sum()
    }

    #[test]
    fn cache_lifetime_is_an_hour_where_medium_pauses_outweigh_long_ones() {
        for (pauses, expected) in [
            (&[0, 1, 2, 5, 3][..], false),
            (&[0, 20], false),
            (&[0, 20, 20], true),
            (&[0, 20, 1, 1, 60], true),
            (&[0, 20, 20, 90], true),
            (&[0, 20, 20, 90, 90, 90], false),
            (&[0, 61, 61, 61], false),
        ] {
            assert_eq!(lifetimes(pauses).last(), Some(&expected), "{pauses:?}");
        }
        let table = CacheLifetimeTable::default();
        for now in [5_000, 6_000, 7_000] {
            table.observe("k", "m", now);
        }
        assert!(table.observe("k", "m", 7_000));
        assert!(!table.observe("k", "other", 7_000) && !table.observe("other", "m", 7_000));
        // A clock that is set back, and one beyond the range.
        assert!(table.observe("k", "m", 1));
        table.observe("k", "m", u64::MAX);
    }

    #[test]
    fn cache_lifetime_by_rule_costs_hardly_more_than_the_better_of_both() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        // Shares of medium and long pauses, in percent.
        for (medium, long) in
            [(0, 0), (0, 30), (5, 0), (5, 5), (20, 5), (20, 40), (50, 10), (50, 50), (80, 20)]
        {
            let pauses: Vec<u64> = (0..600)
                .map(|_| match random(100) {
                    share if share < medium => 6 + random(54),
                    share if share < medium + long => 61 + random(600),
                    _ => random(5),
                })
                .collect();
            let [short, hour] = [false, true].map(|long| cost(&pauses, std::iter::repeat(long)));
            let by_rule = cost(&pauses, lifetimes(&pauses));
            let best = short.min(hour);
            assert!(by_rule * 100 <= best * 108, "{medium} % and {long} %: {by_rule} of {short} or {hour}");
            if medium >= 2 * long && medium > 5 {
                assert!(by_rule * 100 < short * 80, "{medium} % and {long} %: {by_rule} of {short}");
            }
        }
    }

    #[test]
    fn cache_lifetime_follows_traffic_that_changes() {
        let pauses: Vec<u64> = [[30; 100], [90; 100], [30; 100]].concat();
        let found = lifetimes(&pauses);
        assert!(found[99] && !found[199] && found[299]);
    }
}
