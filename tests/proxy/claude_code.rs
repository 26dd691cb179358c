//! Claude Code at models of every format: its requests of a whole session, and its list of models.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::{Answer, post_with, request};
use super::support::form::{Form, provider_of_every_form};
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{CREDENTIAL, KEY, NARROW_KEY, Setup, provider_of};
use super::support::sse::told;
use super::support::upstream::Upstream;

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
const BETAS: &str = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,\
                     mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,\
                     advanced-tool-use-2025-11-20,effort-2025-11-24";

/// Sends a body as Claude Code does.
async fn send(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    let headers = [
        ("authorization", bearer.as_str()),
        VERSION,
        ("anthropic-beta", BETAS),
        ("anthropic-dangerous-direct-browser-access", "true"),
        ("x-app", "cli"),
        ("x-claude-code-session-id", "0190a0a0-0000-7000-8000-000000000000"),
        ("user-agent", "claude-cli/2.1.330 (external, cli)"),
    ];
    gateway.ask(post_with(path, &headers, body.to_string())).await
}

/// A paragraph of instructions, as long as those of an agent.
fn instructions(subject: &str, sentences: usize) -> String {
    let sentence = |number: usize| {
        format!(
            "{number}. When you work on {subject}, read what is there first, change as little as the task needs, \
             and say plainly what you have not verified. <example>\"{subject}\" → one file, one reason</example>\n"
        )
    };
    (1..=sentences).map(sentence).collect()
}

/// Tools of the client. Deferred ones are defined once a search has found them.
fn tools(with_deferred: bool) -> Vec<Value> {
    let schema = |properties: Value, required: &[&str]| {
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": properties, "required": required, "additionalProperties": false})
    };
    let text = |about: &str| json!({"type": "string", "description": about});
    let mut tools: Vec<Value> = [
        ("Agent", schema(json!({"prompt": text("Task"), "description": text("Title")}), &["prompt"])),
        ("Bash", schema(json!({"command": text("Command"), "timeout": {"type": "number"}}), &["command"])),
        (
            "Edit",
            schema(
                json!({"file_path": text("Path"), "old": text("Old"), "new": text("New"),
            "all": {"type": "boolean", "default": false}}),
                &["file_path", "old", "new"],
            ),
        ),
        ("Glob", schema(json!({"pattern": text("Pattern")}), &["pattern"])),
        (
            "Grep",
            schema(
                json!({"pattern": text("Pattern"), "mode": {"type": "string",
            "enum": ["content", "files", "count"]}}),
                &["pattern"],
            ),
        ),
        ("Read", schema(json!({"file_path": text("Path"), "limit": {"type": "integer"}}), &["file_path"])),
        ("Skill", schema(json!({"skill": text("Name")}), &["skill"])),
        (
            "TodoList",
            schema(
                json!({"todos": {"type": "array", "items": schema(json!({"text": text("Text"),
            "state": {"type": "string", "enum": ["open", "done"]}}), &["text"])}}),
                &["todos"],
            ),
        ),
        (
            "ToolSearch",
            schema(json!({"query": text("Query"), "max_results": {"type": "number"}}), &["query"]),
        ),
        ("Write", schema(json!({"file_path": text("Path"), "content": text("Text")}), &["file_path"])),
    ]
    .into_iter()
    .map(
        |(name, schema)| json!({"name": name, "description": instructions(name, 24), "input_schema": schema}),
    )
    .collect();
    tools[1]["eager_input_streaming"] = json!(true);
    if with_deferred {
        tools.push(json!({"name": "WebFetch", "description": instructions("WebFetch", 12),
            "input_schema": schema(json!({"url": text("Address")}), &["url"]), "defer_loading": true}));
    }
    tools
}

