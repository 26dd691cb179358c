//! Listeners of `[server]`: addresses, the PROXY protocol, TLS with client certificates, trusted proxies and CORS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::Vault;
use super::node::{ConfigTable, Value};
use super::routes::one_of;
use super::secret::expand;
use super::values;
use routing::account::{ForwardedHeader, Network, Pattern, TrustedProxies};

/// Whether connections begin with a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// None do.
    #[default]
    Off,
    /// Those of trusted proxies may.
    Optional,
    /// All do, and only trusted proxies may connect.
    Required,
}

impl ProxyProtocol {
    /// All values.
    pub(super) const ALL: [ProxyProtocol; 3] =
        [ProxyProtocol::Off, ProxyProtocol::Optional, ProxyProtocol::Required];

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ProxyProtocol::Off => "off",
            ProxyProtocol::Optional => "optional",
            ProxyProtocol::Required => "required",
        }
    }
}

/// Plaintext listener with settings of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpListener {
    /// Address.
    pub listen: SocketAddr,
    /// Whether connections begin with a header of the PROXY protocol.
    pub proxy_protocol: ProxyProtocol,
}

/// TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsListener {
    /// Address.
    pub listen: SocketAddr,
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Whether connections begin with a header of the PROXY protocol, before the TLS handshake.
    pub proxy_protocol: ProxyProtocol,
    /// Client certificates; `None` if they are not requested.
    pub clients: Option<ClientCertificates>,
}

impl TlsListener {
    /// Returns the files that a reload reads again.
    pub fn files(&self) -> Vec<PathBuf> {
        let clients = self.clients.iter().flat_map(ClientCertificates::files);
        [&self.cert, &self.key].into_iter().chain(clients).cloned().collect()
    }
}

/// Client certificates of a TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Certificates of the authorities that issue them, PEM.
    pub authorities: PathBuf,
    /// Certificate revocation lists of these authorities, PEM. `None` if certificates are not checked for revocation.
    pub revoked: Option<PathBuf>,
    /// Whether a client may connect without a certificate.
    pub optional: bool,
}

impl ClientCertificates {
    /// Returns the files.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.authorities).chain(&self.revoked)
    }
}

/// Rule for requests of web pages of other origins (CORS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsRule {
    /// Origins, with `*` for any text.
    pub origins: Vec<Pattern>,
    /// Permitted methods.
    pub methods: Vec<String>,
    /// Permitted request headers; `None` for all.
    pub headers: Option<Vec<String>>,
    /// Time for which a browser may keep the answer to a preflight request.
    pub max_age: Duration,
}

/// Methods that a rule permits by default: those of the gateway's endpoints.
pub(super) const CORS_METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];
/// Default of `server.cors.max_age`. Browsers keep the answer for two hours at most.
const CORS_MAX_AGE: Duration = Duration::from_secs(600);

/// What `[server]` says about listeners and clients, besides `server.listen`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listeners {
    pub(super) http: Vec<HttpListener>,
    pub(super) tls: Vec<TlsListener>,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) cors: Vec<CorsRule>,
}

