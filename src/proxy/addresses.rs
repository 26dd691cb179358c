//! The addresses of a provider's name, asked for by one look-up at a time.
//!
//! A look-up is a task of its own: it goes on when the request that began it ends, and everybody waits for the same
//! one, each within his own time. Addresses past their time are used for a while longer, while one look-up runs behind;
//! a name that cannot be resolved is left alone for a moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::dns::{DnsError, Resolver};
use super::peer::Upstream;

/// How long addresses may be used past their time, counted from the last answer that brought them: through the failure
/// of a resolver, but not for ever.
const STALE: Duration = Duration::from_secs(300);
/// How long a name that could not be resolved is not asked for again.
const FAILED: Duration = Duration::from_secs(5);

/// Makes an address ready for the connector.
type Make = dyn Fn(IpAddr) -> Upstream + Send + Sync;

/// See the module.
pub(super) struct Addresses {
    provider: Box<str>,
    host: Box<str>,
    make: Box<Make>,
    current: ArcSwapOption<Resolved>,
    turn: AtomicUsize,
    lookup: Mutex<Lookup>,
    /// What tests add to the time.
    #[cfg(test)]
    shift: Mutex<Duration>,
}

struct Resolved {
    found: Vec<IpAddr>,
    /// The same, ready for the connector.
    peers: Vec<Arc<Upstream>>,
    /// From then on they are asked for anew; nothing for what never changes.
    until: Option<Instant>,
}

#[derive(Default)]
struct Lookup {
    /// The other end is dropped when the look-up has ended.
    running: Option<watch::Receiver<()>>,
    /// Why the last one brought nothing, and how long that counts.
    failed: Option<(DnsError, Instant)>,
}

impl Addresses {
    /// Those of a name.
    pub(super) fn named(provider: &str, host: &str, make: Box<Make>) -> Self {
        Addresses {
            provider: provider.into(),
            host: host.into(),
            make,
            current: ArcSwapOption::empty(),
            turn: AtomicUsize::new(0),
            lookup: Mutex::default(),
            #[cfg(test)]
            shift: Mutex::default(),
        }
    }

    /// An address that is none of a name, and never changes.
    pub(super) fn fixed(provider: &str, ip: IpAddr, make: Box<Make>) -> Self {
        let addresses = Addresses::named(provider, &ip.to_string(), make);
        addresses.put(vec![ip], None);
        addresses
    }

    /// Takes over what was known of the same name before a reload: the resolver need not answer for it to go on.
    pub(super) fn inherit(&self, before: &Addresses) {
        if let Some(known) = before.current.load().as_ref().filter(|_| before.host == self.host) {
            self.put(known.found.clone(), known.until);
        }
    }

    fn put(&self, found: Vec<IpAddr>, until: Option<Instant>) {
        let peers = found.iter().map(|ip| Arc::new((self.make)(*ip))).collect();
        self.current.store(Some(Arc::new(Resolved { found, peers, until })));
    }

