//! The part of `[store]` that says where the server of a fleet is, and what is done while it is away.

use std::path::{Path, PathBuf};

use super::Secret;
use super::node::{Table, Value};

/// A store that gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// A server; several are a cluster, or sentinels. A URL may hold a password.
    pub urls: Vec<Secret>,
    /// The name of the server that the sentinels know.
    pub sentinel: Option<String>,
    /// The folder where charges wait that are not at the server yet.
    pub journal: PathBuf,
    /// What is done while the server is away.
    pub away: OnOutageSetting,
}

/// What is done while the server of a fleet is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOutageSetting {
    /// Beyond what is set aside for this gateway, requests are refused.
    #[default]
    Refuse,
    /// Beyond it, each account may spend so much more, in nano-units.
    Allow(i64),
}

/// What an account may spend while the server is away, if nothing else is said: in nano-units, one.
const ALLOWANCE: i64 = 1_000_000_000;
const HINT: &str = "write a URL such as \"redis://10.0.0.5:6379\"";

/// Reads it. Nothing, if there is no server.
pub(super) fn read(table: &Table<'_>, folder: &Path) -> Option<FleetSettings> {
    let mut urls = Vec::new();
    let servers = table.get("valkey").map(Value::hidden);
    if let Some(value) = &servers {
        if value.is_list() {
            if value.elements(|url| urls.extend(url.parsed(address))) == Some(0) {
                value.wrong("an empty list", HINT.to_owned());
            }
        } else {
            urls.extend(value.parsed(address));
        }
    }
    let sentinel = table.string("sentinel");
    let journal = folder.join(table.string("journal").unwrap_or_else(|| "ledger".to_owned()));
    let allow = table.get("away").and_then(|value| {
        value.parsed(|text| match text {
            "refuse" => Ok(false),
            "allow" => Ok(true),
            _ => Err("write \"refuse\" or \"allow\"".to_owned()),
        })
    });
    let allowance = table.amount("away_allowance").unwrap_or(ALLOWANCE);
    if sentinel.is_some() && servers.is_none() {
        table.wrong("sentinel without valkey", "valkey names the sentinels".to_owned());
    }
    let away = if allow == Some(true) { OnOutageSetting::Allow(allowance) } else { OnOutageSetting::Refuse };
    servers.map(|_| FleetSettings { urls, sentinel, journal, away })
}

fn address(url: &str) -> Result<Secret, String> {
    let known = ["redis://", "rediss://", "valkey://", "valkeys://", "unix://"];
    if known.iter().any(|scheme| url.starts_with(scheme)) {
        Ok(Secret::new(url))
    } else {
        Err(HINT.to_owned())
    }
}
