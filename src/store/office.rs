//! What people do with the ledger, wherever it is.

use std::io;
use std::path::Path;

use super::book::{AccountState, By, Credit, Credited, Desk, DeskError, Filter, Line};
use super::ledger::AccountId;
use super::record::UsageRecord;

/// Accounts, credits and reports, while gateways go on.
pub trait Office {
    /// Makes an account with nothing on it.
    ///
    /// # Errors
    /// There is one of this name, or the store failed.
    fn create(&self, account: &AccountId) -> Result<(), DeskError>;

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
    ) -> Result<Credited, DeskError>;

    /// Switches an account on or off; tells whether that is news.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, DeskError>;

    /// An account.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn account(&self, account: &str) -> Result<AccountState, DeskError>;

    /// All accounts, by name.
    ///
    /// # Errors
    /// The store failed.
    fn accounts(&self) -> Result<Vec<AccountState>, DeskError>;

    /// The latest credits of an account, the latest first.
    ///
    /// # Errors
    /// There is no such account, or the store failed.
    fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, DeskError>;

    /// What was used: days in order, names by what they cost.
    ///
    /// # Errors
    /// The store failed.
    fn usage(&self, filter: &Filter, by: By) -> Result<Vec<Line>, DeskError>;

    /// Shows each record.
    ///
    /// # Errors
    /// The store failed, or `show` did.
    fn records(
        &self,
        filter: &Filter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), DeskError>;

    /// What does not add up: accounts whose credits or charges are not the sum of their entries.
    ///
    /// # Errors
    /// The store failed.
    fn audit(&self) -> Result<Vec<String>, DeskError>;

    /// Writes a copy of everything.
    ///
    /// # Errors
    /// The copy cannot be written, or is not made here.
    fn backup(&self, to: &Path) -> Result<(), DeskError>;
}

impl Office for Desk {
    fn create(&self, account: &AccountId) -> Result<(), DeskError> {
        Desk::create(self, account)
    }

    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, DeskError> {
        Desk::credit(self, account, amount, note, reference)
    }

    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, DeskError> {
        Desk::set_enabled(self, account, enabled)
    }

    fn account(&self, account: &str) -> Result<AccountState, DeskError> {
        Desk::account(self, account)
    }

    fn accounts(&self) -> Result<Vec<AccountState>, DeskError> {
        Desk::accounts(self)
    }

    fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, DeskError> {
        Desk::credits(self, account, most)
    }

    fn usage(&self, filter: &Filter, by: By) -> Result<Vec<Line>, DeskError> {
        Desk::usage(self, filter, by)
    }

    fn records(
        &self,
        filter: &Filter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), DeskError> {
        Desk::records(self, filter, show)
    }

    fn audit(&self) -> Result<Vec<String>, DeskError> {
        Desk::audit(self)
    }

    fn backup(&self, to: &Path) -> Result<(), DeskError> {
        Desk::backup(self, to)
    }
}
