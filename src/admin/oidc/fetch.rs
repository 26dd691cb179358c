//! Requests to an issuer: bounded in time and size, without redirects, over TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::OidcError;

/// Time-out of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest document in bytes: a key has some hundred, with a chain of certificates some thousand.
const LARGEST: u64 = 256 << 10;

/// Client of an issuer.
pub(super) struct IssuerClient(ureq::Agent);

impl IssuerClient {
    /// Creates a client that trusts the certificates of a file, or those of the system. `is_local` for an issuer of this
    /// machine, which the proxy of the environment does not reach.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(super) fn new(ca: Option<&Path>, is_local: bool) -> Result<Self, OidcError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = match ca {
            Some(path) => from_file(path)?,
            None => from_system(),
        };
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = ureq::Agent::config_builder();
        let config = if is_local { config.proxy(None) } else { config };
        let agent = config
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // A redirect would take the secret to another address.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("model-gateway/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build()
            .new_agent();
        Ok(IssuerClient(agent))
    }

    /// Returns a document.
    ///
    /// # Errors
    /// Returns an error if it cannot be fetched, or is not of this type.
    pub(super) fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, OidcError> {
        read(url, self.0.get(url).header("accept", "application/json").call())
    }

    /// Sends a form and returns the document that answers it. `secret` is sent as password of the user `id` (RFC 6749,
    /// section 2.3.1).
    ///
    /// # Errors
    /// Returns an error if the answer is none of this type.
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        form: &str,
        basic: Option<(&str, &str)>,
    ) -> Result<T, OidcError> {
        let mut request = self.0.post(url).header("accept", "application/json");
        request = request.header("content-type", "application/x-www-form-urlencoded");
        if let Some((id, secret)) = basic {
            let pair = format!("{}:{}", form_encoded(id), form_encoded(secret));
            let pair = base64_simd::STANDARD.encode_to_string(pair);
            request = request.header("authorization", format!("Basic {pair}"));
        }
        read(url, request.send(form))
    }
}

/// Encodes a value of a form.
pub(super) fn form_encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn read<T: DeserializeOwned>(
    url: &str,
    answer: Result<http::Response<ureq::Body>, ureq::Error>,
) -> Result<T, OidcError> {
    let failed = |reason: String| OidcError::Issuer { url: url.to_owned(), reason };
    let mut answer = answer.map_err(|error| failed(error.to_string()))?;
    if answer.status() != http::StatusCode::OK {
        return Err(failed(format!("it answers with {}", answer.status())));
    }
    let body = answer.body_mut().with_config().limit(LARGEST).read_to_vec();
    let body = body.map_err(|error| failed(error.to_string()))?;
    // The message of the reader could quote a part of a token.
    serde_json::from_slice(&body).map_err(|_| failed("the answer is not the expected document".to_owned()))
}

fn from_file(path: &Path) -> Result<Vec<Certificate<'static>>, OidcError> {
    let failed = |reason: String| OidcError::Issuer { url: path.display().to_string(), reason };
    let text = config::read_tls_file(path).map_err(failed)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| failed(error.to_string()))?;
    Ok(read.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
}

/// Returns the root certificates of the system; the bundled ones if it has none.
fn from_system() -> Vec<Certificate<'static>> {
    let native = rustls_native_certs::load_native_certs().certs;
    let all = if native.is_empty() { webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec() } else { native };
    all.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
}
