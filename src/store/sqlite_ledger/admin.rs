//! Administration of the SQLite ledger while gateways run: accounts, credits, reports, backups.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::report::{self, SqliteReportError, UsageFilter, UsageGrouping, UsageRow};
use super::{replay, rows};
use crate::account::Amount;
use crate::account::amount::LARGEST;
use crate::store::ledger::AccountId;
use crate::store::now;
use crate::store::record::UsageRecord;
use crate::store::schema::{self, OpenError};

/// How long a command waits for a lock that a running gateway holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Administration of the SQLite ledger.
#[derive(Debug)]
pub struct SqliteAdmin {
    connection: Connection,
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

const COLUMNS: &str = "name, created, enabled, credited, charged";

fn state(row: &Row<'_>) -> rusqlite::Result<AccountState> {
    Ok(AccountState {
        name: row.get(0)?,
        created: row.get(1)?,
        enabled: row.get(2)?,
        credited: row.get(3)?,
        charged: row.get(4)?,
    })
}

impl SqliteAdmin {
    /// Opens the file, creates it if it does not exist, and replays the journals of ended processes.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        connection
            .busy_timeout(BUSY_TIMEOUT)
            .map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
        replay::recover(&connection, &schema::journals(path), &mut 0, &mut |_, _, _| {})?;
        Ok(SqliteAdmin { connection })
    }

    /// Opens the file if it exists.
    ///
    /// # Errors
    /// Returns [`OpenError::Missing`] if the file does not exist, or another [`OpenError`] if it cannot be used.
    pub fn open_existing(path: &Path) -> Result<Self, OpenError> {
        if path.exists() { Self::open(path) } else { Err(OpenError::Missing(path.to_owned())) }
    }

    /// Runs a change in one transaction that is on the disk when this returns.
    fn change<T>(&self, change: impl FnOnce(&Connection) -> Result<T, AdminError>) -> Result<T, AdminError> {
        self.connection.execute_batch("PRAGMA synchronous = FULL; BEGIN IMMEDIATE")?;
        let done = change(&self.connection).and_then(|done| {
            self.connection.execute_batch("COMMIT")?;
            Ok(done)
        });
        if done.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    /// Creates an account with a balance of zero, less what its name was charged before.
    ///
    /// # Errors
    /// Returns [`AdminError`] if an account of this name exists, or the database failed.
    pub fn create(&self, account: &AccountId) -> Result<(), AdminError> {
        self.create_many([account.clone()])
    }

    /// Creates accounts, all of them or none.
    ///
    /// # Errors
    /// Returns [`AdminError`] if an account of one of these names exists, or the database failed.
    pub fn create_many(&self, accounts: impl IntoIterator<Item = AccountId>) -> Result<(), AdminError> {
        self.change(|connection| {
            let stamp = rows::next_stamp(connection)?;
            let debts = debts(connection)?;
            let mut insert = connection.prepare_cached(
                "INSERT INTO account (name, created, enabled, charged, changed) VALUES (?1, ?2, TRUE, ?3, ?4)
                 ON CONFLICT (name) DO NOTHING",
            )?;
            for account in accounts {
                let charged = debts.get(account.as_str()).copied().unwrap_or(0);
                if insert.execute(params![account.as_str(), now(), charged, stamp])? == 0 {
                    return Err(AdminError::Exists(account.to_string()));
                }
            }
            Ok(())
        })
    }

    /// Credits an account with an amount in nano-units. A reference that was used before for the same amount changes
    /// nothing.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, the reference was used for another amount, the balance would
    /// become too large, or the database failed.
    pub fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError> {
        self.change(|connection| {
            let (id, before) = find(connection, account)?;
            if let Some(reference) = reference {
                let mut select =
                    connection.prepare("SELECT amount FROM credit WHERE account = ?1 AND reference = ?2")?;
                match select.query_row(params![id, reference], |row| row.get(0)).optional()? {
                    Some(given) if given == amount => {
                        return Ok(Credited { balance: before.balance(), repeated: true });
                    }
                    Some(given) => {
                        let reference = reference.to_owned();
                        return Err(AdminError::Reference { reference, amount: given });
                    }
                    None => {}
                }
            }
            let credited = before.credited.checked_add(amount).filter(|sum| sum.abs() <= LARGEST);
            let credited = credited.ok_or(AdminError::TooLarge)?;
            connection.execute(
                "INSERT INTO credit (account, time, amount, note, reference) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id, now(), amount, note, reference],
            )?;
            connection.execute(
                "UPDATE account SET credited = ?2, changed = ?3 WHERE id = ?1",
                params![id, credited, rows::next_stamp(connection)?],
            )?;
            Ok(Credited { balance: credited.saturating_sub(before.charged), repeated: false })
        })
    }

    /// Enables or disables an account. Returns true if the state changed.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    pub fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError> {
        self.change(|connection| {
            let (id, before) = find(connection, account)?;
            connection.execute(
                "UPDATE account SET enabled = ?2, changed = ?3 WHERE id = ?1",
                params![id, enabled, rows::next_stamp(connection)?],
            )?;
            Ok(before.enabled != enabled)
        })
    }