    /// An address to connect to, if one is known; several take turns.
    pub(super) fn known(self: &Arc<Self>, resolver: &Resolver) -> Option<Arc<Upstream>> {
        let current = self.current.load();
        let resolved = current.as_ref()?;
        if let Some(until) = resolved.until {
            let now = self.now();
            if now >= until {
                if now >= until + STALE {
                    return None;
                }
                let _ = self.look_up(now, resolver);
            }
        }
        match resolved.peers.as_slice() {
            [only] => Some(only.clone()),
            [] => None,
            several => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                several.get(turn % several.len()).cloned()
            }
        }
    }

    /// An address to connect to, asked for if none is known. How long that may take is for the caller to say.
    pub(super) async fn resolved(self: &Arc<Self>, resolver: &Resolver) -> Result<Arc<Upstream>, DnsError> {
        if let Some(peer) = self.known(resolver) {
            return Ok(peer);
        }
        let mut running = self.look_up(self.now(), resolver)?;
        while running.changed().await.is_ok() {}
        if let Some(peer) = self.known(resolver) {
            return Ok(peer);
        }
        let failed = self.lookup.lock().failed.as_ref().map(|(error, _)| error.clone());
        Err(failed.unwrap_or_else(|| DnsError::nothing(&self.host)))
    }

    /// The look-up that runs, or one that begins now; the reason where the last one has failed just before.
    fn look_up(self: &Arc<Self>, now: Instant, resolver: &Resolver) -> Result<watch::Receiver<()>, DnsError> {
        let mut lookup = self.lookup.lock();
        // The other end of one that has ended, however it did, is gone.
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
            addresses.found(found);
            drop(end);
        });
        Ok(running)
    }

    fn found(&self, found: Result<(Vec<IpAddr>, Duration), DnsError>) {
        let now = self.now();
        match found {
            Ok((addresses, span)) => {
                self.put(addresses, Some(now + span));
                self.lookup.lock().failed = None;
            }
            Err(error) => {
                let provider = &*self.provider;
                if self.current.load().is_some() {
                    tracing::warn!(provider, %error, "using addresses past their time");
                } else {
                    tracing::warn!(provider, %error, "the provider's name cannot be resolved");
                }
                self.lookup.lock().failed = Some((error, now + FAILED));
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

    /// What a server of names says: an address that may be kept for no time at all, that it failed, or nothing.
    #[derive(Clone, Copy)]
    enum Says {
        Address(u8),
        Failure,
        Nothing,
    }

    /// A server of names, what it says, and how often it was asked for an address.
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
                    // The question: labels up to an empty one, a type and a class.
                    let labels = query[12..length].iter().position(|byte| *byte == 0).unwrap();
                    let question = &query[12..12 + labels + 5];
                    let is_a = question[labels + 1..labels + 3] == [0, 1];
                    let says = *says.lock();
                    let (code, answers) = match says {
                        Says::Nothing | Says::Failure => (2, 0),
                        Says::Address(_) => (0, u8::from(is_a)),
                    };
                    asked.fetch_add(usize::from(is_a), Ordering::SeqCst);
                    let head = [0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
                    let mut answer = [&query[..2], &head, question].concat();
                    match says {
                        Says::Nothing => continue,
                        Says::Address(last) if is_a => {
                            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, last]);
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
        let make = |ip| Upstream::outside((ip, 8080).into(), false, "provider.example".to_owned());
        Arc::new(Addresses::named("provider", "provider.example", Box::new(make)))
    }

    fn place(peer: &Upstream) -> String {
        peer.address().to_string()
    }

    impl Addresses {
        fn pass(&self, span: Duration) {
            *self.shift.lock() += span;
        }

        /// Waits for the look-up that runs behind.
        async fn settle(&self) {
            let running = self.lookup.lock().running.clone();
            if let Some(mut running) = running {
                while timeout(Duration::from_secs(60), running.changed()).await.unwrap().is_ok() {}
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn addresses_past_their_time_are_used_while_one_lookup_runs() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        assert!(addresses.known(&resolver).is_none());
        let first = addresses.resolved(&resolver).await.unwrap();
        assert_eq!(place(&first), "192.0.2.1:8080");
        server.says(Says::Address(2));
        // A time of zero would mean a question per request.
        addresses.pass(3 * SECOND);
        assert_eq!(place(&addresses.known(&resolver).unwrap()), "192.0.2.1:8080");
        addresses.settle().await;
        assert_eq!(server.asked(), 1);

        addresses.pass(3 * SECOND);
        for _ in 0..100 {
            assert!(addresses.known(&resolver).is_some());
        }
        addresses.settle().await;
        assert_eq!(server.asked(), 2);
        let second = addresses.known(&resolver).unwrap();
        assert_eq!(place(&second), "192.0.2.2:8080");
        // Connections to the old address are in another place of the pool.
        assert_ne!(first.reuse_hash(), second.reuse_hash());

        // Nobody has asked for so long that they are of no use.
        server.says(Says::Address(3));
        addresses.pass(STALE + 6 * SECOND);
        assert!(addresses.known(&resolver).is_none());
        assert_eq!(place(&addresses.resolved(&resolver).await.unwrap()), "192.0.2.3:8080");
    }

    #[tokio::test]
    async fn failures_do_not_renew_old_addresses() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        addresses.resolved(&resolver).await.unwrap();
        server.says(Says::Failure);
        let mut spent = Duration::ZERO;
        // Requests come all the time, and each look-up fails.
        while spent < STALE {
            addresses.pass(6 * SECOND);
            spent += 6 * SECOND;
            let known = addresses.resolved(&resolver).await;
            assert!(known.is_ok() || spent > STALE, "{known:?} after {spent:?}");
            addresses.settle().await;
        }
        addresses.pass(20 * SECOND);
        assert!(addresses.resolved(&resolver).await.is_err(), "used for ever");
        server.says(Says::Address(2));
        addresses.pass(FAILED);
        assert_eq!(place(&addresses.resolved(&resolver).await.unwrap()), "192.0.2.2:8080");
    }

    #[tokio::test]
    async fn failures_are_remembered_for_a_moment() {
        let server = Server::start(Says::Failure).await;
        let (resolver, addresses) = (Resolver::asking(server.addr), addresses());
        assert!(addresses.resolved(&resolver).await.is_err());
        let asked = server.asked();
        for _ in 0..100 {
            assert!(addresses.resolved(&resolver).await.is_err());
        }
        assert_eq!(server.asked(), asked);
        server.says(Says::Address(1));
        addresses.pass(FAILED);
        assert!(addresses.resolved(&resolver).await.is_ok());
    }

    #[tokio::test]
    async fn a_reload_keeps_what_is_known() {
        let server = Server::start(Says::Address(1)).await;
        let (resolver, before, after) = (Resolver::asking(server.addr), addresses(), addresses());
        after.inherit(&before);
        assert!(after.known(&resolver).is_none());
        before.resolved(&resolver).await.unwrap();
        server.says(Says::Nothing);
        after.inherit(&before);
        after.pass(10 * SECOND);
        assert_eq!(place(&after.known(&resolver).unwrap()), "192.0.2.1:8080");
        after.pass(STALE);
        assert!(after.known(&resolver).is_none());
        let make = |ip| Upstream::outside((ip, 8080).into(), false, String::new());
        let other = Arc::new(Addresses::named("provider", "other.example", Box::new(make)));
        other.inherit(&before);
        assert!(other.known(&resolver).is_none());
    }

    /// One after the other they would wait for ten seconds each.
    #[tokio::test]
    async fn a_resolver_that_hangs_holds_everybody_for_his_own_time_only() {
        let server = Server::start(Says::Nothing).await;
        let (resolver, addresses) = (Arc::new(Resolver::asking(server.addr)), addresses());
        let begun = Instant::now();
        let mut waiting = JoinSet::new();
        for _ in 0..100 {
            let (resolver, addresses) = (resolver.clone(), addresses.clone());
            waiting.spawn(async move {
                timeout(Duration::from_millis(200), addresses.resolved(&resolver)).await.is_err()
            });
        }
        while let Some(waited) = waiting.join_next().await {
            assert!(waited.unwrap(), "nobody has an address");
        }
        assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(server.asked(), 1, "one look-up for all");
        // Who waited has gone; the look-up has not, and its answer is everybody's.
        assert!(addresses.lookup.lock().running.as_ref().unwrap().has_changed().is_ok());
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        let make = |ip| Upstream::outside((ip, 8080).into(), false, String::new());
        let ip = Ipv4Addr::LOCALHOST.into();
        let addresses = Arc::new(Addresses::fixed("provider", ip, Box::new(make)));
        let server = Server::start(Says::Nothing).await;
        let resolver = Resolver::asking(server.addr);
        addresses.pass(1_000_000 * SECOND);
        assert_eq!(place(&addresses.known(&resolver).unwrap()), "127.0.0.1:8080");
        assert_eq!(server.asked(), 0);
    }
}
