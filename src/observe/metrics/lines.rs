//! Line buffer with a writing thread: callers append lines in memory and never wait. A destination that fails or is too
//! slow loses lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sync::{Buffering, LineBuffer, Wakeup};

/// Capacity in bytes to which the buffer shrinks after a write.
const RETAINED_CAPACITY: usize = 256 * 1024;

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

/// Line buffer with the count of the lines that it lost.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: LineBuffer,
    lost: prometheus::IntCounter,
}

impl Lines {
    pub(super) fn new(terms: Buffering, lost: prometheus::IntCounter) -> Arc<Self> {
        Arc::new(Lines { buffer: LineBuffer::new(terms), lost })
    }

    /// Appends a line, or drops and counts it if too many bytes are unwritten.
    pub(super) fn append(&self, line: &[u8]) {
        if !self.buffer.append(line) {
            self.lost.inc();
        }
    }

    /// Reopens the file, which a log rotation may have renamed.
    pub(super) fn reopen(&self) {
        self.buffer.reopen();
    }

    /// Waits until all lines are written, but at most `within`: a pipe that is never read would block forever.
    pub(super) fn flush(&self, within: Duration) {
        self.buffer.flush(within);
    }

    /// Returns whether all lines are written.
    pub(super) fn is_written(&self) -> bool {
        self.buffer.is_written()
    }

    /// Stops the thread after it has written the remaining lines.
    pub(super) fn stop(&self) {
        self.buffer.stop();
    }

    fn count_lost(&self, lines: &[u8]) {
        self.lost.inc_by(memchr::memchr_iter(b'\n', lines).count() as u64);
    }

    /// Runs the writing thread until it is stopped. `taken` is the buffer that is being written. If it is not empty at
    /// the start, a panic has interrupted its write: its lines count as lost, because some of them may be.
    pub(super) fn run(&self, sink: &mut LineSink, taken: &mut Vec<u8>) {
        self.count_lost(taken);
        loop {
            let Wakeup { reopen, stop } = self.buffer.take(taken);
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
                taken.shrink_to(RETAINED_CAPACITY);
            }
            // Lines that arrived during the write are written before the thread ends.
            let more = self.buffer.on_written();
            if stop && !more {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lost: &prometheus::IntCounter) -> Arc<Lines> {
        Lines::new(
            Buffering { flush: Duration::from_millis(1), batch: 100, max_buffered: 1_000 },
            lost.clone(),
        )
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
