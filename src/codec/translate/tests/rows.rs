//! Rows of the loss tables, from a chat client to all other formats, and facts about whole streams.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::{made, sent};
use crate::canonical::Effort;
use crate::provider::ProviderKind;
use crate::translate::Restore;
use crate::translate::translated::{Route, Translated};
use crate::translate::verbatim::Arrival;
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;

fn to_claude(body: &Value) -> (Value, Vec<String>) {
    sent(ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Chat, Format::Messages, body)
}

fn to_gpt(body: &Value) -> (Value, Vec<String>) {
    sent(ProviderKind::OpenAi, "gpt-5.2", Format::Chat, Format::Responses, body)
}

fn to_gemini(body: &Value) -> (Value, Vec<String>) {
    sent(ProviderKind::Gemini, "gemini-2.5-pro", Format::Chat, Format::Generate, body)
}

fn tools(choice: Value) -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}});
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool("a"), tool("b"), tool("c")], "tool_choice": choice})
}

#[test]
fn mapping_3_tool_choice_modes_reach_each_provider() {
    for (choice, claude, gpt, gemini) in [
        (json!("auto"), json!({"type": "auto"}), json!("auto"), json!({"mode": "AUTO"})),
        (json!("required"), json!({"type": "any"}), json!("required"), json!({"mode": "ANY"})),
        (json!("none"), json!({"type": "none"}), json!("none"), json!({"mode": "NONE"})),
        (
            json!({"type": "function", "function": {"name": "b"}}),
            json!({"type": "tool", "name": "b"}),
            json!({"type": "function", "name": "b"}),
            json!({"mode": "ANY", "allowedFunctionNames": ["b"]}),
        ),
    ] {
        let body = tools(choice);
        assert_eq!(to_claude(&body).0["tool_choice"], claude);
        assert_eq!(to_gpt(&body).0["tool_choice"], gpt);
        assert_eq!(to_gemini(&body).0["toolConfig"]["functionCallingConfig"], gemini);
    }
}

#[test]
fn mapping_3_tool_choice_of_a_subset_reaches_each_provider() {
    let names = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "c"}}]);
    let body = tools(json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": names}}));
    let (claude, _) = to_claude(&body);
    let offered: Vec<&str> =
        claude["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!((offered, &claude["tool_choice"]["type"]), (vec!["a", "c"], &json!("any")));
    assert_eq!(to_gpt(&body).0["tool_choice"]["type"], "allowed_tools");
    let config = to_gemini(&body).0["toolConfig"]["functionCallingConfig"].clone();
    assert_eq!(config, json!({"mode": "ANY", "allowedFunctionNames": ["a", "c"]}));
}

#[test]
fn mapping_3_parallel_tool_calls_off_is_sent_or_lost() {
    let mut body = tools(Value::Null);
    body["parallel_tool_calls"] = json!(false);
    assert_eq!(to_claude(&body).0["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(to_gpt(&body).0["parallel_tool_calls"], false);
    assert_eq!(to_gemini(&body).1, ["parallel_tool_calls"]);
}

#[test]
fn mapping_3_tool_names_are_made_legal() {
    let long = "x".repeat(100);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [
        {"type": "function", "function": {"name": "wetter.für", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": long, "parameters": {"type": "object"}}},
    ]});
    let legal = |name: &Value, limit: usize| {
        let name = name.as_str().unwrap();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
        assert!((1..=limit).contains(&name.len()) && name.bytes().all(plain), "{name}");
    };
    let (claude, gpt, gemini) = (to_claude(&body).0, to_gpt(&body).0, to_gemini(&body).0);
    for number in 0..2 {
        legal(&claude["tools"][number]["name"], 128);
        legal(&gpt["tools"][number]["name"], 64);
        legal(&gemini["tools"][0]["functionDeclarations"][number]["name"], 128);
    }
}

#[test]
fn mapping_3_custom_tool_with_free_text_is_sent_or_converted() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: \"a\""}}}}]});
    let (claude, lost) = to_claude(&body);
    assert_eq!(claude["tools"][0]["input_schema"]["properties"]["input"]["type"], "string");
    assert_eq!(lost, ["custom_tool_grammar"]);
    assert_eq!(to_gpt(&body).0["tools"][0]["type"], "custom");
    assert_eq!(to_gemini(&body).1, ["custom_tool_grammar"]);
}