/// Reads these settings of `[server]`.
pub(super) fn read(server: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Listeners {
    let trusted_proxies = read_proxies(server);
    let has_proxies = !trusted_proxies.networks.is_empty();
    let (mut http, mut tls, mut cors) = (Vec::new(), Vec::new(), Vec::new());
    server.tables("http", |listener| http.extend(read_http(listener, has_proxies)));
    server.tables("tls", |listener| tls.extend(read_tls(listener, has_proxies, folder, vault)));
    server.tables("cors", |rule| cors.extend(read_cors(rule)));
    Listeners { http, tls, trusted_proxies, cors }
}

fn read_proxies(server: &ConfigTable<'_>) -> TrustedProxies {
    let mut networks = Vec::new();
    if let Some(value) = server.get("trusted_proxies") {
        value.elements(|element| {
            let hint = || "for example: \"10.0.0.0/8\" or \"192.0.2.7\"".to_owned();
            let network = element.parsed(|text| Network::parse(text).ok_or_else(hint));
            if network.is_some_and(|network| network.is_everything()) {
                let message = "every client is trusted to name its own address";
                element.warn(message, "list the addresses of the proxies".to_owned());
            }
            networks.extend(network);
        });
    }
    let header = server.get("forwarded_header").and_then(|value| {
        value.parsed(|text| {
            let known = ForwardedHeader::ALL.into_iter().find(|header| header.name() == text);
            known.ok_or_else(|| one_of(text, &ForwardedHeader::ALL.map(ForwardedHeader::name)))
        })
    });
    TrustedProxies { networks, header: header.unwrap_or_default() }
}

/// Reads `proxy_protocol` of a listener.
fn read_proxy_protocol(listener: &ConfigTable<'_>, has_proxies: bool) -> ProxyProtocol {
    let Some(value) = listener.get("proxy_protocol") else { return ProxyProtocol::Off };
    let read = value.parsed(|text| {
        let known = ProxyProtocol::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| one_of(text, &ProxyProtocol::ALL.map(ProxyProtocol::name)))
    });
    let mode = read.unwrap_or_default();
    if mode != ProxyProtocol::Off && !has_proxies {
        let hint =
            "list the balancers in server.trusted_proxies: any client could claim any address otherwise";
        value.wrong("no proxy is trusted", hint.to_owned());
    }
    mode
}

fn read_listen(listener: &ConfigTable<'_>, example: &str) -> Option<SocketAddr> {
    listener.require("listen", example).and_then(|value| value.parsed(values::address))
}

fn read_http(listener: &ConfigTable<'_>, has_proxies: bool) -> Option<HttpListener> {
    let listen = read_listen(listener, "listen = \"0.0.0.0:8080\"");
    let proxy_protocol = read_proxy_protocol(listener, has_proxies);
    Some(HttpListener { listen: listen?, proxy_protocol })
}

fn read_tls(
    listener: &ConfigTable<'_>,
    has_proxies: bool,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<TlsListener> {
    let listen = read_listen(listener, "listen = \"0.0.0.0:8443\"");
    let proxy_protocol = read_proxy_protocol(listener, has_proxies);
    let (cert, key) = read_identity(listener, folder, vault);
    let clients = read_clients(listener, true, folder, vault)?;
    Some(TlsListener { listen: listen?, cert: cert?, key: key?, proxy_protocol, clients })
}

/// Reads what a listener says about client certificates. `has_optional` is whether they can be optional. The outer `None`
/// is a file that cannot be used.
pub(super) fn read_clients(
    listener: &ConfigTable<'_>,
    has_optional: bool,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<Option<ClientCertificates>> {
    let file = |value: &Value<'_>, item: &str, has_item: fn(&[u8]) -> bool| {
        read_pem(value, item, has_item, folder, vault)
    };
    let authorities = listener
        .get("client_ca")
        .map(|value| file(&value, "certificate", |text| CertificateDer::from_pem_slice(text).is_ok()));
    let revoked = listener.get("client_crl").map(|value| {
        let path = file(&value, "certificate revocation list", |text| {
            CertificateRevocationListDer::from_pem_slice(text).is_ok()
        });
        if authorities.is_none() {
            value.wrong("client_crl is set without client_ca", None);
        }
        path
    });
    // Not looked up where it is no key, so that it is reported as unknown.
    let optional = has_optional.then(|| listener.get("client_certificate")).flatten().map(|value| {
        let names = ["required", "optional"];
        let known = |text: &str| names.contains(&text).then_some(text == "optional");
        let optional = value.parsed(|text| known(text).ok_or_else(|| one_of(text, &names)));
        if authorities.is_none() {
            let hint = "name the authorities that issue the certificates in client_ca";
            value.wrong("client_certificate is set without client_ca", hint.to_owned());
        }
        optional
    });
    Some(match authorities {
        None => None,
        Some(authorities) => Some(ClientCertificates {
            authorities: authorities?,
            revoked: match revoked {
                None => None,
                Some(path) => Some(path?),
            },
            optional: optional.flatten().unwrap_or(false),
        }),
    })
}

/// Reads the paths of a certificate and its key. `None` for one that is missing.
pub(super) fn read_identity(
    listener: &ConfigTable<'_>,
    folder: &Path,
    vault: &dyn Vault,
) -> (Option<PathBuf>, Option<PathBuf>) {
    let file = |value: &Value<'_>, item: &str, has_item: fn(&[u8]) -> bool| {
        read_pem(value, item, has_item, folder, vault)
    };
    let cert = listener
        .require("cert", "cert = \"/etc/model-gateway/tls.crt\"")
        .and_then(|value| file(&value, "certificate", |text| CertificateDer::from_pem_slice(text).is_ok()));
    let key = listener
        .require("key", "key = \"/etc/model-gateway/tls.key\"")
        .and_then(|value| file(&value, "private key", |text| PrivateKeyDer::from_pem_slice(text).is_ok()));
    (cert, key)
}

