//! Listeners by address: what the acceptor does with a connection before HTTP.
//!
//! All listeners are plaintext for Pingora. The connection's local address tells which one has accepted it.

use std::net::SocketAddr;
use std::sync::Arc;

use pingora::protocols::Stream;

use super::tls::{TlsEndpoint, TlsEndpoints};
use config::{ProxyProtocol, Settings};

/// What precedes HTTP on the connections of a listener. The default is nothing.
#[derive(Clone, Default)]
pub(crate) struct ListenerPolicy {
    /// Whether they begin with a header of the PROXY protocol.
    pub(crate) proxy_protocol: ProxyProtocol,
    /// TLS; `None` for a plaintext listener.
    pub(crate) tls: Option<Arc<TlsEndpoint>>,
}

/// Listeners with a policy other than the default, by address.
#[derive(Default)]
pub(crate) struct ListenerTable(Vec<(SocketAddr, ListenerPolicy)>);

/// Error of a connection whose listener cannot be determined.
#[derive(Debug)]
pub(crate) struct UnknownListener;

impl ListenerTable {
    pub(crate) fn new(settings: &Settings, tls: &TlsEndpoints) -> Self {
        let http = settings
            .http
            .iter()
            .map(|http| (http.listen, ListenerPolicy { proxy_protocol: http.proxy_protocol, tls: None }));
        let tls = settings.tls.iter().zip(tls.iter()).map(|(listener, endpoint)| {
            let policy =
                ListenerPolicy { proxy_protocol: listener.proxy_protocol, tls: Some(endpoint.clone()) };
            (listener.listen, policy)
        });
        ListenerTable(http.chain(tls).collect())
    }

    /// Returns the policy of a connection's listener.
    ///
    /// # Errors
    /// Returns [`UnknownListener`] if the local address is unknown; the connection may have ended already.
    pub(crate) fn of(&self, stream: &Stream) -> Result<ListenerPolicy, UnknownListener> {
        if self.0.is_empty() {
            return Ok(ListenerPolicy::default());
        }
        let digest = stream.get_socket_digest().ok_or(UnknownListener)?;
        let local = digest.local_addr().and_then(|address| address.as_inet()).ok_or(UnknownListener)?;
        Ok(self.find(*local).cloned().unwrap_or_default())
    }

    /// Finds the listener of a local address: one with exactly this address, or a wildcard listener with its port. The
    /// system does not let both listen.
    fn find(&self, local: SocketAddr) -> Option<&ListenerPolicy> {
        let ip = local.ip().to_canonical();
        let found = self.0.iter().find(|(listen, _)| {
            listen.port() == local.port()
                && (listen.ip().to_canonical() == ip || listen.ip().is_unspecified())
        });
        found.map(|(_, policy)| policy)
    }
}
