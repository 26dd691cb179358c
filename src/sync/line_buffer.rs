//! Line buffer between threads that append and one thread that writes.

use std::time::{Duration, Instant};

use std::sync::PoisonError;

use super::{Condvar, Mutex, MutexGuard};

/// Buffering parameters.
#[derive(Clone, Copy, Debug)]
pub struct Buffering {
    /// Maximum time before a line is written.
    pub flush: Duration,
    /// Size in bytes at which the buffer is written early.
    pub batch: usize,
    /// Maximum number of unwritten bytes; beyond it lines are dropped.
    pub max_buffered: usize,
}

/// Reason for which the writing thread runs, beside the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// The destination must be opened again after these lines.
    pub reopen: bool,
    /// The thread must end when all lines are written.
    pub stop: bool,
}

/// Line buffer. Appending never waits for the destination.
#[derive(Debug)]
pub struct LineBuffer {
    state: Mutex<State>,
    wake: Condvar,
    written: Condvar,
    terms: Buffering,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// A write is in progress.
    writing: bool,
    /// A flush waits: the thread must not wait for a full batch.
    flushing: bool,
    wakeup: Wakeup,
}

impl LineBuffer {
    /// Creates an empty buffer.
    pub fn new(terms: Buffering) -> LineBuffer {
        LineBuffer {
            state: Mutex::new(State::default()),
            wake: Condvar::new(),
            written: Condvar::new(),
            terms,
        }
    }

    /// Appends a line. Returns false, and drops the line, if too many bytes are unwritten.
    #[must_use]
    pub fn append(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        let before = state.lines.len();
        if before > self.terms.max_buffered {
            return false;
        }
        state.lines.extend_from_slice(line);
        let after = state.lines.len();
        drop(state);
        // Notify only when the batch size is crossed; otherwise the thread's own time-out is soon enough.
        if before < self.terms.batch && after >= self.terms.batch {
            self.wake.notify_one();
        }
        true
    }

    /// Requests that the destination is opened again.
    pub fn reopen(&self) {
        self.lock().wakeup.reopen = true;
        self.wake.notify_one();
    }

    /// Requests that the thread ends after it has written the remaining lines.
    pub fn stop(&self) {
        self.lock().wakeup.stop = true;
        self.wake.notify_one();
    }

    /// Waits until all lines are written, but at most `within`: a pipe that is never read would block forever.
    pub fn flush(&self, within: Duration) {
        let end = Instant::now() + within;
        let mut state = self.lock();
        while !state.lines.is_empty() || state.writing {
            // A notification alone would be lost if the thread is not waiting at this moment.
            state.flushing = true;
            self.wake.notify_one();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.written.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether all lines are written.
    pub fn is_written(&self) -> bool {
        let state = self.lock();
        state.lines.is_empty() && !state.writing
    }

    /// Waits for lines and moves them to `taken`, which is cleared first. Called by the writing thread, which calls
    /// [`LineBuffer::on_written`] after the write.
    pub fn take(&self, taken: &mut Vec<u8>) -> Wakeup {
        let mut state = self.lock();
        let due = state.flushing || state.wakeup.stop || state.wakeup.reopen;
        if !due && state.lines.len() < self.terms.batch {
            let waited = self.wake.wait_timeout(state, self.terms.flush);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Swap two buffers, so that nothing is allocated per line.
        taken.clear();
        std::mem::swap(&mut state.lines, taken);
        state.writing = !taken.is_empty();
        let wakeup = state.wakeup;
        (state.flushing, state.wakeup.reopen) = (false, false);
        wakeup
    }

    /// Ends a write. Returns whether lines have arrived since [`LineBuffer::take`].
    pub fn on_written(&self) -> bool {
        let mut state = self.lock();
        state.writing = false;
        self.written.notify_all();
        !state.lines.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(model_check)))]
mod tests {
    use super::*;

    #[test]
    fn line_buffer_drops_lines_beyond_its_bound() {
        let bound = 1_000;
        let buffer =
            LineBuffer::new(Buffering { flush: Duration::ZERO, batch: usize::MAX, max_buffered: bound });
        let line = [b'x'; 300];
        let accepted = (0..1_000).filter(|_| buffer.append(&line)).count();
        assert!(accepted * line.len() <= bound + line.len(), "{accepted} lines");
        let mut taken = Vec::new();
        buffer.take(&mut taken);
        assert_eq!(taken.len(), accepted * line.len());
        assert!(buffer.append(&line), "there is room again");
    }
}
