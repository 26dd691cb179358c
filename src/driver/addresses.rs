//! Resolved addresses of a provider's host name, with at most one look-up in flight.
//!
//! A look-up is a task of its own: it continues when the request that started it ends, and all requests wait for the
//! same one, each within its own time-out. Expired addresses are used for a while longer, during which a look-up runs
//! in the background. A name that cannot be resolved is not looked up again for a moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::dns::{DnsError, Resolver};
use super::peer::Upstream;
use codec::provider::is_metadata_address;

/// Longest use of expired addresses, counted from the expiry of the last successful look-up. It bridges a failure of
/// the resolver, but not an endless one.
const MAX_STALE: Duration = Duration::from_secs(300);
/// Time for which a failed look-up is not repeated.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// Builds the connector's peer for an address.
type Make = dyn Fn(IpAddr) -> Upstream + Send + Sync;

/// Resolved addresses of one host name.
pub struct Addresses {
    provider: Box<str>,
    host: Box<str>,
    make: Box<Make>,
    current: ArcSwapOption<Resolved>,
    next_index: AtomicUsize,
    lookup: Mutex<Lookup>,
    /// Time that tests add to the clock.
    #[cfg(test)]
    shift: Mutex<Duration>,
}

struct Resolved {
    addresses: Vec<IpAddr>,
    /// The same addresses as peers for the connector.
    peers: Vec<Arc<Upstream>>,
    /// Expiry, after which a look-up is started; `None` for an IP address literal, which does not expire.
    until: Option<Instant>,
}

#[derive(Default)]
struct Lookup {
    /// Look-up in flight: its sender is dropped when it ends.
    running: Option<watch::Receiver<()>>,
    /// Error of the last look-up, and the time until which it is not repeated. `None` after a success.
    failed: Option<(DnsError, Instant)>,
}

impl Addresses {
    /// Addresses of a host name, not looked up yet.
    pub fn named(provider: &str, host: &str, make: Box<Make>) -> Self {
        Addresses {
            provider: provider.into(),
            host: host.into(),
            make,
            current: ArcSwapOption::empty(),
            next_index: AtomicUsize::new(0),
            lookup: Mutex::default(),
            #[cfg(test)]
            shift: Mutex::default(),
        }
    }

    /// A single IP address, which needs no look-up and does not expire.
    pub fn fixed(provider: &str, ip: IpAddr, make: Box<Make>) -> Self {
        let addresses = Addresses::named(provider, &ip.to_string(), make);
        addresses.store(vec![ip], None);
        addresses
    }

    /// Takes over the addresses of the same host name from before a reload, so that a reload works while the resolver
    /// is down.
    pub fn inherit(&self, before: &Addresses) {
        if let Some(known) = before.current.load().as_ref().filter(|_| before.host == self.host) {
            self.store(known.addresses.clone(), known.until);
        }
    }

    fn store(&self, found: Vec<IpAddr>, until: Option<Instant>) {
        let peers = found.iter().map(|ip| Arc::new((self.make)(*ip))).collect();
        self.current.store(Some(Arc::new(Resolved { addresses: found, peers, until })));
    }

    /// Returns an address to connect to, round robin; `None` if none is known or all expired too long ago. Expired
    /// addresses start a look-up in the background.
    pub fn cached(self: &Arc<Self>, resolver: &Resolver) -> Option<Arc<Upstream>> {
        let current = self.current.load();
        let resolved = current.as_ref()?;
        if let Some(until) = resolved.until {
            let now = self.now();
            if now >= until {
                if now >= until + MAX_STALE {
                    return None;
                }
                // An error means that a look-up failed less than `NEGATIVE_TTL` ago: the expired addresses stay in use.
                let _ = self.start_lookup(now, resolver);
            }
        }
        match resolved.peers.as_slice() {
            [only] => Some(only.clone()),
            [] => None,
            several => {
                let turn = self.next_index.fetch_add(1, Ordering::Relaxed);
                several.get(turn % several.len()).cloned()
            }
        }
    }

