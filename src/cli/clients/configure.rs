//! `model-gateway configure`: settings of a client, written so that `unconfigure` can undo them.

use std::path::{Path, PathBuf};

use super::change::{ChangedText, change, text_before};
use super::client::CodingClient;
use super::error::ClientSetupError;
use super::file::{SettingsFile, create_folders, remove_empty_folders};
use super::plan::{ClientSetup, FilePlan, UserEnvironment};
use super::receipt::{FileReceipt, SetupReceipt, fingerprint, receipt_path};

/// Permission bits of a file that has a key, or is new: the owner only.
const OWNER_ONLY: u32 = 0o600;

/// Settings file with its new text.
pub(super) struct PreparedFile {
    file: SettingsFile,
    plan: FilePlan,
    changed: ChangedText,
    /// Receipt of an earlier `configure` for this file.
    earlier: Option<FileReceipt>,
    /// Text before any `configure`.
    before: String,
    mode: u32,
}

/// Settings of a client, checked and ready to be written.
pub(super) struct Configuration {
    client: CodingClient,
    files: Vec<PreparedFile>,
    receipt_path: PathBuf,
    earlier: Option<SetupReceipt>,
    gateway: String,
    has_key: bool,
}

/// Returns the path of the receipt of a client.
///
/// # Errors
/// Returns an error if the environment does not say where the user's folders are.
pub(super) fn receipt_of(client: CodingClient, user: &UserEnvironment) -> Result<PathBuf, ClientSetupError> {
    let state = user.xdg(client.name(), "XDG_STATE_HOME", ".local/state")?;
    Ok(receipt_path(&state, client.name(), &client.folder(user)?))
}

/// Computes the settings of a client. Nothing is written.
///
/// # Errors
/// Returns an error that names the file and line if a file cannot be read, changed or replaced.
pub(super) fn prepare(
    client: CodingClient,
    setup: &ClientSetup,
    user: &UserEnvironment,
) -> Result<Configuration, ClientSetupError> {
    let receipt_path = receipt_of(client, user)?;
    let earlier = SetupReceipt::load(&receipt_path)?;
    let (mut files, mut any_key) = (Vec::new(), false);
    for plan in client.files(setup, user)? {
        let file = SettingsFile::read(&plan.path)?;
        file.check_writable()?;
        let earlier = earlier.iter().flat_map(|receipt| &receipt.files).find(|file| file.path == plan.path);
        let before = text_before(&file, earlier)?;
        let changed = change(&before, &plan)
            .map_err(|fault| ClientSetupError::Syntax { path: plan.path.clone(), fault })?;
        let has_key = changed.text.contains(setup.key.expose());
        any_key |= has_key;
        let mode = match file.mode {
            // Others must not read the key.
            Some(mode) if has_key => mode & 0o700,
            Some(mode) => mode,
            None => OWNER_ONLY,
        };
        files.push(PreparedFile { earlier: earlier.cloned(), file, plan, changed, before, mode });
    }
    let dropped = earlier.iter().flat_map(|receipt| &receipt.files);
    if let Some(file) = dropped.into_iter().find(|old| files.iter().all(|new| new.plan.path != old.path)) {
        return Err(ClientSetupError::Refused(format!(
            "{} was written by an earlier configure with other options; run model-gateway unconfigure {} first",
            file.path.display(),
            client.name()
        )));
    }
    Ok(Configuration {
        client,
        files,
        receipt_path,
        earlier,
        gateway: setup.address.root().to_owned(),
        has_key: any_key,
    })
}

impl Configuration {
    /// Returns the lines that show what is written: the values of the keys as they stand in the files.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for prepared in &self.files {
            lines.push(format!("{} (mode {:04o}):", prepared.plan.path.display(), prepared.mode));
            for change in &prepared.plan.changes {
                let name = change.path.join(".");
                let had = prepared.plan.syntax.get(&prepared.before, &change.path).ok().flatten().is_some();
                let value = prepared.plan.syntax.get(&prepared.changed.text, &change.path).ok().flatten();
                match value {
                    Some(value) => lines.push(format!("  {name} = {}", value.replace('\n', "\n  "))),
                    None if had => lines.push(format!("  {name} is removed")),
                    None => {}
                }
            }
        }
        lines
    }

    /// Whether a file has the key itself.
    pub(super) fn has_key(&self) -> bool {
        self.has_key
    }

    /// Writes the receipt and then the files. If a file cannot be written, everything is put back.
    ///
    /// # Errors
    /// Returns an error if the receipt or a file cannot be written.
    pub(super) fn write(&self) -> Result<Vec<PathBuf>, ClientSetupError> {
        let mut folders = Vec::new();
        let mut receipt = SetupReceipt::new(self.client.name(), &self.gateway);
        for prepared in &self.files {
            let created = create_folders(prepared.plan.path.parent().unwrap_or(Path::new(".")))?;
            receipt.files.push(prepared.receipt(created.clone()));
            folders.extend(created);
        }
        // The receipt first: without it, a written file could not be restored.
        receipt.save(&self.receipt_path).inspect_err(|_| remove_empty_folders(&folders))?;
        for (index, prepared) in self.files.iter().enumerate() {
            if let Err(error) = prepared.file.replace(&prepared.changed.text, prepared.mode) {
                self.put_back(index, &folders);
                return Err(error);
            }
        }
        Ok(self.files.iter().map(|prepared| prepared.plan.path.clone()).collect())
    }

    /// Puts the first files and the receipt back, after a failure.
    fn put_back(&self, written: usize, folders: &[PathBuf]) {
        for prepared in self.files.iter().take(written) {
            // A failure here leaves the file as configured; the receipt of the first failure would not help then.
            let _ = SettingsFile::read(&prepared.plan.path).and_then(|now| match prepared.file.mode {
                Some(mode) => now.replace(&prepared.file.text, mode),
                None => now.remove(),
            });
        }
        let _ = match &self.earlier {
            Some(earlier) => earlier.save(&self.receipt_path),
            None => SettingsFile::read(&self.receipt_path).and_then(|receipt| receipt.remove()),
        };
        remove_empty_folders(folders);
    }
}

impl PreparedFile {
    fn receipt(&self, created: Vec<PathBuf>) -> FileReceipt {
        let earlier = self.earlier.as_ref();
        FileReceipt {
            path: self.plan.path.clone(),
            syntax: self.plan.syntax,
            mode_before: earlier.map_or(self.file.mode, |earlier| earlier.mode_before),
            mode_after: self.mode,
            created_folders: earlier.map_or(created, |earlier| earlier.created_folders.clone()),
            before: fingerprint(&self.before),
            after: fingerprint(&self.changed.text),
            undo: self.changed.undo.clone(),
            keys: self.changed.keys.clone(),
            created_tables: self.changed.created_tables.clone(),
        }
    }
}
