//! Transport of OTLP over HTTP with protobuf bodies (OTLP specification 1.x, "OTLP/HTTP"): one request, and what its
//! response means.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderName, HeaderValue};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::envelope::PartialSuccess;

/// Longest time of a connection's set-up.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest response that is read, in bytes. The specification's responses are a few bytes.
const MAX_RESPONSE: u64 = 64 * 1024;

/// CollectorEndpoint of one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpoint {
    /// URL with the signal's path.
    pub url: String,
    /// Headers of each request. Their values may be secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether bodies are compressed with gzip.
    pub gzip: bool,
    /// Longest time of a request.
    pub timeout: Duration,
    /// Root certificates, DER. `None` for those of the system.
    pub roots: Option<Arc<[Vec<u8>]>>,
    /// Client certificate. `None` for none.
    pub identity: Option<Arc<ClientIdentity>>,
}

/// Client certificate with its key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Certificate chain.
    pub chain: Vec<Vec<u8>>,
    /// Private key, PEM.
    pub key: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientIdentity")
    }
}

/// Reason why a destination cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The private key of the client certificate is not PEM.
    #[error("the private key of the client certificate cannot be used")]
    Key,
}

/// Outcome of one request.
#[derive(Debug)]
pub(super) enum ExportOutcome {
    /// The collector has taken the batch, except for some items.
    Accepted(PartialSuccess),
    /// It may take the batch later.
    Retry { after: Option<Duration>, reason: String },
    /// The body is too large for it.
    TooLarge,
    /// It will never take the batch.
    Refused(String),
}

/// Connection to the collector. Its secrets and certificates can be renewed while it is used.
#[derive(Debug)]
pub(super) struct Transport {
    current: ArcSwap<CollectorConnection>,
}

/// Agent with the secrets in effect.
#[derive(Debug)]
struct CollectorConnection {
    agent: ureq::Agent,
    destination: CollectorEndpoint,
}

impl Transport {
    /// Prepares a connection; none is opened yet.
    ///
    /// # Errors
    /// Returns [`TransportError`] if the client certificate cannot be used.
    pub(super) fn new(destination: CollectorEndpoint) -> Result<Self, TransportError> {
        Ok(Transport { current: ArcSwap::from_pointee(CollectorConnection::new(destination)?) })
    }

    /// Takes over headers and certificates of a destination, for requests from now on. Returns whether one of them is new.
    ///
    /// # Errors
    /// Returns [`TransportError`] if the client certificate cannot be used; those in effect stay.
    pub(super) fn renew(&self, new: &CollectorEndpoint) -> Result<bool, TransportError> {
        let current = self.current.load_full();
        let destination = CollectorEndpoint {
            headers: new.headers.clone(),
            roots: new.roots.clone(),
            identity: new.identity.clone(),
            ..current.destination.clone()
        };
        if destination == current.destination {
            return Ok(false);
        }
        self.current.store(Arc::new(CollectorConnection::new(destination)?));
        Ok(true)
    }

    /// Returns the URL, for the log.
    pub(super) fn url(&self) -> String {
        self.current.load().destination.url.clone()
    }

    /// Returns the longest time of a request.
    pub(super) fn timeout(&self) -> Duration {
        self.current.load().destination.timeout
    }

    /// Compresses a body, if the destination has that.
    pub(super) fn compressed(&self, body: Vec<u8>) -> Vec<u8> {
        if !self.current.load().destination.gzip {
            return body;
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        // Writing to memory cannot fail.
        encoder.write_all(&body).and_then(|()| encoder.finish()).unwrap_or_default()
    }

    /// Sends a body that [`Self::compressed`] returned. Blocks for at most `timeout`.
    pub(super) fn send(&self, body: &[u8], timeout: Duration) -> ExportOutcome {
        self.current.load_full().send(body, timeout)
    }
}

impl CollectorConnection {
    fn new(destination: CollectorEndpoint) -> Result<Self, TransportError> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would take headers with secrets to another address.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // The collector is addressed directly, as providers are.
            .proxy(None)
            .timeout_connect(Some(CONNECT.min(destination.timeout)))
            .max_idle_connections(1)
            .user_agent(concat!("model-gateway/", env!("CARGO_PKG_VERSION")));
        if destination.url.starts_with("https:") {
            let identity = match &destination.identity {
                Some(identity) => {
                    let key =
                        PrivateKey::from_pem(identity.key.as_bytes()).map_err(|_| TransportError::Key)?;
                    let chain: Vec<_> =
                        identity.chain.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
                    Some(ClientCert::new_with_certs(&chain, key))
                }
                None => None,
            };
            let tls = TlsConfig::builder()
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .root_certs(RootCerts::Specific(Arc::new(roots(destination.roots.as_deref()))))
                .client_cert(identity);
            config = config.tls_config(tls.build());
        }
        Ok(CollectorConnection { agent: config.build().new_agent(), destination })
    }

    fn send(&self, body: &[u8], timeout: Duration) -> ExportOutcome {
        let mut request = self
            .agent
            .post(&self.destination.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf");
        if self.destination.gzip {
            request = request.header("content-encoding", "gzip");
        }
        for (name, value) in &self.destination.headers {
            request = request.header(name, value);
        }
        match request.send(body) {
            Ok(response) => outcome(response),
            Err(error) => {
                let reason = match error {
                    ureq::Error::Timeout(_) => "no response in time".to_owned(),
                    other => other.to_string(),
                };
                ExportOutcome::Retry { after: None, reason }
            }
        }
    }
}

fn outcome(mut response: http::Response<ureq::Body>) -> ExportOutcome {
    let status = response.status().as_u16();
    match status {
        200..=299 => {
            let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_vec();
            // The batch is taken, whatever becomes of the rest of the response.
            ExportOutcome::Accepted(body.map(|body| PartialSuccess::parse(&body)).unwrap_or_default())
        }
        // The statuses that the specification lists as retryable.
        429 | 502 | 503 | 504 => {
            let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
            ExportOutcome::Retry { after: after.and_then(retry_after), reason: format!("status {status}") }
        }
        413 => ExportOutcome::TooLarge,
        _ => ExportOutcome::Refused(format!("status {status}")),
    }
}

/// Parses a `retry-after` header (RFC 9110, section 10.2.3): seconds or a date.
fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the configured root certificates, or those of the system, or the bundled ones if it has none.
fn roots(own: Option<&[Vec<u8>]>) -> Vec<Certificate<'static>> {
    if let Some(own) = own {
        return own.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    }
    let native = rustls_native_certs::load_native_certs().certs;
    if native.is_empty() {
        let bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        return bundled.map(|certificate| Certificate::from_der(certificate)).collect();
    }
    native.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("later"), None);
        assert_eq!(retry_after("-1"), None);
    }
}
