//! Changes of configuration files while the gateway runs: checked as a whole, written atomically, and applied at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value as Json};
use toml_edit::{DocumentMut, TableLike};

use super::admin::AdminApiSettings;
use super::entries::{Entries, EntryKind, FieldError};
use super::folder;
use super::masking::masked;
use super::reload::{ReloadOutcome, ReloadSession, Reloader};
use super::replace::{FileOwner, ReplaceError, create_folder, is_replaceable, replace_file};
use super::report::Report;
use super::secret_policy::{EntrySecrets, SecretPolicy, UsedSources};
use super::sources::{CandidateFile, FileHash, SnapshotSources, SourceKind};

/// Change of one file.
#[derive(Clone, Debug)]
pub enum ConfigChange {
    /// Appends an entry.
    Create {
        /// Kind of the entry.
        kind: EntryKind,
        /// Id of the entry.
        id: String,
        /// Members of the entry, the id included.
        members: Map<String, Json>,
        /// Comment above the entry.
        comment: String,
    },
    /// Changes members of an entry; a null removes a member.
    Merge {
        /// Kind of the entry.
        kind: EntryKind,
        /// Id of the entry.
        id: String,
        /// Members to be changed.
        patch: Map<String, Json>,
    },
    /// Removes an entry.
    Remove {
        /// Kind of the entry.
        kind: EntryKind,
        /// Id of the entry.
        id: String,
    },
    /// Gives a file an earlier text.
    Restore {
        /// Path of the file.
        path: PathBuf,
        /// Text that it gets.
        text: String,
    },
}

/// Change that passed every check and is about to be written.
#[derive(Debug)]
pub struct PreparedChange<'c> {
    /// File that is changed.
    pub path: &'c Path,
    /// Text of the file; `None` if it does not exist.
    pub text_before: Option<&'c str>,
    /// Hash of the text before; `None` if the file does not exist.
    pub hash_before: Option<FileHash>,
    /// Hash of the text afterwards.
    pub hash_after: FileHash,
    /// Entry before, with secrets masked; null if there was none.
    pub before: Json,
    /// Entry afterwards, with secrets masked; null if there is none.
    pub after: Json,
}

/// Change that is in effect, or would be.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// File that is changed.
    pub path: PathBuf,
    /// Hash of its new text.
    pub hash: FileHash,
    /// Entry before, with secrets masked.
    pub before: Json,
    /// Entry afterwards, with secrets masked.
    pub after: Json,
    /// Result of the reload. `None` for a dry run.
    pub reload: Option<ReloadOutcome>,
}

/// Conditions of a change.
#[derive(Clone, Debug, Default)]
pub struct ChangeConditions {
    /// Hash that the file must have, as [`FileHash::to_hex`] writes it. `None` for any.
    pub expected: Option<String>,
    /// Checks the change and does not write it.
    pub dry_run: bool,
}

/// Reason why a change was refused. The file and the configuration in effect are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The entry does not exist.
    #[error("no {} is named {id:?}", .kind.name())]
    Unknown {
        /// Kind of the entry.
        kind: EntryKind,
        /// Its id.
        id: String,
    },
    /// An entry with this id exists.
    #[error("a {} named {id:?} already exists", .kind.name())]
    Exists {
        /// Kind of the entry.
        kind: EntryKind,
        /// Its id.
        id: String,
    },
    /// A member cannot be written.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The configuration would not be valid.
    #[error("the configuration would not be valid: {0}")]
    Invalid(Report),
    /// The file has another version than the caller expects.
    #[error("the file has changed since it was read")]
    Stale {
        /// Hash of the file's text.
        current: String,
    },
    /// The file on disk is not the one that is in effect.
    #[error("{} was changed on disk and is not in effect yet; reload it first", .0.display())]
    ChangedOnDisk(PathBuf),
    /// The process may not write the file.
    #[error("{} is read-only for the gateway; change it by hand and reload", .0.display())]
    ReadOnly(PathBuf),
    /// `admin.writes` is false.
    #[error("changes of the configuration are switched off (admin.writes)")]
    WritesOff,
    /// The file is none of the configuration.
    #[error("{} is no file of the configuration any more", .0.display())]
    UnknownFile(PathBuf),
    /// The change cannot be recorded.
    #[error("the change cannot be recorded: {0}")]
    Unrecorded(std::io::Error),
    /// The file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
}

impl From<ReplaceError> for ChangeError {
    fn from(error: ReplaceError) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match error {
            ReplaceError::Changed(path) => ChangeError::ChangedOnDisk(path),
            ReplaceError::Io { path, source }
                if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
            {
                ChangeError::ReadOnly(path)
            }
            ReplaceError::Io { path, source } => ChangeError::Io { path, source },
        }
    }
}

