//! Ends of streams: a stream that is cut off is an error and never looks complete.

use super::streams::{self, Style};
use bytes::Bytes;

use super::{pass, pass_events};
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::translate::{Exchange, Verbatim};
use crate::wire::Api;
use crate::wire::error::{ArrayState, stream_tail};
use crate::wire::watch::StreamEnd;

/// A truncated stream must not get a finish reason that the provider never sent.
#[test]
fn bug_47_stream_cut_at_any_byte_is_an_error_until_complete() {
    for style in Style::few() {
        for answer in streams::all(style) {
            let complete = answer.text.find(answer.complete_at).unwrap() + answer.complete_at.len();
            for cut in 0..answer.text.len() {
                let came = &answer.text.as_bytes()[..cut];
                let passed = pass(answer.api, answer.arrival, [came]);
                let what = format!("cut at {cut} of {answer:?}");
                match passed.result {
                    Ok(()) => assert!(cut >= complete, "{what}"),
                    Err(error) => assert_eq!(error, StreamError::Cut, "{what}"),
                }
                // Neither the output nor the meter has anything that did not arrive.
                let tail = passed.out.strip_suffix(b"\n\n").unwrap_or(&passed.out);
                assert!(came.starts_with(tail), "{what}");
                if !passed.notes.finish.is_empty() && answer.api != Api::Responses {
                    let finish = format!("\"{}\"", answer.finish);
                    assert!(String::from_utf8_lossy(came).contains(&finish), "{what}");
                }
            }
            let passed = pass(answer.api, answer.arrival, [answer.text.as_bytes()]);
            assert_eq!(passed.result, Ok(()));
        }
    }
}

/// The output after a cut is an error, and no regular end.
#[test]
fn bug_49_cut_stream_with_its_tail_reads_as_one_failed_stream() {
    let error = crate::error::ApiError::new(crate::error::ErrorKind::UpstreamBroken, "cut");
    for answer in streams::all(Style::PLAIN) {
        let format = answer.api.format().unwrap();
        for cut in (0..answer.text.len() / 2).step_by(7) {
            let mut verbatim = Verbatim::new(answer.api, answer.arrival, Changes::default(), 1 << 20);
            let mut out = verbatim
                .feed(Bytes::from(answer.text[..cut_before(&answer.text, cut)].to_owned()))
                .unwrap()
                .to_vec();
            assert_eq!(verbatim.finish(), Err(StreamError::Cut));
            out.extend_from_slice(&stream_tail(format, &error, "req_1", verbatim.array_state()));
            if answer.arrival == Arrival::Array {
                let elements: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
                assert!(elements.last().unwrap().get("error").is_some());
                continue;
            }
            let text = String::from_utf8(out).unwrap();
            let frames = text.matches("data: ").count();
            if text.starts_with("data: {\"error\"") || text.starts_with("event: error") {
                continue;
            }
            let passed = pass_events(answer.api, &text);
            assert_eq!((passed.result, passed.notes.end), (Ok(()), StreamEnd::Failed), "{text}");
            assert_eq!(passed.notes.finish.replace("in_progress", ""), "", "{text}");
            assert!(frames >= 2);
            assert!(!text.contains("data: [DONE]"), "{text}");
        }
    }
}

/// Returns the last character boundary at or before an offset.
fn cut_before(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap()
}

/// Some providers never send `[DONE]`; the gateway does not add it.
#[test]
fn fact_12_chat_stream_without_done_is_complete_at_its_finish_reason() {
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n";
    let passed = pass_events(Api::Chat, finish);
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), finish));
    let open = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]}\r\n\r\n";
    assert_eq!(pass_events(Api::Chat, open).result, Err(StreamError::Cut));
    assert_eq!(pass_events(Api::Chat, "").result, Err(StreamError::Cut));
}

