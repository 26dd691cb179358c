//! Configuration: reads and validates gateway.toml, routes.toml and keys.toml.
//!
//! `gateway.toml` is read once ([`Settings`]). `routes.toml` and `keys.toml` are read again on SIGHUP and become a
//! [`Snapshot`]. A file is accepted as a whole or not at all, and all faults are reported at once ([`Report`]). For
//! that, the reader continues after a fault ([`node`]), which a serde deserializer does not: it stops at the first.
//!
//! No other module reads these files. The semantics of routes and keys must not live here.

mod admin;
mod admin_oidc;
mod aws;
mod azure;
mod catalogue;
mod catalogue_rows;
mod client_identity;
mod cloud;
mod entries;
mod fallbacks;
mod faults;
mod fleet;
mod google;
mod guardrail;
mod key_path;
mod key_types;
mod keys;
mod keys_file;
mod limits;
mod listeners;
mod masking;
mod models;
mod node;
mod overrides;
mod pending;
mod price_rows;
mod prices;
mod print;
mod print_listeners;
mod print_price;
mod print_telemetry;
pub mod reference;
mod reload;
mod replace;
mod report;
mod routes;
mod routing_rules;
mod schema;
mod secret;
mod secret_policy;
mod settings;
mod signing_key;
mod sources;
mod stable_read;
mod telemetry;
mod telemetry_env;
mod tokens;
mod values;
mod work_limit;
mod writer;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use admin::{
    AdminAccess, AdminApiSettings, AdminTlsSettings, AdminTokensError, AdminTokensFile, load_admin_access,
};
pub use admin_oidc::{CALLBACK_PATH as OIDC_CALLBACK_PATH, OidcSettings, is_safe_url};
pub use aws::is_aws_region;
pub use catalogue::{catalogue_provider, today};
pub use entries::{EntryKind, FieldError, is_member};
pub use fleet::{FleetSettings, OnOutageSetting};
pub use key_types::secret_paths;
pub use keys_file::{KeySettings, KeysFile, KeysFileChange, KeysFileError, Listed, SavedAccessKey};
pub use limits::Limits;
pub use listeners::{
    ClientCertificates, CorsRule, HttpListener, ProxyProtocol, TlsListener, is_cors_origin, read_tls_file,
};
pub use masking::{mask_entry, secret_member};
pub use overrides::{PREFIX as OVERRIDE_PREFIX, SettingOverride};
pub use pending::{PendingChange, PendingSnapshot, settings_changes, snapshot_changes};
pub use print::effective;
pub use reload::{Baseline, LoadedFile, ReloadOutcome, ReloadRules, Reloader};
pub use replace::{ReplaceError, give_to_folder_owner};
pub use report::no_such_model;
pub use report::{Problem, Report};
pub use schema::schema;
pub use secret::{Environment, NoSecrets, Secret, SecretSource, Vault, WatchedEnvironment};
pub use secret_policy::SecretPolicy;
pub use settings::{
    AccessLogSettings, LedgerSettings, LogFormat, LogSettings, RetentionSettings, Settings, StoreSettings,
};

pub use telemetry::TelemetrySettings;

pub use sources::{ConfigSources, FileHash, IncludedFiles, SnapshotSources, SourceKind};
pub use work_limit::{WatchedWork, WorkLimit};
pub use writer::{
    AppliedChange, ChangeConditions, ChangeError, ConfigChange, ConfigWriter, PreparedChange, RecordChange,
};

use codec::catalogue::Catalogue;
use overrides::Overrides;
use routes::Routed;
use routing::account::Keys;
use routing::snapshot::Snapshot;
use sources::{SourceFile, SourceText};
use stable_read::StableReader;
use work_limit::LimitedVault;

/// Valid configuration.
#[derive(Debug)]
pub struct Loaded {
    /// Settings of gateway.toml, fixed for the life of the process.
    pub settings: Settings,
    /// Routes and keys, which a reload replaces.
    pub snapshot: Snapshot,
    /// Versions of the files of the snapshot, for [`Reloader::new`].
    pub baseline: Baseline,
    /// Path of gateway.toml.
    pub file: PathBuf,
    /// Who may use the admin API.
    pub admin_access: AdminAccess,
}

