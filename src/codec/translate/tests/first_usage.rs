//! Usage at the start of translated streams: for messages an estimate if the provider has not reported any, which is
//! never billed; for generate what the provider reports, or nothing.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::pieces;
use super::streams::{self, SampleResponse, Style};
use crate::canonical::Usage;
use crate::tokens::TokenizerFamily;
use crate::translate::translated::{Route, Translated};
use crate::translate::{Exchange, Restore};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use json::EscapedString;

const EXPECTED: u64 = 777;

/// Translates a response and returns the frames, and the usage that is billed.
fn through(client: Format, sample: &SampleResponse, sizes: &[usize]) -> (Vec<Value>, Usage) {
    let provider = sample.api.format().unwrap();
    let reply = ReplyOptions { model: EscapedString::from("m"), seed: "s".into(), ..ReplyOptions::default() };
    let route = Route { client, provider, stream: true };
    let translated = Translated::new(&route, sample.arrival, Arc::new(reply), Restore::default(), 1 << 20);
    let mut exchange = Exchange::Translated(Box::new(translated));
    exchange.expect(TokenizerFamily::Other, EXPECTED);
    let mut out = Vec::new();
    for piece in pieces(sample.text.as_bytes(), sizes) {
        out.extend_from_slice(&exchange.feed(Bytes::copy_from_slice(piece)).unwrap());
    }
    out.extend_from_slice(&exchange.finish().unwrap());
    exchange.complete();
    let text = String::from_utf8(out).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let frames = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    (frames, *exchange.meter().usage())
}

/// Samples of all formats, with the input tokens that the provider reports first, if it reports them first.
fn samples() -> Vec<(SampleResponse, Option<u64>)> {
    let style = Style::PLAIN;
    vec![
        (streams::chat(style), None),
        (streams::messages(style), Some(109)),
        (streams::responses(style), None),
        (streams::generate(style), None),
    ]
}

#[test]
fn messages_stream_starts_with_an_estimate_at_every_split() {
    for (sample, first) in samples() {
        let provider = sample.api.format().unwrap();
        for sizes in [&[usize::MAX][..], &[1], &[7, 300], &[61]] {
            let (frames, billed) = through(Format::Messages, &sample, sizes);
            assert_eq!(
                (billed.input, billed.output),
                (sample.usage.input, sample.usage.output),
                "{provider}"
            );
            let start = &frames[0]["message"]["usage"];
            match first {
                None if provider != Format::Generate => assert_eq!(
                    *start,
                    json!({"input_tokens": EXPECTED, "cache_creation_input_tokens": 0,
                        "cache_read_input_tokens": 0, "output_tokens": 1}),
                    "{provider}"
                ),
                _ => assert_ne!(start["input_tokens"], EXPECTED, "{provider}"),
            }
            let delta = frames.iter().rfind(|frame| frame["type"] == "message_delta").unwrap();
            let count = |name: &str| delta["usage"][name].as_u64().expect(name);
            let input = count("input_tokens")
                + count("cache_creation_input_tokens")
                + count("cache_read_input_tokens");
            assert_eq!(Some(input), billed.input, "{provider}");
            assert_eq!(Some(count("output_tokens")), billed.output, "{provider}");
        }
    }
}

#[test]
fn generate_stream_has_the_reported_input_in_each_chunk_or_in_the_last_at_every_split() {
    for (sample, first) in samples().into_iter().filter(|(sample, _)| sample.api != Format::Generate.api()) {
        for sizes in [&[usize::MAX][..], &[1], &[7, 300], &[61]] {
            let (frames, billed) = through(Format::Generate, &sample, sizes);
            assert_eq!((billed.input, billed.output), (sample.usage.input, sample.usage.output));
            let counts = |frame: &Value| frame["usageMetadata"]["promptTokenCount"].as_u64();
            let (last, before) = frames.split_last().unwrap();
            assert!(before.iter().all(|frame| counts(frame) == first), "{before:?}");
            assert_eq!(counts(last), billed.input);
        }
    }
}
