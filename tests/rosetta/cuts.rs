//! Streams that are truncated at every byte, in all pairs of formats: a client never receives an incomplete response
//! that looks complete.

use std::path::Path;

use bytes::Bytes;
use model_gateway::translate::verbatim::{Arrival, Changes, StreamError};
use model_gateway::translate::{Exchange, Verbatim};
use model_gateway::wire::Format;
use model_gateway::wire::error::{ProviderError, from_provider};

use crate::route::{Way, pairs, text};

/// Golden cases with text, reasoning and tool calls.
const CASES: [&str; 3] = ["plain", "reasoning", "tools"];

fn stream(case: &str, format: Format) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case);
    std::fs::read_to_string(folder.join(format!("answer.{format}.sse"))).ok()
}

/// Returns the offset, in bytes, from which the response is complete: after the data of its final frame.
fn complete_at(format: Format, stream: &str) -> usize {
    let ends = |data: &str| match format {
        Format::Chat => data.contains("\"finish_reason\":\""),
        Format::Messages => data.contains("\"type\":\"message_stop\""),
        Format::Responses => ["completed", "incomplete"]
            .iter()
            .any(|end| data.contains(&format!("\"type\":\"response.{end}\""))),
        Format::Generate => data.contains("\"finishReason\":"),
        // Only usage follows.
        Format::Converse => data.contains("{\"messageStop\":"),
    };
    let mut at = 0;
    let mut found = None;
    for line in stream.split_inclusive('\n') {
        let end = at + line.trim_end().len();
        if line.strip_prefix("data:").is_some_and(|data| ends(&data.replace("\": ", "\":"))) {
            found = Some(end);
        }
        at += line.len();
    }
    found.unwrap_or_else(|| panic!("{format} has no end: {stream}"))
}

/// Passes a truncated stream to a client of the same format. Returns the output, and whether it looks complete.
fn pass_on(format: Format, stream: &[u8]) -> (String, bool) {
    let verbatim = Verbatim::new(format.api(), Arrival::Events, Changes::default(), 1 << 24);
    let mut exchange = Exchange::Verbatim(verbatim);
    let mut out = Vec::new();
    let mut feed = || -> Result<(), StreamError> {
        out.extend_from_slice(&exchange.feed(Bytes::copy_from_slice(stream))?);
        out.extend_from_slice(&exchange.finish()?);
        Ok(())
    };
    let ended = feed();
    if ended.is_err() {
        let error = from_provider(
            500,
            ProviderError { message: "cut off".to_owned(), ..ProviderError::default() },
            None,
        );
        out.extend_from_slice(&exchange.fail(format, &error, "req_1"));
    }
    // The error is a message of an event stream, behind text: see `route::text`.
    let at = out.iter().position(|byte| *byte == 0).unwrap_or(out.len());
    (text(format, &out[..at]) + &text(format, &out[at..]), ended.is_ok())
}

/// Whether a stream ends with an error that every SDK of its format raises, and has no regular end.
fn ends_with_an_error(client: Format, text: &str) -> bool {
    let events: Vec<&str> = text.split("\n\n").flat_map(|part| part.split("\r\n\r\n")).collect();
    let events: Vec<&str> = events.into_iter().map(str::trim).filter(|event| !event.is_empty()).collect();
    let [.., last] = &events[..] else { return false };
    match client {
        Format::Chat => last.starts_with("data: {\"error\"") && !text.contains("data: [DONE]"),
        Format::Messages => last.starts_with("event: error\n") && !text.contains("event: message_stop"),
        Format::Responses => {
            (last.contains("\"type\":\"error\"") || last.starts_with("event: response.failed\n"))
                && !text.contains("event: response.completed")
                && !text.contains("event: response.incomplete")
        }
        Format::Generate => last.starts_with("data: {\"error\""),
        Format::Converse => last.contains("Exception\":{\"message\""),
    }
}

#[test]
fn truncated_stream_at_any_byte_never_looks_complete() {
    let mut cuts = 0;
    for case in CASES {
        for (provider, client) in pairs() {
            let Some(stream) = stream(case, provider) else { continue };
            let complete = complete_at(provider, &stream);
            let pass = |cut: usize| {
                let piece = &stream.as_bytes()[..cut];
                if provider == client {
                    return pass_on(provider, piece);
                }
                let (text, ended) = Way::streamed(provider, client).pass(&[piece]);
                (text, ended.is_ok())
            };
            let (_, whole) = pass(stream.len());
            assert!(whole, "{case}, {provider} to {client}");
            for cut in 0..=stream.len() {
                let (text, looks_complete) = pass(cut);
                let what = format!("{case}, {provider} to {client}, {cut} of {} bytes", stream.len());
                if cut < complete {
                    assert!(!looks_complete, "{what}: {text}");
                }
                if !looks_complete {
                    assert!(ends_with_an_error(client, &text), "{what}: {text}");
                }
                cuts += 1;
            }
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 20_000, "only {cuts} cuts");
}
