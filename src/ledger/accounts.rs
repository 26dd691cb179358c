//! Balances in memory: the stored balance, less this process's unapplied charges and open reservations.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use foldhash::fast::{FixedState, RandomState};
use parking_lot::RwLock;

use crate::ledger::interface::ReservationHolder;
use crate::ledger::{AccountId, Reservation, ReserveError, ReserveOutcome};

/// Number of shards, chosen so that workers rarely contend for a lock.
const SHARDS: usize = 64;

/// Balance of one account, in nano-units.
#[derive(Debug)]
pub(super) struct AccountBalance {
    /// Spendable balance: the stored balance, less this process's charges that are not stored yet, less open
    /// reservations.
    available: AtomicI64,
    /// Balance in the database, as last read. Only the ledger's thread accesses it.
    stored: AtomicI64,
    state: AtomicU8,
}

/// The account was charged by this process but is not in the database.
const UNKNOWN: u8 = 0;
const ENABLED: u8 = 1;
const DISABLED: u8 = 2;

impl AccountBalance {
    fn new(state: u8) -> Arc<Self> {
        Arc::new(AccountBalance {
            available: AtomicI64::new(0),
            stored: AtomicI64::new(0),
            state: AtomicU8::new(state),
        })
    }
}

impl AccountBalance {
    /// Adds to the spendable balance. Saturates: an overflow must not turn a debt into credit.
    fn add(&self, amount: i64) {
        let add = |available: i64| Some(available.saturating_add(amount));
        let _ = self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }
}

impl ReservationHolder for AccountBalance {
    fn refund(&self, _: u64, amount: i64) {
        self.add(amount);
    }
}

/// Balances of all accounts, sharded by name.
#[derive(Debug)]
pub(super) struct Balances {
    shards: Vec<RwLock<HashMap<AccountId, Arc<AccountBalance>, RandomState>>>,
    hasher: FixedState,
}

/// Account row of the database; `balance` in nano-units.
#[derive(Clone, Debug)]
pub(super) struct BalanceRow {
    pub(super) name: String,
    pub(super) balance: i64,
    pub(super) enabled: bool,
}

impl Balances {
    pub(super) fn new() -> Self {
        Balances { shards: (0..SHARDS).map(|_| RwLock::default()).collect(), hasher: FixedState::default() }
    }

    fn shard(&self, name: &str) -> Option<&RwLock<HashMap<AccountId, Arc<AccountBalance>, RandomState>>> {
        let hash = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or(0);
        self.shards.get(hash)
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<AccountBalance>> {
        self.shard(name)?.read().get(name).cloned()
    }

    /// Reserves an amount. Lock-free beyond the lookup of the account, because every request calls it.
    pub(super) fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        let Some(account) = self.find(account.as_str()) else {
            return ReserveOutcome::Known(Err(ReserveError::UnknownAccount));
        };
        match account.state.load(Ordering::Acquire) {
            ENABLED => {}
            DISABLED => return ReserveOutcome::Known(Err(ReserveError::Disabled)),
            _ => return ReserveOutcome::Known(Err(ReserveError::UnknownAccount)),
        }
        let amount = amount.max(0);
        if amount > 0 {
            // Check and deduction must be one atomic step: two requests must not both reserve the last amount.
            let taken = account.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, |available| {
                available.checked_sub(amount).filter(|left| *left >= 0)
            });
            if let Err(available) = taken {
                return ReserveOutcome::Known(Err(ReserveError::Empty { available }));
            }
        }
        ReserveOutcome::Known(Ok(Reservation::new(0, amount, account)))
    }

    /// Charges an account without a reservation.
    pub(super) fn charge(&self, name: &str, cost: i64) {
        if let Some(account) = self.find_or_insert(name) {
            account.add(cost.saturating_neg());
        }
    }

    pub(super) fn available(&self, name: &str) -> Option<i64> {
        let account = self.find(name).filter(|account| account.state.load(Ordering::Acquire) != UNKNOWN)?;
        Some(account.available.load(Ordering::Acquire))
    }

    fn find_or_insert(&self, name: &str) -> Option<Arc<AccountBalance>> {
        if let Some(account) = self.find(name) {
            return Some(account);
        }
        let id = AccountId::new(name)?;
        let mut shard = self.shard(name)?.write();
        Some(shard.entry(id).or_insert_with(|| AccountBalance::new(UNKNOWN)).clone())
    }

    /// Records a charge that was applied for an account that does not exist in the database. The account starts with
    /// this debt when it is created.
    pub(super) fn record_debt(&self, name: &str, charged: i64) {
        if let Some(account) = self.find(name) {
            account.stored.fetch_sub(charged, Ordering::AcqRel);
        }
    }

    /// Takes over a row of the database. `charged` is the amount of this process's charges that the row newly contains;
    /// these were deducted from the spendable balance when they were settled.
    pub(super) fn refresh(&self, row: BalanceRow, charged: i64) {
        let Some(account) = self.find_or_insert(&row.name) else { return };
        let before = account.stored.swap(row.balance, Ordering::AcqRel);
        // The part of the difference that other processes caused. Only this part changes the spendable balance.
        let others = row.balance.saturating_add(charged).saturating_sub(before);
        if others != 0 {
            account.add(others);
        }
        account.state.store(if row.enabled { ENABLED } else { DISABLED }, Ordering::Release);
    }
}