#[test]
fn stream_is_complete_only_when_every_choice_is_finished() {
    let chunk = |index: u64, finish: &str| {
        format!("data: {{\"choices\":[{{\"index\":{index},\"finish_reason\":{finish}}}]}}\n\n")
    };
    let one = chunk(0, "null") + &chunk(1, "null") + &chunk(0, "\"stop\"");
    assert_eq!(pass_events(Api::Chat, &one).result, Err(StreamError::Cut));
    assert_eq!(pass_events(Api::Chat, &(one + &chunk(1, "\"length\""))).result, Ok(()));
    // A choice that starts late, when frames are only classified and not parsed.
    let late = chunk(0, "null").repeat(20) + &chunk(0, "\"stop\"") + &chunk(1, "null").repeat(20);
    assert_eq!(pass_events(Api::Chat, &late).result, Err(StreamError::Cut));
    let gemini = "data: {\"candidates\":[{\"finishReason\":\"STOP\"},{\"index\":1}]}\n\n";
    assert_eq!(pass_events(Api::Generate, gemini).result, Err(StreamError::Cut));
}

#[test]
fn stream_with_a_finish_reason_still_needs_its_terminator() {
    let stream = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    assert_eq!(pass_events(Api::Messages, stream).result, Err(StreamError::Cut));
    let stream = "data: {\"type\":\"response.output_item.done\",\"item\":{\"status\":\"completed\"}}\n\n";
    assert_eq!(pass_events(Api::Responses, stream).result, Err(StreamError::Cut));
}

#[test]
fn terminator_is_sent_exactly_once() {
    let done = "data: [DONE]\n\n";
    for stream in [
        "data: {\"choices\":[]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[]}\n\ndata: [DONE]",
        "data: {\"choices\":[]}\n\ndata: [DONE]\n",
    ] {
        let passed = pass_events(Api::Chat, stream);
        assert_eq!(passed.result, Ok(()));
        assert_eq!(passed.text().matches("[DONE]").count(), 1);
        assert!(passed.text().trim_end_matches('\n').ends_with(done.trim_end()));
        assert!(passed.text().ends_with("\n\n"), "{:?}", passed.text());
    }
    // Providers that copy the chat format send a `[DONE]` at the end of a responses stream.
    let stream = "data: {\"type\":\"response.completed\",\"response\":{}}\n\ndata: [DONE]\n\n";
    let passed = pass_events(Api::Responses, stream);
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), stream));
}

#[test]
fn last_event_without_blank_line_passes_and_half_an_event_is_dropped() {
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}";
    let passed = pass_events(Api::Messages, stop);
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), &*format!("{stop}\n\n")));
    let finish = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n";
    let passed = pass_events(Api::Chat, &format!("{finish}data: {{\"choices\":[],\"usa"));
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), finish));
    let passed = pass_events(Api::Chat, &format!("{finish}data: [DONE]\n\n: keep"));
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), &*format!("{finish}data: [DONE]\n\n")));
}

