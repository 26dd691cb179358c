//! Recorded provider traffic, passed through the verbatim exchange and the reader of request bodies: no byte changes,
//! and the facts that the meter notes equal those that a plain JSON parser finds.
//!
//! The recordings are not part of this repository. Their folder is GATEWAY_CAPTURES, or else ../shared/captures.
//! Without recordings the tests print SKIPPED.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "captures/bedrock.rs"]
mod bedrock;
#[path = "captures/errors.rs"]
mod errors;
#[path = "captures/invoke.rs"]
mod invoke;
#[path = "captures/naive.rs"]
mod naive;
#[path = "captures/own_format.rs"]
mod own_format;
#[path = "captures/recording.rs"]
mod recording;

use bytes::Bytes;
use model_gateway::error::ErrorKind;
use model_gateway::json::EscapedString;
use model_gateway::translate::verbatim::{Arrival, Changes};
use model_gateway::translate::{StreamError, Verbatim};
use model_gateway::wire::error::{ProviderError, from_provider};
use model_gateway::wire::overflow::restate;
use model_gateway::wire::request::BodyReader;
use model_gateway::wire::{Api, Format};
use recording::{Answer, Recording};
use serde_json::Value;

const MAX_FRAME: usize = 64 << 20;
/// Piece sizes, in bytes. Size 1 only for texts up to `SMALL`.
const SPLITS: [usize; 6] = [usize::MAX, 1, 7, 61, 1_021, 16_384];
const SMALL: usize = 48 << 10;
const RENAMED: &str = "the \"client's\" model";

/// Returns all recordings; none if the folder is missing.
fn recordings() -> Vec<Recording> {
    recording::all().unwrap_or_default()
}

fn pieces(text: &Bytes, size: usize) -> impl Iterator<Item = Bytes> + '_ {
    let size = size.min(text.len().max(1));
    (0..text.len()).step_by(size).map(move |at| text.slice(at..text.len().min(at + size)))
}

fn splits(text: &Bytes) -> impl Iterator<Item = usize> + use<> {
    let small = text.len() <= SMALL;
    SPLITS.into_iter().filter(move |size| small || *size != 1)
}

/// Passes a stream in pieces. Returns the output, the outcome, and the exchange with its meter.
fn pass(
    api: Api,
    arrival: Arrival,
    changes: Changes,
    text: &Bytes,
    size: usize,
) -> (Vec<u8>, Result<(), StreamError>, Verbatim) {
    let mut exchange = Verbatim::new(api, arrival, changes, MAX_FRAME);
    let mut out = Vec::new();
    for piece in pieces(text, size) {
        match exchange.feed(piece) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => return (out, Err(error), exchange),
        }
    }
    let end = exchange.finish().map(|tail| out.extend_from_slice(&tail));
    (out, end, exchange)
}

fn streams(recordings: &[Recording]) -> impl Iterator<Item = (&Recording, Arrival, &Bytes)> {
    recordings.iter().filter_map(|recording| match &recording.answer {
        Answer::Events(text) => Some((recording, Arrival::Events, text)),
        Answer::Array(text) => Some((recording, Arrival::Array, text)),
        Answer::Whole(_) => None,
    })
}

