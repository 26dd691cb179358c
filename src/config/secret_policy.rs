//! Where changes through the admin API may send the secrets of providers, and which secrets they may name.
//!
//! A caller with the role `admin` edits providers, and must not read secrets by it: an address of its own would get the
//! credential and the secret headers of a provider, and a source of its own would send any file or variable of the process.
//! So a secret goes to the addresses that the configuration sends it to already, and to hosts that a setting permits.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::entries::{EntryKind, FieldError, join};
use super::key_types::{KeyType, Secrecy, secrecy, shape};
use codec::provider::{BaseUrl, ProviderKind, is_metadata_address};
use routing::account::Pattern;

/// Tables whose access tokens the gateway fetches, with secrets of their own or of the environment.
const CLOUDS: [&str; 3] = ["provider.aws", "provider.azure", "provider.google"];
/// Members that name a file or a variable with a secret, besides the sources of secrets.
const FURTHER_SOURCES: [(&str, &str); 6] = [
    ("provider.google.file", "file"),
    ("provider.google.env", "env"),
    ("provider.aws.token_file", "file"),
    ("provider.azure.token_file", "file"),
    ("provider.azure.certificate", "file"),
    ("provider.client_key", "file"),
];
/// Names under which clouds serve the metadata of a machine, with its credentials.
const METADATA_HOSTS: [&str; 4] = ["metadata", "metadata.google.internal", "metadata.goog", "instance-data"];

/// What a change through the admin API may do with secrets: `admin.provider_hosts` and `admin.credential_sources`.
#[derive(Clone, Debug, Default)]
pub struct SecretPolicy {
    hosts: Vec<Pattern>,
    sources: Vec<Pattern>,
}

/// Secret of an entry: its member, and its source (`env:NAME`, `file:PATH`) or its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EntrySecret {
    member: String,
    /// Source. `None` for a secret in the file itself, and for the environment of a cloud platform.
    source: Option<String>,
    text: String,
}

/// Address to which secrets of an entry are sent: its member and its origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EntryAddress {
    member: String,
    origin: String,
    host: String,
}

/// Secrets and addresses of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntrySecrets {
    secrets: BTreeSet<EntrySecret>,
    addresses: BTreeSet<EntryAddress>,
    kind: String,
}

/// Sources that the configuration uses, each with the origins that get its secret.
#[derive(Debug, Default)]
pub(super) struct UsedSources(BTreeSet<(String, String)>);

impl SecretPolicy {
    /// Creates a policy of patterns.
    pub fn new(hosts: &[String], sources: &[String]) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text.as_str())).collect();
        SecretPolicy { hosts: patterns(hosts), sources: patterns(sources) }
    }

    fn permits_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    fn permits_source(&self, source: &str) -> bool {
        self.sources.iter().any(|pattern| pattern.matches(source))
    }

    /// Checks an entry as it would be after a change. `before` is the entry before, `used` reads what the configuration uses.
    ///
    /// # Errors
    /// Returns [`FieldError`] of a source that the caller may not name, or of an address to which a secret may not go.
    pub(super) fn check(
        &self,
        before: &EntrySecrets,
        after: &EntrySecrets,
        used: impl FnOnce() -> UsedSources,
    ) -> Result<(), FieldError> {
        for address in after.addresses.difference(&before.addresses) {
            // The metadata service is what `aws.endpoint` names.
            let is_endpoint = address.member == "aws.endpoint";
            if !is_endpoint && is_metadata_host(&address.host) && !self.permits_host(&address.host) {
                let message = "the address is one of this machine's network or its metadata service; name it in \
                               admin.provider_hosts if a provider is there";
                return Err(FieldError { field: address.member.clone(), message: message.to_owned() });
            }
        }
        if after.secrets.is_subset(&before.secrets) && after.addresses.is_subset(&before.addresses) {
            return Ok(());
        }
        let used = used();
        for secret in after.secrets.difference(&before.secrets) {
            let Some(source) = &secret.source else { continue };
            if !used.has(source) && !self.permits_source(source) {
                let message = "the configuration does not use this source of a secret yet; name it in \
                               admin.credential_sources, or edit the file";
                return Err(FieldError { field: secret.member.clone(), message: message.to_owned() });
            }
        }
        let refused = after.addresses.iter().find(|address| !self.may_send(after, address, &used));
        refused.map_or(Ok(()), |address| {
            let message = format!(
                "the secrets of the provider may not be sent to {:?}; name the host in admin.provider_hosts, or give the \
                 credential anew from a source that admin.credential_sources permits",
                address.host
            );
            Err(FieldError { field: address.member.clone(), message })
        })
    }

    /// Returns whether the secrets of an entry may go to one of its addresses.
    fn may_send(&self, entry: &EntrySecrets, address: &EntryAddress, used: &UsedSources) -> bool {
        let default = ProviderKind::from_name(&entry.kind).and_then(ProviderKind::default_base_url);
        let default = default.and_then(origin);
        if self.permits_host(&address.host) || default.is_some_and(|(origin, _)| origin == address.origin) {
            return true;
        }
        entry.secrets.iter().all(|secret| {
            secret
                .source
                .as_ref()
                .is_some_and(|source| used.sends(source, &address.origin) || self.permits_source(source))
        })
    }
}

