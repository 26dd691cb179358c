//! keys.toml: keys, their permissions and limits, and accounts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::faults::MAX_FAULTS;
use super::node::{Before, ConfigTable, TomlDocument, Value};
use super::price_rows::service_tier;
use super::report::{Report, closest};
use super::routes::one_of;
use super::secret::{self, Secret, Vault};
use super::sources::SourceText;
use super::values::cache_policy;
use super::work_limit::given_up;
use codec::canonical::TierSet;
use codec::wire::Api;
use routing::account::{
    AccessKey, Account, AccountRules, CERTIFICATE_NAME_KINDS, Key, KeyHash, Keys, Losses, MAX_PREVIOUS,
    Network, Pattern, Permission, TierFallback, TierPolicy,
};
use routing::limits::UsageLimits;

/// Largest value of a rate limit.
const MAX_RATE: i64 = 1_000_000_000;

/// Size in bytes of the parts in which a large file is parsed. A parsed document takes about ten times the memory of
/// its text, so that a large file is never parsed as a whole.
const PART: usize = 256 << 10;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Reads one file.
#[cfg(test)]
pub(super) fn read(file: &Path, text: &str) -> Result<Keys, Report> {
    read_files(&[SourceText { path: file, text }], &super::Environment)
}

/// Reads the files of keys, which form one list.
pub(super) fn read_files(files: &[SourceText<'_>], vault: &dyn Vault) -> Result<Keys, Report> {
    // Files that are parsed as a whole and not in parts.
    let mut whole = vec![false; files.len()];
    loop {
        match read_parts(files, &whole, vault) {
            Ok(read) => return read,
            // A part boundary was inside of a multi-line string, or the file has a syntax error: parse the whole file,
            // so that the error is reported once and at its position.
            Err(Unsplittable(index)) => match whole.get_mut(index) {
                Some(whole) if !*whole => *whole = true,
                _ => {
                    let file = files.get(index).map_or(Path::new(""), |file| file.path);
                    return Err(Report::of_file(file, "is not valid"));
                }
            },
        }
    }
}

/// Index of a file of which a part is not valid TOML on its own.
struct Unsplittable(usize);

/// Splits a file before `[[key]]` and `[[account]]` lines into parts that are valid TOML on their own.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(ahead) = rest.as_bytes().get(PART..) {
        let mut ends = memchr::memmem::find_iter(ahead, b"\n[[").map(|at| PART + at + 1);
        // Other tables, such as `[[key.x]]`, belong to the entry before them.
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

/// Reads the files part by part; those in `whole` in one part.
fn read_parts(
    files: &[SourceText<'_>],
    whole: &[bool],
    vault: &dyn Vault,
) -> Result<Result<Keys, Report>, Unsplittable> {
    let mut reader = Reader::new(vault);
    let mut report = Report::default();
    for (index, (file, whole)) in files.iter().zip(whole).enumerate() {
        reader.file = index;
        reader.folder = super::folder(file.path);
        let parts = if *whole { vec![file.text] } else { parts(file.text) };
        let alone = parts.len() == 1;
        let mut before = Before { lines: 0, elements: vec![("account", 0), ("key", 0)] };
        for text in parts {
            if vault.is_over() {
                return Ok(Err(given_up(file.path)));
            }
            let document = TomlDocument::part(file.path, text, before.clone());
            let counts = document.read(|root| reader.part(root, files));
            if counts.is_none() && !alone {
                return Err(Unsplittable(index));
            }
            // Each part has its own bound of faults.
            if report.problems.len() <= MAX_FAULTS {
                report.merge(document.into_report());
            }
            before.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count();
            for ((_, elements), count) in before.elements.iter_mut().zip(counts.unwrap_or_default()) {
                *elements += count;
            }
        }
    }
    // Stored responses belong to the name of the account, or of the key if it has no account. With equal names two
    // owners would share them.
    let accounts = &reader.accounts;
    let shadowed = reader.keys.iter().filter(|key| key.account.is_none() && accounts.contains_key(&key.name));
    for key in shadowed.take(MAX_FAULTS) {
        let name = &key.name;
        let file =
            reader.names.get(name).and_then(|index| files.get(*index)).map_or(Path::new(""), |f| f.path);
        report.merge(Report::of_file(
            file,
            format!(
                "the key \"{name}\" has the name of an account but no account; add account = \"{name}\", \
                 or rename the key"
            ),
        ));
    }
    let Reader { mut keys, accounts, .. } = reader;
    keys.set_accounts(accounts.into_values());
    Ok(report.into_result().map(|()| keys))
}

/// State that all entries of all files share.
struct Reader<'v> {
    keys: Keys,
    /// Index of the file that is read.
    file: usize,
    /// Files of the keys, by name.
    names: Map<Arc<str>, usize>,
    accounts: Map<Arc<str>, Arc<Account>>,
    rules: Map<AccountRules, Arc<AccountRules>>,
    vault: &'v dyn Vault,
    /// Folder that relative paths of secrets refer to.
    folder: PathBuf,
}

/// Id and secret of an access key.
struct AccessKeyEntry {
    id: String,
    secret: Secret,
}

impl<'v> Reader<'v> {
    fn new(vault: &'v dyn Vault) -> Self {
        Reader {
            keys: Keys::default(),
            file: 0,
            names: Map::default(),
            accounts: Map::default(),
            rules: Map::default(),
            vault,
            folder: PathBuf::new(),
        }
    }

    /// Reads a part of the file. Returns the number of accounts and keys in it.
    fn part(&mut self, root: &ConfigTable<'_>, files: &[SourceText<'_>]) -> [usize; 2] {
        let accounts = root.tables("account", |table| self.account(table));
        let keys = root.tables("key", |table| {
            let access =
                table.get("access_key").and_then(|value| value.as_table(|table| self.access_key(table))?);
            let Some(key) = self.key(table) else { return };
            let (name, hash) = (key.name.clone(), key.hash);
            let previous = read_previous(table);
            if let Some(index) = self.names.insert(name.clone(), self.file) {
                let elsewhere = files.get(index).filter(|_| index != self.file);
                let hint = elsewhere.map(|file| format!("{} defines it too", file.path.display()));
                table.wrong(format!("the key \"{name}\" is defined twice"), hint);
            }
            if let Some(other) = self.keys.insert(key) {
                table.wrong(
                    format!("the same key as \"{}\"", other.name),
                    "create a new key with `model-gateway keys create`".to_owned(),
                );
            }
            let key = self.keys.of_hash(hash).cloned();
            for (hash, until) in previous {
                let key = key.clone();
                if let Some(other) = key.and_then(|key| self.keys.insert_previous(hash, key, until)) {
                    table.wrong(format!("an earlier text is that of \"{other}\""), None);
                }
            }
            if let (Some(AccessKeyEntry { id, secret }), Some(key)) = (access, key)
                && let Some(other) = self.keys.insert_access_key(&id, AccessKey::new(key, secret.expose()))
            {
                table.wrong(format!("the access key of \"{other}\" has the same id"), None);
            }
        });
        [accounts, keys]
    }

    /// Reads an access key for AWS signatures.
    fn access_key(&self, table: &ConfigTable<'_>) -> Option<AccessKeyEntry> {
        const EXAMPLE: &str =
            "secret = { file = \"access-keys/MGWA...\" }, or { env = \"GATEWAY_AWS_SECRET\" }";
        let id = table.require("id", "id = \"MGWA...\"").and_then(|value| {
            value.parsed(|text| {
                let hint = "write 16 to 128 letters, digits and underscores, as `model-gateway keys create --aws` does";
                if AccessKey::is_id(text) { Ok(text.to_owned()) } else { Err(hint.to_owned()) }
            })
        });
        let secret = table.require("secret", EXAMPLE).map(Value::hidden).and_then(|value| {
            let secret = secret::read(&value, "secret access key", EXAMPLE, &self.folder, self.vault)?;
            if self.vault.reads() && !AccessKey::is_secret(secret.expose()) {
                value.wrong("the secret access key has fewer than 16 characters", None);
            }
            Some(secret)
        });
        Some(AccessKeyEntry { id: id?, secret: secret? })
    }

    fn account(&mut self, table: &ConfigTable<'_>) {
        let name = table.require("name", "name = \"acme\"").and_then(|value| account_name(&value));
        let limits = table.table("limits", read_limits).unwrap_or_default();
        let tiers = read_tier_policy(table);
        let Some(name) = name else { return };
        let account = self.account_of(name);
        account.restrict_tiers(tiers);
        if !account.limit(limits) {
            table.wrong(format!("the account \"{name}\" is defined twice"), None);
        }
    }

    fn key(&mut self, table: &ConfigTable<'_>) -> Option<Key> {
        let name = table.require("name", "name = \"alice\"").and_then(|value| {
            let name = value.as_str()?;
            if name.is_empty() || name.len() > 128 {
                value.wrong("a name must have 1 to 128 bytes", None);
            }
            Some(Arc::<str>::from(name))
        });
        let hash = read_hash(table);
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

    /// Returns the account of this name and creates it if needed: a key may name an account that has no entry, or whose
    /// entry follows later in the file.
    fn account_of(&mut self, name: &str) -> Arc<Account> {
        if let Some(account) = self.accounts.get(name) {
            return account.clone();
        }
        let account = Arc::new(Account::new(name));
        self.accounts.insert(account.name.clone(), account.clone());
        account
    }

    fn rules(&mut self, table: &ConfigTable<'_>) -> Arc<AccountRules> {
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
        let certificates = table.get("certificates").map(|value| {
            let mut names = Vec::new();
            value.elements(|element| names.extend(element.parsed(read_certificate_name)));
            names.into_boxed_slice()
        });
        let losses = table.get("losses").and_then(|value| {
            value.parsed(|text| {
                Losses::from_name(text).ok_or_else(|| "write \"allow\", \"warn\" or \"refuse\"".to_owned())
            })
        });
        let prompt_cache = table.get("prompt_cache").and_then(|value| value.parsed(cache_policy));
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
            certificates,
            losses: losses.unwrap_or_default(),
            limits,
            prompt_cache,
            plain_images: plain_images.unwrap_or_default(),
            tiers: read_tier_policy(table),
        };
        // Keys with equal rules share them: with 100,000 keys, copies would take most of the memory.
        if let Some(shared) = self.rules.get(&rules) {
            return shared.clone();
        }
        let shared = Arc::new(rules.clone());
        self.rules.insert(rules, shared.clone());
        shared
    }
}