#[test]
fn mapping_4_reasoning_efforts_and_budgets_are_converted() {
    // The table is symmetric except at its ends.
    for (effort, budget) in
        [(Effort::Low, 2_048), (Effort::Medium, 8_192), (Effort::High, 16_384), (Effort::Max, 32_768)]
    {
        assert_eq!((effort.budget(), Effort::of_budget(budget)), (budget, effort));
        let body = json!({"model": "m", "max_tokens": 60_000, "reasoning_effort": effort.name(), "messages": [{"role": "user", "content": "Hi"}]});
        assert_eq!(to_claude(&body).0["thinking"]["budget_tokens"], budget);
        assert_eq!(to_gemini(&body).0["generationConfig"]["thinkingConfig"]["thinkingBudget"], budget);
        let word = if effort == Effort::Max { "xhigh" } else { effort.name() };
        assert_eq!(to_gpt(&body).0["reasoning"]["effort"], word);
    }
    let off =
        json!({"model": "m", "reasoning_effort": "none", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(to_gpt(&off).0["reasoning"]["effort"], "none");
    // Reasoning of this model cannot be switched off: it gets the minimum budget.
    assert_eq!(to_gemini(&off).0["generationConfig"]["thinkingConfig"]["thinkingBudget"], 128);
}

#[test]
fn mapping_6_sampling_parameters_are_those_of_each_provider() {
    let body = json!({"model": "m", "temperature": 1.5, "top_p": 0.5, "top_k": 7, "seed": 3, "presence_penalty": 0.5, "stop": ["x"], "max_completion_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]});
    let (claude, lost) = to_claude(&body);
    assert_eq!((&claude["max_tokens"], &claude["stop_sequences"]), (&json!(99), &json!(["x"])));
    assert!(
        claude["temperature"].as_f64().unwrap() <= 1.0 && lost.contains(&"temperature".to_owned()),
        "{lost:?}"
    );
    let config = to_gemini(&body).0["generationConfig"].clone();
    assert_eq!(
        (&config["temperature"], &config["topP"], &config["topK"]),
        (&json!(1.5), &json!(0.5), &json!(7))
    );
    assert_eq!(
        (&config["seed"], &config["maxOutputTokens"], &config["stopSequences"]),
        (&json!(3), &json!(99), &json!(["x"]))
    );
    // This model takes them while it does not reason, which is its default.
    let (gpt, lost) = to_gpt(&body);
    assert_eq!((&gpt["max_output_tokens"], &gpt["temperature"]), (&json!(99), &json!(1.5)));
    assert!(lost.contains(&"stop".to_owned()), "{lost:?}");
    let mut reasoning = body.clone();
    reasoning["reasoning_effort"] = json!("high");
    let (gpt, lost) = to_gpt(&reasoning);
    assert_eq!((&gpt["temperature"], &gpt["top_p"]), (&json!(null), &json!(null)));
    for element in ["temperature", "top_p", "stop"] {
        assert!(lost.contains(&element.to_owned()), "{element} of {lost:?}");
    }
}

fn through(provider: Format, client: Format, pieces: &[&str]) -> String {
    passed(provider, client, Arrival::Events, pieces)
}

fn passed(provider: Format, client: Format, arrival: Arrival, pieces: &[&str]) -> String {
    let route = Route { client, provider, stream: true };
    let reply = Arc::new(ReplyOptions { show_thinking: true, usage_wanted: true, ..ReplyOptions::default() });
    let mut translated = Translated::new(&route, arrival, reply, Restore::default(), 1 << 20);
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&translated.feed(Bytes::from((*piece).to_owned())).unwrap());
    }
    out.extend_from_slice(&translated.finish().unwrap());
    String::from_utf8(out).unwrap()
}

const BEGIN: &str = r#"{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}"#;
const END: &str = r#"{"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn fact_11_comments_are_not_events() {
    let plain = format!("data: {BEGIN}\n\ndata: {END}\n\ndata: [DONE]\n\n");
    let noisy = format!(
        ": OPENROUTER PROCESSING\n\ndata: {BEGIN}\n\n: keepalive\n\n: keepalive\ndata: {END}\n\ndata: [DONE]\n\n"
    );
    for client in [Format::Messages, Format::Responses, Format::Generate] {
        assert_eq!(through(Format::Chat, client, &[&noisy]), through(Format::Chat, client, &[&plain]));
    }
}

#[test]
fn json_of_several_lines_is_written_in_one_line() {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let lines = |value: &Value| {
        pretty(value).lines().map(|line| format!("data: {line}\n")).collect::<String>() + "\n"
    };
    let probable =
        json!({"content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}]});
    let chat = json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": probable, "finish_reason": null}]});
    let called = json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": [1, {"b": "c"}]}}}, {"executableCode": {"language": "PYTHON", "code": "1"}}]}, "finishReason": "STOP"}]});
    let searched = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "url": "https://example.org"}]}});
    let begun = json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "model": "m"}});
    let ended = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let streams = [
        (Format::Chat, Arrival::Events, format!("{}data: {END}\n\ndata: [DONE]\n\n", lines(&chat))),
        (Format::Generate, Arrival::Events, lines(&called)),
        (Format::Generate, Arrival::Array, format!("[{}\r\n]", pretty(&called).replace('\n', "\r\n"))),
        (Format::Messages, Arrival::Events, format!("{}{}{ended}", lines(&begun), lines(&searched))),
    ];
    for (provider, arrival, stream) in &streams {
        // A line means nothing in an event stream.
        let lines = |client: &Format| client != provider && *client != Format::Converse;
        for client in Format::ALL.into_iter().filter(lines) {
            let out = passed(*provider, client, *arrival, &[stream]);
            for line in out.lines().filter(|line| !line.is_empty()) {
                let data = line.strip_prefix("data: ").filter(|data| *data != "[DONE]");
                let is_json = data.is_none_or(|data| serde_json::from_str::<Value>(data).is_ok());
                let is_event = ["data: ", "event: ", ":"].iter().any(|field| line.starts_with(field));
                assert!(is_json && is_event, "{provider} to {client}: {line:?} in {out}");
            }
        }
    }
}

