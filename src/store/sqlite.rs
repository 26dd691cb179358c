//! The embedded store of responses and seals: one file of SQLite, one thread that owns the connection.
//!
//! The thread takes whatever has gathered in its queue and does it in one transaction, so that a busy gateway pays for
//! a commit once for many responses. The file is in write-ahead mode: a commit is safe from the end of the process;
//! after a loss of power the last moments may be missing, but never half of something. Two processes may use the file
//! at the same time, as they do while one hands over to the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::schema::{self, OpenError, Place};
use super::{Found, Pending, SealKey, Store, StoreError, StoreLimits, StoredResponse, millis, now, vault};
use crate::supervise::{self, Supervised};

/// Jobs that may wait. With the batch below, a few tenths of a second of work.
const QUEUE: usize = 1024;
/// Bytes that may wait to be written: what a burst of large conversations may hold in memory.
const QUEUED_BYTES: usize = 64 << 20;
/// Jobs that are done in one transaction at most, so that the first of them does not wait for long.
const BATCH: usize = 64;
/// How often expired responses are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// Rows that are removed in one step, so that a sweep never stands in the way for long.
const SWEPT_ROWS: usize = 200;
/// Pages of the file that are given back in one step.
const FREED_PAGES: u32 = 256;
/// The store.
#[derive(Debug)]
pub struct SqliteStore {
    jobs: SyncSender<Job>,
    queued: Arc<AtomicUsize>,
    size: Arc<AtomicU64>,
    limits: StoreLimits,
    supervised: Arc<Supervised>,
}

type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
enum Job {
    Keep(StoredResponse, Outcome<()>),
    Find { account: String, id: String, outcome: Outcome<Option<Found>> },
    Remove { account: String, id: String, outcome: Outcome<bool> },
    Remember { account: String, entries: Vec<(SealKey, Bytes)>, outcome: Outcome<()> },
    Recall { account: String, keys: Vec<SealKey>, outcome: Outcome<Vec<Option<Bytes>>> },
}

impl Job {
    /// Bytes that wait with it to be written.
    fn size(&self) -> usize {
        match self {
            Job::Keep(response, _) => size_of(response),
            Job::Remember { account, entries, .. } => {
                entries.iter().map(|(key, value)| key.len() + value.len() + account.len()).sum()
            }
            Job::Find { .. } | Job::Remove { .. } | Job::Recall { .. } => 0,
        }
    }

    /// Says that the file is gone.
    fn refuse(self, fault: &str) {
        let fault = || StoreError::Failed(fault.to_owned());
        // Whoever asked may have stopped waiting.
        match self {
            Job::Keep(_, outcome) | Job::Remember { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::Find { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::Remove { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::Recall { outcome, .. } => drop(outcome.send(Err(fault()))),
        }
    }

    fn reads(&self) -> bool {
        matches!(self, Job::Find { .. } | Job::Recall { .. })
    }
}

impl SqliteStore {
    /// Opens the file, makes it if it is not there, and starts the thread. The thread ends with this value.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path, limits: StoreLimits) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let database = |source| OpenError::Database { path: path.to_owned(), source };
        let (jobs, queue) = sync_channel(QUEUE);
        let queued = Arc::new(AtomicUsize::new(0));
        let size = Arc::new(AtomicU64::new(0));
        let place = Place::of(path)?;
        let mut worker = Worker {
            connection,
            place,
            limits,
            queued: queued.clone(),
            size: size.clone(),
            total: 0,
            seals: 0,
        };
        worker.count().map_err(database)?;
        let (supervised, _) = supervise::spawn("store", move || worker.run(&queue)).map_err(io)?;
        Ok(SqliteStore { jobs, queued, size, limits, supervised })
    }

    fn submit<T>(&self, make: impl FnOnce(Outcome<T>) -> Job) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        let job = make(outcome);
        let size = job.size();
        // A large one may always pass alone.
        let before = self.queued.fetch_add(size, Ordering::Relaxed);
        let refused = if size > 0 && before > 0 && before + size > QUEUED_BYTES {
            Some(StoreError::Busy)
        } else {
            match self.jobs.try_send(job) {
                Ok(()) => return pending,
                Err(TrySendError::Full(_)) => Some(StoreError::Busy),
                // The end of the thread is told by the outcome that it dropped.
                Err(TrySendError::Disconnected(_)) => None,
            }
        };
        self.queued.fetch_sub(size, Ordering::Relaxed);
        refused.map_or(pending, |refused| Pending::known(Err(refused)))
    }
}

impl Store for SqliteStore {
    fn keep(&self, response: StoredResponse) -> Pending<()> {
        let size = size_of(&response);
        let limit = self.limits.response.min(usize::try_from(self.limits.total).unwrap_or(usize::MAX));
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        self.submit(|outcome| Job::Keep(response, outcome))
    }

