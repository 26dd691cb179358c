//! Automatic prompt caching end to end: cost of scripted conversations with a simulated prompt cache, policies of
//! models and keys, client marks, keys for other providers, and the pause when reads do not repay writes. Recorded
//! conversations are in `recorded`, what shows the savings in `savings`, Bedrock's Converse in `bedrock`.

mod bedrock;
mod recorded;
mod savings;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup, key};
use crate::support::upstream::Upstream;

const MODEL: &str = "claude-sonnet-4-5";
const PRICE: &str = "input = 3\ncached_input = 0.3\ncache_write = 3.75\ncache_write_1h = 6\noutput = 15";
/// Keys with a policy of their own.
const OFF_KEY: &str = "client-key-of-otto-0101";
const HOUR_KEY: &str = "client-key-of-hans-0102";

fn setup(kind: &str, base: &str, policy: &str) -> Setup {
    let mut setup = Setup::new().provider("p", kind, base, "").priced(PRICE);
    setup.routes += &format!(
        "[[model]]\nid = \"{MODEL}\"\n{policy}\ntargets = [{{ provider = \"p\", model = \"{MODEL}\" }}]\n"
    );
    setup.keys += &key("otto", OFF_KEY, "prompt_cache = \"off\"");
    setup.keys += &key("hans", HOUR_KEY, "prompt_cache = \"1h\"");
    setup
}

async fn simulated() -> (Simulator, Gateway) {
    simulated_with(MODEL).await
}

/// Starts a simulated provider and a gateway with one model.
async fn simulated_with(model: &str) -> (Simulator, Gateway) {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::Anthropic, options).await.unwrap();
    let mut setup = setup("anthropic", &simulator.base_url(), "prompt_cache = \"auto\"");
    setup.routes = setup.routes.replace(MODEL, model);
    let gateway = Gateway::start(&setup).await;
    (simulator, gateway)
}

async fn ask(gateway: &Gateway, path: &str, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let answer = gateway.ask(post_with(path, &[("authorization", &bearer)], body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer
}

/// Text of this many bytes that differs by its label.
fn text(label: &str, length: usize) -> String {
    format!("{label} ").repeat(length / (label.len() + 1) + 1)
}

/// Scripted agent: path and request of a turn.
type Agent = fn(usize) -> (String, Value);

/// Number of parallel calls in a turn: mostly one, sometimes more than the provider's lookback has blocks.
fn calls(turn: usize) -> usize {
    if turn % 7 == 3 { 25 } else { 1 + turn % 3 }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"path": {"type": "string", "description": text("path", 300)}}})
}

/// Coding agent of the messages format: tools, a system prompt of blocks, calls and their results.
fn messages_agent(turn: usize) -> (String, Value) {
    let mut messages = vec![json!({"role": "user", "content": text("task", 2_000)})];
    for at in 0..turn {
        let ids: Vec<String> = (0..calls(at)).map(|call| format!("toolu_{at}_{call}")).collect();
        let calls =
            ids.iter().map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": id}}));
        messages.push(json!({"role": "assistant", "content": calls.collect::<Vec<_>>()}));
        let results = ids.iter().map(
            |id| json!({"type": "tool_result", "tool_use_id": id, "content": text(id, 1_200 / ids.len())}),
        );
        messages.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
    }
    let body = json!({
        "model": MODEL, "max_tokens": 50, "messages": messages,
        "system": [{"type": "text", "text": text("instructions", 20_000)}],
        "tools": [{"name": "read", "description": text("reads", 6_000), "input_schema": schema()}],
    });
    ("/v1/messages".to_owned(), body)
}

