//! SQLite ledger: balances in memory, settlements in a write-ahead journal, and a thread that applies the journal to
//! the database.
//!
//! The implementation of the `Ledger` trait, the thread, the tables of accounts and usage, and their administration
//! live here. Here must not live: prices, limits and authorization (`account`).

mod admin;
mod journal_applier;
mod replay;
mod report;
mod rows;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ledger::accounts::{AccountStatus, Accounts};
use crate::ledger::wal::{Journal, JournalThread};
use crate::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use crate::store::schema::{self, FileIdentity, OpenError};
use crate::store::{Pending, StoreError};
use crate::supervise::{self, Supervised};
pub use admin::SqliteAdmin;
use journal_applier::JournalApplier;

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
    shared: Arc<Shared>,
    commands: Option<Sender<SqliteLedgerCommand>>,
    supervised: Arc<Supervised>,
    thread: Option<JoinHandle<()>>,
    journal: JournalThread,
}

/// State that workers share with the ledger's thread.
#[derive(Debug)]
struct Shared {
    accounts: Accounts,
    journal: Arc<Journal>,
    /// Description of the current fault of the files, if there is one.
    fault: Mutex<Option<String>>,
    /// True while `fault` is set. Each reservation reads this instead of taking the lock.
    faulty: AtomicBool,
}

impl Shared {
    /// Records the state of the files. Returns the new state if it differs from the previous one, otherwise `None`.
    fn set_fault(&self, fault: Option<String>) -> Option<Option<String>> {
        let mut known = self.fault.lock();
        if *known == fault {
            return None;
        }
        self.faulty.store(fault.is_some(), Ordering::Release);
        known.clone_from(&fault);
        Some(fault)
    }
}

type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

/// Command for the ledger's thread.
#[derive(Debug)]
enum SqliteLedgerCommand {
    Spent {
        day: i64,
        outcome: Outcome<Vec<Spent>>,
    },
    Flush {
        outcome: Outcome<()>,
    },
    /// The thread ends at once, as if its process were killed.
    #[cfg(test)]
    Crash,
    /// The thread panics.
    #[cfg(test)]
    Panic,
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
        let journal = Arc::new(Journal::create(&folder, terms.segment).map_err(io)?);
        let (fault, faulty) = (Mutex::default(), AtomicBool::new(false));
        let shared =
            Arc::new(Shared { accounts: Accounts::new(AccountStatus::Missing), journal, fault, faulty });
        let mut keeper = JournalApplier::new(connection, place, shared.clone(), terms, &folder);
        keeper.recover()?;
        keeper.refresh().map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
        let (asks, asked) = channel();
        let journal = JournalThread::start(&shared.journal).map_err(io)?;
        let (supervised, thread) = supervise::spawn("ledger", move || keeper.run(&asked)).map_err(io)?;
        Ok(SqliteLedger { shared, commands: Some(asks), supervised, thread: Some(thread), journal })
    }

    /// Applies all settlements to the database now, and loads what other processes changed there.
    pub fn flush(&self) -> Pending<()> {
        self.send_command(|outcome| SqliteLedgerCommand::Flush { outcome })
    }

    /// Ends like a killed process: the thread applies nothing more.
    #[cfg(test)]
    fn crash(self) {
        if let Some(asks) = &self.commands {
            let _ = asks.send(SqliteLedgerCommand::Crash);
        }
    }

    fn send_command<T>(&self, make: impl FnOnce(Outcome<T>) -> SqliteLedgerCommand) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(asks) = &self.commands {
            // If the thread has ended, the command is dropped and closes the channel, which the receiver reports.
            let _ = asks.send(make(outcome));
        }
        pending
    }
}

impl Drop for SqliteLedger {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // After a panic in the thread, the rest is in the journal and the next process replays it.
            let _ = thread.join();
        }
    }
}

impl Ledger for SqliteLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        // Without a durable journal the charge could be lost: do not let the request start.
        if self.shared.journal.is_failing() || self.shared.faulty.load(Ordering::Acquire) {
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
        self.shared.fault.lock().clone()
    }

    fn close(&self) -> Pending<()> {
        self.flush()
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone(), self.journal.supervised().clone()]
    }

    fn spent_since(&self, day: i64) -> Pending<Vec<Spent>> {
        self.send_command(|outcome| SqliteLedgerCommand::Spent { day, outcome })
    }
}
