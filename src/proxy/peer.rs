//! The way to a provider: its addresses, and the connection options that Pingora's connector is given.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, Peer, PeerOptions};
use pingora::utils::tls::{WrappedX509, parse_x509};

use super::dns::{DnsError, Resolver};
use crate::config::Limits;
use crate::vendor::{HttpVersion, Provider, Scheme};

/// Concurrent streams on one HTTP/2 connection to a provider. Vendors allow 100 and more; Pingora opens another
/// connection beyond it.
const H2_STREAMS: usize = 100;

/// How long addresses may be used after their time, while the resolver does not answer.
const STALE: Duration = Duration::from_secs(300);

/// One address of a provider, ready for the connector.
#[derive(Clone)]
pub(super) struct Upstream {
    http: HttpPeer,
    /// Pingora hashes ten fields whenever it looks into its pool; they never change.
    hash: u64,
}

impl Upstream {
    pub(super) fn http(&self) -> &HttpPeer {
        &self.http
    }

    /// The same address, to be connected to within this time. Its place in the pool is the same: how long somebody would
    /// have waited says nothing about a connection that is there.
    pub(super) fn within(&self, span: Duration) -> Cow<'_, Upstream> {
        if self.http.options.total_connection_timeout == Some(span) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        limit(&mut other.http.options, span);
        Cow::Owned(other)
    }

    /// An address of no provider: HTTP/1.1, and what is connected to is not kept.
    pub(super) fn outside(address: SocketAddr, tls: bool, name: String) -> Self {
        let mut http = HttpPeer::new(address, tls, name);
        http.options.alpn = ALPN::H1;
        let hash = http.reuse_hash();
        Upstream { http, hash }
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

    // The pool's key holds the address, so a connection found under it goes there; asking the kernel each time
    // (getpeername) would cost every request a system call.
    fn matches_fd<V: std::os::fd::AsRawFd>(&self, _fd: V) -> bool {
        true
    }
}

/// A provider with its current addresses.
pub(super) struct Link {
    provider: Arc<Provider>,
    options: PeerOptions,
    group: u64,
    resolved: ArcSwapOption<Resolved>,
    turn: AtomicUsize,
    resolving: tokio::sync::Mutex<()>,
}

struct Resolved {
    peers: Vec<Arc<Upstream>>,
    until: Instant,
}

impl Link {
    pub(super) fn new(provider: Arc<Provider>, limits: &Limits) -> Self {
        let mut options = PeerOptions::new();
        limit(&mut options, provider.timeouts.connect);
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
            // Roots are not part of Pingora's pool key: without a group of its own, a connection that was verified
            // against other roots could be used.
            group = roots_group(provider.roots.as_deref().unwrap_or_default());
        }
        Link {
            provider,
            options,
            group,
            resolved: ArcSwapOption::empty(),
            turn: AtomicUsize::new(0),
            resolving: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) fn provider(&self) -> &Arc<Provider> {
        &self.provider
    }

    /// An address to connect to, if one is known; several take turns.
    pub(super) fn known(&self) -> Option<Arc<Upstream>> {
        self.pick(Instant::now())
    }

    /// An address to connect to, asked for if none is known.
    pub(super) async fn resolved(&self, resolver: &Resolver) -> Result<Arc<Upstream>, DnsError> {
        // One request resolves, the others wait for it.
        let _turn = self.resolving.lock().await;
        self.resolved_at(Instant::now(), resolver).await
    }

    async fn resolved_at(&self, now: Instant, resolver: &Resolver) -> Result<Arc<Upstream>, DnsError> {
        if let Some(peer) = self.pick(now) {
            return Ok(peer);
        }
        let found = match self.provider.base.ip() {
            // An address stays as it is for ever; the time is only kept finite.
            Some(ip) => Ok((vec![ip], Duration::from_secs(365 * 86_400))),
            None => resolver.lookup(self.provider.base.host()).await,
        };
        match found {
            Ok((addresses, span)) => {
                let until = now + span;
                let peers = addresses.into_iter().map(|ip| Arc::new(self.peer(ip))).collect();
                self.resolved.store(Some(Arc::new(Resolved { peers, until })));
            }
            Err(error) => {
                let stale = self.resolved.load_full().filter(|resolved| resolved.until + STALE > now);
                let Some(stale) = stale else { return Err(error) };
                tracing::warn!(provider = &*self.provider.name, %error, "using addresses past their time");
                let peers = stale.peers.clone();
                self.resolved.store(Some(Arc::new(Resolved { peers, until: now + Duration::from_secs(5) })));
            }
        }
        self.pick(now).ok_or_else(|| DnsError::nothing(self.provider.base.host()))
    }