    /// Returns an address to connect to, after a look-up if none is known. The caller bounds the wait.
    ///
    /// # Errors
    /// Returns [`DnsError`] if the look-up fails, or has failed just before.
    pub async fn resolve(self: &Arc<Self>, resolver: &Resolver) -> Result<Arc<Upstream>, DnsError> {
        if let Some(peer) = self.cached(resolver) {
            return Ok(peer);
        }
        let mut running = self.start_lookup(self.now(), resolver)?;
        // No value is ever sent: `changed` fails when the look-up drops its sender.
        while running.changed().await.is_ok() {}
        if let Some(peer) = self.cached(resolver) {
            return Ok(peer);
        }
        let failed = self.lookup.lock().failed.as_ref().map(|(error, _)| error.clone());
        Err(failed.unwrap_or_else(|| DnsError::nothing(&self.host)))
    }

    /// Returns the look-up in flight, or starts one.
    ///
    /// # Errors
    /// Returns the error of the last look-up if it failed less than [`NEGATIVE_TTL`] ago.
    fn start_lookup(
        self: &Arc<Self>,
        now: Instant,
        resolver: &Resolver,
    ) -> Result<watch::Receiver<()>, DnsError> {
        let mut lookup = self.lookup.lock();
        // The sender of an ended look-up is dropped, even after a panic, and `has_changed` fails then.
        if let Some(running) = lookup.running.as_ref().filter(|running| running.has_changed().is_ok()) {
            return Ok(running.clone());
        }
        if let Some((error, until)) = &lookup.failed
            && now < *until
        {
            return Err(error.clone());
        }
        let (end, running) = watch::channel(());
        lookup.running = Some(running.clone());
        drop(lookup);
        let (addresses, resolver) = (self.clone(), resolver.clone());
        tokio::spawn(async move {
            let found = resolver.lookup(&addresses.host).await;
            addresses.on_lookup_done(found.and_then(|found| addresses.permitted(found)));
            // Only after the result is stored: this wakes the requests that wait for it.
            drop(end);
        });
        Ok(running)
    }

    /// Removes the addresses of metadata services: otherwise the owner of a name could send requests of the gateway there.
    ///
    /// # Errors
    /// Returns [`DnsError`] if no other address is left.
    fn permitted(
        &self,
        (mut found, span): (Vec<IpAddr>, Duration),
    ) -> Result<(Vec<IpAddr>, Duration), DnsError> {
        found.retain(|ip| !is_metadata_address(*ip));
        if found.is_empty() { Err(DnsError::metadata(&self.host)) } else { Ok((found, span)) }
    }

    fn on_lookup_done(&self, found: Result<(Vec<IpAddr>, Duration), DnsError>) {
        let now = self.now();
        match found {
            Ok((addresses, span)) => {
                self.store(addresses, Some(now + span));
                self.lookup.lock().failed = None;
            }
            Err(error) => {
                let provider = &*self.provider;
                if self.current.load().is_some() {
                    tracing::warn!(provider, %error, "using expired addresses of the provider");
                } else {
                    tracing::warn!(provider, %error, "the provider's host name cannot be resolved");
                }
                self.lookup.lock().failed = Some((error, now + NEGATIVE_TTL));
            }
        }
    }

