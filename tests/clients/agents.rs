//! Coding agents, simulated with requests of their kind, at providers of every other format. The tests assert what such
//! a client depends on: tools keep their names, and reasoning returns to the provider that produced it.

use model_gateway::simulator::Simulator;
use serde_json::{Value, json};

use crate::providers::{Providers, at};
use crate::support::client::{post_with, request};
use crate::support::setup::KEY;
use crate::support::sse::{Event, events};

const CODEX: &str = "responses";
const CLAUDE_CODE: &str = "messages";
const GEMINI_CLI: &str = "generate";

/// Sends a request that must be answered with a stream. Returns the events and the warnings.
async fn stream(
    providers: &Providers,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (Vec<Event>, String) {
    let bearer = format!("Bearer {KEY}");
    let headers = [headers, &[("authorization", bearer.as_str())]].concat();
    let answer = providers.gateway.ask(post_with(path, &headers, body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}\n{body}", answer.everything());
    (events(answer.text()), answer.get("x-gateway-warning").unwrap_or_default().to_owned())
}

/// Returns the body of the last request to a provider.
fn asked(provider: &Simulator) -> Value {
    serde_json::from_slice(&provider.last_request().unwrap().body).unwrap()
}

/// Returns the turns of a request to a provider, in any format, and the members that precede them in the prompt.
fn prefix(body: &Value) -> (Vec<Value>, [Value; 5]) {
    let turns = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array());
    let before = ["system", "instructions", "systemInstruction", "tools", "model"];
    (turns.unwrap().clone(), before.map(|name| body[name].clone()))
}

/// Asserts that the earlier request is a prefix of the later one, so that the provider's prompt cache applies.
fn goes_on(before: &Value, now: &Value) {
    let ((earlier, head), (later, same)) = (prefix(before), prefix(now));
    assert_eq!(head, same);
    assert!(later.len() > earlier.len(), "{now}");
    assert_eq!(earlier, later[..earlier.len()]);
}

fn named<'e>(events: &'e [Event], name: &str) -> Vec<&'e Event> {
    events.iter().filter(|event| event.name == name).collect()
}

fn codex(model: &str, input: &[Value], choice: Value) -> Value {
    let grammar = "start: \"*** Begin Patch\" LF hunk+ \"*** End Patch\" LF?";
    let text = |name: &str| {
        json!({"type": "object", "properties": {name: {"type": "string"}},
        "required": [name], "additionalProperties": false})
    };
    json!({
        "model": model, "input": input, "stream": true, "store": false, "parallel_tool_calls": true,
        "tool_choice": choice,
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false,
             "parameters": text("cmd")},
            {"type": "custom", "name": "apply_patch", "description": "Edits files.",
             "format": {"type": "grammar", "syntax": "lark", "definition": grammar}},
            {"type": "namespace", "name": "collaboration", "description": "Other agents.", "tools": [
                {"type": "function", "name": "spawn_agent", "description": "Starts one.", "strict": false,
                 "parameters": text("message")}]},
        ],
        "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53", "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "11111111-2222-4333-8444-555555555555"},
    })
}