/// Assistant with plain texts, in the chat format and without tools.
fn chat_assistant(turn: usize) -> (String, Value) {
    let mut messages = vec![json!({"role": "system", "content": text("instructions", 24_000)})];
    for at in 0..turn {
        messages.push(json!({"role": "user", "content": text(&format!("question {at}"), 500)}));
        messages.push(json!({"role": "assistant", "content": text(&format!("answer {at}"), 900)}));
    }
    messages.push(json!({"role": "user", "content": text(&format!("question {turn}"), 500)}));
    ("/v1/chat/completions".to_owned(), json!({"model": MODEL, "max_tokens": 50, "messages": messages}))
}

/// Coding agent of the responses format: instructions, and items of calls and outputs.
fn responses_agent(turn: usize) -> (String, Value) {
    let mut input = vec![
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text("task", 2_000)}]}),
    ];
    for at in 0..turn {
        for call in 0..calls(at) {
            let id = format!("call_{at}_{call}");
            let arguments = json!({"path": id}).to_string();
            input.push(
                json!({"type": "function_call", "call_id": id, "name": "shell", "arguments": arguments}),
            );
        }
        for call in 0..calls(at) {
            let id = format!("call_{at}_{call}");
            let output = text(&id, 1_200 / calls(at));
            input.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        }
    }
    let body = json!({
        "model": MODEL, "max_output_tokens": 50, "store": false, "input": input,
        "instructions": text("instructions", 22_000),
        "tools": [{"type": "function", "name": "shell", "description": text("runs", 5_000), "parameters": schema()}],
    });
    ("/v1/responses".to_owned(), body)
}

/// Coding agent of the generate format.
fn generate_agent(turn: usize) -> (String, Value) {
    let mut contents = vec![json!({"role": "user", "parts": [{"text": text("task", 2_000)}]})];
    for at in 0..turn {
        let args = json!({"path": format!("file {at}")});
        contents.push(json!({"role": "model", "parts": [{"functionCall": {"name": "read", "args": args}}]}));
        let response = json!({"output": text(&format!("line {at}"), 1_200)});
        contents.push(
            json!({"role": "user", "parts": [{"functionResponse": {"name": "read", "response": response}}]}),
        );
    }
    let declaration = json!({"name": "read", "description": text("reads", 5_000), "parameters": schema()});
    let body = json!({
        "contents": contents, "generationConfig": {"maxOutputTokens": 50},
        "systemInstruction": {"parts": [{"text": text("instructions", 22_000)}]},
        "tools": [{"functionDeclarations": [declaration]}],
    });
    (format!("/v1beta/models/{MODEL}:generateContent"), body)
}

/// Tokens that the provider reported for all requests so far: input, read from the cache, written to it.
async fn tokens(gateway: &Gateway) -> [f64; 3] {
    gateway.idle().await;
    let metrics = gateway.metrics().await;
    ["input", "cached_input", "cache_write"]
        .map(|kind| metrics.sum("gateway_tokens_total", &[("kind", kind)]))
}

async fn conversation_is_cheap(agent: Agent, turns: usize) {
    let (_simulator, gateway) = simulated().await;
    conversation_is_cheap_through(&gateway, agent, turns).await;
}

async fn conversation_is_cheap_through(gateway: &Gateway, agent: Agent, turns: usize) {
    let (mut reusable, mut before) = (0.0, [0.0; 3]);
    for turn in 0..turns {
        let (path, body) = agent(turn);
        let answer = ask(gateway, &path, KEY, &body).await;
        let header = answer.get("x-gateway-cache").unwrap();
        assert!(header.starts_with("breakpoints="), "{turn}: {header}");
        let now = tokens(gateway).await;
        if turn + 1 < turns {
            // The next turn can reuse the whole prompt of this one.
            reusable += now[0] - before[0];
        }
        before = now;
    }
    let [input, read, written] = before;
    // Prices relative to plain input.
    let cost = (input - read - written) + 0.1 * read + 1.25 * written;
    let path = agent(0).0;
    eprintln!(
        "{path}: {turns} turns, {:.1} % of the reusable tokens read, input costs {:.3} of plain input",
        100.0 * read / reusable,
        cost / input
    );
    assert!(read >= 0.95 * reusable, "{read} of {reusable} tokens were read");
    assert!(cost <= 0.2 * input, "{cost} of {input}");
    let metrics = gateway.metrics().await;
    let money = |name| metrics.sum(name, &[("model", MODEL), ("provider", "p")]);
    assert_eq!(money("gateway_cache_saved_nano_units_total"), read * 2_700.0);
    assert_eq!(money("gateway_cache_surcharge_nano_units_total"), written * 750.0);
    let counted = metrics.sum("gateway_cache_requests_total", &[("action", "breakpoints")]);
    assert_eq!(counted, turns as f64);
}

