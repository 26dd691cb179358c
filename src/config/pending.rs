//! Changes that a reload or a restart would make: names of entries and of their members, never values.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::reload::Baseline;
use super::{Settings, print};
use codec::provider::Provider;
use routing::account::{Account, AccountRules, Key, Keys};
use routing::snapshot::Snapshot;

/// Configuration that a reload would install.
#[derive(Debug)]
pub struct PendingSnapshot {
    /// Snapshot.
    pub snapshot: Snapshot,
    /// Files whose texts are not those in effect, and files in effect that would not be read any more.
    pub files: Vec<PathBuf>,
}

/// Change of an entry or a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// `setting` of gateway.toml, `routing` (a setting of routes.toml), `provider`, `model`, `key` or `account`.
    pub entry: &'static str,
    /// Name of the entry, or path of the setting.
    pub name: String,
    /// `added`, `changed` or `removed`.
    pub change: &'static str,
    /// Members of a changed entry that differ.
    pub members: Vec<String>,
}

/// Members of an entry with texts that are compared and never shown.
type Members = BTreeMap<String, String>;
/// Entries by name.
type Entries = BTreeMap<String, Members>;

/// Returns the changes of routes and keys that `next` would make, by kind and name.
pub fn snapshot_changes(running: &Snapshot, next: &Snapshot, settings: &Settings) -> Vec<PendingChange> {
    let (before, after) = (routes_of(settings, running), routes_of(settings, next));
    let mut changes = Vec::new();
    compare("routing", &settings_of(&before), &settings_of(&after), &mut changes);
    for kind in ["provider", "model"] {
        let entries = |table: &Table, snapshot: &Snapshot| {
            let mut entries = entries_of(table, kind);
            if kind == "provider" {
                snapshot.routes.providers().iter().for_each(|provider| add_secrets(&mut entries, provider));
            }
            entries
        };
        compare(kind, &entries(&before, running), &entries(&after, next), &mut changes);
    }
    compare_each("key", &keys_of(&running.keys), &keys_of(&next.keys), &mut changes, key_members);
    compare_each("account", &accounts_of(&running.keys), &accounts_of(&next.keys), &mut changes, |account| {
        BTreeMap::from([("limits".to_owned(), format!("{:?}", account.limits()))])
    });
    changes
}

/// Returns the changes of gateway.toml, which take effect with a restart.
pub fn settings_changes(running: &Settings, next: &Settings) -> Vec<PendingChange> {
    let none = Snapshot::default();
    let table = |settings| parse(print::effective_of(settings, &none).split("# routes.toml\n").next());
    let mut changes = Vec::new();
    compare("setting", &settings_of(&table(running)), &settings_of(&table(next)), &mut changes);
    changes
}

/// Returns the files that differ between two versions.
pub(super) fn changed_files(before: &Baseline, after: &Baseline) -> Vec<PathBuf> {
    let (before, after) = (before.hashes(), after.hashes());
    let differs = |file: &&(PathBuf, _)| !before.contains(file);
    let mut files: Vec<PathBuf> = after.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    let gone = before.iter().map(|(path, _)| path);
    files.extend(gone.filter(|path| after.iter().all(|(other, _)| other != *path)).cloned());
    files
}

fn routes_of(settings: &Settings, snapshot: &Snapshot) -> Table {
    let text = print::effective_of(settings, snapshot);
    let routes = text.split("# routes.toml\n").nth(1);
    parse(routes.and_then(|routes| routes.split("# keys.toml").next()))
}

/// Parses a part of the printed configuration, which is valid TOML.
fn parse(text: Option<&str>) -> Table {
    text.unwrap_or_default().parse().unwrap_or_default()
}

/// Returns the settings of a table by their paths: everything but lists of named entries.
fn settings_of(table: &Table) -> Entries {
    fn add(path: &str, value: &Value, to: &mut Entries) {
        match value {
            Value::Table(table) => {
                table.iter().for_each(|(key, value)| add(&format!("{path}.{key}"), value, to))
            }
            _ => _ = to.insert(path.to_owned(), BTreeMap::from([(String::new(), value.to_string())])),
        }
    }
    let mut settings = Entries::new();
    for (key, value) in table.iter().filter(|(key, _)| !matches!(key.as_str(), "provider" | "model")) {
        add(key, value, &mut settings);
    }
    settings
}

