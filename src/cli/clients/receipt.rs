//! Receipts of `configure`: for each file and key, the previous value and the fingerprint of what was written.
//!
//! A receipt never has the gateway's key. It has the previous values of the keys that were replaced, which can be
//! credentials of the user, so it is readable by the owner only. There is one receipt for each client and folder of
//! settings.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::edit::{FileSyntax, UndoStep};
use super::error::ClientSetupError;
use super::file::{SettingsFile, create_folders, write_atomic};
use super::plan::KeyRole;

/// Version of the receipt's format.
const VERSION: u32 = 1;

/// Receipt of one `configure`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetupReceipt {
    version: u32,
    /// Name of the client.
    pub(super) client: String,
    /// Address of the gateway.
    pub(super) gateway: String,
    /// Files, in the order in which they were written.
    pub(super) files: Vec<FileReceipt>,
}

/// Part of a receipt for one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileReceipt {
    /// Path as the client names it.
    pub(super) path: PathBuf,
    pub(super) syntax: FileSyntax,
    /// Permission bits before. `None` if the file did not exist.
    pub(super) mode_before: Option<u32>,
    /// Permission bits after.
    pub(super) mode_after: u32,
    /// Folders that were created, outermost first.
    pub(super) created_folders: Vec<PathBuf>,
    /// Copy of the file from before `configure`. `None` if the file did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) backup: Option<PathBuf>,
    /// Fingerprint of the text before.
    pub(super) before: String,
    /// Fingerprint of the text after.
    pub(super) after: String,
    /// Steps that turn the text after into the text before.
    pub(super) undo: Vec<UndoStep>,
    /// Keys that were set or removed.
    pub(super) keys: Vec<KeyReceipt>,
    /// Tables that were created, innermost first.
    pub(super) created_tables: Vec<Vec<String>>,
}

/// Part of a receipt for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyReceipt {
    pub(super) path: Vec<String>,
    pub(super) role: KeyRole,
    /// Source text of the previous value. `None` if the key was absent, which is not the same as a null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) previous: Option<String>,
    /// Fingerprint of the value that was written. `None` if the key was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) written: Option<String>,
}

impl SetupReceipt {
    pub(super) fn new(client: &str, gateway: &str) -> Self {
        SetupReceipt {
            version: VERSION,
            client: client.to_owned(),
            gateway: gateway.to_owned(),
            files: Vec::new(),
        }
    }

    /// Reads a receipt. `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is no receipt of this version.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, ClientSetupError> {
        let file = SettingsFile::read(path)?;
        if !file.exists() {
            return Ok(None);
        }
        let fault = |what: String| ClientSetupError::Receipt { path: path.to_owned(), what };
        let receipt: SetupReceipt =
            serde_json::from_str(&file.text).map_err(|error| fault(error.to_string()))?;
        if receipt.version != VERSION {
            return Err(fault(format!(
                "it has version {}, and this program reads version {VERSION}",
                receipt.version
            )));
        }
        Ok(Some(receipt))
    }

    /// Returns a line for each copy that exists.
    pub(super) fn backups(&self) -> Vec<String> {
        let copied = self.files.iter().filter_map(|file| Some((file, file.backup.as_ref()?)));
        let exists = copied.filter(|(_, backup)| backup.exists());
        exists
            .map(|(file, backup)| {
                format!("{} has {} as it was before configure", backup.display(), file.path.display())
            })
            .collect()
    }

    /// Removes the receipt and the copies of the files that it names.
    ///
    /// # Errors
    /// Returns an error if one of them cannot be removed. The receipt then stays.
    pub(super) fn remove(&self, path: &Path) -> Result<(), ClientSetupError> {
        for backup in self.files.iter().filter_map(|file| file.backup.as_ref()) {
            let copy = SettingsFile::read(backup)?;
            if copy.exists() {
                copy.remove()?;
            }
        }
        SettingsFile::read(path)?.remove()
    }

    /// Writes the receipt, readable by the owner only.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<(), ClientSetupError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| ClientSetupError::io(path.display().to_string(), error.into()))?;
        create_folders(path.parent().unwrap_or(Path::new(".")))?;
        write_atomic(path, &[&text, "\n"], 0o600, None)
    }
}

/// Returns the path of the receipt for a client whose settings are in `folder`.
pub(super) fn receipt_path(state: &Path, client: &str, folder: &Path) -> PathBuf {
    // The same folder by another name has the same receipt.
    let folder = resolve(folder);
    let hash = fingerprint(&folder.to_string_lossy());
    let short = hash.get(..16).unwrap_or(&hash);
    state.join("model-gateway").join("clients").join(format!("{client}-{short}.json"))
}

/// Returns the path of the copy of a settings file, beside the receipt.
pub(super) fn backup_path(receipt: &Path, file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Names such as `.env` would be hidden.
    receipt.with_extension(format!("{}.backup", name.trim_start_matches('.')))
}

/// Resolves the symbolic links of a path whose last components may not exist yet.
fn resolve(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let (Ok(resolved), Ok(rest)) = (existing.canonicalize(), path.strip_prefix(existing)) {
            // Joined with an empty path, the result would end with a slash.
            return if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
        }
    }
    path.to_owned()
}

/// Returns the fingerprint of a text: SHA-256 in hexadecimal digits.
pub(super) fn fingerprint(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
