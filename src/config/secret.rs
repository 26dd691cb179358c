//! Secrets: where they come from, and how they are kept from being shown.

use std::fmt;
use std::path::{Path, PathBuf};

use super::node::Value;

/// A secret. It is never shown: not by `Debug`, not by `Display`, not by `check --print`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret's text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a secret comes from (`credential = { ... }`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An environment variable.
    Env(String),
    /// A file; `%d` stands for systemd's credentials directory.
    File(PathBuf),
    /// The configuration itself.
    Value(Secret),
}

/// Reads a secret from where a value says that it is. Where that is not one place, it is said of `what`, as in `example`.
pub(super) fn read(
    value: &Value<'_>,
    what: &str,
    example: &str,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Secret> {
    let source = value.as_table(|table| {
        let env = table.string("env").map(Source::Env);
        let file = table.string("file").map(|path| Source::File(path.into()));
        let text = table.get("value").map(Value::hidden);
        let text = text.and_then(|text| text.as_str().map(|text| Source::Value(Secret::new(text))));
        let mut given: Vec<Source> = [env, file, text].into_iter().flatten().collect();
        if given.len() != 1 {
            table.wrong(format!("a {what} comes from one place"), format!("for example: {example}"));
        }
        given.pop()
    })??;
    source.read(folder, vault).map_err(|reason| value.wrong(reason, None)).ok()
}

/// How secrets are looked up: the process environment, or nothing when only the form of a configuration is checked.
/// TLS certificates and private CAs go with them: where there are no secrets, those files are not there either.
pub trait Vault {
    /// An environment variable.
    fn env(&self, name: &str) -> Option<String>;
    /// The text of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn file(&self, path: &Path) -> std::io::Result<String>;
    /// Whether secrets are read at all; if not, every secret is taken to be there.
    fn reads(&self) -> bool {
        true
    }
}

/// The real environment and the real files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment;

impl Vault for Environment {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

/// No secrets, and no file but the configuration: for checking it on a machine that must not have them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sealed;

impl Vault for Sealed {
    fn env(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, path.display().to_string()))
    }

    fn reads(&self) -> bool {
        false
    }
}

impl Source {
    /// Reads the secret. `folder` is where relative files begin.
    ///
    /// # Errors
    /// What is missing, in words for the administrator; never any part of the secret.
    pub fn read(&self, folder: &Path, vault: &dyn Vault) -> Result<Secret, String> {
        if !vault.reads() {
            return Ok(Secret::new("unread"));
        }
        let text = match self {
            Source::Value(secret) => secret.expose().to_owned(),
            Source::Env(name) => {
                vault.env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?
            }
            Source::File(path) => {
                let path = expand(path, folder, vault)?;
                vault.file(&path).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err("the credential is empty".to_owned());
        }
        if !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err("the credential holds characters that cannot stand in an HTTP header".to_owned());
        }
        Ok(Secret::new(text))
    }
}

/// The path of a file: `%d` is systemd's credentials directory, and relative ones begin at `folder`.
pub(super) fn expand(path: &Path, folder: &Path, vault: &dyn Vault) -> Result<PathBuf, String> {
    match path.strip_prefix("%d") {
        Ok(name) => {
            let directory = vault.env("CREDENTIALS_DIRECTORY").ok_or(
                "%d stands for systemd's credentials directory, and CREDENTIALS_DIRECTORY is not set",
            )?;
            Ok(Path::new(&directory).join(name))
        }
        Err(_) => Ok(folder.join(path)),
    }
}
