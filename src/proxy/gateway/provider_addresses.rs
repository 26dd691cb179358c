//! Addresses of providers, with the connection options for Pingora's connector.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::ALPN;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, PeerOptions};
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};

use crate::credentials::CredentialHandle;
use codec::provider::{HttpVersion, Provider, Scheme};
use config::Limits;
use driver::addresses::Addresses;
use driver::dns::{DnsError, Resolver};
use driver::peer::{Upstream, set_connect_timeout};

/// Concurrent streams on one HTTP/2 connection to a provider. Providers allow 100 and more; above this number Pingora
/// opens another connection.
const H2_STREAMS: usize = 100;

/// Provider with its resolved addresses.
pub(crate) struct ProviderAddresses {
    provider: Arc<Provider>,
    addresses: Arc<Addresses>,
    /// Short-lived credential; `None` for a provider with a fixed one.
    credential: Option<Arc<CredentialHandle>>,
}

impl ProviderAddresses {
    pub(crate) fn new(provider: Arc<Provider>, limits: &Limits) -> Self {
        let mut options = PeerOptions::new();
        set_connect_timeout(&mut options, provider.timeouts.connect);
        options.idle_timeout = Some(limits.pool_idle);
        options.max_h2_streams = H2_STREAMS;
        options.alpn = match (provider.http, provider.base.scheme()) {
            // Without TLS there is no ALPN that would negotiate HTTP/2, so it must be configured.
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
            group = group_key(provider.roots.iter().flatten());
        }
        // Pingora's pool key has the serial numbers of the certificates only, which their issuer may use again.
        let identity = provider.client_identity.as_ref().map(|identity| {
            group = group_key(provider.roots.iter().flatten().chain(&identity.chain).chain([&identity.key]));
            Arc::new(CertKey::new(identity.chain.clone(), identity.key.clone()))
        });
        let base = provider.base.clone();
        let make = Box::new(move |ip| {
            let address = SocketAddr::new(ip, base.port());
            let mut http = HttpPeer::new(address, base.scheme() == Scheme::Https, base.host().to_owned());
            http.options = options.clone();
            http.group_key = group;
            http.client_cert_key = identity.clone();
            Upstream::new(http)
        });
        let addresses = match provider.base.ip() {
            Some(ip) => Addresses::fixed(&provider.name, ip, make),
            None => Addresses::named(&provider.name, provider.base.host(), make),
        };
        ProviderAddresses { provider, addresses: Arc::new(addresses), credential: None }
    }

    /// Sets the short-lived credential of the provider.
    pub(crate) fn with_credential(self, credential: Option<Arc<CredentialHandle>>) -> Self {
        ProviderAddresses { credential, ..self }
    }

    /// Returns the short-lived credential of the provider; `None` if it has a fixed one.
    pub(crate) fn credential(&self) -> Option<&Arc<CredentialHandle>> {
        self.credential.as_ref()
    }

    pub(crate) fn provider(&self) -> &Arc<Provider> {
        &self.provider
    }

    /// Takes over the resolved addresses of the previous snapshot, if the host name is the same.
    pub(crate) fn inherit(&self, before: &ProviderAddresses) {
        self.addresses.inherit(&before.addresses);
    }

    /// Returns a resolved address; several take turns. `None` if none is known, or it expired too long ago.
    pub(crate) fn cached(&self, resolver: &Resolver) -> Option<Arc<Upstream>> {
        self.addresses.cached(resolver)
    }

    /// Returns an address, and resolves the name first if none is known.
    ///
    /// # Errors
    /// Returns [`DnsError`] if the name cannot be resolved, or not within this time.
    pub(crate) async fn resolve(
        &self,
        resolver: &Resolver,
        within: Duration,
    ) -> Result<Arc<Upstream>, DnsError> {
        let resolved = tokio::time::timeout(within, self.addresses.resolve(resolver)).await;
        resolved.unwrap_or_else(|_| Err(DnsError::slow(self.provider.base.host())))
    }
}

/// Returns a pool group key for root certificates and the gateway's own certificate and key: their hash, never 0, because 0
/// is the key without them.
fn group_key<'d>(parts: impl Iterator<Item = &'d Vec<u8>>) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    parts.for_each(|der| hasher.write(der));
    hasher.finish() | 1
}

impl fmt::Debug for ProviderAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.provider.name)
    }
}
