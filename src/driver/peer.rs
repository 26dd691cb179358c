//! Upstream peers, for Pingora's connector.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::upstreams::peer::{HttpPeer, Peer, PeerOptions};
use pingora::utils::tls::CertKey;

/// Upstream peer: one address of a provider, ready for the connector.
#[derive(Clone)]
pub struct Upstream {
    http: HttpPeer,
    /// Pool key. Pingora would hash ten fields at every pool lookup, and they never change.
    hash: u64,
}

impl Upstream {
    /// Creates a peer of the options that Pingora's `upstream_peer` returns.
    pub fn new(http: HttpPeer) -> Self {
        let hash = http.reuse_hash();
        Upstream { http, hash }
    }

    /// Returns the peer as Pingora's phases take it.
    pub fn http(&self) -> &HttpPeer {
        &self.http
    }

    /// Returns the same peer with another connect time-out. The pool key stays the same, because the time-out does not
    /// matter for a connection that is already open.
    pub fn with_connect_timeout(&self, span: Duration) -> Cow<'_, Upstream> {
        if self.http.options.total_connection_timeout == Some(span) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        set_connect_timeout(&mut other.http.options, span);
        Cow::Owned(other)
    }

    /// Returns the same peer for a connection over which HTTP/1.1 is spoken.
    pub fn with_http1(&self) -> Upstream {
        let mut other = self.clone();
        other.http.options.alpn = ALPN::H1;
        other
    }

    /// Creates a peer that belongs to no provider, for remote media: HTTP/1.1 only, and its connections are not pooled.
    pub fn for_remote_media(address: SocketAddr, tls: bool, name: String) -> Self {
        let mut http = HttpPeer::new(address, tls, name);
        http.options.alpn = ALPN::H1;
        Upstream::new(http)
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.http.fmt(f)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.http, f)
    }
}

impl Peer for Upstream {
    fn address(&self) -> &PeerAddress {
        self.http.address()
    }

    fn tls(&self) -> bool {
        self.http.is_tls()
    }

    fn sni(&self) -> &str {
        &self.http.sni
    }

    fn reuse_hash(&self) -> u64 {
        self.hash
    }

    fn get_peer_options(&self) -> Option<&PeerOptions> {
        Some(&self.http.options)
    }

    fn get_client_cert_key(&self) -> Option<&Arc<CertKey>> {
        self.http.client_cert_key.as_ref()
    }

    // The pool key contains the address, so a pooled connection always leads there. Pingora's own check (`getpeername`)
    // would cost every request a system call.
    fn matches_fd<V: std::os::fd::AsRawFd>(&self, _fd: V) -> bool {
        true
    }
}

/// Sets the connect time-out, for TCP and TLS together.
pub fn set_connect_timeout(options: &mut PeerOptions, span: Duration) {
    options.total_connection_timeout = Some(span);
    options.connection_timeout = Some(span);
}
