//! Configuration: reads and validates gateway.toml, routes.toml and keys.toml.
//!
//! `gateway.toml` is read once ([`Settings`]). `routes.toml` and `keys.toml` are read again on SIGHUP and become a
//! [`Snapshot`]. A file is accepted as a whole or not at all, and all faults are reported at once ([`Report`]). For
//! that, the reader continues after a fault ([`node`]), which a serde deserializer does not: it stops at the first.
//!
//! No other module reads these files. The semantics of routes and keys must not live here.

mod fleet;
mod keys;
mod keys_file;
mod limits;
mod models;
mod node;
mod prices;
mod print;
pub mod reference;
mod reload;
mod report;
mod routes;
mod routing;
mod schema;
mod secret;
mod settings;
mod stable_read;
mod tokens;
mod values;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fleet::{FleetSettings, OnOutageSetting};
pub use keys_file::{KeySettings, KeysFile, KeysFileError, Listed};
pub use limits::Limits;
pub use print::effective;
pub use reload::{Baseline, ReloadOutcome, ReloadRules, Reloader};
pub use report::{Problem, Report};
pub use schema::schema;
pub use secret::{Environment, NoSecrets, Secret, SecretSource, Vault};
pub use settings::{
    AccessLogSettings, LedgerSettings, LogFormat, LogSettings, RetentionSettings, Settings, StoreSettings,
    TlsListener,
};

use crate::account::Keys;
use crate::snapshot::Snapshot;
use routes::Routed;
use stable_read::StableReader;

/// Valid configuration.
#[derive(Debug)]
pub struct Loaded {
    /// Settings of gateway.toml, fixed for the life of the process.
    pub settings: Settings,
    /// Routes and keys, which a reload replaces.
    pub snapshot: Snapshot,
    /// Endings of the files of the snapshot, for [`Reloader::new`].
    pub baseline: Baseline,
}

/// Reads all three files.
///
/// # Errors
/// Returns [`Report`] with every fault of all files. If gateway.toml itself is invalid, the other two files are
/// searched under their default names beside it, so that their faults are reported too.
pub fn load(file: &Path, vault: &dyn Vault) -> Result<Loaded, Report> {
    match load_settings(file, vault) {
        Ok(settings) => {
            let reader = StableReader::default();
            let (mut snapshot, baseline) = read_snapshot(&settings.routes, &settings.keys, vault, &reader)?;
            snapshot.generation = 1;
            Ok(Loaded { settings, snapshot, baseline })
        }
        Err(mut report) => {
            let beside = folder(file);
            let (routes, keys) = (beside.join("routes.toml"), beside.join("keys.toml"));
            if routes.exists() && keys.exists() {
                report.merge(load_snapshot(&routes, &keys, vault).err().unwrap_or_default());
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
    let [gateway, routes, keys] = texts;
    let baseline = Baseline::of([routes, keys]);
    let settings = settings::read(&folder.join("gateway.toml"), gateway, vault);
    let beside =
        |_: &Path| Err(std::io::Error::other("the configuration is in memory and has no other files"));
    let table = routes::read(&folder.join("routes.toml"), routes, vault, &beside);
    let keys = keys::read(&folder.join("keys.toml"), keys);
    match (settings, both(table, keys)) {
        (Ok(settings), Ok(snapshot)) => Ok(Loaded { settings, snapshot, baseline }),
        (settings, snapshot) => {
            let mut report = settings.err().unwrap_or_default();
            report.merge(snapshot.err().unwrap_or_default());
            Err(report)
        }
    }
}

/// Returns the path of keys.toml that gateway.toml gives. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn keys_path(file: &Path) -> Result<PathBuf, Report> {
    load_settings(file, &NoSecrets).map(|settings| settings.keys)
}

/// Returns the address of the admin port that gateway.toml gives. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn admin(file: &Path) -> Result<SocketAddr, Report> {
    load_settings(file, &NoSecrets).map(|settings| settings.admin)
}

/// Returns the store settings of gateway.toml. The other files are not read.
///
/// # Errors
/// Returns [`Report`] if gateway.toml is invalid.
pub fn store(file: &Path) -> Result<StoreSettings, Report> {
    load_settings(file, &NoSecrets).map(|settings| settings.store)
}

fn load_settings(file: &Path, vault: &dyn Vault) -> Result<Settings, Report> {
    let text = read(file)?;
    settings::read(file, &text, vault)
}

/// Reads routes.toml and keys.toml.
///
/// # Errors
/// Returns [`Report`] with every fault of both files.
pub fn load_snapshot(routes: &Path, keys: &Path, vault: &dyn Vault) -> Result<Snapshot, Report> {
    read_snapshot(routes, keys, vault, &StableReader::default()).map(|(snapshot, _)| snapshot)
}

/// Returns the snapshot and the endings of both files.
fn read_snapshot(
    routes: &Path,
    keys: &Path,
    vault: &dyn Vault,
    reader: &StableReader,
) -> Result<(Snapshot, Baseline), Report> {
    let read = |file: &Path| reader.read(file).map_err(|error| unread(file, &error));
    let (table, access) = match (read(routes), read(keys)) {
        (Ok(routes), Ok(keys)) => (routes, keys),
        (table, access) => {
            // Report the faults of the readable file as well.
            let beside = |path: &Path| reader.read(path);
            let table = table.and_then(|text| routes::read(routes, &text, vault, &beside));
            let mut report = table.err().unwrap_or_default();
            report.merge(access.and_then(|text| keys::read(keys, &text)).err().unwrap_or_default());
            return Err(report);
        }
    };
    let baseline = Baseline::of([&table, &access]);
    let table = routes::read(routes, &table, vault, &|path| reader.read(path));
    both(table, keys::read(keys, &access)).map(|snapshot| (snapshot, baseline))
}

fn both(routes: Result<Routed, Report>, keys: Result<Keys, Report>) -> Result<Snapshot, Report> {
    match (routes, keys) {
        (Ok(Routed { routes, tokens }), Ok(keys)) => {
            Ok(Snapshot { generation: 0, routes, keys, tokens: tokens.map(Arc::new) })
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
