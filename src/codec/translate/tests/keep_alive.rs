//! Keep-alive filler of an idle stream is between frames and does not change the data.

use std::sync::Arc;

use bytes::Bytes;

use super::streams::{self, Style};
use crate::translate::translated::Route;
use crate::translate::verbatim::{Arrival, Changes};
use crate::translate::{Exchange, Restore, Translated, Verbatim};
use crate::wire::codec::ReplyOptions;
use crate::wire::{Format, filler};
use framing::sse::SseEvent;
use framing::{Splitter, sse::SseSplitter};

/// Returns what a client reads: the data of all events.
fn data(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::Sse(SseSplitter::default());
    let (mut found, mut from, mut scratch) = (Vec::new(), 0, Vec::new());
    while let Some(end) = splitter.next_boundary(stream, from) {
        let event = SseEvent::parse(&stream[from..end], &mut scratch);
        if let Some(data) = event.data.filter(|_| event.name != Some(b"ping")) {
            found.push(data.to_vec());
        }
        from = end;
    }
    found
}

/// Passes a stream in pieces of one size, with or without filler wherever it is allowed.
fn passed(mut exchange: Exchange, text: &str, size: usize, filled: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in super::pieces(text.as_bytes(), &[size]) {
        out.extend_from_slice(&exchange.feed(Bytes::copy_from_slice(piece)).unwrap());
        if filled {
            out.extend_from_slice(&exchange.keep_alive());
        }
    }
    out.extend_from_slice(&exchange.finish().unwrap());
    assert!(exchange.keep_alive().is_empty() || ends_open(&exchange), "filler behind the end");
    out
}

/// A stream in a format without a terminator stays open for ever.
fn ends_open(exchange: &Exchange) -> bool {
    exchange.meter().end() == crate::wire::watch::StreamEnd::Open
}

#[test]
fn filler_stands_between_frames_of_a_verbatim_stream() {
    for answer in Style::few().into_iter().flat_map(streams::all) {
        let pass = |size, filled| {
            let verbatim = Verbatim::new(answer.api, answer.arrival, Changes::default(), 1 << 20);
            passed(Exchange::Verbatim(verbatim), &answer.text, size, filled)
        };
        for size in [1, 3, 50, 1 << 20] {
            let (plain, filled) = (pass(size, false), pass(size, true));
            if answer.arrival == Arrival::Array {
                let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
                assert_eq!(read(&filled), read(&plain), "{answer:?}");
            } else {
                assert_eq!(data(&filled), data(&plain), "{answer:?} in pieces of {size}");
            }
        }
    }
}

#[test]
fn filler_stands_between_frames_of_a_translated_stream() {
    for answer in streams::all(Style::PLAIN).into_iter().filter(|answer| answer.arrival == Arrival::Events) {
        let Some(provider) = answer.api.format() else { continue };
        for client in
            Format::ALL.into_iter().filter(|client| *client != provider && !filler(*client).is_empty())
        {
            let pass = |size, filled| {
                let route = Route { client, provider, stream: true };
                let reply = Arc::new(ReplyOptions::default());
                let translated = Translated::new(&route, answer.arrival, reply, Restore::default(), 1 << 20);
                passed(Exchange::Translated(Box::new(translated)), &answer.text, size, filled)
            };
            for size in [1, 50] {
                let (plain, filled) = (pass(size, false), pass(size, true));
                assert!(filled.len() > plain.len() + 5 * filler(client).len(), "{client}");
                assert_eq!(data(&filled), data(&plain), "{provider} to {client} in pieces of {size}");
            }
        }
    }
}

#[test]
fn filler_is_empty_for_a_whole_response() {
    for format in Format::ALL {
        let verbatim = Verbatim::new(format.api(), Arrival::Whole, Changes::default(), 1 << 20);
        assert!(Exchange::Verbatim(verbatim).keep_alive().is_empty(), "{format}");
        let provider = if format == Format::Chat { Format::Messages } else { Format::Chat };
        let route = Route { client: format, provider, stream: false };
        let reply = Arc::new(ReplyOptions::default());
        let translated = Translated::new(&route, Arrival::Events, reply, Restore::default(), 1 << 20);
        assert!(Exchange::Translated(Box::new(translated)).keep_alive().is_empty(), "{format}");
    }
}
