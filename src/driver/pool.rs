//! Pool of idle HTTP/1 connections to providers.
//!
//! Pingora's own pool spawns a task for every connection that is returned, and cancels it when the connection is taken:
//! for a small request that is a tenth of all work. Here each peer has a stack of connections. Two checks find
//! connections that the peer has closed: one when a connection is taken, and one by a single task that sweeps the pool
//! periodically.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead as _, ReadBuf};

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(1);
/// Connections of a peer that a sweep takes out of the stack at a time: few enough that a request finds another one.
const BATCH: usize = 16;

/// Connection pool. Clones share one state.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    limit: usize,
    idle: Duration,
    swept: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Stacks of connections by pool key. A slot is `None` while the sweep checks its connection.
    peers: HashMap<u64, Vec<Option<Idle>>, foldhash::fast::FixedState>,
    /// Idle connections, including those that the sweep checks at the moment.
    count: usize,
}

struct Idle {
    stream: Stream,
    since: Instant,
}

impl Pool {
    /// Creates a pool of at most `limit` connections, each idle for `idle` at most.
    pub fn new(limit: usize, idle: Duration) -> Self {
        let (state, swept) = (Mutex::default(), AtomicBool::new(false));
        Pool(Arc::new(Inner { state, limit, idle, swept }))
    }

    /// Takes the most recently used open connection to a peer. `None` if there is no open one.
    pub fn take(&self, peer: u64) -> Option<Stream> {
        loop {
            let mut idle = {
                let mut state = self.0.state.lock();
                let stack = state.peers.get_mut(&peer)?;
                let found = loop {
                    // Last in, first out: surplus connections stay unused and reach their idle time-out.
                    if let Some(idle) = stack.pop()? {
                        break idle;
                    }
                };
                state.count -= 1;
                found
            };
            // A system call, so without the lock.
            if idle.since.elapsed() < self.0.idle && is_open(&mut idle.stream) {
                return Some(idle.stream);
            }
        }
    }

