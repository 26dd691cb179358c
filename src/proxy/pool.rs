//! Idle connections to providers over HTTP/1.
//!
//! Pingora's own pool starts a task for every connection that is given back, and takes it apart again when the
//! connection is used: for a small request that is a tenth of all the work. Here a connection lies in a stack; whether
//! the other side has closed it is seen when it is taken, and by one task that goes over all of them now and then.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead as _, ReadBuf};

/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How many of them are out of their places at a time: few enough that a request finds another one.
const BATCH: usize = 16;

/// See the module. Clones are the same pool.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    limit: usize,
    idle: Duration,
    swept: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Of each peer a stack. A place is empty while its connection is looked at.
    peers: HashMap<u64, Vec<Option<Idle>>, foldhash::fast::FixedState>,
    /// Connections that are idle, those that are looked at included.
    count: usize,
}

struct Idle {
    stream: Stream,
    since: Instant,
}

impl Pool {
    /// Keeps up to `limit` connections, each for `idle` at most.
    pub(super) fn new(limit: usize, idle: Duration) -> Self {
        let (state, swept) = (Mutex::default(), AtomicBool::new(false));
        Pool(Arc::new(Inner { state, limit, idle, swept }))
    }

    /// The connection to a peer that was used last, if one is open.
    pub(super) fn take(&self, peer: u64) -> Option<Stream> {
        loop {
            let mut idle = {
                let mut state = self.0.state.lock();
                let stack = state.peers.get_mut(&peer)?;
                let found = loop {
                    if let Some(idle) = stack.pop()? {
                        break idle;
                    }
                };
                state.count -= 1;
                found
            };
            if idle.since.elapsed() < self.0.idle && is_open(&mut idle.stream) {
                return Some(idle.stream);
            }
        }
    }

    /// Keeps a connection. Beyond the limit it is closed.
    pub(super) fn put(&self, peer: u64, stream: Stream) {
        let idle = Idle { stream, since: Instant::now() };
        {
            let mut state = self.0.state.lock();
            if state.count < self.0.limit {
                state.count += 1;
                state.peers.entry(peer).or_default().push(Some(idle));
            }
        }
        if !self.0.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes what has been idle for too long, and what the other side has closed, until the pool is gone.
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
                tokio::task::yield_now().await;
            }
            pool.sweep_last(peer);
        }
    }
}

impl Inner {
    fn is_of_use(&self, idle: &mut Idle) -> bool {
        idle.since.elapsed() < self.idle && is_open(&mut idle.stream)
    }

    /// Looks at some of a peer's connections, from this place of the stack on: a system call each, outside of the lock.
    /// Gives the place to go on from; nothing when only the last one is left, which is there for requests meanwhile.
    fn sweep_some(&self, peer: u64, at: usize) -> Option<usize> {
        let lent: Vec<(usize, Idle)> = {
            let mut state = self.state.lock();
            let stack = state.peers.get_mut(&peer)?;
            let last = stack.len().checked_sub(1).filter(|last| at < *last)?;
            let size = (stack.len() / 2).clamp(1, BATCH);
            let places = stack.iter_mut().enumerate().take(last).skip(at).take(size);
            places.filter_map(|(place, slot)| Some((place, slot.take()?))).collect()
        };
        let next = lent.last().map_or(at, |(place, _)| *place) + 1;
        let mut closed = Vec::new();
        let mut open = Vec::with_capacity(lent.len());
        for (place, mut idle) in lent {
            if self.is_of_use(&mut idle) {
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
                // Requests have taken what was above it.
                None => stack.push(Some(idle)),
            }
        }
        drop(state);
        drop(closed);
        Some(next)
    }

    /// Looks at a peer's last connection, in its place, and closes the gaps.
    fn sweep_last(&self, peer: u64) {
        let mut state = self.state.lock();
        let State { peers, count } = &mut *state;
        let Some(stack) = peers.get_mut(&peer) else { return };
        let last = stack.last_mut().and_then(|slot| slot.take_if(|idle| !self.is_of_use(idle)));
        *count -= usize::from(last.is_some());
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

/// An idle connection has nothing to read: whatever comes is its end, or nothing that anybody asked for.
fn is_open(stream: &mut Stream) -> bool {
    let mut byte = [0; 1];
    let mut buf = ReadBuf::new(&mut byte);
    let read = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf));
    // Outside of the task's budget: an exhausted one looks like nothing to read.
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
    async fn the_connection_that_was_used_last_comes_first() {
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
    async fn what_is_closed_or_has_something_to_say_is_not_used() {
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
    async fn there_is_a_limit_and_a_time() {
        let pool = Pool::new(1, Duration::from_millis(1));
        let ((one, _far_one), (two, mut far_two)) = (pair(), pair());
        pool.put(1, one);
        pool.put(1, two);
        let read = tokio::io::AsyncReadExt::read(&mut far_two, &mut [0; 1]).await;
        assert_eq!(read.unwrap(), 0, "closed beyond the limit");
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(pool.take(1).is_none(), "too old");
    }

    /// A connection that notes what it finds of its pool when it is looked at.
    #[derive(Debug)]
    struct Watched {
        inner: DuplexStream,
        found: Arc<Mutex<Found>>,
        pool: Weak<Inner>,
    }

    #[derive(Debug, Default)]
    struct Found {
        looks: usize,
        /// Looks while the lock was held.
        locked: usize,
        /// Looks while a request would have found no connection.
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
    async fn connections_are_looked_at_outside_of_the_lock_and_few_at_a_time() {
        for count in [1, 2, 3, 100, 1_000] {
            let pool = Pool::new(2_000, Duration::from_secs(60));
            // No sweep of its own.
            pool.0.swept.store(true, Ordering::Relaxed);
            let found = Arc::new(Mutex::new(Found::default()));
            let mut others = Vec::new();
            for n in 0..count {
                let (inner, far) = tokio::io::duplex(64);
                let (found, pool_of) = (found.clone(), Arc::downgrade(&pool.0));
                pool.put(1, Box::new(Watched { inner, found, pool: pool_of }));
                // Every third one is closed by the other side.
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
    async fn requests_and_the_sweep_do_not_lose_connections() {
        let pool = Pool::new(64, Duration::from_secs(60));
        let mut others = Vec::new();
        for _ in 0..40 {
            let (near, far) = pair();
            pool.put(1, near);
            others.push(far);
        }
        // Taken and given back while others are out of their places.
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
    async fn idle_connections_are_closed_in_time() {
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