impl Loaded {
    /// Returns the files of the snapshot.
    pub fn sources(&self) -> SnapshotSources {
        self.settings.sources()
    }
}

/// Reads gateway.toml and all files that it names.
///
/// # Errors
/// Returns [`Report`] with every fault of all files. If gateway.toml itself is invalid, the other two files are
/// searched under their default names beside it, so that their faults are reported too.
pub fn load(file: &Path, vault: &dyn Vault) -> Result<Loaded, Report> {
    match load_settings(file, vault) {
        Ok(settings) => {
            let reader = StableReader::default();
            let access = load_admin_access(&settings.admin_api.tokens, vault);
            let read = read_snapshot(&settings.sources(), vault, &reader);
            match (read, access) {
                (Ok((mut snapshot, baseline)), Ok(admin_access)) => {
                    snapshot.generation = 1;
                    Ok(Loaded { settings, snapshot, baseline, file: file.to_owned(), admin_access })
                }
                (read, access) => {
                    let mut report = read.err().unwrap_or_default();
                    report.merge(access.err().unwrap_or_default());
                    Err(report)
                }
            }
        }
        Err(mut report) => {
            let sources = sources::beside(file);
            if sources.routes.main().exists() && sources.keys.main().exists() {
                let read = read_snapshot(&sources, vault, &StableReader::default());
                report.merge(read.err().unwrap_or_default());
            }
            Err(report)
        }
    }
}

/// Parses the texts of gateway.toml, routes.toml and keys.toml as if they were files in `folder`. The paths that
/// gateway.toml gives for the other two are ignored; a price file cannot be read.
///
/// # Errors
/// Returns [`Report`] with every fault of all texts.
pub fn load_texts(folder: &Path, texts: [&str; 3], vault: &dyn Vault) -> Result<Loaded, Report> {
    load_texts_with_prices(folder, texts, None, vault)
}

/// Reads a configuration as [`load_texts`] does, with the text of the file of `prices`. `None` if there is no such file.
///
/// # Errors
/// Returns the [`Report`] with all faults.
pub fn load_texts_with_prices(
    folder: &Path,
    texts: [&str; 3],
    prices: Option<&str>,
    vault: &dyn Vault,
) -> Result<Loaded, Report> {
    let [gateway, routes, keys] = texts;
    let file = folder.join("gateway.toml");
    let settings = settings::read(&file, gateway, &Overrides::default(), vault);
    let source =
        |kind, name: &str, text: &str| SourceFile { kind, path: folder.join(name), text: text.to_owned() };
    let routes = vec![source(SourceKind::Routes, "routes.toml", routes)];
    let keys = vec![source(SourceKind::Keys, "keys.toml", keys)];
    let none = || std::io::Error::other("the configuration is in memory and has no other files");
    let beside = |_: &Path| prices.map(str::to_owned).ok_or_else(none);
    match (settings, snapshot_of(Ok(routes), Ok(keys), None, vault, &beside)) {
        (Ok(settings), Ok((snapshot, baseline))) => {
            Ok(Loaded { settings, snapshot, baseline, file, admin_access: AdminAccess::default() })
        }
        (settings, snapshot) => {
            let mut report = settings.err().unwrap_or_default();
            report.merge(snapshot.err().unwrap_or_default());
            Err(report)
        }
    }
}

/// Texts of configuration files that are checked and not written. `None` for the file as it is.
#[derive(Clone, Debug, Default)]
pub struct CandidateTexts {
    /// Text of gateway.toml.
    pub gateway: Option<String>,
    /// Text of the main file of routes.
    pub routes: Option<String>,
    /// Text of the main file of keys.
    pub keys: Option<String>,
}