impl EntrySecrets {
    /// Reads an entry. Relative paths refer to `folder`.
    pub(super) fn of(entry: Option<&dyn TableLike>, kind: EntryKind, folder: &Path) -> Self {
        let mut found = EntrySecrets::default();
        if let Some(entry) = entry {
            found.add_table(entry, kind.name(), folder);
        }
        found
    }

    fn add_table(&mut self, table: &dyn TableLike, path: &str, folder: &Path) {
        if CLOUDS.contains(&path) {
            self.add_secret(path, None, "");
        }
        for (key, item) in table.iter() {
            let path = join(path, key);
            match item {
                Item::Table(table) => self.add_table(table, &path, folder),
                Item::ArrayOfTables(list) => {
                    list.iter().for_each(|table| self.add_table(table, &path, folder))
                }
                Item::Value(value) => self.add_value(value, &path, folder),
                Item::None => {}
            }
        }
    }

    fn add_value(&mut self, value: &Value, path: &str, folder: &Path) {
        let text = match value {
            Value::InlineTable(table) => return self.add_table(table, path, folder),
            Value::Array(list) => return list.iter().for_each(|value| self.add_value(value, path, folder)),
            Value::String(text) => text.value().as_str(),
            _ => return,
        };
        if path == "provider.kind" {
            text.clone_into(&mut self.kind);
        }
        if let Some(kind) = source_kind(path) {
            let named = match kind {
                // `%d` is systemd's credentials directory.
                "file" if text.starts_with("%d/") => {
                    format!("file:{}", plain_path(Path::new(text)).display())
                }
                "file" => format!("file:{}", plain_path(&folder.join(text)).display()),
                _ => format!("env:{text}"),
            };
            self.add_secret(path, Some(named), text);
        } else if secrecy(path) == Secrecy::Hidden {
            self.add_secret(path, None, text);
        } else if shape(path) == Some(KeyType::Url) && path != "provider.check.path" {
            // What is no URL is a fault of the check.
            if let Some((origin, host)) = origin(text) {
                self.addresses.insert(EntryAddress { member: member_of(path), origin, host });
            }
        }
    }

    fn add_secret(&mut self, path: &str, source: Option<String>, text: &str) {
        self.secrets.insert(EntrySecret { member: member_of(path), source, text: text.to_owned() });
    }
}