#[test]
fn recorded_stream_passes_unchanged() {
    let all = recordings();
    let mut faults = Vec::new();
    for (recording, arrival, text) in streams(&all) {
        let name = &recording.name;
        let expected = naive::stream(recording.api, arrival, text);
        for size in splits(text) {
            let (out, end, exchange) = pass(recording.api, arrival, Changes::default(), text, size);
            if expected.begins_with_error {
                assert!(matches!(end, Err(StreamError::FirstFrame(_))), "{name}, {size}: {end:?}");
                assert!(out.is_empty(), "{name}, {size}: something left before the error");
                continue;
            }
            assert_eq!(end.is_ok(), expected.complete, "{name}, {size}: {end:?}");
            let same = out == text[..expected.passing] || {
                // The gateway terminates a last event that lacks its blank line.
                expected.unterminated && out.strip_suffix(b"\n\n") == Some(&text[..])
            };
            assert!(same, "{name}, {size}: {} bytes in, {} out", text.len(), out.len());
            faults.extend(
                expected.notes.differ(exchange.meter()).map(|fault| format!("{name}, {size}: {fault}")),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn recorded_stream_changes_only_its_model() {
    let all = recordings();
    for (recording, arrival, text) in streams(&all) {
        let expected = naive::stream(recording.api, arrival, text);
        if expected.begins_with_error {
            continue;
        }
        let model = Some(EscapedString::from(RENAMED));
        let (out, ..) = pass(recording.api, arrival, Changes { model, ..Changes::default() }, text, 1_021);
        let before = naive::frames(arrival, &text[..expected.passing]);
        let after = naive::frames(arrival, &out);
        assert_eq!(before.len(), after.len(), "{}", recording.name);
        for (before, after) in before.into_iter().zip(after) {
            let Ok(mut value) = serde_json::from_str::<Value>(&before) else {
                assert_eq!(before, after, "{}", recording.name);
                continue;
            };
            naive::rename(recording.api, &mut value, RENAMED);
            let after: Value = serde_json::from_str(&after).unwrap();
            assert!(after == value, "{}: more than the model changed", recording.name);
        }
    }
}

#[test]
fn recorded_response_passes_unchanged() {
    let mut faults = Vec::new();
    for recording in recordings() {
        let Answer::Whole(value) = &recording.answer else { continue };
        let name = &recording.name;
        for text in [serde_json::to_vec(value).unwrap(), serde_json::to_vec_pretty(value).unwrap()] {
            let text = Bytes::from(text);
            let mut exchange = Verbatim::new(recording.api, Arrival::Whole, Changes::default(), MAX_FRAME);
            let out = exchange.whole(text.clone());
            if naive::is_error(recording.api, value) {
                assert!(
                    out == Err(StreamError::FirstFrame(text)),
                    "{name}: the error is taken for an answer"
                );
                continue;
            }
            // Everything passes byte for byte, except a word that clients of the format do not know.
            let text = naive::with_known_words(recording.api, text);
            assert!(out.as_ref() == Ok(&text), "{name}: another answer");
            let noted = naive::answer(recording.api, value).differ(exchange.meter());
            faults.extend(noted.map(|fault| format!("{name}: {fault}")));

            let changes = Changes { model: Some(EscapedString::from(RENAMED)), ..Changes::default() };
            let mut renamed: Value = serde_json::from_slice(&text).unwrap();
            let out = Verbatim::new(recording.api, Arrival::Whole, changes, MAX_FRAME).whole(text).unwrap();
            naive::rename_answer(recording.api, &mut renamed, RENAMED);
            assert!(
                serde_json::from_slice::<Value>(&out).unwrap() == renamed,
                "{name}: more than the model changed"
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn recorded_request_changes_only_its_model() {
    let mut read = 0;
    let all = recordings();
    for recording in &all {
        let Some(request) = &recording.request else { continue };
        let name = &recording.name;
        let batch = request.get("requests").is_some();
        let write = |value: &Value, pretty: bool| {
            let text = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
            Bytes::from(text.unwrap())
        };
        let mut renamed = request.clone();
        naive::rename_request(recording.api, &mut renamed, RENAMED);
        for pretty in [false, true] {
            let text = write(request, pretty);
            for size in splits(&text) {
                let mut reader = BodyReader::new(recording.api, batch);
                let pushed = pieces(&text, size).try_for_each(|piece| reader.push(piece));
                let body = pushed.and_then(|()| reader.finish());
                if let Some(missing) = naive::refused(recording.api, request) {
                    assert!(body.is_err(), "{name}, {size}: {missing} is missing, and it is taken");
                    continue;
                }
                let body = body.unwrap_or_else(|error| panic!("{name}, {size}: {error:?}"));
                let named = request.get("model").and_then(Value::as_str);
                let in_path = matches!(recording.api, Api::Generate | Api::EmbedContent);
                assert_eq!(body.model.as_deref(), named.filter(|_| !in_path), "{name}, {size}");
                let stream = request.get("stream").and_then(Value::as_bool).unwrap_or(false);
                assert_eq!(body.stream, stream, "{name}, {size}");
                let mut edits = body.set_model(RENAMED);
                edits.sort_by_key(|edit| edit.range.start);
                let asked = body.requests_usage();
                let usage = body.request_usage();
                let edited = body.text.clone().edited(&edits).into_contiguous();
                assert!(edited == write(&renamed, pretty), "{name}, {size}: the body is another one");
                assert!(
                    body.text.clone().into_contiguous() == text,
                    "{name}, {size}: the text is another one"
                );
                if recording.api == Api::Chat && stream {
                    let wanted = naive::asks_usage(request);
                    assert_eq!((asked, usage.is_some()), (wanted, !wanted), "{name}, {size}");
                    let edits: Vec<_> = usage.into_iter().collect();
                    let edited = body.text.clone().edited(&edits).into_contiguous();
                    let edited: Value = serde_json::from_slice(&edited).unwrap();
                    assert!(
                        edited == naive::with_usage(request),
                        "{name}, {size}: more than usage is asked for"
                    );
                }
                read += 1;
            }
        }
    }
    assert!(all.is_empty() || read > 0, "no request was read");
}

/// Overflows among the recorded errors: the end of the file's name, and the message for clients of the messages format
/// whose model has a window of 1,000,000 tokens.
const OVERFLOWS: [(&str, &str); 4] = [
    (
        "error-matrix-context-overflow-streaming.0-10025c.json",
        "prompt is too long: 2009 tokens > 512 maximum",
    ),
    ("context-length-exceeded-errors.0-cf6c81.json", "prompt is too long: 2500021 tokens > 200000 maximum"),
    ("context-length-exceeded-errors.0-500959.json", "prompt is too long: 2119046 tokens > 1000000 maximum"),
    ("context-length-exceeded-errors.0-1ea694.json", "prompt is too long: 313836 tokens > 288000 maximum"),
];

#[test]
fn recorded_context_overflow_is_recognized_and_no_other_error() {
    let errors = errors::all();
    let mut found = 0;
    for error in &errors {
        let provider = ProviderError::decode(error.body.as_bytes());
        let mut told = from_provider(error.status, provider, None);
        let expected = OVERFLOWS.iter().find(|(name, _)| error.name.ends_with(name));
        assert_eq!(
            told.kind == ErrorKind::ContextOverflow,
            expected.is_some(),
            "{}: {}",
            error.name,
            error.body
        );
        if let Some((_, message)) = expected {
            restate(Format::Messages, &mut told, 10, Some(1_000_000));
            assert!(told.message.starts_with(&format!("{message}: ")), "{}", told.message);
            found += 1;
        }
    }
    assert!(errors.is_empty() || found > 0, "{} errors without an overflow", errors.len());
}
