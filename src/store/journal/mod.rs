//! The journal: where what was settled is safe from the end of the process until the database has it.
//!
//! A process has two segments, which are files. Frames are appended to one of them with one write each; a write that
//! has returned is in the hands of the operating system, and outlives the process. The ledger's thread takes the
//! segment that is written to away, puts the other one in its place, and brings the frames into the database, in one
//! transaction with the number of the last one. So a segment that is found after its process has ended is brought in
//! from behind that number: nothing twice, nothing left out.
//!
//! Here live frames and files. Here must not live: what a frame means.

mod files;
mod frame;
mod sure;

pub(super) use files::{Leftover, exists, leftovers};
pub use frame::{Frame, Frames, opening, write};
pub(super) use sure::Sure;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use parking_lot::Mutex;

use files::Files;

/// A segment that grew beyond this, because the database did not take frames for a while, is cut back afterwards.
const KEPT_SIZE: u64 = 4 << 20;
/// The usual size of a segment, in bytes, beyond which frames are refused: an hour of 1,000 requests a second, while the
/// database takes nothing.
pub const SEGMENT: u64 = 1 << 30;

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    id: u64,
    writing: Mutex<Writing>,
    /// Holds the lock that tells others that this process lives.
    files: Files,
}

#[derive(Debug)]
struct Writing {
    current: Segment,
    /// The other one, unless it is being drained.
    spare: Option<Segment>,
    /// Number of the last frame.
    last: u64,
    buffer: Vec<u8>,
    /// Largest segment.
    limit: u64,
}

/// One of the two files.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    end: u64,
}

impl Segment {
    /// Whether there is a frame in it.
    fn is_empty(&self) -> bool {
        self.end <= frame::OPENING as u64
    }

    /// What was written, from its opening to its last frame.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.end).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl Journal {
    /// Makes a journal in a folder, which is made if it is not there. A segment that has come to `limit` bytes takes no
    /// more frames.
    pub(super) fn create(folder: &Path, limit: u64) -> io::Result<Self> {
        let (id, files, segments) = Files::create(folder)?;
        let [current, spare] = segments.map(|file| Segment { file, end: frame::OPENING as u64 });
        let spare = Some(spare);
        let writing =
            Mutex::new(Writing { current, spare, last: 0, buffer: Vec::with_capacity(1024), limit });
        Ok(Journal { id, writing, files })
    }

    /// A disk that is full, for tests.
    #[cfg(test)]
    pub(super) fn set_limit(&self, limit: u64) {
        self.writing.lock().limit = limit;
    }

    /// Which journal it is.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Appends a frame. When this returns, the end of the process does not lose it.
    pub(super) fn append(&self, payload: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut guard = self.writing.lock();
        let writing = &mut *guard;
        if writing.current.end >= writing.limit {
            return Err(io::Error::other("the journal is full"));
        }
        writing.buffer.clear();
        write(self.id, writing.last + 1, &mut writing.buffer, payload);
        // A write that fails half-way is written over by the next one.
        writing.current.file.write_all_at(&writing.buffer, writing.current.end)?;
        writing.current.end += writing.buffer.len() as u64;
        writing.last += 1;
        Ok(())
    }

    /// Takes the segment that is written to away, if there is a frame in it and another to take its place.
    pub(super) fn rotate(&self) -> Option<Segment> {
        let mut writing = self.writing.lock();
        if writing.current.is_empty() {
            return None;
        }
        let spare = writing.spare.take()?;
        Some(std::mem::replace(&mut writing.current, spare))
    }

    /// Takes back a segment whose frames are all in the database.
    pub(super) fn recycle(&self, mut segment: Segment) -> io::Result<()> {
        // What stands behind the frames to come is told from them by its numbers.
        if segment.end > KEPT_SIZE {
            segment.file.set_len(frame::OPENING as u64)?;
        }
        segment.end = frame::OPENING as u64;
        self.writing.lock().spare = Some(segment);
        Ok(())
    }

    /// Writes what is in the segments to the disk: for when the database does not take it.
    pub(super) fn sync(&self, drained: &Segment) -> io::Result<()> {
        drained.file.sync_data()?;
        let current = self.writing.lock().current.file.try_clone()?;
        current.sync_data()
    }

    /// Removes the files, if all that they hold is in the database. For the end: nothing is appended any more.
    pub(super) fn remove_if_drained(&self) {
        let writing = self.writing.lock();
        if writing.current.is_empty() && writing.spare.is_some() {
            // What stays is removed by whoever comes next.
            let _ = self.files.remove();
        }
    }
}