/// Reads a file of a TLS listener.
///
/// # Errors
/// Returns the reason with the path if it cannot be read.
pub fn read_tls_file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the path of a PEM file, and checks that the file has an item of a kind.
fn read_pem(
    value: &Value<'_>,
    item: &str,
    has_item: fn(&[u8]) -> bool,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<PathBuf> {
    let written = Path::new(value.as_str()?);
    if !vault.reads_certificates() {
        return Some(folder.join(written));
    }
    let path = match expand(written, folder, vault) {
        Ok(path) => path,
        Err(reason) => {
            value.wrong(reason, None);
            return None;
        }
    };
    // Report an unusable certificate here instead of failing at the first handshake.
    match std::fs::read(&path) {
        Ok(text) if has_item(&text) => {}
        Ok(_) => {
            value.wrong(format!("{} has no valid {item}", path.display()), "give a PEM file".to_owned());
        }
        Err(error) => value.wrong(format!("{}: {error}", path.display()), None),
    }
    Some(path)
}

fn read_cors(rule: &ConfigTable<'_>) -> Option<CorsRule> {
    let origins = rule.require("origins", "origins = [\"https://app.example\"]").map(|value| {
        let mut origins = Vec::new();
        let count = value.elements(|element| origins.extend(element.parsed(origin)));
        if count == Some(0) {
            value.wrong(
                "the list has no origin",
                "for example: origins = [\"https://app.example\"]".to_owned(),
            );
        }
        origins
    });
    let methods = rule.get("methods").map(|value| tokens(&value, "POST", str::to_owned));
    let headers = rule.get("headers").map(|value| tokens(&value, "authorization", str::to_ascii_lowercase));
    let max_age = rule.duration("max_age").unwrap_or(CORS_MAX_AGE);
    let default = || CORS_METHODS.map(str::to_owned).to_vec();
    Some(CorsRule { origins: origins?, methods: methods.unwrap_or_else(default), headers, max_age })
}

/// Reads a list of tokens of HTTP.
fn tokens(value: &Value<'_>, example: &str, spelled: fn(&str) -> String) -> Vec<String> {
    let mut tokens = Vec::new();
    value.elements(|element| {
        tokens.extend(element.parsed(|text| {
            let sound = http::HeaderName::from_bytes(text.as_bytes()).is_ok();
            sound.then(|| spelled(text)).ok_or_else(|| format!("write a name such as \"{example}\""))
        }));
    });
    tokens
}

/// Returns whether a text can be an element of `server.cors.origins`.
pub fn is_cors_origin(text: &str) -> bool {
    origin(text).is_ok()
}

/// Parses an origin: a scheme and a host, with a port if it is not the scheme's own (RFC 6454, section 6.2).
fn origin(text: &str) -> Result<Pattern, String> {
    let hint =
        "write \"*\", or an origin without a path, such as \"https://app.example\" or \"https://*.example\"";
    let is_sound = match text.split_once("://") {
        None => text == "*",
        Some((scheme, host)) => {
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:*[]".contains(&byte);
            !scheme.is_empty()
                && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || b"+-.".contains(&byte))
                && !host.is_empty()
                && host.bytes().all(|byte| is_host(byte) && !byte.is_ascii_uppercase())
        }
    };
    if is_sound { Ok(Pattern::new(text)) } else { Err(hint.to_owned()) }
}
