//! Offloading of work on large bodies: a worker that reads 64 MiB for a second could otherwise neither serve another
//! request nor forward a frame of a stream in that time.
//!
//! A bounded number of bodies is worked on at a time, and a bounded number waits. Meanwhile another thread takes over
//! the worker's other tasks ([`tokio::task::block_in_place`]).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prometheus::{Histogram, IntCounter};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

use codec::error::ApiError;
use observe::metrics::Metrics;

/// Size from which a body is large, in bytes. Translating 64 MB takes 0.6 to 2.2 s (release build, two processors under
/// load, `benches/e2e/starvation.py`), so a body of this size takes 2 to 9 ms; moving the worker's tasks to another
/// thread costs far less than that.
pub const LARGE_BODY: usize = 256 * 1024;

/// Requests that may wait for a turn. Another one would wait for tens of seconds.
const MAX_WAITING: usize = 64;

/// Concurrency limit of work on large bodies, with its queue and its metrics.
pub struct Offload {
    permits: Semaphore,
    waiting: AtomicUsize,
    waits: Histogram,
    refused: IntCounter,
}

/// Turn of one body. Empty for a small body, which needs no permit.
pub struct OffloadTurn<'o>(Option<SemaphorePermit<'o>>);

impl OffloadTurn<'_> {
    /// Does the work, with the worker's other tasks moved to another thread if the body is large.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.is_some() { run_blocking(work) } else { work() }
    }
}

/// Counts one waiting request until it is dropped.
struct Waiting<'o>(&'o AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Offload {
    /// Permits as many computations at a time as half of the machine has processors.
    pub fn new(metrics: &Metrics) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Offload {
            // The other half of the machine stays free for everything else.
            permits: Semaphore::new((cores / 2).max(1)),
            waiting: AtomicUsize::new(0),
            waits: metrics.large_body_wait.clone(),
            refused: metrics.large_bodies_refused.clone(),
        }
    }

    /// Waits until a request body of `length` bytes may be worked on. A small body does not wait.
    ///
    /// # Errors
    /// Returns [`Kind::Overloaded`](codec::error::ErrorKind::Overloaded) if [`MAX_WAITING`] requests already wait.
    pub async fn acquire(&self, length: usize) -> Result<OffloadTurn<'_>, ApiError> {
        if length < LARGE_BODY {
            return Ok(OffloadTurn(None));
        }
        if let Ok(permit) = self.permits.try_acquire() {
            self.waits.observe(0.0);
            return Ok(OffloadTurn(Some(permit)));
        }
        // Counted by a guard: a client that disconnects drops this future, and its place in the queue must become free.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= MAX_WAITING {
            self.refused.inc();
            return Err(ApiError::overloaded());
        }
        Ok(self.wait(waiting).await)
    }

    /// Waits until a large response may be worked on. A response is never refused, because it is already paid for.
    pub async fn acquire_for_response(&self) -> OffloadTurn<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.wait(Waiting(&self.waiting)).await
    }

    async fn wait(&self, waiting: Waiting<'_>) -> OffloadTurn<'_> {
        let since = Instant::now();
        // `None` is unreachable: the semaphore is never closed.
        let permit = self.permits.acquire().await.ok();
        drop(waiting);
        self.waits.observe(since.elapsed().as_secs_f64());
        OffloadTurn(permit)
    }
}

/// Does work on a body of `length` bytes, with the worker's other tasks moved to another thread if it is large. For
/// work of a few passes over the body, which needs no turn.
pub fn run_blocking_if_large<T>(length: usize, work: impl FnOnce() -> T) -> T {
    if length < LARGE_BODY { work() } else { run_blocking(work) }
}

/// Does work that blocks, with the worker's other tasks moved to another thread.
pub fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    // `block_in_place` panics on a single-threaded runtime.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use codec::error::ErrorKind;

    #[tokio::test]
    async fn offload_queue_is_bounded_and_a_canceled_waiter_leaves_it() {
        let metrics = Metrics::new().unwrap();
        let offload = Arc::new(Offload::new(&metrics));
        let all = offload.permits.available_permits();
        let mut working = Vec::new();
        for _ in 0..all {
            working.push(offload.acquire(LARGE_BODY).await.ok().unwrap());
        }
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING {
            let offload = Arc::clone(&offload);
            waiting.push(tokio::spawn(async move { offload.acquire(LARGE_BODY).await.map(drop) }));
        }
        while offload.waiting.load(Ordering::Relaxed) < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        let refused = offload.acquire(LARGE_BODY).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Overloaded);
        assert!(refused.retry_after.is_some());
        assert_eq!(metrics.large_bodies_refused.get(), 1);
        // A small body does not wait, and a response is not refused.
        assert!(offload.acquire(LARGE_BODY - 1).await.is_ok());
        waiting.pop().unwrap().abort();
        while offload.waiting.load(Ordering::Relaxed) == MAX_WAITING {
            tokio::task::yield_now().await;
        }
        working.clear();
        for one in waiting {
            one.await.unwrap().unwrap();
        }
        assert_eq!(offload.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(offload.permits.available_permits(), all);
    }

    #[tokio::test]
    async fn offload_works_on_a_single_threaded_runtime() {
        assert_eq!(run_blocking_if_large(LARGE_BODY, || 7), 7);
    }
}