fn codex_start(text: &str) -> Vec<Value> {
    vec![
        json!({"type": "message", "role": "developer",
               "content": [{"type": "input_text", "text": "You are a coding agent."}]}),
        json!({"type": "message", "role": "user",
               "content": [{"type": "input_text", "text": "<environment_context><cwd>/x</cwd></environment_context>"}]}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
    ]
}

/// Checks a stream as Codex reads it and returns its completed items, in order.
fn codex_items(events: &[Event]) -> Vec<Value> {
    assert_eq!(events[0].name, "response.created");
    let last = events.last().unwrap();
    assert_eq!(last.name, "response.completed", "{events:?}");
    let items: Vec<Value> =
        named(events, "response.output_item.done").iter().map(|event| event.json()["item"].clone()).collect();
    assert_eq!(named(events, "response.output_item.added").len(), items.len());
    for item in &items {
        // Only reasoning items have no status.
        assert!(item["type"] == "reasoning" || item["status"] == "completed", "{item}");
    }
    assert_eq!(last.json()["response"]["output"], Value::Array(items.clone()));
    let parts = |name: &str| named(events, name).len();
    assert_eq!(parts("response.content_part.added"), parts("response.content_part.done"));
    items
}

/// Codex: custom tools and namespaced tools keep their names and kinds, reasoning returns with its signature, and the
/// prompt prefix stays the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_1_codex_tools_and_reasoning_round_trip() {
    let providers = Providers::start().await;
    for format in ["chat", "messages", "generate"] {
        let model = at(format);
        let custom = json!({"type": "custom", "name": "apply_patch"});
        let function = json!({"type": "function", "name": "spawn_agent"});
        for (choice, kind, name, namespace, output) in [
            (custom, "custom_tool_call", "apply_patch", Value::Null, "custom_tool_call_output"),
            (function, "function_call", "spawn_agent", json!("collaboration"), "function_call_output"),
        ] {
            let mut input = codex_start("Go on, please.");
            // Claude does not reason if a tool is forced.
            let mut body = codex(model, &input, choice);
            if format == "messages" {
                body["tool_choice"] = json!("auto");
                body["input"][2]["content"][0]["text"] =
                    json!("Please apply_patch or collaboration__spawn_agent.");
                input[2] = body["input"][2].clone();
            }
            let (seen, _) = stream(&providers, "/v1/responses", &[("originator", CODEX)], &body).await;
            let first = asked(providers.of(format));
            let items = codex_items(&seen);
            let call = items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{items:?}"));
            assert_eq!((&call["type"], &call["namespace"]), (&json!(kind), &namespace), "{format}: {call}");
            let text = if kind == "custom_tool_call" { &call["input"] } else { &call["arguments"] };
            assert!(text.is_string(), "{call}");

            // Everything is sent back as it was received, followed by the results.
            input.extend(items.iter().cloned());
            for item in items.iter().filter(|item| item["call_id"].is_string()) {
                let output = if item["name"] == name {
                    output
                } else if output == "custom_tool_call_output" {
                    "function_call_output"
                } else {
                    "custom_tool_call_output"
                };
                input.push(json!({"type": output, "call_id": item["call_id"], "output": "It is done."}));
            }
            let mut body = codex(model, &input, json!("auto"));
            body["input"] = Value::Array(input);
            let (seen, _) = stream(&providers, "/v1/responses", &[("originator", CODEX)], &body).await;
            let items = codex_items(&seen);
            let said = items.iter().find(|item| item["type"] == "message").unwrap();
            let text = said["content"][0]["text"].as_str().unwrap_or_default();
            assert!(text.contains("answered: It is done."), "{format}: {said}");
            let now = asked(providers.of(format));
            goes_on(&first, &now);
            if format == "generate" {
                let parts = now["contents"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|turn| turn["parts"].as_array().unwrap());
                let call = parts.into_iter().find(|part| part["functionCall"].is_object()).unwrap();
                let signature = call["thoughtSignature"].as_str().unwrap();
                // A real signature, not the placeholder for a missing one, plain or in base64.
                let none =
                    ["skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I"];
                assert!(!none.iter().any(|none| signature.starts_with(none)), "{call}");
            }
        }
    }
}

/// Codex without a member `tools`: the tools are in an item, and the shell is a custom tool. The simulated providers are
/// strict about what they receive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_1_codex_tools_in_items_work_with_every_provider() {
    let providers = Providers::start().await;
    let exec = json!({"type": "custom", "name": "exec", "description": "Runs JavaScript."});
    for format in ["chat", "messages", "generate", "responses"] {
        // The simulated OpenAI calls no tool in a namespace.
        let tools = if format == "responses" {
            json!([exec])
        } else {
            json!([{"type": "namespace", "name": "shell", "description": "The shell.", "tools": [exec]}])
        };
        let mut body = codex(at(format), &[], json!("auto"));
        let members = body.as_object_mut().unwrap();
        members.remove("tools");
        members["parallel_tool_calls"] = json!(false);
        members["reasoning"] = json!({"effort": "low", "context": "all_turns"});
        let mut input = codex_start("Please exec shell__exec.");
        input.insert(0, json!({"type": "additional_tools", "role": "developer", "tools": tools}));
        body["input"] = Value::Array(input.clone());
        let headers = [("originator", CODEX), ("x-openai-internal-codex-responses-lite", "true")];
        let (seen, _) = stream(&providers, "/v1/responses", &headers, &body).await;
        let items = codex_items(&seen);
        let call =
            items.iter().find(|item| item["name"] == "exec").unwrap_or_else(|| panic!("{format}: {items:?}"));
        assert_eq!(call["type"], "custom_tool_call", "{format}: {call}");
        let namespace = if format == "responses" { Value::Null } else { json!("shell") };
        assert_eq!((&call["namespace"], call["input"].is_string()), (&namespace, true), "{format}: {call}");
        input.extend(items.iter().cloned());
        input.push(
            json!({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "It is done."}),
        );
        body["input"] = Value::Array(input);
        let (seen, _) = stream(&providers, "/v1/responses", &headers, &body).await;
        let said = codex_items(&seen).into_iter().find(|item| item["type"] == "message").unwrap();
        let text = said["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("answered: It is done."), "{format}: {said}");
    }
}

