//! Server-sent events as the gateway sends them.

use super::client::Client;
use super::http1::Piece;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {:?}", self.data))
    }
}

/// Parses a stream. Panics if bytes follow the last blank line.
pub(crate) fn events(text: &str) -> Vec<Event> {
    let text = text.replace("\r\n", "\n");
    let mut events = Vec::new();
    let mut rest = text.as_str();
    while let Some((block, after)) = rest.split_once("\n\n") {
        rest = after;
        let mut event = Event::default();
        let mut data = Vec::new();
        for line in block.lines() {
            if let Some(value) = line.strip_prefix("data:") {
                data.push(value.strip_prefix(' ').unwrap_or(value));
            } else if let Some(value) = line.strip_prefix("event:") {
                event.name = value.trim().to_owned();
            }
        }
        event.data = data.join("\n");
        if !data.is_empty() {
            events.push(event);
        }
    }
    assert!(rest.is_empty(), "half an event: {rest:?}");
    events
}

/// Returns the events that carry content, that is, all except `ping`.
pub(crate) fn told(stream: &str) -> Vec<Event> {
    events(stream).into_iter().filter(|event| event.name != "ping").collect()
}

/// Reads a stream until `needle` appears in it or it ends.
pub(crate) async fn read_until(client: &mut Client, seen: &mut Vec<u8>, needle: &str) {
    while memchr::memmem::find(seen, needle.as_bytes()).is_none() {
        match client.piece().await {
            Piece::Data(piece) => seen.extend_from_slice(&piece),
            end => panic!("{end:?} before {needle:?} in {:?}", String::from_utf8_lossy(seen)),
        }
    }
}
