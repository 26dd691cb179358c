//! The ledger as the gateway sees it: what a request may spend is held before it begins, and what it did spend is
//! charged at its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Limiter, Pending, StoreError, UsageRecord};
use crate::supervise::Supervised;

/// The name of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(Arc<str>);

impl AccountId {
    /// Longest name, in bytes.
    pub const LONGEST: usize = 128;

    /// A name has 1 to [`LONGEST`](Self::LONGEST) bytes, and no control characters.
    pub fn new(name: &str) -> Option<Self> {
        Self::fits(name).then(|| AccountId(name.into()))
    }

    /// The same for a name that is held already: nothing is copied.
    pub fn shared(name: &Arc<str>) -> Option<Self> {
        Self::fits(name).then(|| AccountId(name.clone()))
    }

    fn fits(name: &str) -> bool {
        (1..=Self::LONGEST).contains(&name.len()) && !name.chars().any(char::is_control)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for AccountId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Balances of accounts, and one record for each request. Money is nano-units of one currency.
///
/// Promises:
/// * A balance is the sum of its credits less the sum of its charges, to the unit.
/// * Reservations of one gateway never come to more than the balance that it knows. A balance falls below zero only by
///   what requests under way cost more than was reserved for them, and, where several gateways share a store that
///   tells them of each other only now and then, by what they hold and charge in between.
/// * What a settlement has confirmed is charged once and recorded once, also when the process ends in that moment.
/// * A reservation that is neither settled nor dropped, because its process has ended, holds nothing any more.
/// * No method waits.
pub trait Ledger: Send + Sync {
    /// Holds an amount of an account's balance for a request. Nothing is held for an amount of zero or less, but the
    /// account must be there and enabled.
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome;

    /// Ends a request: charges the record's cost to its account, gives back what is left of the reservation, and keeps
    /// the record. Each request has one record, also one that failed (its cost is zero then) and one whose key has no
    /// account.
    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled;

    /// What an account can still spend, as this gateway knows it: its balance less what is held. Nothing, if there is
    /// no such account.
    fn available(&self, account: &AccountId) -> Option<i64>;

    /// What each account and key has been charged since the beginning of a day (days since 1970-01-01, UTC), for
    /// limits on spending that outlive the process.
    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>>;

    /// Whether other processes hold amounts of the same balances, and are told of each other's.
    fn is_shared(&self) -> bool {
        self.limiter().is_some()
    }

    /// What is wrong with the place where charges are kept, in words for people, while something is: then nothing is
    /// held.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Brings what is settled to where it stays, and gives back what is set aside for this process. For the end of the
    /// process: nothing should be held any more, and what is settled after that waits for the next process.
    fn close(&self) -> Pending<()>;

    /// The threads that do its work.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }

    /// Who counts limits for all gateways on this ledger; nobody, where each counts for itself.
    fn limiter(&self) -> Option<&dyn Limiter> {
        None
    }
}

/// What an account and a key have been charged on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Days since 1970-01-01, UTC.
    pub day: i64,
    /// The account; empty for a key without one.
    pub account: String,
    /// The key's name.
    pub key: String,
    /// The charge, in nano-units.
    pub cost: i64,
}

/// Why nothing was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// There is no such account.
    #[error("there is no such account")]
    UnknownAccount,
    /// The account is switched off.
    #[error("the account is disabled")]
    Disabled,
    /// There is not enough.
    #[error("the balance does not suffice")]
    Empty {
        /// What the account can still spend: its balance less what is held for other requests.
        available: i64,
    },
    /// The ledger cannot be asked, or could not keep what is charged.
    #[error("the ledger is not available")]
    Unavailable,
}

impl ReserveError {
    /// A word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            ReserveError::UnknownAccount => "unknown_account",
            ReserveError::Disabled => "disabled",
            ReserveError::Empty { .. } => "empty",
            ReserveError::Unavailable => "unavailable",
        }
    }
}

/// Whoever holds amounts back, and takes them back.
pub(super) trait Holder: Send + Sync + fmt::Debug {
    /// What was held, or a part of it, can be spent again.
    fn give_back(&self, reservation: u64, amount: i64);
}

/// An amount that is held for one request. Dropped without being settled, it is given back.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    id: u64,
    amount: i64,
    holder: Arc<dyn Holder>,
}

impl Reservation {
    pub(super) fn new(id: u64, amount: i64, holder: Arc<dyn Holder>) -> Self {
        Reservation { id, amount, holder }
    }

    /// What is held.
    pub fn amount(&self) -> i64 {
        self.amount
    }

    /// Ends the reservation at this cost; what is left of it is given back. A cost above what is held is taken.
    pub(super) fn spend(mut self, cost: i64) {
        self.amount = self.amount.saturating_sub(cost);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.amount != 0 {
            self.holder.give_back(self.id, self.amount);
        }
    }
}

/// Reservation result, known or pending. A reservation that arrives after its receiver is gone is refunded.
#[derive(Debug)]
pub enum ReserveOutcome {
    /// It is known.
    Known(Result<Reservation, ReserveError>),
    /// It is on its way.
    Pending(oneshot::Receiver<Result<Reservation, ReserveError>>),
}

impl ReserveOutcome {
    /// Waits for the outcome, but not longer than this.
    ///
    /// # Errors
    /// Nothing is held.
    pub async fn within(self, time: Duration) -> Result<Reservation, ReserveError> {
        match self {
            ReserveOutcome::Known(outcome) => outcome,
            ReserveOutcome::Pending(outcome) => match tokio::time::timeout(time, outcome).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Err(ReserveError::Unavailable),
            },
        }
    }
}

/// The outcome of a settlement, known or on its way.
#[derive(Debug)]
pub enum Settled {
    /// It is known.
    Known(Result<(), StoreError>),
    /// It is on its way.
    Pending(Pending<()>),
}

impl Settled {
    /// Waits for the outcome outside of a runtime, but not longer than this.
    ///
    /// # Errors
    /// It was not done, or not in time.
    pub fn wait(self, time: Duration) -> Result<(), StoreError> {
        match self {
            Settled::Known(outcome) => outcome,
            Settled::Pending(pending) => pending.wait(time),
        }
    }

    /// Waits for the outcome, but not longer than this. What takes longer may still be done later.
    ///
    /// # Errors
    /// It was not done, or not in time.
    pub async fn within(self, time: Duration) -> Result<(), StoreError> {
        match self {
            Settled::Known(outcome) => outcome,
            Settled::Pending(pending) => pending.within(time).await,
        }
    }
}