/// A request with this conversation.
fn body(model: &str, stream: bool, messages: &[Value], with_deferred: bool) -> Value {
    let mut messages = messages.to_vec();
    // The mark moves to the last block of each request.
    if let Some(last) = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut()) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    let user =
        json!({"device_id": "5".repeat(64), "account_uuid": "", "session_id": "0190a0a0-0000-7000-8000-0"});
    json!({
        "model": model,
        "max_tokens": 32_000,
        "stream": stream,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.330.5f2; cc_entrypoint=cli;"},
            {"type": "text", "text": "You are an agent for the command line.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": instructions("software", 90), "cache_control": {"type": "ephemeral"}},
        ],
        "messages": messages,
        "tools": tools(with_deferred),
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": user.to_string()},
    })
}

fn text(role: &str, text: &str) -> Value {
    json!({"role": role, "content": [{"type": "text", "text": text}]})
}

/// Returns the message of a response, and checks what Claude Code reads of it.
fn message(answer: &Answer, stream: bool, translated: bool) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    if !stream {
        let message = answer.json();
        counts(&message["usage"]);
        return message;
    }
    let (mut message, mut inputs) = (Value::Null, Vec::new());
    for event in told(answer.text()) {
        let data = event.json();
        match &*event.name {
            "message_start" => {
                message = data["message"].clone();
                let start = &message["usage"];
                counts(start);
                let is_estimate = start["input_tokens"].as_u64() > Some(1_000);
                assert!(is_estimate || !translated, "an estimate of the request: {start}");
            }
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(data["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let delta = &data["delta"];
                let index = data["index"].as_u64().unwrap() as usize;
                for (member, delta) in [
                    ("text", &delta["text"]),
                    ("thinking", &delta["thinking"]),
                    ("signature", &delta["signature"]),
                ] {
                    if let Some(delta) = delta.as_str() {
                        let block = &mut message["content"][index][member];
                        *block = json!(format!("{}{delta}", block.as_str().unwrap_or_default()));
                    }
                }
                inputs[index].push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "message_delta" => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                if translated {
                    counts(&data["usage"]);
                    assert!(data["usage"]["input_tokens"].as_u64() > Some(0));
                }
            }
            "content_block_stop" | "message_stop" => {}
            other => panic!("{other}: {data}"),
        }
    }
    for (block, input) in message["content"].as_array_mut().unwrap().iter_mut().zip(inputs) {
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).unwrap();
        }
    }
    message
}

/// Checks that a usage object has all four counts.
fn counts(usage: &Value) {
    for name in ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"] {
        assert!(usage[name].is_u64(), "{name}: {usage}");
    }
}

#[tokio::test]
async fn claude_code_session_runs_at_models_of_every_format() {
    for (provider, kind, api, model) in [
        (SimulatedProvider::OpenAi, "openai", "chat", "gpt-5.2"),
        (SimulatedProvider::OpenAi, "openai", "responses", "gpt-5.2"),
        (SimulatedProvider::Google, "gemini", "generate", "gemini-2.5-flash"),
        (SimulatedProvider::Anthropic, "anthropic", "messages", "claude-opus-4-8"),
    ] {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let simulator = Simulator::start(provider, options).await.unwrap();
        let setup = Setup::new()
            .provider("p", kind, &simulator.base_url(), &format!("apis = [\"{api}\"]"))
            .model(model, "p", model);
        let gateway = Gateway::start(&setup).await;
        for stream in [false, true] {
            let translated = api != "messages";
            let name = if translated { format!("claude-gw-{model}") } else { model.to_owned() };
            let mut messages = Vec::new();
            let mut has_deferred = false;
            for (turn, called) in ["Bash", "ToolSearch", "WebFetch"].into_iter().enumerate() {
                messages.push(json!({"role": "user", "content": [
                    {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>\n"},
                    {"type": "text", "text": format!("Step {turn}: please use {called}.")},
                ]}));
                let count = body(&name, stream, &messages, has_deferred);
                let counted = send(&gateway, "/v1/messages/count_tokens?beta=true", &count).await;
                assert!(counted.json()["input_tokens"].as_u64() > Some(1_000), "{}", counted.text());

                let sent = body(&name, stream, &messages, has_deferred);
                let answer = send(&gateway, "/v1/messages?beta=true", &sent).await;
                let calls = message(&answer, stream, translated);
                assert_eq!(calls["model"], name, "{api}");
                assert_eq!(calls["stop_reason"], "tool_use", "{api} {stream}: {calls}");
                let blocks = calls["content"].as_array().unwrap();
                let call = blocks.iter().find(|block| block["type"] == "tool_use").unwrap();
                assert_eq!(call["name"], called, "{api}");
                messages.push(json!({"role": "assistant", "content": blocks}));
                let content = match called {
                    "ToolSearch" => json!([{"type": "tool_reference", "tool_name": "WebFetch"}]),
                    _ => json!([{"type": "text", "text": "done\n"}]),
                };
                has_deferred |= called == "ToolSearch";
                messages.push(json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call["id"], "content": content, "is_error": false}]}));
                let mut news = text("system", "The list of open files has changed.");
                if called == "ToolSearch" {
                    let found = json!({"type": "tool_reference", "name": "WebFetch"});
                    news["content"]
                        .as_array_mut()
                        .unwrap()
                        .insert(0, json!({"type": "tool_addition", "tool": found}));
                }
                messages.push(news);

                let sent = body(&name, stream, &messages, has_deferred);
                let answer = send(&gateway, "/v1/messages?beta=true", &sent).await;
                let said = message(&answer, stream, translated);
                assert_eq!(said["stop_reason"], "end_turn", "{api} {stream}: {said}");
                messages.push(json!({"role": "assistant", "content": said["content"]}));
                if translated {
                    let warning = answer.get("x-gateway-warning").unwrap_or_default();
                    assert!(warning.contains("context_management dropped"), "{api}: {warning}");
                }
            }
        }
    }
}

