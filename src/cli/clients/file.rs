//! Settings files on disk: read with bounds, written atomically through symbolic links.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::error::ClientSetupError;

/// Maximum size of a settings file (bytes).
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Byte order mark, which editors of some systems write first.
const BOM: &str = "\u{feff}";
/// Permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Returns links to the entries of a folder, except for those named, below the folder `under` of a temporary one. None if
/// the folder does not exist.
pub(super) fn links(folder: &Path, under: &str, except: &[&str]) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let linked = entries.filter(|entry| !except.iter().any(|name| entry.file_name() == *name));
    linked.map(|entry| (Path::new(under).join(entry.file_name()), entry.path())).collect()
}

/// Settings file as it was read.
#[derive(Clone, Debug)]
pub(super) struct SettingsFile {
    /// Path as the client names it.
    pub(super) path: PathBuf,
    /// Path behind all symbolic links.
    target: PathBuf,
    /// Permission bits. `None` if the file does not exist.
    pub(super) mode: Option<u32>,
    /// Owner and group. `None` if the file does not exist.
    owner: Option<(u32, u32)>,
    /// Whether the text begins with a byte order mark, which `text` does not have.
    bom: bool,
    /// Text of the file. Empty if it does not exist.
    pub(super) text: String,
}

impl SettingsFile {
    /// Reads a file that may not exist.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, or is not a text file that can be replaced.
    pub(super) fn read(path: &Path) -> Result<Self, ClientSetupError> {
        let fault = |what: String| ClientSetupError::File { path: path.to_owned(), what };
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_ok() {
                    return Err(fault("the symbolic link leads to no file".to_owned()));
                }
                let (path, target) = (path.to_owned(), path.to_owned());
                return Ok(SettingsFile {
                    path,
                    target,
                    mode: None,
                    owner: None,
                    bom: false,
                    text: String::new(),
                });
            }
            Err(error) => return Err(fault(error.to_string())),
        };
        // Before the file is opened: opening a named pipe would wait for its writer.
        let metadata = fs::metadata(&target).map_err(|error| fault(error.to_string()))?;
        if !metadata.is_file() {
            return Err(fault("it is not a regular file".to_owned()));
        }
        if metadata.len() > MAX_FILE {
            return Err(fault("it is larger than 4 MiB".to_owned()));
        }
        let text = read_text(&target).map_err(fault)?;
        let (bom, text) = match text.strip_prefix(BOM) {
            Some(rest) => (true, rest.to_owned()),
            None => (false, text),
        };
        let mode = Some(metadata.mode() & PERMISSIONS);
        let owner = Some((metadata.uid(), metadata.gid()));
        Ok(SettingsFile { path: path.to_owned(), target, mode, owner, bom, text })
    }

    /// Whether the file exists.
    pub(super) fn exists(&self) -> bool {
        self.mode.is_some()
    }

    /// Checks that the file may be replaced.
    ///
    /// # Errors
    /// Returns an error that names the file if it is read-only, or has several names.
    pub(super) fn check_writable(&self) -> Result<(), ClientSetupError> {
        let fault = |what: &str| ClientSetupError::File { path: self.path.clone(), what: what.to_owned() };
        let Some(mode) = self.mode else { return Ok(()) };
        if mode & 0o222 == 0 {
            return Err(fault("it is read-only"));
        }
        let links = fs::metadata(&self.target).map_or(1, |metadata: Metadata| metadata.nlink());
        if links > 1 {
            return Err(fault("it has several hard links, which a replacement would separate"));
        }
        Ok(())
    }

    /// Writes a copy of the file with another text, readable by the owner only, and with the same byte order mark.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn copy(&self, text: &str, to: &Path) -> Result<(), ClientSetupError> {
        write_atomic(to, &[if self.bom { BOM } else { "" }, text], 0o600, None)
    }

    /// Replaces the file: the new text is written beside it, readable by the owner only, and then renamed.
    ///
    /// # Errors
    /// Returns an error if the file has changed since it was read, or cannot be written. The file is then unchanged.
    pub(super) fn replace(&self, text: &str, mode: u32) -> Result<(), ClientSetupError> {
        let now = SettingsFile::read(&self.path)?;
        if (now.exists(), now.bom, &now.text) != (self.exists(), self.bom, &self.text) {
            let what = "it was changed by another program just now; nothing was written".to_owned();
            return Err(ClientSetupError::File { path: self.path.clone(), what });
        }
        let bom = if self.bom { BOM } else { "" };
        write_atomic(&self.target, &[bom, text], mode, self.owner)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub(super) fn remove(&self) -> Result<(), ClientSetupError> {
        fs::remove_file(&self.target)
            .map_err(|error| ClientSetupError::io(self.path.display().to_string(), error))
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // The size can have grown since it was checked.
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..valid).unwrap_or_default();
        format!("line {} is not UTF-8", memchr::memchr_iter(b'\n', before).count() + 1)
    })
}

/// Writes a file through a temporary file in its folder.
///
/// # Errors
/// Returns an error if a step fails. The target is then unchanged, and the temporary file is removed.
pub(super) fn write_atomic(
    target: &Path,
    parts: &[&str],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<(), ClientSetupError> {
    let fault = |error: io::Error| ClientSetupError::io(target.display().to_string(), error);
    let folder = target.parent().unwrap_or(Path::new("."));
    // Created with mode 0600: the text can have a key before the final mode is set.
    let mut staged = tempfile::Builder::new().prefix(".model-gateway-").tempfile_in(folder).map_err(fault)?;
    for part in parts {
        staged.write_all(part.as_bytes()).map_err(fault)?;
    }
    let created = staged.as_file().metadata().map_err(fault)?;
    if let Some((user, group)) = owner.filter(|owner| *owner != (created.uid(), created.gid())) {
        std::os::unix::fs::fchown(staged.as_file(), Some(user), Some(group)).map_err(fault)?;
    }
    staged.as_file().set_permissions(fs::Permissions::from_mode(mode)).map_err(fault)?;
    staged.as_file().sync_all().map_err(fault)?;
    staged.persist(target).map_err(|error| fault(error.error))?;
    Ok(())
}

/// Creates a folder and its missing parents, readable by the owner only. Returns those that were created, outermost
/// first.
///
/// # Errors
/// Returns an error if one of them cannot be created.
pub(super) fn create_folders(folder: &Path) -> Result<Vec<PathBuf>, ClientSetupError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let absent = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let mut missing: Vec<PathBuf> = absent.map(Path::to_owned).collect();
    missing.reverse();
    for path in &missing {
        let created = fs::DirBuilder::new().mode(0o700).create(path);
        created.map_err(|error| ClientSetupError::io(path.display().to_string(), error))?;
    }
    Ok(missing)
}

/// Removes folders that are empty, innermost first. A folder with other files stays.
pub(super) fn remove_empty_folders(created: &[PathBuf]) {
    for path in created.iter().rev() {
        let _ = fs::remove_dir(path);
    }
}
