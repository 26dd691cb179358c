//! Editor for keys.toml: preserves comments and order, and replaces the file atomically, so that a concurrent reader
//! never sees a partial file.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::entries::{Entries, EntryKind, put_below_head, set_value};
use super::masking::masked;
use super::replace::{FileOwner, ReplaceError, create_folder, replace_file};
use super::sources::FileHash;
use codec::canonical::ServiceTier;
use codec::canonical::time::{rfc3339, unix_seconds};
use routing::account::{KeyHash, Losses, MAX_PREVIOUS, NewAccessKey, TierPolicy};

/// Reason why keys.toml was not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysFileError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
    /// The file cannot be replaced.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// The file is not TOML, or `key` is not a list of tables.
    #[error("{path}: {message}")]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// A key of this name exists already.
    #[error("a key named {0:?} already exists")]
    Exists(String),
    /// No key has this name.
    #[error("no key is named {0:?}")]
    Unknown(String),
}

/// Key as shown by `keys list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub name: String,
    /// First 12 hex digits of the hash, to identify the key.
    pub hash: String,
    /// Whether the key is enabled.
    pub enabled: bool,
    /// Expiry time as written in the file; `None` for no expiry.
    pub expires: Option<String>,
    /// Permitted model patterns; `None` for all models.
    pub models: Option<Vec<String>>,
    /// Policy for losses in translation, as written in the file; `None` for the default, which is a warning.
    pub losses: Option<String>,
    /// Account of the key.
    pub account: Option<String>,
}

/// Settings of a new key.
#[derive(Clone, Debug, Default)]
pub struct KeySettings {
    /// Permitted model patterns; empty for all models.
    pub models: Vec<String>,
    /// Expiry time.
    pub expires: Option<toml_edit::Datetime>,
    /// Policy for losses in translation.
    pub losses: Losses,
    /// Account of the key.
    pub account: Option<String>,
    /// Service tiers that the key may use.
    pub tiers: TierPolicy,
    /// Access key for AWS signatures. `None` for a key that clients do not sign with.
    pub access_key: Option<SavedAccessKey>,
}

/// Access key whose secret is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedAccessKey {
    /// Access key id.
    pub id: String,
    /// File with the secret, relative to keys.toml.
    pub secret_file: PathBuf,
}

/// Returns the earlier texts of a key: their hashes and the ends of their validity in Unix seconds.
fn earlier_texts(key: &Table) -> Vec<(String, i64)> {
    fn read(entry: &dyn toml_edit::TableLike) -> Option<(String, i64)> {
        let until = unix_seconds(&entry.get("until")?.as_datetime()?.to_string())?;
        Some((entry.get("sha256")?.as_str()?.to_owned(), until))
    }
    match key.get("previous") {
        Some(Item::ArrayOfTables(tables)) => tables.iter().filter_map(|table| read(table)).collect(),
        Some(item) => {
            let values = item.as_array().into_iter().flatten();
            values.filter_map(|value| read(value.as_inline_table()?)).collect()
        }
        None => Vec::new(),
    }
}

fn previous_entry((hash, until): (String, i64)) -> Option<toml_edit::Value> {
    let until: toml_edit::Datetime = rfc3339(until).parse().ok()?;
    let mut entry = toml_edit::InlineTable::new();
    entry.insert("sha256", hash.into());
    entry.insert("until", until.into());
    Some(entry.into())
}

/// Folder beside keys.toml with the secrets of access keys.
const SECRETS: &str = "access-keys";

/// Change of keys.toml that is not saved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysFileChange {
    /// What the audit log has of it: the file, the hashes of its text, and the key before and afterwards with secrets masked.
    pub details: Json,
    /// Text of the file before; empty if it does not exist.
    pub text_before: String,
}

/// Editable keys.toml.
#[derive(Debug)]
pub struct KeysFile {
    path: PathBuf,
    /// Text of the file; `None` if it does not exist.
    before: Option<String>,
    document: DocumentMut,
}

