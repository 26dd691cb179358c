//! Embedded task store: its own connection to the SQLite file, and the thread that owns it. Tasks are few and small, so
//! jobs are not batched.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::kv::{NewTask, StoredTask, TaskStore};
use crate::store::schema::{self, FileIdentity, OpenError};
use crate::store::{Pending, StoreError, millis, now};
use sync::supervise::{self, Supervised};

/// Maximum number of queued jobs.
const QUEUE: usize = 1024;
/// Interval between two removals of expired tasks.
const SWEEP: Duration = Duration::from_secs(60);
/// Maximum number of rows that one sweep removes.
const SWEPT_ROWS: u32 = 200;

/// Job for the connection. It receives the fault instead if the database file was removed or replaced.
type SqliteTaskJob = Box<dyn FnOnce(Result<&mut Connection, &str>) + Send>;

/// Task store in SQLite. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct SqliteTasks {
    jobs: SyncSender<SqliteTaskJob>,
    supervised: Arc<Supervised>,
}

impl SqliteTasks {
    /// Opens the file, creates it if it does not exist, and starts the thread.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let mut connection = schema::open(path)?;
        let place = FileIdentity::of(path)?;
        let (jobs, queue) = sync_channel(QUEUE);
        let started = supervise::spawn("tasks", move || work(&mut connection, &place, &queue));
        let (supervised, _) = started.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(SqliteTasks { jobs, supervised })
    }

    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (outcome, pending) = Pending::new();
        let job: SqliteTaskJob = Box::new(move |connection| {
            let done = connection.map_err(|fault| fault.to_owned());
            let done = done.and_then(|connection| job(connection).map_err(|error| error.to_string()));
            // The send fails if the receiver is gone; that is fine.
            let _ = outcome.send(done.map_err(StoreError::Failed));
        });
        match self.jobs.try_send(job) {
            Err(TrySendError::Full(_)) => Pending::known(Err(StoreError::Busy)),
            // If the thread has ended, the dropped job closes the channel, which the receiver reports.
            Ok(()) | Err(TrySendError::Disconnected(_)) => pending,
        }
    }
}

/// Runs jobs and sweeps until the store is dropped.
fn work(connection: &mut Connection, place: &FileIdentity, queue: &Receiver<SqliteTaskJob>) {
    if !connection.is_autocommit() {
        // A panic left the transaction open: the supervisor restarted this function.
        let _ = connection.execute_batch("ROLLBACK");
    }
    let mut next = Instant::now();
    loop {
        match queue.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(job) => match place.check_unchanged() {
                Ok(()) => job(Ok(connection)),
                Err(fault) => job(Err(&fault)),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= next {
            if let Err(error) = sweep(connection) {
                tracing::warn!(%error, "expired tasks cannot be removed");
            }
            next = Instant::now() + SWEEP;
        }
    }
}

fn sweep(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM task WHERE (id, owner) IN (SELECT id, owner FROM task WHERE expires <= ?1 LIMIT ?2)",
        )?
        .execute(params![now(), SWEPT_ROWS])
}

fn after(span: Duration) -> i64 {
    now().saturating_add(millis(span))
}

fn read(row: &Row<'_>) -> rusqlite::Result<StoredTask> {
    let bytes = |column| row.get::<_, Vec<u8>>(column).map(Bytes::from);
    Ok(StoredTask {
        owner: row.get(0)?,
        id: row.get(1)?,
        version: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
        facts: bytes(3)?,
        state: bytes(4)?,
    })
}

