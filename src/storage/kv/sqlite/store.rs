//! Embedded store of responses and provider signatures: one SQLite file, and one thread that owns the connection.
//!
//! The thread runs all jobs that have queued up in one transaction, so that one commit serves many responses under
//! load. The file is in WAL mode with `synchronous = NORMAL`: a commit survives the end of the process; after a loss of
//! power the last commits may be missing, but each is atomic. Two processes may use the file at the same time, as they
//! do during an upgrade.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::signatures;
use crate::kv::{Found, Holder, Store, StoreKey, StoreLimits, StoredResponse};
use crate::store::schema::{self, FileIdentity, OpenError};
use crate::store::{Pending, StoreError, millis, now};
use sync::supervise::{self, Supervised};

/// Maximum number of queued jobs. With [`BATCH`] jobs a transaction, some tenths of a second of work.
const QUEUE: usize = 1024;
/// Maximum bytes that queued writes may hold in memory during a burst of large conversations.
const QUEUED_BYTES: usize = 64 << 20;
/// Maximum number of jobs in one transaction, which bounds the latency of the first one.
const BATCH: usize = 64;
/// Interval between two removals of expired entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of rows that one sweep step removes, so that it delays queued jobs only briefly.
const SWEPT_ROWS: usize = 200;
/// Maximum number of file pages that one sweep step releases (`incremental_vacuum`).
const FREED_PAGES: u32 = 256;
/// Embedded store of responses and provider signatures. Its thread ends when it is dropped.
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
    StoreResponse(StoredResponse, Outcome<()>),
    Find { account: String, id: String, outcome: Outcome<Option<Found>> },
    Holder { account: String, id: String, outcome: Outcome<Holder> },
    FindDocuments { account: String, ids: Vec<String>, outcome: Outcome<Vec<Option<Bytes>>> },
    Remove { account: String, id: String, outcome: Outcome<bool> },
    StoreSignatures { account: String, entries: Vec<(StoreKey, Bytes)>, outcome: Outcome<()> },
    LoadSignatures { account: String, keys: Vec<StoreKey>, outcome: Outcome<Vec<Option<Bytes>>> },
}

impl Job {
    /// Returns the bytes of this job that count against [`QUEUED_BYTES`].
    fn size(&self) -> usize {
        match self {
            Job::StoreResponse(response, _) => size_of(response),
            Job::StoreSignatures { account, entries, .. } => {
                entries.iter().map(|(key, value)| key.len() + value.len() + account.len()).sum()
            }
            Job::Find { .. }
            | Job::Holder { .. }
            | Job::FindDocuments { .. }
            | Job::Remove { .. }
            | Job::LoadSignatures { .. } => 0,
        }
    }