    /// Returns the state of one account.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    pub fn account(&self, account: &str) -> Result<AccountState, AdminError> {
        find(&self.connection, account).map(|(_, state)| state)
    }

    /// Returns all accounts, ordered by name.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    pub fn accounts(&self) -> Result<Vec<AccountState>, AdminError> {
        let mut select = self.connection.prepare(&format!("SELECT {COLUMNS} FROM account ORDER BY name"))?;
        Ok(select.query_map((), state)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns at most `most` credits of an account, the latest first.
    ///
    /// # Errors
    /// Returns [`AdminError`] if there is no such account, or the database failed.
    pub fn credits(&self, account: &str, most: u32) -> Result<Vec<Credit>, AdminError> {
        let (id, _) = find(&self.connection, account)?;
        let mut select = self.connection.prepare(
            "SELECT time, amount, note, reference FROM credit WHERE account = ?1 ORDER BY id DESC LIMIT ?2",
        )?;
        let credits = select.query_map(params![id, most], |row| {
            Ok(Credit { time: row.get(0)?, amount: row.get(1)?, note: row.get(2)?, reference: row.get(3)? })
        })?;
        Ok(credits.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns a usage report: days in chronological order, names by descending cost.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    pub fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError> {
        Ok(report::sums(&self.connection, filter, by)?)
    }

    /// Calls `show` with each usage record that matches the filter, in the order in which requests ended.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed or `show` returned an error.
    pub fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError> {
        report::records(&self.connection, filter, show).map_err(|error| match error {
            SqliteReportError::Database(error) => error.into(),
            SqliteReportError::Io(error) => AdminError::Records(error),
        })
    }

    /// Audits the ledger. Returns one line for each account whose credits or charges differ from the sum of its
    /// entries; empty if all of them agree.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the database failed.
    pub fn audit(&self) -> Result<Vec<String>, AdminError> {
        // One read transaction: a consistent view, also while a gateway writes.
        self.connection.execute_batch("BEGIN")?;
        let found = audit(&self.connection);
        self.connection.execute_batch("COMMIT")?;
        Ok(found?)
    }

    /// Writes a consistent copy of the whole file while others continue to write. `to` must not exist.
    ///
    /// # Errors
    /// Returns [`AdminError`] if the copy cannot be written.
    pub fn backup(&self, to: &Path) -> Result<(), AdminError> {
        let io = |source| AdminError::Io { path: to.to_owned(), source };
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(io)?;
        let mut copy = Connection::open(to)?;
        // Copy all pages in one step: between steps, each write of another connection would restart the copy.
        let copied = Backup::new(&self.connection, &mut copy)
            .and_then(|backup| backup.run_to_completion(i32::MAX, Duration::ZERO, None));
        let closed = copied.and_then(|()| copy.close().map_err(|(_, error)| error));
        let synced = closed.map_err(AdminError::from).and_then(|()| file.sync_all().map_err(io));
        if synced.is_err() {
            let _ = std::fs::remove_file(to);
        }
        synced
    }
}

/// Returns what was charged to names for which no account exists yet, in nano-units.
fn debts(connection: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    let mut select = connection.prepare(&format!(
        "SELECT account, {} FROM daily WHERE account NOT IN (SELECT name FROM account) GROUP BY account",
        report::summed("cost")
    ))?;
    select.query_map((), |row| Ok((row.get(0)?, report::sum(row, 1)?)))?.collect()
}

fn find(connection: &Connection, account: &str) -> Result<(i64, AccountState), AdminError> {
    let mut select = connection.prepare(&format!("SELECT {COLUMNS}, id FROM account WHERE name = ?1"))?;
    let found = select.query_row(params![account], |row| Ok((row.get(5)?, state(row)?))).optional()?;
    found.ok_or_else(|| AdminError::Unknown(account.to_owned()))
}

fn audit(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut select = connection.prepare(&format!(
        "SELECT name, credited, charged, c.amount_high, c.amount_low, d.cost_high, d.cost_low
         FROM account
         LEFT JOIN (SELECT account, {} FROM credit GROUP BY account) c ON c.account = account.id
         LEFT JOIN (SELECT account, {} FROM daily GROUP BY account) d ON d.account = account.name",
        report::summed("amount"),
        report::summed("cost"),
    ))?;
    let faults = select.query_map((), |row| {
        let (credited, charged): (i64, i64) = (row.get(1)?, row.get(2)?);
        let (credits, charges) = (report::sum(row, 3)?, report::sum(row, 5)?);
        Ok(fault(row.get_ref(0)?.as_str()?, [credited, credits, charged, charges]))
    })?;
    faults.filter_map(Result::transpose).collect()
}

/// Returns a line about the account if its sums differ from the sums of its entries, otherwise `None`. `sums`:
/// credited, credit entries, charged, daily sums; in nano-units. Saturated sums are shown as "or more".
pub(in crate::store) fn fault(name: &str, sums: [i64; 4]) -> Option<String> {
    let [credited, credits, charged, charges] = sums;
    // Sums at or above the limit were saturated at different points and cannot be compared exactly.
    let same = |kept: i64, sum: i64| kept == sum || kept.min(sum) >= LARGEST;
    if same(credited, credits) && same(charged, charges) {
        return None;
    }
    let shown =
        sums.map(|sum| format!("{:.2}{}", Amount(sum), if sum == i64::MAX { " or more" } else { "" }));
    let [credited, credits, charged, charges] = shown;
    Some(format!("{name}: credited {credited}, entries {credits}; charged {charged}, sums of days {charges}"))
}
