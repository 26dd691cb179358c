//! Tests of the end of a response: finish reasons, cut streams and errors.

use super::*;

/// Returns the finish reason for a word.
fn reason(word: &str) -> FinishOwned {
    finish_of(&read(&[&delta(r#""content":"a""#), &end(word), DONE]))
}

#[test]
fn fact_9_finish_reason_is_decoded_from_each_word() {
    for word in ["stop", "eos", "end_turn", "STOP"] {
        assert_eq!(reason(word), FinishOwned::Stop, "{word}");
    }
    for word in ["length", "max_tokens", "model_length", "MAX_TOKENS"] {
        assert_eq!(reason(word), FinishOwned::Length, "{word}");
    }
    for word in ["tool_calls", "function_call", "tool_use"] {
        assert_eq!(reason(word), FinishOwned::ToolUse, "{word}");
    }
    for word in ["content_filter", "sensitive", "refusal", "safety"] {
        assert_eq!(reason(word), FinishOwned::ContentFilter, "{word}");
    }
    assert_eq!(reason("model_context_window_exceeded"), FinishOwned::ContextFull);
    assert_eq!(reason("made_up"), FinishOwned::Other("made_up".to_owned()));
    for word in ["network_error", "error", "insufficient_system_resource"] {
        let (answer, _, _) = try_read(&[delta(r#""content":"a""#), end(word), DONE.to_owned()]);
        assert!(answer.error.is_some_and(|error| error.contains(word)) && !answer.complete, "{word}");
    }
}

#[test]
fn tool_calls_without_a_call_is_stop() {
    let answer = read(&[&delta(r#""content":"a""#), &end("tool_calls"), DONE]);
    assert_eq!(finish_of(&answer), FinishOwned::ToolUse);
    assert_eq!(whole_written(&answer, &reply())["choices"][0]["finish_reason"], "stop");
}

#[test]
fn bug_23_stop_sequence_is_decoded_if_the_provider_names_it() {
    for name in ["stop_reason", "matched_stop"] {
        let frame = chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"stop","{name}":"END"}}"#));
        let answer = read(&[&delta(r#""content":"a""#), &frame, DONE]);
        assert_eq!(finish_of(&answer), FinishOwned::StopSequence(Some("END".to_owned())));
        // A token id is not a stop sequence.
        let frame = chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"stop","{name}":128009}}"#));
        assert_eq!(finish_of(&read(&[&frame, DONE])), FinishOwned::Stop);
    }
}

#[test]
fn bug_19_finish_reason_null_absent_or_empty_is_none() {
    let frames = [
        delta(r#""content":"a""#),
        chunk(r#"{"index":0,"delta":{"content":"b"}}"#),
        chunk(r#"{"index":0,"delta":{"content":"c"},"finish_reason":""}"#),
        chunk(r#"{"index":0,"delta":{"content":"d"},"finish_reason":"null"}"#),
        end("length"),
        DONE.to_owned(),
    ];
    assert_eq!(text_of(&read(&frames), &AnswerBlockKind::Text), "abcd");
    assert_eq!(finish_of(&read(&frames)), FinishOwned::Length);
}

#[test]
fn bug_20_finish_reason_in_every_chunk_does_not_end_the_choice() {
    let say = |text: &str| {
        chunk(&format!(r#"{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":"stop"}}"#))
    };
    let answer = read(&[&say("a"), &say("b"), DONE]);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "ab");
    assert_eq!(answer.finishes, [(0, FinishOwned::Stop)]);
}

#[test]
fn bug_21_finish_chunk_without_a_delta_ends_the_choice() {
    let last = chunk(r#"{"index":0,"finish_reason":"stop"}"#);
    assert_eq!(finish_of(&read(&[&delta(r#""content":"a""#), &last, DONE])), FinishOwned::Stop);
}

#[test]
fn bug_13_and_14_finish_stop_with_tool_calls_is_tool_use() {
    let call =
        r#""tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
    for word in ["stop", "eos", "tool_calls"] {
        let answer = read(&[&delta(r#""content":"Let me see""#), &delta(call), &end(word), DONE]);
        assert_eq!(finish_of(&answer), FinishOwned::ToolUse, "{word}");
    }
    // An empty finish reason, then the end of the stream.
    let empty = chunk(r#"{"index":0,"delta":{},"finish_reason":""}"#);
    assert_eq!(finish_of(&read(&[&delta(call), &empty, DONE])), FinishOwned::ToolUse);
    // A length limit is not replaced by a tool call.
    assert_eq!(finish_of(&read(&[&delta(call), &end("length"), DONE])), FinishOwned::Length);
}

#[test]
fn bug_18_response_without_content_has_its_finish_reason() {
    let answer = read(&[&end("length"), DONE]);
    assert_eq!((answer.blocks.len(), finish_of(&answer)), (0, FinishOwned::Length));
    let whole = read_whole(&completion(r#"{"role":"assistant","content":null}"#, "\"length\""));
    assert_eq!((whole.blocks.len(), finish_of(&whole)), (0, FinishOwned::Length));
}

#[test]
fn fact_12_done_may_be_missing_if_every_choice_has_finished() {
    let answer = read(&[delta(r#""content":"a""#), end("stop")]);
    assert_eq!(finish_of(&answer), FinishOwned::Stop);
}

#[test]
fn bug_47_stream_that_is_cut_is_not_complete() {
    let frames = [delta(r#""content":"a""#), delta(r#""content":"b""#)];
    for cut in 0..=frames.len() {
        let (answer, events, complete) = try_read(&frames[..cut]);
        assert!(!complete && !answer.complete);
        assert!(!events.iter().any(|event| event.starts_with("finish")), "{events:?}");
    }
    // The terminator without any chunk before it.
    let (answer, events, complete) = try_read(&[DONE.to_owned()]);
    assert!(!complete && !answer.complete && events.is_empty());
}

#[test]
fn done_without_a_finish_reason_is_a_stop() {
    let answer = read(&[&delta(r#""content":"a""#), DONE]);
    assert_eq!(finish_of(&answer), FinishOwned::Stop);
}

#[test]
fn frames_after_the_end_are_ignored() {
    let frames = [delta(r#""content":"a""#), end("stop"), DONE.to_owned(), delta(r#""content":"b""#)];
    assert_eq!(text_of(&read(&frames), &AnswerBlockKind::Text), "a");
}

#[test]
fn fact_13_error_in_a_stream_ends_it() {
    let failed = r#"{"error":{"message":"no","type":"invalid_request_error","code":"tool_use_failed","status_code":400}}"#;
    let (answer, events, complete) = try_read(&[delta(r#""content":"a""#), failed.to_owned()]);
    assert_eq!(answer.error.as_deref().map(|error| error.contains("tool_use_failed")), Some(true));
    assert!(complete && events.last().unwrap().starts_with("error"), "{events:?}");

    // Behind the finish reason, beside an empty choice.
    let behind = chunk(r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#);
    let behind = behind.replace("\"id\"", r#""error":{"code":400,"message":"limit"},"id""#);
    let frames = [delta(r#""content":"a""#), end("stop"), behind, DONE.to_owned()];
    let (answer, events, _) = try_read(&frames);
    assert_eq!(answer.error.as_deref(), Some(r#"{"code":400,"message":"limit"}"#));
    assert!(!events.iter().any(|event| event.starts_with("finish") || event == "end"), "{events:?}");
}

#[test]
fn fact_14_error_is_decoded_in_every_shape() {
    for error in [
        r#"{"error":{"message":"no"}}"#,
        r#"{"error":"no"}"#,
        r#"{"code":"invalid-argument","error":"no"}"#,
        r#"{"object":"error","message":"no","type":"x","param":null,"code":"1","raw_status_code":400}"#,
        r#"{"code":"x","message":"no","request_id":"r"}"#,
        r#"{"x_groq":{"error":{"message":"no"}}}"#,
        r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502,"message":"no"}}]}"#,
    ] {
        let (answer, ..) = try_read(&[error.to_owned()]);
        let said = answer.error.unwrap_or_else(|| panic!("{error}"));
        let said = crate::wire::error::ProviderError::decode(said.as_bytes());
        assert_eq!(said.message, "no", "{error}");
        assert!(read_whole(error).error.is_some(), "{error}");
    }
    // These are not errors.
    let null = delta(r#""content":"a""#).replace("\"id\"", r#""error":null,"id""#);
    assert_eq!(read(&[&null, &end("stop"), DONE]).error, None);
}

#[test]
fn bug_68_response_without_a_choice_is_invalid() {
    for body in [r#"{"id":"c","choices":[]}"#, r#"{"id":"c","choices":null,"usage":{}}"#, "{}", "[]", "", "x"]
    {
        assert!(whole::decode(body, "seed", false, &mut |_| {}).is_err(), "{body}");
    }
}

#[test]
fn frame_that_is_broken_is_an_error() {
    for frame in ["{\"choices\":[", "OPENROUTER PROCESSING", "[1]", "null", "{\"choices\":[]} x"] {
        let mut decoder = stream::Decoder::new("seed");
        assert!(decoder.frame(frame, &mut |_| {}).is_err(), "{frame}");
    }
}
