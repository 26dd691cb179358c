//! keys.toml under edit: one change at a time, comments and order kept, and the file replaced as a whole so that a
//! reader never sees half of it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::account::{KeyHash, Losses};

/// Why keys.toml was not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysFileError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file is not TOML, or `key` is not a list of tables.
    #[error("{path}: {message}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is a key of this name.
    #[error("there is a key named {0:?} already")]
    Exists(String),
    /// There is no key of this name.
    #[error("there is no key named {0:?}")]
    Unknown(String),
}

/// A key as `keys list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub name: String,
    /// First digits of the hash, to tell keys apart.
    pub hash: String,
    /// Whether it is switched on.
    pub enabled: bool,
    /// When its time is over, as written.
    pub expires: Option<String>,
    /// The models that it may use; nothing for all.
    pub models: Option<Vec<String>>,
    /// What is done where something would be lost in translation, as written; nothing for a warning.
    pub losses: Option<String>,
    /// The account that it belongs to.
    pub account: Option<String>,
}

/// What a new key may do, and who pays.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Models; none of them for all.
    pub models: Vec<String>,
    /// When its time is over.
    pub expires: Option<toml_edit::Datetime>,
    /// What is done where something would be lost in translation.
    pub losses: Losses,
    /// The account that it belongs to.
    pub account: Option<String>,
}

/// keys.toml, open for a change.
#[derive(Debug)]
pub struct KeysFile {
    path: PathBuf,
    document: DocumentMut,
}

impl KeysFile {
    /// Reads the file; a file that does not exist yet is empty.
    ///
    /// # Errors
    /// It cannot be read or is not TOML.
    pub fn open(path: &Path) -> Result<Self, KeysFileError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(KeysFileError::Io { path: path.to_owned(), source }),
        };
        KeysFile::parse(path, &text)
    }

    /// Takes the file's text as it is given.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(path: &Path, text: &str) -> Result<Self, KeysFileError> {
        let document = text
            .parse::<DocumentMut>()
            .map_err(|error| KeysFileError::Broken { path: path.to_owned(), message: error.to_string() })?;
        Ok(KeysFile { path: path.to_owned(), document })
    }

    /// The text as it would be saved.
    pub fn text(&self) -> String {
        self.document.to_string()
    }

    fn keys(&mut self) -> Result<&mut ArrayOfTables, KeysFileError> {
        let path = self.path.clone();
        self.document
            .entry("key")
            .or_insert(Item::ArrayOfTables(ArrayOfTables::new()))
            .as_array_of_tables_mut()
            .ok_or_else(|| KeysFileError::Broken {
                path,
                message: "`key` is not a list of [[key]] tables".to_owned(),
            })
    }

    fn find(&mut self, name: &str) -> Result<&mut Table, KeysFileError> {
        self.keys()?
            .iter_mut()
            .find(|key| key.get("name").and_then(Item::as_str) == Some(name))
            .ok_or_else(|| KeysFileError::Unknown(name.to_owned()))
    }

    /// Adds a key at the end.
    ///
    /// # Errors
    /// The name is taken.
    pub fn add(&mut self, name: &str, hash: KeyHash, entry: &Entry) -> Result<(), KeysFileError> {
        let Entry { models, expires, losses, account } = entry;
        if self.find(name).is_ok() {
            return Err(KeysFileError::Exists(name.to_owned()));
        }
        let mut key = Table::new();
        key.insert("name", value(name));
        key.insert("sha256", value(hash.to_hex()));
        key.insert("enabled", value(true));
        if !models.is_empty() {
            key.insert("models", value(models.iter().collect::<toml_edit::Array>()));
        }
        if let Some(expires) = expires {
            key.insert("expires", value(*expires));
        }
        if let Some(account) = account {
            key.insert("account", value(account));
        }
        if *losses != Losses::default() {
            key.insert("losses", value(losses.name()));
        }
        self.keys()?.push(key);
        Ok(())
    }

    /// Switches a key on or off; returns whether that changed anything.
    ///
    /// # Errors
    /// There is no such key.
    pub fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<bool, KeysFileError> {
        let key = self.find(name)?;
        let before = key.get("enabled").and_then(Item::as_bool).unwrap_or(true);
        match key.get_mut("enabled").and_then(Item::as_value_mut) {
            // The value alone is replaced, so that a comment behind it stays.
            Some(slot) => {
                let decor = slot.decor().clone();
                *slot = toml_edit::Value::from(enabled);
                *slot.decor_mut() = decor;
            }
            None => {
                key.insert("enabled", value(enabled));
            }
        }
        Ok(before != enabled)
    }

    /// All keys in the order of the file.
    ///
    /// # Errors
    /// `key` is not a list of tables.
    pub fn list(&mut self) -> Result<Vec<Listed>, KeysFileError> {
        let text =
            |key: &Table, name: &str| key.get(name).and_then(Item::as_str).unwrap_or_default().to_owned();
        let listed = self.keys()?.iter().map(|key| Listed {
            name: text(key, "name"),
            hash: text(key, "sha256").chars().take(12).collect(),
            enabled: key.get("enabled").and_then(Item::as_bool).unwrap_or(true),
            account: key.get("account").and_then(Item::as_str).map(str::to_owned),
            expires: key.get("expires").and_then(Item::as_datetime).map(ToString::to_string),
            losses: key.get("losses").and_then(Item::as_str).map(str::to_owned),
            models: key
                .get("models")
                .and_then(Item::as_array)
                .map(|models| models.iter().filter_map(|model| model.as_str().map(str::to_owned)).collect()),
        });
        Ok(listed.collect())
    }

    /// Replaces the file: a temporary file beside it, synced, renamed over it, the folder synced. Permissions stay;
    /// a new file is readable by its owner and group only.
    ///
    /// # Errors
    /// The operating system refuses; then the old file is as it was.
    pub fn save(&self) -> Result<(), KeysFileError> {
        self.write().map_err(|source| KeysFileError::Io { path: self.path.clone(), source })
    }

    fn write(&self) -> std::io::Result<()> {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        // A link is followed: the file that it names is replaced, not the link.
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut file = tempfile::Builder::new().prefix(".keys-").suffix(".toml").tempfile_in(folder)?;
        file.write_all(self.text().as_bytes())?;
        match std::fs::metadata(&path) {
            Ok(old) => {
                std::fs::set_permissions(file.path(), old.permissions())?;
                // Only root may give a file away; elsewhere the owner is the one who edits.
                let _ = std::os::unix::fs::chown(file.path(), Some(old.uid()), Some(old.gid()));
            }
            Err(_) => std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640))?,
        }
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        std::fs::File::open(folder)?.sync_all()
    }
}