impl UsedSources {
    /// Adds the entries of a file. Relative paths refer to `folder`.
    pub(super) fn add(&mut self, text: &str, folder: &Path) {
        let Ok(document) = text.parse::<DocumentMut>() else { return };
        for kind in EntryKind::ALL {
            let entries = document.get(kind.name()).and_then(Item::as_array_of_tables);
            for entry in entries.into_iter().flatten() {
                let EntrySecrets { secrets, addresses, .. } = EntrySecrets::of(Some(entry), kind, folder);
                for source in secrets.into_iter().filter_map(|secret| secret.source) {
                    // An empty origin: the source is used.
                    self.0.insert((source.clone(), String::new()));
                    self.0.extend(addresses.iter().map(|address| (source.clone(), address.origin.clone())));
                }
            }
        }
    }

    fn has(&self, source: &str) -> bool {
        self.sends(source, "")
    }

    fn sends(&self, source: &str, origin: &str) -> bool {
        self.0.contains(&(source.to_owned(), origin.to_owned()))
    }
}

/// Returns whether a member names a variable (`env`) or a file with a secret. `None` if it names neither.
fn source_kind(path: &str) -> Option<&'static str> {
    if let Some((_, kind)) = FURTHER_SOURCES.iter().find(|(further, _)| *further == path) {
        return Some(kind);
    }
    let (above, last) = path.rsplit_once('.')?;
    let kind = ["env", "file"].into_iter().find(|kind| *kind == last)?;
    (shape(above) == Some(KeyType::SecretSource)).then_some(kind)
}

/// Returns the path of a member in its entry.
fn member_of(path: &str) -> String {
    path.split_once('.').map_or(path, |(_, member)| member).to_owned()
}

/// Returns a path without `.` and `..`, which could lead out of a permitted folder.
fn plain_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the scheme, host and port of a URL, and its host. `None` if it is not a URL.
fn origin(url: &str) -> Option<(String, String)> {
    let url = BaseUrl::parse(url.split(['?', '#']).next().unwrap_or_default()).ok()?;
    let host = url.host().trim_end_matches('.').to_owned();
    Some((format!("{:?}://{host}:{}", url.scheme(), url.port()), host))
}

