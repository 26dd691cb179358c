//! Write-ahead journal: makes settlements durable against the end of the process until the database has them.
//!
//! A process has two segment files. `append` adds a frame to a queue in memory and returns a pending outcome; the
//! journal thread writes the whole queue with one write and sends the outcomes. Who waits for an outcome wakes the thread,
//! after the other requests of its worker have run: their frames are then in the same write. A stalled disk therefore blocks this
//! thread only, never a worker. A completed write is in the page cache and survives the process. The ledger's thread
//! swaps the current segment for the spare one and applies its frames to the database, in one transaction with the
//! number of the last frame. A segment of an ended process is replayed from behind that number: each frame exactly
//! once.
//!
//! Frames that cannot be written stay in memory in order, and the write is retried. Frames and files live here. Here
//! must not live: the meaning of a payload.

mod drain;
mod files;
mod frame;
mod pending_write;
mod segment;
#[cfg(test)]
mod tests;
mod thread;

pub(super) use drain::Drain;
pub(super) use files::orphaned;
pub use frame::{JournalFrame, JournalFrames, opening, write};
pub use pending_write::PendingWrite;
pub(super) use segment::{Pieces, Segment};
pub(super) use thread::JournalThread;

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Settled;
use crate::store::{Pending, StoreError};
use files::SegmentFiles;

/// Segment size, in bytes, above which a recycled segment is truncated. It grows beyond this when the database does not
/// accept frames for a while.
const RETAINED_SIZE: u64 = 4 << 20;
/// Default limit of a segment, in bytes, beyond which frames are rejected: an hour at 1,000 requests a second while the
/// database accepts nothing.
pub const DEFAULT_SEGMENT_LIMIT: u64 = 1 << 30;
/// Maximum bytes of unwritten frames in memory while no file accepts writes.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Capacity, in bytes, to which the write buffer shrinks after a write.
const RETAINED_BUFFER: usize = 256 << 10;
/// Interval between attempts to write after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Duration of one write after which the journal counts as failing, so that no further reservations are made.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

type WriteAck = oneshot::Sender<Result<(), StoreError>>;

/// Journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    id: u64,
    /// Frames that are not written yet. This lock is never held during a system call, because workers take it.
    queue: Mutex<Queue>,
    wake: Condvar,
    /// True while writes fail. Changed under the lock of the queue, so that each `append` either sees the failure or
    /// has its outcome in `waiting` when the outcomes of the failed write are sent.
    failing: AtomicBool,
    /// Start of the current write, in milliseconds since `started`, plus one; zero if no write is in progress.
    writing_since: AtomicU64,
    started: Instant,
    /// Segment files. This lock is held during writes; workers never take it.
    writing: Mutex<Writing>,
    /// Files with the lock that shows other processes that this one lives.
    files: SegmentFiles,
}

#[derive(Debug, Default)]
struct Queue {
    /// Complete frames, concatenated.
    frames: Vec<u8>,
    /// Receivers of the outcome of these frames.
    waiting: Vec<WriteAck>,
    /// Bytes that the writer took from `frames` and has not written yet.
    writing_bytes: usize,
    /// Number of the last frame.
    last: u64,
    /// True while the thread waits on `wake`, until it is woken. Saves notifications while the thread runs.
    sleeping: bool,
    closed: bool,
}

#[derive(Debug)]
struct Writing {
    current: Segment,
    /// The second segment; `None` while it is drained.
    spare: Option<Segment>,
    /// Frames taken from the queue and not written yet, with the receivers of their outcome.
    batch: Vec<u8>,
    waiting: Vec<WriteAck>,
    /// Size limit of a segment, in bytes.
    limit: u64,
}

impl Writing {
    fn write(&mut self) -> io::Result<()> {
        if self.current.end >= self.limit {
            return Err(io::Error::other("the journal is full"));
        }
        // A partial write leaves `end` unchanged: the next attempt overwrites it.
        self.current.file.write_all_at(&self.batch, self.current.end)?;
        self.current.end = self.current.end.saturating_add(self.batch.len() as u64);
        self.batch.clear();
        self.batch.shrink_to(RETAINED_BUFFER);
        Ok(())
    }
}

