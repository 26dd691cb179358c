//! `[admin]` of gateway.toml, and admin.toml: settings and tokens of the admin API.

use std::io;
use std::path::{Path, PathBuf};

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::StoreSettings;
use super::admin_oidc::{self, OidcSettings};
use super::entries::put_below_head;
use super::folder;
use super::listeners::{self, ClientCertificates};
use super::node::{ConfigTable, TomlDocument};
use super::replace::{FileOwner, ReplaceError, replace_file};
use super::report::Report;
use super::{NoSecrets, Vault};
use routing::account::{AdminRole, AdminToken, KeyHash, Network};

/// Maximum number of tokens. Each is compared with at every request of the admin API.
const MAX_TOKENS: usize = 1_000;
/// Maximum length of the currency, in characters: it stands beside amounts.
const MAX_CURRENCY: usize = 8;

/// Settings of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminApiSettings {
    /// File of the tokens' hashes. It need not exist.
    pub tokens: PathBuf,
    /// Folder of what the API manages: entries that it adds, the audit log, earlier versions of files.
    pub state: PathBuf,
    /// Unix socket on which the API is served too. `None` for no socket.
    pub socket: Option<PathBuf>,
    /// Host names that requests may name, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Whether the API may change configuration files.
    pub writes: bool,
    /// Patterns of the hosts to which the API may send secrets of providers that they do not get already.
    pub provider_hosts: Vec<String>,
    /// Patterns of the sources of secrets (`env:NAME`, `file:PATH`) that the API may name although no entry does.
    pub credential_sources: Vec<String>,
    /// Whether the console is served.
    pub console: bool,
    /// Currency of prices and balances, as the console shows it beside amounts. Empty if it is not known.
    pub currency: String,
    /// Certificate and key of the admin port. `None` for plain HTTP.
    pub tls: Option<AdminTlsSettings>,
    /// Whether the admin port may be reached from other machines without TLS.
    pub insecure: bool,
}

/// Certificate and key of the admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminTlsSettings {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Client certificates, without which no connection is accepted. `None` if they are not requested.
    pub clients: Option<ClientCertificates>,
}

impl AdminTlsSettings {
    /// Returns the files that a reload reads again.
    pub fn files(&self) -> Vec<PathBuf> {
        let clients = self.clients.iter().flat_map(ClientCertificates::files);
        [&self.cert, &self.key].into_iter().chain(clients).cloned().collect()
    }
}

/// Content of admin.toml: who may use the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// Tokens.
    pub tokens: Vec<AdminToken>,
    /// Sign-in at an issuer of identities. `None` if none is configured.
    pub oidc: Option<OidcSettings>,
}

/// Reads `[admin]`.
pub(super) fn read(
    root: &ConfigTable<'_>,
    base: &Path,
    store: &StoreSettings,
    vault: &dyn Vault,
) -> AdminApiSettings {
    // Beside the store, because that is the folder that the gateway may write to.
    let beside = match store {
        StoreSettings::Sqlite(path) => folder(path),
        StoreSettings::Valkey(fleet) => folder(&fleet.journal),
    };
    let default = AdminApiSettings {
        tokens: base.join("admin.toml"),
        state: beside.join("admin"),
        socket: None,
        hosts: Vec::new(),
        writes: true,
        provider_hosts: Vec::new(),
        credential_sources: Vec::new(),
        console: true,
        currency: String::new(),
        tls: None,
        insecure: false,
    };
    root.table("admin", |table| {
        let path = |key| table.string(key).map(|path| base.join(path));
        let mut hosts = Vec::new();
        if let Some(list) = table.get("hosts") {
            list.elements(|element| {
                hosts.extend(element.parsed(|text| {
                    let sound = !text.is_empty()
                        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
                    let hint = || "write a host name without a port, such as \"gateway.example\"".to_owned();
                    sound.then(|| text.to_ascii_lowercase()).ok_or_else(hint)
                }));
            });
        }
        AdminApiSettings {
            tokens: path("tokens").unwrap_or_else(|| default.tokens.clone()),
            state: path("state").unwrap_or_else(|| default.state.clone()),
            socket: path("socket"),
            hosts,
            writes: table.boolean("writes").unwrap_or(default.writes),
            provider_hosts: read_patterns(table, "provider_hosts", is_host_pattern),
            credential_sources: read_patterns(table, "credential_sources", is_source_pattern),
            console: table.boolean("console").unwrap_or(default.console),
            currency: table.get("currency").and_then(|value| value.parsed(is_currency)).unwrap_or_default(),
            tls: table.table("tls", |tls| read_tls(tls, base, vault)).flatten(),
            insecure: table.boolean("insecure").unwrap_or(default.insecure),
        }
    })
    .unwrap_or(default)
}

