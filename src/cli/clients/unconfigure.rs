//! `model-gateway unconfigure`: the settings of a client as they were before `configure`.

use std::path::PathBuf;

use super::change::{RestoredText, changed_keys, restore};
use super::client::CodingClient;
use super::configure::receipt_of;
use super::error::ClientSetupError;
use super::file::{SettingsFile, remove_empty_folders};
use super::plan::{KeyRole, UserEnvironment};
use super::receipt::{FileReceipt, SetupReceipt};

/// File with its restored text.
struct RestoredFile {
    file: SettingsFile,
    receipt: FileReceipt,
    /// `None` if the file does not exist any more.
    restored: Option<RestoredText>,
}

/// Restoration of the settings of a client, computed and not yet written.
pub(super) struct Restoration {
    files: Vec<RestoredFile>,
    receipt: SetupReceipt,
    receipt_path: PathBuf,
}

/// Returns a line for each file whose copy from before `configure` exists.
pub(super) fn backups(client: CodingClient, user: &UserEnvironment) -> Vec<String> {
    let receipt = receipt_of(client, user).ok().and_then(|path| SetupReceipt::load(&path).ok().flatten());
    receipt.map(|receipt| receipt.backups()).unwrap_or_default()
}

/// Removes the receipt and the copies, and leaves the settings as they are. Returns the lines that show it.
///
/// # Errors
/// Returns an error if there is no receipt, or it cannot be removed.
pub(super) fn forget(
    client: CodingClient,
    user: &UserEnvironment,
    only_show: bool,
) -> Result<Vec<String>, ClientSetupError> {
    let (receipt, path) = load(client, user)?;
    let files = receipt.files.iter().map(|file| format!("{} stays as it is", file.path.display()));
    let copies = receipt.files.iter().filter_map(|file| file.backup.as_ref());
    let removed = copies.chain([&path]).map(|path| format!("{} is removed", path.display()));
    let lines = files.chain(removed).collect();
    if !only_show {
        receipt.remove(&path)?;
    }
    Ok(lines)
}

fn load(client: CodingClient, user: &UserEnvironment) -> Result<(SetupReceipt, PathBuf), ClientSetupError> {
    let path = receipt_of(client, user)?;
    match SetupReceipt::load(&path)? {
        Some(receipt) => Ok((receipt, path)),
        None => Err(ClientSetupError::NotConfigured { client: client.name(), path }),
    }
}

/// Computes the restored settings of a client. Nothing is written.
///
/// # Errors
/// Returns an error if there is no receipt, or a file cannot be read, restored or replaced.
pub(super) fn prepare(
    client: CodingClient,
    user: &UserEnvironment,
    force: bool,
) -> Result<Restoration, ClientSetupError> {
    let (receipt, receipt_path) = load(client, user)?;
    let mut read = Vec::new();
    let mut keep_group = false;
    for part in &receipt.files {
        let file = SettingsFile::read(&part.path)?;
        file.check_writable()?;
        if file.exists() {
            let changed = changed_keys(&file.text, part)
                .map_err(|fault| ClientSetupError::Syntax { path: part.path.clone(), fault })?;
            keep_group |= changed.iter().any(|key| key.role != KeyRole::Plain);
        }
        read.push((file, part.clone()));
    }
    let mut files = Vec::new();
    for (file, part) in read {
        let restored = file.exists().then(|| restore(&file.text, &part, keep_group, force)).transpose();
        let restored =
            restored.map_err(|fault| ClientSetupError::Syntax { path: part.path.clone(), fault })?;
        files.push(RestoredFile { file, receipt: part, restored });
    }
    Ok(Restoration { files, receipt, receipt_path })
}

impl Restoration {
    /// Returns the lines that show what is restored, and what stays.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for part in &self.files {
            let path = part.file.path.display();
            let what = match &part.restored {
                None => match part.receipt.backup.as_ref().filter(|backup| backup.exists()) {
                    Some(backup) => {
                        format!(
                            "is not there any more; {} has it as it was before configure",
                            backup.display()
                        )
                    }
                    None => "is not there any more".to_owned(),
                },
                Some(restored) if restored.exact && part.receipt.mode_before.is_none() => {
                    "is removed".to_owned()
                }
                Some(restored) if restored.exact => "is restored exactly".to_owned(),
                Some(restored) => {
                    let count = part.receipt.keys.len().saturating_sub(restored.kept.len());
                    format!("was changed since; {count} of {} keys are restored", part.receipt.keys.len())
                }
            };
            lines.push(format!("{path} {what}"));
            for kept in part.restored.iter().flat_map(|restored| &restored.kept) {
                lines.push(format!("  {} stays as it is", kept.join(".")));
            }
        }
        lines
    }

    /// Whether all keys are restored.
    pub(super) fn is_complete(&self) -> bool {
        self.files.iter().all(|part| part.restored.as_ref().is_none_or(|restored| restored.kept.is_empty()))
    }

    /// Writes the files, in the reverse order of `configure`, and then removes the receipt. Keys that stay keep theirs.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written. The receipt then stays, and the command can be repeated.
    pub(super) fn write(&self) -> Result<(), ClientSetupError> {
        for part in self.files.iter().rev() {
            part.write()?;
        }
        if self.is_complete() {
            let mut receipt = self.receipt.clone();
            for (part, receipt) in self.files.iter().zip(&mut receipt.files) {
                if part.restored.is_none() {
                    // The only copy that the user has.
                    receipt.backup = None;
                }
            }
            return receipt.remove(&self.receipt_path);
        }
        let mut receipt = self.receipt.clone();
        for (part, receipt) in self.files.iter().zip(&mut receipt.files) {
            let kept = part.restored.as_ref().map(|restored| restored.kept.as_slice()).unwrap_or_default();
            receipt.keys.retain(|key| kept.contains(&key.path));
            // The steps fit the text of `configure` only.
            receipt.undo.clear();
            receipt.after.clear();
        }
        receipt.files.retain(|file| !file.keys.is_empty());
        receipt.save(&self.receipt_path)
    }
}

impl RestoredFile {
    fn write(&self) -> Result<(), ClientSetupError> {
        let Some(restored) = &self.restored else { return Ok(()) };
        let is_new = self.receipt.mode_before.is_none();
        let is_empty = matches!(restored.text.trim(), "" | "{}");
        if is_new && is_empty && restored.kept.is_empty() {
            self.file.remove()?;
            remove_empty_folders(&self.receipt.created_folders);
            return Ok(());
        }
        // A mode that the user changed later stays. As long as a key may be in the file, its mode stays strict.
        let now = self.file.mode.unwrap_or(self.receipt.mode_after);
        let mode = match self.receipt.mode_before {
            Some(before) if now == self.receipt.mode_after && restored.kept.is_empty() => before,
            _ => now,
        };
        self.file.replace(&restored.text, mode)
    }
}