impl Journal {
    /// Creates a journal in `folder`, which is created if necessary. A segment that has reached `limit` bytes accepts
    /// no further frames.
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
            started: Instant::now(),
            writing: Mutex::new(Writing { current, spare, batch, waiting, limit }),
            files,
        })
    }

    /// Simulates a full disk.
    #[cfg(test)]
    pub(super) fn set_limit(&self, limit: u64) {
        self.writing.lock().limit = limit;
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if the files are still where they were created. Writes to removed files would be lost.
    pub(super) fn files_exist(&self) -> bool {
        self.files.exist()
    }

    /// Returns true if writes fail or stall. No reservation should be made then, because its charge might be lost.
    pub(super) fn is_failing(&self) -> bool {
        if self.failing.load(Ordering::Acquire) {
            return true;
        }
        match self.writing_since.load(Ordering::Relaxed) {
            0 => false,
            since => {
                self.millis().saturating_sub(since) > u64::try_from(STALL_TIMEOUT.as_millis()).unwrap_or(0)
            }
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Appends a frame. An `Ok` outcome means that the frame survives the end of the process; otherwise it is in memory
    /// only, if the queue has space for it. The thread is woken when the outcome is waited for or dropped.
    pub(super) fn append(self: &Arc<Self>, payload: impl FnOnce(&mut Vec<u8>)) -> Settled {
        let mut queue = self.queue.lock();
        if queue.frames.len().saturating_add(queue.writing_bytes) >= MAX_QUEUED_BYTES {
            return Settled::Known(Err(StoreError::Failed(
                "the journal cannot be written, and its queue is full".to_owned(),
            )));
        }
        // Number and frame under one lock: replay ends at a gap in the sequence.
        let number = queue.last.saturating_add(1);
        write(self.id, number, &mut queue.frames, payload);
        queue.last = number;
        // The frame stays in the queue and the thread retries it. Do not let the caller wait for that.
        if self.failing.load(Ordering::Relaxed) {
            return Settled::Known(Err(StoreError::Failed("the journal cannot be written".to_owned())));
        }
        let (outcome, pending) = Pending::new();
        queue.waiting.push(outcome);
        let writer = queue.sleeping.then(|| self.clone());
        drop(queue);
        Settled::Pending(PendingWrite::new(pending, writer))
    }

    /// Wakes the thread if it sleeps while there are frames to write.
    fn wake_writer(&self) {
        let mut queue = self.queue.lock();
        // It may have written the frame of this caller, and sleep again: another request of the turn has woken it.
        let is_due = queue.sleeping && !queue.frames.is_empty();
        queue.sleeping &= !is_due;
        drop(queue);
        if is_due {
            self.wake.notify_one();
        }
    }

    /// Writes the frames in the queue to the current segment.
    pub(super) fn write_queued(&self) -> io::Result<()> {
        self.write_all(&mut self.writing.lock())
    }

    fn write_all(&self, writing: &mut Writing) -> io::Result<()> {
        loop {
            if writing.batch.is_empty() {
                // Swap the buffers under the lock and write outside it, so that `append` never waits for the disk.
                let mut queue = self.queue.lock();
                if queue.frames.is_empty() {
                    return Ok(());
                }
                std::mem::swap(&mut queue.frames, &mut writing.batch);
                writing.waiting.append(&mut queue.waiting);
                queue.writing_bytes = writing.batch.len();
            }
            // A write that hangs returns no error: `is_failing` measures it from this time.
            self.writing_since.store(self.millis(), Ordering::Relaxed);
            let written = writing.write();
            self.writing_since.store(0, Ordering::Relaxed);
            let mut queue = self.queue.lock();
            self.failing.store(written.is_err(), Ordering::Release);
            match written {
                Ok(()) => queue.writing_bytes = 0,
                // Frames that queued up behind the failed batch are not written either: fail their receivers now, too.
                Err(_) => writing.waiting.append(&mut queue.waiting),
            }
            drop(queue);
            for waiting in writing.waiting.drain(..) {
                let outcome = match &written {
                    Ok(()) => Ok(()),
                    Err(error) => Err(StoreError::Failed(error.to_string())),
                };
                // The send fails if the receiver is gone; that is fine.
                let _ = waiting.send(outcome);
            }
            written?;
        }
    }

    /// Swaps the current segment for the spare one and returns it for draining. Returns `None` if it has no frames or
    /// there is no spare. Everything appended before is in one of the two segments, unless writes fail.
    pub(super) fn rotate(&self) -> Option<Segment> {
        let mut writing = self.writing.lock();
        // A failure was already sent to the receivers.
        let _ = self.write_all(&mut writing);
        if writing.current.is_empty() {
            return None;
        }
        let spare = writing.spare.take()?;
        Some(std::mem::replace(&mut writing.current, spare))
    }

    /// Takes back a segment whose frames are all in the database.
    pub(super) fn recycle(&self, mut segment: Segment) -> io::Result<()> {
        // Old frames may stay behind the new ones: their numbers do not continue the sequence, so readers stop there.
        if segment.end > RETAINED_SIZE {
            segment.file.set_len(frame::OPENING as u64)?;
        }
        segment.end = frame::OPENING as u64;
        self.writing.lock().spare = Some(segment);
        Ok(())
    }

    /// Flushes both segments to the disk (`fdatasync`). Called while the database does not accept frames.
    pub(super) fn sync(&self, drained: &Segment) -> io::Result<()> {
        drained.file.sync_data()?;
        // A clone, so that writes do not wait for the lock during a flush, which may take seconds.
        let current = self.writing.lock().current.file.try_clone()?;
        current.sync_data()
    }

    /// Removes the files if all frames are in the database. Called at the end; nothing may be appended afterwards.
    pub(super) fn remove_if_drained(&self) {
        let writing = self.writing.lock();
        if writing.current.is_empty() && writing.spare.is_some() && writing.batch.is_empty() {
            // If this fails, the next process replays the journal (without effect) and removes it.
            let _ = self.files.remove();
        }
    }
}