    /// Returns a connection to the pool. Closes it if the pool is full.
    pub fn put(&self, peer: u64, stream: Stream) {
        // Owned outside of the block: if the pool is full, the connection is closed without the lock.
        let idle = Idle { stream, since: Instant::now() };
        {
            let mut state = self.0.state.lock();
            if state.count < self.0.limit {
                state.count += 1;
                state.peers.entry(peer).or_default().push(Some(idle));
            }
        }
        // The first connection starts the sweep: the pool may be created outside of a Tokio runtime.
        if !self.0.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes expired connections, and those that the peer has closed, until the pool is dropped.
async fn sweep(pool: Weak<Inner>) {
    let mut timer = tokio::time::interval(SWEEP);
    loop {
        timer.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let peers: Vec<u64> = pool.state.lock().peers.keys().copied().collect();
        for peer in peers {
            let mut at = 0;
            while let Some(next) = pool.sweep_some(peer, at) {
                at = next;
                // Thousands of checks in a row would delay the streams of this worker.
                tokio::task::yield_now().await;
            }
            pool.sweep_last(peer);
        }
    }
}

impl Inner {
    fn is_reusable(&self, idle: &mut Idle) -> bool {
        idle.since.elapsed() < self.idle && is_open(&mut idle.stream)
    }

    /// Checks some of a peer's connections, from slot `at` on: one system call each, without the lock. Returns the slot
    /// to continue from. `None` when only the topmost connection is left, which stays available to requests meanwhile.
    fn sweep_some(&self, peer: u64, at: usize) -> Option<usize> {
        let lent: Vec<(usize, Idle)> = {
            let mut state = self.state.lock();
            let stack = state.peers.get_mut(&peer)?;
            let last = stack.len().checked_sub(1).filter(|last| at < *last)?;
            // At most half, so that concurrent requests find a connection.
            let size = (stack.len() / 2).clamp(1, BATCH);
            let places = stack.iter_mut().enumerate().take(last).skip(at).take(size);
            places.filter_map(|(place, slot)| Some((place, slot.take()?))).collect()
        };
        let next = lent.last().map_or(at, |(place, _)| *place) + 1;
        let mut closed = Vec::new();
        let mut open = Vec::with_capacity(lent.len());
        for (place, mut idle) in lent {
            if self.is_reusable(&mut idle) {
                open.push((place, idle));
            } else {
                closed.push(idle);
            }
        }
        let mut state = self.state.lock();
        state.count -= closed.len();
        let stack = state.peers.entry(peer).or_default();
        for (place, idle) in open {
            match stack.get_mut(place).filter(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(idle),
                // Requests have changed the stack meanwhile: this slot is gone or in use.
                None => stack.push(Some(idle)),
            }
        }
        drop(state);
        // Closing a socket is a system call too.
        drop(closed);
        Some(next)
    }

    /// Checks a peer's topmost connection while holding the lock, and removes the empty slots.
    fn sweep_last(&self, peer: u64) {
        let mut state = self.state.lock();
        let State { peers, count } = &mut *state;
        let Some(stack) = peers.get_mut(&peer) else { return };
        let last = stack.last_mut().and_then(|slot| slot.take_if(|idle| !self.is_reusable(idle)));
        *count -= usize::from(last.is_some());
        // The sweep has put all connections of this peer back: an empty slot is that of a closed one.
        stack.retain(Option::is_some);
        if stack.is_empty() {
            peers.remove(&peer);
        } else if stack.capacity() > 2 * stack.len().max(BATCH) {
            stack.shrink_to(stack.len().max(BATCH));
        }
        drop(state);
        drop(last);
    }
}

/// Returns whether a connection is open. An idle one has nothing to read: any byte is an end of stream or unsolicited
/// data.
fn is_open(stream: &mut Stream) -> bool {
    let mut byte = [0; 1];
    let mut buf = ReadBuf::new(&mut byte);
    let read = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf));
    // Bypass Tokio's task budget: with an exhausted budget, `poll_read` returns `Pending` although data is there.
    let read = std::pin::pin!(tokio::task::unconstrained(read));
    matches!(read.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use async_trait::async_trait;
    use pingora::protocols::raw_connect::ProxyDigest;
    use pingora::protocols::{
        GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
        UniqueID,
    };
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn pair() -> (Stream, DuplexStream) {
        let (near, far) = tokio::io::duplex(64);
        (Box::new(near), far)
    }

    #[tokio::test]
    async fn pool_returns_the_last_used_connection_first() {
        let pool = Pool::new(8, Duration::from_secs(60));
        let ((one, _far_one), (two, mut far_two)) = (pair(), pair());
        pool.put(7, one);
        pool.put(7, two);
        assert!(pool.take(8).is_none());
        let mut taken = pool.take(7).unwrap();
        taken.write_all(b"two").await.unwrap();
        let mut seen = [0; 3];
        tokio::io::AsyncReadExt::read_exact(&mut far_two, &mut seen).await.unwrap();
        assert_eq!(&seen, b"two");
        assert!(pool.take(7).is_some());
        assert!(pool.take(7).is_none());
    }

    #[tokio::test]
    async fn pool_skips_closed_and_readable_connections() {
        let pool = Pool::new(8, Duration::from_secs(60));
        let ((closed, far), (talking, mut voice), (open, _far)) = (pair(), pair(), pair());
        drop(far);
        voice.write_all(b"HTTP/1.1 408").await.unwrap();
        pool.put(1, open);
        pool.put(1, talking);
        pool.put(1, closed);
        assert!(pool.take(1).is_some());
        assert!(pool.take(1).is_none());
    }

    #[tokio::test]
    async fn pool_closes_connections_above_the_limit_and_the_idle_time() {
        let pool = Pool::new(1, Duration::from_millis(1));
        let ((one, _far_one), (two, mut far_two)) = (pair(), pair());
        pool.put(1, one);
        pool.put(1, two);
        let read = tokio::io::AsyncReadExt::read(&mut far_two, &mut [0; 1]).await;
        assert_eq!(read.unwrap(), 0, "closed beyond the limit");
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(pool.take(1).is_none(), "too old");
    }

    /// Stream that records the state of its pool whenever the pool checks it.
    #[derive(Debug)]
    struct Watched {
        inner: DuplexStream,
        found: Arc<Mutex<Found>>,
        pool: Weak<Inner>,
    }

    #[derive(Debug, Default)]
    struct Found {
        looks: usize,
        /// Checks while the lock was held.
        locked: usize,
        /// Checks during which a request would have found no connection.
        empty: usize,
    }

    impl fmt::Debug for Inner {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Inner")
        }
    }

