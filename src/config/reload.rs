//! Reading routes and keys again: aside, whole, and only if they are sound.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::node::Table;
use super::stable_read::{FileEnding, StableReader};
use super::{Report, Vault, read_snapshot};
use crate::snapshot::Snapshot;

/// Rules of a reload: `[reload]` of gateway.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadRules {
    /// Accept a file without models, or without keys, in the place of one that has some.
    pub allow_empty: bool,
    /// Minimum time since the last modification of a file.
    pub settle: Duration,
}

impl Default for ReloadRules {
    fn default() -> Self {
        // Programs write files of this size within milliseconds; an operator does not notice the delay.
        ReloadRules { allow_empty: false, settle: Duration::from_millis(250) }
    }
}

/// Largest value of `reload.settle`.
const MAX_SETTLE: Duration = Duration::from_secs(60);

/// Reads `[reload]`.
pub(super) fn read(table: &Table<'_>) -> ReloadRules {
    let default = ReloadRules::default();
    let settle = table.duration("settle").unwrap_or(default.settle);
    if settle > MAX_SETTLE {
        table.wrong("settle is out of range", "60s at most".to_owned());
    }
    ReloadRules { allow_empty: table.boolean("allow_empty").unwrap_or(default.allow_empty), settle }
}

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
    rules: ReloadRules,
    vault: Box<dyn Vault + Send + Sync>,
    install: Box<dyn Fn(Snapshot) + Send + Sync>,
    /// Held during a reload. Separate from `current`, so that [`last`](Self::last) never waits for a file.
    reloading: Mutex<()>,
    current: Mutex<Current>,
}

/// State of the configuration in effect.
#[derive(Clone)]
struct Current {
    outcome: Outcome,
    /// Endings of routes.toml and keys.toml.
    endings: [FileEnding; 2],
}

impl Reloader {
    /// Takes over after the first load. `install` swaps a new snapshot in.
    pub fn new(
        routes: PathBuf,
        keys: PathBuf,
        rules: ReloadRules,
        vault: Box<dyn Vault + Send + Sync>,
        first: &Snapshot,
        install: Box<dyn Fn(Snapshot) + Send + Sync>,
    ) -> Self {
        let outcome = Outcome {
            generation: first.generation,
            at: SystemTime::now(),
            took: Duration::ZERO,
            refused: None,
            models: first.routes.models().len(),
            keys: first.keys.len(),
        };
        let endings = [&routes, &keys].map(|file| {
            let regular = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
            let text = regular.then(|| std::fs::read_to_string(file).ok()).flatten();
            text.map(|text| FileEnding::of(&text)).unwrap_or_default()
        });
        let current = Mutex::new(Current { outcome, endings });
        Reloader { routes, keys, rules, vault, install, reloading: Mutex::default(), current }
    }

    /// Reads the files. Blocks for about a microsecond a key and up to `reload.settle`: call it on a blocking thread.
    ///
    /// Reloads are serialised. A refused file leaves the configuration in effect unchanged.
    pub fn reload(&self) -> Outcome {
        let _serial = self.reloading.lock();
        let start = Instant::now();
        let Current { mut outcome, mut endings } = self.current.lock().clone();
        match self.read(&outcome, endings) {
            Ok((mut snapshot, new_endings)) => {
                snapshot.generation = outcome.generation + 1;
                outcome = Outcome {
                    generation: snapshot.generation,
                    at: SystemTime::now(),
                    took: start.elapsed(),
                    refused: None,
                    models: snapshot.routes.models().len(),
                    keys: snapshot.keys.len(),
                };
                endings = new_endings;
                (self.install)(snapshot);
            }
            Err(report) => {
                outcome.at = SystemTime::now();
                outcome.took = start.elapsed();
                outcome.refused = Some(report);
            }
        }
        *self.current.lock() = Current { outcome: outcome.clone(), endings };
        outcome
    }

    /// Reads both files. Refuses files that are invalid, truncated, empty or being written.
    fn read(
        &self,
        outcome: &Outcome,
        endings: [FileEnding; 2],
    ) -> Result<(Snapshot, [FileEnding; 2]), Report> {
        let reader = StableReader::default();
        let (snapshot, texts) = read_snapshot(&self.routes, &self.keys, &*self.vault, &reader)?;
        let new_endings = texts.map(|text| FileEnding::of(&text));
        let mut report = Report::default();
        let counts = [
            ("model", outcome.models, snapshot.routes.models().len()),
            ("key", outcome.keys, snapshot.keys.len()),
        ];
        let files = [&self.routes, &self.keys];
        for ((file, (what, before, now)), (old, new)) in
            files.into_iter().zip(counts).zip(endings.into_iter().zip(new_endings))
        {
            if now > 0 {
                report.merge(
                    old.truncation(new).map(|reason| Report::of_file(file, reason)).unwrap_or_default(),
                );
            } else if before > 0 && !self.rules.allow_empty {
                let message = format!(
                    "has no {what}, in the place of {before}; reload.allow_empty in gateway.toml permits that"
                );
                report.merge(Report::of_file(file, message));
            }
        }
        report.into_result()?;
        reader.wait_until_stable(self.rules.settle)?;
        Ok((snapshot, new_endings))
    }

    /// How the last reload went; the start counts as one.
    pub fn last(&self) -> Outcome {
        self.current.lock().outcome.clone()
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
