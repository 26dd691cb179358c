//! The log of the process on standard error. A thread writes it, so that a line is never an error, a panic or a wait to
//! whoever logs it: standard error may be a full disk, a pipe without a reader, or one whose reader stands still.

use std::io;
use std::panic::PanicHookInfo;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prometheus::IntCounter;

use super::lines::{Lines, Sink, Terms};
use super::table;
use crate::supervise::{self, Supervised};

const TERMS: Terms = Terms {
    // Each line wakes the thread; this is for those that come while it writes.
    flush: Duration::from_secs(5),
    batch: 1,
    full: 1 << 20,
};
/// How long the end of the process waits for lines to be written.
const END: Duration = Duration::from_secs(1);

/// The log's thread, and the lines that it has not written yet.
#[derive(Debug)]
struct Log {
    lines: Arc<Lines>,
    lost: IntCounter,
    /// None where there can be no more threads: then every line is lost.
    thread: Option<Arc<Supervised>>,
}

static LOG: LazyLock<Option<Log>> = LazyLock::new(|| {
    let lost = IntCounter::new(table::LOG_LOST.name, table::LOG_LOST.help).ok()?;
    let lines = Lines::new(TERMS, lost.clone());
    let own = lines.clone();
    let (mut sink, mut taken) = (Sink::Stderr, Vec::new());
    // It ends with the process.
    let thread = supervise::spawn("log", move || own.run(&mut sink, &mut taken)).ok();
    Some(Log { lines, lost, thread: thread.map(|(supervised, _)| supervised) })
});

/// Takes whole lines, and never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer;

impl io::Write for Writer {
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

/// Lines that were lost. The counter is registered with the other series.
pub(super) fn lost() -> Option<IntCounter> {
    LOG.as_ref().map(|log| log.lost.clone())
}

/// The log's thread.
pub fn thread() -> Option<Arc<Supervised>> {
    LOG.as_ref().and_then(|log| log.thread.clone())
}

/// Writes what is left. For the end of the process; it does not wait long.
pub fn flush() {
    if let Some(log) = &*LOG {
        log.lines.flush(END);
    }
}

/// Logs a panic, in the place of the standard library's own lines, which would not be in the log's format.
pub fn panicked(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(thread, place, panic = words, "a thread panicked");
}
