//! Calls whose arguments mean "none" have an empty object for clients of every format, in streams and documents.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::canonical::answer::AnswerBlockKind;
use crate::canonical::{Answer, Event};
use crate::translate::Restore;
use crate::translate::codecs::{AnyDecoder, decode_answer};
use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::Arrival;
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use json::JsonStr;

/// Frames before the arguments, the frame of one piece of them, and the frames behind them.
type CallFrames = (Vec<Value>, Box<dyn Fn(&str) -> Value>, Vec<Value>);

/// Returns the frames of a stream with one call of `f`, whose arguments arrive in these pieces.
pub(super) fn frames(provider: Format, pieces: &[&str]) -> Vec<Value> {
    let call = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}});
    let chunk = |delta: Value, finish: Value| json!({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let (start, piece, end): CallFrames = match provider {
        Format::Chat => (
            vec![chunk(json!({"role": "assistant", "tool_calls": [call]}), Value::Null)],
            Box::new(move |text| {
                chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}), Value::Null)
            }),
            vec![chunk(json!({}), json!("tool_calls"))],
        ),
        Format::Messages => (
            vec![
                json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0,
                       "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}),
            ],
            Box::new(|text| {
                json!({"type": "content_block_delta", "index": 0,
                       "delta": {"type": "input_json_delta", "partial_json": text}})
            }),
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ],
        ),
        Format::Responses => (
            vec![
                json!({"type": "response.created", "response": {"id": "r", "object": "response"}}),
                json!({"type": "response.output_item.added", "output_index": 0,
                       "item": {"type": "function_call", "id": "fc", "call_id": "c", "name": "f"}}),
            ],
            Box::new(
                |text| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": text}),
            ),
            vec![
                json!({"type": "response.output_item.done", "output_index": 0,
                       "item": {"type": "function_call", "id": "fc", "call_id": "c", "name": "f",
                                "arguments": pieces.concat()}}),
                json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed"}}),
            ],
        ),
        // The format has no arguments in pieces of text.
        Format::Generate => (
            vec![json!({"responseId": "r", "candidates": [{"content": {"parts": [
                {"functionCall": {"id": "c", "name": "f", "args": null}}]}, "finishReason": "STOP"}]})],
            Box::new(|_| json!({"responseId": "r"})),
            Vec::new(),
        ),
        Format::Converse => (
            vec![
                json!({"messageStart": {"role": "assistant"}}),
                json!({"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {
                    "toolUseId": "c", "name": "f", "type": "tool_use"}}}}),
            ],
            Box::new(
                |text| json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": text}}}}),
            ),
            vec![
                json!({"contentBlockStop": {"contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "tool_use"}}),
                json!({"metadata": {"usage": {"inputTokens": 1, "outputTokens": 1}}}),
            ],
        ),
    };
    start.into_iter().chain(pieces.iter().map(|text| piece(text))).chain(end).collect()
}

/// Reads what the client gets, and returns the arguments of its only call.
pub(super) fn arguments(client: Format, stream: bool, out: &[u8]) -> Value {
    let mut answer = Answer::default();
    let mut take = |event: Event<'_>| answer.take(&event);
    if client == Format::Converse && stream {
        // An event stream: each message has its payload as text.
        let text = String::from_utf8_lossy(out).into_owned();
        let input = text.match_indices(r#""input":"#).map(|(at, found)| {
            let mut rest =
                serde_json::Deserializer::from_str(&text[at + found.len()..]).into_iter::<String>();
            rest.next().unwrap().unwrap()
        });
        let input: String = input.collect();
        return serde_json::from_str(&input).unwrap_or_else(|_| panic!("{input:?} in {text}"));
    }
    let text = std::str::from_utf8(out).unwrap();
    if stream {
        let mut decoder = AnyDecoder::new(client, "", false);
        for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
            decoder.frame(data, &mut take).unwrap();
        }
        let _ = decoder.finish(&mut take);
    } else {
        decode_answer(client, text, "", false, &mut take).unwrap();
    }
    let calls: Vec<_> =
        answer.blocks.iter().filter(|block| matches!(block.kind, AnswerBlockKind::ToolUse { .. })).collect();
    assert_eq!(calls.len(), 1, "{text}");
    let input = calls[0]
        .object
        .clone()
        .unwrap_or_else(|| JsonStr::from_escaped(&calls[0].text).decode().into_owned());
    if input.is_empty() { json!({}) } else { serde_json::from_str(&input).unwrap() }
}

