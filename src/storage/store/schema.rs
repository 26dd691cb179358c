//! Schema of the database file, and the migrations from older schema versions.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long SQLite waits for a lock that another connection holds on the file.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of statements that a connection keeps prepared: all that the ledger uses. With fewer, its periodic work would
/// compile statements anew each time.
const PREPARED: usize = 64;
/// Time limit of the integrity check at the start. On a typical disk that is enough for some gigabytes.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Migrations, each from one schema version to the next; a new file starts at version 0. Never edit an existing entry:
/// files of each version exist.
const MIGRATIONS: [&str; 7] = [
    // 1: responses.
    "
    CREATE TABLE response (
        number   INTEGER PRIMARY KEY AUTOINCREMENT,
        account  TEXT NOT NULL,
        id       TEXT NOT NULL,
        expires  INTEGER NOT NULL,
        size     INTEGER NOT NULL,
        items    BLOB NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX response_by_id ON response (id, account);
    CREATE INDEX response_by_end ON response (expires, size);
    ",
    // 2: provider signatures, accounts and their usage. `changed` is a counter over all accounts: a reader that
    // remembers its highest value finds everything that changed later. `journal` has the number of the last applied
    // frame of each journal.
    "
    CREATE TABLE seal (
        number  INTEGER PRIMARY KEY AUTOINCREMENT,
        account TEXT NOT NULL,
        key     BLOB NOT NULL,
        expires INTEGER NOT NULL,
        size    INTEGER NOT NULL,
        value   BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX seal_by_key ON seal (key, account);
    CREATE INDEX seal_by_end ON seal (expires, size);

    CREATE TABLE account (
        id       INTEGER PRIMARY KEY,
        name     TEXT NOT NULL UNIQUE,
        created  INTEGER NOT NULL,
        enabled  INTEGER NOT NULL,
        credited INTEGER NOT NULL DEFAULT 0,
        charged  INTEGER NOT NULL DEFAULT 0,
        changed  INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX account_by_change ON account (changed);
    CREATE TABLE credit (
        id        INTEGER PRIMARY KEY AUTOINCREMENT,
        account   INTEGER NOT NULL REFERENCES account,
        time      INTEGER NOT NULL,
        amount    INTEGER NOT NULL,
        note      TEXT NOT NULL,
        reference TEXT
    ) STRICT;
    CREATE UNIQUE INDEX credit_by_reference ON credit (account, reference);

    CREATE TABLE journal (
        id      INTEGER PRIMARY KEY,
        drained INTEGER NOT NULL,
        time    INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE block (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        first   INTEGER NOT NULL,
        last    INTEGER NOT NULL,
        records INTEGER NOT NULL,
        packed  INTEGER NOT NULL,
        data    BLOB NOT NULL
    ) STRICT;
    CREATE INDEX block_by_end ON block (last, first);
    CREATE TABLE daily (
        day            INTEGER NOT NULL,
        account        TEXT NOT NULL,
        key            TEXT NOT NULL,
        model          TEXT NOT NULL,
        requests       INTEGER NOT NULL,
        failed         INTEGER NOT NULL,
        cost           INTEGER NOT NULL,
        input          INTEGER NOT NULL,
        cached         INTEGER NOT NULL,
        cache_write    INTEGER NOT NULL,
        cache_write_1h INTEGER NOT NULL,
        output         INTEGER NOT NULL,
        reasoning      INTEGER NOT NULL,
        audio_input    INTEGER NOT NULL,
        audio_output   INTEGER NOT NULL,
        image_output   INTEGER NOT NULL,
        searches       INTEGER NOT NULL,
        PRIMARY KEY (day, account, key, model)
    ) STRICT, WITHOUT ROWID;
    ",
    // 3: tasks. `due` is the time of the next poll; NULL when the task has ended.
    "
    CREATE TABLE task (
        owner   TEXT NOT NULL,
        id      TEXT NOT NULL,
        mark    BLOB,
        marked  INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        due     INTEGER,
        version INTEGER NOT NULL,
        facts   BLOB NOT NULL,
        state   BLOB NOT NULL,
        PRIMARY KEY (id, owner)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX task_by_mark ON task (mark, owner) WHERE mark IS NOT NULL;
    CREATE INDEX task_by_due ON task (due) WHERE due IS NOT NULL;
    CREATE INDEX task_by_end ON task (expires);
    ",
    // 4: owners of responses that providers store. `number` increases with time.
    "
    CREATE TABLE owner (
        number  INTEGER PRIMARY KEY AUTOINCREMENT,
        key     BLOB NOT NULL UNIQUE,
        owner   TEXT NOT NULL,
        expires INTEGER NOT NULL
    ) STRICT;
    ",
    // 5: idempotency keys of charges.
    "
    CREATE TABLE charge (
        account TEXT NOT NULL,
        id      TEXT NOT NULL,
        time    INTEGER NOT NULL,
        PRIMARY KEY (account, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX charge_by_time ON charge (time);
    ",
    // 6: effect of prompt caches on costs.
    "
    ALTER TABLE daily ADD COLUMN cache_saved INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE daily ADD COLUMN cache_surcharge INTEGER NOT NULL DEFAULT 0;
    ",
    // 7: usage by hour, provider and kind of error. `block` is the last block of records that is in the cells, `since` the
    // first day whose records all are.
    "
    CREATE TABLE usage_cells (
        kind   INTEGER NOT NULL,
        period INTEGER NOT NULL,
        cells  INTEGER NOT NULL,
        data   BLOB NOT NULL,
        UNIQUE (kind, period)
    ) STRICT;
    CREATE TABLE usage_rollup (
        id    INTEGER PRIMARY KEY CHECK (id = 0),
        block INTEGER NOT NULL,
        since INTEGER NOT NULL
    ) STRICT;
    ",
];

/// Schema version that this build writes (`PRAGMA user_version`).
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Reason why the database file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system returned an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The database returned an error.
    #[error("{}: {source}", .path.display())]
    Database {
        /// Path of the file.
        path: PathBuf,
        /// Error of the database.
        source: rusqlite::Error,
    },
    /// Another gateway uses the file.
    #[error(
        "{} is in use: another gateway{} holds its lock ({}). Balances and limits of one file are kept by one process: \
         stop that one, take over from it with --upgrade, or let several gateways share a server (store.valkey)",
        .path.display(), super::store_lock::named(*.holder), .lock.display()
    )]
    InUse {
        /// Path of the file.
        path: PathBuf,
        /// Path of the lock file.
        lock: PathBuf,
        /// Id of the process that holds the lock, if it is known.
        holder: Option<u32>,
    },
    /// The file was written by a later version of the gateway.
    #[error("{} has layout {found}; this version supports {SCHEMA_VERSION}", .path.display())]
    Layout {
        /// Path of the file.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
    },
    /// The journal of an ended process cannot be replayed.
    #[error("{}: the journal {journal:016x} cannot be read; it is from a later version, or damaged", .path.display())]
    Journal {
        /// Folder of the journal.
        path: PathBuf,
        /// Id of the journal.
        journal: u64,
    },
    /// The file does not exist.
    #[error("{} does not exist; the gateway creates it when it starts", .0.display())]
    Missing(PathBuf),
    /// The file is missing or empty, but the folder of its journal exists, which a process makes after the file.
    #[error(
        "{} is missing or empty, but its journal exists ({}): the file was lost. Restore a backup (the journal is \
         applied to it), or remove the folder of the journal to start without balances and usage",
        .path.display(), .journal.display()
    )]
    Lost {
        /// Path of the file.
        path: PathBuf,
        /// Folder of the journal.
        journal: PathBuf,
    },
    /// The file is corrupt.
    #[error(
        "{} is damaged ({what}): restore a backup and remove {}-wal and {}-shm; the journal is applied to the backup",
        .path.display(), .path.display(), .path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Result of SQLite's integrity check.
        what: String,
    },
}

/// Opens the database file: creates it if it does not exist, and migrates it to the current schema version.
///
/// # Errors
/// Returns [`OpenError`] if the file cannot be used.
pub(crate) fn open(path: &Path) -> Result<Connection, OpenError> {
    let journal = journals(path);
    let io = |source| OpenError::Io { path: journal.clone(), source };
    // Check this before the database: another process that creates the file creates its journal afterwards.
    let is_left = super::journal_files::any(&journal).map_err(io)?;
    let lost = || OpenError::Lost { path: path.to_owned(), journal: journal.clone() };
    // Check this before opening: SQLite deletes a leftover write-ahead log beside an empty file. A process that stops in
    // order leaves the folder empty, so that it alone shows that there was a file.
    if journal.is_dir() && path.metadata().map_or(true, |file| file.len() == 0) {
        return Err(lost());
    }
    // Mode 0600: the content is confidential. SQLite creates the -wal and -shm files with the same mode. An existing
    // file is not opened here: closing it would release the POSIX locks that other connections of this process hold on
    // it.
    match OpenOptions::new().create_new(true).append(true).mode(0o600).open(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
        _ => {}
    }
    let database = |source: rusqlite::Error| failure(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(database)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(database)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    if is_left && schema_version(&connection).map_err(database)? == 0 {
        return Err(lost());
    }
    let (before, found) = set_up(&connection).map_err(database)?;
    if before == 0 {
        // Make the directory entry durable: after a loss of power, a journal without its file would be refused as
        // `Lost`.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        super::journal_files::sync_folder(folder)
            .map_err(|source| OpenError::Io { path: folder.to_owned(), source })?;
    }
    match found {
        SCHEMA_VERSION => Ok(connection),
        found => Err(OpenError::Layout { path: path.to_owned(), found }),
    }
}

/// Checks the integrity of the file for at most [`CHECK_TIMEOUT`]. A check that takes longer is interrupted and passes.
///
/// # Errors
/// Returns [`OpenError`] if the file is corrupt or cannot be read.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let interrupt = connection.get_interrupt_handle();
    let found: rusqlite::Result<String> = std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(CHECK_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let found = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0));
        drop(done);
        found
    });
    let damaged = |what: String| Err(OpenError::Damaged { path: path.to_owned(), what });
    match found {
        Ok(found) if found == "ok" => Ok(()),
        Ok(found) => damaged(found.lines().take(2).collect::<Vec<_>>().join(" ")),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::info!(path = %path.display(), "the store is too large for a full check at startup");
            Ok(())
        }
        Err(source) => Err(failure(path, source)),
    }
}

