//! Connections to the admin port: their places, and the time for which one may be silent.
//!
//! A connection that waits for its client (for a request, or for the next one) gives its place to one that comes: silent
//! clients do not lock others out. A connection on which an answer is made or sent keeps its place.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::AnswerBody;

/// Time from the start of a connection to the end of the head of its first request.
pub(super) const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Time without a request and without a piece of an answer after which a connection ends. Longer than a client may take to
/// read a piece, and than the silence of a stream of events.
const IDLE: Duration = Duration::from_secs(90);

/// What happens on a connection.
#[derive(Debug)]
struct State {
    /// Time of the latest start or end of a request, or piece of an answer.
    last: Instant,
    has_request: bool,
    /// Requests whose answers are being made.
    requests: usize,
    /// Answers that are being sent.
    bodies: usize,
}

/// Activity of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    /// Another connection needs the place.
    evicted: Notify,
}

impl Activity {
    fn new() -> Arc<Self> {
        let state = State { last: Instant::now(), has_request: false, requests: 0, bodies: 0 };
        Arc::new(Activity { state: Mutex::new(state), evicted: Notify::new() })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.last = Instant::now();
        change(&mut state);
    }

    /// Begins a request.
    pub(super) fn request(self: &Arc<Self>) -> RequestGuard {
        self.change(|state| {
            state.has_request = true;
            state.requests = state.requests.saturating_add(1);
        });
        RequestGuard(self.clone())
    }

    /// Returns the time at which the connection has been silent for too long. `None` while a request is being answered.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state.lock();
        let most = if state.has_request { IDLE } else { FIRST_REQUEST };
        state.last.checked_add(most).filter(|_| state.requests == 0)
    }

    /// Returns since when the connection waits for its client. `None` if it does not.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.requests == 0 && state.bodies == 0).then_some(state.last)
    }

    /// Waits until the connection is to end: it has been silent for too long, or another one needs its place.
    pub(super) async fn is_over(&self) {
        loop {
            let look = self.deadline().unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                () = tokio::time::sleep_until(look) => {}
                () = self.evicted.notified() => return,
            }
            if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
        }
    }
}

/// Request in progress.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    /// Ends the request: its answer is sent.
    pub(super) fn answer(self, body: AnswerBody) -> TrackedBody {
        self.0.change(|state| state.bodies = state.bodies.saturating_add(1));
        TrackedBody { body, activity: self.0.clone() }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.requests = state.requests.saturating_sub(1));
    }
}

/// Body of an answer, whose pieces are activity of its connection.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: AnswerBody,
    activity: Arc<Activity>,
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.activity.change(|state| state.bodies = state.bodies.saturating_sub(1));
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let tracked = self.get_mut();
        let polled = Pin::new(&mut tracked.body).poll_frame(cx);
        if polled.is_ready() {
            tracked.activity.change(|_| {});
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Places of connections.
#[derive(Debug)]
pub(super) struct Places {
    taken: Mutex<Vec<Arc<Activity>>>,
    most: usize,
}

impl Places {
    /// Creates `most` places.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Places { taken: Mutex::default(), most })
    }

    /// Takes a place: a free one, or that of the connection that has waited longest for its client, which ends. `None` if all
    /// connections are being answered.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.len() >= self.most {
            let idle = taken.iter().enumerate().filter_map(|(at, other)| Some((other.idle_since()?, at)));
            let (_, at) = idle.min()?;
            taken.swap_remove(at).evicted.notify_one();
        }
        let activity = Activity::new();
        taken.push(activity.clone());
        Some(Place { places: self.clone(), activity })
    }
}

/// Place of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    activity: Arc<Activity>,
}

impl Place {
    /// Returns the activity of the connection.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.lock().retain(|other| !Arc::ptr_eq(other, &self.activity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_over_after(activity: &Activity, time: Duration) -> bool {
        tokio::time::timeout(time, activity.is_over()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_when_it_is_silent_and_not_while_it_is_answered() {
        let second = Duration::from_secs(1);
        assert!(!is_over_after(&Activity::new(), FIRST_REQUEST - second).await);
        assert!(is_over_after(&Activity::new(), FIRST_REQUEST + second).await);

        let activity = Activity::new();
        let request = activity.request();
        assert!(!is_over_after(&activity, IDLE * 3).await, "an operation takes its time");
        let body = request.answer(AnswerBody::Whole(Bytes::from_static(b"x")));
        assert!(!is_over_after(&activity, IDLE - second).await);
        assert!(is_over_after(&activity, second * 2).await, "the client reads nothing");
        drop(body);
        assert!(!is_over_after(&activity, IDLE - second).await);
        assert!(is_over_after(&activity, second * 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_waits_longest_for_its_client_gives_its_place() {
        let places = Places::new(2);
        let first = places.take().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = places.take().unwrap();
        let request = first.activity().request();
        let third = places.take().unwrap();
        assert!(is_over_after(second.activity(), Duration::ZERO).await);
        assert!(!is_over_after(first.activity(), Duration::ZERO).await);
        let body = third.activity().request().answer(AnswerBody::Whole(Bytes::from_static(b"x")));
        assert!(places.take().is_none(), "both are being answered");
        drop((second, body));
        assert_eq!(places.taken.lock().len(), 2);
        let fourth = places.take().unwrap();
        assert!(is_over_after(third.activity(), Duration::ZERO).await);
        drop((first, third, fourth, request));
        assert!(places.taken.lock().is_empty());
    }
}
