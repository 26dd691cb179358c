//! The configuration: three files, read, checked as a whole and turned into what may run.
//!
//! `gateway.toml` is read once ([`Settings`]); `routes.toml` and `keys.toml` are read again on SIGHUP and become a
//! [`Snapshot`]. A file is either taken whole or not at all, and whatever is wrong is reported at once ([`Report`]):
//! reading goes on behind a fault ([`node`]), which is why this is not left to a deserialiser that stops at the first.
//!
//! Here is the only place that reads these files. Here must not live: what a route or a key means.

mod fleet;
mod keys;
mod keys_file;
mod models;
mod node;
mod prices;
mod print;
mod reload;
mod report;
mod routes;
mod routing;
mod secret;
mod settings;
mod stable_read;
mod tokens;
mod values;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fleet::{FleetSettings, OnOutageSetting};
pub use keys_file::{Entry, KeysFile, KeysFileError, Listed};
pub use print::effective;
pub use reload::{Outcome, ReloadRules, Reloader};
pub use report::{Problem, Report};
pub use secret::{Environment, Sealed, Secret, Source, Vault};
pub use settings::{AccessLog, Kept, Ledger, Limits, Log, LogFormat, Settings, Store, TlsListener};

use crate::account::Keys;
use crate::snapshot::Snapshot;
use routes::Routed;
use stable_read::StableReader;

/// A configuration that was read and found sound.
#[derive(Debug)]
pub struct Loaded {
    /// What is read once.
    pub settings: Settings,
    /// What may be read again.
    pub snapshot: Snapshot,
}

/// Reads all three files.
///
/// # Errors
/// Every fault in any of them. When gateway.toml itself is broken, the other two are looked for under their usual
/// names beside it, so that their faults are seen too.
pub fn load(file: &Path, vault: &dyn Vault) -> Result<Loaded, Report> {
    match load_settings(file, vault) {
        Ok(settings) => {
            let mut snapshot = load_snapshot(&settings.routes, &settings.keys, vault)?;
            snapshot.generation = 1;
            Ok(Loaded { settings, snapshot })
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

/// Reads the texts of gateway.toml, routes.toml and keys.toml as if they lay in `folder`; what gateway.toml says of the
/// other two paths is not followed, and a file of prices is not there.
///
/// # Errors
/// Every fault in any of them.
pub fn load_texts(folder: &Path, texts: [&str; 3], vault: &dyn Vault) -> Result<Loaded, Report> {
    let [gateway, routes, keys] = texts;
    let settings = settings::read(&folder.join("gateway.toml"), gateway, vault);
    let beside = |_: &Path| Err(std::io::Error::other("there are no files beside these texts"));
    let table = routes::read(&folder.join("routes.toml"), routes, vault, &beside);
    let keys = keys::read(&folder.join("keys.toml"), keys);
    match (settings, both(table, keys)) {
        (Ok(settings), Ok(snapshot)) => Ok(Loaded { settings, snapshot }),
        (settings, snapshot) => {
            let mut report = settings.err().unwrap_or_default();
            report.merge(snapshot.err().unwrap_or_default());
            Err(report)
        }
    }
}

/// Where keys.toml is, according to gateway.toml; the other files need not be sound for this.
///
/// # Errors
/// gateway.toml is not sound.
pub fn keys_path(file: &Path) -> Result<PathBuf, Report> {
    load_settings(file, &Sealed).map(|settings| settings.keys)
}

/// Where what outlives a request is kept, according to gateway.toml; the other files need not be sound for this.
///
/// # Errors
/// gateway.toml is not sound.
pub fn store(file: &Path) -> Result<Store, Report> {
    load_settings(file, &Sealed).map(|settings| settings.store)
}

fn load_settings(file: &Path, vault: &dyn Vault) -> Result<Settings, Report> {
    let text = read(file)?;
    settings::read(file, &text, vault)
}

/// Reads routes.toml and keys.toml.
///
/// # Errors
/// Every fault in either.
pub fn load_snapshot(routes: &Path, keys: &Path, vault: &dyn Vault) -> Result<Snapshot, Report> {
    read_snapshot(routes, keys, vault, &StableReader::default()).map(|(snapshot, _)| snapshot)
}

/// The snapshot and the texts of both files.
fn read_snapshot(
    routes: &Path,
    keys: &Path,
    vault: &dyn Vault,
    reader: &StableReader,
) -> Result<(Snapshot, [String; 2]), Report> {
    let read = |file: &Path| reader.read(file).map_err(|error| unread(file, &error));
    let texts = match (read(routes), read(keys)) {
        (Ok(routes), Ok(keys)) => [routes, keys],
        (table, access) => {
            // The other file's faults are reported as well.
            let beside = |path: &Path| reader.read(path);
            let table = table.and_then(|text| routes::read(routes, &text, vault, &beside));
            let mut report = table.err().unwrap_or_default();
            report.merge(access.and_then(|text| keys::read(keys, &text)).err().unwrap_or_default());
            return Err(report);
        }
    };
    let [table, access] = &texts;
    let table = routes::read(routes, table, vault, &|path| reader.read(path));
    both(table, keys::read(keys, access)).map(|snapshot| (snapshot, texts))
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

/// The folder that relative paths in a file begin at.
fn folder(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}
