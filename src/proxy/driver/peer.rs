//! Upstream peers: a provider's addresses with the connection options for Pingora's connector.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, Peer, PeerOptions};
use pingora::utils::tls::{WrappedX509, parse_x509};

use super::addresses::Addresses;
use super::dns::{DnsError, Resolver};
use crate::config::Limits;
use crate::provider::{HttpVersion, Provider, Scheme};

/// Concurrent streams on one HTTP/2 connection to a provider. Providers allow 100 and more; above this number Pingora
/// opens another connection.
const H2_STREAMS: usize = 100;

/// Upstream peer: one address of a provider, ready for the connector.
#[derive(Clone)]
pub(in crate::proxy) struct Upstream {
    http: HttpPeer,
    /// Pool key. Pingora would hash ten fields at every pool lookup, and they never change.
    hash: u64,
}

impl Upstream {
    /// Creates a peer of the options that Pingora's `upstream_peer` returns.
    pub(in crate::proxy) fn new(http: HttpPeer) -> Self {
        let hash = http.reuse_hash();
        Upstream { http, hash }
    }

    /// Returns the peer as Pingora's phases take it.
    pub(in crate::proxy) fn http(&self) -> &HttpPeer {
        &self.http
    }

    /// Returns the same peer with another connect time-out. The pool key stays the same, because the time-out does not
    /// matter for a connection that is already open.
    pub(in crate::proxy) fn with_connect_timeout(&self, span: Duration) -> Cow<'_, Upstream> {
        if self.http.options.total_connection_timeout == Some(span) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        set_connect_timeout(&mut other.http.options, span);
        Cow::Owned(other)
    }

    /// Creates a peer that belongs to no provider, for remote media: HTTP/1.1 only, and its connections are not pooled.
    pub(in crate::proxy) fn for_remote_media(address: SocketAddr, tls: bool, name: String) -> Self {
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

    // The pool key contains the address, so a pooled connection always leads there. Pingora's own check (`getpeername`)
    // would cost every request a system call.
    fn matches_fd<V: std::os::fd::AsRawFd>(&self, _fd: V) -> bool {
        true
    }
}

/// Provider with its resolved addresses.
pub(in crate::proxy) struct ProviderAddresses {
    provider: Arc<Provider>,
    addresses: Arc<Addresses>,
}

impl ProviderAddresses {
    pub(in crate::proxy) fn new(provider: Arc<Provider>, limits: &Limits) -> Self {
        let mut options = PeerOptions::new();
        set_connect_timeout(&mut options, provider.timeouts.connect);
        options.idle_timeout = Some(limits.pool_idle);
        options.max_h2_streams = H2_STREAMS;
        options.alpn = match (provider.http, provider.base.scheme()) {
            (HttpVersion::Http1, _) | (HttpVersion::Auto, Scheme::Http) => ALPN::H1,
            (HttpVersion::Http2, _) => ALPN::H2,
            (HttpVersion::Auto, Scheme::Https) => ALPN::H2H1,
        };
        let mut group = 0;
        if let Some(roots) = &provider.roots {
            let roots: Vec<WrappedX509> =
                roots.iter().map(|der| WrappedX509::new(der.clone(), parse_x509)).collect();
            let roots: Box<CaType> = roots.into_boxed_slice();
            options.ca = Some(Arc::from(roots));
            // Root certificates are not part of Pingora's pool key. Without a group key, the pool could return a
            // connection that was verified against other roots.
            group = roots_group(provider.roots.as_deref().unwrap_or_default());
        }
        let base = provider.base.clone();
        let make = Box::new(move |ip| {
            let address = SocketAddr::new(ip, base.port());
            let mut http = HttpPeer::new(address, base.scheme() == Scheme::Https, base.host().to_owned());
            http.options = options.clone();
            http.group_key = group;
            Upstream::new(http)
        });
        let addresses = match provider.base.ip() {
            Some(ip) => Addresses::fixed(&provider.name, ip, make),
            None => Addresses::named(&provider.name, provider.base.host(), make),
        };
        ProviderAddresses { provider, addresses: Arc::new(addresses) }
    }

    pub(in crate::proxy) fn provider(&self) -> &Arc<Provider> {
        &self.provider
    }

    /// Takes over the resolved addresses of the previous snapshot, if the host name is the same.
    pub(in crate::proxy) fn inherit(&self, before: &ProviderAddresses) {
        self.addresses.inherit(&before.addresses);
    }

    /// Returns a resolved address; several take turns. `None` if none is known, or it expired too long ago.
    pub(in crate::proxy) fn cached(&self, resolver: &Resolver) -> Option<Arc<Upstream>> {
        self.addresses.cached(resolver)
    }

    /// Returns an address, and resolves the name first if none is known.
    ///
    /// # Errors
    /// Returns [`DnsError`] if the name cannot be resolved, or not within this time.
    pub(in crate::proxy) async fn resolve(
        &self,
        resolver: &Resolver,
        within: Duration,
    ) -> Result<Arc<Upstream>, DnsError> {
        let resolved = tokio::time::timeout(within, self.addresses.resolve(resolver)).await;
        resolved.unwrap_or_else(|_| Err(DnsError::slow(self.provider.base.host())))
    }
}

/// Sets the connect time-out, for TCP and TLS together.
fn set_connect_timeout(options: &mut PeerOptions, span: Duration) {
    options.total_connection_timeout = Some(span);
    options.connection_timeout = Some(span);
}

/// Returns a pool group key for a set of root certificates: their hash, never 0, because 0 is the key without roots.
fn roots_group(roots: &[Vec<u8>]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    roots.iter().for_each(|der| hasher.write(der));
    hasher.finish() | 1
}

impl fmt::Debug for ProviderAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.provider.name)
    }
}
