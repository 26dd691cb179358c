//! Ledger thread: applies the journal to the database, loads what other processes changed there, replays the journals
//! of ended processes and removes expired records.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::rows::{self, ApplyError, BalanceRow, Changed};
use super::{SqliteLedgerConfig, replay, report, rollup};
use crate::ledger::Spent;
use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::record::CHARGE_ID_RETENTION;
use crate::ledger::wal::Drain;
use crate::ledger::worker::{self, Backend, FailureLog, LedgerState, Outcome, later};
use crate::store::StoreError;
use crate::store::journal_files::exists;
use crate::store::schema::{FileIdentity, OpenError};

/// Maximum interval between two checks that the files are still there.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two searches for orphaned journals and expired records.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Blocks of records that are removed in one step.
const SWEPT: usize = 256;
/// Steps of a sweep. Together they remove more blocks than the shortest `store.flush` can add in the same time.
const STEPS: usize = 16;
/// Steps of a rollup in one sweep: 400,000 records, which is more than a gateway finishes in the same time.
const ROLLUP_STEPS: usize = 20;
/// Worker that applies journal records to SQLite.
pub(super) struct JournalApplier {
    connection: Connection,
    file: FileIdentity,
    shared: Arc<LedgerState>,
    config: SqliteLedgerConfig,
    folder: PathBuf,
    drain: Drain,
    /// Highest value of `account.changed` that has been read.
    last_change: i64,
    /// SQLite's `data_version`: changes when another connection has written.
    version: i64,
    failures: FailureLog,
    last_flush: Instant,
    next_sweep: Instant,
}

impl Backend for JournalApplier {
    type Command = Infallible;
    type Error = ApplyError;

    fn drain(&mut self) -> &mut Drain {
        &mut self.drain
    }

    /// Applies the frames of a piece of a segment to the database (fsynced) and then to the balances.
    async fn apply(&mut self, piece: &[u8]) -> Result<(), ApplyError> {
        let own = self.shared.journal.id();
        let accounts = &self.shared.accounts;
        replay::apply_segment(
            &self.connection,
            piece,
            &mut self.last_change,
            &mut |journal, account, charge| {
                // Charges of an ended process were never deducted from these balances: they count as a change by
                // others.
                let charge = if journal == own { charge } else { 0 };
                match account {
                    Changed::Row(row) => refresh(accounts, row, charge),
                    Changed::Unknown(name) => record_debt(accounts, &name, charge),
                    // The charge was deducted when it was settled.
                    Changed::Repeated(name) => {
                        if let Some(balance) = accounts.find(&name) {
                            balance.add(charge);
                        }
                    }
                }
            },
        )
    }

    fn interval(&self) -> Duration {
        self.config.flush.min(CHECK_INTERVAL)
    }

    async fn start(&mut self) {
        if !self.connection.is_autocommit() {
            // A panic left the transaction open: the supervisor restarted the worker.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.last_flush = Instant::now();
        self.next_sweep = later(self.last_flush, self.config.flush);
    }

    async fn tick(&mut self) {
        let there = self.check_files();
        // A tick before the flush interval is over only checks the files. Half a tick early is due, because ticks are
        // not exact.
        let soon =
            self.last_flush.elapsed().saturating_add(self.interval().checked_div(2).unwrap_or_default());
        if there.is_err() || soon < self.config.flush {
            return;
        }
        // A failure was logged.
        let _ = self.flush().await;
        if Instant::now() >= self.next_sweep {
            self.sweep();
            self.next_sweep = later(Instant::now(), SWEEP_INTERVAL.max(self.config.flush));
        }
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.check_files()?;
        self.last_flush = Instant::now();
        let done = worker::drain(self).await.and_then(|()| self.refresh().map_err(ApplyError::from));
        done.map_err(|error| {
            // The database does not accept the charges: make them durable in the journal at least.
            self.drain.sync();
            self.failures.failed("database", &error);
            StoreError::Failed(error.to_string())
        })
    }

    async fn spent(&mut self, day: i64, outcome: Outcome<Vec<Spent>>) {
        let flushed = self.flush().await;
        let spent = |()| self.sum_spent(day).map_err(|error| StoreError::Failed(error.to_string()));
        // The send fails if the receiver is gone; that is fine.
        let _ = outcome.send(flushed.and_then(spent));
    }

    async fn run(&mut self, _: Vec<Infallible>) {}

    async fn close(&mut self) -> Result<(), StoreError> {
        self.flush().await
    }

    async fn end(&mut self) {
        // The second flush: frames that were appended while the previous segment was drained.
        if self.flush().await.is_ok() && self.flush().await.is_ok() {
            self.shared.journal.remove_if_drained();
        }
    }
}

impl JournalApplier {
    pub(super) fn new(
        connection: Connection,
        place: FileIdentity,
        shared: Arc<LedgerState>,
        terms: SqliteLedgerConfig,
        folder: &Path,
    ) -> Self {
        let (folder, now) = (folder.to_owned(), Instant::now());
        let drain = Drain::new(shared.journal.clone());
        JournalApplier {
            connection,
            file: place,
            shared,
            config: terms,
            folder,
            drain,
            last_change: 0,
            version: -1,
            failures: FailureLog::default(),
            last_flush: now,
            next_sweep: now,
        }
    }

