//! Reading routes and keys again: aside, whole, and only if they are sound.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::{Report, Vault, load_snapshot};
use crate::snapshot::Snapshot;

/// How a reload went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The generation that answers requests now.
    pub generation: u64,
    /// When it was decided.
    pub at: SystemTime,
    /// How long reading and checking took.
    pub took: Duration,
    /// What was wrong with the files, if they were refused.
    pub refused: Option<Report>,
    /// Models that are served now.
    pub models: usize,
    /// Keys that are known now.
    pub keys: usize,
}

/// Reads routes and keys and hands them on.
pub struct Reloader {
    routes: PathBuf,
    keys: PathBuf,
    vault: Box<dyn Vault + Send + Sync>,
    install: Box<dyn Fn(Snapshot) + Send + Sync>,
    last: Mutex<Outcome>,
}

impl Reloader {
    /// Takes over after the first load. `install` swaps a new snapshot in.
    pub fn new(
        routes: PathBuf,
        keys: PathBuf,
        vault: Box<dyn Vault + Send + Sync>,
        first: &Snapshot,
        install: Box<dyn Fn(Snapshot) + Send + Sync>,
    ) -> Self {
        let last = Outcome {
            generation: first.generation,
            at: SystemTime::now(),
            took: Duration::ZERO,
            refused: None,
            models: first.routes.models().len(),
            keys: first.keys.len(),
        };
        Reloader { routes, keys, vault, install, last: Mutex::new(last) }
    }

    /// Reads the files. Blocks for as long as that takes (about a microsecond a key): call it on a thread that may.
    ///
    /// Reloads follow one another; a file that is refused leaves everything as it was.
    pub fn reload(&self) -> Outcome {
        let mut last = self.last.lock();
        let start = Instant::now();
        match load_snapshot(&self.routes, &self.keys, &*self.vault) {
            Ok(mut snapshot) => {
                snapshot.generation = last.generation + 1;
                *last = Outcome {
                    generation: snapshot.generation,
                    at: SystemTime::now(),
                    took: start.elapsed(),
                    refused: None,
                    models: snapshot.routes.models().len(),
                    keys: snapshot.keys.len(),
                };
                (self.install)(snapshot);
            }
            Err(report) => {
                last.at = SystemTime::now();
                last.took = start.elapsed();
                last.refused = Some(report);
            }
        }
        last.clone()
    }

    /// How the last reload went; the start counts as one.
    pub fn last(&self) -> Outcome {
        self.last.lock().clone()
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader")
            .field("routes", &self.routes)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
