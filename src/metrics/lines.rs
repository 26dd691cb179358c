//! Line buffer with a writing thread: callers append lines in memory and never wait. A destination that fails or is too
//! slow loses lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Capacity in bytes to which the buffer shrinks after a write.
const KEPT: usize = 256 * 1024;

/// Destination of lines.
#[derive(Debug)]
pub(super) enum LineSink {
    Stdout,
    Stderr,
    File(File, PathBuf),
}

/// Opens a file for appending, and creates it if needed.
pub(super) fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl LineSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            LineSink::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            LineSink::Stderr => io::stderr().lock().write_all(lines),
            LineSink::File(file, _) => file.write_all(lines),
        }
    }
}

/// Buffering parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Maximum time before a line is written.
    pub(super) flush: Duration,
    /// Size in bytes at which the buffer is written early.
    pub(super) batch: usize,
    /// Maximum number of unwritten bytes; beyond it lines are dropped.
    pub(super) max_buffered: usize,
}

/// Line buffer.
#[derive(Debug)]
pub(super) struct Lines {
    state: Mutex<State>,
    wake: Condvar,
    written: Condvar,
    terms: Terms,
    lost: prometheus::IntCounter,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// A write is in progress.
    writing: bool,
    reopen: bool,
    stop: bool,
}

impl Lines {
    pub(super) fn new(terms: Terms, lost: prometheus::IntCounter) -> Arc<Self> {
        let (wake, written) = (Condvar::new(), Condvar::new());
        Arc::new(Lines { state: Mutex::default(), wake, written, terms, lost })
    }

    /// Appends a line, or drops and counts it if too many bytes are unwritten.
    pub(super) fn append(&self, line: &[u8]) {
        let mut state = self.state.lock();
        let before = state.lines.len();
        if before > self.terms.max_buffered {
            drop(state);
            self.lost.inc();
            return;
        }
        state.lines.extend_from_slice(line);
        let after = state.lines.len();
        drop(state);
        // Notify only when the batch size is crossed; otherwise the thread's own time-out is soon enough.
        if before < self.terms.batch && after >= self.terms.batch {
            self.wake.notify_one();
        }
    }

    /// Reopens the file, which a log rotation may have renamed.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.wake.notify_one();
    }

    /// Waits until all lines are written, but at most `within`: a pipe that is never read would block forever.
    pub(super) fn flush(&self, within: Duration) {
        let end = Instant::now() + within;
        let mut state = self.state.lock();
        self.wake.notify_one();
        while !state.lines.is_empty() || state.writing {
            if self.written.wait_until(&mut state, end).timed_out() {
                return;
            }
        }
    }

    /// Returns whether all lines are written.
    pub(super) fn is_written(&self) -> bool {
        let state = self.state.lock();
        state.lines.is_empty() && !state.writing
    }

    /// Stops the thread after it has written the remaining lines.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    fn count_lost(&self, lines: &[u8]) {
        self.lost.inc_by(memchr::memchr_iter(b'\n', lines).count() as u64);
    }

    /// Runs the writing thread until it is stopped. `taken` is the buffer that is being written. If it is not empty at
    /// the start, a panic has interrupted its write: its lines count as lost, because some of them may be.
    pub(super) fn run(&self, sink: &mut LineSink, taken: &mut Vec<u8>) {
        self.count_lost(taken);
        loop {
            let (reopen, stop) = {
                let mut state = self.state.lock();
                if !state.stop && state.lines.len() < self.terms.batch {
                    self.wake.wait_for(&mut state, self.terms.flush);
                }
                // Swap two buffers, so that nothing is allocated per line.
                taken.clear();
                std::mem::swap(&mut state.lines, taken);
                state.writing = !taken.is_empty();
                (std::mem::take(&mut state.reopen), state.stop)
            };
            // Before the write: a line that was appended after the request to reopen must not get into the renamed
            // file, which may be compressed already.
            if reopen
                && let LineSink::File(file, path) = sink
                && let Ok(new) = open(path)
            {
                *file = new;
            }
            if !taken.is_empty() {
                // A failed write is not retried: a full disk must not stop the thread or fill the memory.
                if sink.write(taken).is_err() {
                    self.count_lost(taken);
                }
                taken.clear();
                taken.shrink_to(KEPT);
            }
            let mut state = self.state.lock();
            state.writing = false;
            self.written.notify_all();
            // Lines that arrived during the write are written before the thread ends.
            if stop && state.lines.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lost: &prometheus::IntCounter) -> Arc<Lines> {
        Lines::new(Terms { flush: Duration::from_millis(1), batch: 100, max_buffered: 1_000 }, lost.clone())
    }

    #[test]
    fn lines_after_a_request_to_reopen_go_to_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join("log"), folder.path().join("log.1"));
        let lost = prometheus::IntCounter::new("lost", "lines").unwrap();
        let lines = lines(&lost);
        let mut sink = LineSink::File(open(&path).unwrap(), path.clone());
        std::fs::rename(&path, &renamed).unwrap();
        lines.reopen();
        lines.append(b"one\n");
        lines.stop();
        lines.run(&mut sink, &mut Vec::new());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(&renamed).unwrap(), "");
    }

    #[test]
    fn lines_of_a_write_that_panicked_are_counted_as_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lost = prometheus::IntCounter::new("lost", "lines").unwrap();
        let lines = lines(&lost);
        let mut sink = LineSink::File(open(&path).unwrap(), path.clone());
        // The supervisor restarts the thread with the buffer that it was writing.
        let mut taken = b"one\ntwo\n".to_vec();
        lines.append(b"three\n");
        lines.stop();
        lines.run(&mut sink, &mut taken);
        assert_eq!(lost.get(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        assert!(lines.is_written());
    }
}
