//! The ledger interface: the expected cost of a request is reserved before it is sent, and its actual cost is charged
//! at its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::UsageRecord;
use super::wal::PendingWrite;
use crate::store::{Pending, StoreError};
use routing::limits::Limiter;
use sync::supervise::Supervised;

/// Name of an account: 1 to [`LONGEST`](Self::LONGEST) bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(Arc<str>);

impl AccountId {
    /// Longest name, in bytes.
    pub const LONGEST: usize = 128;

    /// Creates an account name. Returns `None` if the name is empty, too long or contains a control character.
    pub fn new(name: &str) -> Option<Self> {
        Self::fits(name).then(|| AccountId(name.into()))
    }

    /// Same as [`new`](Self::new), but shares the text instead of copying it.
    pub fn shared(name: &Arc<str>) -> Option<Self> {
        Self::fits(name).then(|| AccountId(name.clone()))
    }

    fn fits(name: &str) -> bool {
        (1..=Self::LONGEST).contains(&name.len()) && !name.chars().any(char::is_control)
    }

    /// Returns the name as text.
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

/// Balances of accounts, and one usage record per request. Money is counted in nano-units of one currency.
///
/// Guarantees:
/// * A balance is exactly the sum of its credits less the sum of its charges.
/// * Open reservations of one gateway never exceed the balance that this gateway knows. A balance falls below zero only
///   by the amount that requests in flight cost above their reservations and, where gateways share a store that
///   synchronizes them periodically, by what the other gateways reserve and charge between two synchronizations.
/// * A confirmed settlement is charged once and recorded once, even if the process ends at that moment.
/// * A reservation that is neither settled nor dropped because its process has ended no longer reserves anything.
/// * No method blocks.
pub trait Ledger: Send + Sync {
    /// Reserves an amount, in nano-units, of an account's balance for a request. An amount of zero or less reserves
    /// nothing, but still checks that the account exists and is enabled.
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome;

    /// Settles a request: charges the record's cost to its account, refunds the rest of the reservation and stores the
    /// record. Each request has exactly one record, including failed requests (cost zero) and requests whose key has no
    /// account.
    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled;

    /// Returns the spendable balance of an account as this gateway knows it, in nano-units: the balance less open
    /// reservations. `None` if this gateway knows no such account.
    fn available(&self, account: &AccountId) -> Option<i64>;

    /// Returns the charges of each account and key per day, from `day` on (days since 1970-01-01, UTC). Spend limits
    /// are restored from it after a restart.
    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>>;

    /// Returns true if other processes reserve from the same balances and share limits through a coordinator.
    fn is_shared(&self) -> bool {
        self.limiter().is_some()
    }

    /// Returns a description of the current fault of the place where charges are written, for operators. `None` if
    /// there is none. While there is a fault, reservations fail.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Flushes settled charges to the durable store and returns unspent leases, at the end of the process. No
    /// reservation should be open any more. What is settled after this call is applied by the next process.
    fn close(&self) -> Pending<()>;

    /// Returns the threads that do the work of this ledger.
    fn threads(&self) -> Vec<Arc<Supervised>> {
        Vec::new()
    }

    /// Returns the limiter that enforces limits across all gateways on this ledger. `None` if each gateway enforces its
    /// own.
    fn limiter(&self) -> Option<&dyn Limiter> {
        None
    }
}

/// Charges of one account and key on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Days since 1970-01-01, UTC.
    pub day: i64,
    /// Account; empty for a key without one.
    pub account: String,
    /// Name of the key.
    pub key: String,
    /// Sum of the charges, in nano-units.
    pub cost: i64,
}

/// Reason why a reservation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The account does not exist.
    #[error("the account does not exist")]
    UnknownAccount,
    /// The account is disabled.
    #[error("the account is disabled")]
    Disabled,
    /// The spendable balance is smaller than the amount.
    #[error("the balance is too low")]
    Empty {
        /// Spendable balance in nano-units: the balance less open reservations.
        available: i64,
    },
    /// The ledger cannot be reached, or cannot make charges durable.
    #[error("the ledger is not available")]
    Unavailable,
}

impl ReserveError {
    /// Returns the value of the metric label for this error.
    pub fn label(self) -> &'static str {
        match self {
            ReserveError::UnknownAccount => "unknown_account",
            ReserveError::Disabled => "disabled",
            ReserveError::Empty { .. } => "empty",
            ReserveError::Unavailable => "unavailable",
        }
    }
}

/// Owner of reserved amounts, to which a [`Reservation`] refunds itself.
pub(super) trait ReservationHolder: Send + Sync + fmt::Debug {
    /// Refunds a reservation or the rest of it, in nano-units. A negative amount is an overrun and is deducted.
    fn refund(&self, amount: i64);
}

/// Reservation of an amount for one request. It is refunded if it is dropped without being settled.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is refunded"]
pub struct Reservation {
    amount: i64,
    holder: Arc<dyn ReservationHolder>,
}

impl Reservation {
    pub(super) fn new(amount: i64, holder: Arc<dyn ReservationHolder>) -> Self {
        Reservation { amount, holder }
    }

    /// Returns the reserved amount, in nano-units.
    pub fn amount(&self) -> i64 {
        self.amount
    }

    /// Ends the reservation at this cost, in nano-units. Refunds the rest, or deducts the cost above the reservation.
    pub(super) fn settle(mut self, cost: i64) {
        self.amount = self.amount.saturating_sub(cost);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.amount != 0 {
            self.holder.refund(self.amount);
        }
    }
}

/// Reservation result, known or pending. A reservation that arrives after its receiver is gone is refunded.
#[derive(Debug)]
pub enum ReserveOutcome {
    /// The ledger decided at once.
    Known(Result<Reservation, ReserveError>),
    /// The ledger queries the coordinator first.
    Pending(oneshot::Receiver<Result<Reservation, ReserveError>>),
}

impl ReserveOutcome {
    /// Waits for the outcome for at most `time`.
    ///
    /// # Errors
    /// Returns [`ReserveError`] if nothing is reserved; [`ReserveError::Unavailable`] if the outcome does not arrive in
    /// time.
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

/// Outcome of a settlement, known or pending.
#[derive(Debug)]
pub enum Settled {
    /// The charge is durable, or writing it failed.
    Known(Result<(), StoreError>),
    /// The charge is being written.
    Pending(PendingWrite),
}

impl Settled {
    /// Waits for the outcome for at most `time`, outside a Tokio runtime.
    ///
    /// # Errors
    /// Returns the error of the write, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub fn wait(self, time: Duration) -> Result<(), StoreError> {
        match self {
            Settled::Known(outcome) => outcome,
            Settled::Pending(pending) => pending.wait(time),
        }
    }

    /// Waits for the outcome for at most `time`. A settlement that times out here may still become durable later.
    ///
    /// # Errors
    /// Returns the error of the write, or [`StoreError::Timeout`] if the outcome does not arrive within `time`.
    pub async fn within(self, time: Duration) -> Result<(), StoreError> {
        match self {
            Settled::Known(outcome) => outcome,
            Settled::Pending(pending) => pending.within(time).await,
        }
    }
}
