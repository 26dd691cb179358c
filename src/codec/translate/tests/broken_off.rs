//! Responses that the provider broke off: for clients of another format they are errors, whatever came before, and in
//! its own format they pass with the provider's words, and are known to have failed.

use std::sync::Arc;

use bytes::Bytes;

use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::translate::{Exchange, Restore, Verbatim};
use crate::wire::codec::ReplyOptions;
use crate::wire::error::ProviderError;
use crate::wire::{Api, Format};

/// Content before the end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Thought,
    Text,
    /// Arguments that end within a string.
    HalfCall,
}

const CONTENTS: [Content; 4] = [Content::Nothing, Content::Thought, Content::Text, Content::HalfCall];

/// Finish words of each format that mean a failure: documented ones, those of relays, and an unknown one.
fn failures() -> Vec<(Format, &'static str)> {
    let of = |format, words: &[&'static str]| words.iter().map(|word| (format, *word)).collect::<Vec<_>>();
    [
        of(
            Format::Chat,
            &["insufficient_system_resource", "network_error", "error", "abort", "ABORTED", "upstream_error"],
        ),
        of(Format::Messages, &["error", "malformed_tool_use", "stream-interrupted"]),
        of(Format::Responses, &["failed", "cancelled", "server_failure"]),
        of(
            Format::Generate,
            &[
                "MALFORMED_FUNCTION_CALL",
                "UNEXPECTED_TOOL_CALL",
                "MALFORMED_RESPONSE",
                "TOO_MANY_TOOL_CALLS",
                "OTHER",
            ],
        ),
        of(Format::Converse, &["malformed_tool_use", "malformed_model_output", "error"]),
    ]
    .concat()
}

/// Returns the frames of a stream with this content and finish word.
#[expect(clippy::too_many_lines, reason = "one arm a format")]
fn frames(provider: Format, content: Content, word: &str) -> Vec<String> {
    let owned = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
    let generate =
        |part: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}}}}],"responseId":"r"}}"#);
    let (mut begin, end) = match provider {
        Format::Chat => {
            let delta = match content {
                Content::Nothing => r#""content":"""#,
                Content::Thought => r#""reasoning_content":"so""#,
                Content::Text => r#""content":"Half""#,
                Content::HalfCall => {
                    r#""tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"q\": \"x"}}]"#
                }
            };
            let begin =
                format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{{"role":"assistant",{delta}}}}}]}}"#);
            let end = format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{word}"}}]}}"#);
            let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;
            (vec![begin], vec![end, usage.to_owned(), "[DONE]".to_owned()])
        }
        Format::Messages => {
            let (block, delta) = match content {
                Content::Nothing => ("", ""),
                Content::Thought => {
                    (r#"{"type":"thinking","thinking":""}"#, r#"{"type":"thinking_delta","thinking":"so"}"#)
                }
                Content::Text => (r#"{"type":"text","text":""}"#, r#"{"type":"text_delta","text":"Half"}"#),
                Content::HalfCall => (
                    r#"{"type":"tool_use","id":"c","name":"f","input":{}}"#,
                    r#"{"type":"input_json_delta","partial_json":"{\"q\": \"x"}"#,
                ),
            };
            let mut begin =
                owned(&[r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":7}}}"#]);
            if !block.is_empty() {
                begin.push(format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#));
                begin.push(format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#));
            }
            let end = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{word}"}},"usage":{{"output_tokens":3}}}}"#
            );
            (begin, vec![end, r#"{"type":"message_stop"}"#.to_owned()])
        }
        Format::Responses => {
            let begin: &[&str] = match content {
                Content::Nothing => &[],
                Content::Thought => &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs"}}"#,
                    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"so"}"#,
                ],
                Content::Text => &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Half"}"#,
                ],
                Content::HalfCall => &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f"}}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"q\": \"x"}"#,
                ],
            };
            let mut all = owned(&[
                r#"{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress"}}"#,
            ]);
            all.extend(owned(begin));
            let kind = if word == "cancelled" { "cancelled" } else { "failed" };
            let end = format!(
                r#"{{"type":"response.{kind}","response":{{"id":"r","object":"response","status":"{word}","usage":{{"input_tokens":7,"output_tokens":3}}}}}}"#
            );
            (all, vec![end])
        }
        Format::Generate => {
            let part = match content {
                Content::Nothing => String::new(),
                Content::Thought => generate(r#"{"text":"so","thought":true}"#),
                Content::Text => generate(r#"{"text":"Half"}"#),
                Content::HalfCall => generate(
                    r#"{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.q","stringValue":"x","willContinue":true}],"willContinue":true}}"#,
                ),
            };
            let end = format!(
                r#"{{"candidates":[{{"finishReason":"{word}","finishMessage":"why \"so\""}}],"responseId":"r","usageMetadata":{{"promptTokenCount":7,"candidatesTokenCount":3}}}}"#
            );
            (if part.is_empty() { Vec::new() } else { vec![part] }, vec![end])
        }
        Format::Converse => {
            let begin: &[&str] = match content {
                Content::Nothing => &[],
                Content::Thought => &[
                    r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"so"}}}}"#,
                ],
                Content::Text => {
                    &[r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"Half"}}}"#]
                }
                Content::HalfCall => &[
                    r#"{"contentBlockStart":{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"c","name":"f"}}}}"#,
                    r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"q\": \"x"}}}}"#,
                ],
            };
            let mut all = owned(&[r#"{"messageStart":{"role":"assistant"}}"#]);
            all.extend(owned(begin));
            let end = format!(r#"{{"messageStop":{{"stopReason":"{word}"}}}}"#);
            let usage = r#"{"metadata":{"usage":{"inputTokens":7,"outputTokens":3,"totalTokens":10}}}"#;
            (all, vec![end, usage.to_owned()])
        }
    };
    begin.extend(end);
    begin
}

