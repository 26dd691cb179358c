//! Requests of Codex without a member `tools` ("responses lite"): the tools are in items, in namespaces, and the shell
//! is a custom tool whose input is free text.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::made;
use crate::provider::ProviderKind;
use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::Arrival;
use crate::translate::{Outgoing, decode_request};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;

/// Source of the custom tool's input: quotes, line breaks and characters of several bytes must survive.
const SCRIPT: &str = "const r = await exec(\"ls \\\"a b\\\"\");\nprint(`${r}\t→ 😀`);";

/// Returns a request as Codex 0.169 sends it for models of its own catalogue.
fn request(grammar: bool, further: &[Value]) -> Value {
    let mut exec = json!({"type": "custom", "name": "exec", "description": "Runs JavaScript."});
    if grammar {
        exec["format"] = json!({"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"});
    }
    let mut input = vec![
        json!({"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "shell", "description": "The shell.", "tools": [exec]},
            {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [
                {"type": "function", "name": "spawn", "description": "Starts one.", "strict": false,
                 "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}}]}]}),
        json!({"type": "message", "role": "developer",
               "content": [{"type": "input_text", "text": "You are a coding agent."}]}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]}),
    ];
    input.extend(further.iter().cloned());
    json!({
        "model": "m", "input": input, "stream": true, "store": false, "parallel_tool_calls": false,
        "tool_choice": "auto", "reasoning": {"effort": "medium", "summary": "auto", "context": "all_turns"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "text": {"verbosity": "low"}, "client_metadata": {"x-codex-window-id": "t:0"},
    })
}

/// Returns earlier turns: a call of the custom tool, and its result.
fn history() -> Vec<Value> {
    vec![
        json!({"type": "custom_tool_call", "call_id": "call_1", "name": "exec", "namespace": "shell", "input": SCRIPT}),
        json!({"type": "custom_tool_call_output", "call_id": "call_1", "output": "a b\n"}),
    ]
}

/// Providers of all formats, with the one of the responses format that refuses custom tools.
const TARGETS: [(ProviderKind, &str, Format); 5] = [
    (ProviderKind::OpenAiCompatible, "some-model", Format::Chat),
    (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages),
    (ProviderKind::Gemini, "gemini-3-pro", Format::Generate),
    (ProviderKind::Bedrock, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", Format::Converse),
    (ProviderKind::OpenAiCompatible, "some-model", Format::Responses),
];

fn translated(target: (ProviderKind, &str, Format), body: &Value) -> (Outgoing, Value, Vec<String>) {
    let made = made(None, target.0, target.1, Format::Responses, target.2, body);
    let sent = serde_json::from_slice(&made.text()).unwrap();
    let losses = made.losses.iter().map(|loss| loss.element.to_string()).collect();
    (made, sent, losses)
}

/// Returns the names and descriptions of the tools that a provider receives.
fn tools(format: Format, sent: &Value) -> Vec<(String, String)> {
    let own = |tool: &Value| {
        let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
        (text("name"), text("description"))
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match format {
        Format::Chat => list(&sent["tools"]).iter().map(|tool| own(&tool["function"])).collect(),
        Format::Messages => list(&sent["tools"]).iter().map(own).collect(),
        Format::Generate => list(&sent["tools"][0]["functionDeclarations"]).iter().map(own).collect(),
        Format::Converse => {
            list(&sent["toolConfig"]["tools"]).iter().map(|tool| own(&tool["toolSpec"])).collect()
        }
        Format::Responses => list(&sent["tools"])
            .iter()
            .flat_map(|space| list(&space["tools"]))
            .map(|tool| own(&tool))
            .collect(),
    }
}

#[test]
fn mapping_3_tools_in_items_reach_every_format() {
    for target in TARGETS {
        for grammar in [false, true] {
            let (_, sent, losses) = translated(target, &request(grammar, &[]));
            let format = target.2;
            let names: Vec<String> = tools(format, &sent).into_iter().map(|(name, _)| name).collect();
            let expected = if format == Format::Responses {
                ["exec", "spawn"]
            } else {
                ["shell__exec", "agents__spawn"]
            };
            assert_eq!(names, expected, "{format}: {sent}");
            assert_eq!(tools(format, &sent)[0].1, "Runs JavaScript.", "{format}");
            assert_eq!(
                losses.iter().any(|loss| loss == "custom_tool_grammar"),
                grammar,
                "{format}: {losses:?}"
            );
            assert!(!sent.to_string().contains("additional_tools"), "{format}: {sent}");
            match format {
                Format::Chat | Format::Responses => assert_eq!(sent["parallel_tool_calls"], false),
                Format::Messages => {
                    assert_eq!(
                        sent["tool_choice"],
                        json!({"type": "auto", "disable_parallel_tool_use": true})
                    );
                }
                Format::Converse => {
                    assert_eq!(
                        sent["additionalModelRequestFields"]["tool_choice"],
                        json!({"type": "auto", "disable_parallel_tool_use": true})
                    );
                }
                // It has no such setting: the loss is reported.
                Format::Generate => {
                    assert!(losses.iter().any(|loss| loss == "parallel_tool_calls"), "{losses:?}")
                }
            }
            if format == Format::Responses {
                assert_eq!(sent["reasoning"]["context"], "all_turns");
                assert_eq!(sent["tools"][0]["name"], "shell");
                assert_eq!(sent["tools"][1]["description"], "Other agents.");
            } else {
                assert!(losses.iter().any(|loss| loss == "reasoning.context"), "{format}: {losses:?}");
            }
        }
    }
}

#[test]
fn mapping_3_calls_of_custom_tools_in_the_history_keep_their_text() {
    for target in TARGETS {
        let (_, sent, _) = translated(target, &request(false, &history()));
        let (name, input) = match target.2 {
            Format::Chat => {
                let message =
                    sent["messages"].as_array().unwrap().iter().find(|turn| turn["tool_calls"].is_array());
                let call = message.unwrap()["tool_calls"][0]["function"].clone();
                (call["name"].clone(), serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap())
            }
            Format::Messages => {
                let turns = sent["messages"].as_array().unwrap().iter();
                let mut blocks =
                    turns.flat_map(|turn| turn["content"].as_array().cloned().unwrap_or_default());
                let call = blocks.find(|block| block["type"] == "tool_use").unwrap();
                (call["name"].clone(), call["input"].clone())
            }
            Format::Generate => {
                let turns = sent["contents"].as_array().unwrap().iter();
                let mut parts = turns.flat_map(|turn| turn["parts"].as_array().cloned().unwrap_or_default());
                let call =
                    parts.find(|part| part["functionCall"].is_object()).unwrap()["functionCall"].clone();
                (call["name"].clone(), call["args"].clone())
            }
            Format::Converse => {
                let turns = sent["messages"].as_array().unwrap().iter();
                let mut blocks =
                    turns.flat_map(|turn| turn["content"].as_array().cloned().unwrap_or_default());
                let call = blocks.find(|block| block["toolUse"].is_object()).unwrap()["toolUse"].clone();
                (call["name"].clone(), call["input"].clone())
            }
            Format::Responses => {
                let call =
                    sent["input"].as_array().unwrap().iter().find(|item| item["name"] == "exec").unwrap();
                assert_eq!((&call["type"], &call["namespace"]), (&json!("function_call"), &json!("shell")));
                (json!("shell__exec"), serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap())
            }
        };
        assert_eq!((name, input), (json!("shell__exec"), json!({"input": SCRIPT})), "{}", target.2);
        assert!(sent.to_string().contains("a b\\n"), "the result is sent: {sent}");
    }
}

/// Returns a response that calls the tool `name`, as a provider of this format sends it: whole, and as a stream.
#[expect(clippy::too_many_lines, reason = "one arm for each format")]
fn answer(format: Format, name: &str) -> (Value, String) {
    let arguments = json!({"input": SCRIPT}).to_string();
    let (one, other) = arguments.split_at(arguments.len() / 2 - 3);
    let data = |frames: &[Value]| frames.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>();
    let input = json!({"input": SCRIPT});
    match format {
        Format::Chat => {
            let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13});
            let call = json!({"id": "call_2", "type": "function", "function": {"name": name, "arguments": arguments}});
            let whole = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
                {"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": [call]},
                 "finish_reason": "tool_calls"}], "usage": usage});
            let chunk = |delta: Value, finish: Value| {
                json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            };
            let piece = |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
            let begin = json!({"role": "assistant", "tool_calls": [
                {"index": 0, "id": "call_2", "type": "function", "function": {"name": name, "arguments": ""}}]});
            let frames = [
                chunk(begin, Value::Null),
                chunk(piece(one), Value::Null),
                chunk(piece(other), Value::Null),
                chunk(json!({}), json!("tool_calls")),
                json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
                       "usage": usage}),
            ];
            (whole, data(&frames) + "data: [DONE]\n\n")
        }
        Format::Messages => {
            let usage = json!({"input_tokens": 9, "output_tokens": 4});
            let whole = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "tool_use", "id": "toolu_2", "name": name, "input": input}],
                "stop_reason": "tool_use", "usage": usage});
            let piece = |text: &str| {
                json!({"type": "content_block_delta", "index": 0,
                       "delta": {"type": "input_json_delta", "partial_json": text}})
            };
            let frames = [
                json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                    "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0,
                       "content_block": {"type": "tool_use", "id": "toolu_2", "name": name, "input": {}}}),
                piece(one),
                piece(other),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}),
                json!({"type": "message_stop"}),
            ];
            (whole, data(&frames))
        }
        Format::Generate => {
            let whole = json!({"responseId": "r", "modelVersion": "m", "candidates": [{"index": 0, "content":
                {"role": "model", "parts": [{"functionCall": {"name": name, "args": input}}]},
                "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}});
            (whole.clone(), data(&[whole]))
        }
        Format::Converse => {
            let usage = json!({"inputTokens": 9, "outputTokens": 4, "totalTokens": 13});
            let call = json!({"toolUse": {"toolUseId": "tooluse_2", "name": name, "input": input}});
            let whole = json!({"output": {"message": {"role": "assistant", "content": [call]}},
                               "stopReason": "tool_use", "usage": usage});
            let piece = |text: &str| json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": text}}}});
            let start = json!({"toolUse": {"toolUseId": "tooluse_2", "name": name}});
            let frames = [
                json!({"messageStart": {"role": "assistant"}}),
                json!({"contentBlockStart": {"contentBlockIndex": 0, "start": start}}),
                piece(one),
                piece(other),
                json!({"contentBlockStop": {"contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "tool_use"}}),
                json!({"metadata": {"usage": usage}}),
            ];
            (whole, data(&frames))
        }
        Format::Responses => {
            let item = json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_2",
                              "name": name, "namespace": "shell", "arguments": arguments});
            let whole = json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m",
                "status": "completed", "output": [item],
                "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}});
            let mut begun = item.clone();
            begun["arguments"] = json!("");
            let piece = |text: &str| {
                json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1",
                       "delta": text})
            };
            let frames = [
                json!({"type": "response.created", "response": {"id": "resp_1", "model": "m", "created_at": 1}}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
                piece(one),
                piece(other),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": whole}),
            ];
            (whole, data(&frames))
        }
    }
}

fn response(made: &Outgoing, provider: Format, arrival: Arrival, pieces: &[&[u8]]) -> String {
    let stream = arrival == Arrival::Events;
    let route = Route { client: Format::Responses, provider, stream };
    let reply = Arc::new(ReplyOptions { seed: "req_1".into(), ..ReplyOptions::default() });
    let mut translated = Translated::new(&route, arrival, reply, made.restore.clone(), 1 << 20);
    let mut out = Vec::new();
    if stream {
        for piece in pieces {
            out.extend_from_slice(&translated.feed(Bytes::copy_from_slice(piece)).unwrap());
        }
        out.extend_from_slice(&translated.finish().unwrap());
    } else {
        out.extend_from_slice(&translated.whole(Bytes::from(pieces.concat())).unwrap());
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn mapping_3_custom_call_is_restored_with_namespace_and_raw_text() {
    let expected = |call: &Value| {
        assert_eq!(
            [&call["type"], &call["name"], &call["namespace"], &call["input"]],
            [&json!("custom_tool_call"), &json!("exec"), &json!("shell"), &json!(SCRIPT)],
            "{call}"
        );
    };
    for target in TARGETS {
        let (made, _, _) = translated(target, &request(true, &[]));
        let name = if target.2 == Format::Responses { "exec" } else { "shell__exec" };
        let (whole, stream) = answer(target.2, name);
        let body = response(&made, target.2, Arrival::Whole, &[whole.to_string().as_bytes()]);
        let body: Value = serde_json::from_str(&body).unwrap();
        expected(&body["output"][0]);
        assert_eq!(body["usage"]["total_tokens"], 13, "{}", target.2);
        let whole_stream = response(&made, target.2, Arrival::Events, &[stream.as_bytes()]);
        for at in 0..=stream.len() {
            let (one, other) = stream.as_bytes().split_at(at);
            let split = response(&made, target.2, Arrival::Events, &[one, other]);
            assert_eq!(split, whole_stream, "{} split at {at}", target.2);
        }
        let events: Vec<Value> = whole_stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
        expected(&of("response.output_item.done")[0]["item"]);
        let done = of("response.custom_tool_call_input.done");
        assert_eq!((done.len(), &done[0]["input"]), (1, &json!(SCRIPT)), "{}", target.2);
        let end = events.last().unwrap();
        assert_eq!(end["type"], "response.completed");
        expected(&end["response"]["output"][0]);
        assert_eq!(end["response"]["usage"]["total_tokens"], 13, "{}", target.2);
    }
}

#[test]
fn tools_in_items_repeated_later_replace_the_earlier_definition() {
    let newer = json!({"type": "additional_tools", "role": "developer", "tools": [
        {"type": "namespace", "name": "shell", "description": "The shell.", "tools": [
            {"type": "custom", "name": "exec", "description": "Runs newer JavaScript."}]}]});
    let (_, sent, _) = translated(TARGETS[1], &request(false, &[newer]));
    let found = tools(Format::Messages, &sent);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["shell__exec", "agents__spawn"]);
    assert_eq!(found[0].1, "Runs newer JavaScript.");
}

#[test]
fn tools_in_items_that_are_invalid_are_refused_with_their_path() {
    for (tools, path) in [
        (json!(null), "input[1].tools"),
        (json!("exec"), "input[1].tools"),
        (json!([{"type": "custom"}]), "input[1].tools[0].name"),
        (
            json!([{"type": "namespace", "name": "n", "tools": [{"name": "x"}]}]),
            "input[1].tools[0].tools[0].type",
        ),
    ] {
        let item = json!({"type": "additional_tools", "role": "developer", "tools": tools});
        let body = json!({"model": "m", "input": [{"role": "user", "content": "Hi"}, item]}).to_string();
        let error = decode_request(Format::Responses, &body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(path), "{error}");
        assert!(error.message.contains(path), "{error}");
    }
    let body = r#"{"model":"m","input":[{"type":"additional_tools","role":"developer"}]}"#;
    let error = decode_request(Format::Responses, body).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input[0].tools"));
}

/// Returns the items of a search over tools that has loaded these.
fn searched(tools: &Value) -> [Value; 2] {
    [
        json!({"type": "tool_search_call", "id": "tsc_1", "call_id": "s1", "execution": "client",
               "status": "completed", "arguments": {"query": "calendar"}}),
        json!({"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed",
               "tools": tools}),
    ]
}

#[test]
fn mapping_3_tools_that_a_search_loaded_are_offered_and_called_by_their_namespace() {
    let add = json!({"type": "function", "name": "add", "description": "Adds.", "defer_loading": true,
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}});
    let calendar =
        json!({"type": "namespace", "name": "mcp__cal", "description": "Calendar.", "tools": [add]});
    let plain = json!({"type": "function", "name": "lookup", "parameters": {"type": "object"}});
    for target in TARGETS {
        let mut more = searched(&json!([calendar, plain])).to_vec();
        // The same tools, loaded once more.
        more.extend(searched(&json!([calendar])));
        more.extend([
            json!({"type": "function_call", "call_id": "c1", "namespace": "mcp__cal", "name": "add", "arguments": "{\"q\":\"x\"}"}),
            json!({"type": "function_call_output", "call_id": "c1", "output": "ok"}),
        ]);
        let (_, sent, _) = translated(target, &request(false, &more));
        let offered = tools(target.2, &sent);
        let names: Vec<&str> = offered.iter().map(|(name, _)| name.as_str()).collect();
        let is_own = target.2 == Format::Responses;
        let loaded = names.iter().filter(|name| name.ends_with("add") || **name == "lookup").count();
        assert_eq!(loaded, if is_own { 0 } else { 2 }, "{}: {names:?}", target.2);
        if is_own {
            // The provider reads the result of the search.
            assert!(sent.to_string().contains("tool_search_output"), "{sent}");
        } else {
            let name = names.iter().find(|name| name.ends_with("add")).unwrap();
            assert!(
                sent.to_string().matches(*name).count() >= 2,
                "the call has the name of the tool: {sent}"
            );
        }
    }
}

#[test]
fn tools_of_a_search_that_are_invalid_are_refused_with_their_path() {
    let [call, output] = searched(&json!([{"type": "function"}]));
    let body = json!({"model": "m", "input": [call, output]}).to_string();
    let error = decode_request(Format::Responses, &body).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input[1].tools[0].name"), "{error}");
    // A search that has found nothing loads nothing.
    for nothing in [json!(null), json!([])] {
        let body = json!({"model": "m", "input": searched(&nothing)}).to_string();
        assert!(decode_request(Format::Responses, &body).unwrap().tools.is_empty());
    }
}
