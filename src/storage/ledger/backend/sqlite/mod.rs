//! SQLite ledger: balances in memory, settlements in a write-ahead journal, and a thread that applies the journal to
//! the database.
//!
//! The implementation of the `Ledger` trait, the thread, the tables of accounts and usage, and their administration
//! live here. Here must not live: prices, limits and authorization (`account`).

mod admin;
mod journal_applier;
mod replay;
mod report;
mod rollup;
mod rows;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::wal::Journal;
#[cfg(test)]
use crate::ledger::worker::Command;
use crate::ledger::worker::{FlushWorker, LedgerState};
use crate::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use crate::store::Pending;
use crate::store::schema::{self, FileIdentity, OpenError};
pub use admin::SqliteAdmin;
use journal_applier::JournalApplier;
use sync::supervise::Supervised;

/// Configuration of the SQLite ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteLedgerConfig {
    /// Interval at which settlements are applied to the database and written to the disk (fsync): a loss of power may
    /// lose as much.
    pub flush: Duration,
    /// Retention of usage records. Daily sums are never removed.
    pub records: Duration,
    /// Maximum size of each of the journal's two segments, in bytes; usually
    /// [`DEFAULT_SEGMENT_LIMIT`](crate::ledger::wal::DEFAULT_SEGMENT_LIMIT).
    pub segment: u64,
}

/// Ledger of one gateway, in SQLite behind a write-ahead journal.
#[derive(Debug)]
pub struct SqliteLedger {
    shared: Arc<LedgerState>,
    worker: FlushWorker<Infallible>,
}

impl SqliteLedger {
    /// Opens the file, creates it if it does not exist, replays the journals of ended processes, loads the balances and
    /// starts the thread. When this value is dropped, the thread applies the rest of the journal and ends.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the file cannot be used.
    pub fn open(path: &Path, terms: SqliteLedgerConfig) -> Result<Self, OpenError> {
        let folder = schema::journals(path);
        let io = |source| OpenError::Io { path: folder.clone(), source };
        let connection = schema::open(path)?;
        schema::check(&connection, path)?;
        let place = FileIdentity::of(path)?;
        // Created before `recover`, which replays unlocked journals only: it does not touch the own, locked one.
        let journal = Journal::create(&folder, terms.segment).map_err(io)?;
        let shared = LedgerState::new(Accounts::new(AccountStatus::Missing), journal);
        let mut applier = JournalApplier::new(connection, place, shared.clone(), terms, &folder);
        applier.recover()?;
        applier.refresh().map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
        let worker = FlushWorker::start(&shared.journal, |_| applier).map_err(io)?;
        Ok(SqliteLedger { shared, worker })
    }

    /// Applies all settlements to the database now, and loads what other processes changed there.
    pub fn flush(&self) -> Pending<()> {
        self.worker.flush()
    }

    /// Ends like a killed process: the thread applies nothing more.
    #[cfg(test)]
    fn crash(self) {
        self.worker.send(Command::Crash);
    }
}

impl Ledger for SqliteLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        // Without a durable journal the charge could be lost: do not let the request start.
        if self.shared.is_failing() {
            return ReserveOutcome::Known(Err(ReserveError::Unavailable));
        }
        let balance = self.shared.accounts.find(account.as_str()).ok_or(ReserveError::UnknownAccount);
        ReserveOutcome::Known(balance.and_then(|balance| match balance.denial() {
            Some(denial) => Err(denial),
            None => balance.reserve(amount, 0).map_err(|available| ReserveError::Empty { available }),
        }))
    }

    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        self.shared.accounts.settle(&self.shared.journal, reservation, record)
    }

    fn available(&self, account: &AccountId) -> Option<i64> {
        Some(self.shared.accounts.find_existing(account.as_str())?.spendable())
    }

    fn fault(&self) -> Option<String> {
        self.shared.fault()
    }

    fn close(&self) -> Pending<()> {
        self.worker.close()
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        self.worker.threads()
    }

    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.worker.spent_since(day)
    }
}
