//! Reading routes and keys again: aside, whole, and only if they are sound.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::node::Table;
use super::stable::{Ending, Reading};
use super::{Report, Vault, read_snapshot};
use crate::snapshot::Snapshot;

/// What gateway.toml says of reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Whether files without a model, or without a key, take the place of files that had some.
    pub allow_empty: bool,
    /// For how long nobody may have written to a file that is taken.
    pub settle: Duration,
}

impl Default for Reload {
    fn default() -> Self {
        // Longer than anybody writes at a file of this size, shorter than anybody notices.
        Reload { allow_empty: false, settle: Duration::from_millis(250) }
    }
}

/// Longest wait for files to settle: a reload that does not end is no reload.
const SETTLE: Duration = Duration::from_secs(60);

/// Reads `[reload]`.
pub(super) fn read(table: &Table<'_>) -> Reload {
    let default = Reload::default();
    let settle = table.duration("settle").unwrap_or(default.settle);
    if settle > SETTLE {
        table.wrong("settle is out of range", "60s at most".to_owned());
    }
    Reload { allow_empty: table.boolean("allow_empty").unwrap_or(default.allow_empty), settle }
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
    rules: Reload,
    vault: Box<dyn Vault + Send + Sync>,
    install: Box<dyn Fn(Snapshot) + Send + Sync>,
    last: Mutex<Last>,
}

/// What holds now.
struct Last {
    outcome: Outcome,
    /// How the files of the configuration in effect end: routes.toml and keys.toml.
    endings: [Ending; 2],
}

impl Reloader {
    /// Takes over after the first load. `install` swaps a new snapshot in.
    pub fn new(
        routes: PathBuf,
        keys: PathBuf,
        rules: Reload,
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
        let ending = |file| std::fs::read_to_string(file).map(|text| Ending::of(&text)).unwrap_or_default();
        let endings = [ending(&routes), ending(&keys)];
        Reloader { routes, keys, rules, vault, install, last: Mutex::new(Last { outcome, endings }) }
    }

    /// Reads the files. Blocks for as long as that takes (about a microsecond a key, and until the files have settled): call
    /// it on a thread that may.
    ///
    /// Reloads follow one another; a file that is refused leaves everything as it was.
    pub fn reload(&self) -> Outcome {
        let mut last = self.last.lock();
        let start = Instant::now();
        match self.read(&last) {
            Ok((mut snapshot, endings)) => {
                snapshot.generation = last.outcome.generation + 1;
                last.outcome = Outcome {
                    generation: snapshot.generation,
                    at: SystemTime::now(),
                    took: start.elapsed(),
                    refused: None,
                    models: snapshot.routes.models().len(),
                    keys: snapshot.keys.len(),
                };
                last.endings = endings;
                (self.install)(snapshot);
            }
            Err(report) => {
                last.outcome.at = SystemTime::now();
                last.outcome.took = start.elapsed();
                last.outcome.refused = Some(report);
            }
        }
        last.outcome.clone()
    }

    /// A snapshot of files that are sound, whole and at rest.
    fn read(&self, last: &Last) -> Result<(Snapshot, [Ending; 2]), Report> {
        let reading = Reading::default();
        let (snapshot, texts) = read_snapshot(&self.routes, &self.keys, &*self.vault, &reading)?;
        let endings = texts.map(|text| Ending::of(&text));
        let mut report = Report::default();
        let outcome = &last.outcome;
        let counts = [
            ("model", outcome.models, snapshot.routes.models().len()),
            ("key", outcome.keys, snapshot.keys.len()),
        ];
        let files = [&self.routes, &self.keys];
        for ((file, (what, before, now)), (was, is)) in
            files.into_iter().zip(counts).zip(last.endings.iter().zip(endings))
        {
            if now == 0 && before > 0 && !self.rules.allow_empty {
                let message = format!(
                    "has no {what}, in the place of {before}; reload.allow_empty in gateway.toml permits that"
                );
                report.merge(Report::of_file(file, message));
            } else if let Some(message) = was.lacks(is) {
                report.merge(Report::of_file(file, message));
            }
        }
        report.into_result()?;
        reading.settle(self.rules.settle)?;
        Ok((snapshot, endings))
    }

    /// How the last reload went; the start counts as one.
    pub fn last(&self) -> Outcome {
        self.last.lock().outcome.clone()
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
