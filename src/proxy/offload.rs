//! Work on large bodies, kept from the workers: a worker that reads one of 64 MiB for a second can do nothing else in
//! that time, neither answer another request nor pass on a frame of a stream.
//!
//! Only so many bodies are worked on at a time, and only so many wait for that. The worker hands its other tasks to
//! another thread meanwhile ([`tokio::task::block_in_place`]).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prometheus::{Histogram, IntCounter};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::request::overloaded;
use crate::error::ApiError;
use crate::metrics::Metrics;

/// Bodies from this size on are large, in bytes. Translating 64 MB takes 0.6 to 2.2 s (release build, two processors under
/// load, `benches/e2e/starvation.py`), so one of this size takes 2 to 9 ms; handing the worker's tasks to another thread
/// costs far less than that.
pub(super) const LARGE: usize = 256 * 1024;

/// Requests that wait for their turn at most. The one behind them would wait for tens of seconds.
const MOST_WAITING: usize = 64;

/// Who works on a large body, and who waits for that.
pub(super) struct Offload {
    turns: Semaphore,
    waiting: AtomicUsize,
    waits: Histogram,
    refused: IntCounter,
}

/// The turn of one body. That of a small one is nothing at all.
pub(super) struct Turn<'o>(Option<SemaphorePermit<'o>>);

impl Turn<'_> {
    /// Does the work, apart from the worker's other tasks if the body is large.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.is_some() { apart(work) } else { work() }
    }
}

/// One of those that wait, until it is dropped.
struct Waiting<'o>(&'o AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Offload {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Offload {
            // Half of the machine stays for everything else.
            turns: Semaphore::new((cores / 2).max(1)),
            waiting: AtomicUsize::new(0),
            waits: metrics.large_body_wait.clone(),
            refused: metrics.large_bodies_refused.clone(),
        }
    }

    /// Waits until a request's body of this length may be worked on. A small one does not wait.
    ///
    /// # Errors
    /// Too many wait already.
    pub(super) async fn turn(&self, length: usize) -> Result<Turn<'_>, ApiError> {
        if length < LARGE {
            return Ok(Turn(None));
        }
        if let Ok(permit) = self.turns.try_acquire() {
            self.waits.observe(0.0);
            return Ok(Turn(Some(permit)));
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= MOST_WAITING {
            self.refused.inc();
            return Err(overloaded());
        }
        Ok(self.wait(waiting).await)
    }

    /// Waits until a large answer may be worked on. It is never refused: it is paid for.
    pub(super) async fn turn_of_answer(&self) -> Turn<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.wait(Waiting(&self.waiting)).await
    }

    async fn wait(&self, waiting: Waiting<'_>) -> Turn<'_> {
        let since = Instant::now();
        // It is never closed.
        let permit = self.turns.acquire().await.ok();
        drop(waiting);
        self.waits.observe(since.elapsed().as_secs_f64());
        Turn(permit)
    }
}

/// Does work on a body of this length, apart from the worker's other tasks if it is large: for what takes no more than a
/// few passes over it, and need not wait for its turn.
pub(super) fn apart_if_large<T>(length: usize, work: impl FnOnce() -> T) -> T {
    if length < LARGE { work() } else { apart(work) }
}

fn apart<T>(work: impl FnOnce() -> T) -> T {
    // A runtime of one thread has nobody to hand its tasks to.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Kind;

    #[tokio::test]
    async fn so_many_wait_for_their_turn_and_no_more_and_who_leaves_makes_room() {
        let metrics = Metrics::new().unwrap();
        let offload = Arc::new(Offload::new(&metrics));
        let all = offload.turns.available_permits();
        let mut working = Vec::new();
        for _ in 0..all {
            working.push(offload.turn(LARGE).await.ok().unwrap());
        }
        let mut waiting = Vec::new();
        for _ in 0..MOST_WAITING {
            let offload = Arc::clone(&offload);
            waiting.push(tokio::spawn(async move { offload.turn(LARGE).await.map(drop) }));
        }
        while offload.waiting.load(Ordering::Relaxed) < MOST_WAITING {
            tokio::task::yield_now().await;
        }
        let refused = offload.turn(LARGE).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Overloaded);
        assert!(refused.retry_after.is_some());
        assert_eq!(metrics.large_bodies_refused.get(), 1);
        // A small one does not wait, and an answer is not refused.
        assert!(offload.turn(LARGE - 1).await.is_ok());
        waiting.pop().unwrap().abort();
        while offload.waiting.load(Ordering::Relaxed) == MOST_WAITING {
            tokio::task::yield_now().await;
        }
        working.clear();
        for one in waiting {
            one.await.unwrap().unwrap();
        }
        assert_eq!(offload.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(offload.turns.available_permits(), all);
    }

    #[tokio::test]
    async fn work_is_done_on_a_runtime_of_one_thread_too() {
        assert_eq!(apart_if_large(LARGE, || 7), 7);
    }
}
