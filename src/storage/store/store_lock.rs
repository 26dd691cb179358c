//! Lock of a database file: at most one gateway uses it, except while one takes over from another.
//!
//! A process knows its own reservations, limits and counters only. Two that share a file would let in twice what a balance
//! permits. The commands that administer accounts hold none of these, and take no lock.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OpenError;

/// How long a start waits for the lock: a process that was killed releases it when the system has freed its memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between two attempts.
const INTERVAL: Duration = Duration::from_millis(20);

/// Lock of a database file, held until the process ends or this value is dropped.
#[derive(Debug)]
pub struct StoreLock {
    #[allow(dead_code, reason = "the lock is held as long as the file is open")]
    file: Arc<File>,
}

impl StoreLock {
    /// Takes the lock of the database file at `path`. With `takes_over`, the process that holds it hands its work over to
    /// this one: the lock is waited for in the background.
    ///
    /// # Errors
    /// Returns [`OpenError::InUse`] if another process holds it, [`OpenError::Io`] if the lock file cannot be used.
    pub fn take(path: &Path, takes_over: bool) -> Result<Self, OpenError> {
        // A link to the file is the same store.
        let place = lock_file(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let io = |source| OpenError::Io { path: place.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = Arc::new(options.open(&place).map_err(io)?);
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(io(source)),
                Err(TryLockError::WouldBlock) if takes_over => {
                    let waiting = file.clone();
                    std::thread::Builder::new()
                        .name("store-lock".to_owned())
                        .spawn(move || wait(&waiting))
                        .map_err(io)?;
                    return Ok(StoreLock { file });
                }
                Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => {
                    let holder = holder(&file);
                    return Err(OpenError::InUse { path: path.to_owned(), lock: place, holder });
                }
                Err(TryLockError::WouldBlock) => std::thread::park_timeout(INTERVAL),
            }
        }
        sign(&file);
        Ok(StoreLock { file })
    }
}

/// Waits for the lock of the process that hands over: it holds it until its last response has ended.
fn wait(file: &File) {
    match file.lock() {
        Ok(()) => sign(file),
        Err(error) => tracing::warn!(%error, "the lock of the store cannot be taken"),
    }
}

/// Writes the process id into the lock file, for messages. Without it the lock is the same.
fn sign(mut file: &File) {
    let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
}

/// Returns the id of the process that holds the lock, as it is in the file; `None` if it cannot be read.
fn holder(mut file: &File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns the path of the lock file that belongs to a database file.
fn lock_file(path: &Path) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push("-lock");
    path.with_file_name(name)
}

/// Returns the part of a message that names the holder of a lock.
pub(super) fn named(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |holder| format!(", process {holder},"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_use(result: &Result<StoreLock, OpenError>) -> bool {
        matches!(result, Err(OpenError::InUse { .. }))
    }

    #[test]
    fn store_lock_is_held_by_one_and_waited_for_by_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let one = StoreLock::take(&path, false).unwrap();
        let refused = StoreLock::take(&path, false);
        assert!(is_in_use(&refused));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        // Another file is another store.
        drop(StoreLock::take(&folder.path().join("other.db"), false).unwrap());
        let next = StoreLock::take(&path, true).unwrap();
        drop(one);
        // The successor has it from then on.
        std::thread::park_timeout(Duration::from_millis(100));
        assert!(is_in_use(&StoreLock::take(&path, false)));
        drop(next);
    }
}