    fn pick(&self, now: Instant) -> Option<Arc<Upstream>> {
        let resolved = self.resolved.load();
        let resolved = resolved.as_ref().filter(|resolved| resolved.until > now)?;
        match resolved.peers.as_slice() {
            [only] => Some(only.clone()),
            [] => None,
            several => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                several.get(turn % several.len()).cloned()
            }
        }
    }

    fn peer(&self, ip: IpAddr) -> Upstream {
        let base = &self.provider.base;
        let address = SocketAddr::new(ip, base.port());
        let mut http = HttpPeer::new(address, base.scheme() == Scheme::Https, base.host().to_owned());
        http.options = self.options.clone();
        http.group_key = self.group;
        let hash = http.reuse_hash();
        Upstream { http, hash }
    }
}

/// For TCP and TLS together.
fn limit(options: &mut PeerOptions, span: Duration) {
    options.total_connection_timeout = Some(span);
    options.connection_timeout = Some(span);
}

fn roots_group(roots: &[Vec<u8>]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    roots.iter().for_each(|der| hasher.write(der));
    hasher.finish() | 1
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.provider.name)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use super::*;
    use crate::vendor::{BaseUrl, Kind, Setup};
    use crate::wire::Api;

    /// What a server of names says: an address that may be kept for no time at all, or that it failed.
    type Said = Arc<Mutex<Option<Ipv4Addr>>>;

    /// A server of names, and how often it was asked for an address.
    async fn names(said: Said) -> (SocketAddr, Arc<AtomicUsize>) {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query).await {
                // The question: labels up to an empty one, a type and a class.
                let labels = query[12..length].iter().position(|byte| *byte == 0).unwrap();
                let question = &query[12..12 + labels + 5];
                let is_a = question[labels + 1..labels + 3] == [0, 1];
                let address = *said.lock().unwrap();
                let (code, answers) = match address {
                    None => (2, 0),
                    Some(_) => (0, u8::from(is_a)),
                };
                let mut answer =
                    [&query[..2], &[0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0], question].concat();
                if let Some(address) = address.filter(|_| is_a) {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                    answer.extend(address.octets());
                }
                count.fetch_add(usize::from(is_a), Ordering::SeqCst);
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        (address, asked)
    }

    #[tokio::test]
    async fn a_name_is_followed_to_another_address_when_its_time_is_over() {
        let said: Said = Arc::new(Mutex::new(Some(Ipv4Addr::new(192, 0, 2, 1))));
        let (server, asked) = names(said.clone()).await;
        let resolver = Resolver::asking(server);
        let base = BaseUrl::parse("http://vendor.example:8080/v1").unwrap();
        let setup = Setup { name: "vendor".to_owned(), kind: Kind::OpenAi, apis: vec![Api::Chat], base };
        let link = Link::new(Arc::new(Provider::new(setup)), &Limits::default());
        let place = |peer: &Upstream| peer.http().address().to_string();
        let mut now = Instant::now();
        assert!(link.pick(now).is_none());

        let first = link.resolved_at(now, &resolver).await.unwrap();
        assert_eq!(place(&first), "192.0.2.1:8080");
        *said.lock().unwrap() = Some(Ipv4Addr::new(192, 0, 2, 2));
        // A time of zero would mean a question per request.
        now += Duration::from_secs(4);
        assert_eq!(place(&link.pick(now).unwrap()), "192.0.2.1:8080");
        assert_eq!(place(&link.resolved_at(now, &resolver).await.unwrap()), "192.0.2.1:8080");
        assert_eq!(asked.load(Ordering::SeqCst), 1);

        now += Duration::from_secs(1);
        assert!(link.pick(now).is_none(), "used past its time");
        let second = link.resolved_at(now, &resolver).await.unwrap();
        assert_eq!(place(&second), "192.0.2.2:8080");
        // Connections to the old address are in another place of the pool.
        assert_ne!(first.reuse_hash(), second.reuse_hash());

        // While nobody knows the name, the last address is better than none; but not for ever.
        *said.lock().unwrap() = None;
        now += Duration::from_secs(5);
        assert_eq!(place(&link.resolved_at(now, &resolver).await.unwrap()), "192.0.2.2:8080");
        *said.lock().unwrap() = Some(Ipv4Addr::new(192, 0, 2, 3));
        now += Duration::from_secs(5);
        assert_eq!(place(&link.resolved_at(now, &resolver).await.unwrap()), "192.0.2.3:8080");
        *said.lock().unwrap() = None;
        now += STALE + Duration::from_secs(5);
        assert!(link.resolved_at(now, &resolver).await.is_err());
    }
}