impl KeysFile {
    /// Reads the file. A missing file counts as empty.
    ///
    /// # Errors
    /// Returns [`KeysFileError`] if the file cannot be read or is not TOML.
    pub fn open(path: &Path) -> Result<Self, KeysFileError> {
        let before = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(KeysFileError::Io { path: path.to_owned(), source }),
        };
        let parsed = KeysFile::parse(path, before.as_deref().unwrap_or_default())?;
        Ok(KeysFile { before, ..parsed })
    }

    /// Parses the text of the file at `path`.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Broken`] if the text is not TOML.
    pub fn parse(path: &Path, text: &str) -> Result<Self, KeysFileError> {
        let document = text
            .parse::<DocumentMut>()
            .map_err(|error| KeysFileError::Broken { path: path.to_owned(), message: error.to_string() })?;
        Ok(KeysFile { path: path.to_owned(), before: Some(text.to_owned()), document })
    }

    /// Returns the text as it would be saved.
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

    /// Appends a key.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Exists`] if the name is taken.
    pub fn add(&mut self, name: &str, hash: KeyHash, entry: &KeySettings) -> Result<(), KeysFileError> {
        let KeySettings { models, expires, losses, account, tiers, access_key } = entry;
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
        if let Some(permitted) = tiers.permitted {
            let names = permitted.tiers().filter(|tier| *tier != ServiceTier::Unknown).map(ServiceTier::name);
            key.insert("tiers", value(names.collect::<toml_edit::Array>()));
        }
        if let Some(otherwise) = tiers.otherwise {
            key.insert("tiers_else", value(otherwise.name()));
        }
        if let Some(SavedAccessKey { id, secret_file }) = access_key {
            let mut secret = toml_edit::InlineTable::new();
            secret.insert("file", toml_edit::Value::from(&*secret_file.to_string_lossy()));
            let mut table = toml_edit::InlineTable::new();
            table.insert("id", id.as_str().into());
            table.insert("secret", secret.into());
            key.insert("access_key", value(table));
        }
        put_below_head(&mut key, &mut self.document);
        self.keys()?.push(key);
        Ok(())
    }

    /// Writes the secret of an access key to a file of its own beside keys.toml, which keys.toml refers to: keys.toml
    /// itself stays free of secrets.
    ///
    /// # Errors
    /// Returns [`KeysFileError`] if the file cannot be written.
    pub fn save_secret(&self, access: &NewAccessKey) -> Result<SavedAccessKey, KeysFileError> {
        let secret_file = Path::new(SECRETS).join(access.id());
        let path = super::folder(&self.path).join(&secret_file);
        // The gateway must be able to read it, as it reads keys.toml.
        let owner = FileOwner::like(&[&self.path], &path, None).private();
        if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            let created = create_folder(folder).and_then(|()| owner.give_folder(folder));
            created.map_err(|source| KeysFileError::Io { path: folder.to_owned(), source })?;
        }
        replace_file(&path, None, &format!("{}\n", access.secret()), owner)?;
        Ok(SavedAccessKey { id: access.id().to_owned(), secret_file })
    }

    /// Enables or disables a key. Returns true if the state changed.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Unknown`] if there is no such key.
    pub fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<bool, KeysFileError> {
        let key = self.find(name)?;
        let before = key.get("enabled").and_then(Item::as_bool).unwrap_or(true);
        set_value(key, "enabled", enabled.into());
        Ok(before != enabled)
    }

    /// Gives a key a new text. With `grace`, the present time and the end of the validity of the old text in Unix seconds, the
    /// old text stays valid, as do earlier ones whose end is to come; without it, all end.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Unknown`] if there is no such key.
    pub fn rotate(
        &mut self,
        name: &str,
        hash: KeyHash,
        grace: Option<(i64, i64)>,
    ) -> Result<(), KeysFileError> {
        let key = self.find(name)?;
        let mut previous = toml_edit::Array::new();
        if let Some((now, until)) = grace {
            let old = key.get("sha256").and_then(Item::as_str).map(|old| (old.to_owned(), until));
            let earlier = earlier_texts(key).into_iter().filter(|(_, until)| *until > now);
            previous.extend(old.into_iter().chain(earlier).take(MAX_PREVIOUS).filter_map(previous_entry));
        }
        set_value(key, "sha256", hash.to_hex().into());
        if previous.is_empty() {
            key.remove("previous");
        } else {
            set_value(key, "previous", previous.into());
        }
        Ok(())
    }

    /// Returns all keys in the order of the file.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Broken`] if `key` is not a list of tables.
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

    /// Returns the change of a key that [`KeysFile::save`] would write.
    pub fn change_of(&self, name: &str) -> KeysFileChange {
        let show = |document: &mut DocumentMut| {
            let kind = EntryKind::Key;
            Entries::new(document, kind).get(name).map_or(Json::Null, |entry| masked(entry, kind.name()))
        };
        let text_before = self.before.clone().unwrap_or_default();
        let before =
            text_before.parse::<DocumentMut>().map_or(Json::Null, |mut document| show(&mut document));
        let details = json!({
            "file": std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string(),
            "hash_before": self.before.as_deref().map(|text| FileHash::of(text).to_hex()),
            "hash_after": FileHash::of(&self.text()).to_hex(),
            "before": before,
            "after": show(&mut self.document.clone()),
        });
        KeysFileChange { details, text_before }
    }

    /// Replaces the file atomically. Permissions are preserved; a new file is readable by its owner and group only.
    ///
    /// # Errors
    /// Returns [`KeysFileError::Replace`] if the file was changed since it was read, or the operating system reports an
    /// error; the file is then unchanged.
    pub fn save(&self) -> Result<(), KeysFileError> {
        let owner = FileOwner::like(&[&super::folder(&self.path).join("gateway.toml")], &self.path, None);
        Ok(replace_file(&self.path, self.before.as_deref(), &self.text(), owner.private())?)
    }
}
