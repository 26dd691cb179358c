//! Live events as server-sent events: requests that begin and end, targets whose state changes, and totals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::api::AdminApi;
use super::body::WRITE_TIMEOUT;
use super::error::AdminApiError;
use super::request::ApiRequest;
use super::resources::targets;
use super::resources::totals::totals_json;
use codec::wire::path::query_values;
use observe::metrics::Metrics;
use observe::metrics::live::{LiveEvent, LiveListener};

/// Time between two looks at the caller, targets and totals.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Silence after which a comment is sent, so that idle time-outs do not close the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time for which events of requests are gathered into one write. A listener buffers more events than a gateway serves
/// requests in this time.
const GATHER: Duration = Duration::from_millis(10);
/// Bytes at which a piece is sent, however many events there are.
const MAX_PIECE: usize = 32 << 10;
/// Topics of events.
pub(super) const TOPICS: [&str; 4] = ["requests", "starts", "targets", "totals"];
/// Statuses that a listener may choose.
pub(super) const STATUSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "error"];

/// Topics that a listener has chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topics {
    /// Requests that end.
    pub(super) requests: bool,
    /// Requests that begin.
    pub(super) starts: bool,
    /// Targets whose state changes.
    pub(super) targets: bool,
    pub(super) totals: bool,
}

impl Topics {
    /// Reads the topics of a request; all of them if it names none.
    ///
    /// # Errors
    /// Returns an error if one is unknown.
    pub(super) fn of(request: &ApiRequest) -> Result<Self, AdminApiError> {
        let chosen: Vec<String> =
            query_values(request.query.as_deref(), "topic").map(|topic| topic.into_owned()).collect();
        if let Some(unknown) = chosen.iter().find(|topic| !TOPICS.contains(&topic.as_str())) {
            let message = format!("{unknown:?} is no topic; write one of {}", TOPICS.join(", "));
            return Err(AdminApiError::field("topic", message));
        }
        let has = |topic: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == topic);
        Ok(Topics {
            requests: has("requests"),
            starts: has("starts"),
            targets: has("targets"),
            totals: has("totals"),
        })
    }
}

/// Filter of the events of requests: texts that the JSON of an event must have. A quotation mark inside of a value is
/// escaped, so that such a text cannot be a part of one.
#[derive(Clone, Debug, Default)]
pub(super) struct EventFilter {
    names: Vec<String>,
    status: Option<String>,
}

impl EventFilter {
    /// Reads the filter of a request.
    ///
    /// # Errors
    /// Returns an error if the status is none of [`STATUSES`].
    pub(super) fn of(request: &ApiRequest) -> Result<Self, AdminApiError> {
        let mut filter = EventFilter::default();
        for name in ["key", "account", "model", "provider"] {
            if let Some(value) = request.parameter(name) {
                filter.name(name, &value);
            }
        }
        if let Some(status) = request.parameter("status") {
            if !STATUSES.contains(&status.as_str()) {
                return Err(AdminApiError::field("status", format!("write one of {}", STATUSES.join(", "))));
            }
            filter.status(&status);
        }
        Ok(filter)
    }

    /// Adds a member that events must have with this value.
    pub(super) fn name(&mut self, member: &str, value: &str) {
        let mut text = Vec::new();
        json::Writer::new(&mut text).string(value);
        self.names.push(format!("\"{member}\":{}", String::from_utf8_lossy(&text)));
    }

    /// Sets the status that requests must have ended with, one of [`STATUSES`].
    pub(super) fn status(&mut self, status: &str) {
        let digit = status.chars().next().filter(char::is_ascii_digit);
        self.status =
            Some(digit.map_or_else(|| "\"error\":\"".to_owned(), |digit| format!("\"status\":{digit}")));
    }

    fn passes(&self, event: &str, has_ended: bool) -> bool {
        self.names.iter().all(|text| event.contains(text))
            && self.status.as_ref().is_none_or(|text| has_ended && event.contains(text))
    }
}

/// Targets of the gateway with their last known states.
struct TargetStates {
    api: Arc<AdminApi>,
    /// States by provider and model.
    known: BTreeMap<String, Value>,
}

/// Listener of one stream.
pub(super) struct EventStream {
    topics: Topics,
    filter: EventFilter,
    requests: Option<LiveListener>,
    /// `None` if targets are not listened to.
    targets: Option<TargetStates>,
    /// Metrics whose totals are sent, with the start of the process in Unix seconds. `None` if they are not.
    totals: Option<(Arc<Metrics>, i64)>,
    /// Returns whether the caller may still see the events.
    may_listen: MayListen,
}

/// Check of the caller of a stream.
pub(super) type MayListen = Box<dyn Fn() -> bool + Send + Sync>;

impl EventStream {
    pub(super) fn new(
        api: &Arc<AdminApi>,
        totals: Option<(Arc<Metrics>, i64)>,
        (topics, filter): (Topics, EventFilter),
        may_listen: MayListen,
    ) -> Self {
        EventStream {
            topics,
            filter,
            may_listen,
            requests: (topics.requests || topics.starts).then(|| api.live().listen()),
            targets: topics.targets.then(|| TargetStates { api: api.clone(), known: BTreeMap::new() }),
            totals: totals.filter(|_| topics.totals),
        }
    }

