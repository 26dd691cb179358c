//! Lines that a thread writes: whoever has one appends it to a buffer in memory and goes on. A destination that fails or does
//! not keep up costs lines, and nobody's time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A buffer of more bytes is not kept after it was written.
const KEPT: usize = 256 * 1024;

/// Where lines go.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    Stderr,
    File(File, PathBuf),
}

/// Opens a file to append to.
pub(super) fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Sink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            Sink::Stderr => io::stderr().lock().write_all(lines),
            Sink::File(file, _) => file.write_all(lines),
        }
    }
}

/// How lines are gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long a line waits at most until it is written.
    pub(super) flush: Duration,
    /// The buffer is taken over early when it holds this many bytes.
    pub(super) batch: usize,
    /// Beyond this many unwritten bytes lines are lost.
    pub(super) full: usize,
}

/// The buffer.
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
    /// Some are being written.
    writing: bool,
    reopen: bool,
    stop: bool,
}

impl Lines {
    pub(super) fn new(terms: Terms, lost: prometheus::IntCounter) -> Arc<Self> {
        let (wake, written) = (Condvar::new(), Condvar::new());
        Arc::new(Lines { state: Mutex::default(), wake, written, terms, lost })
    }

    /// Appends a line, unless too much waits to be written.
    pub(super) fn append(&self, line: &[u8]) {
        let mut state = self.state.lock();
        let before = state.lines.len();
        if before > self.terms.full {
            drop(state);
            self.lost.inc();
            return;
        }
        state.lines.extend_from_slice(line);
        let after = state.lines.len();
        drop(state);
        // The thread wakes by itself in time; it is called only when the buffer has become large.
        if before < self.terms.batch && after >= self.terms.batch {
            self.wake.notify_one();
        }
    }

    /// Opens the file again, which may have been renamed by a log rotation.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.wake.notify_one();
    }

    /// Waits until all lines are written, but not longer than this: a pipe that nobody reads takes no line for ever.
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

    /// Whether no line waits to be written.
    pub(super) fn is_written(&self) -> bool {
        let state = self.state.lock();
        state.lines.is_empty() && !state.writing
    }

    /// Tells the thread to end when it has written what there is.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// Writes lines until it is told to stop. `taken` is what is being written.
    pub(super) fn run(&self, sink: &mut Sink, taken: &mut Vec<u8>) {
        loop {
            let (reopen, stop) = {
                let mut state = self.state.lock();
                if !state.stop && state.lines.len() < self.terms.batch {
                    self.wake.wait_for(&mut state, self.terms.flush);
                }
                // Two buffers change places, so that nothing is allocated from line to line.
                taken.clear();
                std::mem::swap(&mut state.lines, taken);
                state.writing = !taken.is_empty();
                (std::mem::take(&mut state.reopen), state.stop)
            };
            if !taken.is_empty() {
                if sink.write(taken).is_err() {
                    self.lost.inc_by(memchr::memchr_iter(b'\n', taken).count() as u64);
                }
                taken.clear();
                taken.shrink_to(KEPT);
            }
            if reopen
                && let Sink::File(file, path) = sink
                && let Ok(new) = open(path)
            {
                *file = new;
            }
            let mut state = self.state.lock();
            state.writing = false;
            self.written.notify_all();
            if stop && state.lines.is_empty() {
                return;
            }
        }
    }
}
