//! The embedded store: one file of SQLite, one thread that owns the connection.
//!
//! The thread takes whatever has gathered in its queue and does it in one transaction, so that a busy gateway pays for a
//! commit once for many responses. The file is in write-ahead mode: a commit is safe from the end of the process; after
//! a loss of power the last moments may be missing, but never half of something. Two processes may use the file at the
//! same time, as they do while one hands over to the other.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::{Found, Limits, Pending, Response, Store, StoreError};

/// Jobs that may wait. With the batch below, a few tenths of a second of work.
const QUEUE: usize = 1024;
/// Bytes that may wait to be written: what a burst of large conversations may hold in memory.
const QUEUED_BYTES: usize = 64 << 20;
/// Jobs that are done in one transaction at most, so that the first of them does not wait for long.
const BATCH: usize = 64;
/// How long another process may hold the file.
const BUSY: Duration = Duration::from_millis(500);
/// How often expired responses are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// Rows that are removed in one step, so that a sweep never stands in the way for long.
const SWEPT_ROWS: usize = 200;
/// Pages of the file that are given back in one step.
const FREED_PAGES: u32 = 256;
/// The layout below; a file of another one is refused rather than misread.
const LAYOUT: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS response (
        number   INTEGER PRIMARY KEY AUTOINCREMENT,
        account  TEXT NOT NULL,
        id       TEXT NOT NULL,
        expires  INTEGER NOT NULL,
        size     INTEGER NOT NULL,
        items    BLOB NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS response_by_id ON response (id, account);
    CREATE INDEX IF NOT EXISTS response_by_end ON response (expires, size);
";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system refuses.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database refuses.
    #[error("{}: {source}", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file is of another version of the gateway.
    #[error("{} has the layout {found}; this version knows {LAYOUT}", .path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
    },
}

/// The store.
#[derive(Debug)]
pub struct Sqlite {
    jobs: SyncSender<Job>,
    queued: Arc<AtomicUsize>,
    size: Arc<AtomicU64>,
    limits: Limits,
}

type Outcome<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
enum Job {
    Keep(Response, Outcome<()>),
    Find { account: String, id: String, outcome: Outcome<Option<Found>> },
    Remove { account: String, id: String, outcome: Outcome<bool> },
}

impl Sqlite {
    /// Opens the file, makes it if it is not there, and starts the thread. The thread ends with this value.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        // Conversations are nobody else's business. SQLite gives the files beside this one the same rights.
        OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(io)?;
        let database = |source| OpenError::Database { path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(database)?;
        match set_up(&connection).map_err(database)? {
            LAYOUT => {}
            found => return Err(OpenError::Layout { path: path.to_owned(), found }),
        }
        let (jobs, queue) = sync_channel(QUEUE);
        let queued = Arc::new(AtomicUsize::new(0));
        let size = Arc::new(AtomicU64::new(0));
        let mut worker = Worker { connection, limits, queued: queued.clone(), size: size.clone(), total: 0 };
        worker.count().map_err(database)?;
        std::thread::Builder::new().name("store".to_owned()).spawn(move || worker.run(&queue)).map_err(io)?;
        Ok(Sqlite { jobs, queued, size, limits })
    }

    fn submit<T>(&self, make: impl FnOnce(Outcome<T>) -> Job) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        match self.jobs.try_send(make(outcome)) {
            Ok(()) => pending,
            Err(TrySendError::Full(_)) => Pending::known(Err(StoreError::Busy)),
            // The end of the thread is told by the outcome that it dropped.
            Err(TrySendError::Disconnected(_)) => pending,
        }
    }
}