    fn now(&self) -> Instant {
        #[cfg(test)]
        return Instant::now() + *self.shift.lock();
        #[cfg(not(test))]
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use pingora::upstreams::peer::Peer as _;
    use tokio::net::UdpSocket;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    /// Response of the scripted DNS server: an address with a TTL of zero, a failure, or no response.
    #[derive(Clone, Copy)]
    enum Says {
        Address(u8),
        Metadata,
        Failure,
        Nothing,
    }

    /// Scripted DNS server with its response and the number of address queries.
    struct Server {
        addr: SocketAddr,
        says: Arc<Mutex<Says>>,
        asked: Arc<AtomicUsize>,
    }

    impl Server {
        async fn start(says: Says) -> Server {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let addr = socket.local_addr().unwrap();
            let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(AtomicUsize::new(0)));
            let server = Server { addr, says: says.clone(), asked: asked.clone() };
            tokio::spawn(async move {
                let mut query = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut query).await {
                    // The question section: labels up to an empty one, a type and a class.
                    let labels = query[12..length].iter().position(|byte| *byte == 0).unwrap();
                    let question = &query[12..12 + labels + 5];
                    let is_a = question[labels + 1..labels + 3] == [0, 1];
                    let says = *says.lock();
                    let (code, answers) = match says {
                        Says::Nothing | Says::Failure => (2, 0),
                        Says::Address(_) | Says::Metadata => (0, u8::from(is_a)),
                    };
                    asked.fetch_add(usize::from(is_a), Ordering::SeqCst);
                    let head = [0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
                    let mut answer = [&query[..2], &head, question].concat();
                    match says {
                        Says::Nothing => continue,
                        Says::Address(last) if is_a => {
                            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, last]);
                        }
                        Says::Metadata if is_a => {
                            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 169, 254, 169, 254]);
                        }
                        _ => {}
                    }
                    socket.send_to(&answer, from).await.unwrap();
                }
            });
            server
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }

        fn says(&self, says: Says) {
            *self.says.lock() = says;
        }
    }

    fn addresses() -> Arc<Addresses> {
        let make = |ip| Upstream::for_remote_media((ip, 8080).into(), false, "provider.example".to_owned());
        Arc::new(Addresses::named("provider", "provider.example", Box::new(make)))
    }

    fn place(peer: &Upstream) -> String {
        peer.address().to_string()
    }

    impl Addresses {
        fn pass(&self, span: Duration) {
            *self.shift.lock() += span;
        }

        /// Waits for the look-up in the background.
        async fn settle(&self) {
            let running = self.lookup.lock().running.clone();
            if let Some(mut running) = running {
                while timeout(Duration::from_secs(60), running.changed()).await.unwrap().is_ok() {}
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn addresses_expired_are_used_while_one_lookup_runs() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        assert!(addresses.cached(&resolver).is_none());
        let first = addresses.resolve(&resolver).await.unwrap();
        assert_eq!(place(&first), "192.0.2.1:8080");
        server.says(Says::Address(2));
        // The TTL of zero is raised to `MIN_TTL`: otherwise every request would start a look-up.
        addresses.pass(3 * SECOND);
        assert_eq!(place(&addresses.cached(&resolver).unwrap()), "192.0.2.1:8080");
        addresses.settle().await;
        assert_eq!(server.asked(), 1);

        addresses.pass(3 * SECOND);
        for _ in 0..100 {
            assert!(addresses.cached(&resolver).is_some());
        }
        addresses.settle().await;
        assert_eq!(server.asked(), 2);
        let second = addresses.cached(&resolver).unwrap();
        assert_eq!(place(&second), "192.0.2.2:8080");
        // The pool key depends on the address: connections to the old one are not reused.
        assert_ne!(first.reuse_hash(), second.reuse_hash());

        // After a long time without requests the addresses are too old.
        server.says(Says::Address(3));
        addresses.pass(MAX_STALE + 6 * SECOND);
        assert!(addresses.cached(&resolver).is_none());
        assert_eq!(place(&addresses.resolve(&resolver).await.unwrap()), "192.0.2.3:8080");
    }

    #[tokio::test]
    async fn addresses_are_not_renewed_by_failed_lookups() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        addresses.resolve(&resolver).await.unwrap();
        server.says(Says::Failure);
        let mut spent = Duration::ZERO;
        // Requests arrive all the time, and every look-up fails.
        while spent < MAX_STALE {
            addresses.pass(6 * SECOND);
            spent += 6 * SECOND;
            let known = addresses.resolve(&resolver).await;
            assert!(known.is_ok() || spent > MAX_STALE, "{known:?} after {spent:?}");
            addresses.settle().await;
        }
        addresses.pass(20 * SECOND);
        assert!(addresses.resolve(&resolver).await.is_err(), "used for ever");
        server.says(Says::Address(2));
        addresses.pass(NEGATIVE_TTL);
        assert_eq!(place(&addresses.resolve(&resolver).await.unwrap()), "192.0.2.2:8080");
    }

    #[tokio::test]
    async fn addresses_failed_lookup_is_cached_briefly() {
        let server = Server::start(Says::Failure).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        assert!(addresses.resolve(&resolver).await.is_err());
        let asked = server.asked();
        for _ in 0..100 {
            assert!(addresses.resolve(&resolver).await.is_err());
        }
        assert_eq!(server.asked(), asked);
        server.says(Says::Address(1));
        addresses.pass(NEGATIVE_TTL);
        assert!(addresses.resolve(&resolver).await.is_ok());
    }

    #[tokio::test]
    async fn addresses_of_metadata_services_are_not_those_of_a_name() {
        let server = Server::start(Says::Metadata).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        let refused = addresses.resolve(&resolver).await.unwrap_err().to_string();
        assert!(refused.contains("provider.example") && refused.contains("link-local"), "{refused}");
        server.says(Says::Address(1));
        addresses.pass(NEGATIVE_TTL);
        assert!(addresses.resolve(&resolver).await.is_ok());
        // A name that leads there later keeps the addresses of before for a while, and gets no new ones.
        server.says(Says::Metadata);
        addresses.pass(6 * SECOND);
        assert_eq!(place(&addresses.cached(&resolver).unwrap()), "192.0.2.1:8080");
        addresses.settle().await;
        assert_eq!(place(&addresses.cached(&resolver).unwrap()), "192.0.2.1:8080");
    }

    #[tokio::test]
    async fn addresses_are_inherited_by_a_reload() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, before, after) = (Resolver::asking(server.addr), addresses(), addresses());
        after.inherit(&before);
        assert!(after.cached(&resolver).is_none());
        before.resolve(&resolver).await.unwrap();
        server.says(Says::Nothing);
        after.inherit(&before);
        after.pass(10 * SECOND);
        assert_eq!(place(&after.cached(&resolver).unwrap()), "192.0.2.1:8080");
        after.pass(MAX_STALE);
        assert!(after.cached(&resolver).is_none());
        let make = |ip| Upstream::for_remote_media((ip, 8080).into(), false, String::new());
        let other = Arc::new(Addresses::named("provider", "other.example", Box::new(make)));
        other.inherit(&before);
        assert!(other.cached(&resolver).is_none());
    }

    /// Serialized look-ups would wait ten seconds each.
    #[tokio::test]
    async fn addresses_hanging_lookup_is_shared_and_times_out_per_request() {
        let server = Server::start(Says::Nothing).await;
        let (resolver, addresses) = (Arc::new(Resolver::asking(server.addr)), addresses());
        let begun = Instant::now();
        let mut waiting = JoinSet::new();
        for _ in 0..100 {
            let (resolver, addresses) = (resolver.clone(), addresses.clone());
            waiting.spawn(async move {
                timeout(Duration::from_millis(200), addresses.resolve(&resolver)).await.is_err()
            });
        }
        while let Some(waited) = waiting.join_next().await {
            assert!(waited.unwrap(), "nobody has an address");
        }
        assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(server.asked(), 1, "one look-up for all");
        // The waiting requests have ended. The look-up continues, and all later requests use its result.
        assert!(addresses.lookup.lock().running.as_ref().unwrap().has_changed().is_ok());
    }

    #[tokio::test]
    async fn addresses_literal_ip_needs_no_resolver() {
        let make = |ip| Upstream::for_remote_media((ip, 8080).into(), false, String::new());
        let ip = Ipv4Addr::LOCALHOST.into();
        let addresses = Arc::new(Addresses::fixed("provider", ip, Box::new(make)));
        let server = Server::start(Says::Nothing).await;
        let resolver = Resolver::asking(server.addr);
        addresses.pass(1_000_000 * SECOND);
        assert_eq!(place(&addresses.cached(&resolver).unwrap()), "127.0.0.1:8080");
        assert_eq!(server.asked(), 0);
    }
}
