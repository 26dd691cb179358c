//! Files of journals: those of this process, and those that ended processes left.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rand::Rng as _;

use super::frame;
use super::segment::Pieces;
use crate::store::journal_files::{LOCK, SEGMENTS, id_of, path, sync_folder};

/// Maximum number of attempts to find an unused id.
const MAX_TRIES: usize = 16;

/// Files of one journal, locked. Dropping this value does not remove them: the next process replays their frames.
#[derive(Debug)]
pub(super) struct SegmentFiles {
    folder: PathBuf,
    id: u64,
    lock: File,
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Opens a lock file and takes the lock. Returns `None` if another process holds it or has removed the file meanwhile.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = options().open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Another process may have removed the file between open and lock: the lock then guards an unlinked inode.
    match path.metadata() {
        Ok(there) if there.ino() == file.metadata()?.ino() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl SegmentFiles {
    /// Creates the files of a new journal with a random id. Returns the id, the files and the two segments.
    pub(super) fn create(folder: &Path) -> io::Result<(u64, Self, [File; 2])> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for _ in 0..MAX_TRIES {
            // 63 bits, because the id is stored in SQLite, whose integers are signed.
            let id = rand::rng().next_u64() >> 1;
            let Some(lock) = lock(&path(folder, id, LOCK))? else { continue };
            let [a, b] = SEGMENTS.map(|ending| {
                let file = options().create_new(true).open(path(folder, id, ending))?;
                file.write_all_at(&frame::opening(id), 0).map(|()| file)
            });
            let files = SegmentFiles { folder: folder.to_owned(), id, lock };
            let segments = [a?, b?];
            // Make the directory entries durable against a loss of power.
            sync_folder(folder)?;
            return Ok((id, files, segments));
        }
        Err(io::Error::other("no journal can be created"))
    }

    /// Returns true if the lock file is still where it was created.
    pub(super) fn exist(&self) -> bool {
        let there = |file: &File| -> io::Result<bool> {
            let (there, own) = (path(&self.folder, self.id, LOCK).metadata()?, file.metadata()?);
            Ok((there.dev(), there.ino()) == (own.dev(), own.ino()))
        };
        there(&self.lock).unwrap_or(false)
    }

    /// Removes the files.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.folder, self.id)
    }
}

/// Removes the files of a journal. The lock file goes last: other processes find a journal by its lock file.
fn remove(folder: &Path, id: u64) -> io::Result<()> {
    for ending in SEGMENTS.into_iter().chain([LOCK]) {
        match std::fs::remove_file(path(folder, id, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Journal of a process that has ended, locked for replay.
#[derive(Debug)]
pub(crate) struct OrphanedJournal {
    /// Id of the journal.
    pub(crate) id: u64,
    /// Segments, the one with the earlier frames first.
    pub(crate) segments: Vec<Pieces>,
    folder: PathBuf,
    _lock: File,
}

impl OrphanedJournal {
    /// Removes the files. Call this only after all frames are in the database.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove(&self.folder, self.id)
    }
}

/// Returns an iterator over the journals in a folder whose processes have ended. It locks them one at a time.
pub(crate) fn orphaned(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<OrphanedJournal>>> {
    let mut found = Vec::new();
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                let path = entry?.path();
                if let Some((id, LOCK)) = id_of(&path) {
                    found.push((id, path));
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = folder.to_owned();
    Ok(found.into_iter().filter_map(move |(id, path)| {
        let lock = lock(&path).transpose()?;
        Some(lock.and_then(|lock| read(&folder, id, lock)))
    }))
}

fn read(folder: &Path, id: u64, lock: File) -> io::Result<OrphanedJournal> {
    let mut segments = Vec::new();
    for ending in SEGMENTS {
        match File::open(path(folder, id, ending)) {
            Ok(file) => {
                let mut pieces = Pieces::new(file, u64::MAX)?;
                segments.push((pieces.first()?.unwrap_or(0), pieces));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    segments.sort_by_key(|(first, _)| *first);
    let segments = segments.into_iter().map(|(_, pieces)| pieces).collect();
    Ok(OrphanedJournal { id, segments, folder: folder.to_owned(), _lock: lock })
}
