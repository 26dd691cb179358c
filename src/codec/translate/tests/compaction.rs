//! Compaction by the gateway: the text of a response in any format becomes one sealed item.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::made;
use crate::canonical::Dialect;
use crate::provider::ProviderKind;
use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::{Arrival, StreamError};
use crate::translate::{CompactionOptions, StoreOptions, TranslateRequest, outgoing_stored};
use crate::wire::Format;
use crate::wire::codec::{CompactionReply, ReplyOptions, Sealer};
use crate::wire::loss::LossPolicy;
use json::EscapedString;

/// Marks a text as sealed, so that the tests can read it.
fn sealer() -> Sealer {
    Sealer::new(|text| Some(format!("sealed:{}", text.replace(['"', '\n'], "_"))))
}

/// Returns a response with reasoning, text in pieces and usage as a provider sends it, with this finish reason.
#[expect(clippy::too_many_lines, reason = "one arm for each format")]
fn stream(format: Format, finish: &str) -> String {
    let data = |frames: &[Value]| frames.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>();
    match format {
        Format::Chat => {
            let chunk = |delta: Value, finish: Value| {
                json!({"id": "c", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            };
            data(&[
                chunk(json!({"role": "assistant", "reasoning_content": "hm"}), Value::Null),
                chunk(json!({"content": "Grü"}), Value::Null),
                chunk(json!({"content": "ße \"x\""}), Value::Null),
                chunk(json!({}), json!(finish)),
                json!({"id": "c", "created": 1, "model": "m", "choices": [],
                       "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}),
            ]) + "data: [DONE]\n\n"
        }
        Format::Messages => {
            let reason = match finish {
                "length" => "max_tokens",
                "content_filter" => "refusal",
                _ => "end_turn",
            };
            let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            let text = |text: &str| delta(1, json!({"type": "text_delta", "text": text}));
            data(&[
                json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "model": "m",
                    "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
                delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
                text("Grü"),
                text("ße \"x\""),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}),
                json!({"type": "message_stop"}),
            ])
        }
        Format::Generate => {
            let reason = match finish {
                "length" => "MAX_TOKENS",
                "content_filter" => "SAFETY",
                _ => "STOP",
            };
            let chunk = |part: Value| {
                json!({"responseId": "r", "modelVersion": "m",
                "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]})
            };
            let mut last = chunk(json!({"text": "ße \"x\""}));
            last["candidates"][0]["finishReason"] = json!(reason);
            last["usageMetadata"] =
                json!({"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13});
            data(&[chunk(json!({"text": "hm", "thought": true})), chunk(json!({"text": "Grü"})), last])
        }
        Format::Converse => {
            let reason = match finish {
                "length" => "max_tokens",
                "content_filter" => "content_filtered",
                _ => "end_turn",
            };
            let delta = |index: u32, delta: Value| json!({"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}});
            let stop = |index: u32| json!({"contentBlockStop": {"contentBlockIndex": index}});
            data(&[
                json!({"messageStart": {"role": "assistant"}}),
                delta(0, json!({"reasoningContent": {"text": "hm"}})),
                stop(0),
                delta(1, json!({"text": "Grü"})),
                delta(1, json!({"text": "ße \"x\""})),
                stop(1),
                json!({"messageStop": {"stopReason": reason}}),
                json!({"metadata": {"usage": {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}}}),
            ])
        }
        Format::Responses => {
            let (status, details) = match finish {
                "length" => ("incomplete", json!({"reason": "max_output_tokens"})),
                "content_filter" => ("incomplete", json!({"reason": "content_filter"})),
                _ => ("completed", Value::Null),
            };
            let part = json!({"type": "output_text", "text": "Grüße \"x\"", "annotations": []});
            let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": [part]});
            let delta = |text: &str| {
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
                                            "delta": text})
            };
            data(&[
                json!({"type": "response.created", "response": {"id": "resp_1", "model": "m", "created_at": 1}}),
                json!({"type": "response.output_item.added", "output_index": 0,
                       "item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []}}),
                delta("Grü"),
                delta("ße \"x\""),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": format!("response.{status}"), "response": {"id": "resp_1", "model": "m", "created_at": 1,
                    "status": status, "incomplete_details": details, "output": [item],
                    "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}}}),
            ])
        }
    }
}

fn translated(provider: Format, streams: bool, messages: Option<&str>) -> Translated {
    let compaction = CompactionReply { seal: sealer(), messages: messages.map(Into::into) };
    let reply = ReplyOptions {
        seed: "req_1".into(),
        created: 7,
        compaction: Some(Box::new(compaction)),
        ..ReplyOptions::default()
    };
    let route = Route { client: Format::Responses, provider, stream: streams };
    Translated::new(&route, Arrival::Events, Arc::new(reply), Default::default(), 1 << 20)
}

fn pass(provider: Format, pieces: &[&[u8]]) -> (String, Result<(), StreamError>) {
    let mut translated = translated(provider, true, None);
    let mut out = Vec::new();
    let mut feed = || {
        for piece in pieces {
            out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece))?);
        }
        out.extend_from_slice(&translated.finish()?);
        Ok(())
    };
    let result = feed();
    out.extend_from_slice(&translated.take_ready());
    (String::from_utf8(out).unwrap(), result)
}

fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn compaction_stream_is_one_item_at_every_split() {
    for provider in Format::ALL {
        let stream = stream(provider, "stop");
        let (whole, result) = pass(provider, &[stream.as_bytes()]);
        result.unwrap();
        let events = events(&whole);
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let expected = ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
            .map(|name| format!("response.{name}"));
        assert_eq!(kinds, expected, "{provider}: {whole}");
        let response = &events[4]["response"];
        assert_eq!(response["output"], json!([events[3]["item"]]));
        let item = &response["output"][0];
        assert_eq!(
            (&item["type"], &item["encrypted_content"]),
            (&json!("compaction"), &json!("sealed:Grüße _x_")),
            "{provider}"
        );
        let usage = &response["usage"];
        assert_eq!(
            (&usage["input_tokens"], &usage["total_tokens"]),
            (&json!(9), &json!(13)),
            "{provider}: {usage}"
        );
        for at in 0..=stream.len() {
            let (one, other) = stream.as_bytes().split_at(at);
            let (out, result) = pass(provider, &[one, other]);
            assert!(result.is_ok() && out == whole, "{provider} split at {at}");
        }
    }
}

#[test]
fn compaction_stream_that_is_cut_is_never_complete() {
    for provider in Format::ALL {
        let stream = stream(provider, "stop");
        for at in 0..stream.len() {
            let (out, result) = pass(provider, &[&stream.as_bytes()[..at]]);
            let complete = out.contains("response.completed");
            assert_eq!(complete, result.is_ok(), "{provider} cut at {at}: {out}");
            assert!(!out.contains("output_text"), "{provider} cut at {at}: {out}");
            if complete {
                assert!(out.contains("sealed:Grüße _x_"), "{provider} cut at {at}: {out}");
            }
        }
    }
}

#[test]
fn compaction_of_a_summary_at_the_output_limit_says_so() {
    for provider in Format::ALL {
        let (out, result) = pass(provider, &[stream(provider, "length").as_bytes()]);
        result.unwrap();
        assert!(out.contains("sealed:Grüße _x___[The summary was cut off"), "{provider}: {out}");
        assert!(out.contains("response.completed"), "{provider}: {out}");
    }
}

#[test]
fn compaction_without_text_or_refused_is_an_error() {
    for provider in Format::ALL {
        let refused = stream(provider, "content_filter");
        let empty = stream(provider, "stop").replace("Grü", "").replace("ße \\\"x\\\"", " ");
        for stream in [refused, empty] {
            let (out, result) = pass(provider, &[stream.as_bytes()]);
            assert!(result.is_err(), "{provider}: {out}");
            assert!(!out.contains("compaction") && !out.contains("response.completed"), "{provider}: {out}");
        }
    }
}

#[test]
fn compacted_conversation_is_one_document() {
    for provider in Format::ALL {
        let mut translated = translated(provider, false, Some(r#"{"type":"message"}"#));
        let body = translated.whole(Bytes::from(stream(provider, "stop"))).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["object"], "response.compaction", "{body}");
        let kinds: Vec<_> =
            body["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
        assert_eq!(kinds, ["message", "compaction"], "{provider}");
        assert_eq!(body["usage"]["total_tokens"], 13, "{provider}");
    }
}

#[test]
fn compaction_request_keeps_tools_that_may_not_be_called() {
    let body = json!({"model": "m", "input": [{"role": "user", "content": "Hi"}], "tool_choice": "required",
        "text": {"format": {"type": "json_object"}},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}]});
    for provider in Format::ALL {
        let options = CompactionOptions { seal: sealer(), conversation: true };
        let dialect = Dialect::plain("v", "p");
        let ask = TranslateRequest {
            client: Format::Responses,
            provider,
            stream: true,
            array: false,
            thinking: Default::default(),
            dialect: &dialect,
            model: &EscapedString::from("m"),
            id: "req_1",
            seed: "req_1",
            now: 0,
        };
        let stored = StoreOptions { compaction: Some(&options), ..StoreOptions::default() };
        let made = outgoing_stored(&body.to_string().into(), &ask, stored).unwrap();
        let sent: Value = serde_json::from_slice(&made.text()).unwrap();
        let text = sent.to_string();
        // Converse cannot forbid calls: its tools are left out.
        let has_tool = text.contains("\"look\"") != (provider == Format::Converse);
        assert!(has_tool && text.contains("compacted"), "{provider}: {sent}");
        assert!(!text.contains("json_object") && !text.contains("required\""), "{provider}: {sent}");
        let messages = made.reply.compaction.unwrap().messages.unwrap();
        assert!(messages.contains(r#""text":"Hi""#) && !messages.contains("compacted"), "{messages}");
    }
}

#[test]
fn mapping_12_context_management_is_carried_in_its_own_format_only() {
    let management = json!([{"type": "compaction", "compact_threshold": 100_000}]);
    let body = json!({"model": "m", "input": "Hi", "context_management": management});
    for (kind, to) in [
        (ProviderKind::OpenAi, Format::Responses),
        (ProviderKind::OpenAi, Format::Chat),
        (ProviderKind::Anthropic, Format::Messages),
        (ProviderKind::Gemini, Format::Generate),
    ] {
        let made = made(None, kind, "some-model", Format::Responses, to, &body);
        let sent: Value = serde_json::from_slice(&made.text()).unwrap();
        let lost: Vec<_> = made.losses.iter().map(|loss| (&*loss.element, loss.policy)).collect();
        if to == Format::Responses {
            assert_eq!((&sent["context_management"], lost.len()), (&management, 0));
        } else {
            assert_eq!(lost, [("context_management", LossPolicy::Warn)], "{to}");
            assert!(!sent.to_string().contains("compact"), "{to}: {sent}");
        }
    }
}
