//! TLS of the admin port: a certificate and its key, which a reload reads again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{self, AdminTlsSettings};

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
    not_after: i64,
}

impl AdminTls {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// Returns [`AdminTlsError`] if one of the files cannot be used, or they do not belong together.
    pub fn load(settings: &AdminTlsSettings) -> Result<Self, AdminTlsError> {
        Ok(AdminTls { current: RwLock::new(read(settings)?), settings: settings.clone() })
    }

    /// Reads the files again. Connections that are open keep the certificate that they have.
    ///
    /// # Errors
    /// Returns [`AdminTlsError`] as [`AdminTls::load`] does; the certificate stays as it was then.
    pub(super) fn reload(&self) -> Result<(), AdminTlsError> {
        let new = read(&self.settings)?;
        *self.current.write() = new;
        Ok(())
    }

    /// Returns the end of the validity of the certificate in effect, in Unix seconds.
    pub(super) fn not_after(&self) -> i64 {
        self.current.read().not_after
    }

    /// Makes the handshake of a connection. `None` if it fails or takes too long.
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.current.read().config.clone());
        tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
    }
}

/// Returns the end of the validity of a certificate, in Unix seconds. `None` if it cannot be parsed.
pub fn certificate_end(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

fn read(settings: &AdminTlsSettings) -> Result<Loaded, AdminTlsError> {
    fn wrong(path: &Path, reason: impl ToString) -> AdminTlsError {
        AdminTlsError { path: path.to_owned(), reason: reason.to_string() }
    }
    let AdminTlsSettings { cert, key } = settings;
    let text = |path: &Path| config::read_tls_file(path).map_err(|reason| wrong(path, reason));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text(cert)?).collect();
    let chain = chain.map_err(|error| wrong(cert, error))?;
    let not_after = chain.first().and_then(|leaf| certificate_end(leaf));
    let not_after = not_after.ok_or_else(|| wrong(cert, "no valid certificate"))?;
    let private = PrivateKeyDer::from_pem_slice(&text(key)?).map_err(|error| wrong(key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| wrong(cert, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), not_after })
}