#[test]
fn arguments_that_mean_none_are_an_empty_object_for_every_client() {
    let other = json!({"q": "x"}).to_string();
    for provider in Format::ALL {
        for (pieces, expected) in [
            (&["null"][..], json!({})),
            (&["nu", "ll"], json!({})),
            (&[""], json!({})),
            (&[" "], json!({})),
            (&["[]"], json!({})),
            (&[], json!({})),
            (&["{", "}"], json!({})),
            (&[&*other], json!({"q": "x"})),
        ] {
            if provider == Format::Generate && expected != json!({}) {
                continue;
            }
            for client in Format::ALL {
                for stream in [true, false] {
                    let route = Route { client, provider, stream };
                    let reply = Arc::new(ReplyOptions::default());
                    let mut translated =
                        Translated::new(&route, Arrival::Events, reply, Restore::default(), 1 << 20);
                    let mut out = Vec::new();
                    for frame in frames(provider, pieces) {
                        out.extend_from_slice(
                            &translated.feed(Bytes::from(format!("data: {frame}\n\n"))).unwrap(),
                        );
                    }
                    out.extend_from_slice(&translated.finish().unwrap());
                    let got = arguments(client, stream, &out);
                    assert_eq!(got, expected, "{provider} to {client}, {pieces:?}, stream {stream}");
                }
            }
        }
    }
}

#[test]
fn document_with_arguments_that_mean_none_has_a_call_with_an_empty_object() {
    for (provider, body) in [
        (
            Format::Chat,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"null"}}]},"finish_reason":"tool_calls"}]}"#,
        ),
        (
            Format::Chat,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":null}}]},"finish_reason":"tool_calls"}]}"#,
        ),
        (
            Format::Messages,
            r#"{"id":"m","type":"message","content":[{"type":"tool_use","id":"c","name":"f","input":null}],"stop_reason":"tool_use"}"#,
        ),
        (
            Format::Responses,
            r#"{"id":"r","object":"response","status":"completed","output":[{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"null"}]}"#,
        ),
        (
            Format::Generate,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":null}}]},"finishReason":"STOP"}],"responseId":"r"}"#,
        ),
        (
            Format::Converse,
            r#"{"output":{"message":{"content":[{"toolUse":{"toolUseId":"c","name":"f","input":null,"type":"tool_use"}}]}},"stopReason":"tool_use"}"#,
        ),
    ] {
        for client in Format::ALL {
            let route = Route { client, provider, stream: false };
            let reply = Arc::new(ReplyOptions::default());
            let mut translated = Translated::new(&route, Arrival::Whole, reply, Restore::default(), 1 << 20);
            let out = translated.whole(Bytes::from(body)).unwrap();
            assert_eq!(arguments(client, false, &out), json!({}), "{provider} to {client}: {body}");
        }
    }
}

/// A model writes what is nearly JSON; the request stays valid, and the text is in it.
#[test]
fn arguments_that_are_nearly_json_leave_the_request_valid() {
    use crate::provider::ProviderKind::{Anthropic, Bedrock, Gemini, OpenAi};
    for text in [r#"{"days":3.5e in0}"#, "{oops}", r#"{"a":01}"#, r#"{"a":[}]}"#, r#"{"a" 1}"#] {
        let chat = json!({"model": "m", "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}]},
            {"role": "tool", "tool_call_id": "c", "content": "r"}]});
        let responses = json!({"model": "m", "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": text},
            {"type": "function_call_output", "call_id": "c", "output": "r"}]});
        for (from, body) in [(Format::Chat, &chat), (Format::Responses, &responses)] {
            for (kind, model, to) in [
                (OpenAi, "gpt-4.1", Format::Chat),
                (Anthropic, "claude-sonnet-4-5", Format::Messages),
                (OpenAi, "gpt-5.2", Format::Responses),
                (Gemini, "gemini-2.5-flash", Format::Generate),
                (Bedrock, "anthropic.claude-sonnet-4-5-v1:0", Format::Converse),
            ] {
                // It is parsed there.
                let (sent, _) = super::requests::sent(kind, model, from, to, body);
                let inside = json!(text).to_string();
                assert!(sent.to_string().contains(inside.trim_matches('"')), "{from} to {to}: {sent}");
            }
        }
    }
}
