//! What a gateway may spend of each account without asking: money that is set aside for it at the server.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use foldhash::fast::{FixedState, RandomState};
use parking_lot::RwLock;

use crate::store::ledger::{AccountId, Holder, Reservation, ReserveError};

/// So many that workers do not meet.
const SHARDS: usize = 64;

/// What is known of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Nothing, or what was known is too old to rely on.
    Unknown,
    /// It may spend.
    Enabled,
    /// It is switched off.
    Disabled,
    /// It is not there.
    Missing,
}

/// Leased balance of one account: the part of it that this gateway may spend.
#[derive(Debug)]
pub(super) struct LeasedBalance {
    /// What is left: what is set aside, less what is held and what was charged and has not been brought to the server.
    left: AtomicI64,
    /// What nobody has set aside, as the server said last.
    free: AtomicI64,
    state: AtomicU8,
    /// Whether it was used since the last visit.
    used: AtomicBool,
}

impl LeasedBalance {
    fn new() -> Arc<Self> {
        Arc::new(LeasedBalance {
            left: AtomicI64::new(0),
            free: AtomicI64::new(0),
            state: AtomicU8::new(State::Unknown as u8),
            used: AtomicBool::new(false),
        })
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            1 => State::Enabled,
            2 => State::Disabled,
            3 => State::Missing,
            _ => State::Unknown,
        }
    }

    pub(super) fn set(&self, state: State, free: i64) {
        self.free.store(free, Ordering::Release);
        self.state.store(state as u8, Ordering::Release);
    }

    /// What was known is too old.
    pub(super) fn expire(&self) {
        self.state.store(State::Unknown as u8, Ordering::Release);
    }

    /// Holds an amount, if as much is left afterwards as `floor`.
    pub(super) fn hold(self: &Arc<Self>, amount: i64, floor: i64) -> Option<Reservation> {
        let amount = amount.max(0);
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if amount > 0 {
            let hold = |left: i64| left.checked_sub(amount).filter(|left| *left >= floor);
            self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, hold).ok()?;
        }
        Some(self.held(amount))
    }

    /// An amount that is held already.
    pub(super) fn held(self: &Arc<Self>, amount: i64) -> Reservation {
        Reservation::new(0, amount, self.clone())
    }

    /// Takes out what is left, if anything is.
    pub(super) fn empty(&self) -> i64 {
        let take = |left: i64| (left > 0).then_some(0);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).unwrap_or(0)
    }

    pub(super) fn put(&self, amount: i64) {
        self.left.fetch_add(amount, Ordering::AcqRel);
    }

    /// What is left here.
    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::Acquire)
    }

    /// What can still be spent, as far as is known here.
    pub(super) fn available(&self) -> i64 {
        self.left().saturating_add(self.free.load(Ordering::Acquire))
    }

    /// Whether it was used since this was asked last.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    /// Why an account of this state may not spend; nothing, if it may, or if that is not known.
    pub(super) fn refused(&self) -> Option<ReserveError> {
        match self.state() {
            State::Disabled => Some(ReserveError::Disabled),
            State::Missing => Some(ReserveError::UnknownAccount),
            State::Enabled | State::Unknown => None,
        }
    }
}

impl Holder for LeasedBalance {
    fn give_back(&self, _: u64, amount: i64) {
        self.put(amount);
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct LeasedBalances {
    shards: Vec<RwLock<HashMap<AccountId, Arc<LeasedBalance>, RandomState>>>,
    hasher: FixedState,
}

impl LeasedBalances {
    pub(super) fn new() -> Self {
        LeasedBalances {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: FixedState::default(),
        }
    }

    fn shard(&self, name: &str) -> Option<&RwLock<HashMap<AccountId, Arc<LeasedBalance>, RandomState>>> {
        let hash = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or(0);
        self.shards.get(hash)
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<LeasedBalance>> {
        self.shard(name)?.read().get(name).cloned()
    }

    /// The purse of an account; nothing, if that is no name of one.
    pub(super) fn find_or_insert(&self, name: &str) -> Option<Arc<LeasedBalance>> {
        if let Some(purse) = self.find(name) {
            return Some(purse);
        }
        let id = AccountId::new(name)?;
        Some(self.shard(name)?.write().entry(id).or_insert_with(LeasedBalance::new).clone())
    }

    /// Forgets one.
    pub(super) fn remove(&self, name: &str) {
        if let Some(shard) = self.shard(name) {
            shard.write().remove(name);
        }
    }
}
