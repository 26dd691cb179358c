//! Fleet settings of `[store]`: the Valkey server and the policy during its outage.

use std::path::{Path, PathBuf};

use super::node::{ConfigTable, Value};
use super::{Secret, SecretSource, Vault, secret};

/// Shared store of a fleet of gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Server URLs; several are the nodes of a cluster, or sentinels. A URL may contain a password.
    pub urls: Vec<Secret>,
    /// Sources of the URLs, in their order; `None` for a URL in gateway.toml itself.
    pub sources: Vec<Option<SecretSource>>,
    /// Folder that relative paths of the sources refer to.
    pub folder: PathBuf,
    /// Master name at the sentinels; `None` without sentinels.
    pub sentinel: Option<String>,
    /// Folder of the journal of charges that the server has not acknowledged yet.
    pub journal: PathBuf,
    /// Policy during an outage of the server.
    pub away: OnOutageSetting,
}

/// Policy during an outage of a fleet's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOutageSetting {
    /// Refuse requests beyond the amount that this gateway has leased.
    #[default]
    Refuse,
    /// Allow each account to spend this much more than the leased amount, in nano-units.
    Allow(i64),
}

/// Default overdraft of an account during an outage: 1 currency unit, in nano-units.
const ALLOWANCE: i64 = 1_000_000_000;
const HINT: &str = "write a URL such as \"redis://10.0.0.5:6379\"";

/// Reads the fleet settings. Returns `None` if no server is configured.
pub(super) fn read(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<FleetSettings> {
    let mut urls = Vec::new();
    let servers = table.get("valkey").map(Value::hidden);
    if let Some(value) = &servers {
        if value.is_list() {
            let count = value.elements(|url| urls.extend(read_url(url, folder, vault)));
            if count == Some(0) {
                value.wrong("the list is empty", HINT.to_owned());
            }
        } else {
            urls.extend(read_url(value, folder, vault));
        }
    }
    let sentinel = table.string("sentinel");
    let journal = folder.join(table.string("journal").unwrap_or_else(|| "ledger".to_owned()));
    let away = read_outage_policy(table);
    if sentinel.is_some() && servers.is_none() {
        table.wrong("sentinel is set without valkey", "list the URLs of the sentinels in valkey".to_owned());
    }
    let (urls, sources) = urls.into_iter().unzip();
    servers.map(|_| FleetSettings { urls, sources, folder: folder.to_owned(), sentinel, journal, away })
}

impl FleetSettings {
    /// Reads the URLs again. `None` if all are in gateway.toml itself, which is read at startup.
    ///
    /// # Errors
    /// Returns the reason if a source cannot be read.
    pub fn read_again(&self, vault: &dyn Vault) -> Result<Option<Vec<Secret>>, String> {
        if self.sources.iter().all(Option::is_none) {
            return Ok(None);
        }
        let read = |(url, source): (&Secret, &Option<SecretSource>)| match source {
            None => Ok(url.clone()),
            Some(source) => source.read("store URL", &self.folder, vault),
        };
        self.urls.iter().zip(&self.sources).map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Returns the files that the URLs are read from.
    pub fn files(&self, vault: &dyn Vault) -> Vec<PathBuf> {
        let files = self.sources.iter().filter_map(|source| match source {
            Some(SecretSource::File(path)) => secret::expand(path, &self.folder, vault).ok(),
            _ => None,
        });
        files.collect()
    }
}

fn read_outage_policy(table: &ConfigTable<'_>) -> OnOutageSetting {
    let away = table.get("away");
    let allow = away.as_ref().map(|value| {
        value.parsed(|text| match text {
            "refuse" => Ok(false),
            "allow" => Ok(true),
            _ => Err("write \"refuse\" or \"allow\"".to_owned()),
        })
    });
    let allowance = table.get("away_allowance");
    let amount = allowance.as_ref().and_then(Value::as_amount).unwrap_or(ALLOWANCE);
    match (allow, allowance) {
        (Some(Some(true)), _) => return OnOutageSetting::Allow(amount),
        // An invalid policy is reported already.
        (Some(None), _) | (_, None) => {}
        (_, Some(allowance)) => allowance.warn(
            "away_allowance has no effect with away = \"refuse\"",
            "set away = \"allow\", or remove away_allowance".to_owned(),
        ),
    }
    OnOutageSetting::Refuse
}

/// Reads a URL, or the source that it is read from: it may have a password.
fn read_url(value: &Value<'_>, folder: &Path, vault: &dyn Vault) -> Option<(Secret, Option<SecretSource>)> {
    if !value.is_table() {
        return value.parsed(address).map(|url| (url, None));
    }
    let example = "valkey = { env = \"VALKEY_URL\" }";
    let (url, source) = secret::read_with_source(value, "store URL", example, folder, vault)?;
    if !vault.reads() {
        return Some((url, Some(source)));
    }
    match address(url.expose()) {
        Ok(url) => Some((url, Some(source))),
        Err(hint) => {
            value.wrong("the store URL is not valid", hint);
            None
        }
    }
}

fn address(url: &str) -> Result<Secret, String> {
    let known = ["redis://", "rediss://", "valkey://", "valkeys://", "unix://"];
    if known.iter().any(|scheme| url.starts_with(scheme)) {
        Ok(Secret::new(url))
    } else {
        Err(HINT.to_owned())
    }
}