fn read_patterns(
    table: &ConfigTable<'_>,
    key: &'static str,
    parse: fn(&str) -> Result<String, String>,
) -> Vec<String> {
    let mut patterns = Vec::new();
    if let Some(list) = table.get(key) {
        list.elements(|element| patterns.extend(element.parsed(parse)));
    }
    patterns
}

fn is_currency(text: &str) -> Result<String, String> {
    let is_short = text.chars().count() <= MAX_CURRENCY;
    let is_plain = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
    let hint = || format!("write a code or a sign of at most {MAX_CURRENCY} characters, such as \"USD\"");
    (is_short && is_plain).then(|| text.to_owned()).ok_or_else(hint)
}

fn is_host_pattern(text: &str) -> Result<String, String> {
    let sound =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:*".contains(&byte));
    let hint =
        || "write a host without a port, such as \"api.openai.com\" or \"*.openai.azure.com\"".to_owned();
    sound.then(|| text.to_ascii_lowercase()).ok_or_else(hint)
}

fn is_source_pattern(text: &str) -> Result<String, String> {
    let sound =
        ["env:", "file:/", "file:%d/"].iter().any(|kind| text.len() > kind.len() && text.starts_with(kind));
    let hint = || {
        "write a variable or the path of a file, such as \"env:PROVIDER_*\" or \"file:/etc/keys/*\""
            .to_owned()
    };
    sound.then(|| text.to_owned()).ok_or_else(hint)
}

fn read_tls(table: &ConfigTable<'_>, base: &Path, vault: &dyn Vault) -> Option<AdminTlsSettings> {
    let (cert, key) = listeners::read_identity(table, base, vault);
    let clients = listeners::read_clients(table, false, base, vault)?;
    Some(AdminTlsSettings { cert: cert?, key: key?, clients })
}

/// Refuses an admin port that other machines reach without TLS: tokens and sessions would be readable on the way.
pub(super) fn check_reach(server: &ConfigTable<'_>, address: std::net::SocketAddr, api: &AdminApiSettings) {
    if !address.ip().to_canonical().is_loopback() && api.tls.is_none() && !api.insecure {
        server.wrong(
            format!("other machines reach the admin port at {address} without TLS"),
            "give [admin.tls] a cert and a key, or write insecure = true in [admin] if the network is trusted"
                .to_owned(),
        );
    }
}

/// Reads who may use the admin API. Without the file, there are no tokens.
///
/// # Errors
/// Returns [`Report`] with every fault of the file.
pub fn load_admin_access(file: &Path, vault: &dyn Vault) -> Result<AdminAccess, Report> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AdminAccess::default()),
        Err(error) => return Err(super::unread(file, &error)),
    };
    let document = TomlDocument::new(file, &text);
    let mut access = AdminAccess::default();
    document.read(|root| {
        let tokens = &mut access.tokens;
        let count = root.tables("token", |table| {
            let Some(token) = read_token(table) else { return };
            if tokens.iter().any(|other| other.name == token.name) {
                table.wrong(format!("the token \"{}\" is defined twice", token.name), None);
            }
            if tokens.len() < MAX_TOKENS {
                tokens.push(token);
            }
        });
        if count > MAX_TOKENS {
            root.wrong(format!("{count} tokens are defined; the maximum is {MAX_TOKENS}"), None);
        }
        access.oidc = root.table("oidc", |table| admin_oidc::read(table, &folder(file), vault)).flatten();
    });
    document.into_report().into_result().map(|()| access)
}

fn read_token(table: &ConfigTable<'_>) -> Option<AdminToken> {
    let name = table.require("name", "name = \"alice\"").and_then(|value| {
        let name = value.as_str()?;
        if !is_name(name) {
            value.wrong("a name must have 1 to 128 bytes and no control characters", None);
        }
        Some(name.to_owned())
    });
    // Hidden in messages, because users put the token itself here by mistake.
    let hash = table.require("sha256", "sha256 = \"<hex of SHA-256 of the token>\"").and_then(|value| {
        value.hidden().parsed(|text| {
            let hint = || "write 64 hexadecimal digits, as `model-gateway admin create` does".to_owned();
            KeyHash::from_hex(text).ok_or_else(hint)
        })
    });
    let role = table.require("role", "role = \"read\"").and_then(|value| {
        value.parsed(|text| {
            AdminRole::from_name(text).ok_or_else(|| "write \"read\", \"operate\" or \"admin\"".to_owned())
        })
    });
    let enabled = table.boolean("enabled").unwrap_or(true);
    let expires = table.get("expires").and_then(|value| value.as_time());
    let networks = table.get("networks").map(|value| {
        let mut networks = Vec::new();
        value.elements(|element| {
            networks.extend(element.parsed(|text| {
                let hint = || "write a network such as \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned();
                Network::parse(text).ok_or_else(hint)
            }));
        });
        networks
    });
    Some(AdminToken { name: name?, hash: hash?, role: role?, enabled, expires, networks })
}

fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Reason why admin.toml was not changed.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokensError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The file cannot be replaced.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// The file is not TOML, or `token` is not a list of tables.
    #[error("{0}: the file is not valid: {1}")]
    Broken(PathBuf, String),
    /// A token of this name exists already.
    #[error("a token named {0:?} already exists")]
    Exists(String),
    /// No token has this name.
    #[error("no token is named {0:?}")]
    Unknown(String),
    /// The name cannot be used.
    #[error("a name must have 1 to 128 bytes and no control characters")]
    Name,
}

/// Editable admin.toml.
#[derive(Debug)]
pub struct AdminTokensFile {
    path: PathBuf,
    /// Text of the file; `None` if it does not exist.
    before: Option<String>,
    document: DocumentMut,
}

impl AdminTokensFile {
    /// Reads the file. A missing file counts as empty.
    ///
    /// # Errors
    /// Returns [`AdminTokensError`] if the file cannot be read or is not TOML.
    pub fn open(path: &Path) -> Result<Self, AdminTokensError> {
        let before = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(AdminTokensError::Io { path: path.to_owned(), source }),
        };
        let document = before
            .as_deref()
            .unwrap_or_default()
            .parse::<DocumentMut>()
            .map_err(|error| AdminTokensError::Broken(path.to_owned(), error.to_string()))?;
        Ok(AdminTokensFile { path: path.to_owned(), before, document })
    }

    fn tokens(&mut self) -> Result<&mut ArrayOfTables, AdminTokensError> {
        let wrong = || AdminTokensError::Broken(self.path.clone(), "`token` is not a list".to_owned());
        let entry = self.document.entry("token").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        entry.as_array_of_tables_mut().ok_or_else(wrong)
    }

    /// Appends a token. `expires` is its expiry; `None` for no expiry.
    ///
    /// # Errors
    /// Returns [`AdminTokensError`] if the name is taken or cannot be used.
    pub fn add(
        &mut self,
        name: &str,
        hash: KeyHash,
        role: AdminRole,
        expires: Option<toml_edit::Datetime>,
    ) -> Result<(), AdminTokensError> {
        if !is_name(name) {
            return Err(AdminTokensError::Name);
        }
        let tokens = self.tokens()?;
        if tokens.iter().any(|token| token.get("name").and_then(Item::as_str) == Some(name)) {
            return Err(AdminTokensError::Exists(name.to_owned()));
        }
        let mut token = Table::new();
        token.insert("name", value(name));
        token.insert("sha256", value(hash.to_hex()));
        token.insert("role", value(role.name()));
        if let Some(expires) = expires {
            token.insert("expires", value(expires));
        }
        put_below_head(&mut token, &mut self.document);
        self.tokens()?.push(token);
        Ok(())
    }

    /// Enables or disables a token.
    ///
    /// # Errors
    /// Returns [`AdminTokensError::Unknown`] if there is no such token.
    pub fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), AdminTokensError> {
        let mut tokens = self.tokens()?.iter_mut();
        let token = tokens.find(|token| token.get("name").and_then(Item::as_str) == Some(name));
        let token = token.ok_or_else(|| AdminTokensError::Unknown(name.to_owned()))?;
        super::entries::set_value(token, "enabled", enabled.into());
        Ok(())
    }

    /// Replaces the file atomically. A new file gets the owner and mode of the files of the configuration `conf` that the gateway
    /// reads anyway: it must read this one, too, also if root has created it.
    ///
    /// # Errors
    /// Returns [`AdminTokensError`] if the file was changed since it was read, or cannot be written.
    pub fn save(&self, conf: Option<&Path>) -> Result<(), AdminTokensError> {
        let settings = conf.and_then(|conf| super::load_gateway(conf, &NoSecrets).ok());
        let keys = settings.as_ref().map(|settings| settings.keys.main());
        let state = settings.as_ref().map(|settings| &*settings.admin_api.state);
        let owner = FileOwner::like(&keys.into_iter().chain(conf).collect::<Vec<_>>(), &self.path, state);
        Ok(replace_file(&self.path, self.before.as_deref(), &self.document.to_string(), owner)?)
    }
}
