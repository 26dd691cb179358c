//! Tests of the facts that the meter reads from frames and responses, except usage.

use proptest::prelude::*;

use crate::wire::Format;
use crate::wire::watch::{FrameClass, FrameFacts, StreamEnd, answer, classify, frame};

fn see(format: Format, data: &str) -> FrameFacts<'_> {
    frame(format, data).unwrap_or_else(|error| panic!("{data}: {error}"))
}

fn finish<'a>(sight: &FrameFacts<'a>) -> Option<&'a str> {
    sight.finish.map(|reason| reason.escaped())
}

#[test]
fn model_position_is_found() {
    for (format, data) in [
        (Format::Chat, r#"{"id":"x","choices":[{"delta":{"model":"no"}}],"model" : "é-1" }"#),
        (Format::Messages, r#"{"type":"message_start","message":{"content":[],"model": "é-1"}}"#),
        (
            Format::Responses,
            r#"{"type":"response.created","response":{"metadata":{"model":"no"},"model":"é-1"}}"#,
        ),
        (Format::Generate, r#"{"candidates":[],"modelVersion":"é-1"}"#),
        (Format::Generate, r#"{"model_version":"é-1"}"#),
    ] {
        let at = see(format, data).model_at.unwrap();
        assert_eq!(&data[at], "\"é-1\"", "{data}");
    }
    assert!(see(Format::Chat, r#"{"model":null,"choices":[]}"#).model_at.is_none());
    let body = r#"{"type":"message","model":"m","content":[{"type":"text","text":"\"model\":\"no\""}]}"#;
    assert_eq!(&body[answer(Format::Messages, body).unwrap().model_at.unwrap()], "\"m\"");
}

#[test]
fn stream_end_is_recognized_in_each_format() {
    for (format, data, end) in [
        (Format::Chat, "[DONE]", StreamEnd::Terminated),
        (Format::Chat, "[DONE] ", StreamEnd::Terminated),
        (Format::Chat, r#"{"choices":[{"finish_reason":"stop"}]}"#, StreamEnd::Open),
        (Format::Messages, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, StreamEnd::Open),
        (Format::Messages, r#"{"type":"message_stop"}"#, StreamEnd::Terminated),
        (
            Format::Messages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            StreamEnd::Failed,
        ),
        (Format::Messages, r#"{"error":{"message":"from a proxy"}}"#, StreamEnd::Failed),
        (Format::Responses, r#"{"type":"response.completed","response":{"id":"r"}}"#, StreamEnd::Terminated),
        (Format::Responses, r#"{"type":"response.incomplete","response":{}}"#, StreamEnd::Terminated),
        (
            Format::Responses,
            r#"{"type":"response.failed","response":{"error":{"code":"c"}}}"#,
            StreamEnd::Failed,
        ),
        (
            Format::Responses,
            r#"{"type":"error","sequence_number":2,"error":{"message":"m"}}"#,
            StreamEnd::Failed,
        ),
        (Format::Responses, r#"{"type":"error","code":"c","message":"m","param":null}"#, StreamEnd::Failed),
        (Format::Responses, r#"{"error":{"message":"from a proxy"}}"#, StreamEnd::Failed),
        (Format::Responses, r#"{"type":"response.in_progress","response":{"error":null}}"#, StreamEnd::Open),
        (Format::Responses, "[DONE]", StreamEnd::Terminated),
        (Format::Generate, r#"{"candidates":[{"finishReason":"STOP"}]}"#, StreamEnd::Open),
        (
            Format::Generate,
            r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#,
            StreamEnd::Failed,
        ),
    ] {
        assert_eq!(see(format, data).end, end, "{format} {data}");
    }
}

/// Errors within a stream that started with status 200.
#[test]
fn fact_13_error_in_a_chunk_is_recognized_and_an_empty_one_ignored() {
    for (data, end) in [
        (r#"{"error":{"message":"m","failed_generation":"x","status_code":400}}"#, StreamEnd::Failed),
        (r#"{"choices":[{"finish_reason":null}],"error":{"code":502,"message":"m"}}"#, StreamEnd::Failed),
        (r#"{"error":"text","choices":[]}"#, StreamEnd::Failed),
        (r#"{"error":null,"choices":[]}"#, StreamEnd::Open),
        (r#"{"error":"","choices":[]}"#, StreamEnd::Open),
        (r#"{"error":false,"choices":[]}"#, StreamEnd::Open),
    ] {
        let sight = see(Format::Chat, data);
        assert_eq!(sight.end, end, "{data}");
        assert_eq!(sight.error.is_some(), end == StreamEnd::Failed, "{data}");
    }
}

/// `finish_reason: null` does not finish a choice.
#[test]
fn bug_19_finish_reason_null_or_empty_is_none() {
    for (format, data) in [
        (Format::Chat, r#"{"choices":[{"index":0,"delta":{},"finish_reason":null}]}"#),
        (Format::Chat, r#"{"choices":[{"index":0,"finish_reason":""}]}"#),
        (Format::Chat, r#"{"choices":[{"index":0}]}"#),
        (Format::Generate, r#"{"candidates":[{"finishReason":null}]}"#),
        (Format::Generate, r#"{"candidates":[{"finishReason":""}]}"#),
        (Format::Generate, r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#),
        (Format::Generate, r#"{"candidates":[{"finishReason":0}]}"#),
    ] {
        let sight = see(format, data);
        assert_eq!((finish(&sight), sight.seen, sight.finished), (None, 1, 0), "{data}");
    }
    let sight = see(Format::Messages, r#"{"type":"message_delta","delta":{"stop_reason":null}}"#);
    assert_eq!(finish(&sight), None);
}

/// Finish reasons are names, or integers if the client requests numeric enums.
#[test]
fn fact_34_finish_reason_of_gemini_is_a_name_or_an_integer() {
    for (value, reason) in [
        ("\"STOP\"", "STOP"),
        ("\"MODEL_ARMOR\"", "MODEL_ARMOR"),
        ("1", "STOP"),
        ("2", "MAX_TOKENS"),
        ("3", "SAFETY"),
        ("4", "RECITATION"),
        ("77", "UNKNOWN"),
    ] {
        for key in ["finishReason", "finish_reason"] {
            let data = format!(r#"{{"candidates":[{{"{key}":{value}}}]}}"#);
            assert_eq!(finish(&see(Format::Generate, &data)), Some(reason), "{data}");
        }
    }
}

/// A blocked prompt has status 200 and no candidates.
#[test]
fn fact_37_blocked_prompt_is_complete_without_candidates() {
    let sight = see(Format::Generate, r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{}}"#);
    assert_eq!((finish(&sight), sight.seen, sight.finished), (Some("SAFETY"), 1, 1));
    let sight = see(Format::Generate, r#"{"promptFeedback":{"safetyRatings":[]}}"#);
    assert_eq!((finish(&sight), sight.seen), (None, 0));
    for candidate in [
        r#"{"finishReason":"SAFETY"}"#,
        r#"{"content":{},"finishReason":"STOP"}"#,
        r#"{"content":{"parts":[{}]},"finishReason":"STOP"}"#,
    ] {
        let data = format!(r#"{{"candidates":[{candidate}]}}"#);
        assert_eq!(see(Format::Generate, &data).finished, 1, "{data}");
    }
}

#[test]
fn choices_are_distinguished_by_index() {
    let data = r#"{"choices":[{"index":2,"finish_reason":"stop"},{"index":0,"delta":{}},{"finish_reason":null,"index":70}]}"#;
    let sight = see(Format::Chat, data);
    assert_eq!((sight.seen, sight.finished), (1 << 2 | 1 | 1 << 63, 1 << 2));
    let data = r#"{"candidates":[{"content":{}},{"index":1,"finishReason":"STOP"}]}"#;
    let sight = see(Format::Generate, data);
    assert_eq!((sight.seen, sight.finished), (3, 2));
}

/// Chunks without choices, with and without usage.
#[test]
fn fact_1_usage_chunk_has_usage_and_no_choices() {
    for (data, only) in [
        (r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, true),
        (r#"{"usage":{"prompt_tokens":1},"choices":[]}"#, true),
        (r#"{"choices":[],"usage":null}"#, false),
        (r#"{"choices":[],"prompt_filter_results":[]}"#, false),
        (r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":[],"usage":{"prompt_tokens":1},"error":{"message":"m"}}"#, false),
    ] {
        assert_eq!(see(Format::Chat, data).usage_only, only, "{data}");
    }
}

#[test]
fn whole_response_error_is_recognized() {
    for (format, body, end) in [
        (Format::Chat, r#"{"error":{"message":"m"}}"#, StreamEnd::Failed),
        (Format::Chat, r#"{"choices":[],"error":null}"#, StreamEnd::Open),
        (Format::Messages, r#"{"type":"error","error":{"message":"m"}}"#, StreamEnd::Failed),
        (Format::Messages, r#"{"type":"message","error":{"message":"m"}}"#, StreamEnd::Open),
        (Format::Responses, r#"{"error":{"message":"m"}}"#, StreamEnd::Failed),
        (
            Format::Responses,
            r#"{"object":"response","status":"failed","error":{"message":"m"}}"#,
            StreamEnd::Open,
        ),
        (Format::Generate, r#"{"error":{"message":"m"}}"#, StreamEnd::Failed),
    ] {
        assert_eq!(answer(format, body).unwrap().end, end, "{format} {body}");
    }
}

#[test]
fn whole_response_must_be_one_object() {
    for format in Format::ALL {
        for body in ["", " ", "[]", "null", "{", "{\"id\":\"x\"", "{}x", "{} {}", "<html>", "{\"id\":\"x}"] {
            assert!(answer(format, body).is_err(), "{format} {body}");
        }
        // An object without any member of the format is no response of it.
        for body in ["{}", " {\"unheard_of\":[{}]}\r\n", "{\"id\":\"x\"}"] {
            assert!(answer(format, body).is_err(), "{format} {body}");
        }
        assert!(answer(format, " {\"usage\":{},\"usageMetadata\":{}}\r\n").is_ok(), "{format}");
    }
}

#[test]
fn delta_is_content_and_not_parsed_further() {
    for (format, data) in [
        (
            Format::Messages,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        ),
        (Format::Responses, r#"{"type":"response.output_text.delta","delta":"a","error":{"not":"read"}}"#),
    ] {
        let sight = see(format, data);
        assert!(sight.content && sight.end == StreamEnd::Open && sight.error.is_none());
    }
    for data in [r#"{"type":"ping"}"#, r#"{"type":"content_block_stop","index":0}"#] {
        assert!(!see(Format::Messages, data).content, "{data}");
    }
}

/// Providers that send no `event:` lines.
#[test]
fn fact_26_type_in_the_data_decides_anywhere() {
    let data = r#"{"response":{"id":"r","status":"completed","usage":{"input_tokens":3}},"sequence_number":9,"type":"response.completed"}"#;
    let sight = see(Format::Responses, data);
    assert_eq!((sight.end, finish(&sight)), (StreamEnd::Terminated, Some("completed")));
    assert_eq!(sight.usage.unwrap().input, Some(3));
    let data = r#"{"error":{"type":"t","message":"m"},"type":"error"}"#;
    assert_eq!(see(Format::Messages, data).end, StreamEnd::Failed);
}

#[test]
fn frame_class_overlooks_nothing_that_must_be_parsed() {
    for (format, data, expected) in [
        (
            Format::Chat,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":null}"#,
            FrameClass::Content,
        ),
        (Format::Chat, r#"{"choices":[{"delta":{"content":"\"usage\":{}"}}]}"#, FrameClass::Content),
        (
            Format::Chat,
            r#"{"choices":[{"delta":{"content":"usage"},"finish_reason" : ""}]}"#,
            FrameClass::Content,
        ),
        (Format::Chat, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, FrameClass::Read),
        (Format::Chat, r#"{"choices":[],"usage" : {"prompt_tokens":1}}"#, FrameClass::Read),
        (Format::Chat, r#"{"choices":[],"error":{"message":"m"}}"#, FrameClass::Read),
        (Format::Chat, "[DONE]", FrameClass::Read),
        (Format::Chat, "", FrameClass::Read),
        (Format::Generate, r#"{"candidates":[{"content":{}}]}"#, FrameClass::Content),
        (
            Format::Generate,
            r#"{"candidates":[{}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}"#,
            FrameClass::ContentAndUsage,
        ),
        (Format::Generate, r#"{"candidates":[{}],"usageMetadata":{"promptTokenCount":1}}"#, FrameClass::Read),
        (Format::Generate, r#"{"candidates":[{"finishReason":1}]}"#, FrameClass::Read),
        (Format::Generate, r#"{"prompt_feedback":{"block_reason":"OTHER"}}"#, FrameClass::Read),
        (Format::Messages, r#"{"type":"content_block_delta","index":0,"delta":{}}"#, FrameClass::Content),
        (
            Format::Messages,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            FrameClass::Read,
        ),
        (Format::Messages, r#"{"type":"error","error":{"type":"content_block_delta"}}"#, FrameClass::Read),
        (Format::Messages, r#"{"index":0,"type":"content_block_delta"}"#, FrameClass::Read),
        (Format::Responses, r#"{"type":"response.output_text.delta","delta":"a"}"#, FrameClass::Content),
        (Format::Responses, r#"{"type":"response.completed","response":{"x":".delta"}}"#, FrameClass::Read),
        (Format::Responses, r#"{"type":"error","code":"response.output_text.delta"}"#, FrameClass::Read),
        (Format::Responses, r#"{"delta":"a","type":"response.output_text.delta"}"#, FrameClass::Read),
        (Format::Responses, "[DONE]", FrameClass::Read),
    ] {
        assert_eq!(classify(format, data.as_bytes()), expected, "{data}");
    }
}

proptest! {
    /// A frame that `FrameClass` lets pass unread contains nothing of interest when it is parsed.
    #[test]
    fn frame_class_agrees_with_parsing(
        finish in r#"(,"finish_reason":( ?null|"stop"|""|1))?"#,
        usage in r#"(,"usage" ?: ?(null|\{"prompt_tokens":3\}|""|7))?"#,
        error in r#"(,"error":(null|"m"|\{\}|false|""))?"#,
        text in r#"[a-z:{}]{0,4}(\\"(usage|error|finish_reason)\\":)?[a-z]{0,3}"#,
    ) {
        let chat = format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}{finish}}}]{usage}{error}}}"#);
        if classify(Format::Chat, chat.as_bytes()) == FrameClass::Content {
            let sight = see(Format::Chat, &chat);
            prop_assert!(sight.finish.is_none() && sight.usage.is_none() && sight.end == StreamEnd::Open, "{}", chat);
        }
        let finish = finish.replace("finish_reason", "finishReason");
        let generate = format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}}{finish}}}]{error}}}"#);
        if classify(Format::Generate, generate.as_bytes()) == FrameClass::Content {
            let sight = see(Format::Generate, &generate);
            prop_assert!(sight.finish.is_none() && sight.usage.is_none() && sight.end == StreamEnd::Open, "{}", generate);
        }
    }

    #[test]
    fn watch_of_arbitrary_text_never_panics(
        text in r#"\{("(id|model|choices|candidates|usage|type|error|delta|message|response|usageMetadata)":)?[\[\]{},:"\\a-z0-9.é]{0,30}"#,
    ) {
        for format in Format::ALL {
            let _ = frame(format, &text);
            let _ = answer(format, &text);
            let _ = classify(format, text.as_bytes());
        }
    }
}