/// Codex compacts its conversation with a trigger and goes on from the item that it gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_1_codex_compacts_with_every_provider() {
    let providers = Providers::start().await;
    for format in ["chat", "messages", "generate", "responses"] {
        let mut input = codex_start("Go on, please.");
        input.push(json!({"type": "compaction_trigger"}));
        let body = codex(at(format), &input, json!("auto"));
        let (seen, _) = stream(&providers, "/v1/responses", &[("originator", CODEX)], &body).await;
        let names: Vec<&str> = seen.iter().map(|event| event.name.as_str()).collect();
        let item = ["response.output_item.added", "response.output_item.done", "response.completed"];
        assert_eq!(names, [&["response.created", "response.in_progress"], &item[..]].concat(), "{format}");
        let response = seen.last().unwrap().json()["response"].clone();
        let [item] = response["output"].as_array().unwrap().as_slice() else {
            panic!("{format}: {response}")
        };
        assert_eq!(item["type"], "compaction", "{format}");
        assert!(response["usage"]["total_tokens"].as_u64().unwrap() > 0, "{format}");
        let mut next = codex_start("Go on, please.");
        next.insert(1, item.clone());
        let body = codex(at(format), &next, json!("none"));
        let (seen, _) = stream(&providers, "/v1/responses", &[("originator", CODEX)], &body).await;
        assert!(codex_items(&seen).iter().any(|item| item["type"] == "message"), "{format}");
    }
}

/// Codex retries only if the response has a retry-after header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_1_codex_receives_retry_after() {
    let providers = Providers::start().await;
    for format in ["chat", "messages", "generate"] {
        let body = codex(at(format), &codex_start("[[status 429]]"), json!("auto"));
        let bearer = format!("Bearer {KEY}");
        let request = post_with("/v1/responses", &[("authorization", &bearer)], body.to_string());
        let answer = providers.gateway.ask(request).await;
        assert_eq!((answer.status(), answer.get("retry-after")), (429, Some("7")), "{format}");
    }
}

