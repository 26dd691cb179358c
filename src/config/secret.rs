//! Secrets: their sources, and masking in output.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::node::Value;

/// Secret text. `Debug` masks it, there is no `Display`, and `check --print` masks it too.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text as a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }

    /// Returns the secret text. Only the code that sends or verifies it may call this.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Source of a secret (`credential = { ... }`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Environment variable.
    Env(String),
    /// File; `%d` is systemd's credentials directory.
    File(PathBuf),
    /// Literal value in the configuration.
    Value(Secret),
}

/// Reads a secret from the source that a value names. Reports a fault and returns `None` if the value does not name
/// exactly one source; the message uses `what` and `example`.
pub(super) fn read(
    value: &Value<'_>,
    what: &str,
    example: &str,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Secret> {
    read_with_source(value, what, example, folder, vault).map(|(secret, _)| secret)
}

/// Like [`read`], and returns the source too, with which the secret can be read again.
pub(super) fn read_with_source(
    value: &Value<'_>,
    what: &str,
    example: &str,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<(Secret, SecretSource)> {
    let source = value.as_table(|table| {
        let env = table.string("env").map(SecretSource::Env);
        let file = table.string("file").map(|path| SecretSource::File(path.into()));
        let text = table.get("value").map(Value::hidden);
        let text = text.and_then(|text| text.as_str().map(|text| SecretSource::Value(Secret::new(text))));
        let mut sources: Vec<SecretSource> = [env, file, text].into_iter().flatten().collect();
        if sources.len() != 1 {
            table.wrong(format!("a {what} must have exactly one source"), format!("for example: {example}"));
        }
        sources.pop()
    })??;
    let secret = source.read(what, folder, vault).map_err(|reason| value.wrong(reason, None)).ok()?;
    Some((secret, source))
}

/// Lookup of secrets: the process environment, or nothing when a configuration is checked without secrets. TLS
/// certificates and private CAs are read only along with secrets.
pub trait Vault {
    /// Returns the value of an environment variable, or `None` if it is not set.
    fn env(&self, name: &str) -> Option<String>;
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn file(&self, path: &Path) -> std::io::Result<String>;
    /// Returns a variable that configures a process, as OpenTelemetry's do; `None` if it is not set, or if the environment
    /// is not that of the gateway.
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }
    /// Returns the region of the machine according to the instance metadata service of AWS at a URL; `None` if there is
    /// none. May block for seconds.
    fn instance_region(&self, _endpoint: &str) -> Option<String> {
        None
    }
    /// Returns whether secrets are read. If not, every secret counts as present.
    fn reads(&self) -> bool {
        true
    }
    /// Notes that a file was read by other means, which belongs to the configuration.
    fn note_file(&self, _path: &Path) {}
    /// Returns the files that were read or noted so far. Empty for a vault that does not remember them.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Returns whether certificates are read.
    fn reads_certificates(&self) -> bool {
        self.reads()
    }
    /// Returns whether the reading is to end without a result: nothing waits for it any more.
    fn is_over(&self) -> bool {
        false
    }
}

/// Environment and files of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment;

impl Vault for Environment {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn setting(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn instance_region(&self, endpoint: &str) -> Option<String> {
        super::aws::instance_region(endpoint)
    }
}

/// Environment and files of the process, which remembers the files that it reads, so that they can be watched.
#[derive(Debug, Default)]
pub struct WatchedEnvironment(Mutex<BTreeSet<PathBuf>>);

/// Maximum number of files that are remembered, over all reloads.
const MAX_WATCHED: usize = 10_000;

impl Vault for WatchedEnvironment {
    fn env(&self, name: &str) -> Option<String> {
        Environment.env(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        self.note_file(path);
        Environment.file(path)
    }

    fn note_file(&self, path: &Path) {
        let mut files = self.0.lock();
        if files.len() < MAX_WATCHED {
            files.insert(path.to_owned());
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.0.lock().iter().cloned().collect()
    }

    fn instance_region(&self, endpoint: &str) -> Option<String> {
        Environment.instance_region(endpoint)
    }
}

/// Secrets of the process, without certificates: for commands that use the store and open no listener.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnlySecrets;

impl Vault for OnlySecrets {
    fn env(&self, name: &str) -> Option<String> {
        Environment.env(name)
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        Environment.file(path)
    }

    fn instance_region(&self, endpoint: &str) -> Option<String> {
        Environment.instance_region(endpoint)
    }

    fn reads_certificates(&self) -> bool {
        false
    }
}

/// No secrets and no files beside the configuration, to check a configuration on a machine without secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl Vault for NoSecrets {
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

impl SecretSource {
    /// Reads the secret. Relative paths refer to `folder`; `what` names the secret in messages.
    ///
    /// # Errors
    /// Returns the reason as a message for the administrator; it contains no part of the secret.
    pub fn read(&self, what: &str, folder: &Path, vault: &dyn Vault) -> Result<Secret, String> {
        if !vault.reads() {
            return Ok(Secret::new("unread"));
        }
        let text = match self {
            SecretSource::Value(secret) => secret.expose().to_owned(),
            SecretSource::Env(name) => {
                vault.env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?
            }
            SecretSource::File(path) => {
                let path = expand(path, folder, vault)?;
                vault.file(&path).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        // Editors and `echo` end files with a line feed, which is not part of the secret.
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("the {what} is empty"));
        }
        if !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(format!("the {what} has characters other than printable ASCII"));
        }
        Ok(Secret::new(text))
    }
}

/// Said of `%d` outside of the service.
const NO_CREDENTIALS_DIRECTORY: &str = "%d means systemd's credentials directory, which the service has and this process \
    has not (CREDENTIALS_DIRECTORY is not set). To check without secrets: model-gateway check --no-secrets. With those of the \
    running service, as root: CREDENTIALS_DIRECTORY=/run/credentials/model-gateway.service model-gateway check";

/// Resolves a path: `%d` is systemd's credentials directory, relative paths refer to `folder`.
pub(super) fn expand(path: &Path, folder: &Path, vault: &dyn Vault) -> Result<PathBuf, String> {
    match path.strip_prefix("%d") {
        Ok(name) => {
            let directory = vault.env("CREDENTIALS_DIRECTORY").ok_or(NO_CREDENTIALS_DIRECTORY)?;
            Ok(Path::new(&directory).join(name))
        }
        Err(_) => Ok(folder.join(path)),
    }
}