    /// Fails the job because the database file was removed or replaced.
    fn refuse(self, fault: &str) {
        let fault = || StoreError::Failed(fault.to_owned());
        // The send fails if the receiver is gone; that is fine.
        match self {
            Job::StoreResponse(_, outcome) | Job::StoreSignatures { outcome, .. } => {
                drop(outcome.send(Err(fault())))
            }
            Job::Find { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::Remove { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::Holder { outcome, .. } => drop(outcome.send(Err(fault()))),
            Job::FindDocuments { outcome, .. } | Job::LoadSignatures { outcome, .. } => {
                drop(outcome.send(Err(fault())))
            }
        }
    }

    fn is_read(&self) -> bool {
        matches!(
            self,
            Job::Find { .. } | Job::Holder { .. } | Job::FindDocuments { .. } | Job::LoadSignatures { .. }
        )
    }
}

impl SqliteStore {
    /// Opens the file, creates it if it does not exist, and starts the thread. The thread ends when this value is
    /// dropped.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the file cannot be used.
    pub fn open(path: &Path, limits: StoreLimits) -> Result<Self, OpenError> {
        let connection = schema::open(path)?;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let database = |source| OpenError::Database { path: path.to_owned(), source };
        let (jobs, queue) = sync_channel(QUEUE);
        let queued = Arc::new(AtomicUsize::new(0));
        let size = Arc::new(AtomicU64::new(0));
        let place = FileIdentity::of(path)?;
        let mut worker = Worker {
            connection,
            file: place,
            limits,
            queued: queued.clone(),
            size: size.clone(),
            total: 0,
            signature_bytes: 0,
        };
        worker.count().map_err(database)?;
        let (supervised, _) = supervise::spawn("store", move || worker.run(&queue)).map_err(io)?;
        Ok(SqliteStore { jobs, queued, size, limits, supervised })
    }

    fn submit<T>(&self, make: impl FnOnce(Outcome<T>) -> Job) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        let job = make(outcome);
        let size = job.size();
        // A job larger than the whole budget is admitted when the queue is empty; otherwise it could never run.
        let before = self.queued.fetch_add(size, Ordering::Relaxed);
        let refused = if size > 0 && before > 0 && before + size > QUEUED_BYTES {
            Some(StoreError::Busy)
        } else {
            match self.jobs.try_send(job) {
                Ok(()) => return pending,
                Err(TrySendError::Full(_)) => Some(StoreError::Busy),
                // The thread has ended: the job was dropped, and the receiver reports its dropped sender.
                Err(TrySendError::Disconnected(_)) => None,
            }
        };
        self.queued.fetch_sub(size, Ordering::Relaxed);
        refused.map_or(pending, |refused| Pending::known(Err(refused)))
    }
}

impl Store for SqliteStore {
    fn store_response(&self, response: StoredResponse) -> Pending<()> {
        let size = size_of(&response);
        let limit = self.limits.response.min(usize::try_from(self.limits.total).unwrap_or(usize::MAX));
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        self.submit(|outcome| Job::StoreResponse(response, outcome))
    }

    fn stores_responses(&self) -> bool {
        !self.limits.lifetime.is_zero()
    }

    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Find { account, id, outcome })
    }

    fn holder(&self, account: &str, id: &str) -> Pending<Holder> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Holder { account, id, outcome })
    }

    fn find_documents(&self, account: &str, ids: Vec<String>) -> Pending<Vec<Option<Bytes>>> {
        let account = account.to_owned();
        self.submit(|outcome| Job::FindDocuments { account, ids, outcome })
    }

    fn remove(&self, account: &str, id: &str) -> Pending<bool> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Remove { account, id, outcome })
    }

    fn store_signatures(&self, account: &str, entries: Vec<(StoreKey, Bytes)>) -> Pending<()> {
        let size = entries.iter().map(|(_, value)| signatures::size_of(account, value)).sum::<u64>();
        let limit = self.limits.signature_total;
        if size > limit {
            let [size, limit] = [size, limit].map(|size| usize::try_from(size).unwrap_or(usize::MAX));
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        let account = account.to_owned();
        self.submit(|outcome| Job::StoreSignatures { account, entries, outcome })
    }

    fn load_signatures(&self, account: &str, keys: Vec<StoreKey>) -> Pending<Vec<Option<Bytes>>> {
        let account = account.to_owned();
        self.submit(|outcome| Job::LoadSignatures { account, keys, outcome })
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone()]
    }
}

/// Returns the accounted size of a response, in bytes.
fn size_of(response: &StoredResponse) -> usize {
    response.items.len() + response.document.len() + response.id.len() + response.account.len()
}

/// Result of a job, sent once the transaction that contains it is committed. Reads are sent regardless of the commit.
enum JobResult {
    ResponseStored(Outcome<()>, rusqlite::Result<()>),
    Found(Outcome<Option<Found>>, rusqlite::Result<Option<Found>>),
    Removed(Outcome<bool>, rusqlite::Result<bool>),
    Held(Outcome<Holder>, rusqlite::Result<Holder>),
    Loaded(Outcome<Vec<Option<Bytes>>>, rusqlite::Result<Vec<Option<Bytes>>>),
}

