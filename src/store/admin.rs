//! Administration of a ledger, independent of the database behind it.

use std::io;
use std::path::Path;

use super::ledger::AccountId;
use super::record::UsageRecord;
use super::sqlite_ledger::{
    AccountState, AdminError, Credit, Credited, SqliteAdmin, UsageFilter, UsageGrouping, UsageRow,
};

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

    /// Returns at most `most` credits of an account, the latest first.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, AdminError>;

    /// Returns a usage report: days in chronological order, names by descending cost.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError>;

    /// Calls `show` with each usage record that matches the filter.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed or `show` returned an error.
    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError>;

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

impl LedgerAdmin for SqliteAdmin {
    fn create(&self, account: &AccountId) -> Result<(), AdminError> {
        SqliteAdmin::create(self, account)
    }

    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError> {
        SqliteAdmin::credit(self, account, amount, note, reference)
    }

    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError> {
        SqliteAdmin::set_enabled(self, account, enabled)
    }

    fn account(&self, account: &str) -> Result<AccountState, AdminError> {
        SqliteAdmin::account(self, account)
    }

    fn accounts(&self) -> Result<Vec<AccountState>, AdminError> {
        SqliteAdmin::accounts(self)
    }

    fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, AdminError> {
        SqliteAdmin::credits(self, account, most)
    }

    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError> {
        SqliteAdmin::usage(self, filter, by)
    }

    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError> {
        SqliteAdmin::records(self, filter, show)
    }

    fn audit(&self) -> Result<Vec<String>, AdminError> {
        SqliteAdmin::audit(self)
    }

    fn backup(&self, to: &Path) -> Result<(), AdminError> {
        SqliteAdmin::backup(self, to)
    }
}