    /// Sends events until the client leaves, its caller may not see them any more, or the gateway ends.
    pub(super) async fn run(mut self, sender: mpsc::Sender<Bytes>) {
        // The head of the answer leaves with the first piece.
        let mut text = b": model-gateway\n\n".to_vec();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut silence = tokio::time::interval(KEEP_ALIVE);
        silence.tick().await;
        loop {
            if !text.is_empty() {
                let piece = Bytes::copy_from_slice(&text);
                text.clear();
                if sender.send_timeout(piece, WRITE_TIMEOUT).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                event = next(&mut self.requests) => {
                    let Some(event) = event else { return };
                    self.push(event, &mut text);
                    self.gather(&mut text).await;
                }
                _ = look.tick() => {
                    if !(self.may_listen)() {
                        return;
                    }
                    self.changed_targets(&mut text);
                    if let Some((metrics, started)) = &self.totals {
                        push_event(&mut text, "totals", &totals_json(metrics, *started).to_string());
                    }
                }
                _ = silence.tick() => text.extend_from_slice(b": \n\n"),
                () = sender.closed() => return,
            }
        }
    }

    /// Adds the events that come within [`GATHER`]. A write for each event would cost more than all of it else.
    async fn gather(&mut self, text: &mut Vec<u8>) {
        tokio::time::sleep(GATHER).await;
        while text.len() < MAX_PIECE {
            let Some(event) = self.requests.as_mut().and_then(LiveListener::next_ready) else { return };
            self.push(event, text);
        }
    }

    /// Adds an event of requests if the listener has chosen it.
    fn push(&self, event: LiveEvent, text: &mut Vec<u8>) {
        match event {
            LiveEvent::Request(event) if self.topics.requests && self.filter.passes(&event, true) => {
                push_event(text, "request", &event);
            }
            LiveEvent::Start(event) if self.topics.starts && self.filter.passes(&event, false) => {
                push_event(text, "request_start", &event);
            }
            LiveEvent::Lost(count) => push_event(text, "lost", &format!("{{\"requests\":{count}}}")),
            LiveEvent::Request(_) | LiveEvent::Start(_) => {}
        }
    }

    /// Adds an event for each target whose state has changed since the last look; at first for each target.
    fn changed_targets(&mut self, text: &mut Vec<u8>) {
        let Some(TargetStates { api, known }) = &mut self.targets else { return };
        let mut now = BTreeMap::new();
        for (name, target) in targets::list(api) {
            let state = target.get("state").cloned().unwrap_or_default();
            if known.get(&name) != Some(&state) {
                push_event(text, "target", &target.to_string());
            }
            now.insert(name, state);
        }
        *known = now;
    }
}

async fn next(listener: &mut Option<LiveListener>) -> Option<LiveEvent> {
    match listener {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}

/// Adds an event. The data has no line break.
fn push_event(text: &mut Vec<u8>, name: &str, data: &str) {
    for part in ["event: ", name, "\ndata: ", data, "\n\n"] {
        text.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use observe::metrics::access_log::Line;
    use observe::metrics::live::LiveRequests;

    /// A console whose browser does not read: what waits for it is bounded, and what is lost is counted.
    #[tokio::test]
    async fn event_stream_whose_reader_does_not_read_holds_a_bounded_number_of_events() {
        const EVENTS: usize = 20_000;
        let live = Arc::new(LiveRequests::default());
        let topics = Topics { requests: true, starts: false, targets: false, totals: false };
        let requests = Some(live.listen());
        let stream = EventStream {
            topics,
            filter: EventFilter::default(),
            requests,
            targets: None,
            totals: None,
            may_listen: Box::new(|| true),
        };
        let (sender, mut received) = mpsc::channel(4);
        let task = tokio::spawn(stream.run(sender));
        // Far more than the stream takes until it waits for its reader.
        for number in 0..EVENTS {
            live.publish(&Line { request_id: "r", ..Line::default() });
            if number % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let (mut events, mut lost) = (0, 0);
        while events + lost < EVENTS {
            let piece = received.recv().await.unwrap();
            for event in std::str::from_utf8(&piece).unwrap().split_terminator("\n\n") {
                if event.starts_with("event: request\n") {
                    events += 1;
                } else if let Some(count) = event.strip_prefix("event: lost\ndata: {\"requests\":") {
                    lost += count.trim_end_matches('}').parse::<usize>().unwrap();
                }
            }
        }
        assert!(events < 5_000 && lost > 0, "{events} events waited, {lost} were lost");
        drop(received);
        task.await.unwrap();
        assert!(!live.has_listeners());
    }

    #[test]
    fn event_filter_compares_whole_values() {
        let event = r#"{"request_id":"r","status":429,"error":"limit","key":"ci \"key\":\"x\"","model":"m"}"#;
        let passes = |member: &str, value: &str| {
            let mut filter = EventFilter::default();
            filter.name(member, value);
            filter.passes(event, true)
        };
        assert!(passes("model", "m") && passes("key", "ci \"key\":\"x\""));
        assert!(
            !passes("model", "") && !passes("key", "ci") && !passes("key", "x") && !passes("account", "m")
        );
        for (status, expected) in [("4xx", true), ("5xx", false), ("error", true)] {
            let mut filter = EventFilter::default();
            filter.status(status);
            assert_eq!(
                (filter.passes(event, true), filter.passes(event, false)),
                (expected, false),
                "{status}"
            );
        }
    }
}
