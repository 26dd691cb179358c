//! Process log on standard error, written by a dedicated thread: logging never fails, panics or blocks the caller, even
//! if standard error is a full disk, a closed pipe or a pipe that is not read.

use std::io;
use std::panic::PanicHookInfo;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prometheus::IntCounter;

use super::lines::{LineSink, Lines};
use super::table;
use sync::Buffering;
use sync::supervise::{self, Supervised};

const TERMS: Buffering = Buffering {
    // Each line wakes the thread; the time-out covers lines that arrive while it writes.
    flush: Duration::from_secs(5),
    batch: 1,
    max_buffered: 1 << 20,
};
/// Maximum time that the end of the process waits for unwritten lines.
const END: Duration = Duration::from_secs(1);

/// Log thread and its unwritten lines.
#[derive(Debug)]
struct Log {
    lines: Arc<Lines>,
    lost: IntCounter,
    /// `None` if the thread could not be started; then all lines are lost.
    thread: Option<Arc<Supervised>>,
}

static LOG: LazyLock<Option<Log>> = LazyLock::new(|| {
    let lost = IntCounter::new(table::LOG_LOST.name, table::LOG_LOST.help).ok()?;
    let lines = Lines::new(TERMS, lost.clone());
    let own = lines.clone();
    let (mut sink, mut taken) = (LineSink::Stderr, Vec::new());
    // The thread is detached and ends with the process.
    let thread = supervise::spawn("log", move || own.run(&mut sink, &mut taken)).ok();
    Some(Log { lines, lost, thread: thread.map(|(supervised, _)| supervised) })
});

/// Log writer for `tracing`. Takes whole lines and never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWriter;

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(log) = &*LOG {
            log.lines.append(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the counter of lost lines, which [`super::Metrics`] registers.
pub(super) fn lost() -> Option<IntCounter> {
    LOG.as_ref().map(|log| log.lost.clone())
}

/// Returns the log thread, or `None` if it could not be started.
pub fn thread() -> Option<Arc<Supervised>> {
    LOG.as_ref().and_then(|log| log.thread.clone())
}

/// Flushes unwritten lines at the end of the process. Waits at most 1 s.
pub fn flush() {
    if let Some(log) = &*LOG {
        log.lines.flush(END);
    }
}

/// Logs a panic in the format of the log. Replaces the standard library's panic hook, which writes plain text.
pub fn panicked(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(thread, place, panic = words, "a thread panicked");
}
