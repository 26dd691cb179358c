//! Limit of the work of a check: it ends when its time is over, or when the one who has asked for it has left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::report::Report;
use super::secret::Vault;

/// Limit of work that is done for a caller.
#[derive(Clone, Debug)]
pub struct WorkLimit {
    end: Instant,
    is_cancelled: Arc<AtomicBool>,
}

/// Caller of some work. When it is dropped, the work ends soon.
#[derive(Debug)]
pub struct WatchedWork(Arc<AtomicBool>);

impl Drop for WatchedWork {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl WorkLimit {
    /// Creates a limit that ends after `time`.
    pub fn new(time: Duration) -> Self {
        let now = Instant::now();
        WorkLimit { end: now.checked_add(time).unwrap_or(now), is_cancelled: Arc::default() }
    }

    /// Returns the caller, whose end ends the work.
    pub fn watch(&self) -> WatchedWork {
        WatchedWork(self.is_cancelled.clone())
    }

    /// Returns whether the work is to end.
    pub fn is_over(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || Instant::now() >= self.end
    }
}

/// Secrets of `vault` for work with a limit.
pub(super) struct LimitedVault<'v> {
    pub(super) vault: &'v dyn Vault,
    pub(super) limit: &'v WorkLimit,
}

impl Vault for LimitedVault<'_> {
    fn env(&self, name: &str) -> Option<String> {
        self.vault.env(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        self.vault.file(path)
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.vault.setting(name)
    }

    fn instance_region(&self, endpoint: &str) -> Option<String> {
        self.vault.instance_region(endpoint)
    }

    fn reads(&self) -> bool {
        self.vault.reads()
    }

    fn note_file(&self, path: &Path) {
        self.vault.note_file(path);
    }

    fn files(&self) -> Vec<PathBuf> {
        self.vault.files()
    }

    fn reads_certificates(&self) -> bool {
        self.vault.reads_certificates()
    }

    fn is_over(&self) -> bool {
        self.limit.is_over()
    }
}

/// Returns the report of a check that was ended before its result.
pub(super) fn given_up(file: &Path) -> Report {
    Report::of_file(file, "the check was ended: it took too long, or its caller has left")
}