/// Reads the service tiers that a key or an account may use.
fn read_tier_policy(table: &ConfigTable<'_>) -> TierPolicy {
    let permitted = table.get("tiers").map(|value| {
        let mut tiers = TierSet::NONE;
        value.elements(|element| {
            tiers = tiers.or(element.parsed(service_tier).map_or(TierSet::NONE, TierSet::one));
        });
        if tiers.is_empty() {
            value.wrong("permits no tier", "for example: tiers = [\"standard\", \"flex\"]".to_owned());
        }
        tiers
    });
    let otherwise = table.get("tiers_else").and_then(|value| {
        value.parsed(|name| {
            TierFallback::from_name(name)
                .ok_or_else(|| one_of(name, &TierFallback::ALL.map(TierFallback::name)))
        })
    });
    TierPolicy { permitted, otherwise }
}

/// Reads the hash of a key.
fn read_hash(table: &ConfigTable<'_>) -> Option<KeyHash> {
    // Hidden in messages, because users put the key itself here by mistake.
    table.require("sha256", "sha256 = \"<hex of SHA-256 of the key>\"").and_then(|value| {
        value.hidden().parsed(|text| {
            KeyHash::from_hex(text).ok_or_else(|| {
                "write the 64 hexadecimal digits of the key's SHA-256, as `model-gateway keys create` does".to_owned()
            })
        })
    })
}

