//! Files that `[telemetry]` names: headers, certificates and keys. A reload reads them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::Vault;
use crate::node::{ConfigTable, Value};
use crate::secret::expand;
use crate::telemetry_env::header;
use observe::telemetry::transport::ClientIdentity;

/// Returns the paths of the files that the table names.
pub(super) fn named(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Vec<PathBuf> {
    let path = |key| {
        let value: Value<'_> = table.get(key)?;
        expand(Path::new(value.as_str()?), folder, vault).ok()
    };
    ["headers_file", "ca", "client_cert", "client_key"].into_iter().filter_map(path).collect()
}

/// Reads the headers of the table and of the file with further ones. `None` if neither is set.
pub(super) fn read_headers(
    table: &ConfigTable<'_>,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let mut all = Vec::new();
    let written = table.table("headers", |entries| {
        entries.entries(|name, value| all.extend(value.parsed(|text| header(name, text))));
    });
    let filed = read_file(table, "headers_file", folder, vault, |text| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').ok_or("write one header per line: `name: value`")?;
            header(name.trim(), value.trim())
        });
        headers.collect::<Result<Vec<_>, String>>()
    });
    if written.is_none() && table.get("headers_file").is_none() {
        return None;
    }
    all.extend(filed.unwrap_or_default());
    Some(all)
}

/// Reads the client certificate. `None` without one, and if it cannot be used, which is reported.
pub(super) fn read_identity(
    table: &ConfigTable<'_>,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Arc<ClientIdentity>> {
    let chain = read_file(table, "client_cert", folder, vault, |text| certificates(&text));
    let key = read_file(table, "client_key", folder, vault, private_key);
    if table.get("client_cert").is_some() != table.get("client_key").is_some() {
        table.wrong("only one of client_cert and client_key is set", "set both of them".to_owned());
    }
    chain.zip(key).map(|(chain, key)| Arc::new(ClientIdentity { chain, key }))
}

/// Reads the file that a key names. `None` if it is not set, cannot be read, which is reported, or secrets are not read.
pub(super) fn read_file<T>(
    table: &ConfigTable<'_>,
    key: &'static str,
    folder: &Path,
    vault: &dyn Vault,
    parse: impl FnOnce(String) -> Result<T, String>,
) -> Option<T> {
    let value: Value<'_> = table.get(key)?;
    let written = Path::new(value.as_str()?);
    if !vault.reads() {
        return None;
    }
    let read = |path: PathBuf| vault.file(&path).map_err(|error| format!("{}: {error}", path.display()));
    match expand(written, folder, vault).and_then(read).and_then(parse) {
        Ok(parsed) => Some(parsed),
        Err(reason) => {
            value.wrong(reason, None);
            None
        }
    }
}

/// Returns the certificates of a PEM file, DER. The error is a hint for the user.
pub(super) fn certificates(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes());
    let all: Result<Vec<_>, _> = all.map(|certificate| certificate.map(|one| one.to_vec())).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| "give a PEM file with certificates".to_owned())
}

/// Checks a private key, PEM. The error is a hint for the user.
pub(super) fn private_key(text: String) -> Result<String, String> {
    match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(_) => Err("give a PEM file with a private key".to_owned()),
    }
}
