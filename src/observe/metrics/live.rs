//! Live requests: one event for each request that begins and for each that ends, for those who listen. Without a listener a request costs one
//! atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::broadcast;

use super::access_log::{Line, RequestStart, push_live, push_start};

/// Events that are kept for a listener that is slower than the requests. It loses older ones, which are counted.
const BUFFERED: usize = 1_024;

/// Events of live requests.
#[derive(Debug)]
pub struct LiveRequests {
    listeners: AtomicUsize,
    sender: broadcast::Sender<LiveEvent>,
}

impl Default for LiveRequests {
    fn default() -> Self {
        LiveRequests { listeners: AtomicUsize::new(0), sender: broadcast::Sender::new(BUFFERED) }
    }
}

impl LiveRequests {
    /// Returns whether anything listens. One atomic load.
    pub fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of listeners.
    pub fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Sends the event of a request that has ended. The line has its shape and timing, and nothing that was said.
    pub fn publish(&self, line: &Line<'_>) {
        let mut text = Vec::with_capacity(512);
        push_live(line, &mut text);
        self.send(text, LiveEvent::Request);
    }

    /// Sends the event of a request that begins: what is known of it before a provider is asked.
    pub fn publish_start(&self, start: &RequestStart<'_>) {
        let mut text = Vec::with_capacity(256);
        push_start(start, &mut text);
        self.send(text, LiveEvent::Start);
    }

    fn send(&self, text: Vec<u8>, event: fn(Arc<str>) -> LiveEvent) {
        if let Ok(text) = String::from_utf8(text) {
            // Fails only if the last listener has just left.
            let _ = self.sender.send(event(text.into()));
        }
    }

    /// Starts to listen.
    pub fn listen(self: &Arc<Self>) -> LiveListener {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        LiveListener { events: self.sender.subscribe(), live: self.clone() }
    }
}

/// Listener of live requests, until it is dropped.
#[derive(Debug)]
pub struct LiveListener {
    events: broadcast::Receiver<LiveEvent>,
    live: Arc<LiveRequests>,
}

/// What a listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    /// A request has begun: one JSON object.
    Start(Arc<str>),
    /// A request has ended: one JSON object.
    Request(Arc<str>),
    /// This number of events was lost, because the listener was too slow.
    Lost(u64),
}

impl LiveListener {
    /// Waits for the next event. `None` when the gateway ends.
    pub async fn next(&mut self) -> Option<LiveEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(lost)) => Some(LiveEvent::Lost(lost)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Returns the next event if it is there already; `None` otherwise.
    pub fn next_ready(&mut self) -> Option<LiveEvent> {
        match self.events.try_recv() {
            Ok(event) => Some(event),
            Err(broadcast::error::TryRecvError::Lagged(lost)) => Some(LiveEvent::Lost(lost)),
            Err(_) => None,
        }
    }
}

impl Drop for LiveListener {
    fn drop(&mut self) {
        self.live.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn live_listener_that_is_too_slow_loses_the_oldest_events_and_counts_them() {
        let live = Arc::new(LiveRequests::default());
        assert!(!live.has_listeners());
        let mut listener = live.listen();
        assert!(live.has_listeners());
        for number in 0..BUFFERED + 3 {
            live.publish(&Line { request_id: &number.to_string(), path: "/secret", ..Line::default() });
        }
        assert_eq!(listener.next().await, Some(LiveEvent::Lost(3)));
        let Some(LiveEvent::Request(event)) = listener.next().await else { panic!() };
        let event: serde_json::Value = serde_json::from_str(&event).unwrap();
        assert_eq!(event["request_id"], "3");
        assert_eq!((event.get("path"), event.get("client")), (None, None));
        drop(listener);
        assert!(!live.has_listeners());
    }
}