    fn keeps_responses(&self) -> bool {
        !self.limits.lifetime.is_zero()
    }

    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Find { account, id, outcome })
    }

    fn remove(&self, account: &str, id: &str) -> Pending<bool> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Remove { account, id, outcome })
    }

    fn remember(&self, account: &str, entries: Vec<(SealKey, Bytes)>) -> Pending<()> {
        let size = entries.iter().map(|(_, value)| vault::size_of(account, value)).sum::<u64>();
        let limit = self.limits.seal_total;
        if size > limit {
            let [size, limit] = [size, limit].map(|size| usize::try_from(size).unwrap_or(usize::MAX));
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        let account = account.to_owned();
        self.submit(|outcome| Job::Remember { account, entries, outcome })
    }

    fn recall(&self, account: &str, keys: Vec<SealKey>) -> Pending<Vec<Option<Bytes>>> {
        let account = account.to_owned();
        self.submit(|outcome| Job::Recall { account, keys, outcome })
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone()]
    }
}

/// What a response counts for.
fn size_of(response: &StoredResponse) -> usize {
    response.items.len() + response.document.len() + response.id.len() + response.account.len()
}

/// The outcome of a job, to be told when the transaction that it stands in is safe.
enum Done {
    Kept(Outcome<()>, rusqlite::Result<()>),
    Found(Outcome<Option<Found>>, rusqlite::Result<Option<Found>>),
    Removed(Outcome<bool>, rusqlite::Result<bool>),
    Recalled(Outcome<Vec<Option<Bytes>>>, rusqlite::Result<Vec<Option<Bytes>>>),
}