#[test]
fn fact_43_sse_ids_event_names_and_missing_spaces_are_ignored() {
    let plain = format!("data: {BEGIN}\n\ndata: {END}\n\n");
    let begin = BEGIN.replace("null", "\"null\"");
    let odd = format!(
        "id:1\nevent:result\n:HTTP_STATUS/200\ndata:{begin}\n\nid:2\nevent:result\n:HTTP_STATUS/200\ndata:{END}\n\n"
    );
    assert_eq!(
        through(Format::Chat, Format::Messages, &[&odd]),
        through(Format::Chat, Format::Messages, &[&plain])
    );
}

#[test]
fn bug_15_finish_reason_max_tokens_is_translated_to_each_format() {
    let frame = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi"}]},"finishReason":"MAX_TOKENS"}],"responseId":"r"}"#;
    let sse = format!("data: {frame}\r\n\r\n");
    let chat = through(Format::Generate, Format::Chat, &[&sse]);
    assert!(chat.contains(r#""finish_reason":"length""#) && !chat.contains("MAX_TOKENS"), "{chat}");
    assert!(through(Format::Generate, Format::Messages, &[&sse]).contains(r#""stop_reason":"max_tokens""#));
    assert!(
        through(Format::Generate, Format::Responses, &[&sse]).contains(r#""reason":"max_output_tokens""#)
    );
}

#[test]
fn bug_24_responses_stream_closes_every_item_and_ends_with_all_output() {
    let frames = [
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"so","thought":true}]}}],"responseId":"r"}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi"}]}}],"responseId":"r"}"#,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},"finishReason":"STOP"}],"responseId":"r"}"#,
    ];
    let sse: String = frames.iter().map(|frame| format!("data: {frame}\r\n\r\n")).collect();
    let out = through(Format::Generate, Format::Responses, &[&sse]);
    let events: Vec<Value> = out
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let count = |name: &str| events.iter().filter(|event| event["type"] == name).count();
    assert_eq!((count("response.output_item.added"), count("response.output_item.done")), (3, 3));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let kinds: Vec<&str> = last["response"]["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
}

/// A custom tool and a function may have the same name in two namespaces.
#[test]
fn custom_tool_is_told_from_a_function_of_its_name() {
    let body = json!({"model": "m", "input": "Hi", "tools": [
        {"type": "namespace", "name": "one", "tools": [{"type": "custom", "name": "run"}]},
        {"type": "namespace", "name": "two", "tools": [
            {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}]},
    ]});
    let made =
        made(None, ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Responses, Format::Messages, &body);
    let sent: Value = serde_json::from_slice(&made.text()).unwrap();
    let names: Vec<&Value> = sent["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    let call = |number: usize| json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": names[number], "input": {"input": "x"}});
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "v",
        "content": [call(0), call(1)], "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let route = Route { client: Format::Responses, provider: Format::Messages, stream: false };
    let reply = Arc::new(ReplyOptions { seed: "req_1".into(), ..ReplyOptions::default() });
    let mut translated = Translated::new(&route, Arrival::Whole, reply, made.restore, 1 << 20);
    let body = translated.whole(Bytes::from(answer.to_string())).unwrap();
    let output = serde_json::from_slice::<Value>(&body).unwrap()["output"].clone();
    let calls: Vec<_> =
        (0..2).map(|n| [&output[n]["type"], &output[n]["name"], &output[n]["namespace"]]).collect();
    assert_eq!(calls, [["custom_tool_call", "run", "one"], ["function_call", "run", "two"]]);
}
