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
    peers: HashMap<u64, Vec<Idle>, foldhash::fast::FixedState>,
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
                let found = state.peers.get_mut(&peer)?.pop()?;
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
                state.peers.entry(peer).or_default().push(idle);
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
            // One peer at a time, so that nobody waits for long.
            let mut state = pool.state.lock();
            let Some(all) = state.peers.get_mut(&peer) else { continue };
            let before = all.len();
            let mut closed = Vec::new();
            let mut kept = Vec::with_capacity(before);
            for mut idle in all.drain(..) {
                let keep = idle.since.elapsed() < pool.idle && is_open(&mut idle.stream);
                if keep { &mut kept } else { &mut closed }.push(idle);
            }
            let after = kept.len();
            *all = kept;
            if after == 0 {
                state.peers.remove(&peer);
            }
            state.count -= before - after;
            drop(state);
            drop(closed);
        }
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
    use super::*;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

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
