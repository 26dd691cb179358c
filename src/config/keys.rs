//! keys.toml: who may ask for what.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::node::{Document, Table};
use super::report::Report;
use crate::account::{Key, KeyHash, Keys, Losses, Pattern, Permission};

pub(super) fn read(file: &Path, text: &str) -> Result<Keys, Report> {
    let document = Document::new(file, text);
    let keys = document.read(|root| {
        let mut keys: Vec<(KeyHash, Key)> = Vec::new();
        let mut names: HashSet<Arc<str>, foldhash::fast::RandomState> = HashSet::default();
        let mut hashes: HashMap<KeyHash, Arc<str>, foldhash::fast::RandomState> = HashMap::default();
        root.tables("key", |table| {
            let Some((hash, key)) = read_key(table) else { return };
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
        Keys::new(keys)
    });
    document.into_report().into_result()?;
    keys.ok_or_else(|| Report::of_file(file, "cannot be understood"))
}

fn read_key(table: &Table<'_>) -> Option<(KeyHash, Key)> {
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
                "write the 64 hexadecimal digits of the key's SHA-256; `model-gateway keys create` does it".to_owned()
            })
        })
    });
    let enabled = table.boolean("enabled").unwrap_or(true);
    let expires = table.get("expires").and_then(|value| value.as_time());
    let models = table.get("models").map_or(Permission::All, |value| {
        let mut patterns = Vec::new();
        value.elements(|element| patterns.extend(element.as_str().map(Pattern::new)));
        Permission::Some(patterns.into_boxed_slice())
    });
    let losses = table.get("losses").and_then(|value| {
        value.parsed(|text| {
            Losses::from_name(text).ok_or_else(|| "write \"allow\", \"warn\" or \"refuse\"".to_owned())
        })
    });
    Some((hash?, Key { name: name?, enabled, expires, models, losses: losses.unwrap_or_default() }))
}
