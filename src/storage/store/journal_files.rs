//! Names of journal files. A journal belongs to the database file or the gateway, so both the schema of the file, which
//! must notice a lost file, and the journal itself know them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Extension of the lock file. A process holds a lock on it as long as it lives.
pub(crate) const LOCK: &str = "lock";
/// Extensions of the two segments.
pub(crate) const SEGMENTS: [&str; 2] = ["a", "b"];

/// Returns the path of a journal file with this extension.
pub(crate) fn path(folder: &Path, id: u64, ending: &str) -> PathBuf {
    folder.join(format!("{id:016x}.{ending}"))
}

/// Makes the directory entries of a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns true if a journal has files.
pub(crate) fn exists(folder: &Path, id: u64) -> bool {
    path(folder, id, LOCK).exists()
}

/// Returns true if a folder holds files of any journal.
pub(crate) fn any(folder: &Path) -> io::Result<bool> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.any(|entry| entry.is_ok_and(|entry| id_of(&entry.path()).is_some()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Parses a file name into the journal id and the extension. Returns `None` if it is not a journal file.
pub(crate) fn id_of(path: &Path) -> Option<(u64, &str)> {
    let id = u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()?;
    let ending = path.extension()?.to_str()?;
    (ending == LOCK || SEGMENTS.contains(&ending)).then_some((id, ending))
}
