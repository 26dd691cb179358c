//! Reload of routes.toml and keys.toml: a new snapshot is installed only if both files are valid and stable.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::node::ConfigTable;
use super::pending::{PendingSnapshot, changed_files};
use super::sources::{CandidateFile, FileHash, SnapshotSources, SourceKind, SourceText};
use super::stable_read::{FileEnding, StableReader};
use super::{Problem, Report, Vault, read_snapshot};
use routing::snapshot::Snapshot;

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

/// Versions of the files as they were read. A reload compares the new files with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline(Vec<FileBaseline>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileBaseline {
    kind: SourceKind,
    path: PathBuf,
    ending: FileEnding,
    hash: FileHash,
}

impl Baseline {
    /// Returns the versions of these texts.
    pub(super) fn of<'t>(files: impl Iterator<Item = (SourceKind, SourceText<'t>)>) -> Self {
        let file = |(kind, file): (SourceKind, SourceText<'_>)| FileBaseline {
            kind,
            path: file.path.to_owned(),
            ending: FileEnding::of(file.text),
            hash: FileHash::of(file.text),
        };
        Baseline(files.map(file).collect())
    }

    /// Returns a hash of all texts, in hexadecimal digits.
    pub(super) fn hash(&self) -> String {
        let hashes: Vec<String> = self.0.iter().map(|file| file.hash.to_hex()).collect();
        FileHash::of(&hashes.join("\n")).to_hex()
    }

    /// Returns the files with the hashes of their texts.
    pub(super) fn hashes(&self) -> Vec<(PathBuf, FileHash)> {
        self.0.iter().map(|file| (file.path.clone(), file.hash)).collect()
    }

    fn file(&self, path: &Path) -> Option<&FileBaseline> {
        self.0.iter().find(|file| file.path == path)
    }
}

/// File in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// Kind of the file.
    pub kind: SourceKind,
    /// Path.
    pub path: PathBuf,
    /// Hash of its text.
    pub hash: FileHash,
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
    /// Faults of the files of routes and keys if they were rejected; `None` if they were applied.
    pub refused: Option<Report>,
    /// Faults of admin.toml and the certificate of the admin port, of which what was in effect stays; `None` if they were applied.
    pub access: Option<Report>,
    /// Number of models in effect.
    pub models: usize,
    /// Number of keys in effect.
    pub keys: usize,
}

impl ReloadOutcome {
    /// Returns whether all files were applied.
    pub fn is_applied(&self) -> bool {
        self.refused.is_none() && self.access.is_none()
    }

    /// Returns the faults of all files.
    pub fn faults(&self) -> impl Iterator<Item = &Problem> {
        self.refused.iter().chain(&self.access).flat_map(|report| &report.problems)
    }
}

/// Reads routes and keys and installs them as a snapshot.
pub struct Reloader {
    sources: SnapshotSources,
    rules: ReloadRules,
    vault: Box<dyn Vault + Send + Sync>,
    install: Box<dyn Fn(Snapshot) + Send + Sync>,
    /// Held while the configuration is changed. Separate from `current`, so that [`last`](Self::last) never waits for a file.
    reloading: Mutex<()>,
    /// Number of reloads that have begun.
    begun: AtomicU64,
    current: Mutex<Current>,
}

/// State of the configuration in effect.
#[derive(Clone)]
struct Current {
    outcome: ReloadOutcome,
    baseline: Baseline,
    /// Number of the latest reload that has ended.
    ended: u64,
}

