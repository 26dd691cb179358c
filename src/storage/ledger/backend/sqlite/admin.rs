//! Administration of the SQLite ledger while gateways run: accounts, credits, reports, backups.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::report::{self, SqliteReportError};
use super::{replay, rollup, rows};
use crate::ledger::admin::{AccountState, AdminError, Credit, Credited, LedgerAdmin, fault};
use crate::ledger::breakdown::{BreakdownRow, UsageQuery};
use crate::ledger::report::{PAGE_BYTES, RecordPosition, RecordQuery, UsageFilter, UsageGrouping, UsageRow};
use crate::ledger::{AccountId, UsageRecord};
use crate::store::now;
use crate::store::schema::{self, OpenError};
use routing::account::amount::LARGEST;

/// How long a command waits for a lock that a running gateway holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of blocks that are read for one page of records. A block has the records of a tenth of a second.
const MAX_BLOCKS: usize = 1_000;

/// Administration of the SQLite ledger.
#[derive(Debug)]
pub struct SqliteAdmin {
    connection: Connection,
}

fn failed(error: SqliteReportError) -> AdminError {
    match error {
        SqliteReportError::Database(error) => error.into(),
        SqliteReportError::Io(error) => AdminError::Records(error),
    }
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
}

impl LedgerAdmin for SqliteAdmin {
    fn create(&self, account: &AccountId) -> Result<(), AdminError> {
        self.create_many([account.clone()])
    }

    fn credit(
        &self,
        account: &str,
        amount: i64,
        note: &str,
        reference: Option<&str>,
    ) -> Result<Credited, AdminError> {
        self.change(|connection| {
            let (id, before) = find(connection, account)?;
            if let Some(reference) = reference {
                match credit_of(connection, id, reference)? {
                    Some(credited_before) if credited_before == amount => {
                        return Ok(Credited { balance: before.balance(), repeated: true });
                    }
                    Some(credited_before) => {
                        let reference = reference.to_owned();
                        return Err(AdminError::Reference { reference, amount: credited_before });
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

    fn set_enabled(&self, account: &str, enabled: bool) -> Result<bool, AdminError> {
        self.change(|connection| {
            let (id, before) = find(connection, account)?;
            connection.execute(
                "UPDATE account SET enabled = ?2, changed = ?3 WHERE id = ?1",
                params![id, enabled, rows::next_stamp(connection)?],
            )?;
            Ok(before.enabled != enabled)
        })
    }

    fn account(&self, account: &str) -> Result<AccountState, AdminError> {
        find(&self.connection, account).map(|(_, state)| state)
    }

    fn accounts(&self) -> Result<Vec<AccountState>, AdminError> {
        let mut select = self.connection.prepare(&format!("SELECT {COLUMNS} FROM account ORDER BY name"))?;
        Ok(select.query_map((), state)?.collect::<rusqlite::Result<_>>()?)
    }

    fn credits(&self, account: &str, before: Option<i64>, most: u32) -> Result<Vec<Credit>, AdminError> {
        let (id, _) = find(&self.connection, account)?;
        let mut select = self.connection.prepare(
            "SELECT id, time, amount, note, reference FROM credit WHERE account = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
        )?;
        let credits = select.query_map(params![id, before.unwrap_or(i64::MAX), most], |row| {
            Ok(Credit {
                number: row.get(0)?,
                time: row.get(1)?,
                amount: row.get(2)?,
                note: row.get(3)?,
                reference: row.get(4)?,
            })
        })?;
        Ok(credits.collect::<rusqlite::Result<_>>()?)
    }

    fn credit_of(&self, account: &str, reference: &str) -> Result<Option<i64>, AdminError> {
        let (id, _) = find(&self.connection, account)?;
        Ok(credit_of(&self.connection, id, reference)?)
    }

    fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError> {
        Ok(report::sums(&self.connection, filter, by)?)
    }

    fn breakdown(&self, query: &UsageQuery) -> Result<Vec<BreakdownRow>, AdminError> {
        rollup::breakdown(&self.connection, query).map_err(failed)
    }

    fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError> {
        report::records(&self.connection, filter, show).map_err(failed)
    }

    fn records_page(
        &self,
        query: &RecordQuery,
        after: Option<&str>,
        most: usize,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<Option<String>, AdminError> {
        let position = |after| query.position(after).and_then(RecordPosition::parse);
        let start = after.map(|after| position(after).ok_or(AdminError::Cursor)).transpose()?;
        let most = report::PageSize { records: most, blocks: MAX_BLOCKS, bytes: PAGE_BYTES };
        let next = report::page(&self.connection, query, start, most, show).map_err(failed)?;
        Ok(next.map(|next| query.cursor(next)))
    }

    fn audit(&self) -> Result<Vec<String>, AdminError> {
        // One read transaction: a consistent view, also while a gateway writes.
        self.connection.execute_batch("BEGIN")?;
        let found = audit(&self.connection);
        self.connection.execute_batch("COMMIT")?;
        Ok(found?)
    }

    fn backup(&self, to: &Path) -> Result<(), AdminError> {
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

/// Returns the amount in nano-units that was credited to an account with a reference. `None` if there is none.
fn credit_of(connection: &Connection, account: i64, reference: &str) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare("SELECT amount FROM credit WHERE account = ?1 AND reference = ?2")?;
    select.query_row(params![account, reference], |row| row.get(0)).optional()
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
