//! Drained targets that outlive the process: a file of the state folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Name of the file.
const FILE: &str = "drained.json";
/// Largest number of targets that are read.
const MAX_TARGETS: usize = 10_000;

/// Drained target: provider, and model at the provider.
pub(super) type DrainedTarget = (String, String);

/// What an operator has said of a drained target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DrainNote {
    /// Time in Unix seconds at which the target is resumed. `None` if it stays drained until an operator resumes it.
    pub(super) until: Option<i64>,
    /// Reason; `None` if none was given.
    pub(super) reason: Option<String>,
}

/// Drained targets of a state folder.
#[derive(Debug)]
pub(super) struct DrainState {
    folder: PathBuf,
    drained: Mutex<BTreeMap<DrainedTarget, DrainNote>>,
}

impl DrainState {
    /// Reads the file. One that cannot be read is logged and counts as empty.
    pub(super) fn load(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let drained = match std::fs::read(&path) {
            Ok(text) => parse(&text).unwrap_or_else(|| {
                tracing::error!(path = %path.display(), "the file of drained targets is damaged; no target is drained");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the file of drained targets cannot be read");
                BTreeMap::new()
            }
        };
        DrainState { folder: folder.to_owned(), drained: Mutex::new(drained) }
    }

    /// Returns the drained targets, also those that the configuration does not have at present.
    pub(super) fn all(&self) -> Vec<DrainedTarget> {
        self.drained.lock().keys().cloned().collect()
    }

    /// Returns what was said of a drained target. `None` if it is not drained.
    pub(super) fn note(&self, provider: &str, model: &str) -> Option<DrainNote> {
        self.drained.lock().get(&(provider.to_owned(), model.to_owned())).cloned()
    }

    /// Returns whether a target is to be resumed by itself.
    pub(super) fn has_ends(&self) -> bool {
        self.drained.lock().values().any(|note| note.until.is_some())
    }

    /// Returns the targets that are to be resumed at `now`, in Unix seconds.
    pub(super) fn over(&self, now: i64) -> Vec<DrainedTarget> {
        let drained = self.drained.lock();
        let over = drained.iter().filter(|(_, note)| note.until.is_some_and(|until| until <= now));
        over.map(|(target, _)| target.clone()).collect()
    }

    /// Stores that a target is drained, or, with `None`, is not any more. It is on the disk when this returns.
    ///
    /// # Errors
    /// Returns the error of the operating system; nothing has changed then.
    pub(super) fn set(&self, provider: &str, model: &str, note: Option<DrainNote>) -> io::Result<()> {
        let mut drained = self.drained.lock();
        let target = (provider.to_owned(), model.to_owned());
        if drained.get(&target) == note.as_ref() {
            return Ok(());
        }
        let mut next = drained.clone();
        match note {
            Some(note) => next.insert(target, note),
            None => next.remove(&target),
        };
        self.write(&next)?;
        *drained = next;
        Ok(())
    }

    fn write(&self, drained: &BTreeMap<DrainedTarget, DrainNote>) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&self.folder)?;
        let entry = |((provider, model), note): (&DrainedTarget, &DrainNote)| json!({ "provider": provider, "model": model, "until": note.until, "reason": note.reason });
        let list: Value = drained.iter().map(entry).collect();
        let beside = self.folder.join(format!("{FILE}.{}.tmp", std::process::id()));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        writeln!(file, "{list}")?;
        file.sync_data()?;
        std::fs::rename(&beside, self.folder.join(FILE))
    }
}

fn parse(text: &[u8]) -> Option<BTreeMap<DrainedTarget, DrainNote>> {
    let list: Vec<Value> = serde_json::from_slice(text).ok()?;
    let member = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    list.iter()
        .take(MAX_TARGETS)
        .map(|value| {
            let until = value.get("until").and_then(Value::as_i64);
            let note = DrainNote { until, reason: member(value, "reason") };
            Some(((member(value, "provider")?, member(value, "model")?), note))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_state_is_read_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("admin");
        let drained = DrainState::load(&state);
        let note = DrainNote { until: Some(100), reason: Some("upgrade".to_owned()) };
        drained.set("a", "org/m", Some(note.clone())).unwrap();
        drained.set("a", "n", Some(DrainNote::default())).unwrap();
        let next = DrainState::load(&state);
        assert_eq!((next.note("a", "org/m"), next.all().len()), (Some(note), 2));
        assert_eq!((next.over(99), next.over(100)), (vec![], vec![("a".to_owned(), "org/m".to_owned())]));
        next.set("a", "org/m", None).unwrap();
        assert_eq!(DrainState::load(&state).all(), [("a".to_owned(), "n".to_owned())]);
        // As an earlier version has written it.
        std::fs::write(state.join(FILE), "[{\"provider\":\"a\",\"model\":\"m\"}]").unwrap();
        assert_eq!(DrainState::load(&state).note("a", "m"), Some(DrainNote::default()));
        std::fs::write(state.join(FILE), "[{\"provider\":1}]").unwrap();
        assert_eq!(DrainState::load(&state).all(), []);
    }
}