/// Returns the entries of one kind by their names.
fn entries_of(table: &Table, kind: &str) -> Entries {
    let list = table.get(kind).and_then(Value::as_array);
    let tables = list.into_iter().flatten().filter_map(Value::as_table);
    let named = tables.filter_map(|entry| {
        let name = entry.get("name").or_else(|| entry.get("id"))?.as_str()?;
        let members = entry.iter().map(|(key, value)| (key.clone(), value.to_string()));
        Some((name.to_owned(), members.collect()))
    });
    named.collect()
}

/// Adds the members of a provider that are secrets or files, and not in the printed configuration.
fn add_secrets(entries: &mut Entries, provider: &Provider) {
    let Some(members) = entries.get_mut(&*provider.name) else { return };
    let mut add = |member: &str, text: String| _ = members.insert(member.to_owned(), text);
    let credential = provider.apis.first().and_then(|api| provider.credential(*api));
    let credential = credential.map(|(_, value)| value.as_bytes().to_vec());
    let access = provider.cloud.as_ref().map(|access| (access.source.name(), &access.signing));
    add("credential", format!("{credential:?} {access:?}"));
    let headers: Vec<_> = provider.headers.iter().map(|(name, value)| (name, value.as_bytes())).collect();
    add("headers", format!("{headers:?}"));
    // Its query, which is masked in the printed configuration.
    if let Some(check) = &provider.check {
        add("check", format!("{check:?}"));
    }
    add("ca", format!("{:?}", provider.roots));
    let identity = provider.client_identity.as_ref().map(|identity| (&identity.chain, &identity.key));
    add("client_cert", format!("{identity:?}"));
}

fn keys_of(keys: &Keys) -> BTreeMap<&str, &Key> {
    keys.iter().map(|key| (&*key.name, &**key)).collect()
}

fn accounts_of(keys: &Keys) -> BTreeMap<&str, &Account> {
    keys.accounts().map(|account| (&*account.name, &**account)).collect()
}

fn key_members(key: &Key) -> Members {
    // Without `..`: a rule that is added and not compared here does not compile.
    let AccountRules {
        models,
        endpoints,
        networks,
        certificates,
        losses,
        limits,
        prompt_cache,
        plain_images,
        tiers,
    } = &*key.rules;
    let members = [
        ("sha256", key.hash.to_hex()),
        ("enabled", key.enabled.to_string()),
        ("expires", format!("{:?}", key.expires)),
        ("account", format!("{:?}", key.account.as_ref().map(|account| &account.name))),
        ("models", format!("{models:?}")),
        ("endpoints", format!("{endpoints:?}")),
        ("networks", format!("{networks:?}")),
        ("certificates", format!("{certificates:?}")),
        ("losses", format!("{losses:?}")),
        ("limits", format!("{limits:?}")),
        ("prompt_cache", format!("{prompt_cache:?}")),
        ("images", plain_images.to_string()),
        ("tiers", format!("{tiers:?}")),
    ];
    members.into_iter().map(|(member, text)| (member.to_owned(), text)).collect()
}

fn compare(entry: &'static str, before: &Entries, after: &Entries, to: &mut Vec<PendingChange>) {
    let named = |entries| -> BTreeMap<&str, &Members> {
        let entries: &Entries = entries;
        entries.iter().map(|(name, members)| (name.as_str(), members)).collect()
    };
    compare_each(entry, &named(before), &named(after), to, Clone::clone);
}

/// Compares the entries of one kind. The members of an entry are read only if both sides have it.
fn compare_each<T>(
    entry: &'static str,
    before: &BTreeMap<&str, &T>,
    after: &BTreeMap<&str, &T>,
    to: &mut Vec<PendingChange>,
    members: impl Fn(&T) -> Members,
) {
    let mut add = |name: &str, change, members| {
        to.push(PendingChange { entry, name: name.to_owned(), change, members });
    };
    for (name, new) in after {
        let Some(old) = before.get(name) else {
            add(name, "added", Vec::new());
            continue;
        };
        let (old, new) = (members(old), members(new));
        if old != new {
            let all: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let differ = all.into_iter().filter(|member| old.get(*member) != new.get(*member));
            add(name, "changed", differ.filter(|member| !member.is_empty()).cloned().collect());
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        add(name, "removed", Vec::new());
    }
}