    impl AsyncRead for Watched {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(pool) = self.pool.upgrade() {
                let mut found = self.found.lock();
                found.looks += 1;
                match pool.state.try_lock() {
                    None => found.locked += 1,
                    Some(state) if state.peers[&1].iter().all(Option::is_none) => found.empty += 1,
                    Some(_) => {}
                }
            }
            Pin::new(&mut self.inner).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Watched {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[async_trait]
    impl Shutdown for Watched {
        async fn shutdown(&mut self) {}
    }

    impl UniqueID for Watched {
        fn id(&self) -> i32 {
            0
        }
    }

    impl Ssl for Watched {}

    impl GetTimingDigest for Watched {
        fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
            Vec::new()
        }
    }

    impl GetProxyDigest for Watched {
        fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
            None
        }
    }

    impl GetSocketDigest for Watched {
        fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
            None
        }
    }

    #[async_trait]
    impl Peek for Watched {}

    #[tokio::test]
    async fn pool_sweep_checks_connections_outside_the_lock() {
        for count in [1, 2, 3, 100, 1_000] {
            let pool = Pool::new(2_000, Duration::from_secs(60));
            // Prevent the background sweep: the test sweeps itself.
            pool.0.swept.store(true, Ordering::Relaxed);
            let found = Arc::new(Mutex::new(Found::default()));
            let mut others = Vec::new();
            for n in 0..count {
                let (inner, far) = tokio::io::duplex(64);
                let (found, pool_of) = (found.clone(), Arc::downgrade(&pool.0));
                pool.put(1, Box::new(Watched { inner, found, pool: pool_of }));
                // The peer closes every third one.
                if n % 3 != 1 {
                    others.push(far);
                }
            }
            let mut at = 0;
            while let Some(next) = pool.0.sweep_some(1, at) {
                at = next;
            }
            pool.0.sweep_last(1);
            let found = std::mem::take(&mut *found.lock());
            assert_eq!((found.looks, found.locked, found.empty), (count, 1, 0), "{count}");
            assert_eq!(pool.0.state.lock().count, others.len(), "{count}");
            for left in (0..others.len()).rev() {
                assert!(pool.take(1).is_some(), "{left} of {count}");
                assert_eq!(pool.0.state.lock().count, left);
            }
            assert!(pool.take(1).is_none());
        }
    }

    #[tokio::test]
    async fn pool_sweep_loses_no_connection_during_takes_and_puts() {
        let pool = Pool::new(64, Duration::from_secs(60));
        let mut others = Vec::new();
        for _ in 0..40 {
            let (near, far) = pair();
            pool.put(1, near);
            others.push(far);
        }
        // Connections are taken and returned while the sweep holds others.
        let lent = {
            let mut state = pool.0.state.lock();
            let stack = state.peers.get_mut(&1).unwrap();
            stack.iter_mut().take(8).map(|slot| slot.take().unwrap()).collect::<Vec<_>>()
        };
        let taken: Vec<Stream> = std::iter::from_fn(|| pool.take(1)).collect();
        assert_eq!(taken.len(), 32);
        for stream in taken.into_iter().chain(lent.into_iter().map(|idle| idle.stream)) {
            pool.put(1, stream);
        }
        pool.0.state.lock().count = 40;
        let mut at = 0;
        while let Some(next) = pool.0.sweep_some(1, at) {
            at = next;
        }
        pool.0.sweep_last(1);
        assert_eq!(std::iter::from_fn(|| pool.take(1)).count(), 40);
    }

    #[tokio::test]
    async fn pool_idle_connection_is_closed_after_its_time() {
        let pool = Pool::new(8, Duration::from_millis(1));
        let (one, mut far) = pair();
        pool.put(1, one);
        let mut byte = [0; 1];
        let read = tokio::io::AsyncReadExt::read(&mut far, &mut byte);
        let read = tokio::time::timeout(Duration::from_secs(10), read);
        assert_eq!(read.await.unwrap().unwrap(), 0);
        assert_eq!(pool.0.state.lock().count, 0);
    }
}
