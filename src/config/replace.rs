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

/// Owner and mode of a new file. What root creates would else be root's, and the gateway, which runs as another user, could not
/// read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileOwner {
    /// User and group. `None` for those of the process.
    ids: Option<(u32, u32)>,
    mode: u32,
}

impl FileOwner {
    /// Owner of a file that only the gateway has to do with: that of its folder.
    pub(super) fn of_folder(file: &Path) -> Self {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let owner = std::fs::metadata(folder.unwrap_or(Path::new("."))).ok();
        FileOwner { ids: owner.map(|owner| (owner.uid(), owner.gid())), mode: NEW_FILE_MODE }
    }

    /// Owner and mode of the first of these files that exists, which the gateway reads too; otherwise that of the folder of `file`.
    /// `state` is a folder of the gateway: its user must be able to read the file.
    pub(super) fn like(others: &[&Path], file: &Path, state: Option<&Path>) -> Self {
        let found = others.iter().find_map(|other| std::fs::metadata(other).ok());
        let mut owner = match found {
            Some(other) => {
                FileOwner { ids: Some((other.uid(), other.gid())), mode: other.permissions().mode() & 0o666 }
            }
            None => FileOwner::of_folder(file),
        };
        let reader = state.and_then(|state| std::fs::metadata(state).ok());
        if let (Some(reader), Some((user, _))) = (reader, owner.ids)
            && reader.uid() != 0
            && !owner.is_readable_by(reader.uid(), reader.gid())
        {
            owner = FileOwner { ids: Some((user, reader.gid())), mode: owner.mode | 0o040 };
        }
        owner
    }

    /// Gives a new folder to the owner.
    pub(super) fn give_folder(self, folder: &Path) -> io::Result<()> {
        FileOwner { mode: NEW_FOLDER_MODE, ..self }.give(folder)
    }

    /// Returns the same owner with the mode of a file that others may not read.
    pub(super) fn private(self) -> Self {
        FileOwner { mode: self.mode & NEW_FILE_MODE | 0o600, ..self }
    }

    fn is_readable_by(self, user: u32, group: u32) -> bool {
        self.mode & 0o004 != 0
            || self.ids.is_some_and(|(own, of)| {
                (own == user && self.mode & 0o400 != 0) || (of == group && self.mode & 0o040 != 0)
            })
    }

    fn give(self, path: &Path) -> io::Result<()> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(self.mode))?;
        // Only root gives files away; what others create is theirs.
        if let Some((user, group)) = self.ids.filter(|_| rustix::process::geteuid().is_root()) {
            // Without the capability for it, root is a user like others.
            let _ = std::os::unix::fs::chown(path, Some(user), Some(group));
        }
        Ok(())
    }
}

/// Replaces a file atomically: writes and syncs a temporary file beside it, exchanges the two and syncs the folder.
/// `before` is the text that was edited, `None` if there was no file. Permissions are preserved; a new file gets those of `new`. A
/// symbolic link is followed.
///
/// A program that replaces the file at the same moment loses nothing: the two files are exchanged, and exchanged back
/// if the old one was not the one that was edited.
///
/// # Errors
/// Returns [`ReplaceError`] if the file is not the one that was edited, or cannot be written; it is then unchanged.
pub(super) fn replace_file(
    path: &Path,
    before: Option<&str>,
    text: &str,
    new: FileOwner,
) -> Result<(), ReplaceError> {
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
        exchange(&real, folder, (before, text), new).map_err(failed)?
    } else {
        false
    };
    if !replaced {
        return Err(ReplaceError::Changed(path.to_owned()));
    }
    locked.sync_all().map_err(failed)
}

/// Gives a file that root has created to the owner of its folder, with those beside it whose names go on after its name. The file is
/// used as it is if that is not possible.
pub fn give_to_folder_owner(file: &Path, beside: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if let Some((user, group)) = FileOwner::of_folder(file).ids {
        for end in std::iter::once(&"").chain(beside) {
            let mut name = file.as_os_str().to_owned();
            name.push(end);
            let _ = std::os::unix::fs::chown(Path::new(&name), Some(user), Some(group));
        }
    }
}

/// Creates a folder and those above it, unless they exist, with the owner of the nearest one that does.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_folder(above)?;
    }
    match std::fs::DirBuilder::new().mode(NEW_FOLDER_MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    }
    FileOwner { mode: NEW_FOLDER_MODE, ..FileOwner::of_folder(folder) }.give(folder)
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
fn exchange(
    path: &Path,
    folder: &Path,
    (before, text): (Option<&str>, &str),
    new: FileOwner,
) -> io::Result<bool> {
    let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    match std::fs::metadata(path) {
        Ok(old) => {
            std::fs::set_permissions(file.path(), old.permissions())?;
            // Only root may change the owner. For other users the chown fails, and they own the new file.
            let _ = std::os::unix::fs::chown(file.path(), Some(old.uid()), Some(old.gid()));
        }
        Err(_) => new.give(file.path())?,
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
        let replace =
            |path: &Path, before, text| replace_file(path, before, text, FileOwner::of_folder(path));
        assert!(matches!(replace(&path, Some("a"), "b"), Err(ReplaceError::Changed(_))));
        replace(&path, None, "a").unwrap();
        assert!(matches!(replace(&path, None, "b"), Err(ReplaceError::Changed(_))));
        assert!(matches!(replace(&path, Some("x"), "b"), Err(ReplaceError::Changed(_))));
        replace(&path, Some("a"), "b").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        assert!(is_replaceable(&path) && is_replaceable(&folder.path().join("new/keys.toml")));
    }

    /// Only root can give a file away, which the tests of the commands do if they run as root.
    #[test]
    fn owner_of_a_new_file_is_that_of_a_file_beside_it_or_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, new) = (folder.path().join("keys.toml"), folder.path().join("admin.toml"));
        let of_folder = FileOwner::of_folder(&new);
        assert_eq!((of_folder.mode, FileOwner::like(&[&keys], &new, None)), (0o640, of_folder));
        std::fs::write(&keys, "").unwrap();
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o660)).unwrap();
        let like = FileOwner::like(&[&keys], &new, Some(folder.path()));
        replace_file(&new, None, "x", like).unwrap();
        let (old, new) = (std::fs::metadata(&keys).unwrap(), std::fs::metadata(&new).unwrap());
        assert_eq!((old.uid(), old.gid(), old.mode()), (new.uid(), new.gid(), new.mode()));
    }

    #[test]
    fn owner_of_a_new_file_lets_the_gateway_read_it() {
        let owner = |ids, mode| FileOwner { ids: Some(ids), mode };
        for (owner, readable) in [
            (owner((0, 0), 0o640), false),
            (owner((0, 0), 0o644), true),
            (owner((0, 7), 0o640), true),
            (owner((0, 7), 0o600), false),
            (owner((7, 0), 0o600), true),
        ] {
            assert_eq!(owner.is_readable_by(7, 7), readable, "{owner:?}");
        }
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
