//! Ledger thread: applies the journal to the database, loads what other processes changed there, replays the journals
//! of ended processes and removes expired records.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::rows::{self, ApplyError, BalanceRow, Changed};
use super::{Shared, Spent, SqliteLedgerCommand, SqliteLedgerConfig, replay, report};
use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::wal::Segment;
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
/// Minimum interval between two log lines about the same failure.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Worker that applies journal records to SQLite.
pub(super) struct JournalApplier {
    connection: Connection,
    file: FileIdentity,
    shared: Arc<Shared>,
    config: SqliteLedgerConfig,
    folder: PathBuf,
    /// Segment that is being drained.
    draining: Option<Segment>,
    /// Highest value of `account.changed` that has been read.
    last_change: i64,
    /// SQLite's `data_version`: changes when another connection has written.
    version: i64,
    last_logged: Option<Instant>,
}

impl JournalApplier {
    pub(super) fn new(
        connection: Connection,
        place: FileIdentity,
        shared: Arc<Shared>,
        terms: SqliteLedgerConfig,
        folder: &Path,
    ) -> Self {
        let folder = folder.to_owned();
        JournalApplier {
            connection,
            file: place,
            shared,
            config: terms,
            folder,
            draining: None,
            last_change: 0,
            version: -1,
            last_logged: None,
        }
    }

    /// Runs commands and flushes until the ledger is dropped.
    pub(super) fn run(&mut self, asks: &Receiver<SqliteLedgerCommand>) {
        if !self.connection.is_autocommit() {
            // A panic left the transaction open: the supervisor restarted this function.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let mut sweep = Instant::now() + self.config.flush;
        let mut turned = Instant::now();
        loop {
            let ask = asks.recv_timeout(self.config.flush.min(CHECK_INTERVAL));
            #[cfg(test)]
            if matches!(ask, Ok(SqliteLedgerCommand::Crash)) {
                return;
            }
            #[cfg(test)]
            assert!(!matches!(ask, Ok(SqliteLedgerCommand::Panic)), "on purpose");
            let there = self.check_files();
            // A wake-up before the flush interval is over only checks the files.
            if there.is_ok()
                && matches!(ask, Err(RecvTimeoutError::Timeout))
                && turned.elapsed() < self.config.flush
            {
                continue;
            }
            turned = Instant::now();
            let done = there.and_then(|()| self.flush());
            match ask {
                Ok(ask) => self.reply(ask, done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // Frames that were appended while the previous segment was drained.
                    if done.is_ok() && self.flush().is_ok() {
                        self.shared.journal.remove_if_drained();
                    }
                    return;
                }
            }
            if Instant::now() >= sweep && self.check_files().is_ok() {
                self.sweep();
                sweep = Instant::now() + SWEEP_INTERVAL.max(self.config.flush);
            }
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
        match self.shared.set_fault(fault.clone()) {
            Some(Some(fault)) => {
                tracing::error!(fault, "requests of accounts are rejected; charges wait in the journal")
            }
            Some(None) => tracing::warn!("the files of the ledger are back"),
            None => {}
        }
        // If only the journal is gone, the database can still take what this process has.
        match fault {
            Some(fault) if self.file.check_unchanged().is_err() => Err(StoreError::Failed(fault)),
            _ => Ok(()),
        }
    }

    /// Applies all settled charges and loads what other processes changed.
    fn flush(&mut self) -> Result<(), StoreError> {
        let done = self.drain().and_then(|()| self.refresh().map_err(ApplyError::from));
        done.map_err(|error| {
            // The database does not accept the charges: make them durable in the journal at least.
            if let Some(segment) = &self.draining {
                let _ = self.shared.journal.sync(segment);
            }
            if self.last_logged.is_none_or(|said| said.elapsed() > LOG_INTERVAL) {
                tracing::error!(%error, "the database of the ledger cannot be written; charges wait in the journal");
                self.last_logged = Some(Instant::now());
            }
            StoreError::Failed(error.to_string())
        })
    }

    fn reply(&self, ask: SqliteLedgerCommand, done: Result<(), StoreError>) {
        // The send fails if the receiver is gone; that is fine.
        match ask {
            SqliteLedgerCommand::Flush { outcome } => drop(outcome.send(done)),
            #[cfg(test)]
            SqliteLedgerCommand::Crash | SqliteLedgerCommand::Panic => {}
            SqliteLedgerCommand::Spent { day, outcome } => drop(outcome.send(
                done.and_then(|()| self.spent(day).map_err(|error| StoreError::Failed(error.to_string()))),
            )),
        }
    }

    /// Applies the segments of the journal, including one that failed before.
    fn drain(&mut self) -> Result<(), ApplyError> {
        if self.draining.is_some() {
            // A segment that failed before must be applied first, to keep the order of frames.
            self.drain_segment()?;
        }
        self.drain_segment()?;
        // Writes may have failed because the segment was full. Draining has freed one: write the queue and drain again.
        if self.shared.journal.is_failing() {
            self.shared.journal.write_queued()?;
            self.drain_segment()?;
        }
        Ok(())
    }

    fn drain_segment(&mut self) -> Result<(), ApplyError> {
        if self.draining.is_none() {
            self.draining = self.shared.journal.rotate();
        }
        let Some(segment) = &self.draining else { return Ok(()) };
        let mut pieces = segment.pieces()?;
        while let Some(piece) = pieces.next()? {
            self.apply_piece(piece)?;
        }
        if let Some(segment) = self.draining.take() {
            self.shared.journal.recycle(segment)?;
        }
        Ok(())
    }

    /// Applies the frames of a piece of a segment to the database (fsynced) and then to the balances.
    fn apply_piece(&mut self, segment: &[u8]) -> Result<(), ApplyError> {
        let own = self.shared.journal.id();
        let accounts = &self.shared.accounts;
        replay::apply_segment(
            &self.connection,
            segment,
            &mut self.last_change,
            &mut |journal, account, charge| {
                // Charges of an ended process were never deducted from these balances: they count as a change by
                // others.
                let charge = if journal == own { charge } else { 0 };
                match account {
                    Changed::Row(row) => refresh(accounts, row, charge),
                    Changed::Unknown(name) => record_debt(accounts, &name, charge),
                }
            },
        )
    }

    /// Loads what other connections changed.
    pub(super) fn refresh(&mut self) -> rusqlite::Result<()> {
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
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
        if let Err(error) = self.remove_expired() {
            tracing::warn!(%error, "expired records were not removed");
        }
    }

    /// Removes expired records, at most [`STEPS`] times [`SWEPT`] blocks.
    fn remove_expired(&self) -> rusqlite::Result<()> {
        let kept = i64::try_from(self.config.records.as_millis()).unwrap_or(i64::MAX);
        let end = crate::store::now().saturating_sub(kept);
        for _ in 0..STEPS {
            let mut delete = self.connection.prepare_cached(
                "DELETE FROM block WHERE id IN (SELECT id FROM block WHERE last < ?1 LIMIT ?2)",
            )?;
            if delete.execute(params![end, i64::try_from(SWEPT).unwrap_or(i64::MAX)])? < SWEPT {
                break;
            }
        }
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

    fn spent(&self, day: i64) -> rusqlite::Result<Vec<Spent>> {
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

/// Takes over a row of the database. `charged` is the amount of this process's charges that the row newly contains; these
/// were deducted from the spendable balance when they were settled.
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
