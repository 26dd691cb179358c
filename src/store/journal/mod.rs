//! The journal: where what was settled is safe from the end of the process until the database has it.
//!
//! A process has two segments, which are files. Whoever settles appends a frame to a queue in memory and waits for the
//! outcome; a thread writes all frames of the queue with one write, and tells the outcome. So a disk that stands still
//! stops this thread and none of those that serve requests. A write that has returned is in the hands of the operating
//! system, and outlives the process. The ledger's thread takes the segment that is written to away, puts the other one
//! in its place, and brings the frames into the database, in one transaction with the number of the last one. So a
//! segment that is found after its process has ended is brought in from behind that number: nothing twice, nothing left
//! out.
//!
//! What no file takes stays in memory, in its order, and is tried again.
//!
//! Here live frames and files. Here must not live: what a frame means.

mod files;
mod frame;
mod segment;
#[cfg(test)]
mod tests;
mod thread;

pub(super) use files::{any, exists, leftovers, sync_folder};
pub use frame::{Frame, Frames, opening, write};
pub(super) use segment::{Pieces, Segment};
pub(super) use thread::JournalThread;

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::ledger::Settled;
use super::{Pending, StoreError};
use files::SegmentFiles;

/// A segment that grew beyond this, because the database did not take frames for a while, is cut back afterwards.
const KEPT_SIZE: u64 = 4 << 20;
/// The usual size of a segment, in bytes, beyond which frames are refused: an hour of 1,000 requests a second, while
/// the database takes nothing.
pub const SEGMENT: u64 = 1 << 30;
/// What no file took is kept in memory up to this size, until one does.
const UNWRITTEN: usize = 16 << 20;
/// A buffer of more bytes is not kept after it was written.
const KEPT_BUFFER: usize = 256 << 10;
/// How often it is tried again to write what no file took.
const RETRY: Duration = Duration::from_millis(50);
/// After a write has taken this long, nothing more is begun that would have to be written.
const STALLED: Duration = Duration::from_secs(5);

type Waiting = oneshot::Sender<Result<(), StoreError>>;

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    id: u64,
    /// What was settled and not written yet. It is never held during a system call.
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Whether no file takes anything. Changed under the lock of the queue, so that no frame is left out.
    failing: AtomicBool,
    /// When the write began that is under way, in milliseconds since `begun`, plus one; zero if there is none.
    writing_since: AtomicU64,
    begun: Instant,
    /// The files. It is held while they are written; whoever serves requests never takes it.
    writing: Mutex<Writing>,
    /// Holds the lock that tells others that this process lives.
    files: SegmentFiles,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whole frames.
    frames: Vec<u8>,
    /// Those who wait for their outcome.
    waiting: Vec<Waiting>,
    /// Bytes that were taken from here and are not written yet.
    taken: usize,
    /// Number of the last frame.
    last: u64,
    /// The thread sleeps until there is something.
    sleeping: bool,
    closed: bool,
}

#[derive(Debug)]
struct Writing {
    current: Segment,
    /// The other one, unless it is being drained.
    spare: Option<Segment>,
    /// What was taken from the queue and is not written yet, with those who wait for it.
    batch: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Largest segment.
    limit: u64,
}

impl Writing {
    fn write(&mut self) -> io::Result<()> {
        if self.current.end >= self.limit {
            return Err(io::Error::other("the journal is full"));
        }
        // A write that fails half-way is written over by the next one.
        self.current.file.write_all_at(&self.batch, self.current.end)?;
        self.current.end += self.batch.len() as u64;
        self.batch.clear();
        self.batch.shrink_to(KEPT_BUFFER);
        Ok(())
    }
}

