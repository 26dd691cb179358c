//! Responses with a finish reason of the provider's own: with content they are responses, without content errors.

use std::sync::Arc;

use bytes::Bytes;

use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::Arrival;
use crate::translate::{Restore, StreamError};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;

fn through(client: Format, stream: bool, frames: &[&str]) -> Result<String, StreamError> {
    let route = Route { client, provider: Format::Generate, stream };
    let reply = Arc::new(ReplyOptions { show_thinking: true, ..ReplyOptions::default() });
    let mut translated = Translated::new(&route, Arrival::Events, reply, Restore::default(), 1 << 20);
    let mut out = Vec::new();
    for frame in frames {
        out.extend_from_slice(&translated.feed(Bytes::from(format!("data: {frame}\n\n")))?);
    }
    out.extend_from_slice(&translated.finish()?);
    Ok(String::from_utf8(out).unwrap())
}

fn frame(parts: &str, finish: &str) -> String {
    let finish = if finish.is_empty() { String::new() } else { format!(r#","finishReason":"{finish}""#) };
    format!(
        r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{finish}}}],"responseId":"r"}}"#
    )
}

#[test]
fn mapping_7_unknown_finish_without_text_is_an_error_after_text_an_end() {
    let text = frame(r#"{"text":"Hi"}"#, "");
    let thought = frame(r#"{"text":"so","thought":true}"#, "");
    for reason in ["NO_IMAGE", "WHATEVER"] {
        let end = frame("", reason);
        for client in [Format::Chat, Format::Messages, Format::Responses] {
            for stream in [false, true] {
                assert!(through(client, stream, &[&text, &end]).is_ok(), "{client} {reason}");
                match through(client, stream, &[&end]) {
                    Err(StreamError::FirstFrame(error)) => {
                        let error = String::from_utf8(error.to_vec()).unwrap();
                        assert!(error.contains(reason) && error.contains("server_error"), "{error}");
                    }
                    other => panic!("{client} {stream} {reason}: {other:?}"),
                }
                // Forwarded content cannot be taken back: the stream fails.
                let failed = through(client, stream, &[&thought, &end]);
                assert!(
                    matches!(failed, Err(StreamError::FirstFrame(_) | StreamError::Failed(_))),
                    "{failed:?}"
                );
            }
        }
    }
}

#[test]
fn mapping_7_missing_signature_is_an_invalid_request() {
    let end = frame("", "MISSING_THOUGHT_SIGNATURE");
    let Err(StreamError::FirstFrame(error)) = through(Format::Chat, false, &[&end]) else { panic!() };
    assert!(String::from_utf8(error.to_vec()).unwrap().contains("invalid_request_error"));
}

#[test]
fn bug_18_empty_response_at_the_token_limit_or_filter_is_valid() {
    for reason in ["MAX_TOKENS", "SAFETY", "STOP"] {
        let end = frame("", reason);
        assert!(through(Format::Chat, true, &[&end]).is_ok(), "{reason}");
        assert!(through(Format::Messages, false, &[&end]).is_ok(), "{reason}");
    }
}

#[test]
fn response_queued_without_output_is_valid() {
    for status in ["queued", "in_progress"] {
        let body = format!(r#"{{"id":"resp_1","object":"response","status":"{status}","output":[]}}"#);
        let route = Route { client: Format::Chat, provider: Format::Responses, stream: false };
        let reply = Arc::new(ReplyOptions::default());
        let mut translated = Translated::new(&route, Arrival::Whole, reply, Restore::default(), 1 << 20);
        let answer = translated.whole(Bytes::from(body)).unwrap();
        assert!(std::str::from_utf8(&answer).unwrap().contains("\"choices\""));
    }
}