impl JobResult {
    /// Sends the outcome. Writes fail if the commit failed.
    fn send(self, committed: &Result<(), StoreError>) {
        // The send fails if the receiver is gone; that is fine.
        match self {
            JobResult::ResponseStored(outcome, result) => {
                drop(outcome.send(committed.clone().and(result.map_err(failed))))
            }
            JobResult::Removed(outcome, result) => {
                drop(outcome.send(committed.clone().and(result.map_err(failed))))
            }
            JobResult::Found(outcome, result) => drop(outcome.send(result.map_err(failed))),
            JobResult::Held(outcome, result) => drop(outcome.send(result.map_err(failed))),
            JobResult::Loaded(outcome, result) => drop(outcome.send(result.map_err(failed))),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

/// State of the store's thread.
struct Worker {
    connection: Connection,
    file: FileIdentity,
    limits: StoreLimits,
    queued: Arc<AtomicUsize>,
    size: Arc<AtomicU64>,
    /// Accounted bytes of all responses. During an upgrade the other process writes too, so each sweep counts them
    /// again.
    total: u64,
    /// Accounted bytes of all provider signatures.
    signature_bytes: u64,
}

impl Worker {
    /// Runs jobs and sweeps until the store is dropped.
    fn run(&mut self, queue: &Receiver<Job>) {
        if !self.connection.is_autocommit() {
            // A panic left the transaction open: the supervisor restarted this function.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match queue.recv_timeout(wait) {
                Ok(job) => {
                    let jobs = std::iter::once(job).chain(queue.try_iter().take(BATCH - 1));
                    let jobs: Vec<Job> = jobs.collect();
                    self.run_batch(jobs);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next {
                // If there is more to remove, run the queued jobs first and sweep again after 10 ms.
                let more = self.sweep().unwrap_or_else(|error| {
                    tracing::warn!(%error, "expired entries cannot be removed from the store");
                    false
                });
                next = Instant::now() + if more { Duration::from_millis(10) } else { SWEEP_INTERVAL };
            }
        }
    }

    fn run_batch(&mut self, jobs: Vec<Job>) {
        // Release the budget before the work, so that a panic below cannot leak it.
        let size = jobs.iter().map(Job::size).sum();
        self.queued.fetch_sub(size, Ordering::Relaxed);
        if let Err(fault) = self.file.check_unchanged() {
            jobs.into_iter().for_each(|job| job.refuse(&fault));
            return;
        }
        let writes = !jobs.iter().all(Job::is_read);
        // Batches of reads need no transaction. IMMEDIATE takes the write lock now, so that a lock conflict fails here
        // and not in the middle of the batch.
        let begun = if writes { self.connection.execute_batch("BEGIN IMMEDIATE") } else { Ok(()) };
        let before = (self.total, self.signature_bytes);
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            done.push(match job {
                Job::StoreResponse(response, outcome) => JobResult::ResponseStored(
                    outcome,
                    self.atomically(|worker| worker.store_response(&response)),
                ),
                Job::Find { account, id, outcome } => JobResult::Found(outcome, self.find(&account, &id)),
                Job::Holder { account, id, outcome } => JobResult::Held(outcome, self.holder(&account, &id)),
                Job::FindDocuments { account, ids, outcome } => {
                    let find = |id: &String| self.find_document(&account, id);
                    JobResult::Loaded(outcome, ids.iter().map(find).collect())
                }
                Job::Remove { account, id, outcome } => {
                    JobResult::Removed(outcome, self.atomically(|worker| worker.remove(&account, &id)))
                }
                Job::StoreSignatures { account, entries, outcome } => JobResult::ResponseStored(
                    outcome,
                    self.atomically(|worker| worker.store_signatures(&account, &entries)),
                ),
                Job::LoadSignatures { account, keys, outcome } => {
                    let find = |key| signatures::find(&self.connection, &account, key);
                    JobResult::Loaded(outcome, keys.iter().map(find).collect())
                }
            });
        }
        let committed = match begun {
            Ok(()) if writes => self.connection.execute_batch("COMMIT"),
            other => other,
        };
        if committed.is_err() {
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            // The transaction is undone, so the running totals must be, too.
            (self.total, self.signature_bytes) = before;
        }
        self.size.store(self.total, Ordering::Relaxed);
        let committed = committed.map_err(failed);
        for done in done {
            done.send(&committed);
        }
    }

    /// Runs a write of the open transaction in a savepoint: a write that fails after some of its statements changes
    /// nothing. Without a transaction nothing is run, and the result is the default, because the commit fails and its
    /// error is reported instead.
    fn atomically<T: Default>(
        &mut self,
        write: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        // BEGIN failed, or an error such as a full disk has made SQLite roll the whole transaction back.
        if self.connection.is_autocommit() {
            return Ok(T::default());
        }
        let before = (self.total, self.signature_bytes);
        self.execute("SAVEPOINT write")?;
        let done = write(self);
        if done.is_err() {
            (self.total, self.signature_bytes) = before;
            if self.connection.is_autocommit() {
                return done;
            }
            if self.execute("ROLLBACK TO write").is_err() {
                // Half of the write must not be committed.
                let _ = self.connection.execute_batch("ROLLBACK");
                return done;
            }
        }
        self.execute("RELEASE write")?;
        done
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute(()).map(drop)
    }

    fn store_response(&mut self, response: &StoredResponse) -> rusqlite::Result<()> {
        // Remove a previous version first, so that its size is free before other entries are evicted.
        self.remove(&response.account, &response.id)?;
        let size = size_of(response) as u64;
        self.evict_for(size)?;
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

    fn store_signatures(&mut self, account: &str, entries: &[(StoreKey, Bytes)]) -> rusqlite::Result<()> {
        let end = now().saturating_add(millis(self.limits.signature_lifetime));
        for (key, value) in entries {
            let (size, freed) = signatures::insert(&self.connection, account, key, value, end)?;
            self.signature_bytes = self.signature_bytes.saturating_add(size).saturating_sub(freed);
        }
        while self.signature_bytes > self.limits.signature_total {
            let Some(freed) = signatures::remove_oldest(&self.connection)? else { break };
            self.signature_bytes = self.signature_bytes.saturating_sub(freed);
        }
        Ok(())
    }

    /// Evicts the oldest responses until `size` more bytes fit.
    fn evict_for(&mut self, size: u64) -> rusqlite::Result<()> {
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

    fn holder(&self, account: &str, id: &str) -> rusqlite::Result<Holder> {
        let mut select = self.connection.prepare_cached(
            "SELECT account = ?2 FROM response WHERE id = ?1 AND expires > ?3 ORDER BY account = ?2 DESC LIMIT 1",
        )?;
        let is_own = select.query_row(params![id, account, now()], |row| row.get(0)).optional()?;
        Ok(is_own
            .map_or(Holder::NoAccount, |own: bool| if own { Holder::Asker } else { Holder::OtherAccount }))
    }

    fn find_document(&self, account: &str, id: &str) -> rusqlite::Result<Option<Bytes>> {
        let mut select = self.connection.prepare_cached(
            "SELECT document FROM response WHERE id = ?1 AND account = ?2 AND expires > ?3",
        )?;
        let found = select.query_row(params![id, account, now()], |row| row.get::<_, Vec<u8>>(0));
        Ok(found.optional()?.map(Bytes::from))
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

    /// Removes some expired entries and releases free pages. Returns true if there may be more.
    fn sweep(&mut self) -> rusqlite::Result<bool> {
        let removed = self
            .connection
            .prepare_cached(
                "DELETE FROM response WHERE number IN (SELECT number FROM response WHERE expires <= ?1 LIMIT ?2)",
            )?
            .execute(params![now(), i64::try_from(SWEPT_ROWS).unwrap_or(i64::MAX)])?;
        let seals = signatures::sweep(&self.connection, SWEPT_ROWS)?;
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({FREED_PAGES})"))?;
        self.count()?;
        Ok(removed == SWEPT_ROWS || seals == SWEPT_ROWS)
    }

    /// Recounts the accounted sizes.
    fn count(&mut self) -> rusqlite::Result<()> {
        let total: i64 =
            self.connection.query_row("SELECT COALESCE(SUM(size), 0) FROM response", (), |row| row.get(0))?;
        self.total = u64::try_from(total).unwrap_or(0);
        self.signature_bytes = signatures::total(&self.connection)?;
        self.size.store(self.total, Ordering::Relaxed);
        Ok(())
    }
}
