//! TLS termination for client connections.
//!
//! Pingora would make the handshake before it hands a connection over, with a fixed time-out of 60 s and without
//! counting it. Here all listeners are plaintext for Pingora, and the handshake is made after the connection limits
//! apply. The connection's local address tells which listener accepted it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use pingora::listeners::tls::Acceptor;
use pingora::protocols::Stream;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::tls::{ServerConfig, install_default_crypto_provider, load_certs_and_key_files, version};

use crate::config::TlsListener;

/// TLS listeners by address.
#[derive(Default)]
pub(in crate::proxy) struct TlsListeners(Vec<(SocketAddr, Arc<Acceptor>)>);

/// Error of a connection whose listener cannot be determined.
#[derive(Debug)]
pub(in crate::proxy) struct UnknownListener;

impl TlsListeners {
    /// Loads certificates and private keys.
    ///
    /// # Errors
    /// Returns the first listener that cannot be set up, with the reason.
    pub(in crate::proxy) fn load(listeners: &[TlsListener]) -> Result<Self, (SocketAddr, String)> {
        let load = |tls: &TlsListener| {
            let acceptor = acceptor(&tls.cert, &tls.key).map_err(|error| (tls.listen, error))?;
            Ok((tls.listen, Arc::new(acceptor)))
        };
        listeners.iter().map(load).collect::<Result<_, _>>().map(TlsListeners)
    }

    /// Returns the TLS acceptor of a connection; `None` for a connection to a plaintext listener.
    ///
    /// # Errors
    /// Returns [`UnknownListener`] if the local address is unknown; the connection may have ended already.
    pub(in crate::proxy) fn of(&self, stream: &Stream) -> Result<Option<Arc<Acceptor>>, UnknownListener> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let digest = stream.get_socket_digest().ok_or(UnknownListener)?;
        let local = digest.local_addr().and_then(|address| address.as_inet()).ok_or(UnknownListener)?;
        Ok(self.find(*local).cloned())
    }

    /// Finds the listener of a local address: one with exactly this address, or a wildcard listener with its port. The
    /// system does not let both listen.
    fn find(&self, local: SocketAddr) -> Option<&Arc<Acceptor>> {
        let ip = local.ip().to_canonical();
        let found = self.0.iter().find(|(listen, _)| {
            listen.port() == local.port()
                && (listen.ip().to_canonical() == ip || listen.ip().is_unspecified())
        });
        found.map(|(_, acceptor)| acceptor)
    }
}

/// Makes the TLS handshake of a connection.
///
/// # Errors
/// Returns an error if the handshake fails.
pub(in crate::proxy) async fn handshake(acceptor: &Acceptor, stream: Stream) -> pingora::Result<Stream> {
    let stream = stream.into_any().downcast::<TcpStream>();
    let stream = stream.map_err(|_| pingora::Error::new(pingora::ErrorType::InternalError))?;
    Ok(Box::new(acceptor.tls_handshake(*stream).await?))
}

fn acceptor(cert: &Path, key: &Path) -> Result<Acceptor, String> {
    install_default_crypto_provider();
    let text = |path: &Path| path.display().to_string();
    let loaded = load_certs_and_key_files(&text(cert), &text(key)).map_err(|error| error.to_string())?;
    let (certs, key) = loaded.ok_or_else(|| "the files have no certificate or no key".to_owned())?;
    let versions = [&version::TLS12, &version::TLS13];
    let mut config = ServerConfig::builder_with_protocol_versions(&versions)
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Acceptor::from_server_config(Arc::new(config)))
}