#[tokio::test]
async fn prompt_cache_messages_agent_reads_what_it_wrote() {
    conversation_is_cheap(messages_agent, 40).await;
}

#[tokio::test]
async fn prompt_cache_chat_assistant_reads_what_it_wrote() {
    conversation_is_cheap(chat_assistant, 40).await;
}

#[tokio::test]
async fn prompt_cache_responses_agent_reads_what_it_wrote() {
    conversation_is_cheap(responses_agent, 40).await;
}

#[tokio::test]
async fn prompt_cache_generate_agent_reads_what_it_wrote() {
    conversation_is_cheap(generate_agent, 40).await;
}

#[tokio::test]
async fn prompt_cache_policy_of_a_key_precedes_that_of_the_model() {
    let upstream = Upstream::answering(reply::json(200, Form::Messages.whole(MODEL))).await;
    let base = format!("http://{}/v1", upstream.addr);
    for (policy, client, lifetime) in [
        ("", KEY, None),
        ("prompt_cache = \"off\"", KEY, None),
        ("prompt_cache = \"auto\"", KEY, Some(json!({"type": "ephemeral"}))),
        ("prompt_cache = \"5m\"", KEY, Some(json!({"type": "ephemeral"}))),
        ("prompt_cache = \"1h\"", KEY, Some(json!({"type": "ephemeral", "ttl": "1h"}))),
        ("prompt_cache = \"auto\"", OFF_KEY, None),
        ("", HOUR_KEY, Some(json!({"type": "ephemeral", "ttl": "1h"}))),
    ] {
        let gateway = Gateway::start(&setup("anthropic", &base, policy)).await;
        let (path, body) = messages_agent(2);
        let answer = ask(&gateway, &path, client, &body).await;
        let sent = upstream.last_request().json();
        let last = &sent["messages"][4]["content"];
        assert_eq!(last.as_array().unwrap().last().unwrap().get("cache_control"), lifetime.as_ref());
        let expected = lifetime.as_ref().map(|_| "breakpoints=4");
        assert_eq!(answer.get("x-gateway-cache"), expected, "{policy} {client}");
        if lifetime.is_none() {
            assert_eq!(sent, body);
        }
        assert_eq!(gateway.log().lines().filter(|line| line.contains("error")).count(), 0);
    }
}

