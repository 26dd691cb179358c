//! Files of an import: read with a bound, and written as a whole or not at all.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::ImportError;

/// File of the result.
pub(super) struct OutputFile {
    /// Name in the folder of the result.
    pub(super) name: &'static str,
    /// Text of the file.
    pub(super) text: String,
    /// Permission bits.
    pub(super) mode: u32,
}

/// Reads a text file of at most `limit` bytes. A byte order mark is removed.
///
/// # Errors
/// Returns an error if the file cannot be read, is larger, or is not UTF-8.
pub(super) fn read_text(path: &Path, limit: u64) -> Result<String, ImportError> {
    let io = |source| ImportError::Io { path: path.to_owned(), source };
    // Before the file is opened: opening a named pipe would wait for its writer.
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(ImportError::File { path: path.to_owned(), message: "is not a regular file".to_owned() });
    }
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(io)?.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > limit {
        let message = format!("is larger than {} MiB", limit >> 20);
        return Err(ImportError::File { path: path.to_owned(), message });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        ImportError::File { path: path.to_owned(), message: format!("line {line} is not UTF-8") }
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Returns whether a regular file begins with these bytes.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(super) fn begins_with(path: &Path, magic: &[u8]) -> Result<bool, ImportError> {
    let io = |source| ImportError::Io { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Ok(false);
    }
    let mut beginning = Vec::with_capacity(magic.len());
    fs::File::open(path).map_err(io)?.take(magic.len() as u64).read_to_end(&mut beginning).map_err(io)?;
    Ok(beginning == magic)
}

/// Writes the files. Every text is on disk before the first file appears under its name.
///
/// # Errors
/// Returns an error, and leaves no new file, if a file exists and may not be replaced, or cannot be written.
pub(super) fn write(folder: &Path, files: &[OutputFile], force: bool) -> Result<Vec<PathBuf>, ImportError> {
    let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(file.name)).collect();
    if !force {
        let there: Vec<String> =
            paths.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
        if !there.is_empty() {
            return Err(ImportError::Exists(there.join(", ")));
        }
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ImportError::Io { path, source }
    };
    fs::create_dir_all(folder).map_err(io(folder))?;
    let mut staged = Vec::with_capacity(files.len());
    for (file, path) in files.iter().zip(&paths) {
        // Created with mode 0600: the text can be a secret before the final mode is set.
        let mut temporary =
            tempfile::Builder::new().prefix(".model-gateway-").tempfile_in(folder).map_err(io(path))?;
        temporary.write_all(file.text.as_bytes()).map_err(io(path))?;
        let permissions = fs::Permissions::from_mode(file.mode);
        temporary.as_file().set_permissions(permissions).map_err(io(path))?;
        temporary.as_file().sync_all().map_err(io(path))?;
        staged.push((temporary, path));
    }
    let mut written: Vec<PathBuf> = Vec::new();
    for (temporary, path) in staged {
        let persisted = if force { temporary.persist(path) } else { temporary.persist_noclobber(path) };
        if let Err(error) = persisted {
            // Without --force, nothing was there before.
            for path in written.iter().filter(|_| !force) {
                let _ = fs::remove_file(path);
            }
            return Err(io(path)(error.error));
        }
        written.push(path.clone());
    }
    Ok(written)
}
