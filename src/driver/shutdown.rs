//! Shutdown state of the process: readiness, lame duck time, requests in flight, draining, and the drain limit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use sync::{DrainCount, PerThread};

/// State of a process from its start to its end.
#[derive(Debug)]
pub struct Shutdown {
    serving: AtomicBool,
    /// True from the start of the lame duck time, or of the drain if there is none.
    stopping: AtomicBool,
    /// True from the start of the drain; set after that of `guards`.
    draining: AtomicBool,
    deadline_passed: AtomicBool,
    guards: &'static Guards,
    stop_announced: Notify,
    drain_started: Notify,
    /// One for each thread: every response registers, and `Notify` has a lock.
    deadline: PerThread<Notify>,
}

/// Drain guards: the requests in flight, and connections whose first request may be on its way.
#[derive(Debug, Default)]
struct Guards {
    count: DrainCount,
    idle: Notify,
}

impl Shutdown {
    /// Creates the state of a process that starts.
    pub fn new() -> Arc<Self> {
        Arc::new(Shutdown {
            serving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            deadline_passed: AtomicBool::new(false),
            // Once in a process. A guard that counted its references would write to one cache line for all requests.
            guards: Box::leak(Box::default()),
            stop_announced: Notify::new(),
            drain_started: Notify::new(),
            deadline: PerThread::filled(Notify::new),
        })
    }

    /// Records that the listeners accept.
    pub fn serve(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// Returns whether the listeners accept.
    pub fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Starts the lame duck time: the process still accepts, but it is not ready, and every response asks its client to
    /// connect anew.
    pub fn become_lame_duck(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop_announced.notify_waiters();
    }

    /// Returns whether the process is about to stop: it is a lame duck, or it drains.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Resolves when the process is about to stop.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send {
        Raised { flag: &self.stopping, notified: Box::pin(self.stop_announced.notified()), waker: None }
    }

    /// Starts the drain: the process accepts no new requests.
    pub fn drain(&self) {
        self.become_lame_duck();
        let idle = self.guards.count.drain();
        self.draining.store(true, Ordering::Release);
        self.drain_started.notify_waiters();
        // Without a guard, no drop of a guard will wake the task that waits in `idle`.
        if idle {
            self.guards.idle.notify_waiters();
        }
    }

    /// Returns whether the process is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ends the drain at its limit: responses in progress end with an error.
    pub fn end(&self) {
        self.deadline_passed.store(true, Ordering::Release);
        self.deadline.iter().for_each(Notify::notify_waiters);
    }

    /// Resolves when the drain has started.
    pub fn draining(&self) -> impl Future<Output = ()> + Send {
        Raised { flag: &self.draining, notified: Box::pin(self.drain_started.notified()), waker: None }
    }

    /// Resolves when the drain has reached its limit.
    pub fn ended(&self) -> impl Future<Output = ()> + Send {
        let deadline = self.deadline.own(Notify::new);
        Raised { flag: &self.deadline_passed, notified: Box::pin(deadline.notified()), waker: None }
    }

    /// Returns the number of requests in flight: those whose head has arrived and whose response has not ended. A
    /// connection without a request does not count. Reads what all threads write: not for every request.
    pub fn in_flight(&self) -> usize {
        self.guards.count.requests()
    }

    /// Resolves when no drain guard is left: no request is in flight, and no accepted connection may still send one.
    pub async fn idle(&self) {
        loop {
            // Register before the check: a guard that is dropped between the two would otherwise not wake this task.
            let notified = self.guards.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.guards.count.is_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Counts a request as in flight until the result is dropped. The drain waits for it.
    pub fn enter(&self) -> InFlightRequest {
        self.guards.count.add_request();
        InFlightRequest(self.guards)
    }

    /// Returns a guard that the drain waits for.
    pub fn guard(&self) -> DrainGuard {
        self.guards.count.add();
        DrainGuard(self.guards)
    }
}

/// Future that resolves when a flag is set. A stream polls it for every piece, so it registers with `Notify`, which
/// takes a lock, only when its task's waker has changed.
struct Raised<'s, N> {
    flag: &'s AtomicBool,
    notified: Pin<Box<N>>,
    waker: Option<Waker>,
}

impl<N: Future<Output = ()>> Future for Raised<'_, N> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.flag.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        if self.notified.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // The flag may have been set before this task was registered.
        if self.flag.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Request in flight. Dropping it ends it.
#[derive(Debug)]
pub struct InFlightRequest(&'static Guards);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if self.0.count.remove_request() {
            self.0.idle.notify_waiters();
        }
    }
}

/// Drain guard: shutdown waits for it until it is dropped.
#[derive(Debug)]
pub struct DrainGuard(&'static Guards);

impl Drop for DrainGuard {
    fn drop(&mut self) {
        if self.0.count.remove() {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn shutdown_idle_resolves_after_the_last_request() {
        let shutdown = Shutdown::new();
        let first = shutdown.enter();
        let second = shutdown.enter();
        assert_eq!(shutdown.in_flight(), 2);
        shutdown.drain();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.idle().await }
        });
        drop(first);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(second);
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
        assert_eq!(shutdown.in_flight(), 0);
    }

    #[tokio::test]
    async fn shutdown_waits_for_held_connections_not_counted_as_requests() {
        let shutdown = Shutdown::new();
        let silent = shutdown.guard();
        assert_eq!(shutdown.in_flight(), 0);
        let request = shutdown.enter();
        assert_eq!(shutdown.in_flight(), 1);
        drop(request);
        assert_eq!(shutdown.in_flight(), 0);
        shutdown.drain();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.idle().await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(silent);
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn shutdown_end_reaches_present_and_later_waiters() {
        let shutdown = Shutdown::new();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.ended().await }
        });
        tokio::task::yield_now().await;
        shutdown.end();
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
        tokio::time::timeout(Duration::from_secs(5), shutdown.ended()).await.unwrap();
    }
}
