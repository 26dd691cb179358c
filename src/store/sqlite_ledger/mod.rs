//! The ledger on SQLite: balances in memory, settlements in a journal, and a thread that brings both into the database.
//!
//! Here live what the trait's methods do, the thread, the tables of accounts and usage, and what the commands ask of
//! them. Here must not live: prices, limits, who may spend (`account`).

mod admin;
mod balances;
mod journal_applier;
pub(super) mod record_block;
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

use super::journal::{Journal, JournalThread};
use super::ledger::{AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent};
use super::record::UsageRecord;
use super::schema::{self, OpenError, Place};
use super::{Pending, StoreError};
use crate::supervise::{self, Supervised};
pub(super) use admin::fault;
pub use admin::{AccountState, AdminError, Credit, Credited, SqliteAdmin};
use balances::Balances;
use journal_applier::JournalApplier;
pub(super) use report::clamped;
pub use report::{UsageFilter, UsageGrouping, UsageRow, UsageSums};
pub(super) use rows::DAY;

/// How the ledger does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteLedgerConfig {
    /// How often settlements are brought into the database and written to the disk: what a loss of power may cost.
    pub flush: Duration,
    /// How long records are kept. Sums of days stay.
    pub records: Duration,
    /// How large each of the journal's two segments may be, in bytes; usually
    /// [`SEGMENT`](crate::store::journal::SEGMENT).
    pub segment: u64,
}

/// Ledger of one gateway, in SQLite behind a write-ahead journal.
#[derive(Debug)]
pub struct SqliteLedger {
    shared: Arc<Shared>,
    asks: Option<Sender<SqliteLedgerCommand>>,
    supervised: Arc<Supervised>,
    thread: Option<JoinHandle<()>>,
    journal: JournalThread,
}

/// What the workers and the thread share.
#[derive(Debug)]
struct Shared {
    balances: Balances,
    journal: Arc<Journal>,
    /// What is wrong with the files, while something is.
    fault: Mutex<Option<String>>,
    /// The same, to be asked for by each request.
    faulty: AtomicBool,
}

impl Shared {
    /// Takes note of how the files are; tells what is new about it.
    fn note(&self, fault: Option<String>) -> Option<Option<String>> {
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

/// What the thread is asked.
#[derive(Debug)]
enum SqliteLedgerCommand {
    Spent {
        day: i64,
        outcome: Outcome<Vec<Spent>>,
    },
    Flush {
        outcome: Outcome<()>,
    },
    /// The thread ends at once, as with its process.
    #[cfg(test)]
    Crash,
    /// The thread panics.
    #[cfg(test)]
    Panic,
}

impl SqliteLedger {
    /// Opens the file, makes it if it is not there, brings in what ended processes left, loads the balances, and starts
    /// the thread. The thread ends with this value, after it has brought in the rest.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path, terms: SqliteLedgerConfig) -> Result<Self, OpenError> {
        let folder = schema::journals(path);
        let io = |source| OpenError::Io { path: folder.clone(), source };
        let connection = schema::open(path)?;
        schema::check(&connection, path)?;
        let place = Place::of(path)?;
        let journal = Arc::new(Journal::create(&folder, terms.segment).map_err(io)?);
        let (fault, faulty) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { balances: Balances::new(), journal, fault, faulty });
        let mut keeper = JournalApplier::new(connection, place, shared.clone(), terms, &folder);
        keeper.recover()?;
        keeper.refresh().map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
        let (asks, asked) = channel();
        let journal = JournalThread::start(&shared.journal).map_err(io)?;
        let (supervised, thread) = supervise::spawn("ledger", move || keeper.run(&asked)).map_err(io)?;
        Ok(SqliteLedger { shared, asks: Some(asks), supervised, thread: Some(thread), journal })
    }

    /// Brings what is settled into the database now, and takes over what others have changed there.
    pub fn flush(&self) -> Pending<()> {
        self.ask(|outcome| SqliteLedgerCommand::Flush { outcome })
    }

    /// Ends as a process does that is killed: nothing more is brought in.
    #[cfg(test)]
    fn crash(self) {
        if let Some(asks) = &self.asks {
            let _ = asks.send(SqliteLedgerCommand::Crash);
        }
    }

    fn ask<T>(&self, make: impl FnOnce(Outcome<T>) -> SqliteLedgerCommand) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        if let Some(asks) = &self.asks {
            // The end of the thread is told by the outcome that is dropped with the ask.
            let _ = asks.send(make(outcome));
        }
        pending
    }
}

impl Drop for SqliteLedger {
    fn drop(&mut self) {
        drop(self.asks.take());
        if let Some(thread) = self.thread.take() {
            // What it left is in the journal.
            let _ = thread.join();
        }
    }
}

impl Ledger for SqliteLedger {
    fn reserve(&self, account: &AccountId, amount: i64) -> ReserveOutcome {
        if self.shared.journal.is_failing() || self.shared.faulty.load(Ordering::Acquire) {
            return ReserveOutcome::Known(Err(ReserveError::Unavailable));
        }
        self.shared.balances.reserve(account, amount)
    }

    fn settle(&self, reservation: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        let settled = self.shared.journal.append(|out| record.encode(out));
        match reservation {
            Some(reservation) => reservation.spend(record.charge()),
            None if record.charge() != 0 && !record.account.is_empty() => {
                self.shared.balances.charge(record.account, record.charge());
            }
            None => {}
        }
        settled
    }

    fn available(&self, account: &AccountId) -> Option<i64> {
        self.shared.balances.available(account.as_str())
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
        self.ask(|outcome| SqliteLedgerCommand::Spent { day, outcome })
    }
}