/// Returns a document with this finish word and a text.
fn document(provider: Format, word: &str) -> String {
    match provider {
        Format::Chat => format!(
            r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"Half"}},"finish_reason":"{word}"}}],"usage":{{"prompt_tokens":7,"completion_tokens":3}}}}"#
        ),
        Format::Messages => format!(
            r#"{{"id":"m","type":"message","role":"assistant","content":[{{"type":"text","text":"Half"}}],"stop_reason":"{word}","usage":{{"input_tokens":7,"output_tokens":3}}}}"#
        ),
        Format::Responses => format!(
            r#"{{"id":"r","object":"response","status":"{word}","output":[{{"type":"message","id":"m","content":[{{"type":"output_text","text":"Half"}}]}}]}}"#
        ),
        Format::Generate => format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"Half"}}]}},"finishReason":"{word}"}}],"responseId":"r"}}"#
        ),
        Format::Converse => format!(
            r#"{{"output":{{"message":{{"role":"assistant","content":[{{"text":"Half"}}]}}}},"stopReason":"{word}","usage":{{"inputTokens":7,"outputTokens":3}}}}"#
        ),
    }
}

/// Translates a stream. Returns the output, the error that ended it, and the output tokens that the provider reported.
fn stream(
    client: Format,
    provider: Format,
    stream: bool,
    frames: &[String],
) -> (Vec<u8>, Option<StreamError>, u64) {
    let route = Route { client, provider, stream };
    let reply = Arc::new(ReplyOptions { show_thinking: true, issuer: "p".into(), ..ReplyOptions::default() });
    let translated = Translated::new(&route, Arrival::Events, reply, Restore::default(), 1 << 20);
    let mut exchange = Exchange::Translated(Box::new(translated));
    let mut out = Vec::new();
    let mut failed = None;
    for frame in frames {
        match exchange.feed(Bytes::from(format!("data: {frame}\n\n"))) {
            Ok(piece) => out.extend_from_slice(&piece),
            Err(error) => {
                out.extend_from_slice(&exchange.take_ready());
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        match exchange.finish() {
            Ok(piece) => out.extend_from_slice(&piece),
            Err(error) => failed = Some(error),
        }
    }
    let is_counted = exchange.meter().has_failed() || matches!(failed, Some(StreamError::Cut));
    assert!(failed.is_none() || is_counted, "{provider} {frames:?}");
    (out, failed, exchange.usage().output.unwrap_or(0))
}

/// Words and events by which clients know that a response is complete.
const COMPLETE: [&str; 9] = [
    "\"finish_reason\":\"",
    "\"stop_reason\":\"",
    "message_stop",
    "response.completed",
    "response.incomplete",
    "\"finishReason\"",
    "messageStop",
    "output_item.done",
    "content_block_stop",
];

#[test]
fn response_broken_off_is_an_error_for_clients_of_every_other_format() {
    for (provider, word) in failures() {
        for content in CONTENTS {
            for client in Format::ALL {
                let frames = frames(provider, content, word);
                for streams in [true, false] {
                    let what = format!("{provider} to {client}: {word} after {content:?}, stream {streams}");
                    let (out, failed, tokens) = stream(client, provider, streams, &frames);
                    let error = match failed {
                        // Nothing was sent: another target can answer.
                        Some(StreamError::FirstFrame(error)) => {
                            // A call of this format is sent as a whole.
                            let held = provider == Format::Generate && content == Content::HalfCall;
                            assert!(!streams || held || content == Content::Nothing, "{what}");
                            error
                        }
                        Some(StreamError::Failed(error)) => error,
                        other => panic!("{what}: {other:?}: {}", String::from_utf8_lossy(&out)),
                    };
                    let reported = ProviderError::decode(&error);
                    assert!(reported.message.contains(word), "{what}: {}", reported.message);
                    assert!(matches!(reported.status(), 500 | 503), "{what}");
                    let text = String::from_utf8_lossy(&out);
                    for complete in COMPLETE {
                        assert!(!text.contains(complete), "{what}: {complete} in {text}");
                    }
                    assert_eq!(tokens, 3, "{what}: the usage is read before the error");
                }
            }
        }
    }
}

/// Relays end their stream although its source broke off.
#[test]
fn response_that_ends_in_half_a_call_without_a_finish_reason_is_cut() {
    let call = |arguments: &str| {
        let begin = format!(
            r#"{{"id":"x","choices":[{{"index":0,"delta":{{"role":"assistant","tool_calls":[{{"index":0,"id":"c","function":{{"name":"f","arguments":"{arguments}"}}}}]}}}}]}}"#
        );
        [begin, "[DONE]".to_owned()]
    };
    for client in Format::ALL.into_iter().filter(|client| *client != Format::Chat) {
        for streams in [true, false] {
            let (out, failed, _) = stream(client, Format::Chat, streams, &call(r#"{\"q\": \"x"#));
            let text = String::from_utf8_lossy(&out);
            assert!(failed.is_some(), "{client}: {text}");
            assert!(!COMPLETE.iter().any(|complete| text.contains(complete)), "{client}: {text}");
            for whole in [r#"{\"q\": \"x\"}"#, ""] {
                let (out, failed, _) = stream(client, Format::Chat, streams, &call(whole));
                assert!(failed.is_none() && !out.is_empty(), "{client}: {whole}: {failed:?}");
            }
        }
    }
}

#[test]
fn document_broken_off_is_an_error_for_clients_of_every_other_format() {
    for (provider, word) in failures() {
        for client in Format::ALL {
            for streams in [true, false] {
                let route = Route { client, provider, stream: streams };
                let reply = Arc::new(ReplyOptions::default());
                let mut translated =
                    Translated::new(&route, Arrival::Whole, reply, Restore::default(), 1 << 20);
                let failed = translated.whole(Bytes::from(document(provider, word)));
                let Err(StreamError::FirstFrame(error)) = failed else {
                    panic!("{provider} {client} {word}: {failed:?}")
                };
                assert!(String::from_utf8_lossy(&error).contains(word));
            }
        }
    }
}

#[test]
fn explanation_of_the_provider_is_in_the_error() {
    let frames = frames(Format::Generate, Content::Text, "UNEXPECTED_TOOL_CALL");
    let (_, failed, _) = stream(Format::Chat, Format::Generate, true, &frames);
    let Some(StreamError::Failed(error)) = failed else { panic!("{failed:?}") };
    let message = ProviderError::decode(&error).message;
    assert!(message.ends_with("UNEXPECTED_TOOL_CALL: why \"so\""), "{message}");
}

#[test]
fn call_that_was_not_permitted_is_a_call_if_it_is_whole() {
    let answer = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},"finishReason":"UNEXPECTED_TOOL_CALL"}],"responseId":"r"}"#;
    for (client, end) in [
        (Format::Chat, r#""finish_reason":"tool_calls""#),
        (Format::Messages, r#""stop_reason":"tool_use""#),
        (Format::Responses, r#""status":"completed""#),
        (Format::Converse, r#""stopReason":"tool_use""#),
    ] {
        let (out, failed, _) = stream(client, Format::Generate, false, &[answer.to_owned()]);
        let text = String::from_utf8_lossy(&out);
        assert!(failed.is_none() && text.contains(end), "{client}: {failed:?} {text}");
    }
}

#[test]
fn unknown_word_without_a_sign_of_failure_is_a_normal_end() {
    for (provider, word) in [
        (Format::Chat, "eos_token"),
        (Format::Chat, "stop_sequence"),
        (Format::Chat, "end_turn"),
        (Format::Chat, "whatever"),
        (Format::Messages, "stop"),
        (Format::Messages, "whatever"),
        (Format::Responses, "complete"),
        (Format::Converse, "whatever"),
        (Format::Generate, "WHATEVER"),
    ] {
        for (client, end) in [
            (Format::Chat, r#""finish_reason":"stop""#),
            (Format::Messages, r#""stop_reason":""#),
            (Format::Responses, r#""status":"completed""#),
        ] {
            let mut frames = frames(provider, Content::Text, word);
            if provider == Format::Responses {
                frames = frames
                    .iter()
                    .map(|frame| frame.replace("response.failed", "response.completed"))
                    .collect();
            }
            let (out, failed, _) = stream(client, provider, true, &frames);
            let text = String::from_utf8_lossy(&out);
            assert!(failed.is_none() && text.contains(end), "{provider} {client} {word}: {failed:?} {text}");
        }
    }
}

#[test]
fn limits_and_filters_of_any_word_stay_what_they_are() {
    for (word, chat, messages) in [
        ("MAX_TOKENS", "length", "max_tokens"),
        ("max_new_tokens", "length", "max_tokens"),
        ("model_context_window_exceeded", "length", "model_context_window_exceeded"),
        ("sensitive", "content_filter", "refusal"),
        ("safety_stop", "content_filter", "refusal"),
    ] {
        let of = |client| {
            let (out, failed, _) =
                stream(client, Format::Chat, false, &frames(Format::Chat, Content::Text, word));
            assert!(failed.is_none(), "{word}: {failed:?}");
            serde_json::from_slice::<serde_json::Value>(&out).unwrap()
        };
        // A client of the same format only if the response is translated, as here.
        assert_eq!(of(Format::Chat)["choices"][0]["finish_reason"], chat, "{word}");
        assert_eq!(of(Format::Messages)["stop_reason"], messages, "{word}");
    }
}

#[test]
fn verbatim_response_broken_off_is_known_to_have_failed() {
    for (provider, word) in failures() {
        let api = provider.api();
        let document = document(provider, word);
        let mut verbatim = Verbatim::new(api, Arrival::Whole, Changes::default(), 1 << 20);
        let passed = verbatim.whole(Bytes::from(document.clone()));
        // No client of chat completions knows such a word: it gets an error.
        if provider == Format::Chat {
            let Err(StreamError::FirstFrame(error)) = passed else { panic!("{word}: {passed:?}") };
            assert!(String::from_utf8_lossy(&error).contains(word), "{error:?}");
        } else {
            assert_eq!(
                (&*passed.unwrap(), verbatim.meter().has_failed()),
                (document.as_bytes(), true),
                "{word}"
            );
        }
        if provider == Format::Converse || word == "server_failure" {
            continue;
        }
        for content in CONTENTS {
            let frames: Vec<String> =
                frames(provider, content, word).iter().map(|frame| format!("data: {frame}\n\n")).collect();
            let text = frames.concat();
            let mut verbatim = Verbatim::new(api, Arrival::Events, Changes::default(), 1 << 20);
            let passed = verbatim.feed(Bytes::from(text.clone()));
            if provider == Format::Chat {
                let (Err(StreamError::Failed(error) | StreamError::FirstFrame(error)), ready) =
                    (passed, verbatim.take_ready())
                else {
                    panic!("{word} {content:?}")
                };
                assert!(String::from_utf8_lossy(&error).contains(word), "{error:?}");
                // What came before the word passes.
                let before: String =
                    frames.iter().take_while(|frame| !frame.contains(word)).map(String::as_str).collect();
                assert_eq!(&*ready, before.as_bytes(), "{word} {content:?}");
                continue;
            }
            assert_eq!(verbatim.finish().as_deref(), Ok(&b""[..]), "{word} {content:?}");
            assert_eq!((&*passed.unwrap(), verbatim.meter().has_failed()), (text.as_bytes(), true), "{word}");
        }
    }
    let blocked = r#"{"promptFeedback":{"blockReason":"OTHER"},"responseId":"r"}"#;
    let stop = r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    for (api, body) in [(Api::Generate, blocked), (Api::Chat, stop)] {
        let mut verbatim = Verbatim::new(api, Arrival::Whole, Changes::default(), 1 << 20);
        assert_eq!(&*verbatim.whole(Bytes::from(body)).unwrap(), body.as_bytes());
        assert!(!verbatim.meter().has_failed(), "{body}");
    }
}

#[test]
fn verbatim_response_that_may_be_continued_stops_before_the_word_of_a_failure() {
    for (provider, word) in failures() {
        // The provider of the responses format stores its responses: no other one continues them.
        if matches!(provider, Format::Responses | Format::Converse) {
            continue;
        }
        let frames = frames(provider, Content::Text, word);
        let mut exchange =
            Exchange::Verbatim(Verbatim::new(provider.api(), Arrival::Events, Changes::default(), 1 << 20));
        exchange.record_transcript();
        let mut failed = None;
        for frame in &frames {
            if let Err(error) = exchange.feed(Bytes::from(format!("data: {frame}\n\n"))) {
                failed = Some(error);
                break;
            }
        }
        let failed = failed.unwrap_or_else(|| panic!("{provider} {word}"));
        assert!(matches!(failed, StreamError::Failed(_)), "{failed:?}");
        assert_eq!(exchange.prefill().unwrap().text().escaped(), "Half", "{provider} {word}");
    }
}
