//! Starting and stopping: whether anybody is served yet, who still works, who wants to stop, and when waiting ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use prometheus::IntGauge;
use tokio::sync::Notify;

/// The state of a process from its start to its end.
#[derive(Debug, Default)]
pub struct Shutdown {
    serving: AtomicBool,
    draining: AtomicBool,
    over: AtomicBool,
    /// Requests whose head has come and whose answer has not ended.
    in_flight: AtomicUsize,
    /// What draining waits for: these requests, and connections whose first request may be on its way.
    held: AtomicUsize,
    idle: Notify,
    begun: Notify,
    deadline: Notify,
}

impl Shutdown {
    /// A process that runs.
    pub fn new() -> Arc<Self> {
        Arc::new(Shutdown::default())
    }

    /// Notes that the listeners accept.
    pub(super) fn serve(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// Whether the listeners have come up.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Begins draining: no new work should come.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.begun.notify_waiters();
        if self.held.load(Ordering::Acquire) == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Whether the process is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ends waiting: answers that are still under way end with an error that their clients see.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.deadline.notify_waiters();
    }

    /// Resolves when draining has begun.
    pub fn draining(&self) -> impl Future<Output = ()> + Send {
        Raised { flag: &self.draining, notified: Box::pin(self.begun.notified()), waker: None }
    }

    /// Resolves when waiting has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send {
        Raised { flag: &self.over, notified: Box::pin(self.deadline.notified()), waker: None }
    }

    /// Requests under way. A connection that has not said anything is none.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Resolves when no request is under way, and no accepted connection may still bring one.
    pub async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.held.load(Ordering::Acquire) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, gauge: &IntGauge) -> InFlightRequests {
        gauge.inc();
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlightRequests { held: self.hold(), gauge: gauge.clone() }
    }

    /// Makes those who wait for the requests under way wait, until it is dropped.
    pub(super) fn hold(self: &Arc<Self>) -> DrainGuard {
        self.held.fetch_add(1, Ordering::AcqRel);
        DrainGuard(self.clone())
    }
}

/// Resolves when a flag is up. It is polled for every piece of a stream, so that it asks the list of those who wait,
/// which has a lock, only when it is polled by another task than before.
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
        // It may have gone up before anybody was listed.
        if self.flag.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    held: DrainGuard,
    gauge: IntGauge,
}

impl Drop for InFlightRequests {
    fn drop(&mut self) {
        self.held.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.gauge.dec();
    }
}

/// Drain guard: shutdown waits for it until it is dropped.
#[derive(Debug)]
pub(super) struct DrainGuard(Arc<Shutdown>);

impl Drop for DrainGuard {
    fn drop(&mut self) {
        if self.0.held.fetch_sub(1, Ordering::AcqRel) == 1 && self.0.is_draining() {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn idle_resolves_when_the_last_request_is_done() {
        let shutdown = Shutdown::new();
        let gauge = IntGauge::new("g", "g").unwrap();
        let first = shutdown.enter(&gauge);
        let second = shutdown.enter(&gauge);
        assert_eq!(gauge.get(), 2);
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
        assert_eq!(gauge.get(), 0);
    }

    #[tokio::test]
    async fn held_connections_are_waited_for_and_are_no_requests() {
        let shutdown = Shutdown::new();
        let gauge = IntGauge::new("g", "g").unwrap();
        let silent = shutdown.hold();
        assert_eq!(shutdown.in_flight(), 0);
        let request = shutdown.enter(&gauge);
        assert_eq!((shutdown.in_flight(), gauge.get()), (1, 1));
        drop(request);
        assert_eq!((shutdown.in_flight(), gauge.get()), (0, 0));
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
    async fn the_end_reaches_those_who_wait_and_those_who_come_late() {
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