/// An error inside a stream reaches the client as the provider wrote it.
#[test]
fn bug_48_error_in_mid_stream_passes_and_ends_the_stream() {
    for (api, stream) in [
        (
            Api::Chat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\nevent: error\ndata: {\"error\":{\"message\":\"m\",\"status_code\":400}}\n\n",
        ),
        (
            Api::Chat,
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: {\"error\":{\"code\":502,\"message\":\"m\"},\"choices\":[{\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
        ),
        (
            Api::Messages,
            "data: {\"type\":\"message_start\",\"message\":{}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n",
        ),
        (
            Api::Responses,
            "data: {\"type\":\"response.created\",\"response\":{}}\n\ndata: {\"type\":\"error\",\"message\":\"m\"}\n\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"m\"}}}\n\n",
        ),
        (
            Api::Generate,
            "data: {\"candidates\":[{}]}\r\n\r\ndata: {\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
        ),
    ] {
        let passed = pass_events(api, stream);
        assert_eq!((passed.result.clone(), passed.text()), (Ok(()), stream));
        assert_eq!(passed.notes.end, StreamEnd::Failed);
    }
}

/// Google's servers write an error in mid-stream without `data:`, and its SDKs look for it.
#[test]
fn error_of_gemini_without_a_field_passes_and_ends_the_stream() {
    let chunk = "data: {\"candidates\":[{\"content\":{}}]}\r\n\r\n";
    for end in ["", "\n", "\n\n"] {
        let stream =
            format!("{chunk}{{\n  \"error\": {{\n    \"code\": 499,\n    \"message\": \"m\"\n  }}\n}}{end}");
        let passed = pass_events(Api::Generate, &stream);
        assert_eq!(passed.result, Ok(()), "{stream}");
        assert_eq!(passed.text().trim_end(), stream.trim_end());
        assert_eq!(passed.notes.end, StreamEnd::Failed);
    }
    // SDKs of the other formats ignore it: the stream counts as cut.
    let stream = "data: {\"choices\":[{\"finish_reason\":null}]}\n\n{\"error\":{\"message\":\"m\"}}\n\n";
    assert_eq!(pass_events(Api::Chat, stream).result, Err(StreamError::Cut));
}

#[test]
fn array_is_closed_only_if_the_response_is_complete() {
    let finished = "{\"candidates\":[{\"finishReason\":\"STOP\"}]}";
    let open = "{\"candidates\":[{}]}";
    for (stream, result, out) in [
        (format!("[{finished}]"), Ok(()), format!("[{finished}]")),
        (
            format!(" [\n{open}\n,\r\n{finished}\n]\n\n"),
            Ok(()),
            format!(" [\n{open}\n,\r\n{finished}\n]\n\n"),
        ),
        (format!("[{finished}"), Err(StreamError::Cut), format!("[{finished}")),
        (format!("[{open}]"), Err(StreamError::Cut), format!("[{open}")),
        ("[]".to_owned(), Err(StreamError::Cut), String::new()),
        (String::new(), Err(StreamError::Cut), String::new()),
        (finished.to_owned(), Ok(()), finished.to_owned()),
        (
            format!("[{finished}]{finished}"),
            Err(StreamError::Invalid("something follows the array".to_owned())),
            String::new(),
        ),
    ] {
        let passed = pass(Api::Generate, Arrival::Array, [stream.as_bytes()]);
        assert_eq!((passed.result.clone(), passed.text()), (result, &*out), "{stream}");
    }
}

#[test]
fn array_state_tracks_whether_elements_were_sent() {
    let mut verbatim = Verbatim::new(Api::Generate, Arrival::Array, Changes::default(), 1000);
    assert_eq!(verbatim.array_state(), Some(ArrayState::Nothing));
    assert!(verbatim.feed(Bytes::from_static(b"[ ")).unwrap().is_empty());
    assert_eq!(verbatim.array_state(), Some(ArrayState::Nothing));
    assert_eq!(verbatim.feed(Bytes::from_static(b"{}")).unwrap(), "[ {}");
    assert_eq!(verbatim.array_state(), Some(ArrayState::Elements));
    let events = Verbatim::new(Api::Generate, Arrival::Events, Changes::default(), 1000);
    assert_eq!(events.array_state(), None);
}

/// A provider that refuses for safety sends no content, and its total equals the input tokens.
#[test]
fn output_tokens_without_content_are_zero() {
    let refused = r#"{"candidates":[{"finishReason":"SAFETY","index":0}],"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}"#;
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}"#;
    let said = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello there"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":8}}"#;
    for (answer, output) in [(refused, 0), (blocked, 0), (said, 3)] {
        let exchange =
            |arrival| Exchange::Verbatim(Verbatim::new(Api::Generate, arrival, Changes::default(), 1 << 20));
        let mut stream = exchange(Arrival::Events);
        stream.feed(Bytes::from(format!("data: {answer}\r\n\r\n"))).unwrap();
        stream.finish().unwrap();
        stream.complete();
        let mut whole = exchange(Arrival::Whole);
        whole.whole(Bytes::from(answer)).unwrap();
        whole.complete();
        for exchange in [stream, whole] {
            let usage = exchange.usage();
            assert_eq!((usage.input, usage.output), (Some(8), Some(output)), "{answer}");
        }
    }
}