/// Maps a database error to an [`OpenError`]; corruption gets its own variant.
fn failure(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, what: source.to_string() },
        _ => OpenError::Database { path, source },
    }
}

fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Path of a file with its identity (device and inode), to notice that the file was replaced.
#[derive(Clone, Debug)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    file: (u64, u64),
}

impl FileIdentity {
    /// Records the file that is at `path` now.
    ///
    /// # Errors
    /// Returns [`OpenError`] if there is none.
    pub(crate) fn of(path: &Path) -> Result<Self, OpenError> {
        let there = path.metadata().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(FileIdentity { path: path.to_owned(), file: (there.dev(), there.ino()) })
    }

    /// Checks that the same file is still at the path.
    ///
    /// # Errors
    /// Returns a description for operators if the file was replaced or removed.
    pub(crate) fn check_unchanged(&self) -> Result<(), String> {
        let path = self.path.display();
        match self.path.metadata() {
            Ok(there) if (there.dev(), there.ino()) == self.file => Ok(()),
            Ok(_) => {
                Err(format!("{path} was replaced while the gateway ran; restart it to use the new file"))
            }
            Err(error) => {
                Err(format!("{path} was removed while the gateway ran ({error}); restore it, or restart"))
            }
        }
    }
}

/// Sets the pragmas and migrates the schema in one transaction. Returns the schema version before and after.
fn set_up(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    // SQLite applies `auto_vacuum` only to a database that is still empty. Of any other file it would take the write lock for
    // this, which readers must not wait for.
    if schema_version(connection)? == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // FAST overwrites deleted content where this needs no additional write.
    connection.execute_batch("PRAGMA secure_delete = FAST")?;
    let normal = || connection.pragma_update(None, "synchronous", "NORMAL");
    let found = schema_version(connection)?;
    if found >= SCHEMA_VERSION {
        normal()?;
        return Ok((found, found));
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Read the version again under the write lock: another process may have migrated the file meanwhile.
    let found = schema_version(connection)?;
    let steps = usize::try_from(found).ok().and_then(|found| MIGRATIONS.get(found..)).unwrap_or_default();
    let done = steps.iter().try_for_each(|step| connection.execute_batch(step)).and_then(|()| {
        let reached = if steps.is_empty() { found } else { SCHEMA_VERSION };
        connection.execute_batch(&format!("PRAGMA user_version = {reached}; COMMIT"))?;
        Ok(reached)
    });
    if done.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    let reached = done?;
    normal()?;
    Ok((found, reached))
}

/// Returns the folder of the journals that belong to a database file.
pub(crate) fn journals(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-ledger");
    path.with_file_name(name)
}
