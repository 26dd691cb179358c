//! `[oidc]` of admin.toml: sign-in to the admin API at an issuer of identities (OpenID Connect Core 1.0).

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use url::{Host, Url};

use super::node::ConfigTable;
use super::secret::{self, Secret, Vault};
use routing::account::AdminRole;

/// Path at which the issuer's page comes back, below the address of the admin port.
pub const CALLBACK_PATH: &str = "/admin/v1/session/oidc/callback";
/// Maximum number of values of the claim that give a role.
const MAX_ROLES: usize = 1_000;

/// Rules of sign-in at an issuer of identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcSettings {
    /// Issuer, exactly as its tokens name it (`iss`).
    pub issuer: String,
    /// Id of this gateway at the issuer (`aud`).
    pub client_id: String,
    /// Secret of this gateway at the issuer. `None` for a public client.
    pub client_secret: Option<Secret>,
    /// Address at which the issuer's page comes back.
    pub redirect_uri: String,
    /// Scopes that are asked for.
    pub scopes: Vec<String>,
    /// Claim that names a person in the audit log.
    pub name_claim: String,
    /// Claim that gives roles: a text or a list of texts.
    pub role_claim: String,
    /// Roles by value of the claim. A person has the strongest of those that match, or may not sign in.
    pub roles: Vec<(String, AdminRole)>,
    /// Certificates that the issuer's must descend from, PEM. `None` for those of the system.
    pub ca: Option<PathBuf>,
}

impl OidcSettings {
    /// Returns the role of a person whose claim has these values. `None` if none of them gives one.
    pub fn role<'v>(&self, values: impl Iterator<Item = &'v str>) -> Option<AdminRole> {
        let of = |value: &str| {
            self.roles.iter().filter(move |(known, _)| known == value).map(|(_, role)| *role).max()
        };
        values.filter_map(of).max()
    }
}

/// Reads `[oidc]`. `None` if a member that is needed is missing or wrong.
pub(super) fn read(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<OidcSettings> {
    let issuer = table.require("issuer", "issuer = \"https://login.example\"").and_then(|value| {
        value.parsed(|text| is_safe_url(text, false).then(|| text.to_owned()).ok_or_else(|| HTTPS.to_owned()))
    });
    let text = |key, example: &str| Some(table.require(key, example)?.as_str()?.to_owned());
    let client_id = text("client_id", "client_id = \"model-gateway\"");
    let example = format!("redirect_uri = \"https://gateway.example:9090{CALLBACK_PATH}\"");
    let redirect_uri = table.require("redirect_uri", &example).and_then(|value| {
        value.parsed(|text| {
            let sound = is_safe_url(text, false) && text.ends_with(CALLBACK_PATH);
            sound
                .then(|| text.to_owned())
                .ok_or_else(|| format!("write an https address that ends with {CALLBACK_PATH}"))
        })
    });
    const SECRET: &str = "client_secret = { env = \"OIDC_SECRET\" }, or { file = \"%d/oidc-secret\" }";
    let configured = table.get("client_secret").map(super::node::Value::hidden);
    let client_secret =
        configured.and_then(|value| secret::read(&value, "client secret", SECRET, folder, vault));
    let mut scopes = Vec::new();
    if let Some(list) = table.get("scopes") {
        list.elements(|element| {
            scopes.extend(element.parsed(|text| {
                let sound = !text.is_empty()
                    && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
                sound
                    .then(|| text.to_owned())
                    .ok_or_else(|| "write a scope without blanks, such as \"email\"".to_owned())
            }));
        });
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    let ca = table.get("ca").and_then(|value| {
        let path = folder.join(value.as_str()?);
        let has_one = |text: String| CertificateDer::from_pem_slice(text.as_bytes()).is_ok();
        if vault.reads() && !vault.file(&path).is_ok_and(has_one) {
            value.wrong(format!("{} has no valid certificate", path.display()), "give a PEM file".to_owned());
        }
        Some(path)
    });
    let mut roles = Vec::new();
    let count = table.tables("role", |entry| roles.extend(read_role(entry)));
    if count == 0 {
        table.wrong(
            "no value of the claim gives a role",
            "add an [[oidc.role]] with value and role".to_owned(),
        );
    }
    if count > MAX_ROLES {
        table.wrong(format!("{count} roles are defined; the maximum is {MAX_ROLES}"), None);
    }
    Some(OidcSettings {
        issuer: issuer?,
        client_id: client_id?,
        client_secret,
        redirect_uri: redirect_uri?,
        scopes,
        name_claim: table.string("name_claim").unwrap_or_else(|| "sub".to_owned()),
        role_claim: table.string("role_claim").unwrap_or_else(|| "groups".to_owned()),
        roles,
        ca,
    })
}

const HTTPS: &str = "write an https address without query and fragment; http is for this machine only";

fn read_role(table: &ConfigTable<'_>) -> Option<(String, AdminRole)> {
    let value = table.require("value", "value = \"gateway-operators\"")?.as_str()?.to_owned();
    let role = table.require("role", "role = \"operate\"")?.parsed(|text| {
        AdminRole::from_name(text).ok_or_else(|| "write \"read\", \"operate\" or \"admin\"".to_owned())
    })?;
    Some((value, role))
}

/// Returns whether secrets may be sent to an address: over TLS, or on this machine. Without `query`, the address has none.
/// It never has user names or a fragment.
pub fn is_safe_url(text: &str, query: bool) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    plain
        && (query || url.query().is_none())
        && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oidc_addresses_are_https_or_of_this_machine() {
        for (text, safe) in [
            ("https://login.example", true),
            ("https://login.example/realms/a", true),
            ("http://127.0.0.1:8000", true),
            ("http://[::1]:8000", true),
            ("http://localhost/x", true),
            ("http://login.example", false),
            ("http://localhost.example", false),
            ("https://user@login.example", false),
            ("https://login.example#x", false),
            ("https://login.example?x=1", false),
            ("file:///etc/passwd", false),
            ("login.example", false),
            ("", false),
        ] {
            assert_eq!(is_safe_url(text, false), safe, "{text}");
        }
        assert!(is_safe_url("https://login.example/authorize?p=x", true));
    }

    #[test]
    fn oidc_role_is_the_strongest_that_matches() {
        let settings = OidcSettings {
            issuer: String::new(),
            client_id: String::new(),
            client_secret: None,
            redirect_uri: String::new(),
            scopes: Vec::new(),
            name_claim: String::new(),
            role_claim: String::new(),
            roles: vec![("all".to_owned(), AdminRole::Read), ("ops".to_owned(), AdminRole::Operate)],
            ca: None,
        };
        assert_eq!(settings.role(["ops", "all", "x"].into_iter()), Some(AdminRole::Operate));
        assert_eq!(settings.role(["x", "OPS"].into_iter()), None);
        assert_eq!(settings.role(std::iter::empty()), None);
    }
}
