//! TLS termination for client connections, with certificates that are read again on SIGHUP.
//!
//! Pingora would make the handshake before it hands a connection over, with a fixed time-out of 60 s and without
//! counting it. Here the handshake is made after the connection limits apply.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora::listeners::tls::{Acceptor, TlsSettings};
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{ALPN, Stream};
use pingora::tls::{ServerConfig, install_default_crypto_provider, version};
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use super::client_certificate::ReadIdentity;
use admin::{CertificateValidity, client_verifier, parse_certificates};
use config::{TlsListener, read_tls_file};
use observe::metrics::Metrics;

/// Size of the first read of a connection, in bytes: that of most first messages of clients.
const FIRST_READ: usize = 2_048;

/// TLS listener with the certificate in effect.
pub(crate) struct TlsEndpoint {
    listener: TlsListener,
    acceptor: ArcSwap<Acceptor>,
    state: Mutex<CertificateState>,
}

/// Certificate in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateState {
    /// Hash of all files.
    hash: [u8; 32],
    /// Validity of the leaf certificate.
    pub(crate) validity: CertificateValidity,
    /// Fault of the files as they were last read; `None` if they are in effect.
    pub(crate) fault: Option<String>,
}

/// Files of a listener as they were read, ready for handshakes.
struct LoadedCertificate {
    acceptor: Acceptor,
    hash: [u8; 32],
    validity: CertificateValidity,
}

impl TlsEndpoint {
    /// Returns the address.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listener.listen
    }

    /// Returns the state of the certificate.
    pub(crate) fn state(&self) -> CertificateState {
        self.state.lock().clone()
    }

    /// Makes the handshake of a connection, with the certificate in effect. `None` if the client ended the connection
    /// before its first byte, as balancers do that only want to know whether the port is open.
    ///
    /// # Errors
    /// Returns an error if the handshake fails.
    pub(crate) async fn handshake(&self, stream: Stream) -> pingora::Result<Option<Stream>> {
        let stream = stream.into_any().downcast::<TcpStream>();
        let mut stream = stream.map_err(|_| pingora::Error::new(pingora::ErrorType::InternalError))?;
        let mut first = Vec::with_capacity(FIRST_READ);
        if !matches!(stream.read_buf(&mut first).await, Ok(1..)) {
            return Ok(None);
        }
        stream.rewind(&first);
        drop(first);
        let acceptor = self.acceptor.load_full();
        Ok(Some(Box::new(acceptor.tls_handshake(*stream).await?)))
    }

    /// Reads the files again. Returns true if a new certificate is in effect. Connections keep the one they have.
    ///
    /// # Errors
    /// Returns the reason if the files cannot be used, or would replace a valid certificate by one that is not; the certificate in effect stays.
    fn reload(&self) -> Result<bool, String> {
        match load(&self.listener) {
            Ok(loaded) => {
                let mut state = self.state.lock();
                // Unchanged files keep the sessions that clients may resume.
                if state.hash == loaded.hash {
                    state.fault = None;
                    return Ok(false);
                }
                if let Some(reason) = state.validity.refusal(&loaded.validity, SystemTime::now()) {
                    let fault = format!("{}: {reason}", self.listener.cert.display());
                    state.fault = Some(fault.clone());
                    return Err(fault);
                }
                state.fault = None;
                (state.hash, state.validity) = (loaded.hash, loaded.validity);
                self.acceptor.store(Arc::new(loaded.acceptor));
                Ok(true)
            }
            Err(fault) => {
                self.state.lock().fault = Some(fault.clone());
                Err(fault)
            }
        }
    }
}

/// All TLS listeners, in the order of the configuration.
#[derive(Default)]
pub(crate) struct TlsEndpoints(Vec<Arc<TlsEndpoint>>);