#[tokio::test]
async fn prompt_cache_leaves_client_marks_and_short_prompts_alone() {
    let upstream = Upstream::answering(reply::json(200, Form::Messages.whole(MODEL))).await;
    let base = format!("http://{}/v1", upstream.addr);
    let gateway = Gateway::start(&setup("anthropic", &base, "prompt_cache = \"auto\"")).await;
    let (path, mut marked) = messages_agent(2);
    marked["system"][0]["cache_control"] = json!({"type": "ephemeral"});
    let short = json!({"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    for body in [marked, short] {
        let answer = ask(&gateway, &path, KEY, &body).await;
        assert_eq!(upstream.last_request().json(), body);
        assert_eq!(answer.get("x-gateway-cache"), Some("none"));
    }
}

#[tokio::test]
async fn prompt_cache_key_is_the_same_for_all_turns_of_a_conversation() {
    for (form, kind) in [(Form::Chat, "openai"), (Form::Responses, "openai")] {
        let upstream = Upstream::answering(reply::json(200, form.whole(MODEL))).await;
        let mut setup = setup(kind, &format!("http://{}/v1", upstream.addr), "prompt_cache = \"auto\"");
        let api = if form == Form::Chat { "chat" } else { "responses" };
        setup.routes = setup.routes.replacen("kind = ", &format!("apis = [\"{api}\"]\nkind = "), 1);
        let gateway = Gateway::start(&setup).await;
        let mut keys = Vec::new();
        // Forwarded in one of the formats, translated in the others.
        for agent in [chat_assistant as Agent, responses_agent, messages_agent] {
            for turn in 1..3 {
                let (path, body) = agent(turn);
                let answer = ask(&gateway, &path, KEY, &body).await;
                assert_eq!(answer.get("x-gateway-cache"), Some("key"));
                let sent = upstream.last_request().json();
                keys.push(sent["prompt_cache_key"].as_str().unwrap().to_owned());
            }
        }
        assert!(keys.chunks(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
        assert_ne!(keys[0], keys[2]);
        // Two agents with the same first user turn: the fingerprint is that of the turns, in every format.
        assert_eq!(keys[2], keys[4]);
        // Another owner's conversation has another key, and a client's own key stays.
        let (path, mut body) = chat_assistant(1);
        ask(&gateway, &path, HOUR_KEY, &body).await;
        assert_ne!(upstream.last_request().json()["prompt_cache_key"], keys[0].as_str());
        body["prompt_cache_key"] = json!("own");
        let answer = ask(&gateway, &path, KEY, &body).await;
        assert_eq!(upstream.last_request().json()["prompt_cache_key"], "own");
        assert_eq!(answer.get("x-gateway-cache"), Some("none"));
    }
}

/// Agents compact their conversations and continue stored responses: the session stays, and with it the key.
#[tokio::test]
async fn prompt_cache_key_follows_the_session_of_the_client() {
    let upstream = Upstream::answering(reply::json(200, Form::Responses.whole(MODEL))).await;
    let base = format!("http://{}/v1", upstream.addr);
    let gateway = Gateway::start(&setup("openai", &base, "prompt_cache = \"auto\"")).await;
    let bearer = format!("Bearer {KEY}");
    let mut keys = Vec::new();
    for (session, first) in [("s-1", "task"), ("s-1", "summary of the task"), ("s-2", "task")] {
        let (path, mut body) = responses_agent(1);
        body["input"][0]["content"][0]["text"] = json!(first);
        let headers = [("authorization", bearer.as_str()), ("session-id", session)];
        let answer = gateway.ask(post_with(&path, &headers, body.to_string())).await;
        assert_eq!(answer.get("x-gateway-cache"), Some("key"), "{}", answer.everything());
        let key = upstream.last_request().json()["prompt_cache_key"].as_str().unwrap().to_owned();
        assert!(!key.contains(session));
        keys.push(key);
    }
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

#[tokio::test]
async fn prompt_cache_pauses_for_a_key_whose_reads_do_not_repay_its_writes() {
    let (_simulator, gateway) = simulated().await;
    let mut actions = Vec::new();
    for request in 0..40 {
        let (path, mut body) = messages_agent(0);
        // The prompt changes at its beginning.
        body["tools"][0]["description"] = json!(text(&format!("request {request}"), 6_000));
        let answer = ask(&gateway, &path, KEY, &body).await;
        actions.push(answer.get("x-gateway-cache").unwrap().to_owned());
        // The usage is recorded when the request has ended.
        gateway.idle().await;
    }
    let first = actions.iter().position(|action| action == "paused").unwrap();
    assert!((1..=32).contains(&first), "{actions:?}");
    assert!(actions[first..].iter().all(|action| action == "paused"), "{actions:?}");
    // Another key is not paused.
    let (path, body) = messages_agent(0);
    let answer = ask(&gateway, &path, HOUR_KEY, &body).await;
    assert!(answer.get("x-gateway-cache").unwrap().starts_with("breakpoints="));
}
