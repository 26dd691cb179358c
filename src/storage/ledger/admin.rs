//! Administration of a ledger, independent of the database behind it.

use std::io;
use std::path::{Path, PathBuf};

use super::breakdown::{BreakdownRow, UsageQuery};
use super::report::{RecordQuery, UsageFilter, UsageGrouping, UsageRow};
use super::{AccountId, UsageRecord};
use routing::account::Amount;
use routing::account::amount::LARGEST;

/// Administration of a ledger while gateways run: accounts, credits and reports.
pub trait LedgerAdmin {
    /// Creates an account with a balance of zero.
    ///
    /// # Errors
    /// Returns [`AdminError`] if an account of this name exists, or the database failed.
    fn create(&self, account: &AccountId) -> Result<(), AdminError>;

    /// Credits an account with an amount in nano-units. A reference that was used before for the same amount changes
    /// nothing, so that a credit can be retried.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, the reference was used for another amount, or the database
    /// failed.
    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError>;

    /// Enables or disables an account. Returns true if the state changed.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError>;

    /// Returns the state of one account.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    fn account(&self, account: &str) -> Result<AccountState, AdminError>;

    /// Returns all accounts, ordered by name.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn accounts(&self) -> Result<Vec<AccountState>, AdminError>;

    /// Returns at most `most` credits of an account, the latest first; with `before`, only those with a smaller
    /// [`Credit::number`].
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    fn credits(&self, account: &str, before: Option<i64>, most: u32) -> Result<Vec<Credit>, AdminError>;

    /// Returns the amount in nano-units that was credited with a reference. `None` if the account has no such credit.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    fn credit_of(&self, account: &str, reference: &str) -> Result<Option<i64>, AdminError>;

    /// Returns a usage report: days in chronological order, names by descending cost.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError>;

    /// Returns usage by several dimensions, in no order. The query must pass [`UsageQuery::check`].
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn breakdown(&self, query: &UsageQuery) -> Result<Vec<BreakdownRow>, AdminError>;

    /// Calls `show` with each usage record that matches the filter.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed or `show` returned an error.
    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError>;

    /// Calls `show` with the usage records that the query chooses, from `after` on: in the order in which requests ended, or
    /// the latest first; in a fleet by day and account, then in this order. Ends after `most` records, or after a bounded
    /// number of others. Returns the position behind the last one; `None` at the end.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the position is none of this ledger, the database failed or `show` returned an error.
    fn records_page(
        &self,
        query: &RecordQuery,
        after: Option<&str>,
        most: usize,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<Option<String>, AdminError>;

    /// Stores what a gateway says of itself, in the store that a fleet shares, at `now` in Unix seconds. Announcements that
    /// are older than an hour are removed. Without a shared store, nothing is stored.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn announce(&self, _gateway: &str, _text: &str, _now: i64) -> Result<(), AdminError> {
        Ok(())
    }

    /// Returns what the gateways of a fleet say of themselves. `None` without a shared store.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn announced(&self) -> Result<Option<Vec<String>>, AdminError> {
        Ok(None)
    }

    /// Audits the ledger. Returns one line for each account whose credits or charges differ from the sum of its
    /// entries.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn audit(&self) -> Result<Vec<String>, AdminError>;

    /// Writes a backup of the whole ledger to a file.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the backup cannot be written, or this ledger makes no backups.
    fn backup(&self, to: &Path) -> Result<(), AdminError>;
}

/// Failure of an administrative command.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The account does not exist.
    #[error("no account is named {0:?}; `model-gateway accounts list` shows all accounts")]
    Unknown(String),
    /// The account exists already.
    #[error("an account named {0:?} already exists")]
    Exists(String),
    /// The reference was used for another credit.
    #[error("the reference {reference:?} is already used for a credit of {}", Amount(*.amount))]
    Reference {
        /// The reference.
        reference: String,
        /// Amount of the other credit, in nano-units.
        amount: i64,
    },
    /// The balance would exceed the largest permitted balance.
    #[error("a balance must not be larger than {}", Amount(LARGEST))]
    TooLarge,
    /// The database failed.
    #[error("the ledger failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// The server failed.
    #[error("the server failed: {0}")]
    Server(String),
    /// The operating system returned an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The position is none of this ledger.
    #[error("the cursor is not valid")]
    Cursor,
    /// The period of a report is too long.
    #[error("in a fleet, at most {0} days are summed by hour, provider or error")]
    Period(i64),
    /// A record cannot be read, or `show` returned an error.
    #[error(transparent)]
    Records(io::Error),
}

/// State of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountState {
    /// Name of the account.
    pub name: String,
    /// Creation time, in Unix milliseconds.
    pub created: i64,
    /// True if the account may spend.
    pub enabled: bool,
    /// Sum of all credits, in nano-units.
    pub credited: i64,
    /// Sum of all charges, in nano-units.
    pub charged: i64,
}

impl AccountState {
    /// Returns the balance in nano-units: credits less charges.
    pub fn balance(&self) -> i64 {
        self.credited.saturating_sub(self.charged)
    }
}

/// Credit of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Number, ascending within an account.
    pub number: i64,
    /// Time in Unix milliseconds.
    pub time: i64,
    /// Amount in nano-units; a negative amount is a deduction.
    pub amount: i64,
    /// Free text.
    pub note: String,
    /// Idempotency reference, unique within the account.
    pub reference: Option<String>,
}

/// Result of a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credited {
    /// Balance after the credit, in nano-units.
    pub balance: i64,
    /// True if the reference had been credited before, so that nothing changed.
    pub repeated: bool,
}

/// Returns a line about the account if its sums differ from the sums of its entries, otherwise `None`. `sums`:
/// credited, credit entries, charged, daily sums; in nano-units. Saturated sums are shown as "or more".
pub(crate) fn fault(name: &str, sums: [i64; 4]) -> Option<String> {
    let [credited, credits, charged, charges] = sums;
    // Sums at or above the limit were saturated at different points and cannot be compared exactly.
    let same = |stored: i64, sum: i64| stored == sum || stored.min(sum) >= LARGEST;
    if same(credited, credits) && same(charged, charges) {
        return None;
    }
    let shown =
        sums.map(|sum| format!("{:.2}{}", Amount(sum), if sum == i64::MAX { " or more" } else { "" }));
    let [credited, credits, charged, charges] = shown;
    Some(format!("{name}: credited {credited}, entries {credits}; charged {charged}, sums of days {charges}"))
}
