//! The layout of the file, and how a file of an older one is brought up to it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long another connection may hold the file.
const BUSY: Duration = Duration::from_millis(500);
/// How long the start looks for damage. On a usual disk that is some gigabytes.
const CHECK: Duration = Duration::from_secs(5);

/// What brings a file from each layout to the next; a new file begins at 0. What stands here is never changed: files of
/// each layout exist.
const STEPS: [&str; 4] = [
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
    // 2: seals, accounts and what they used. `changed` counts up over all accounts, so that whoever has seen a number
    // finds what changed after it. `journal` has the last frame of each journal that is in here.
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
    // 3: tasks. `due` is when somebody should look after one; nothing when it has ended.
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
    // 4: owners of what providers keep. Numbers rise with time.
    "
    CREATE TABLE owner (
        number  INTEGER PRIMARY KEY AUTOINCREMENT,
        key     BLOB NOT NULL UNIQUE,
        owner   TEXT NOT NULL,
        expires INTEGER NOT NULL
    ) STRICT;
    ",
];

/// The layout that this version writes.
pub const LAYOUT: i64 = STEPS.len() as i64;

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
    /// The file is of a later version of the gateway.
    #[error("{} has the layout {found}; this version knows {LAYOUT}", .path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
    },
    /// A journal that an ended process left cannot be brought in.
    #[error("{}: the journal {journal:016x} cannot be read; it is of a later version, or damaged", .path.display())]
    Journal {
        /// Its folder.
        path: PathBuf,
        /// Which journal.
        journal: u64,
    },
    /// There is no such file.
    #[error("{} is not there; the gateway makes it when it starts", .0.display())]
    Missing(PathBuf),
    /// The file is missing or empty, and its journal is not.
    #[error(
        "{} is missing or empty, but its journal is there ({}): the file was lost. Put a backup in its place (what the \
         journal holds is brought in), or remove the folder of the journal to begin anew without balances and usage",
        .path.display(), .journal.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// The folder of the journal.
        journal: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged ({what}): put a backup in its place and remove {}-wal and {}-shm; what the journal holds is \
         brought in", .path.display(), .path.display(), .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        what: String,
    },
}

/// Opens the file, makes it if it is not there, and brings it up to this layout.
///
/// # Errors
/// The file cannot be used.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let journal = journals(path);
    let io = |source| OpenError::Io { path: journal.clone(), source };
    // Asked first: another process that makes the file makes its journal after that.
    let is_left = super::journal::any(&journal).map_err(io)?;
    let lost = || OpenError::Lost { path: path.to_owned(), journal: journal.clone() };
    // Before it is opened: SQLite would remove what stands beside a file that is empty.
    if is_left && path.metadata().map_or(true, |file| file.len() == 0) {
        return Err(lost());
    }
    // What is kept is nobody else's business. SQLite gives the files beside this one the same rights.
    // A file that is there is not opened: to close it again would end the locks that other connections have on it.
    match OpenOptions::new().create_new(true).append(true).mode(0o600).open(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
        _ => {}
    }
    let database = |source: rusqlite::Error| failure(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(database)?;
    connection.busy_timeout(BUSY).map_err(database)?;
    if is_left && layout(&connection).map_err(database)? == 0 {
        return Err(lost());
    }
    let (before, found) = set_up(&connection).map_err(database)?;
    if before == 0 {
        // So that a loss of power leaves the name, too: a journal whose file is gone is refused.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        super::journal::sync_folder(folder)
            .map_err(|source| OpenError::Io { path: folder.to_owned(), source })?;
    }
    match found {
        LAYOUT => Ok(connection),
        found => Err(OpenError::Layout { path: path.to_owned(), found }),
    }
}

/// Looks for damage, for as long as [`CHECK`] permits.
///
/// # Errors
/// Damage was found, or the file cannot be read.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let interrupt = connection.get_interrupt_handle();
    let found: rusqlite::Result<String> = std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(CHECK) == Err(RecvTimeoutError::Timeout) {
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
            tracing::info!(path = %path.display(), "the store is too large to be checked whole at the start");
            Ok(())
        }
        Err(source) => Err(failure(path, source)),
    }
}

/// Why the database refuses.
fn failure(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, what: source.to_string() },
        _ => OpenError::Database { path, source },
    }
}

fn layout(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Where a file stands, and which it is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    /// The file that stands at a path now.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(path: &Path) -> Result<Self, OpenError> {
        let there = path.metadata().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Place { path: path.to_owned(), file: (there.dev(), there.ino()) })
    }

    /// Looks whether it still stands there.
    ///
    /// # Errors
    /// It does not: what became of it, in words.
    pub(super) fn look(&self) -> Result<(), String> {
        let path = self.path.display();
        match self.path.metadata() {
            Ok(there) if (there.dev(), there.ino()) == self.file => Ok(()),
            Ok(_) => {
                Err(format!("{path} was replaced while the gateway ran; restart it to take the new file"))
            }
            Err(error) => {
                Err(format!("{path} was removed while the gateway ran ({error}); put it back, or restart"))
            }
        }
    }
}

/// Prepares the file; returns its layout before and now.
fn set_up(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    // Only a file that is still empty takes this one over.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What was removed is overwritten where that costs no further write.
    connection.execute_batch("PRAGMA secure_delete = FAST")?;
    let normal = || connection.pragma_update(None, "synchronous", "NORMAL");
    let found = layout(connection)?;
    if found >= LAYOUT {
        normal()?;
        return Ok((found, found));
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have been faster.
    let found = layout(connection)?;
    let steps = usize::try_from(found).ok().and_then(|found| STEPS.get(found..)).unwrap_or_default();
    let done = steps.iter().try_for_each(|step| connection.execute_batch(step)).and_then(|()| {
        let reached = if steps.is_empty() { found } else { LAYOUT };
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

/// The folder of the journals that belong to a file.
pub(super) fn journals(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-ledger");
    path.with_file_name(name)
}
