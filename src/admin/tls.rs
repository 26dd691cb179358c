//! TLS of the admin port: a certificate and its key, and the authorities of client certificates, which a reload reads
//! again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client_verifier::client_verifier;
use codec::canonical::time::rfc3339;
use config::{self, AdminTlsSettings};

/// Time for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .path.display())]
pub struct AdminTlsError {
    /// File that is wrong.
    pub path: PathBuf,
    /// Reason.
    pub reason: String,
}

/// Certificate of the admin port.
#[derive(Debug)]
pub struct AdminTls {
    settings: AdminTlsSettings,
    current: RwLock<Loaded>,
}

/// Certificate as it was read.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    validity: CertificateValidity,
}

impl AdminTls {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// Returns [`AdminTlsError`] if one of the files cannot be used, or they do not belong together.
    pub fn load(settings: &AdminTlsSettings) -> Result<Self, AdminTlsError> {
        let loaded = read(settings)?;
        if let Some(fault) = loaded.validity.fault(SystemTime::now()) {
            let cert = settings.cert.display();
            tracing::warn!(%cert, %fault, "the certificate of the admin port is not valid now, and clients refuse it");
        }
        Ok(AdminTls { current: RwLock::new(loaded), settings: settings.clone() })
    }

    /// Reads the files again. Connections that are open keep the certificate that they have.
    ///
    /// # Errors
    /// Returns [`AdminTlsError`] as [`AdminTls::load`] does, and for a certificate that is not valid now while the one in
    /// effect is; the certificate stays as it was then.
    pub(super) fn reload(&self) -> Result<(), AdminTlsError> {
        let new = read(&self.settings)?;
        let mut current = self.current.write();
        if let Some(reason) = current.validity.refusal(&new.validity, SystemTime::now()) {
            return Err(AdminTlsError { path: self.settings.cert.clone(), reason });
        }
        *current = new;
        Ok(())
    }

    /// Returns the end of the validity of the certificate in effect, in Unix seconds.
    pub(super) fn not_after(&self) -> i64 {
        self.current.read().validity.not_after
    }

    /// Makes the handshake of a connection. `None` if it fails or takes too long.
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.current.read().config.clone());
        tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
    }
}

/// Period of validity of a certificate, in Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateValidity {
    /// Beginning.
    pub not_before: i64,
    /// End.
    pub not_after: i64,
}

impl CertificateValidity {
    /// Returns the validity of a certificate. `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<CertificateValidity> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let validity = parsed.validity();
        Some(CertificateValidity {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// Returns why clients refuse the certificate at this time. `None` if it is valid then.
    pub fn fault(&self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        match now {
            now if now > self.not_after => Some(format!("expired at {}", rfc3339(self.not_after))),
            now if now < self.not_before => Some(format!("is not valid before {}", rfc3339(self.not_before))),
            _ => None,
        }
    }

    /// Returns why a certificate must not replace this one, which a reload would otherwise break. `None` if it may: it is
    /// valid now, or this one is not either.
    pub fn refusal(&self, new: &CertificateValidity, now: SystemTime) -> Option<String> {
        new.fault(now).filter(|_| self.fault(now).is_none())
    }
}

fn read(settings: &AdminTlsSettings) -> Result<Loaded, AdminTlsError> {
    fn wrong(path: &Path, reason: impl ToString) -> AdminTlsError {
        AdminTlsError { path: path.to_owned(), reason: reason.to_string() }
    }
    let AdminTlsSettings { cert, key, clients } = settings;
    let text = |path: &Path| config::read_tls_file(path).map_err(|reason| wrong(path, reason));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text(cert)?).collect();
    let chain = chain.map_err(|error| wrong(cert, error))?;
    let validity = chain.first().and_then(|leaf| CertificateValidity::of(leaf));
    let validity = validity.ok_or_else(|| wrong(cert, "no valid certificate"))?;
    let private = PrivateKeyDer::from_pem_slice(&text(key)?).map_err(|error| wrong(key, error))?;
    let verifier = clients.as_ref().map(|clients| {
        client_verifier(clients, &mut config::read_tls_file)
            .map_err(|reason| wrong(&clients.authorities, reason))
    });
    let verifier = verifier.transpose()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            builder.with_single_cert(chain, private)
        })
        .map_err(|error| wrong(cert, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), validity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_that_is_not_valid_replaces_none_that_is() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let validity = |not_before, not_after| CertificateValidity { not_before, not_after };
        let (current, expired, future) = (validity(100, 200), validity(0, 149), validity(151, 300));
        assert_eq!(current.refusal(&expired, at(150)).as_deref(), Some("expired at 1970-01-01T00:02:29Z"));
        assert_eq!(
            current.refusal(&future, at(150)).as_deref(),
            Some("is not valid before 1970-01-01T00:02:31Z")
        );
        assert_eq!(current.refusal(&validity(50, 150), at(150)), None);
        // Nothing is lost once the one in effect has expired too.
        assert_eq!(current.refusal(&expired, at(201)), None);
        assert_eq!(expired.fault(at(149)), None);
    }
}
