//! Files of a snapshot: routes and keys each have a main file, and may have more files and folders of files.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::folder;
use super::node::ConfigTable;
use super::report::Report;
use super::stable_read::StableReader;

/// Maximum number of files of one kind. The hash of each is compared at every reload.
const MAX_FILES: usize = 1_000;
/// End of an entry that names all files of a folder.
const PATTERN: &str = "/*.toml";
/// Folders of the admin API below its state folder, with the entries that it creates.
const STATE_FOLDERS: [&str; 2] = ["routes.d", "keys.d"];
/// File in such a folder to which the admin API adds entries.
const STATE_FILE: &str = "admin.toml";

/// Kind of a file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Providers and models.
    Routes,
    /// Keys and accounts.
    Keys,
}

/// Hash of a file's text: SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHash([u8; 32]);

impl FileHash {
    /// Hashes a text.
    pub fn of(text: &str) -> Self {
        FileHash(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the first 32 hexadecimal digits, which identify a version of a file.
    pub fn to_hex(self) -> String {
        use std::fmt::Write as _;
        self.0.iter().take(16).fold(String::with_capacity(32), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
    }
}

impl std::fmt::Debug for FileHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// Text that a file is to have: it is checked before it is written.
#[derive(Clone, Debug)]
pub(super) struct CandidateFile {
    pub(super) kind: SourceKind,
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Further files of routes or keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncludedFiles {
    /// One file, which must exist.
    File(PathBuf),
    /// All files of a folder whose names end in `.toml` and do not begin with a dot, ordered by name. The folder need
    /// not exist.
    Folder(PathBuf),
}

/// Files of routes or of keys: the main file and included ones, in the order in which they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSources {
    main: PathBuf,
    included: Vec<IncludedFiles>,
}

impl ConfigSources {
    /// Creates the sources of one file.
    pub fn of_file(main: impl Into<PathBuf>) -> Self {
        ConfigSources { main: main.into(), included: Vec::new() }
    }

    /// Returns the main file, which alone may have settings besides entries.
    pub fn main(&self) -> &Path {
        &self.main
    }

    /// Returns the included files and folders.
    pub fn included(&self) -> &[IncludedFiles] {
        &self.included
    }

    /// Returns the paths as the configuration writes them.
    pub(super) fn written(&self) -> Vec<String> {
        let included = self.included.iter().map(|included| match included {
            IncludedFiles::File(path) => path.display().to_string(),
            IncludedFiles::Folder(path) => format!("{}{PATTERN}", path.display()),
        });
        std::iter::once(self.main.display().to_string()).chain(included).collect()
    }

    /// Returns all files that exist now, the main file first. A file that is named twice is listed once.
    ///
    /// # Errors
    /// Returns [`Report`] if a folder cannot be read, or if there are too many files.
    pub fn files(&self) -> Result<Vec<PathBuf>, Report> {
        let mut files = vec![self.main.clone()];
        for included in &self.included {
            let found = match included {
                IncludedFiles::File(path) => vec![path.clone()],
                IncludedFiles::Folder(path) => list(path)
                    .map_err(|error| Report::of_file(path, format!("the folder cannot be read: {error}")))?,
            };
            for file in found {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        if files.len() > MAX_FILES {
            let message = format!("{} files are included; the maximum is {MAX_FILES}", files.len());
            return Err(Report::of_file(&self.main, message));
        }
        Ok(files)
    }
}

/// Returns the configuration files in a folder, ordered by name. A folder that does not exist has none.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        // Hidden files are those of editors, and files that are not complete yet.
        if name.to_str().is_some_and(|name| name.ends_with(".toml") && !name.starts_with('.')) {
            files.push(folder.join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Files from which a snapshot is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSources {
    /// Files of routes.
    pub routes: ConfigSources,
    /// Files of keys.
    pub keys: ConfigSources,
    /// File that is laid over the embedded catalogue of models.
    pub catalogue: Option<PathBuf>,
}

impl SnapshotSources {
    /// Creates the sources, with the folders of the admin API's state folder.
    pub(super) fn new(routes: &ConfigSources, keys: &ConfigSources, state: &Path) -> Self {
        let mut sources = SnapshotSources { routes: routes.clone(), keys: keys.clone(), catalogue: None };
        for (sources, name) in [&mut sources.routes, &mut sources.keys].into_iter().zip(STATE_FOLDERS) {
            let folder = IncludedFiles::Folder(state.join(name));
            if !sources.included.contains(&folder) {
                sources.included.push(folder);
            }
        }
        sources
    }

    /// Returns the files in the state folder to which entries are added: of routes and of keys.
    pub(super) fn state_files(state: &Path) -> [PathBuf; 2] {
        STATE_FOLDERS.map(|name| state.join(name).join(STATE_FILE))
    }
}

/// File with its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceText<'t> {
    pub(super) path: &'t Path,
    pub(super) text: &'t str,
}

/// File of a snapshot with its text.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    pub(super) kind: SourceKind,
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl SourceFile {
    pub(super) fn as_text(&self) -> SourceText<'_> {
        SourceText { path: &self.path, text: &self.text }
    }
}

impl SnapshotSources {
    /// Returns the files of a kind.
    pub fn of(&self, kind: SourceKind) -> &ConfigSources {
        match kind {
            SourceKind::Routes => &self.routes,
            SourceKind::Keys => &self.keys,
        }
    }

    /// Reads the files of a kind, and the candidate of the reader if it is of this kind.
    ///
    /// # Errors
    /// Returns [`Report`] with every file that cannot be read.
    pub(super) fn read(&self, kind: SourceKind, reader: &StableReader) -> Result<Vec<SourceFile>, Report> {
        let mut paths = self.of(kind).files()?;
        if let Some(candidate) = reader.candidate()
            && candidate.kind == kind
            && !paths.contains(&candidate.path)
        {
            paths.push(candidate.path.clone());
        }
        let mut report = Report::default();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match reader.read(&path) {
                Ok(text) => files.push(SourceFile { kind, path, text }),
                Err(error) => report.merge(super::unread(&path, &error)),
            }
        }
        report.into_result().map(|()| files)
    }
}

/// Reads `server.routes` or `server.keys`: a path, or a list of paths and of folders with `/*.toml`.
pub(super) fn read(table: &ConfigTable<'_>, key: &'static str, default: &str, base: &Path) -> ConfigSources {
    let Some(value) = table.get(key) else { return ConfigSources::of_file(base.join(default)) };
    if !value.is_list() {
        return ConfigSources::of_file(base.join(value.as_str().unwrap_or(default)));
    }
    let mut main = None;
    let mut included = Vec::new();
    let count = value.elements(|element| {
        let Some(text) = element.as_str() else { return };
        let folder = text.strip_suffix(PATTERN);
        if folder.unwrap_or(text).contains('*') {
            let hint = format!("write a path, or a folder and {PATTERN}, such as \"keys.d{PATTERN}\"");
            element.wrong(format!("\"{text}\" is not a path"), hint);
            return;
        }
        match (folder, &main) {
            (Some(_), None) => element.wrong("the first entry must be a file, not a folder", None),
            (Some(folder), _) => included.push(IncludedFiles::Folder(base.join(folder))),
            (None, None) => main = Some(base.join(text)),
            (None, Some(_)) => included.push(IncludedFiles::File(base.join(text))),
        }
    });
    if count == Some(0) {
        value.wrong("the list has no file", format!("for example: {key} = [\"{default}\"]"));
    }
    ConfigSources { main: main.unwrap_or_else(|| base.join(default)), included }
}

/// Returns the sources beside a gateway.toml that cannot be read.
pub(super) fn beside(file: &Path) -> SnapshotSources {
    let folder = folder(file);
    SnapshotSources {
        routes: ConfigSources::of_file(folder.join("routes.toml")),
        keys: ConfigSources::of_file(folder.join("keys.toml")),
        catalogue: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_list_files_of_a_folder_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("keys.d");
        let sources = ConfigSources {
            main: folder.path().join("keys.toml"),
            included: vec![IncludedFiles::Folder(below.clone()), IncludedFiles::File(below.join("b.toml"))],
        };
        assert_eq!(sources.files().unwrap(), [folder.path().join("keys.toml"), below.join("b.toml")]);
        std::fs::create_dir(&below).unwrap();
        for name in ["c.toml", "a.toml", "b.toml", ".hidden.toml", "a.toml~", "a.txt"] {
            std::fs::write(below.join(name), "").unwrap();
        }
        let names: Vec<String> = sources.files().unwrap()[1..]
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a.toml", "b.toml", "c.toml"]);
        std::fs::remove_dir_all(&below).unwrap();
        std::fs::write(&below, "").unwrap();
        assert!(sources.files().unwrap_err().to_string().contains("the folder cannot be read"));
    }
}