fn submit(connection: &mut Connection, task: &NewTask) -> rusqlite::Result<Option<String>> {
    let whole = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let (mark, marked) = match &task.idempotency_key {
        Some((mark, span)) => (Some(&mark[..]), after(*span)),
        None => (None, 0),
    };
    if let Some(mark) = mark {
        let mut select = whole.prepare_cached(
            "SELECT id FROM task WHERE mark = ?1 AND owner = ?2 AND marked > ?3 AND expires > ?3",
        )?;
        let found = select.query_row(params![mark, task.owner, now()], |row| row.get(0)).optional()?;
        if found.is_some() {
            return Ok(found);
        }
        // Clear an expired idempotency key so that the UNIQUE index admits the new row.
        whole
            .prepare_cached("UPDATE task SET mark = NULL WHERE mark = ?1 AND owner = ?2")?
            .execute(params![mark, task.owner])?;
    }
    whole
        .prepare_cached(
            "INSERT INTO task (owner, id, mark, marked, expires, due, version, facts, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8)",
        )?
        .execute(params![
            task.owner,
            task.id,
            mark,
            marked,
            after(task.lifetime),
            after(task.due),
            &task.facts[..],
            &task.state[..]
        ])?;
    whole.commit()?;
    Ok(None)
}

impl TaskStore for SqliteTasks {
    fn threads(&self) -> Vec<Arc<Supervised>> {
        vec![self.supervised.clone()]
    }

    fn submit(&self, task: NewTask) -> Pending<Option<String>> {
        self.run(move |connection| submit(connection, &task))
    }

    fn task(&self, owner: &str, id: &str) -> Pending<Option<StoredTask>> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.run(move |connection| {
            let mut select = connection.prepare_cached(
                "SELECT owner, id, version, facts, state FROM task
                 WHERE id = ?1 AND owner = ?2 AND expires > ?3",
            )?;
            select.query_row(params![id, owner, now()], read).optional()
        })
    }

    fn change(
        &self,
        owner: &str,
        id: &str,
        version: u64,
        state: Bytes,
        due: Option<Duration>,
    ) -> Pending<bool> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        self.run(move |connection| {
            let mut update = connection.prepare_cached(
                "UPDATE task SET state = ?1, due = ?2, version = version + 1
                 WHERE id = ?3 AND owner = ?4 AND version = ?5 AND expires > ?6",
            )?;
            let changed = update.execute(params![&state[..], due.map(after), id, owner, version, now()])?;
            Ok(changed == 1)
        })
    }

    fn remove(&self, owner: &str, id: &str) -> Pending<bool> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.run(move |connection| {
            let mut delete = connection
                .prepare_cached("DELETE FROM task WHERE id = ?1 AND owner = ?2 RETURNING expires")?;
            let end = delete.query_row(params![id, owner], |row| row.get::<_, i64>(0)).optional()?;
            Ok(end.is_some_and(|end| end > now()))
        })
    }

    fn due(&self, most: usize, lease: Duration) -> Pending<Vec<StoredTask>> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.run(move |connection| {
            // First without the file's write lock, which a busy ledger holds most of the time.
            let mut look = connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM task WHERE due <= ?1 AND expires > ?1)")?;
            if !look.query_row(params![now()], |row| row.get::<_, bool>(0))? {
                return Ok(Vec::new());
            }
            let mut lease_them = connection.prepare_cached(
                "UPDATE task SET due = ?1 WHERE (id, owner) IN
                     (SELECT id, owner FROM task WHERE due <= ?2 AND expires > ?2 ORDER BY due LIMIT ?3)
                 RETURNING owner, id, version, facts, state",
            )?;
            lease_them.query_map(params![after(lease), now(), most], read)?.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_tasks_are_sought_while_another_connection_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.db");
        let tasks = SqliteTasks::open(&file).unwrap();
        let due = || tasks.due(10, Duration::from_secs(60)).wait(Duration::from_secs(10));
        assert!(due().unwrap().is_empty());
        // As the ledger's transaction under load: longer than the time for which a writer waits for it.
        let writer = schema::open(&file).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(due().unwrap().is_empty());
        writer.execute_batch("ROLLBACK").unwrap();
        tasks.submit(task()).wait(Duration::from_secs(10)).unwrap();
        assert_eq!(due().unwrap().len(), 1);
        assert!(due().unwrap().is_empty(), "it is leased");
    }

    fn task() -> NewTask {
        NewTask {
            owner: "acme".to_owned(),
            id: "task_1".to_owned(),
            idempotency_key: None,
            lifetime: Duration::from_secs(600),
            due: Duration::ZERO,
            facts: Bytes::from_static(b"{}"),
            state: Bytes::from_static(b"{}"),
        }
    }
}