/// Records a change before it is written. An error refuses the change.
pub type RecordChange<'r> = &'r mut dyn FnMut(&PreparedChange<'_>) -> std::io::Result<()>;

/// Writer of configuration files.
#[derive(Debug)]
pub struct ConfigWriter {
    reloader: Arc<Reloader>,
    /// Files that get new entries if the main file is read-only: of routes and of keys.
    state_files: [PathBuf; 2],
    writes: bool,
    policy: SecretPolicy,
}

/// File that is edited.
struct EditedFile {
    kind: SourceKind,
    path: PathBuf,
    text: Option<String>,
    document: DocumentMut,
}

/// Comment at the beginning of a file that the gateway creates. It also keeps the file from being empty.
const HEADER: &str = "# Entries that the admin API has added.\n";

impl ConfigWriter {
    /// Creates the writer of the settings of the admin API.
    pub fn new(reloader: Arc<Reloader>, settings: &AdminApiSettings) -> Self {
        ConfigWriter {
            reloader,
            state_files: SnapshotSources::state_files(&settings.state),
            writes: settings.writes,
            policy: SecretPolicy::new(&settings.provider_hosts, &settings.credential_sources),
        }
    }

    /// Returns the reloader.
    pub fn reloader(&self) -> &Arc<Reloader> {
        &self.reloader
    }

    /// Returns whether the gateway may change a file.
    pub fn is_writable(&self, path: &Path) -> bool {
        self.writes && is_replaceable(path)
    }

    /// Returns the file that has an entry, with its hash. `None` if no file has it. Parses the files.
    ///
    /// # Errors
    /// Returns [`ChangeError`] if a file cannot be read.
    pub fn locate(&self, kind: EntryKind, id: &str) -> Result<Option<(PathBuf, FileHash)>, ChangeError> {
        let file = self.find(kind, id)?;
        Ok(file.map(|file| (file.path, FileHash::of(file.text.as_deref().unwrap_or_default()))))
    }

    /// Applies a change: edits the file, checks the whole configuration, calls `record`, replaces the file and
    /// activates the new snapshot. Blocks: call it on a blocking thread.
    ///
    /// # Errors
    /// Returns [`ChangeError`]; then nothing is changed.
    pub fn apply(
        &self,
        change: &ConfigChange,
        conditions: &ChangeConditions,
        record: RecordChange<'_>,
    ) -> Result<AppliedChange, ChangeError> {
        let start = Instant::now();
        if !self.writes {
            return Err(ChangeError::WritesOff);
        }
        let session = self.reloader.exclusive();
        let mut file = self.edited(change)?;
        self.check_version(&session, &file, conditions)?;
        let secrets_before = secrets_of(&mut file, change);
        let (before, after, text) = edit(&mut file, change)?;
        if let (Some(before), Some(after)) = (secrets_before, secrets_of(&mut file, change)) {
            self.policy.check(&before, &after, || self.used_sources())?;
        }
        let candidate = CandidateFile { kind: file.kind, path: file.path.clone(), text: text.clone() };
        let checked = session.check(candidate).map_err(ChangeError::Invalid)?;
        let hash = FileHash::of(&text);
        let reload = if conditions.dry_run {
            None
        } else {
            record(&PreparedChange {
                path: &file.path,
                text_before: file.text.as_deref(),
                hash_before: file.text.as_deref().map(FileHash::of),
                hash_after: hash,
                before: before.clone(),
                after: after.clone(),
            })
            .map_err(ChangeError::Unrecorded)?;
            if let (None, Some(folder)) = (&file.text, file.path.parent()) {
                create_folder(folder)
                    .map_err(|source| ReplaceError::Io { path: folder.to_owned(), source })?;
            }
            replace_file(&file.path, file.text.as_deref(), &text, FileOwner::of_folder(&file.path))?;
            Some(session.install(checked, start))
        };
        Ok(AppliedChange { path: file.path, hash, before, after, reload })
    }

    /// Returns the file that a change concerns.
    fn edited(&self, change: &ConfigChange) -> Result<EditedFile, ChangeError> {
        match change {
            ConfigChange::Create { kind, id, .. } => match self.find(*kind, id)? {
                Some(_) => Err(ChangeError::Exists { kind: *kind, id: id.clone() }),
                None => open(kind.source(), self.file_for_new(kind.source())),
            },
            ConfigChange::Merge { kind, id, .. } | ConfigChange::Remove { kind, id } => {
                let file = self.find(*kind, id)?;
                file.ok_or_else(|| ChangeError::Unknown { kind: *kind, id: id.clone() })
            }
            ConfigChange::Restore { path, .. } => {
                let files = self.reloader.loaded_files();
                let file = files.into_iter().find(|file| file.path == *path);
                let file = file.ok_or_else(|| ChangeError::UnknownFile(path.clone()))?;
                open(file.kind, file.path)
            }
        }
    }

    /// Refuses a change of a file that has another version than the caller expects, or than the one in effect.
    fn check_version(
        &self,
        session: &ReloadSession<'_>,
        file: &EditedFile,
        conditions: &ChangeConditions,
    ) -> Result<(), ChangeError> {
        let current = file.text.as_deref().map(FileHash::of);
        if current != session.loaded_hash(&file.path) {
            return Err(ChangeError::ChangedOnDisk(file.path.clone()));
        }
        let current = current.map(FileHash::to_hex).unwrap_or_default();
        if conditions.expected.as_ref().is_some_and(|expected| *expected != current) {
            return Err(ChangeError::Stale { current });
        }
        if is_replaceable(&file.path) { Ok(()) } else { Err(ChangeError::ReadOnly(file.path.clone())) }
    }

    /// Returns the file for new entries: the main file, unless it is read-only.
    fn file_for_new(&self, kind: SourceKind) -> PathBuf {
        let main = self.reloader.sources().of(kind).main();
        let [routes, keys] = &self.state_files;
        match kind {
            _ if is_replaceable(main) => main.to_owned(),
            SourceKind::Routes => routes.clone(),
            SourceKind::Keys => keys.clone(),
        }
    }

    /// Returns the sources of secrets that the files use.
    fn used_sources(&self) -> UsedSources {
        let mut used = UsedSources::default();
        for file in self.reloader.loaded_files() {
            if let Ok(text) = std::fs::read_to_string(&file.path) {
                used.add(&text, &folder(&file.path));
            }
        }
        used
    }

    fn find(&self, kind: EntryKind, id: &str) -> Result<Option<EditedFile>, ChangeError> {
        let paths = self.reloader.sources().of(kind.source()).files().map_err(ChangeError::Invalid)?;
        for path in paths {
            let Some(text) = read(&path)? else { continue };
            // Parsing a large file takes long. An id is written as it is, unless the file has escapes.
            if !text.contains(id) && !text.contains('\\') {
                continue;
            }
            let mut file = parsed(kind.source(), path, Some(text))?;
            if Entries::new(&mut file.document, kind).get(id).is_some() {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

fn read(path: &Path) -> Result<Option<String>, ChangeError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ChangeError::Io { path: path.to_owned(), source }),
    }
}

fn open(kind: SourceKind, path: PathBuf) -> Result<EditedFile, ChangeError> {
    let text = read(&path)?;
    parsed(kind, path, text)
}

fn parsed(kind: SourceKind, path: PathBuf, text: Option<String>) -> Result<EditedFile, ChangeError> {
    let document = text.as_deref().unwrap_or(HEADER).parse::<DocumentMut>();
    // A file that is in effect is valid, so it was changed since.
    let document = document.map_err(|_| ChangeError::ChangedOnDisk(path.clone()))?;
    Ok(EditedFile { kind, path, text, document })
}

/// Returns the secrets and addresses of the entry that a change concerns. `None` for a change that can add none.
fn secrets_of(file: &mut EditedFile, change: &ConfigChange) -> Option<EntrySecrets> {
    let (kind, id) = match change {
        ConfigChange::Create { kind, id, .. } => (*kind, id.as_str()),
        ConfigChange::Merge { kind, id, .. } => (*kind, id.as_str()),
        // A text that was in effect.
        ConfigChange::Remove { .. } | ConfigChange::Restore { .. } => return None,
    };
    let folder = folder(&file.path);
    let entries = Entries::new(&mut file.document, kind);
    let renamed = match change {
        ConfigChange::Merge { patch, .. } => patch.get(kind.id()).and_then(Json::as_str),
        _ => None,
    };
    let entry = entries.get(id).or_else(|| entries.get(renamed?));
    Some(EntrySecrets::of(entry.map(|entry| entry as &dyn TableLike), kind, &folder))
}

/// Edits a file. Returns the entry before and afterwards, masked, and the new text.
fn edit(file: &mut EditedFile, change: &ConfigChange) -> Result<(Json, Json, String), ChangeError> {
    let document = &mut file.document;
    let (kind, id) = match change {
        ConfigChange::Create { kind, id, .. }
        | ConfigChange::Merge { kind, id, .. }
        | ConfigChange::Remove { kind, id } => (*kind, id),
        ConfigChange::Restore { text, .. } => {
            let text = if text.is_empty() { HEADER } else { text };
            return Ok((Json::Null, Json::Null, text.to_owned()));
        }
    };
    let show = |document: &mut DocumentMut, id: &str| {
        Entries::new(document, kind).get(id).map_or(Json::Null, |entry| masked(entry, kind.name()))
    };
    let before = show(document, id);
    let mut entries = Entries::new(document, kind);
    let mut id = id.as_str();
    match change {
        ConfigChange::Create { members, comment, .. } => entries.create(members, comment)?,
        ConfigChange::Merge { patch, .. } => {
            entries.merge(id, patch)?;
            id = patch.get(kind.id()).and_then(Json::as_str).unwrap_or(id);
        }
        ConfigChange::Remove { .. } => {
            entries.remove(id);
        }
        ConfigChange::Restore { .. } => {}
    }
    let after = show(document, id);
    let mut text = document.to_string();
    if text.is_empty() {
        text.push_str(HEADER);
    }
    Ok((before, after, text))
}