#[tokio::test]
async fn claude_code_betas_and_query_go_to_anthropic_only() {
    let upstream = provider_of_every_form().await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for form in Form::ALL {
        let sent = body(provider_of(form), false, &[text("user", "hi")], false);
        let answer = send(&gateway, "/v1/messages?beta=true", &sent).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
        let request = upstream.last_request();
        let betas = request.head.get("anthropic-beta");
        if form == Form::Messages {
            assert_eq!((betas, request.json()), (Some(BETAS), sent));
        } else {
            assert_eq!(betas, None, "{form:?}");
            assert!(!request.text().contains("device_id"));
        }
    }
}

async fn list(gateway: &Gateway, query: &str, key: &str) -> Vec<(String, Value)> {
    list_as(gateway, "claude-code/2.1.330", query, key).await
}

async fn list_as(gateway: &Gateway, agent: &str, query: &str, key: &str) -> Vec<(String, Value)> {
    let headers = [("x-api-key", key), ("user-agent", agent), VERSION];
    let answer = gateway.ask(request("GET", &format!("/v1/models{query}"), &headers)).await;
    let all = answer.json();
    let entry = |entry: &Value| (entry["id"].as_str().unwrap().to_owned(), entry.clone());
    all["data"].as_array().unwrap_or_else(|| panic!("{all}")).iter().map(entry).collect()
}

fn ids(list: &[(String, Value)]) -> Vec<&str> {
    list.iter().map(|(id, _)| id.as_str()).collect()
}

