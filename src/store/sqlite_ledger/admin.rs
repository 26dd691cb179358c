//! What people do with the ledger, also while a gateway runs: accounts, credits, reports, backups.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::report::{self, ReadError, UsageFilter, UsageGrouping, UsageRow};
use super::{replay, rows};
use crate::account::Amount;
use crate::account::amount::LARGEST;
use crate::store::ledger::AccountId;
use crate::store::now;
use crate::store::record::UsageRecord;
use crate::store::schema::{self, OpenError};

/// How long a person waits for a gateway that is writing.
const BUSY: Duration = Duration::from_secs(5);

/// Administration of the SQLite ledger.
#[derive(Debug)]
pub struct SqliteAdmin {
    connection: Connection,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no such account.
    #[error("there is no account {0:?}; model-gateway accounts list shows those that there are")]
    Unknown(String),
    /// There is one already.
    #[error("there is an account {0:?} already")]
    Exists(String),
    /// A reference was given to another credit.
    #[error("the reference {reference:?} stands for a credit of {} already", Amount(*.amount))]
    Reference {
        /// The reference.
        reference: String,
        /// What it stands for.
        amount: i64,
    },
    /// The balance would be larger than one may be.
    #[error("no balance may be larger than {}", Amount(LARGEST))]
    TooLarge,
    /// The database failed.
    #[error("the ledger failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// The server failed.
    #[error("the server failed: {0}")]
    Server(String),
    /// The operating system refuses.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record cannot be read, or not be shown.
    #[error(transparent)]
    Records(io::Error),
}

/// An account, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountState {
    /// Its name.
    pub name: String,
    /// When it was made, in Unix milliseconds.
    pub created: i64,
    /// Whether it may spend.
    pub enabled: bool,
    /// All its credits, in nano-units.
    pub credited: i64,
    /// All its charges.
    pub charged: i64,
}

impl AccountState {
    /// What it has.
    pub fn balance(&self) -> i64 {
        self.credited.saturating_sub(self.charged)
    }
}

/// A credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    /// When, in Unix milliseconds.
    pub time: i64,
    /// How much, in nano-units; less than nothing takes away.
    pub amount: i64,
    /// What for.
    pub note: String,
    /// What tells it from all others.
    pub reference: Option<String>,
}

/// What came of a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credited {
    /// The balance now.
    pub balance: i64,
    /// Whether it had been credited before, so that nothing was done.
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
    /// Opens the file, makes it if it is not there, and brings in what ended processes left.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        connection
            .busy_timeout(BUSY)
            .map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
        replay::recover(&connection, &schema::journals(path), &mut 0, &mut |_, _, _| {})?;
        Ok(SqliteAdmin { connection })
    }

    /// Opens the file, if it is there.
    ///
    /// # Errors
    /// The file is not there, or cannot be used.
    pub fn open_existing(path: &Path) -> Result<Self, OpenError> {
        if path.exists() { Self::open(path) } else { Err(OpenError::Missing(path.to_owned())) }
    }

    /// Does something in one transaction that is on the disk when this returns.
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

    /// Makes an account with nothing on it.
    ///
    /// # Errors
    /// There is one of this name, or the database failed.
    pub fn create(&self, account: &AccountId) -> Result<(), AdminError> {
        self.create_many([account.clone()])
    }

    /// Makes accounts, all of them or none.
    ///
    /// # Errors
    /// There is one of such a name, or the database failed.
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

    /// Credits an account. A reference that was used for the same amount before changes nothing.
    ///
    /// # Errors
    /// There is no such account, the reference stands for another amount, or the database failed.
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

    /// Switches an account on or off; tells whether that is news.
    ///
    /// # Errors
    /// There is no such account, or the database failed.
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

    /// An account.
    ///
    /// # Errors
    /// There is no such account, or the database failed.
    pub fn account(&self, account: &str) -> Result<AccountState, AdminError> {
        find(&self.connection, account).map(|(_, state)| state)
    }

    /// All accounts, by name.
    ///
    /// # Errors
    /// The database failed.
    pub fn accounts(&self) -> Result<Vec<AccountState>, AdminError> {
        let mut select = self.connection.prepare(&format!("SELECT {COLUMNS} FROM account ORDER BY name"))?;
        Ok(select.query_map((), state)?.collect::<rusqlite::Result<_>>()?)
    }

    /// The latest credits of an account, the latest first.
    ///
    /// # Errors
    /// There is no such account, or the database failed.
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

    /// What was used: days in order, names by what they cost.
    ///
    /// # Errors
    /// The database failed.
    pub fn usage(&self, filter: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, AdminError> {
        Ok(report::sums(&self.connection, filter, by)?)
    }

    /// Shows each record, in the order in which requests ended.
    ///
    /// # Errors
    /// The database failed, or `show` did.
    pub fn records(
        &self,
        filter: &UsageFilter,
        show: &mut dyn FnMut(&UsageRecord<'_>) -> io::Result<()>,
    ) -> Result<(), AdminError> {
        report::records(&self.connection, filter, show).map_err(|error| match error {
            ReadError::Database(error) => error.into(),
            ReadError::Io(error) => AdminError::Records(error),
        })
    }

    /// What does not add up: accounts whose credits or charges are not the sum of their entries. Nothing, if all is
    /// well.
    ///
    /// # Errors
    /// The database failed.
    pub fn audit(&self) -> Result<Vec<String>, AdminError> {
        // In one moment, also while a gateway writes.
        self.connection.execute_batch("BEGIN")?;
        let found = audit(&self.connection);
        self.connection.execute_batch("COMMIT")?;
        Ok(found?)
    }

    /// Writes a copy of the whole file, as it stands in one moment, while others go on writing. `to` must not be there.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub fn backup(&self, to: &Path) -> Result<(), AdminError> {
        let io = |source| AdminError::Io { path: to.to_owned(), source };
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(io)?;
        let mut copy = Connection::open(to)?;
        // In one step: between two, the beginning would have to be copied again for everything that is written.
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

/// What requests cost in the name of accounts before these were made.
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

/// What is wrong with an account, if the sums of its entries are not what is kept: credited, entries, charged, sums of
/// days. Sums that are larger than can be told stay at the largest number, and are said to.
pub(in crate::store) fn fault(name: &str, sums: [i64; 4]) -> Option<String> {
    let [credited, credits, charged, charges] = sums;
    // What a sum has lost that is larger than an account may have cannot be found.
    let same = |kept: i64, sum: i64| kept == sum || kept.min(sum) >= LARGEST;
    if same(credited, credits) && same(charged, charges) {
        return None;
    }
    let shown =
        sums.map(|sum| format!("{:.2}{}", Amount(sum), if sum == i64::MAX { " or more" } else { "" }));
    let [credited, credits, charged, charges] = shown;
    Some(format!("{name}: credited {credited}, entries {credits}; charged {charged}, sums of days {charges}"))
}
