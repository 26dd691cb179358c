//! Tests of the stream encoder: ends of streams.

use super::*;
use crate::error::{ApiError, ErrorKind};
use json::RawJson;

#[test]
fn mapping_07_status_is_encoded_for_each_finish_reason() {
    let status = |why: Finish<'static>| {
        let last = write(reply(), &said("Hi", why)).last().clone();
        let response = &last["response"];
        let details = response["incomplete_details"]["reason"].as_str().unwrap_or_default().to_owned();
        assert_eq!(last["type"], format!("response.{}", response["status"].as_str().unwrap()));
        (response["status"].as_str().unwrap().to_owned(), details, response["output"][0]["status"].clone())
    };
    let complete = ("completed".to_owned(), String::new(), Value::from("completed"));
    let cut = |reason: &str| ("incomplete".to_owned(), reason.to_owned(), Value::from("incomplete"));
    for why in [
        Finish::Stop,
        Finish::StopSequence(Some(s("END"))),
        Finish::ToolUse,
        Finish::Pause,
        Finish::Other(s("OTHER")),
    ] {
        assert_eq!(status(why), complete);
    }
    assert_eq!(status(Finish::Length), cut("max_output_tokens"));
    assert_eq!(status(Finish::ContextFull), cut("max_output_tokens"));
    assert_eq!(status(Finish::ContentFilter), cut("content_filter"));
    // A refusal by the model itself is a complete response.
    let refused = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Refusal),
            text(0, "No."),
            stop(0),
            finish(Finish::ContentFilter),
            Event::End,
        ],
    );
    assert_eq!(refused.last()["response"]["status"], "completed");
    // An empty response with an unknown finish reason is a failure.
    let nothing = write(reply(), &[start(), finish(Finish::Other(s("OTHER"))), Event::End]);
    assert_eq!(nothing.last()["type"], "response.failed");
    let empty = write(reply(), &[start(), finish(Finish::Stop), Event::End]);
    assert_eq!(empty.last()["type"], "response.completed");
}

#[test]
fn tool_call_cut_by_the_limit_is_incomplete() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, tool("c", "f")),
            add(0, Delta::Arguments(s("{\\\"a"))),
            stop(0),
            finish(Finish::Length),
            Event::End,
        ],
    );
    assert_eq!(frames.output()[0]["status"], "incomplete");
}

#[test]
fn mapping_08_usage_has_all_figures() {
    let usage = |usage: Usage| {
        let frames = write(reply(), &[start(), Event::Usage(usage), finish(Finish::Stop), Event::End]);
        frames.last()["response"]["usage"].clone()
    };
    let full = usage(Usage {
        input: Some(100),
        cached: Some(40),
        cache_write: Some(10),
        cache_write_1h: Some(5),
        output: Some(50),
        reasoning: Some(20),
        ..Usage::default()
    });
    assert_eq!(
        full,
        serde_json::json!({
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 15},
            "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 150,
        })
    );
    assert_eq!(usage(Usage::default())["output_tokens_details"]["reasoning_tokens"], 0);
    // Figures that no provider can mean do not stop the response.
    let absurd = usage(Usage { cache_write: Some(u64::MAX), cache_write_1h: Some(1), ..Usage::default() });
    assert_eq!(absurd["input_tokens_details"]["cache_write_tokens"], u64::MAX);
}

#[test]
fn bug_49_and_50_failure_is_reported_in_any_state() {
    let error = ApiError::new(ErrorKind::UpstreamBroken, "The upstream \"closed\".");
    // An error before any content.
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    encoder.fail(&error, &mut out);
    encoder.fail(&error, &mut out);
    encoder.event(&Event::Ping, &mut out);
    let frames = Frames::read(&out);
    assert_eq!(frames.names(), ["created", "in_progress", "failed"]);
    assert_eq!(
        frames.last()["response"]["error"],
        serde_json::json!({"code": "server_error", "message": "The upstream \"closed\"."})
    );
    // An error in the middle of a message: completed items and usage are reported, and nothing looks finished.
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    for event in [
        start(),
        used(3, 1),
        begin(0, BlockKind::Reasoning),
        text(0, "Hmm."),
        stop(0),
        begin(1, BlockKind::Text),
        text(1, "half"),
    ] {
        encoder.event(&event, &mut out);
    }
    encoder.fail(&ApiError::new(ErrorKind::UpstreamRateLimit, "slow down"), &mut out);
    let frames = Frames::read(&out);
    let response = &frames.last()["response"];
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&"failed".into(), &"rate_limit_exceeded".into())
    );
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    assert_eq!(response["usage"]["input_tokens"], 3);
}

#[test]
fn error_event_fails_the_response() {
    let error = RawJson::from_text(r#"{"type":"overloaded_error","message":"Overloaded"}"#);
    let frames = write(reply(), &[start(), Event::Error(error)]);
    assert_eq!(frames.last()["response"]["error"]["message"], "Overloaded");
}

#[test]
fn keep_alive_is_a_comment() {
    let mut encoder = stream::Encoder::new(Arc::new(reply()));
    let mut out = BytesMut::new();
    encoder.keep_alive(&mut out);
    encoder.event(&Event::Ping, &mut out);
    assert_eq!(&out[..], b": keep-alive\n\n: keep-alive\n\n");
}