impl Journal {
    /// Makes a journal in a folder, which is made if it is not there. A segment that has come to `limit` bytes takes no
    /// more frames.
    pub(super) fn create(folder: &Path, limit: u64) -> io::Result<Self> {
        let (id, files, segments) = SegmentFiles::create(folder)?;
        let [current, spare] = segments.map(|file| Segment { file, end: frame::OPENING as u64 });
        let (spare, batch, waiting) = (Some(spare), Vec::new(), Vec::new());
        Ok(Journal {
            id,
            queue: Mutex::default(),
            wake: Condvar::new(),
            failing: AtomicBool::new(false),
            writing_since: AtomicU64::new(0),
            begun: Instant::now(),
            writing: Mutex::new(Writing { current, spare, batch, waiting, limit }),
            files,
        })
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

    /// Whether the files stand where they were made. What is written to files that were removed is lost.
    pub(super) fn is_there(&self) -> bool {
        self.files.are_there()
    }

    /// Whether no file takes anything. Nothing should be held then, for it could not be charged for certain.
    pub(super) fn is_failing(&self) -> bool {
        if self.failing.load(Ordering::Acquire) {
            return true;
        }
        match self.writing_since.load(Ordering::Relaxed) {
            0 => false,
            since => self.millis().saturating_sub(since) > u64::try_from(STALLED.as_millis()).unwrap_or(0),
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Appends a frame. When the outcome is good, the end of the process does not lose it; otherwise it is in memory
    /// only.
    pub(super) fn append(&self, payload: impl FnOnce(&mut Vec<u8>)) -> Settled {
        let mut queue = self.queue.lock();
        if queue.frames.len().saturating_add(queue.taken) >= UNWRITTEN {
            return Settled::Known(Err(StoreError::Failed(
                "the journal takes nothing, and memory is full".to_owned(),
            )));
        }
        let number = queue.last.saturating_add(1);
        write(self.id, number, &mut queue.frames, payload);
        queue.last = number;
        if self.failing.load(Ordering::Relaxed) {
            return Settled::Known(Err(StoreError::Failed("the journal takes nothing".to_owned())));
        }
        let (outcome, pending) = Pending::new();
        queue.waiting.push(outcome);
        let sleeping = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if sleeping {
            self.wake.notify_one();
        }
        Settled::Pending(pending)
    }

    /// Writes what waits in the queue.
    pub(super) fn write_queued(&self) -> io::Result<()> {
        self.write_all(&mut self.writing.lock())
    }

    fn write_all(&self, writing: &mut Writing) -> io::Result<()> {
        loop {
            if writing.batch.is_empty() {
                let mut queue = self.queue.lock();
                if queue.frames.is_empty() {
                    return Ok(());
                }
                std::mem::swap(&mut queue.frames, &mut writing.batch);
                writing.waiting.append(&mut queue.waiting);
                queue.taken = writing.batch.len();
            }
            self.writing_since.store(self.millis(), Ordering::Relaxed);
            let written = writing.write();
            self.writing_since.store(0, Ordering::Relaxed);
            let mut queue = self.queue.lock();
            self.failing.store(written.is_err(), Ordering::Release);
            match written {
                Ok(()) => queue.taken = 0,
                // What waits behind it waits as long.
                Err(_) => writing.waiting.append(&mut queue.waiting),
            }
            drop(queue);
            for waiting in writing.waiting.drain(..) {
                let outcome = match &written {
                    Ok(()) => Ok(()),
                    Err(error) => Err(StoreError::Failed(error.to_string())),
                };
                // Whoever asked may have stopped waiting.
                let _ = waiting.send(outcome);
            }
            written?;
        }
    }

    /// Takes the segment that is written to away, if there is a frame in it and another to take its place. What was
    /// settled before is in one of the two, as far as a file takes it.
    pub(super) fn rotate(&self) -> Option<Segment> {
        let mut writing = self.writing.lock();
        // Those who wait have been told.
        let _ = self.write_all(&mut writing);
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
        if writing.current.is_empty() && writing.spare.is_some() && writing.batch.is_empty() {
            // What stays is removed by whoever comes next.
            let _ = self.files.remove();
        }
    }
}
