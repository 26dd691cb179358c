//! Tests of the Converse format, from the view of its clients and providers.

mod citations;
mod request_read;
mod request_write;
mod stream_read;
mod stream_write;

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::stream::{Decoder, Encoder};
use crate::canonical::dialect::ReasoningSupport;
use crate::canonical::{Answer, Dialect, Event, Grammar, Request};
use crate::wire::Format;
use crate::wire::codec::{CutText, LossNotes, ReplyOptions};
use framing::event_stream::EventMessage;
use json::{EscapedString, RopeBuilder};

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

/// Returns the dialect of a model with a reasoning budget.
fn dialect() -> Dialect<'static> {
    Dialect {
        reasoning: ReasoningSupport::Budget { min: 1_024, max: 32_000, off: true },
        prefill: true,
        system_in_middle: false,
        media_urls: false,
        ..Dialect::plain("anthropic.claude-sonnet-4-5", "provider")
    }
}

/// Decodes frames and checks the event grammar.
fn read(frames: &[&str]) -> Result<Answer, CutText> {
    let (mut grammar, mut answer, mut decoder) =
        (Grammar::default(), Answer::default(), Decoder::new("req_1"));
    let mut sink = |event: Event<'_>| {
        grammar.check(&event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        answer.take(&event);
    };
    for frame in frames {
        decoder.frame(frame, &mut sink).unwrap();
    }
    decoder.finish(&mut sink)?;
    Ok(answer)
}

/// Splits an event stream: the name of each event, and its payload.
fn messages(mut stream: &[u8]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while !stream.is_empty() {
        let length = u32::from_be_bytes(stream[..4].try_into().unwrap()) as usize;
        let message = EventMessage::parse(&stream[..length]).unwrap();
        assert_eq!(message.text(":content-type"), Some("application/json"));
        let kind = message.text(":message-type").unwrap();
        let name = message.text(&format!(":{kind}-type")).unwrap().to_owned();
        all.push((name, serde_json::from_slice(message.payload()).unwrap()));
        stream = &stream[length..];
    }
    all
}

/// Encodes events as a stream.
fn write(events: &[Event<'_>]) -> Vec<(String, Value)> {
    let mut grammar = Grammar::default();
    let mut encoder = Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    for event in events {
        grammar.check(event).unwrap_or_else(|fault| panic!("{fault}: {event:?}"));
        encoder.event(event, &mut out);
    }
    messages(&out)
}

/// Encoded request, its losses and its refusal.
struct Sent {
    body: Value,
    losses: Vec<String>,
    refused: Option<String>,
}

/// Encodes a request that came in a format.
fn send(from: Format, request: &Request<'_>, dialect: &Dialect<'_>) -> Sent {
    let mut notes = LossNotes::new(from, Format::Converse);
    let mut out = RopeBuilder::default();
    super::request::encode(request, dialect, &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    Sent {
        body: serde_json::from_slice(&out).unwrap(),
        losses: notes.losses().iter().map(|loss| loss.element.to_string()).collect(),
        refused: notes.take_refusal().and_then(|error| error.param).map(|param| param.to_string()),
    }
}

/// Encodes a request of this format, as if it came from a client of another format.
fn send_as(from: Format, body: &str, dialect: &Dialect<'_>) -> Sent {
    send(from, &super::request::decode(body).unwrap(), dialect)
}
