//! keys.toml: who may ask for what, how much of it, and who pays.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::node::{Document, Table, Value};
use super::report::{Report, closest};
use crate::account::{Account, Key, KeyHash, Keys, Limits, Losses, Network, Pattern, Permission, Rules};
use crate::wire::Api;

/// The most that a rate or a number can be limited to.
const MAX_RATE: i64 = 1_000_000_000;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Set<T> = HashSet<T, foldhash::fast::RandomState>;

pub(super) fn read(file: &Path, text: &str) -> Result<Keys, Report> {
    let document = Document::new(file, text);
    let keys = document.read(|root| {
        let mut reader = Reader::default();
        root.tables("account", |table| reader.account(table));
        let mut keys: Vec<(KeyHash, Key)> = Vec::new();
        let mut names: Set<Arc<str>> = Set::default();
        let mut hashes: Map<KeyHash, Arc<str>> = Map::default();
        root.tables("key", |table| {
            let Some((hash, key)) = reader.key(table) else { return };
            if !names.insert(key.name.clone()) {
                table.wrong(format!("the key \"{}\" is given twice", key.name), None);
            }
            if let Some(other) = hashes.insert(hash, key.name.clone()) {
                table.wrong(
                    format!("it is the same key as \"{other}\""),
                    "make a new one: model-gateway keys create".to_owned(),
                );
            }
            keys.push((hash, key));
        });
        for (_, key) in &keys {
            // What is kept for a client is kept under one of the two.
            if key.account.is_none() && reader.accounts.contains_key(&key.name) {
                let name = &key.name;
                root.wrong(
                    format!("the key \"{name}\" has the name of an account and belongs to none"),
                    format!("give it account = \"{name}\", or another name"),
                );
            }
        }
        Keys::new(keys)
    });
    document.into_report().into_result()?;
    keys.ok_or_else(|| Report::of_file(file, "cannot be understood"))
}

/// What the entries of a file share.
#[derive(Default)]
struct Reader {
    accounts: Map<Arc<str>, Arc<Account>>,
    rules: Map<Rules, Arc<Rules>>,
}

impl Reader {
    fn account(&mut self, table: &Table<'_>) {
        let name = table.require("name", "name = \"acme\"").and_then(|value| account_name(&value));
        let limits = table.table("limits", read_limits).unwrap_or_default();
        let Some(name) = name else { return };
        let name: Arc<str> = name.into();
        if self.accounts.insert(name.clone(), Arc::new(Account::new(name.clone(), limits))).is_some() {
            table.wrong(format!("the account \"{name}\" is given twice"), None);
        }
    }

    fn key(&mut self, table: &Table<'_>) -> Option<(KeyHash, Key)> {
        let name = table.require("name", "name = \"alice\"").and_then(|value| {
            let name = value.as_str()?;
            if name.is_empty() || name.len() > 128 {
                value.wrong("a name has 1 to 128 bytes", None);
            }
            Some(Arc::<str>::from(name))
        });
        // Whoever misunderstands this puts the key itself here.
        let hash = table.require("sha256", "sha256 = \"<hex of SHA-256 of the key>\"").and_then(|value| {
            value.hidden().parsed(|text| {
                KeyHash::from_hex(text).ok_or_else(|| {
                    "write the 64 hexadecimal digits of the key's SHA-256; `model-gateway keys create` does it"
                        .to_owned()
                })
            })
        });
        let enabled = table.boolean("enabled").unwrap_or(true);
        let expires = table.get("expires").and_then(|value| value.as_time());
        let account = table.get("account").and_then(|value| Some(self.account_of(account_name(&value)?)));
        let rules = self.rules(table);
        let mut key = Key::new(name?, rules);
        key.enabled = enabled;
        key.expires = expires;
        key.account = account;
        Some((hash?, key))
    }

    /// The account of this name, whether or not the file says more of it.
    fn account_of(&mut self, name: &str) -> Arc<Account> {
        if let Some(account) = self.accounts.get(name) {
            return account.clone();
        }
        let account = Arc::new(Account::new(name, Limits::default()));
        self.accounts.insert(account.name.clone(), account.clone());
        account
    }

    fn rules(&mut self, table: &Table<'_>) -> Arc<Rules> {
        let models = table.get("models").map_or(Permission::All, |value| {
            let mut patterns = Vec::new();
            value.elements(|element| patterns.extend(element.as_str().map(Pattern::new)));
            Permission::Some(patterns.into_boxed_slice())
        });
        let endpoints = table.get("endpoints").map_or(Permission::All, |value| {
            let mut patterns = Vec::new();
            value.elements(|element| patterns.extend(element.parsed(read_endpoint)));
            Permission::Some(patterns.into_boxed_slice())
        });
        let networks = table.get("networks").map(|value| {
            let mut networks = Vec::new();
            value.elements(|element| {
                networks.extend(element.parsed(|text| {
                    let hint = || "write a network such as \"10.0.0.0/8\" or \"2001:db8::/32\"".to_owned();
                    Network::parse(text).ok_or_else(hint)
                }));
            });
            networks.into_boxed_slice()
        });
        let losses = table.get("losses").and_then(|value| {
            value.parsed(|text| {
                Losses::from_name(text).ok_or_else(|| "write \"allow\", \"warn\" or \"refuse\"".to_owned())
            })
        });
        let limits = table.table("limits", read_limits).unwrap_or_default();
        let rules = Rules { models, endpoints, networks, losses: losses.unwrap_or_default(), limits };
        if let Some(shared) = self.rules.get(&rules) {
            return shared.clone();
        }
        let shared = Arc::new(rules.clone());
        self.rules.insert(rules, shared.clone());
        shared
    }
}

/// The name of an account, as the ledger takes it.
fn account_name<'d>(value: &Value<'d>) -> Option<&'d str> {
    let name = value.as_str()?;
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        value.wrong("an account's name has 1 to 128 bytes and no control characters", None);
        return None;
    }
    Some(name)
}

/// The name of an API, or a pattern that fits one.
fn read_endpoint(text: &str) -> Result<Pattern, String> {
    let pattern = Pattern::new(text);
    if Api::ALL.into_iter().any(|api| pattern.matches(api.name())) {
        return Ok(pattern);
    }
    let names = Api::ALL.map(Api::name);
    Err(match closest(text, names) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write some of {}", names.join(", ")),
    })
}

fn read_limits(table: &Table<'_>) -> Limits {
    let rate = |key| table.integer(key, &(1..=MAX_RATE)).and_then(|limit| u64::try_from(limit).ok());
    Limits {
        requests_per_minute: rate("requests_per_minute"),
        tokens_per_minute: rate("tokens_per_minute"),
        concurrent: table.integer("concurrent", &(1..=1_000_000)).and_then(|limit| u32::try_from(limit).ok()),
        spend_per_day: table.amount("spend_per_day"),
        spend_per_month: table.amount("spend_per_month"),
    }
}