impl Reloader {
    /// Creates the reloader after the first load, which has read `first` and `baseline`. `install` makes a new snapshot
    /// the active one.
    pub fn new(
        sources: SnapshotSources,
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
            access: None,
            models: first.routes.models().len(),
            keys: first.keys.len(),
        };
        let current = Mutex::new(Current { outcome, baseline, ended: 0 });
        let (reloading, begun) = Default::default();
        Reloader { sources, rules, vault, install, reloading, begun, current }
    }

    /// Reads the files and installs the new snapshot. Blocks for about a microsecond a key and up to `reload.settle`:
    /// call it on a blocking thread.
    ///
    /// A reload that takes long keeps no later one from being applied: the files are read side by side, and a later reload that
    /// has ended counts for the earlier one. A rejected file leaves the configuration in effect unchanged.
    pub fn reload(&self) -> ReloadOutcome {
        let number = self.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let start = Instant::now();
        let before = self.last().generation;
        let read = self.read(StableReader::default());
        let session = self.exclusive();
        let current = self.current.lock().clone();
        if current.ended > number {
            // It has read the files after this one.
            return current.outcome;
        }
        // The API or another reload has changed the configuration meanwhile, perhaps after the files were read.
        let read =
            if current.outcome.generation == before { read } else { self.read(StableReader::default()) };
        let installed = read.map(|read| session.install(read, start));
        let mut current = self.current.lock();
        current.ended = number;
        current.outcome.access = None;
        if let Err(report) = installed {
            current.outcome.at = SystemTime::now();
            current.outcome.took = start.elapsed();
            current.outcome.refused = Some(report);
        }
        current.outcome.clone()
    }

    /// Adds the faults of admin.toml and the certificate of the admin port to the result of a reload.
    pub fn refuse_access(&self, outcome: ReloadOutcome, report: Report) -> ReloadOutcome {
        self.current.lock().outcome.access = Some(report.clone());
        ReloadOutcome { access: Some(report), ..outcome }
    }

    /// Reads the files as a reload does, and installs nothing. Blocks like [`reload`](Self::reload).
    ///
    /// # Errors
    /// Returns [`Report`] with the faults for which a reload would be refused.
    pub fn pending(&self) -> Result<PendingSnapshot, Report> {
        let (snapshot, baseline) = self.read(StableReader::default())?;
        let files = changed_files(&self.current.lock().baseline, &baseline);
        Ok(PendingSnapshot { snapshot, files })
    }

    /// Reads all files. Rejects files that are invalid, truncated, unexpectedly empty or being written.
    fn read(&self, reader: StableReader) -> Result<(Snapshot, Baseline), Report> {
        let Reloader { sources, vault, rules, .. } = self;
        let Current { outcome, baseline, .. } = self.current.lock().clone();
        let (snapshot, new_baseline) = read_snapshot(sources, &**vault, &reader)?;
        let mut report = Report::default();
        let counts = [
            (SourceKind::Routes, "model", outcome.models, snapshot.routes.models().len()),
            (SourceKind::Keys, "key", outcome.keys, snapshot.keys.len()),
        ];
        for (kind, what, before, now) in counts {
            // Files without entries are judged by `allow_empty` only: an intentionally emptied file need not keep its
            // ending.
            if now > 0 {
                for file in new_baseline.0.iter().filter(|file| file.kind == kind) {
                    let old = baseline.file(&file.path);
                    let truncation = old.and_then(|old| old.ending.truncation(file.ending));
                    report.merge(truncation.map(|why| Report::of_file(&file.path, why)).unwrap_or_default());
                }
            } else if before > 0 && !rules.allow_empty {
                let message = format!(
                    "has no {what}, but had {before}; to permit this, set reload.allow_empty in gateway.toml"
                );
                report.merge(Report::of_file(sources.of(kind).main(), message));
            }
        }
        report.into_result()?;
        // Last, so that the time spent on validation counts towards the wait.
        reader.wait_until_stable(rules.settle)?;
        Ok((snapshot, new_baseline))
    }

    /// Returns the only right to change the configuration, until it is dropped.
    pub(super) fn exclusive(&self) -> ReloadSession<'_> {
        ReloadSession { reloader: self, _serial: self.reloading.lock() }
    }

    /// Returns the files of the snapshot, as the settings name them.
    pub fn sources(&self) -> &SnapshotSources {
        &self.sources
    }

    /// Returns the files whose change calls for a reload: those of the snapshot that exist now, and all secrets that were
    /// read. Reads folders.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        let kinds = [&self.sources.routes, &self.sources.keys];
        // A folder that cannot be read is a fault of the next reload.
        let mut files: Vec<PathBuf> =
            kinds.into_iter().filter_map(|sources| sources.files().ok()).flatten().collect();
        files.extend(self.vault.files());
        files
    }

    /// Returns the files in effect.
    pub fn loaded_files(&self) -> Vec<LoadedFile> {
        let current = self.current.lock();
        let files = current.baseline.0.iter();
        files.map(|file| LoadedFile { kind: file.kind, path: file.path.clone(), hash: file.hash }).collect()
    }

    /// Returns the result of the last reload; the first load counts as one.
    pub fn last(&self) -> ReloadOutcome {
        self.current.lock().outcome.clone()
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// Exclusive right to change the configuration.
pub(super) struct ReloadSession<'r> {
    reloader: &'r Reloader,
    _serial: MutexGuard<'r, ()>,
}

impl ReloadSession<'_> {
    /// Returns the hash of the text that is in effect. `None` if the file is not in effect.
    pub(super) fn loaded_hash(&self, path: &Path) -> Option<FileHash> {
        self.reloader.current.lock().baseline.file(path).map(|file| file.hash)
    }

    /// Checks a text that a file is to have, together with the other files.
    ///
    /// # Errors
    /// Returns [`Report`] with every fault of all files.
    pub(super) fn check(&self, candidate: CandidateFile) -> Result<(Snapshot, Baseline), Report> {
        self.reloader.read(StableReader::with_candidate(candidate))
    }

    /// Makes a snapshot the active one, as the next generation. Its check began at `start`.
    pub(super) fn install(
        &self,
        (mut snapshot, baseline): (Snapshot, Baseline),
        start: Instant,
    ) -> ReloadOutcome {
        let Current { outcome, ended, .. } = self.reloader.current.lock().clone();
        snapshot.generation = outcome.generation.saturating_add(1);
        let outcome = ReloadOutcome {
            generation: snapshot.generation,
            at: SystemTime::now(),
            took: start.elapsed(),
            refused: None,
            access: outcome.access,
            models: snapshot.routes.models().len(),
            keys: snapshot.keys.len(),
        };
        (self.reloader.install)(snapshot);
        *self.reloader.current.lock() = Current { outcome: outcome.clone(), baseline, ended };
        // A change of an entry has read no other file.
        ReloadOutcome { access: None, ..outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoSecrets, load};

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
            loaded.sources(),
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
