//! Limit registry: the limit states of all keys and accounts, by name. It outlives configuration snapshots, so that a
//! reload does not reset limits.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Calendar, LimitState, Nanos};

/// Number of shards (locks), chosen so that requests with different keys rarely contend. A state is looked up once per
/// reload.
const SHARDS: usize = 64;

/// Owner of a limit state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A key.
    Key,
    /// An account.
    Account,
}

impl Scope {
    /// Returns the name in messages and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Key => "key",
            Scope::Account => "account",
        }
    }
}

type Map<V> = HashMap<(Scope, Arc<str>), V, foldhash::fast::RandomState>;

/// Registry of limit states by key and account.
#[derive(Debug)]
pub struct LimitRegistry {
    shards: Box<[Mutex<Map<Arc<LimitState>>>]>,
    hasher: foldhash::fast::RandomState,
    spent: Mutex<Spent>,
    /// True if several gateways share the limits.
    shared: bool,
}

/// Spend before the start of this process: of the day and of the month, in nano-units.
#[derive(Debug, Default)]
struct Spent {
    calendar: Calendar,
    amounts: Map<(i64, i64)>,
}

impl Default for LimitRegistry {
    fn default() -> Self {
        LimitRegistry {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
            spent: Mutex::default(),
            shared: false,
        }
    }
}

impl LimitRegistry {
    /// Creates a registry of limits that several gateways share.
    pub fn shared() -> Self {
        LimitRegistry { shared: true, ..LimitRegistry::default() }
    }

    /// Returns true if several gateways share the limits.
    pub fn are_shared(&self) -> bool {
        self.shared
    }

    /// Returns the index of the shard of a name.
    fn shard(&self, key: &(Scope, Arc<str>)) -> usize {
        use std::hash::BuildHasher as _;
        usize::try_from(self.hasher.hash_one(key).checked_rem(SHARDS as u64).unwrap_or(0)).unwrap_or(0)
    }

    /// Returns the limit state of this name. `None` if no request has needed it, or it was dropped since.
    pub fn find(&self, scope: Scope, name: &Arc<str>) -> Option<Arc<LimitState>> {
        let key = (scope, name.clone());
        self.shards.get(self.shard(&key))?.lock().get(&key).cloned()
    }

    /// Returns the limit state of this name, created if necessary.
    pub fn state(&self, scope: Scope, name: &Arc<str>) -> Arc<LimitState> {
        let key = (scope, name.clone());
        let Some(shard) = self.shards.get(self.shard(&key)) else { return Arc::default() };
        let make = || Arc::new(if self.shared { LimitState::shared() } else { LimitState::new() });
        shard.lock().entry(key).or_insert_with(make).clone()
    }

    /// Returns the number of limit states.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the limit states that are neither referenced nor in use, after a reload.
    pub fn sweep(&self, now: Nanos, calendar: &Calendar) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|_, state| Arc::strong_count(state) > 1 || !state.is_idle(now, calendar));
            shard.shrink_to_fit();
        }
    }

    /// Stores the spend of this month by key and account, from rows of `(key, account, day, amount)`, for limit states
    /// that have not loaded it yet.
    pub fn load_spent<'s>(
        &self,
        calendar: &Calendar,
        spent: impl IntoIterator<Item = (&'s str, &'s str, i64, i64)>,
    ) {
        let mut amounts: Map<(i64, i64)> = Map::default();
        for (key, account, day, amount) in spent {
            for (scope, name) in [(Scope::Key, key), (Scope::Account, account)] {
                if !name.is_empty() && day >= calendar.month_begins() {
                    let (today, month) = amounts.entry((scope, name.into())).or_default();
                    *month = month.saturating_add(amount);
                    if day == calendar.day {
                        *today = today.saturating_add(amount);
                    }
                }
            }
        }
        *self.spent.lock() = Spent { calendar: *calendar, amounts };
    }

    /// Loads the spend before the start of this process into a limit state.
    pub fn apply_spent(&self, scope: Scope, name: &Arc<str>, state: &LimitState) {
        let mut spent = self.spent.lock();
        let (day, month) = spent.amounts.remove(&(scope, name.clone())).unwrap_or_default();
        state.load_spend(&spent.calendar, day, month);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LimitRequest, UsageLimits};

    #[test]
    fn registry_state_is_shared_by_name_and_swept_when_idle() {
        let registry = LimitRegistry::default();
        let name: Arc<str> = "alice".into();
        let state = registry.state(Scope::Key, &name);
        assert!(Arc::ptr_eq(&state, &registry.state(Scope::Key, &"alice".into())));
        assert!(!Arc::ptr_eq(&state, &registry.state(Scope::Account, &name)));
        assert_eq!(registry.len(), 2);
        let limits = UsageLimits { requests_per_minute: Some(60), ..UsageLimits::default() };
        drop(state.admit(&limits, &LimitRequest::default()).unwrap());
        registry.sweep(0, &Calendar::default());
        assert_eq!(registry.len(), 1, "the referenced state remains");
        drop(state);
        registry.sweep(0, &Calendar::default());
        assert_eq!(registry.len(), 1, "its request still counts for a second");
        registry.sweep(1_000_000_000, &Calendar::default());
        assert!(registry.is_empty());
    }

    #[test]
    fn registry_past_spend_is_applied_by_key_and_by_account() {
        let registry = LimitRegistry::default();
        let calendar = Calendar::at(1_790_000_000);
        let day = calendar.day;
        let rows = [
            ("alice", "acme", day, 5),
            ("bob", "acme", day, 7),
            ("alice", "acme", day - 1, 11),
            ("alice", "acme", calendar.month_begins() - 1, 1_000),
            ("carol", "", day, 1),
        ];
        registry.load_spent(&calendar, rows);
        let spent = |scope, name: &str| {
            let state = registry.state(scope, &name.into());
            registry.apply_spent(scope, &name.into(), &state);
            let most = |limits: UsageLimits| {
                (0..2_000).rfind(|cost| {
                    let request = LimitRequest { calendar, cost: *cost, ..LimitRequest::default() };
                    state.admit(&limits, &request).map(crate::limits::LimitGrant::undo).is_ok()
                })
            };
            let day = most(UsageLimits { spend_per_day: Some(1_999), ..UsageLimits::default() }).unwrap();
            let month = most(UsageLimits { spend_per_month: Some(1_999), ..UsageLimits::default() }).unwrap();
            (1_999 - day, 1_999 - month)
        };
        assert_eq!(spent(Scope::Key, "alice"), (5, 16));
        assert_eq!(spent(Scope::Account, "acme"), (12, 23));
        assert_eq!(spent(Scope::Key, "carol"), (1, 1));
        assert_eq!(spent(Scope::Key, "unknown"), (0, 0));
    }
}