/// Parallel calls form one turn, and their results follow in one turn, in the order of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_5_parallel_calls_and_their_results_are_one_turn_each() {
    let providers = Providers::start().await;
    let call = |id: &str| {
        json!({"type": "function_call", "call_id": id, "name": "exec_command",
                                 "arguments": "{\"cmd\":\"ls\"}"})
    };
    let output =
        |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("of {id}")});
    let mut input = codex_start("Go on.");
    input.extend([call("call_a"), call("call_b"), output("call_b"), output("call_a")]);
    let body = |format| codex(at(format), &input, json!("auto"));

    stream(&providers, "/v1/responses", &[], &body("chat")).await;
    let (turns, _) = prefix(&asked(&providers.openai));
    let [calls, a, b] = &turns[turns.len() - 3..] else { panic!("{turns:?}") };
    assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!((&a["tool_call_id"], &b["tool_call_id"]), (&json!("call_a"), &json!("call_b")));

    stream(&providers, "/v1/responses", &[], &body("messages")).await;
    let (turns, _) = prefix(&asked(&providers.anthropic));
    let [calls, results] = &turns[turns.len() - 2..] else { panic!("{turns:?}") };
    let ids = |turn: &Value, name: &str| {
        let blocks = turn["content"].as_array().unwrap().iter();
        blocks.filter_map(|block| block[name].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(ids(calls, "id"), ["call_a", "call_b"]);
    assert_eq!(ids(results, "tool_use_id"), ["call_a", "call_b"]);

    stream(&providers, "/v1/responses", &[], &body("generate")).await;
    let (turns, _) = prefix(&asked(&providers.google));
    let [calls, results] = &turns[turns.len() - 2..] else { panic!("{turns:?}") };
    assert_eq!(calls["parts"].as_array().unwrap().len(), 2);
    let told: Vec<String> = results["parts"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert!(told[0].contains("of call_a") && told[1].contains("of call_b"), "{told:?}");
}

fn claude_code(model: &str, messages: &[Value]) -> Value {
    json!({
        "model": model, "max_tokens": 32000, "stream": true, "messages": messages,
        "system": [
            {"type": "text", "text": "You are a command line tool.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [
            {"name": "Read", "description": "Reads a file.", "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {"file_path": {"type": "string"},
                               "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991i64}},
                "required": ["file_path"], "additionalProperties": false}},
            {"name": "Ask", "description": "Asks.", "input_schema": {
                "type": "object", "properties": {"answers": {"type": "object",
                    "propertyNames": {"type": "string"}, "additionalProperties": {"type": "string"}}},
                "additionalProperties": false}}],
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "{\"device_id\":\"x\"}"},
    })
}

/// Assembles the blocks of a stream as Claude Code does. At most one block is open at a time.
fn claude_code_blocks(events: &[Event]) -> Vec<Value> {
    let (mut blocks, mut open, mut arguments) = (Vec::<Value>::new(), false, String::new());
    for event in events {
        let data = event.json();
        assert_eq!(data["type"], event.name);
        match &*event.name {
            "content_block_start" => {
                assert!(!open && data["index"] == blocks.len(), "{events:?}");
                open = true;
                arguments.clear();
                blocks.push(data["content_block"].clone());
            }
            "content_block_delta" => {
                assert!(open && data["index"] == blocks.len() - 1, "{events:?}");
                let block = blocks.last_mut().unwrap();
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = data["delta"][name].as_str() {
                        block[name] = json!(format!("{}{more}", block[name].as_str().unwrap_or_default()));
                    }
                }
                arguments += data["delta"]["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" => {
                open = false;
                if !arguments.is_empty() {
                    blocks.last_mut().unwrap()["input"] = serde_json::from_str(&arguments).unwrap();
                }
            }
            _ => {}
        }
    }
    assert_eq!(events.last().unwrap().name, "message_stop");
    blocks
}

/// Claude Code: a stream with thinking, a tool call and its result, token counting, and the same prompt prefix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_2_claude_code_works_with_every_provider() {
    let providers = Providers::start().await;
    assert_eq!(providers.gateway.ask(request("HEAD", "/", &[("connection", "close")])).await.status(), 200);
    let beta = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27";
    let headers = [
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", beta),
        ("x-app", "cli"),
        ("user-agent", CLAUDE_CODE),
    ];
    let path = "/v1/messages?beta=true";
    let text = |text: &str, mark: bool| {
        let mut block = json!({"type": "text", "text": text});
        if mark {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        block
    };
    for format in ["chat", "responses", "generate"] {
        let ask = |mark| json!({"role": "user", "content": [text("<system-reminder/>", false), text("Please Read it.", mark)]});
        let body = claude_code(at(format), &[ask(true)]);
        let (seen, warnings) = stream(&providers, path, &headers, &body).await;
        assert!(warnings.contains("context_management dropped"), "{format}: {warnings}");
        let first = asked(providers.of(format));
        let blocks = claude_code_blocks(&seen);
        let call = blocks.iter().find(|block| block["type"] == "tool_use").unwrap();
        assert!(call["name"] == "Read" && call["input"]["file_path"].is_string(), "{call}");
        let end = named(&seen, "message_delta")[0].json();
        assert_eq!(end["delta"]["stop_reason"], "tool_use");

        // The cache mark has moved to the last block.
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "a line",
                            "cache_control": {"type": "ephemeral"}});
        let messages = [
            ask(false),
            json!({"role": "assistant", "content": blocks}),
            json!({"role": "user", "content": [result]}),
        ];
        let (seen, _) = stream(&providers, path, &headers, &claude_code(at(format), &messages)).await;
        let blocks = claude_code_blocks(&seen);
        let said = blocks.last().unwrap()["text"].as_str().unwrap();
        assert!(said.contains("The tool Read answered: a line."), "{format}: {said}");
        goes_on(&first, &asked(providers.of(format)));

        // Claude Code counts tokens with every provider.
        let count = json!({"model": at(format), "messages": [{"role": "user", "content": "x"}]}).to_string();
        let answer = providers
            .gateway
            .ask(post_with("/v1/messages/count_tokens?beta=true", &[("x-api-key", KEY)], count))
            .await;
        assert!(answer.status() == 200 && answer.json()["input_tokens"].is_u64(), "{}", answer.text());
    }
}