#[tokio::test]
async fn claude_code_finds_other_models_under_an_alias() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let base = format!("http://{}/v1", upstream.addr);
    let setup = Setup::new()
        .provider("openai", "openai", &base, "apis = [\"chat\", \"embeddings\"]")
        .model("gpt", "openai", "gpt")
        .model("text-embedding-3-small", "openai", "text-embedding-3-small")
        .model("claude-sonnet-5", "openai", "claude-sonnet-5")
        .model("taken", "openai", "taken")
        .model("claude-gw-taken", "openai", "other");
    let gateway = Gateway::start(&setup).await;
    let listed = list(&gateway, "?limit=1000", KEY).await;
    assert_eq!(
        ids(&listed),
        ["gpt", "claude-gw-gpt", "text-embedding-3-small", "claude-sonnet-5", "taken", "claude-gw-taken"]
    );
    let alias = &listed[1].1;
    assert_eq!((&alias["display_name"], &alias["description"]), (&json!("gpt"), &json!("gpt by openai")));
    assert!(listed[0].1.get("description").is_none());
    // Other clients, and other shapes, do not see the models twice.
    assert_eq!(list_as(&gateway, "Anthropic/Python 0.75.0", "?limit=1000", KEY).await.len(), 5);
    assert_eq!(list_as(&gateway, "claude-cli/2.1.330 (external, cli)", "", KEY).await.len(), 6);
    let bearer = format!("Bearer {KEY}");
    let plain = gateway.ask(request("GET", "/v1/models?limit=1000", &[("authorization", &bearer)])).await;
    assert_eq!(plain.json()["data"].as_array().unwrap().len(), 5);
    // A key sees the aliases of its models.
    assert_eq!(ids(&list(&gateway, "?limit=1000", NARROW_KEY).await), ["gpt", "claude-gw-gpt"]);

    let one = gateway.ask(request("GET", "/v1/models/claude-gw-gpt", &[("x-api-key", KEY), VERSION])).await;
    assert_eq!(one.json(), *alias);
    let ask = async |path: &str, model: &str, key: &str| {
        let mut body = body(model, false, &[text("user", "hi")], false);
        body.as_object_mut().unwrap().remove("thinking");
        gateway.ask(post_with(path, &[("x-api-key", key), VERSION], body.to_string())).await
    };
    let answer = ask("/v1/messages", "claude-gw-gpt", KEY).await;
    assert_eq!((answer.status(), &answer.json()["model"]), (200, &json!("claude-gw-gpt")));
    assert_eq!(upstream.last_request().json()["model"], "gpt");
    let suffixed = ask("/v1/messages", "claude-gw-gpt-thinking-low", KEY).await;
    assert_eq!((suffixed.status(), &suffixed.json()["model"]), (200, &json!("claude-gw-gpt")));
    // In its own format, too, the response has the name that was asked for.
    let chat = json!({"model": "claude-gw-gpt", "messages": [{"role": "user", "content": "hi"}]});
    let headers = [("authorization", bearer.as_str())];
    let chat = gateway.ask(post_with("/v1/chat/completions", &headers, chat.to_string())).await;
    assert_eq!((chat.status(), &chat.json()["model"]), (200, &json!("claude-gw-gpt")));
    assert_eq!(upstream.last_request().json()["model"], "gpt");

    let counted = ask("/v1/messages/count_tokens", "claude-gw-gpt", KEY).await;
    assert_eq!(counted.json(), ask("/v1/messages/count_tokens", "gpt", KEY).await.json());
    assert_eq!(ask("/v1/messages", "claude-gw-taken", NARROW_KEY).await.status(), 403);
    assert_eq!(ask("/v1/messages", "claude-gw-taken", KEY).await.status(), 200);
    assert_eq!(upstream.last_request().json()["model"], "other", "a model of that very name wins");
    for unknown in ["claude-gw-nobody", "claude-gw-claude-sonnet-5", "claude-gw-text-embedding-3-small"] {
        assert_eq!(ask("/v1/messages", unknown, KEY).await.status(), 404, "{unknown}");
    }
    // The log is written a moment after the responses.
    let models: Vec<Value> =
        gateway.wait_for_log(15).await.iter().map(|line| line["model"].clone()).collect();
    assert!(models.contains(&json!("gpt")) && !models.contains(&json!("claude-gw-gpt")), "{models:?}");
}

#[tokio::test]
async fn claude_code_aliases_have_the_configured_prefix_or_none() {
    for (line, expected) in [
        ("claude_alias = \"anthropic/\"\n", vec!["gpt", "anthropic/gpt"]),
        ("claude_alias = \"\"\n", vec!["gpt"]),
    ] {
        let mut setup = Setup::new()
            .provider("openai", "openai", "http://127.0.0.1:9/v1", "apis = [\"chat\"]")
            .model("gpt", "openai", "gpt");
        setup.routes.insert_str(0, line);
        let gateway = Gateway::start(&setup).await;
        assert_eq!(ids(&list(&gateway, "?limit=1000", KEY).await), expected);
        let body = body("claude-gw-gpt", false, &[text("user", "hi")], false);
        assert_eq!(send(&gateway, "/v1/messages", &body).await.status(), 404);
    }
}

