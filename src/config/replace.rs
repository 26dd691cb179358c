//! Atomic replacement of a configuration file that hand editors may change at the same time.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Mode of a new file: readable by its owner and group only.
const NEW_FILE_MODE: u32 = 0o640;
/// Mode of a new folder.
const NEW_FOLDER_MODE: u32 = 0o750;
/// Number of times that a file may change during its replacement before the replacement is given up.
const EXCHANGES: usize = 8;

/// Reason why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The file has another text than the one that was edited.
    #[error("{} was changed by another program in the meantime", .0.display())]
    Changed(PathBuf),
    /// The operating system returned an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
}

/// Replaces a file atomically: writes and syncs a temporary file beside it, exchanges the two and syncs the folder.
/// `before` is the text that was edited, `None` if there was no file. Permissions are preserved; a new file is readable
/// by its owner and group only. A symbolic link is followed.
///
/// A program that replaces the file at the same moment loses nothing: the two files are exchanged, and exchanged back
/// if the old one was not the one that was edited.
///
/// # Errors
/// Returns [`ReplaceError`] if the file is not the one that was edited, or cannot be written; it is then unchanged.
pub(super) fn replace_file(path: &Path, before: Option<&str>, text: &str) -> Result<(), ReplaceError> {
    let failed = |source| ReplaceError::Io { path: path.to_owned(), source };
    // Follow a symbolic link: replace the file that it names, not the link.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match real.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let locked = File::open(folder).map_err(failed)?;
    // Commands and the admin API take turns. Editors take no lock, which the comparison below is for.
    locked.lock().map_err(failed)?;
    let replaced = if read(&real).map_err(failed)?.as_deref() == before {
        exchange(&real, folder, before, text).map_err(failed)?
    } else {
        false
    };
    if !replaced {
        return Err(ReplaceError::Changed(path.to_owned()));
    }
    locked.sync_all().map_err(failed)
}

/// Creates a folder and those above it, unless they exist.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(NEW_FOLDER_MODE).create(folder)
}

/// Returns whether the process may replace files in a folder. A folder that does not exist yet counts by the one above.
pub(super) fn is_replaceable(file: &Path) -> bool {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut folder = real.parent();
    while let Some(path) = folder {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if path.exists() {
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            return rustix::fs::access(path, access).is_ok();
        }
        folder = path.parent();
    }
    false
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the new text beside the file and puts it in the file's place. Returns false if the file is another one than
/// the one that was edited.
fn exchange(path: &Path, folder: &Path, before: Option<&str>, text: &str) -> io::Result<bool> {
    let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    match std::fs::metadata(path) {
        Ok(old) => {
            std::fs::set_permissions(file.path(), old.permissions())?;
            // Only root may change the owner. For other users the chown fails, and they own the new file.
            let _ = std::os::unix::fs::chown(file.path(), Some(old.uid()), Some(old.gid()));
        }
        Err(_) => std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(NEW_FILE_MODE))?,
    }
    file.as_file().sync_all()?;
    let Some(before) = before else {
        return match file.persist_noclobber(path) {
            Ok(_) => Ok(true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.error),
        };
    };
    exchange_with(path, file, before, text)
}

#[cfg(target_os = "linux")]
fn exchange_with(path: &Path, file: NamedTempFile, before: &str, text: &str) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let swap = || renameat_with(CWD, file.path(), CWD, path, RenameFlags::EXCHANGE);
    match swap() {
        Ok(()) => {}
        // Some network file systems cannot exchange files.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => return rename_over(path, file, before),
        Err(error) => return Err(error.into()),
    }
    if read(file.path())?.as_deref() == Some(before) {
        return Ok(true);
    }
    // A program has replaced the file since it was compared: its text goes back. If it replaces the file once more in
    // between, that text goes back.
    for _ in 0..EXCHANGES {
        swap()?;
        if read(file.path())?.as_deref() == Some(text) {
            break;
        }
    }
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
fn exchange_with(path: &Path, file: NamedTempFile, before: &str, _text: &str) -> io::Result<bool> {
    rename_over(path, file, before)
}

/// Replaces the file without an exchange. A change between the comparison and the rename is lost.
fn rename_over(path: &Path, file: NamedTempFile, before: &str) -> io::Result<bool> {
    if read(path)?.as_deref() != Some(before) {
        return Ok(false);
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_refuses_a_file_that_is_not_the_edited_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        assert!(matches!(replace_file(&path, Some("a"), "b"), Err(ReplaceError::Changed(_))));
        replace_file(&path, None, "a").unwrap();
        assert!(matches!(replace_file(&path, None, "b"), Err(ReplaceError::Changed(_))));
        assert!(matches!(replace_file(&path, Some("x"), "b"), Err(ReplaceError::Changed(_))));
        replace_file(&path, Some("a"), "b").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        assert!(is_replaceable(&path) && is_replaceable(&folder.path().join("new/keys.toml")));
    }

    /// An editor renames its file over the one that is being replaced, between the comparison and the exchange.
    #[test]
    fn replace_gives_back_what_an_editor_has_written_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, "of the editor").unwrap();
        let mut file = tempfile::Builder::new().tempfile_in(folder.path()).unwrap();
        file.write_all(b"new").unwrap();
        assert!(!exchange_with(&path, file, "edited", "new").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of the editor");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
