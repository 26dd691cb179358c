//! What people do with the ledger, wherever it is.

use std::io;
use std::path::Path;

use super::ledger::AccountId;
use super::record::UsageRecord;
use super::sqlite_ledger::{
    AccountState, AdminError, Credit, Credited, SqliteAdmin, UsageFilter, UsageGrouping, UsageRow,
};

/// Administration of a ledger while gateways run: accounts, credits and reports.
pub trait LedgerAdmin {
    /// Makes an account with nothing on it.
    ///
    /// # Errors
    /// There is one of this name, or the store failed.
    fn create(&self, account: &AccountId) -> Result<(), AdminError>;

    /// Credits an account. A reference that was used for the same amount before changes nothing.
    ///
    /// # Errors
    /// There is no such account, the reference stands for another amount, or the store failed.
    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError>;

    /// Switches an account on or off; tells whether that is news.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError>;

    /// An account.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn account(&self, account: &str) -> Result<AccountState, AdminError>;

    /// All accounts, by name.
    ///
    /// # Errors
    /// The store failed.
    fn accounts(&self) -> Result<Vec<AccountState>, AdminError>;

    /// The latest credits of an account, the latest first.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, AdminError>;

    /// What was used: days in order, names by what they cost.
    ///
    /// # Errors
    /// The store failed.
    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError>;

    /// Shows each record.
    ///
    /// # Errors
    /// The store failed, or `show` did.
    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError>;

    /// What does not add up: accounts whose credits or charges are not the sum of their entries.
    ///
    /// # Errors
    /// The store failed.
    fn audit(&self) -> Result<Vec<String>, AdminError>;

    /// Writes a copy of everything.
    ///
    /// # Errors
    /// The copy cannot be written, or is not made here.
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