#[tokio::test]
async fn output_limit_beyond_the_model_is_lowered_for_every_provider() {
    let upstream = provider_of_every_form().await;
    let mut setup = Setup::each_provider(upstream.addr);
    setup.routes = setup.routes.replace("created = 1715367049", "max_output_tokens = 8192");
    let gateway = Gateway::start(&setup).await;
    for provider in Form::ALL {
        for (asked, sent) in [(32_000, 8_192), (8_192, 8_192), (100, 100)] {
            let mut body = body(provider_of(provider), false, &[text("user", "hi")], false);
            body["max_tokens"] = json!(asked);
            body.as_object_mut().unwrap().remove("thinking");
            let answer = send(&gateway, "/v1/messages?beta=true", &body).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert!(!answer.get("x-gateway-warning").unwrap_or_default().contains("max_tokens"));
            let request = upstream.last_request().json();
            let limit = match provider {
                Form::Chat => request.get("max_completion_tokens").unwrap_or(&request["max_tokens"]),
                Form::Messages => &request["max_tokens"],
                Form::Responses => &request["max_output_tokens"],
                Form::Generate => &request["generationConfig"]["maxOutputTokens"],
            };
            assert_eq!(limit, sent, "{provider:?}: {request}");
        }
    }
    assert!(upstream.last_request().text().len() > 1_000);
}

/// Anthropic refuses a thinking budget that is not below `max_tokens`.
#[tokio::test]
async fn thinking_budget_beyond_the_model_is_lowered_with_the_output_limit() {
    let upstream = provider_of_every_form().await;
    let mut setup = Setup::each_provider(upstream.addr);
    setup.routes = setup.routes.replace("created = 1715367049", "max_output_tokens = 8192");
    let gateway = Gateway::start(&setup).await;
    let model = provider_of(Form::Messages);
    // As Claude Code sends it to a model that it does not know.
    let thinking = json!({"type": "enabled", "budget_tokens": 31_999});
    let mut body = body(model, false, &[text("user", "hi")], false);
    (body["max_tokens"], body["thinking"]) = (json!(32_000), thinking);
    let mut invoked = body.clone();
    // The path names them.
    invoked.as_object_mut().unwrap().retain(|name, _| !matches!(name.as_str(), "model" | "stream"));
    let invoke = format!("/model/{model}/invoke");
    for (path, body) in [("/v1/messages?beta=true", body), (&*invoke, invoked)] {
        let answer = send(&gateway, path, &body).await;
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        let request = upstream.last_request().json();
        let (limit, budget) = (&request["max_tokens"], &request["thinking"]["budget_tokens"]);
        assert_eq!((limit, budget), (&json!(8_192), &json!(8_191)), "{path}");
    }
}

/// Paths of a gateway that clients sign in to, and of a collector. The gateway is neither: Claude Code takes 404 for
/// the absence of a policy.
#[tokio::test]
async fn paths_of_a_gateway_with_sign_in_are_not_found() {
    let gateway = Gateway::start(&Setup::new().provider("p", "anthropic", "http://127.0.0.1:9/v1", "")).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), VERSION];
    for path in ["/managed/settings", "/api/oauth/usage", "/.well-known/oauth-authorization-server"] {
        let answer = gateway.ask(request("GET", path, &headers)).await;
        assert_eq!((answer.status(), answer.json()["error"].is_object()), (404, true), "{path}");
    }
    for path in ["/v1/metrics", "/v1/logs", "/v1/traces"] {
        let answer = gateway.ask(post_with(path, &headers, "{}")).await;
        assert_eq!((answer.status(), answer.json()["error"].is_object()), (404, true), "{path}");
    }
}
