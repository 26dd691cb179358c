//! keys.toml: who may ask for what, how much of it, and who pays.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::node::{Before, Document, Table, Value};
use super::report::{Report, closest};
use crate::account::{
    Account, AccountRules, Key, KeyHash, Keys, Losses, Network, Pattern, Permission, UsageLimits,
};
use crate::wire::Api;

/// The most that a rate or a number can be limited to.
const MAX_RATE: i64 = 1_000_000_000;

/// A file is read in parts of about this size, so that what is read of it is never in memory as a whole: it takes ten
/// times the size of its text.
const PART: usize = 256 << 10;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Set<T> = HashSet<T, foldhash::fast::RandomState>;

pub(super) fn read(file: &Path, text: &str) -> Result<Keys, Report> {
    match read_parts(file, parts(text)) {
        Some(read) => read,
        // What looked like the end of a part stands within something; or there is a fault, to be told once.
        None => {
            read_parts(file, vec![text]).unwrap_or_else(|| Err(Report::of_file(file, "cannot be understood")))
        }
    }
}

/// Parts of a file that are TOML by themselves: each but the first begins with an entry.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(ahead) = rest.as_bytes().get(PART..) {
        let mut ends = memchr::memmem::find_iter(ahead, b"\n[[").map(|at| PART + at + 1);
        let is_entry = |end: &usize| {
            let line = rest.get(*end..).unwrap_or_default();
            line.starts_with("[[key]]") || line.starts_with("[[account]]")
        };
        let Some((part, after)) = ends.find(is_entry).and_then(|end| rest.split_at_checked(end)) else {
            break;
        };
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Reads a file part by part. Nothing, if one of several is not TOML by itself.
fn read_parts(file: &Path, parts: Vec<&str>) -> Option<Result<Keys, Report>> {
    let mut reader = Reader::default();
    let mut before = Before { lines: 0, elements: vec![("account", 0), ("key", 0)] };
    let mut report = Report::default();
    let alone = parts.len() == 1;
    for text in parts {
        let document = Document::part(file, text, before.clone());
        let counts = document.read(|root| reader.part(root));
        if counts.is_none() && !alone {
            return None;
        }
        report.merge(document.into_report());
        before.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count();
        for ((_, elements), count) in before.elements.iter_mut().zip(counts.unwrap_or_default()) {
            *elements += count;
        }
    }
    // What is kept for a client is kept under one of the two names.
    let accounts = &reader.accounts;
    for key in reader.keys.iter().filter(|key| key.account.is_none() && accounts.contains_key(&key.name)) {
        let name = &key.name;
        report.merge(Report::of_file(
            file,
            format!(
                "the key \"{name}\" has the name of an account and belongs to none; give it account = \"{name}\", or another name"
            ),
        ));
    }
    Some(report.into_result().map(|()| reader.keys))
}

/// What the entries of a file share.
#[derive(Default)]
struct Reader {
    keys: Keys,
    names: Set<Arc<str>>,
    accounts: Map<Arc<str>, Arc<Account>>,
    rules: Map<AccountRules, Arc<AccountRules>>,
}

impl Reader {
    /// Reads a part of the file; gives how many accounts and keys there are in it.
    fn part(&mut self, root: &Table<'_>) -> [usize; 2] {
        let accounts = root.tables("account", |table| self.account(table));
        let keys = root.tables("key", |table| {
            let Some(key) = self.key(table) else { return };
            let name = key.name.clone();
            if !self.names.insert(name.clone()) {
                table.wrong(format!("the key \"{name}\" is given twice"), None);
            }
            if let Some(other) = self.keys.insert(key) {
                table.wrong(
                    format!("it is the same key as \"{}\"", other.name),
                    "make a new one: model-gateway keys create".to_owned(),
                );
            }
        });
        [accounts, keys]
    }

    fn account(&mut self, table: &Table<'_>) {
        let name = table.require("name", "name = \"acme\"").and_then(|value| account_name(&value));
        let limits = table.table("limits", read_limits).unwrap_or_default();
        let Some(name) = name else { return };
        if !self.account_of(name).limit(limits) {
            table.wrong(format!("the account \"{name}\" is given twice"), None);
        }
    }

    fn key(&mut self, table: &Table<'_>) -> Option<Key> {
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
        let mut key = Key::new(hash?, name?, rules);
        key.enabled = enabled;
        key.expires = expires;
        key.account = account;
        Some(key)
    }

    /// The account of this name, whether or not the file says more of it, and where.
    fn account_of(&mut self, name: &str) -> Arc<Account> {
        if let Some(account) = self.accounts.get(name) {
            return account.clone();
        }
        let account = Arc::new(Account::new(name));
        self.accounts.insert(account.name.clone(), account.clone());
        account
    }

    fn rules(&mut self, table: &Table<'_>) -> Arc<AccountRules> {
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
        let plain_images = table.get("images").and_then(|value| {
            value.parsed(|text| match text {
                "envelope" => Ok(false),
                "plain" => Ok(true),
                _ => Err("write \"envelope\" or \"plain\"".to_owned()),
            })
        });
        let rules = AccountRules {
            models,
            endpoints,
            networks,
            losses: losses.unwrap_or_default(),
            limits,
            plain_images: plain_images.unwrap_or_default(),
        };
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

fn read_limits(table: &Table<'_>) -> UsageLimits {
    let rate = |key| table.integer(key, &(1..=MAX_RATE)).and_then(|limit| u64::try_from(limit).ok());
    UsageLimits {
        requests_per_minute: rate("requests_per_minute"),
        tokens_per_minute: rate("tokens_per_minute"),
        concurrent: table.integer("concurrent", &(1..=1_000_000)).and_then(|limit| u32::try_from(limit).ok()),
        spend_per_day: table.amount("spend_per_day"),
        spend_per_month: table.amount("spend_per_month"),
    }
}
