//! Cache of balances in memory, over any backend: what this gateway may reserve of each account, and the one
//! settlement.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use foldhash::fast::{FixedState, RandomState};
use parking_lot::RwLock;

use super::interface::ReservationHolder;
use super::wal::Journal;
use super::{AccountId, Reservation, ReserveError, Settled, UsageRecord};

/// Number of shards, chosen so that workers rarely contend for a lock.
const SHARDS: usize = 64;

/// Status of an account as this gateway knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AccountStatus {
    /// Unknown or outdated: the backend must be queried.
    Unknown,
    /// The account may spend.
    Enabled,
    /// The account is disabled.
    Disabled,
    /// The account does not exist. It may have been charged nevertheless, for a key that names it.
    Missing,
}

/// Balance of one account as this gateway knows it.
#[derive(Debug)]
pub(super) struct AccountBalance {
    /// Amount that this gateway may reserve, in nano-units: its part of the balance (all of it, or what it has leased),
    /// less open reservations, less charges that the backend does not have yet.
    spendable: AtomicI64,
    /// Balance at the backend as last reported, in nano-units: all of it, or the part that no gateway has leased. Only
    /// the ledger's thread changes it.
    reported: AtomicI64,
    status: AtomicU8,
    /// True if it was used since the last maintenance of leases.
    used: AtomicBool,
}

impl AccountBalance {
    fn new(status: AccountStatus) -> Arc<Self> {
        Arc::new(AccountBalance {
            spendable: AtomicI64::new(0),
            reported: AtomicI64::new(0),
            status: AtomicU8::new(status as u8),
            used: AtomicBool::new(false),
        })
    }

    pub(super) fn status(&self) -> AccountStatus {
        match self.status.load(Ordering::Acquire) {
            1 => AccountStatus::Enabled,
            2 => AccountStatus::Disabled,
            3 => AccountStatus::Missing,
            _ => AccountStatus::Unknown,
        }
    }

    pub(super) fn set_status(&self, status: AccountStatus) {
        self.status.store(status as u8, Ordering::Release);
    }

    /// Sets the reported balance, in nano-units, and returns what was reported before.
    pub(super) fn swap_reported(&self, balance: i64) -> i64 {
        self.reported.swap(balance, Ordering::AcqRel)
    }

    /// Returns why the account may not spend; `None` if it may or its status is unknown.
    pub(super) fn denial(&self) -> Option<ReserveError> {
        match self.status() {
            AccountStatus::Disabled => Some(ReserveError::Disabled),
            AccountStatus::Missing => Some(ReserveError::UnknownAccount),
            AccountStatus::Enabled | AccountStatus::Unknown => None,
        }
    }

    /// Reserves an amount if at least `floor` is left afterwards; an amount of zero or less reserves nothing.
    /// Lock-free, because every request calls it.
    ///
    /// # Errors
    /// Returns the spendable amount if it does not suffice.
    pub(super) fn reserve(self: &Arc<Self>, amount: i64, floor: i64) -> Result<Reservation, i64> {
        let amount = amount.max(0);
        if amount > 0 {
            // Check and deduction must be one atomic step: two requests must not both reserve the last amount. A
            // deduction that would overflow is below any floor.
            self.spendable.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(amount).filter(|left| *left >= floor)
            })?;
        }
        Ok(self.reservation(amount))
    }

    /// Returns a reservation of an amount that was deducted already.
    pub(super) fn reservation(self: &Arc<Self>, amount: i64) -> Reservation {
        Reservation::new(amount, self.clone())
    }

    /// Adds to the spendable amount, in nano-units; a negative amount is a charge. Saturates: an overflow must not turn
    /// a debt into credit.
    pub(super) fn add(&self, amount: i64) {
        let add = |left: i64| Some(left.saturating_add(amount));
        let _ = self.spendable.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Takes out the whole spendable amount and returns it; 0 if it is not positive.
    pub(super) fn take_all(&self) -> i64 {
        let take = |left: i64| (left > 0).then_some(0);
        self.spendable.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).unwrap_or(0)
    }

    /// Returns the amount that this gateway may reserve, in nano-units. Negative if overdrawn.
    pub(super) fn spendable(&self) -> i64 {
        self.spendable.load(Ordering::Acquire)
    }

    /// Returns the balance at the backend as last reported, in nano-units.
    pub(super) fn reported(&self) -> i64 {
        self.reported.load(Ordering::Acquire)
    }

    /// Marks the balance as used.
    pub(super) fn mark_used(&self) {
        // Load before store: most requests then leave the cache line shared.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if it was marked since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }
}

impl ReservationHolder for AccountBalance {
    fn refund(&self, amount: i64) {
        self.add(amount);
    }
}

type Shard = RwLock<HashMap<AccountId, Arc<AccountBalance>, RandomState>>;

/// Balances of all accounts that are known here, sharded by name.
#[derive(Debug)]
pub(super) struct Accounts {
    shards: Vec<Shard>,
    hasher: FixedState,
    initial: AccountStatus,
}

impl Accounts {
    /// Creates an empty cache. `initial` is the status of an account that the backend has not reported:
    /// [`AccountStatus::Missing`] if all accounts are loaded, [`AccountStatus::Unknown`] if the backend can be queried.
    pub(super) fn new(initial: AccountStatus) -> Self {
        Accounts {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: FixedState::default(),
            initial,
        }
    }

    fn shard(&self, name: &str) -> Option<&Shard> {
        let hash =
            usize::try_from(self.hasher.hash_one(name).checked_rem(SHARDS as u64).unwrap_or(0)).unwrap_or(0);
        self.shards.get(hash)
    }

    /// Returns the balance of an account; `None` if there is none in memory.
    pub(super) fn find(&self, name: &str) -> Option<Arc<AccountBalance>> {
        self.shard(name)?.read().get(name).cloned()
    }

    /// Returns the balance of an account that exists, as far as known; otherwise `None`.
    pub(super) fn find_existing(&self, name: &str) -> Option<Arc<AccountBalance>> {
        let exists = |account: &Arc<AccountBalance>| {
            matches!(account.status(), AccountStatus::Enabled | AccountStatus::Disabled)
        };
        self.find(name).filter(exists)
    }

    /// Returns the balance of an account, created if necessary. Returns `None` if `name` is not a valid account name.
    pub(super) fn find_or_insert(&self, name: &str) -> Option<Arc<AccountBalance>> {
        if let Some(account) = self.find(name) {
            return Some(account);
        }
        let id = AccountId::new(name)?;
        let mut shard = self.shard(name)?.write();
        Some(shard.entry(id).or_insert_with(|| AccountBalance::new(self.initial)).clone())
    }

    /// Removes the balance of an account from memory.
    pub(super) fn remove(&self, name: &str) {
        if let Some(shard) = self.shard(name) {
            shard.write().remove(name);
        }
    }

    /// Settles a request: appends its record to the journal, and charges its cost to the reservation or, without one,
    /// to the account. A key without an account is not charged.
    pub(super) fn settle(
        &self,
        journal: &Arc<Journal>,
        reservation: Option<Reservation>,
        record: &UsageRecord<'_>,
    ) -> Settled {
        // Journal before balance: a refund must not become spendable before its charge is in the journal's queue.
        let settled = journal.append(|out| record.encode(out));
        let charge = record.charge();
        match reservation {
            Some(reservation) => reservation.settle(charge),
            None if charge != 0 => {
                if let Some(account) = self.find_or_insert(record.account) {
                    account.add(charge.saturating_neg());
                }
            }
            None => {}
        }
        settled
    }
}