/// A truncated stream ends with an error event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_2_claude_code_receives_an_error_for_a_cut_stream() {
    let providers = Providers::start().await;
    for format in ["chat", "responses", "generate"] {
        let ask = json!({"role": "user", "content": "Hello [[cut 3]]"});
        let (seen, _) = stream(&providers, "/v1/messages", &[], &claude_code(at(format), &[ask])).await;
        assert_eq!(seen.last().unwrap().name, "error", "{format}");
        assert!(named(&seen, "message_stop").is_empty(), "{format}");
    }
}

fn gemini_cli(contents: &[Value]) -> Value {
    json!({
        "contents": contents,
        "systemInstruction": {"role": "user", "parts": [{"text": "You are a command line tool."}]},
        "tools": [{"functionDeclarations": [
            {"name": "read_file", "description": "Reads a file.", "parametersJsonSchema": {
                "type": "object", "properties": {"file_path": {"type": "string"},
                                                 "offset": {"type": ["number", "null"], "minimum": 0}},
                "required": ["file_path"]}}]}],
        "generationConfig": {"temperature": 1, "topP": 0.95, "topK": 64,
                             "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 8192}},
    })
}

/// Gemini CLI: a stream with thinking, a tool call and its result, and the same prompt prefix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_3_gemini_cli_works_with_every_provider() {
    let providers = Providers::start().await;
    let headers = [("x-goog-api-key", KEY), ("user-agent", GEMINI_CLI)];
    for format in ["chat", "messages", "responses"] {
        let path = format!("/v1beta/models/{}:streamGenerateContent?alt=sse", at(format));
        let mut contents = vec![json!({"role": "user", "parts": [{"text": "Please read_file."}]})];
        let (seen, _) = stream(&providers, &path, &headers, &gemini_cli(&contents)).await;
        let first = asked(providers.of(format));
        let mut parts: Vec<Value> = seen
            .iter()
            .flat_map(|event| {
                event.json()["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default()
            })
            .collect();
        assert_eq!(seen.last().unwrap().json()["candidates"][0]["finishReason"], "STOP", "{seen:?}");
        let call = parts.iter_mut().find(|part| part["functionCall"].is_object()).unwrap();
        assert_eq!(call["functionCall"]["name"], "read_file");
        assert!(call["functionCall"]["args"]["file_path"].is_string(), "{call}");
        // Gemini CLI sends a placeholder if it received no signature.
        if call["thoughtSignature"].is_null() {
            call["thoughtSignature"] = json!("skip_thought_signature_validator");
        }
        let answer =
            json!({"name": "read_file", "id": call["functionCall"]["id"], "response": {"output": "a line"}});
        contents.push(json!({"role": "model", "parts": parts}));
        contents.push(json!({"role": "user", "parts": [{"functionResponse": answer}]}));
        let (seen, _) = stream(&providers, &path, &headers, &gemini_cli(&contents)).await;
        let text = |event: &Event| {
            event.json()["candidates"][0]["content"]["parts"][0]["text"].as_str().map(str::to_owned)
        };
        let said: String = seen.iter().filter_map(text).collect();
        assert!(said.contains("a line"), "{format}: {said}");
        let now = asked(providers.of(format));
        goes_on(&first, &now);
        assert!(!now.to_string().contains("skip_thought_signature_validator"), "{format}: {now}");
    }
}