/// Reads the earlier texts of a key that was rotated, with the ends of their validity in Unix seconds.
fn read_previous(table: &ConfigTable<'_>) -> Vec<(KeyHash, i64)> {
    let mut previous = Vec::new();
    let count = table.tables("previous", |table| {
        let hash = read_hash(table);
        let until = table.require("until", "until = 2027-01-31T00:00:00Z").and_then(|value| value.as_time());
        previous.extend(hash.zip(until));
    });
    if count > MAX_PREVIOUS {
        table.wrong(format!("`previous` has more than {MAX_PREVIOUS} entries"), None);
    }
    previous
}

/// Reads an account name, with the restrictions of the ledger.
fn account_name<'d>(value: &Value<'d>) -> Option<&'d str> {
    let name = value.as_str()?;
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        value.wrong("an account name must have 1 to 128 bytes and no control characters", None);
        return None;
    }
    Some(name)
}

/// Parses the name of an API, or a pattern that matches at least one.
fn read_endpoint(text: &str) -> Result<Pattern, String> {
    let pattern = Pattern::new(text);
    if Api::ALL.into_iter().any(|api| pattern.matches(api.name())) {
        return Ok(pattern);
    }
    let names = Api::ALL.map(Api::name);
    Err(match closest(text, names) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write a name or pattern of: {}", names.join(", ")),
    })
}

/// Parses the name of a client certificate with its kind, or a pattern of such names.
fn read_certificate_name(text: &str) -> Result<Pattern, String> {
    let kind = CERTIFICATE_NAME_KINDS.into_iter().find(|kind| text.starts_with(kind));
    match kind {
        // Fingerprints are compared in lower case, without the colons that some tools write.
        Some("sha256:") => {
            let digits = text.get("sha256:".len()..).unwrap_or_default().replace(':', "").to_ascii_lowercase();
            let sound = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let hint = || "write the 64 hexadecimal digits of the certificate's SHA-256".to_owned();
            sound.then(|| Pattern::new(format!("sha256:{digits}"))).ok_or_else(hint)
        }
        Some(kind) if text.len() > kind.len() => Ok(Pattern::new(text)),
        _ => Err("write a name with its kind, such as \"cn:alice\", \"dns:alice.example\", \"uri:spiffe://acme/alice\", \
                  \"email:alice@acme.example\", \"ip:192.0.2.7\" or \"sha256:...\""
            .to_owned()),
    }
}

fn read_limits(table: &ConfigTable<'_>) -> UsageLimits {
    let rate = |key| table.integer(key, &(1..=MAX_RATE)).and_then(|limit| u64::try_from(limit).ok());
    UsageLimits {
        requests_per_minute: rate("requests_per_minute"),
        tokens_per_minute: rate("tokens_per_minute"),
        concurrent: table.integer("concurrent", &(1..=1_000_000)).and_then(|limit| u32::try_from(limit).ok()),
        spend_per_day: table.amount("spend_per_day"),
        spend_per_month: table.amount("spend_per_month"),
    }
}
