//! The provider's side of a socket: makes an event of a request body, and server-sent events of the provider's events.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::server::{end_of, is_steered};
use super::steering::SteerEvent;
use crate::wire::watch::named_members;
use json::{Cursor, RawJson};

/// Start of the event that requests a response; the members of the body follow.
const CREATE: &[u8] = br#"{"type":"response.create","#;

/// Conversation that a provider's socket holds up to a response, so that a request can continue it with its new input.
#[derive(Clone, Debug)]
pub struct HeldConversation {
    /// Id of the response, as it is written in JSON.
    pub id: Box<str>,
    /// Items up to the response, as they stand in the body of the request, with the comma behind them.
    pub history: Vec<Bytes>,
    /// Length of what follows them in the body, in bytes: the new items and the end of the body.
    pub rest: usize,
}

impl HeldConversation {
    /// Returns the body without the items that the socket holds, in pieces; `None` if edits have changed the items, or
    /// what follows them.
    pub fn shorten(&self, body: &[Bytes]) -> Option<Vec<Bytes>> {
        let total: usize = body.iter().map(Bytes::len).sum();
        let held: usize = self.history.iter().map(Bytes::len).sum();
        let start = total.checked_sub(self.rest)?.checked_sub(held)?;
        let mut found = bytes_from(body, start.checked_sub(1)?);
        if found.next() != Some(b'[') || !is_prefix(body, start, &self.history) {
            return None;
        }
        let mut id = BytesMut::with_capacity(self.id.len() + 32);
        id.put_slice(br#"{"previous_response_id":""#);
        id.put_slice(self.id.as_bytes());
        id.put_slice(br#"","#);
        let mut pieces = vec![id.freeze()];
        let mut at = 0;
        for piece in body {
            // Behind the opening brace, up to the items; then from their end.
            for (from, to) in [(1, start), (start + held, total)] {
                let from = from.max(at) - at;
                let to = to.min(at + piece.len()).saturating_sub(at);
                if from < to {
                    pieces.push(piece.slice(from..to));
                }
            }
            at += piece.len();
        }
        Some(pieces)
    }
}

fn bytes_from(body: &[Bytes], start: usize) -> impl Iterator<Item = u8> {
    let mut skip = start;
    body.iter().flat_map(move |piece| {
        let from = skip.min(piece.len());
        skip -= from;
        piece.get(from..).unwrap_or_default().iter().copied()
    })
}

/// Returns whether the body has these pieces at this place.
fn is_prefix(body: &[Bytes], start: usize, pieces: &[Bytes]) -> bool {
    let mut skip = start;
    let mut rest = body.iter().filter_map(|piece| {
        let from = skip.min(piece.len());
        skip -= from;
        piece.get(from..).filter(|piece| !piece.is_empty())
    });
    let mut have: &[u8] = &[];
    for mut wanted in pieces.iter().map(|piece| &piece[..]) {
        while !wanted.is_empty() {
            if have.is_empty() {
                let Some(next) = rest.next() else { return false };
                have = next;
            }
            let length = wanted.len().min(have.len());
            let ((one, wanted_rest), (other, have_rest)) = (wanted.split_at(length), have.split_at(length));
            if one != other {
                return false;
            }
            (wanted, have) = (wanted_rest, have_rest);
        }
    }
    true
}

/// Returns the event that requests a response, made of the body of the POST. `None` if the body is not an object.
pub fn create_event(body: &[Bytes]) -> Option<Bytes> {
    let length: usize = body.iter().map(Bytes::len).sum();
    let mut out = BytesMut::with_capacity(CREATE.len() + length);
    out.put_slice(CREATE);
    let mut has_begun = false;
    for piece in body {
        let mut piece = &piece[..];
        if !has_begun {
            piece = piece.trim_ascii_start();
            if piece.is_empty() {
                continue;
            }
            piece = piece.strip_prefix(b"{")?;
            has_begun = true;
        }
        out.put_slice(piece);
    }
    has_begun.then(|| out.freeze())
}

/// Event of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderEvent<'a> {
    /// A part of the response.
    Part,
    /// The beginning of a response, with its id as it is written in JSON; empty if it has none.
    Created(&'a str),
    /// The end of the response.
    End {
        /// Its id, as it is written in JSON; empty if it has none.
        id: &'a str,
        /// Whether it has ended for the input of a `response.steer`: a successor follows.
        is_steered: bool,
    },
    /// An answer to `response.steer`.
    Steer(SteerEvent),
    /// The response has failed, and cannot be continued.
    Failed,
    /// The request was refused with a status, as over HTTP.
    Refused(Refusal<'a>),
    /// A statement about the account of the gateway at the provider, such as `codex.rate_limits`: it does not concern
    /// the client.
    Account,
}

/// Error event with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// HTTP status.
    pub status: u16,
    /// Error code; empty if there is none.
    pub code: &'a str,
    /// The `error` object.
    pub error: RawJson<'a>,
    /// The `headers` object; null if there is none.
    pub headers: RawJson<'a>,
}

impl Refusal<'_> {
    /// Returns the body of the HTTP error response.
    pub fn body(&self) -> Bytes {
        Bytes::from([br#"{"error":"#, self.error.text().as_bytes(), b"}"].concat())
    }

    /// Returns the headers whose value is a string or a number; none after an invalid one.
    pub fn headers(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let mut found = Vec::new();
        let mut json = Cursor::new(self.headers.text());
        if !self.headers.text().starts_with('{') || json.begin_object().is_err() {
            return found;
        }
        while let Ok(Some(name)) = json.next_key() {
            let Ok(value) = json.raw() else { break };
            match value.as_str() {
                Some(value) => found.push((name.decode(), value.decode())),
                None if value.as_u64().is_some() => found.push((name.decode(), value.text().into())),
                None => {}
            }
        }
        found
    }
}

/// Reads an event, and returns its type too. `None` if it is not a JSON object with a type.
pub fn read_event(text: &str) -> Option<(&str, ProviderEvent<'_>)> {
    let kind = event_type(text)?;
    let event = match kind {
        "response.created" => ProviderEvent::Created(end_of(text, false).map_or("", |(id, _)| id)),
        "response.completed" | "response.incomplete" => ProviderEvent::End {
            id: end_of(text, false).map_or("", |(id, _)| id),
            is_steered: kind == "response.incomplete" && is_steered(text),
        },
        "response.failed" => ProviderEvent::Failed,
        "error" => {
            let names = ["status", "status_code", "error", "headers"];
            let [status, status_code, error, headers] =
                named_members(RawJson::from_text(text), names).ok()?;
            let status = status.or(status_code).and_then(|status| status.text().parse().ok());
            let refused = status.filter(|status| (400..=599).contains(status)).zip(error);
            match refused {
                Some((status, error)) if error.text().starts_with('{') => {
                    let [code] = named_members(error, ["code"]).ok()?;
                    let code = code.and_then(RawJson::as_str).map_or("", |code| code.escaped());
                    let headers = headers.unwrap_or(RawJson::NULL);
                    ProviderEvent::Refused(Refusal { status, code, error, headers })
                }
                _ => ProviderEvent::Failed,
            }
        }
        account if account.starts_with("codex.") => ProviderEvent::Account,
        _ => SteerEvent::read(kind, text).map_or(ProviderEvent::Part, ProviderEvent::Steer),
    };
    Some((kind, event))
}

/// Returns the type of an event. It is the first member of nearly all.
fn event_type(text: &str) -> Option<&str> {
    let first = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"'));
    if let Some((kind, _)) = first
        // A line break would end the field of the server-sent event.
        && !kind.contains(['\\', '\n', '\r'])
    {
        return Some(kind);
    }
    let [kind] = named_members(RawJson::from_text(text), ["type"]).ok()?;
    kind.and_then(RawJson::as_str).map(|kind| kind.escaped())
}

/// Appends an event as a server-sent event.
pub fn put_server_sent(kind: &str, text: &str, out: &mut BytesMut) {
    out.reserve(kind.len() + text.len() + 17);
    out.put_slice(b"event: ");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\ndata: ");
    let start = out.len();
    out.put_slice(text.as_bytes());
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        // A line break would end the field. In JSON it can only stand between tokens.
        for byte in out.get_mut(start..).unwrap_or_default() {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    out.put_slice(b"\n\n");
}