impl Done {
    fn tell(self, committed: &Result<(), StoreError>) {
        // Whoever asked may have stopped waiting.
        match self {
            Done::Kept(outcome, result) => drop(outcome.send(committed.clone().and(result.map_err(failed)))),
            Done::Removed(outcome, result) => {
                drop(outcome.send(committed.clone().and(result.map_err(failed))))
            }
            Done::Found(outcome, result) => drop(outcome.send(result.map_err(failed))),
            Done::Recalled(outcome, result) => drop(outcome.send(result.map_err(failed))),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

/// The thread's side.
struct Worker {
    connection: Connection,
    place: Place,
    limits: StoreLimits,
    queued: Arc<AtomicUsize>,
    size: Arc<AtomicU64>,
    /// Bytes that are kept. The other process of an upgrade writes too, so it is counted anew now and then.
    total: u64,
    /// The same, for seals.
    seals: u64,
}

impl Worker {
    /// Works until the store is dropped.
    fn run(&mut self, queue: &Receiver<Job>) {
        if !self.connection.is_autocommit() {
            // Left by a panic.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match queue.recv_timeout(wait) {
                Ok(job) => {
                    let jobs = std::iter::once(job).chain(queue.try_iter().take(BATCH - 1));
                    let jobs: Vec<Job> = jobs.collect();
                    self.work(jobs);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next {
                // Where there is more to remove, jobs that wait come first and the rest directly after.
                let more = self.sweep().unwrap_or_else(|error| {
                    tracing::warn!(%error, "the store cannot remove what has expired");
                    false
                });
                next = Instant::now() + if more { Duration::from_millis(10) } else { SWEEP };
            }
        }
    }

    fn work(&mut self, jobs: Vec<Job>) {
        // First, so that a panic leaves nothing counted.
        let size = jobs.iter().map(Job::size).sum();
        self.queued.fetch_sub(size, Ordering::Relaxed);
        if let Err(fault) = self.place.look() {
            jobs.into_iter().for_each(|job| job.refuse(&fault));
            return;
        }
        let writes = !jobs.iter().all(Job::reads);
        let begun = if writes { self.connection.execute_batch("BEGIN IMMEDIATE") } else { Ok(()) };
        let before = (self.total, self.seals);
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            done.push(match job {
                Job::Keep(response, outcome) => {
                    let kept = if begun.is_ok() { self.keep(&response) } else { Ok(()) };
                    Done::Kept(outcome, kept)
                }
                Job::Find { account, id, outcome } => Done::Found(outcome, self.find(&account, &id)),
                Job::Remove { account, id, outcome } => {
                    let removed = if begun.is_ok() { self.remove(&account, &id) } else { Ok(false) };
                    Done::Removed(outcome, removed)
                }
                Job::Remember { account, entries, outcome } => {
                    let kept = if begun.is_ok() { self.remember(&account, &entries) } else { Ok(()) };
                    Done::Kept(outcome, kept)
                }
                Job::Recall { account, keys, outcome } => {
                    let find = |key| vault::find(&self.connection, &account, key);
                    Done::Recalled(outcome, keys.iter().map(find).collect())
                }
            });
        }
        let committed = match begun {
            Ok(()) if writes => self.connection.execute_batch("COMMIT"),
            other => other,
        };
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
            (self.total, self.seals) = before;
        }
        self.size.store(self.total, Ordering::Relaxed);
        let committed = committed.map_err(failed);
        for done in done {
            done.tell(&committed);
        }
    }

    fn keep(&mut self, response: &StoredResponse) -> rusqlite::Result<()> {
        self.remove(&response.account, &response.id)?;
        let size = size_of(response) as u64;
        self.make_room(size)?;
        let end = now().saturating_add(millis(self.limits.lifetime));
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO response (account, id, expires, size, items, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let size_column = i64::try_from(size).unwrap_or(i64::MAX);
        insert.execute(params![
            response.account,
            response.id,
            end,
            size_column,
            &response.items[..],
            &response.document[..]
        ])?;
        self.total = self.total.saturating_add(size);
        Ok(())
    }

    fn remember(&mut self, account: &str, entries: &[(SealKey, Bytes)]) -> rusqlite::Result<()> {
        let end = now().saturating_add(millis(self.limits.seal_lifetime));
        for (key, value) in entries {
            let (size, freed) = vault::insert(&self.connection, account, key, value, end)?;
            self.seals = self.seals.saturating_add(size).saturating_sub(freed);
        }
        while self.seals > self.limits.seal_total {
            let Some(freed) = vault::remove_oldest(&self.connection)? else { break };
            self.seals = self.seals.saturating_sub(freed);
        }
        Ok(())
    }

    /// Removes the oldest until there is room for so many bytes.
    fn make_room(&mut self, size: u64) -> rusqlite::Result<()> {
        while self.total.saturating_add(size) > self.limits.total {
            let mut oldest = self
                .connection
                .prepare_cached("SELECT number, size FROM response ORDER BY number LIMIT 1")?;
            let oldest = oldest.query_row((), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
            let Some((number, freed)) = oldest.optional()? else {
                self.total = 0;
                return Ok(());
            };
            self.connection
                .prepare_cached("DELETE FROM response WHERE number = ?1")?
                .execute(params![number])?;
            self.total = self.total.saturating_sub(u64::try_from(freed).unwrap_or(0));
        }
        Ok(())
    }

    fn find(&self, account: &str, id: &str) -> rusqlite::Result<Option<Found>> {
        let mut select = self.connection.prepare_cached(
            "SELECT items, document FROM response WHERE id = ?1 AND account = ?2 AND expires > ?3",
        )?;
        let found = select.query_row(params![id, account, now()], |row| {
            let bytes = |column| row.get::<_, Vec<u8>>(column).map(Bytes::from);
            Ok(Found { items: bytes(0)?, document: bytes(1)? })
        });
        found.optional()
    }

    fn remove(&mut self, account: &str, id: &str) -> rusqlite::Result<bool> {
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM response WHERE id = ?1 AND account = ?2 RETURNING size, expires")?;
        let row =
            delete.query_row(params![id, account], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
        let Some((size, end)) = row.optional()? else { return Ok(false) };
        self.total = self.total.saturating_sub(u64::try_from(size).unwrap_or(0));
        Ok(end > now())
    }

    /// Removes some of what has expired, and gives pages back. Tells whether there is more.
    fn sweep(&mut self) -> rusqlite::Result<bool> {
        let removed = self
            .connection
            .prepare_cached(
                "DELETE FROM response WHERE number IN (SELECT number FROM response WHERE expires <= ?1 LIMIT ?2)",
            )?
            .execute(params![now(), i64::try_from(SWEPT_ROWS).unwrap_or(i64::MAX)])?;
        let seals = vault::sweep(&self.connection, SWEPT_ROWS)?;
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({FREED_PAGES})"))?;
        self.count()?;
        Ok(removed == SWEPT_ROWS || seals == SWEPT_ROWS)
    }

    /// Counts what is kept.
    fn count(&mut self) -> rusqlite::Result<()> {
        let total: i64 =
            self.connection.query_row("SELECT COALESCE(SUM(size), 0) FROM response", (), |row| row.get(0))?;
        self.total = u64::try_from(total).unwrap_or(0);
        self.seals = vault::total(&self.connection)?;
        self.size.store(self.total, Ordering::Relaxed);
        Ok(())
    }
}
