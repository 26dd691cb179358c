//! Response of the playground as server-sent events, each with the time since the request.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::body::WRITE_TIMEOUT;
use super::control::PlaygroundPart;

/// Passes a response on until its end, or until the client leaves, which ends the request.
pub(super) async fn run(mut parts: mpsc::Receiver<PlaygroundPart>, sender: mpsc::Sender<Bytes>) {
    let began = Instant::now();
    let mut utf8 = PartialText::default();
    loop {
        let part = tokio::select! {
            part = parts.recv() => part,
            () = sender.closed() => return,
        };
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (event, is_last) = match part {
            Some(PlaygroundPart::Head(status, headers)) => {
                (event_of("head", &json!({ "ms": ms, "status": status, "headers": shown(&headers) })), false)
            }
            Some(PlaygroundPart::Body(piece)) => {
                (event_of("body", &json!({ "ms": ms, "text": utf8.push(&piece) })), false)
            }
            Some(PlaygroundPart::End) => (event_of("end", &json!({ "ms": ms, "complete": true })), true),
            None => (event_of("end", &json!({ "ms": ms, "complete": false })), true),
        };
        if sender.send_timeout(event, WRITE_TIMEOUT).await.is_err() || is_last {
            return;
        }
    }
}

fn event_of(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Returns headers as an object.
fn shown(headers: &HeaderMap) -> Map<String, Value> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value).into())).collect()
}

/// Text that arrives in pieces, which may end inside of a character.
#[derive(Debug, Default)]
struct PartialText(Vec<u8>);

impl PartialText {
    /// Returns the complete characters so far. Bytes that are no UTF-8 become replacement characters.
    fn push(&mut self, piece: &[u8]) -> String {
        self.0.extend_from_slice(piece);
        let open = match std::str::from_utf8(&self.0) {
            // The last character is incomplete.
            Err(error) if error.error_len().is_none() => self.0.split_off(error.valid_up_to()),
            _ => Vec::new(),
        };
        let whole = std::mem::replace(&mut self.0, open);
        String::from_utf8_lossy(&whole).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_cut_inside_of_a_character_is_completed_by_the_next_piece() {
        let text = "größer €";
        for cut in 0..=text.len() {
            let (mut partial, (one, two)) = (PartialText::default(), text.as_bytes().split_at(cut));
            assert_eq!(partial.push(one) + &partial.push(two), text, "{cut}");
        }
        assert_eq!(PartialText::default().push(b"a\xffb"), "a\u{fffd}b");
    }
}