impl TlsEndpoints {
    /// Loads certificates and private keys.
    ///
    /// # Errors
    /// Returns the first listener that cannot be set up, with the reason.
    pub(crate) fn load(listeners: &[TlsListener], metrics: &Metrics) -> Result<Self, (SocketAddr, String)> {
        let load = |listener: &TlsListener| {
            let LoadedCertificate { acceptor, hash, validity } =
                load(listener).map_err(|error| (listener.listen, error))?;
            if let Some(fault) = validity.fault(SystemTime::now()) {
                let (listen, cert) = (listener.listen, listener.cert.display());
                tracing::warn!(%listen, %cert, %fault, "the certificate is not valid now, and clients refuse it");
            }
            Ok(Arc::new(TlsEndpoint {
                listener: listener.clone(),
                acceptor: ArcSwap::from_pointee(acceptor),
                state: Mutex::new(CertificateState { hash, validity, fault: None }),
            }))
        };
        let endpoints = listeners.iter().map(load).collect::<Result<_, _>>().map(TlsEndpoints)?;
        endpoints.show(metrics);
        Ok(endpoints)
    }

    /// Returns the listeners.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TlsEndpoint>> {
        self.0.iter()
    }

    /// Reads all files again, and counts and logs what has changed. Blocks.
    pub(crate) fn reload(&self, metrics: &Metrics) {
        for endpoint in &self.0 {
            let listen = endpoint.listen();
            let result = match endpoint.reload() {
                Ok(false) => continue,
                Ok(true) => {
                    let not_after = codec::canonical::time::rfc3339(endpoint.state().validity.not_after);
                    tracing::info!(%listen, %not_after, "a new certificate is in effect");
                    "applied"
                }
                Err(fault) => {
                    tracing::error!(%listen, %fault, "the new certificate was rejected; the old one stays in effect");
                    "refused"
                }
            };
            metrics.certificate_reloads.with_label_values(&[result]).inc();
        }
        self.show(metrics);
    }

    fn show(&self, metrics: &Metrics) {
        for endpoint in &self.0 {
            let listen = endpoint.listen().to_string();
            metrics
                .certificate_not_after
                .with_label_values(&[&listen])
                .set(endpoint.state().validity.not_after);
        }
    }
}

/// Reads the files of a listener. Reads each file once, so that the hash is that of what is used.
fn load(listener: &TlsListener) -> Result<LoadedCertificate, String> {
    install_default_crypto_provider();
    let mut hash = Sha256::new();
    let mut read = |path: &Path| -> Result<Vec<u8>, String> {
        let bytes = read_tls_file(path)?;
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(&bytes);
        Ok(bytes)
    };
    let chain = parse_certificates(&listener.cert, &read(&listener.cert)?)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&listener.key)?);
    let key = key.map_err(|error| format!("{}: {error}", listener.key.display()))?;
    let validity = chain.first().and_then(|leaf| CertificateValidity::of(leaf));
    let validity = validity.ok_or_else(|| format!("{}: no valid certificate", listener.cert.display()))?;
    let verifier = match &listener.clients {
        None => None,
        Some(clients) => Some((client_verifier(clients, &mut read)?, clients)),
    };
    // Fails if the key is not that of the certificate.
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| format!("{}: {error}", listener.cert.display()))?;
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let acceptor = match verifier {
        None => {
            let versions = [&version::TLS12, &version::TLS13];
            let mut config = ServerConfig::builder_with_protocol_versions(&versions)
                .with_no_client_auth()
                .with_cert_resolver(resolver);
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Acceptor::from_server_config(Arc::new(config))
        }
        Some((verifier, _)) => {
            // The settings, because only they run a callback that reads the client's certificate.
            let mut settings =
                TlsSettings::with_callbacks(Box::new(ReadIdentity)).map_err(|error| error.to_string())?;
            settings.set_cert_resolver(resolver);
            settings.set_client_cert_verifier(verifier);
            settings.set_alpn(ALPN::H2H1);
            settings.build()
        }
    };
    Ok(LoadedCertificate { acceptor, hash: hash.finalize().into(), validity })
}
