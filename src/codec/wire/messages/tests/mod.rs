//! Tests of the messages format, from the view of its clients and providers.
//!
//! [`client`] reads streams as the official SDKs do. The tests are grouped by subject. The facts, needs of clients and
//! mapping rows under test are in docs/provider-facts.md and docs/mapping.md.

mod answer;
mod arguments;
mod breakpoints;
mod citations;
mod client;
mod conversation;
mod media;
mod overlap;
mod parameters;
mod random;
mod request_read;
mod schema;
mod stream_read;
mod stream_write;
mod tools;

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::stream::{Decoder, Encoder};
use crate::canonical::dialect::ReasoningSupport;
use crate::canonical::{Answer, Dialect, Effort, Event, Grammar, Request};
use crate::wire::Format;
use crate::wire::codec::{CutText, LossNotes, ReplyOptions};
use json::{EscapedString, RopeBuilder};

/// Returns the encoder options of the tests.
fn reply() -> ReplyOptions {
    ReplyOptions {
        model: EscapedString::from("claude"),
        request: "req_1".into(),
        seed: "req_1".into(),
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    }
}

/// Returns the dialect of a provider without restrictions.
fn dialect() -> Dialect<'static> {
    Dialect {
        reasoning: ReasoningSupport::adaptive(Effort::Max, true),
        prefill: true,
        reasoning_replay: true,
        ..Dialect::plain("claude-sonnet", "provider")
    }
}

/// Returns the dialect of a provider whose models have a reasoning budget.
fn by_budget() -> Dialect<'static> {
    Dialect { reasoning: ReasoningSupport::Budget { min: 1024, max: 32_000, off: true }, ..dialect() }
}

/// Decodes frames, checks the event grammar, and calls `each` for every event.
fn read_each(frames: &[&str], mut each: impl FnMut(&Event<'_>)) -> Result<(), CutText> {
    let mut grammar = Grammar::default();
    let mut decoder = Decoder::new("req_1");
    let mut sink = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        each(&event);
    };
    for frame in frames {
        decoder.frame(frame, &mut sink).unwrap();
    }
    decoder.finish(&mut sink)
}

/// Decodes frames into a response.
fn read(frames: &[&str]) -> Answer {
    let mut answer = Answer::default();
    read_each(frames, |event| answer.take(event)).unwrap();
    answer
}

/// Encodes events as a stream.
fn write(reply: ReplyOptions, events: &[Event<'_>]) -> String {
    let mut grammar = Grammar::default();
    let mut encoder = Encoder::new(Arc::new(reply));
    let mut out = BytesMut::new();
    for event in events {
        grammar.check(event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        encoder.event(event, &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

/// Decodes a stream and encodes it again.
fn rewrite(frames: &[&str]) -> String {
    let mut encoder = Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    read_each(frames, |event| encoder.event(event, &mut out)).unwrap();
    String::from_utf8(out.to_vec()).unwrap()
}

/// Encoded request, its losses and its refusal.
struct Sent {
    body: Value,
    raw: String,
    losses: Vec<String>,
    refused: Option<String>,
}

/// Encodes a request that came in a format.
fn send(from: Format, request: &Request<'_>, dialect: &Dialect<'_>) -> Sent {
    let mut notes = LossNotes::new(from, Format::Messages);
    let mut out = RopeBuilder::default();
    super::request::encode(request, dialect, &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let raw = String::from_utf8(out.to_vec()).unwrap();
    Sent {
        body: serde_json::from_str(&raw).unwrap_or_else(|error| panic!("{error}: {raw}")),
        raw,
        losses: notes.losses().iter().map(|loss| loss.element.to_string()).collect(),
        refused: notes.take_refusal().and_then(|error| error.param).map(|param| param.to_string()),
    }
}

/// Encodes a request of this format, as if it came from a client of another format.
fn send_as(from: Format, body: &str, dialect: &Dialect<'_>) -> Sent {
    send(from, &super::request::decode(body).unwrap(), dialect)
}