/// Checks texts of configuration files together with the files as they are, without secrets. `file` is gateway.toml,
/// and `sources` are the files that are read whatever the texts name: the one who sends them may not read others. The check
/// ends with `limit`.
///
/// # Errors
/// Returns [`Report`] with every fault of all files.
pub fn check_texts(
    file: &Path,
    sources: &SnapshotSources,
    texts: CandidateTexts,
    limit: &WorkLimit,
) -> Result<(Vec<Problem>, Snapshot), Report> {
    let vault = LimitedVault { vault: &NoSecrets, limit };
    let settings = match texts.gateway {
        Some(text) => {
            Overrides::of_process().and_then(|overrides| settings::read(file, &text, &overrides, &vault))
        }
        None => load_settings(file, &NoSecrets),
    };
    let reader = StableReader::default();
    let mut routes = sources.read(SourceKind::Routes, &reader);
    let mut keys = sources.read(SourceKind::Keys, &reader);
    let prices = |files: &Result<Vec<SourceFile>, Report>| {
        let main = files.as_ref().ok()?.first()?;
        let table = main.text.parse::<toml::Table>().ok()?;
        Some(folder(&main.path).join(table.get("prices")?.as_str()?))
    };
    let known = prices(&routes);
    for (files, text) in [(&mut routes, texts.routes), (&mut keys, texts.keys)] {
        if let (Ok(files), Some(text)) = (files, text)
            && let Some(main) = files.first_mut()
        {
            main.text = text;
        }
    }
    let catalogue = sources.catalogue.as_deref();
    let beside = |path: &Path| {
        if known.as_deref() == Some(path) || catalogue == Some(path) {
            return reader.read(path);
        }
        Err(std::io::Error::other("a check reads no other price list than the one in effect"))
    };
    match (settings, snapshot_of(routes, keys, catalogue, &vault, &beside)) {
        (Ok(settings), Ok((snapshot, _))) => Ok((settings.warnings, snapshot)),
        (settings, snapshot) => {
            let mut report = settings.err().unwrap_or_default();
            report.merge(snapshot.err().unwrap_or_default());
            Err(report)
        }
    }
}

/// Returns the hash of a file's text. `None` if it cannot be read.
pub fn file_hash(path: &Path) -> Option<FileHash> {
    std::fs::read_to_string(path).ok().map(|text| FileHash::of(&text))
}

/// Returns the configuration in effect as TOML, as [`effective`] does, from its parts.
pub fn effective_of(settings: &Settings, snapshot: &Snapshot) -> String {
    print::effective_of(settings, snapshot)
}

/// Returns the files of keys that gateway.toml gives, the main file first. They are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid, or a folder of keys cannot be read.
pub fn key_files(file: &Path) -> Result<Vec<PathBuf>, Report> {
    load_settings(file, &NoSecrets)?.sources().keys.files()
}

/// Longest time for which the old text of a rotated key stays valid.
const LONGEST_GRACE: Duration = Duration::from_secs(90 * 86_400);

/// Parses the time for which the old text of a rotated key stays valid: `"24h"`, `"7d"`.
///
/// # Errors
/// Returns a hint for the user if the text is no duration, or one that is out of range.
pub fn parse_grace(text: &str) -> Result<Duration, String> {
    let grace = values::duration(text)?;
    let range = Duration::from_secs(1)..=LONGEST_GRACE;
    if range.contains(&grace) { Ok(grace) } else { Err("write a time from 1s to 90d".to_owned()) }
}

/// Returns the path of the admin API's tokens that gateway.toml gives. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn admin_tokens_path(file: &Path) -> Result<PathBuf, Report> {
    load_settings(file, &NoSecrets).map(|settings| settings.admin_api.tokens)
}

/// Returns the state folder of the admin API that gateway.toml gives. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn admin_state_path(file: &Path) -> Result<PathBuf, Report> {
    load_settings(file, &NoSecrets).map(|settings| settings.admin_api.state)
}

/// Returns the address of the admin port and the settings of the admin API that gateway.toml gives. The other files are not
/// read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn admin(file: &Path) -> Result<(SocketAddr, AdminApiSettings), Report> {
    load_settings(file, &NoSecrets).map(|settings| (settings.admin, settings.admin_api))
}

/// Returns the store settings of gateway.toml, with the URL of its server. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn store(file: &Path) -> Result<StoreSettings, Report> {
    load_settings(file, &secret::OnlySecrets).map(|settings| settings.store)
}