    /// Checks that the files are still where they were opened: writes to a removed file would be lost.
    fn check_files(&self) -> Result<(), StoreError> {
        let fault = match self.file.check_unchanged() {
            Ok(()) if self.shared.journal.files_exist() => None,
            Ok(()) => Some(format!(
                "the journal in {} was removed or replaced; restart the gateway; at its end it applies what is \
                 still in memory",
                self.folder.display()
            )),
            Err(fault) => Some(fault),
        };
        self.shared.set_fault(fault.clone());
        // If only the journal is gone, the database can still take what this process has.
        match fault {
            Some(fault) if self.file.check_unchanged().is_err() => Err(StoreError::Failed(fault)),
            _ => Ok(()),
        }
    }

    /// Loads what other connections changed.
    pub(super) fn refresh(&mut self) -> rusqlite::Result<()> {
        // Prepared once: this runs with each flush, in an idle process too.
        let version =
            self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version != self.version {
            let (changed, seen) = rows::changed_since(&self.connection, self.last_change)?;
            for row in changed {
                refresh(&self.shared.accounts, row, 0);
            }
            (self.last_change, self.version) = (seen, version);
        }
        Ok(())
    }

    /// Replays the journals of ended processes.
    pub(super) fn recover(&mut self) -> Result<(), OpenError> {
        let accounts = &self.shared.accounts;
        replay::recover(&self.connection, &self.folder, &mut self.last_change, &mut |_, account, _| {
            if let Changed::Row(row) = account {
                refresh(accounts, row, 0);
            }
        })
    }

    fn sweep(&mut self) {
        if let Err(error) = self.recover() {
            tracing::error!(%error, "the journal of an ended process was not applied");
        }
        for _ in 0..ROLLUP_STEPS {
            match rollup::advance(&self.connection) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "usage by hour and provider was not summed up");
                    break;
                }
            }
        }
        if let Err(error) = self.remove_expired() {
            tracing::warn!(%error, "expired records were not removed");
        }
    }

    /// Removes expired records, at most [`STEPS`] times [`SWEPT`] blocks.
    fn remove_expired(&self) -> rusqlite::Result<()> {
        let retention = i64::try_from(self.config.records.as_millis()).unwrap_or(i64::MAX);
        let end = crate::store::now().saturating_sub(retention);
        rollup::remove_expired(&self.connection, end)?;
        // What is not in the cells yet is removed later.
        let (summed, _) = rollup::state(&self.connection)?;
        for _ in 0..STEPS {
            let mut delete = self.connection.prepare_cached(
                "DELETE FROM block WHERE id IN (SELECT id FROM block WHERE last < ?1 AND id <= ?3 LIMIT ?2)",
            )?;
            if delete.execute(params![end, i64::try_from(SWEPT).unwrap_or(i64::MAX), summed])? < SWEPT {
                break;
            }
        }
        self.connection
            .prepare_cached("DELETE FROM charge WHERE time < ?1")?
            .execute(params![crate::store::now().saturating_sub(CHARGE_ID_RETENTION)])?;
        // Keep the row of a journal while its files exist: without it, a replay would charge its frames again.
        let mut select = self.connection.prepare_cached("SELECT id FROM journal WHERE time < ?1")?;
        let old: Vec<i64> = select.query_map(params![end], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for id in old {
            if !exists(&self.folder, u64::try_from(id).unwrap_or(0)) {
                self.connection.prepare_cached("DELETE FROM journal WHERE id = ?1")?.execute(params![id])?;
            }
        }
        Ok(())
    }

    fn sum_spent(&self, day: i64) -> rusqlite::Result<Vec<Spent>> {
        let mut select = self.connection.prepare_cached(&format!(
            "SELECT day, account, key, {} FROM daily WHERE day >= ?1 GROUP BY day, account, key",
            report::summed("cost")
        ))?;
        let rows = select.query_map(params![day], |row| {
            let cost = report::sum(row, 3)?;
            Ok(Spent { day: row.get(0)?, account: row.get(1)?, key: row.get(2)?, cost })
        })?;
        rows.collect()
    }
}

/// Takes over a row of the database. `charged` is the amount of this process's charges that the row newly contains;
/// these were deducted from the spendable balance when they were settled.
fn refresh(accounts: &Accounts, row: BalanceRow, charged: i64) {
    let Some(account) = accounts.find_or_insert(&row.name) else { return };
    let before = account.swap_reported(row.balance);
    // The part of the difference that other processes caused. Only this part changes the spendable balance.
    let others = row.balance.saturating_add(charged).saturating_sub(before);
    if others != 0 {
        account.add(others);
    }
    account.set_status(if row.enabled { AccountStatus::Enabled } else { AccountStatus::Disabled });
}

/// Records a charge that was applied for an account that does not exist in the database. The account starts with this
/// debt when it is created.
fn record_debt(accounts: &Accounts, name: &str, charged: i64) {
    if let Some(account) = accounts.find(name) {
        account.swap_reported(account.reported().saturating_sub(charged));
    }
}
