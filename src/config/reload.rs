//! Reload of routes.toml and keys.toml: a new snapshot is installed only if both files are valid and stable.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::node::ConfigTable;
use super::stable_read::{FileEnding, StableReader};
use super::{Report, Vault, read_snapshot};
use crate::snapshot::Snapshot;

/// Rules of a reload: `[reload]` of gateway.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadRules {
    /// Whether a file without models or keys may replace one that has some.
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
pub(super) fn read(table: &ConfigTable<'_>) -> ReloadRules {
    let default = ReloadRules::default();
    let settle = table.duration("settle").unwrap_or(default.settle);
    if settle > MAX_SETTLE {
        table.wrong("settle is out of range", "the maximum is 60s".to_owned());
    }
    ReloadRules { allow_empty: table.boolean("allow_empty").unwrap_or(default.allow_empty), settle }
}

/// Endings of routes.toml and keys.toml as they were read. A reload compares the new files with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline([FileEnding; 2]);

impl Baseline {
    /// Returns the endings of the texts of routes.toml and keys.toml.
    pub(super) fn of(texts: [&str; 2]) -> Self {
        Baseline(texts.map(FileEnding::of))
    }
}

/// Result of a reload.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    /// Generation in effect.
    pub generation: u64,
    /// Time of the result.
    pub at: SystemTime,
    /// Duration of reading and validating.
    pub took: Duration,
    /// Faults of the files if they were rejected; `None` if they were applied.
    pub refused: Option<Report>,
    /// Number of models in effect.
    pub models: usize,
    /// Number of keys in effect.
    pub keys: usize,
}

/// Reads routes and keys and installs them as a snapshot.
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
    outcome: ReloadOutcome,
    baseline: Baseline,
}

impl Reloader {
    /// Creates the reloader after the first load, which has read `first` and `baseline`. `install` makes a new snapshot
    /// the active one.
    pub fn new(
        routes: PathBuf,
        keys: PathBuf,
        rules: ReloadRules,
        vault: Box<dyn Vault + Send + Sync>,
        (first, baseline): (&Snapshot, Baseline),
        install: Box<dyn Fn(Snapshot) + Send + Sync>,
    ) -> Self {
        let outcome = ReloadOutcome {
            generation: first.generation,
            at: SystemTime::now(),
            took: Duration::ZERO,
            refused: None,
            models: first.routes.models().len(),
            keys: first.keys.len(),
        };
        let current = Mutex::new(Current { outcome, baseline });
        Reloader { routes, keys, rules, vault, install, reloading: Mutex::default(), current }
    }

    /// Reads the files and installs the new snapshot. Blocks for about a microsecond a key and up to `reload.settle`:
    /// call it on a blocking thread.
    ///
    /// Reloads are serialised. A rejected file leaves the configuration in effect unchanged.
    pub fn reload(&self) -> ReloadOutcome {
        let _serial = self.reloading.lock();
        let start = Instant::now();
        let Current { mut outcome, mut baseline } = self.current.lock().clone();
        match self.read(&outcome, baseline) {
            Ok((mut snapshot, new_baseline)) => {
                snapshot.generation = outcome.generation + 1;
                outcome = ReloadOutcome {
                    generation: snapshot.generation,
                    at: SystemTime::now(),
                    took: start.elapsed(),
                    refused: None,
                    models: snapshot.routes.models().len(),
                    keys: snapshot.keys.len(),
                };
                baseline = new_baseline;
                (self.install)(snapshot);
            }
            Err(report) => {
                outcome.at = SystemTime::now();
                outcome.took = start.elapsed();
                outcome.refused = Some(report);
            }
        }
        *self.current.lock() = Current { outcome: outcome.clone(), baseline };
        outcome
    }

    /// Reads both files. Rejects files that are invalid, truncated, unexpectedly empty or being written.
    fn read(&self, outcome: &ReloadOutcome, baseline: Baseline) -> Result<(Snapshot, Baseline), Report> {
        let reader = StableReader::default();
        let (snapshot, new_baseline) = read_snapshot(&self.routes, &self.keys, &*self.vault, &reader)?;
        let mut report = Report::default();
        let counts = [
            ("model", outcome.models, snapshot.routes.models().len()),
            ("key", outcome.keys, snapshot.keys.len()),
        ];
        let files = [&self.routes, &self.keys];
        for ((file, (what, before, now)), (old, new)) in
            files.into_iter().zip(counts).zip(baseline.0.into_iter().zip(new_baseline.0))
        {
            // A file without entries is judged by `allow_empty` only: an intentionally emptied file need not keep its
            // ending.
            if now > 0 {
                report.merge(
                    old.truncation(new).map(|reason| Report::of_file(file, reason)).unwrap_or_default(),
                );
            } else if before > 0 && !self.rules.allow_empty {
                let message = format!(
                    "has no {what}, but had {before}; to permit this, set reload.allow_empty in gateway.toml"
                );
                report.merge(Report::of_file(file, message));
            }
        }
        report.into_result()?;
        // Last, so that the time spent on validation counts towards the wait.
        reader.wait_until_stable(self.rules.settle)?;
        Ok((snapshot, new_baseline))
    }

    /// Returns the result of the last reload; the first load counts as one.
    pub fn last(&self) -> ReloadOutcome {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NoSecrets, load};

    const ROUTES: &str = "[[provider]]\nname = \"a\"\nkind = \"openai-compatible\"\n\
        base_url = \"http://127.0.0.1:1/v1\"\n[[model]]\nid = \"m\"\n\
        targets = [{ provider = \"a\", model = \"m\" }]\n";

    /// The files that are in effect are those that were loaded, and not those that are there a moment later.
    #[test]
    fn baseline_of_a_reload_is_what_was_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("gateway.toml"), "[server]\nlisten = [\"127.0.0.1:0\"]\n").unwrap();
        std::fs::write(path("routes.toml"), format!("{ROUTES}# end\n")).unwrap();
        std::fs::write(path("keys.toml"), "").unwrap();
        let loaded = load(&path("gateway.toml"), &NoSecrets).unwrap();
        std::fs::write(path("routes.toml"), ROUTES).unwrap();
        let reloader = Reloader::new(
            path("routes.toml"),
            path("keys.toml"),
            ReloadRules { settle: Duration::ZERO, ..ReloadRules::default() },
            Box::new(NoSecrets),
            (&loaded.snapshot, loaded.baseline),
            Box::new(drop),
        );
        let refused = reloader.reload().refused.expect("the file has lost its end").to_string();
        assert!(refused.contains("has lost its last line"), "{refused}");
        std::fs::write(path("routes.toml"), format!("{ROUTES}# end\n")).unwrap();
        assert!(reloader.reload().refused.is_none());
    }
}
