//! Leased balances: the money of each account that this gateway may spend without a server round trip.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use foldhash::fast::{FixedState, RandomState};
use parking_lot::RwLock;

use crate::ledger::interface::ReservationHolder;
use crate::ledger::{AccountId, Reservation, ReserveError};

/// Number of shards, chosen so that workers rarely contend for a lock.
const SHARDS: usize = 64;

/// State of an account as this gateway knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Not known, or known too long ago to rely on.
    Unknown,
    /// The account may spend.
    Enabled,
    /// The account is disabled.
    Disabled,
    /// The account does not exist.
    Missing,
}

/// Leased balance of one account: the part of it that this gateway may spend.
#[derive(Debug)]
pub(super) struct LeasedBalance {
    /// Spendable part in nano-units: the lease, less open reservations, less charges that are not shipped yet.
    spendable: AtomicI64,
    /// Balance that no gateway has leased, in nano-units, as last reported by the server.
    unleased: AtomicI64,
    state: AtomicU8,
    /// True if it was used since the last maintenance.
    used: AtomicBool,
}

impl LeasedBalance {
    fn new() -> Arc<Self> {
        Arc::new(LeasedBalance {
            spendable: AtomicI64::new(0),
            unleased: AtomicI64::new(0),
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
        self.unleased.store(free, Ordering::Release);
        self.state.store(state as u8, Ordering::Release);
    }

    /// Marks the state of the account as too old to rely on.
    pub(super) fn expire(&self) {
        self.state.store(State::Unknown as u8, Ordering::Release);
    }

    /// Reserves an amount if at least `floor` is left afterwards. Lock-free, because every request calls it.
    pub(super) fn reserve(self: &Arc<Self>, amount: i64, floor: i64) -> Option<Reservation> {
        let amount = amount.max(0);
        // Load before store: most requests then leave the cache line shared.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if amount > 0 {
            let hold = |left: i64| left.checked_sub(amount).filter(|left| *left >= floor);
            self.spendable.fetch_update(Ordering::AcqRel, Ordering::Acquire, hold).ok()?;
        }
        Some(self.reservation(amount))
    }

    /// Returns a reservation for an amount that was deducted already.
    pub(super) fn reservation(self: &Arc<Self>, amount: i64) -> Reservation {
        Reservation::new(0, amount, self.clone())
    }

    /// Takes out the whole spendable part and returns it; 0 if it is not positive.
    pub(super) fn take_all(&self) -> i64 {
        let take = |left: i64| (left > 0).then_some(0);
        self.spendable.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).unwrap_or(0)
    }

    pub(super) fn deposit(&self, amount: i64) {
        self.spendable.fetch_add(amount, Ordering::AcqRel);
    }

    /// Returns the spendable part, in nano-units. Negative if overdrawn.
    pub(super) fn spendable(&self) -> i64 {
        self.spendable.load(Ordering::Acquire)
    }

    /// Returns the spendable amount as known here, in nano-units: the local part and the unleased balance.
    pub(super) fn available(&self) -> i64 {
        self.spendable().saturating_add(self.unleased.load(Ordering::Acquire))
    }

    /// Returns true if it was used since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    /// Returns why the account may not spend; `None` if it may or its state is unknown.
    pub(super) fn denial(&self) -> Option<ReserveError> {
        match self.state() {
            State::Disabled => Some(ReserveError::Disabled),
            State::Missing => Some(ReserveError::UnknownAccount),
            State::Enabled | State::Unknown => None,
        }
    }
}

impl ReservationHolder for LeasedBalance {
    fn refund(&self, _: u64, amount: i64) {
        self.deposit(amount);
    }
}

/// Leased balances of all accounts, sharded by name.
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

    /// Returns the leased balance of an account, created if necessary. Returns `None` if `name` is not a valid account
    /// name.
    pub(super) fn find_or_insert(&self, name: &str) -> Option<Arc<LeasedBalance>> {
        if let Some(purse) = self.find(name) {
            return Some(purse);
        }
        let id = AccountId::new(name)?;
        Some(self.shard(name)?.write().entry(id).or_insert_with(LeasedBalance::new).clone())
    }

    /// Removes one leased balance.
    pub(super) fn remove(&self, name: &str) {
        if let Some(shard) = self.shard(name) {
            shard.write().remove(name);
        }
    }
}