/// Returns the settings of gateway.toml, with the secrets and certificates that they name. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml or one of the files that it names is not valid.
pub fn load_gateway(file: &Path, vault: &dyn Vault) -> Result<Settings, Report> {
    load_settings(file, vault)
}

fn load_settings(file: &Path, vault: &dyn Vault) -> Result<Settings, Report> {
    let text = read(file)?;
    let overrides = Overrides::of_process()?;
    settings::read(file, &text, &overrides, vault)
}

/// Reads `[telemetry]` of gateway.toml again, with the files that it names.
///
/// # Errors
/// Returns [`Report`] if gateway.toml or one of these files is not valid.
pub fn load_telemetry(file: &Path, vault: &dyn Vault) -> Result<TelemetrySettings, Report> {
    load_settings(file, vault).map(|settings| settings.telemetry)
}

/// Reads routes.toml and keys.toml.
///
/// # Errors
/// Returns [`Report`] with every fault of both files.
pub fn load_snapshot(routes: &Path, keys: &Path, vault: &dyn Vault) -> Result<Snapshot, Report> {
    let sources = SnapshotSources {
        routes: ConfigSources::of_file(routes),
        keys: ConfigSources::of_file(keys),
        catalogue: None,
    };
    read_snapshot(&sources, vault, &StableReader::default()).map(|(snapshot, _)| snapshot)
}

/// Returns the snapshot and the versions of its files.
fn read_snapshot(
    sources: &SnapshotSources,
    vault: &dyn Vault,
    reader: &StableReader,
) -> Result<(Snapshot, Baseline), Report> {
    let routes = sources.read(SourceKind::Routes, reader);
    let keys = sources.read(SourceKind::Keys, reader);
    let beside = |path: &Path| {
        vault.note_file(path);
        reader.read(path)
    };
    snapshot_of(routes, keys, sources.catalogue.as_deref(), vault, &beside)
}

/// Parses the files that could be read. Reports the faults of all others as well.
fn snapshot_of(
    routes: Result<Vec<SourceFile>, Report>,
    keys: Result<Vec<SourceFile>, Report>,
    catalogue: Option<&Path>,
    vault: &dyn Vault,
    beside: routes::ReadFile<'_>,
) -> Result<(Snapshot, Baseline), Report> {
    let files = routes.iter().chain(&keys).flatten();
    let baseline = Baseline::of(files.map(|file| (file.kind, file.as_text())));
    // With a catalogue that is wrong, the routes are read beside the embedded one: their faults are reported too.
    let (catalogue, faults) = match catalogue::load(catalogue, beside) {
        Ok(catalogue) => (catalogue, Report::default()),
        Err(faults) => (Catalogue::embedded().clone(), faults),
    };
    let table = routes.and_then(|files| routes::read_files(&texts_of(&files), &catalogue, vault, beside));
    let keys = keys.and_then(|files| keys::read_files(&texts_of(&files), vault));
    let hash = baseline.hash().into();
    match both(table, keys) {
        Ok(snapshot) => faults.into_result().map(|()| (Snapshot { hash, catalogue, ..snapshot }, baseline)),
        Err(mut report) => {
            report.merge(faults);
            Err(report)
        }
    }
}

fn texts_of(files: &[SourceFile]) -> Vec<SourceText<'_>> {
    files.iter().map(SourceFile::as_text).collect()
}

fn both(routes: Result<Routed, Report>, keys: Result<Keys, Report>) -> Result<Snapshot, Report> {
    match (routes, keys) {
        (Ok(Routed { routes, tokens }), Ok(keys)) => {
            Ok(Snapshot { routes, keys, tokens: tokens.map(Arc::new), ..Snapshot::default() })
        }
        (routes, keys) => {
            let mut report = routes.err().unwrap_or_default();
            report.merge(keys.err().unwrap_or_default());
            Err(report)
        }
    }
}

fn read(file: &Path) -> Result<String, Report> {
    StableReader::default().read(file).map_err(|error| unread(file, &error))
}

fn unread(file: &Path, error: &std::io::Error) -> Report {
    Report::of_file(file, format!("cannot be read: {error}"))
}

/// Returns the folder that relative paths in a file refer to.
fn folder(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}
