//! Drained targets that outlive the process: a file of the state folder.

use std::collections::BTreeSet;
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

/// Drained targets of a state folder.
#[derive(Debug)]
pub(super) struct DrainState {
    folder: PathBuf,
    drained: Mutex<BTreeSet<DrainedTarget>>,
}

impl DrainState {
    /// Reads the file. One that cannot be read is logged and counts as empty.
    pub(super) fn load(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let drained = match std::fs::read(&path) {
            Ok(text) => parse(&text).unwrap_or_else(|| {
                tracing::error!(path = %path.display(), "the file of drained targets is damaged; no target is drained");
                BTreeSet::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the file of drained targets cannot be read");
                BTreeSet::new()
            }
        };
        DrainState { folder: folder.to_owned(), drained: Mutex::new(drained) }
    }

    /// Returns the drained targets, also those that the configuration does not have at present.
    pub(super) fn all(&self) -> Vec<DrainedTarget> {
        self.drained.lock().iter().cloned().collect()
    }

    /// Stores that a target is drained, or is not any more. It is on the disk when this returns.
    ///
    /// # Errors
    /// Returns the error of the operating system; nothing has changed then.
    pub(super) fn set(&self, provider: &str, model: &str, is_drained: bool) -> io::Result<()> {
        let mut drained = self.drained.lock();
        let mut next = drained.clone();
        let target = (provider.to_owned(), model.to_owned());
        if !(if is_drained { next.insert(target) } else { next.remove(&target) }) {
            return Ok(());
        }
        self.write(&next)?;
        *drained = next;
        Ok(())
    }

    fn write(&self, drained: &BTreeSet<DrainedTarget>) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&self.folder)?;
        let list: Value =
            drained.iter().map(|(provider, model)| json!({ "provider": provider, "model": model })).collect();
        let beside = self.folder.join(format!("{FILE}.{}.tmp", std::process::id()));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        writeln!(file, "{list}")?;
        file.sync_data()?;
        std::fs::rename(&beside, self.folder.join(FILE))
    }
}

fn parse(text: &[u8]) -> Option<BTreeSet<DrainedTarget>> {
    let list: Vec<Value> = serde_json::from_slice(text).ok()?;
    let member = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    list.iter()
        .take(MAX_TARGETS)
        .map(|value| Some((member(value, "provider")?, member(value, "model")?)))
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
        drained.set("a", "org/m", true).unwrap();
        drained.set("a", "n", true).unwrap();
        drained.set("a", "n", false).unwrap();
        assert_eq!(DrainState::load(&state).all(), [("a".to_owned(), "org/m".to_owned())]);
        std::fs::write(state.join(FILE), "[{\"provider\":1}]").unwrap();
        assert_eq!(DrainState::load(&state).all(), []);
    }
}