/// Returns whether a host is link-local or a metadata service, or an address in a form that resolvers may take for one. A
/// name is not resolved: what it leads to may change at any time, so that the connection is refused instead.
fn is_metadata_host(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => is_metadata_address(ip),
        Err(_) => {
            let last = host.rsplit('.').next().unwrap_or_default();
            // `2852039166` and `0xa9.0xfe.0xa9.0xfe` are addresses to some resolvers (WHATWG URL, "ends in a number").
            let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
            is_number || METADATA_HOSTS.contains(&host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: &str = "[[provider]]\nname = \"a\"\nkind = \"openai\"\nbase_url = \"https://a.example/v1\"\n\
        credential = { env = \"A\" }\n[[provider]]\nname = \"b\"\nkind = \"openai\"\ncredential.file = \"keys/../b\"\n";

    fn entry(text: &str) -> EntrySecrets {
        let document: DocumentMut = text.parse().unwrap();
        EntrySecrets::of(Some(document.as_table()), EntryKind::Provider, Path::new("/etc"))
    }

    /// Checks a change, and returns the member that is refused.
    fn refused(before: &str, after: &str) -> Option<String> {
        let hosts = ["*.permitted.example".to_owned(), "169.254.1.1".to_owned()];
        let policy = SecretPolicy::new(&hosts, &["env:NEW_*".to_owned(), "file:/run/keys/*".to_owned()]);
        let used = || {
            let mut used = UsedSources::default();
            used.add(USED, Path::new("/etc"));
            used
        };
        policy.check(&entry(before), &entry(after), used).err().map(|error| error.field)
    }

    #[test]
    fn address_of_a_provider_with_secrets_is_changed_to_permitted_hosts_only() {
        let own = "kind = \"openai\"\ncredential = { env = \"A\" }\n";
        let at = |url: &str| format!("{own}base_url = \"{url}\"\n");
        let before = at("https://a.example/v1");
        for (after, field) in [
            (at("https://a.example/v2"), None),
            (at("https://eu.permitted.example/v1"), None),
            (at("https://api.openai.com/v1"), None),
            (own.to_owned(), None),
            (at("https://evil.example/v1"), Some("base_url")),
            (at("https://a.example:8443/v1"), Some("base_url")),
            (at("http://a.example/v1"), Some("base_url")),
            (at("https://permitted.example.evil/v1"), Some("base_url")),
            // The credential is named again, but it is the same one.
            (at("https://evil.example/v1").replace("\"A\"", "\"A\" "), Some("base_url")),
            (at("https://evil.example/v1").replace("\"A\"", "\"NEW_KEY\""), None),
            (at("https://a.example/v1").replace("env = \"A\"", "env = \"HOME\""), Some("credential.env")),
            (
                at("https://a.example/v1").replace("env = \"A\"", "file = \"/etc/shadow\""),
                Some("credential.file"),
            ),
            // One that the configuration sends elsewhere.
            (at("https://a.example/v1").replace("env = \"A\"", "file = \"/etc/b\""), Some("base_url")),
            (
                at("https://a.example/v1").replace("env = \"A\"", "file = \"/run/keys/../x\""),
                Some("credential.file"),
            ),
            (at("https://evil.example/v1").replace("credential = { env = \"A\" }", ""), None),
        ] {
            assert_eq!(refused(&before, &after).as_deref(), field, "{after}");
        }
        let with_headers = at("https://a.example/v1") + "headers = { x-api = \"secret\" }\n";
        let moved = with_headers.replace("a.example", "evil.example").replace("\"A\"", "\"NEW_KEY\"");
        assert_eq!(refused(&with_headers, &moved).as_deref(), Some("base_url"), "secret headers");
        // A credential for a provider that had none.
        let open = "kind = \"openai-compatible\"\nbase_url = \"https://evil.example\"\n";
        assert_eq!(refused("", open), None);
        let taken = format!("{open}credential.env = \"A\"\n");
        assert_eq!(refused(open, &taken).as_deref(), Some("base_url"));
        assert_eq!(refused("", &taken).as_deref(), Some("base_url"));
        assert_eq!(refused("", &at("https://a.example/v1")), None, "where the secret goes already");
    }

    #[test]
    fn address_of_tokens_is_an_address_of_secrets() {
        let azure = "kind = \"azure\"\nbase_url = \"https://x.permitted.example\"\n\
            azure = { source = \"client-secret\", client_secret = { value = \"s\" }, authority = \"https://login.a\" }\n";
        assert_eq!(
            refused(azure, &azure.replace("login.a", "login.evil")).as_deref(),
            Some("azure.authority")
        );
        let aws = "kind = \"bedrock\"\naws = { region = \"eu-west-1\", sts_url = \"https://sts.a\" }\n";
        assert_eq!(refused(aws, &aws.replace("eu-west-1", "us-east-1")), None, "another region of AWS");
        assert_eq!(refused(aws, &aws.replace("sts.a", "evil")).as_deref(), Some("aws.sts_url"));
        let token = aws.replace("region", "token_file = \"/etc/shadow\", region");
        assert_eq!(refused(aws, &token).as_deref(), Some("aws.token_file"));
    }

    #[test]
    fn link_local_addresses_are_refused_in_every_form() {
        for (host, field) in [
            ("169.254.169.254", Some("base_url")),
            ("[::ffff:169.254.169.254]", Some("base_url")),
            ("[fe80::1]", Some("base_url")),
            ("[fd00:ec2::254]", Some("base_url")),
            ("2852039166", Some("base_url")),
            ("0xa9.0xfe.0xa9.0xfe", Some("base_url")),
            ("169.254.43518", Some("base_url")),
            ("metadata.google.internal.", Some("base_url")),
            ("100.100.100.200", Some("base_url")),
            ("169.254.1.1", None),
            ("127.0.0.1", None),
            ("10.0.0.1", None),
            ("a.example", None),
        ] {
            let after = format!("kind = \"openai-compatible\"\nbase_url = \"http://{host}/latest\"\n");
            assert_eq!(refused("", &after).as_deref(), field, "{host}");
            assert_eq!(refused(&after, &after), None, "an address that is there already");
        }
    }
}