impl Store for Sqlite {
    fn keep(&self, response: Response) -> Pending<()> {
        let size = size_of(&response);
        let limit = self.limits.response.min(usize::try_from(self.limits.total).unwrap_or(usize::MAX));
        if size > limit {
            return Pending::known(Err(StoreError::TooLarge { size, limit }));
        }
        // A large one may always pass alone.
        let before = self.queued.fetch_add(size, Ordering::Relaxed);
        if before > 0 && before + size > QUEUED_BYTES {
            self.queued.fetch_sub(size, Ordering::Relaxed);
            return Pending::known(Err(StoreError::Busy));
        }
        let (outcome, pending) = Pending::new();
        match self.jobs.try_send(Job::Keep(response, outcome)) {
            Ok(()) => pending,
            Err(error) => {
                self.queued.fetch_sub(size, Ordering::Relaxed);
                match error {
                    TrySendError::Full(_) => Pending::known(Err(StoreError::Busy)),
                    TrySendError::Disconnected(_) => pending,
                }
            }
        }
    }

    fn find(&self, account: &str, id: &str) -> Pending<Option<Found>> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Find { account, id, outcome })
    }

    fn remove(&self, account: &str, id: &str) -> Pending<bool> {
        let (account, id) = (account.to_owned(), id.to_owned());
        self.submit(|outcome| Job::Remove { account, id, outcome })
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
}

/// What a response counts for.
fn size_of(response: &Response) -> usize {
    response.items.len() + response.document.len() + response.id.len() + response.account.len()
}

/// Prepares the file; returns its layout.
fn set_up(connection: &Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    // Only a file that is still empty takes this one over.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // What was removed is overwritten where that costs no further write.
    connection.execute_batch("PRAGMA secure_delete = FAST")?;
    let layout: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if layout != 0 {
        return Ok(layout);
    }
    connection
        .execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {LAYOUT}; COMMIT;"))?;
    Ok(LAYOUT)
}

/// The outcome of a job, to be told when the transaction that it stands in is safe.
enum Done {
    Kept(Outcome<()>, rusqlite::Result<()>),
    Found(Outcome<Option<Found>>, rusqlite::Result<Option<Found>>),
    Removed(Outcome<bool>, rusqlite::Result<bool>),
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
    limits: Limits,
    queued: Arc<AtomicUsize>,
    size: Arc<AtomicU64>,
    /// Bytes that are kept. The other process of an upgrade writes too, so it is counted anew now and then.
    total: u64,
}

impl Worker {
    /// Works until the store is dropped.
    fn run(mut self, queue: &Receiver<Job>) {
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
        let writes = jobs.iter().any(|job| !matches!(job, Job::Find { .. }));
        let begun = if writes { self.connection.execute_batch("BEGIN IMMEDIATE") } else { Ok(()) };
        let before = self.total;
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            done.push(match job {
                Job::Keep(response, outcome) => {
                    let kept = if begun.is_ok() { self.keep(&response) } else { Ok(()) };
                    self.queued.fetch_sub(size_of(&response), Ordering::Relaxed);
                    Done::Kept(outcome, kept)
                }
                Job::Find { account, id, outcome } => Done::Found(outcome, self.find(&account, &id)),
                Job::Remove { account, id, outcome } => {
                    let removed = if begun.is_ok() { self.remove(&account, &id) } else { Ok(false) };
                    Done::Removed(outcome, removed)
                }
            });
        }
        let committed = match begun {
            Ok(()) if writes => self.connection.execute_batch("COMMIT"),
            other => other,
        };
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
            self.total = before;
        }
        self.size.store(self.total, Ordering::Relaxed);
        let committed = committed.map_err(failed);
        for done in done {
            done.tell(&committed);
        }
    }

    fn keep(&mut self, response: &Response) -> rusqlite::Result<()> {
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
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({FREED_PAGES})"))?;
        self.count()?;
        Ok(removed == SWEPT_ROWS)
    }

    /// Counts what is kept.
    fn count(&mut self) -> rusqlite::Result<()> {
        let total: i64 =
            self.connection.query_row("SELECT COALESCE(SUM(size), 0) FROM response", (), |row| row.get(0))?;
        self.total = u64::try_from(total).unwrap_or(0);
        self.size.store(self.total, Ordering::Relaxed);
        Ok(())
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Unix milliseconds.
fn now() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
