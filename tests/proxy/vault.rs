//! Signature cache: clients send back only text and tool call ids, while the simulated providers require their thinking
//! signatures and encrypted reasoning, and refuse those of others.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::{Answer, post, post_with};
use crate::support::gateway::Gateway;
use crate::support::metrics::Metrics;
use crate::support::setup::{CREDENTIAL, NARROW_KEY, Setup};
use crate::support::sse::events;

struct World {
    gateway: Gateway,
    claude: Simulator,
    google: Simulator,
    openai: Simulator,
}

/// Models: one for each provider that signs, and one at a second configured provider with the same address.
const CLAUDE: &str = "fast-claude";
const GEMINI: &str = "fast-gemini";
const GPT: &str = "fast-gpt";
const OTHER_CLAUDE: &str = "fast-other-claude";

async fn world(store: &str) -> World {
    let start = |provider| {
        Simulator::start(provider, Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() })
    };
    let claude = start(SimulatedProvider::Anthropic).await.unwrap();
    let google = start(SimulatedProvider::Google).await.unwrap();
    let openai = start(SimulatedProvider::OpenAi).await.unwrap();
    let mut setup = Setup::new()
        .provider("claude", "anthropic", &claude.base_url(), "")
        .provider("other-claude", "anthropic", &claude.base_url(), "")
        .provider("google", "gemini", &google.base_url(), "")
        .provider("openai", "openai", &openai.base_url(), "apis = [\"responses\"]")
        // A model with a thinking budget that requires its thinking blocks during tool use.
        .model(CLAUDE, "claude", "claude-sonnet-4-5")
        .model(OTHER_CLAUDE, "other-claude", "claude-sonnet-4-5")
        .model(GEMINI, "google", "gemini-3.1-pro-preview")
        .model(GPT, "openai", "gpt-5.1");
    setup.log = format!("[store]\n{store}\n");
    World { gateway: Gateway::start(&setup).await, claude, google, openai }
}

impl World {
    fn sent(&self, model: &str) -> Value {
        let provider = match model {
            GEMINI => &self.google,
            GPT => &self.openai,
            _ => &self.claude,
        };
        serde_json::from_slice(&provider.last_request().unwrap().body).unwrap()
    }

    async fn operations(&self, operation: &str) -> f64 {
        let metrics: Metrics = self.gateway.metrics().await;
        metrics.sum("gateway_store_operations_total", &[("operation", operation), ("result", "done")])
    }
}

/// Returns the message that a client keeps if it knows only the basic members of chat completions.
fn plain(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    let (mut text, mut calls) = (String::new(), Vec::<Value>::new());
    let mut take = |message: &Value| {
        text += message["content"].as_str().unwrap_or_default();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().map_or(calls.len(), |at| usize::try_from(at).unwrap());
            if calls.len() <= at {
                calls.push(json!({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}));
            }
            let so_far = calls[at]["function"]["arguments"].as_str().unwrap().to_owned();
            calls[at]["function"]["arguments"] =
                json!(so_far + call["function"]["arguments"].as_str().unwrap_or_default());
        }
    };
    if answer.get("content-type") == Some("application/json") {
        take(&answer.json()["choices"][0]["message"]);
    } else {
        for event in events(answer.text()).iter().filter(|event| event.data != "[DONE]") {
            take(&event.json()["choices"][0]["delta"]);
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}

/// Removes what the gateway appended to the tool call ids.
fn without_carriers(mut message: Value) -> Value {
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        let id = call["id"].as_str().unwrap().split("__gw1__").next().unwrap().to_owned();
        call["id"] = json!(id);
    }
    message
}

fn chat(model: &str, stream: bool, messages: &[Value]) -> Value {
    let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    json!({
        "model": model, "stream": stream, "reasoning_effort": "high", "messages": messages,
        "tools": [tool("lookup"), tool("measure")]
    })
}

fn asking(body: &Value) -> Vec<u8> {
    post("/v1/chat/completions", body.to_string())
}

/// Returns the provider signatures in a request, in their order.
fn seals(model: &str, sent: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match model {
        GEMINI => {
            let parts =
                sent["contents"].as_array().unwrap().iter().flat_map(|c| c["parts"].as_array().unwrap());
            parts.filter_map(|part| text(&part["thoughtSignature"])).collect()
        }
        GPT => {
            let items = sent["input"].as_array().unwrap();
            items.iter().filter_map(|item| text(&item["encrypted_content"])).collect()
        }
        _ => {
            let blocks = sent["messages"].as_array().unwrap().iter().filter_map(|m| m["content"].as_array());
            blocks.flatten().filter_map(|block| text(&block["signature"])).collect()
        }
    }
}

/// Runs three rounds of tool calls and text. Returns the messages as the client has them.
async fn converse(world: &World, model: &str, stream: bool, keep_ids: bool) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for round in 0..3 {
        messages
            .push(json!({"role": "user", "content": format!("Please lookup and measure number {round}.")}));
        for step in 0..3 {
            let answer = world.gateway.ask(asking(&chat(model, stream, &messages))).await;
            let message = plain(&answer);
            let found = seals(model, &world.sent(model));
            // Signatures of earlier turns are restored unchanged and in their place.
            assert!(found.starts_with(&known), "{model} {stream} {round}.{step}: {found:?} after {known:?}");
            assert!(!found.iter().any(|seal| seal.contains("skip_thought")), "{found:?}");
            known = found;
            let called = message.get("tool_calls").is_some();
            let message = if keep_ids { message } else { without_carriers(message) };
            messages.push(message.clone());
            if !called {
                break;
            }
            for call in message["tool_calls"].as_array().unwrap() {
                messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "5"}));
            }
        }
    }
    assert!(known.len() >= 3, "{model}: {known:?}");
    messages
}

#[tokio::test]
async fn signature_cache_chat_client_uses_claude_with_thinking() {
    let world = world("").await;
    for stream in [false, true] {
        converse(&world, CLAUDE, stream, true).await;
        let sent = world.sent(CLAUDE);
        assert_eq!(sent["thinking"]["type"], "enabled", "it need not be switched off");
        // Every assistant turn begins with its thinking.
        for turn in sent["messages"].as_array().unwrap().iter().filter(|turn| turn["role"] == "assistant") {
            assert_eq!(turn["content"][0]["type"], "thinking", "{turn}");
        }
    }
}

#[tokio::test]
async fn signature_cache_chat_client_uses_gemini_3_with_and_without_id_carriers() {
    let world = world("").await;
    for stream in [false, true] {
        for keep_ids in [true, false] {
            converse(&world, GEMINI, stream, keep_ids).await;
        }
    }
}

#[tokio::test]
async fn signature_cache_chat_client_uses_encrypted_reasoning() {
    let world = world("").await;
    for stream in [false, true] {
        converse(&world, GPT, stream, true).await;
        let sent = world.sent(GPT);
        let items = sent["input"].as_array().unwrap();
        let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap_or("message")).collect();
        let first_call = kinds.iter().position(|kind| *kind == "function_call").unwrap();
        assert!(kinds[..first_call].contains(&"reasoning"), "{kinds:?}");
    }
}

#[tokio::test]
async fn signature_cache_is_separate_by_account_and_provider() {
    let world = world("").await;
    let messages = converse(&world, CLAUDE, false, true).await;
    let before = seals(CLAUDE, &world.sent(CLAUDE)).len();
    assert!(before >= 3);
    let ask = |model: &str| chat(model, false, &messages[..messages.len() - 1]).to_string().into_bytes();
    // Another account with the same conversation.
    let bearer = format!("Bearer {NARROW_KEY}");
    let answer = world
        .gateway
        .ask(post_with("/v1/chat/completions", &[("authorization", &bearer)], ask(CLAUDE)))
        .await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    assert!(seals(CLAUDE, &world.sent(CLAUDE)).is_empty());
    // The same account at another configured provider with the same address.
    let answer = world.gateway.ask(post("/v1/chat/completions", ask(OTHER_CLAUDE))).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    assert!(seals(CLAUDE, &world.sent(CLAUDE)).is_empty());
    // The first account and provider still find their signatures.
    let answer = world.gateway.ask(post("/v1/chat/completions", ask(CLAUDE))).await;
    assert_eq!(answer.status(), 200);
    assert!(!seals(CLAUDE, &world.sent(CLAUDE)).is_empty());
}

#[tokio::test]
async fn signature_cache_finds_a_turn_by_its_text() {
    let world = world("").await;
    let first = json!({"role": "user", "content": "Say something."});
    let mut body = chat(GPT, true, std::slice::from_ref(&first));
    body.as_object_mut().unwrap().remove("tools");
    let answer = world.gateway.ask(asking(&body)).await;
    let mut message = plain(&answer);
    // Clients may trim text.
    let text = format!("{}  ", message["content"].as_str().unwrap().trim());
    message["content"] = json!(text);
    body["messages"] = json!([first, message, {"role": "user", "content": "Go on."}]);
    let answer = world.gateway.ask(asking(&body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    let sent = world.sent(GPT);
    assert_eq!(sent["input"][1]["type"], "reasoning", "{sent}");
    assert_eq!(seals(GPT, &sent).len(), 1);
}

#[tokio::test]
async fn signature_cache_restores_for_messages_clients() {
    let world = world("").await;
    for model in [GPT, GEMINI] {
        let tool = json!({"name": "lookup", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}});
        let mut messages = vec![json!({"role": "user", "content": "Please lookup the number."})];
        let body = |messages: &[Value]| json!({"model": model, "max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2000}, "tools": [tool], "messages": messages});
        let answer = world.gateway.ask(post("/v1/messages", body(&messages).to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        let mut content = answer.json()["content"].as_array().unwrap().clone();
        content.retain(|block| block["type"] != "thinking" && block["type"] != "redacted_thinking");
        let call = content.iter_mut().find(|block| block["type"] == "tool_use").unwrap();
        let id = call["id"].as_str().unwrap().split("__gw1__").next().unwrap().to_owned();
        call["id"] = json!(id);
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "5"}]}),
        );
        let answer = world.gateway.ask(post("/v1/messages", body(&messages).to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        assert!(!seals(model, &world.sent(model)).is_empty(), "{model}");
    }
}

#[tokio::test]
async fn signature_cache_lookup_is_skipped_where_nothing_can_be() {
    let world = world("").await;
    let talk = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    // Claude signs only if thinking is enabled.
    let body = json!({"model": CLAUDE, "messages": talk});
    assert_eq!(world.gateway.ask(asking(&body)).await.status(), 200);
    // A first turn has no signatures to look up.
    let body =
        json!({"model": GPT, "reasoning_effort": "high", "messages": [{"role": "user", "content": "a"}]});
    assert_eq!(world.gateway.ask(asking(&body)).await.status(), 200);
    assert_eq!(world.operations("recall").await, 0.0);
    assert_eq!(world.operations("remember").await, 1.0);
    let body = json!({"model": GPT, "reasoning_effort": "high", "messages": talk});
    assert_eq!(world.gateway.ask(asking(&body)).await.status(), 200);
    assert_eq!(world.operations("recall").await, 1.0);
}

/// A client of the generate format that sends back only names and arguments of calls, without ids, signatures and
/// thoughts, and repeats the same call.
#[tokio::test]
async fn signature_cache_repeated_calls_without_ids_keep_their_turn() {
    let world = world("").await;
    let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    for model in [GPT, CLAUDE] {
        let mut contents = Vec::new();
        let mut known: Vec<String> = Vec::new();
        for round in 0..3 {
            contents
                .push(json!({"role": "user", "parts": [{"text": "Please lookup and measure the number."}]}));
            for step in 0..3 {
                let body = json!({"contents": contents,
                    "tools": [{"functionDeclarations": [
                        {"name": "lookup", "parameters": parameters}, {"name": "measure", "parameters": parameters}]}],
                    "generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": {"thinkingBudget": 4000}}});
                let path = format!("/v1beta/models/{model}:generateContent");
                let answer = world.gateway.ask(post(&path, body.to_string())).await;
                assert_eq!(answer.status(), 200, "{model} {round}.{step}: {}", answer.everything());
                let found = seals(model, &world.sent(model));
                assert!(found.starts_with(&known), "{model} {round}.{step}: {found:?} after {known:?}");
                // Each reasoning item of OpenAI is unique. Claude's signature is derived from the thinking text, which
                // repeats.
                if model == GPT {
                    let mut once = found.clone();
                    once.sort();
                    once.dedup();
                    assert_eq!(once.len(), found.len(), "nothing is there twice: {found:?}");
                }
                known = found;
                let answer = answer.json();
                let parts = answer["candidates"][0]["content"]["parts"].as_array().unwrap();
                let calls: Vec<Value> =
                    parts.iter().filter_map(|part| part.get("functionCall")).cloned().collect();
                let kept = parts.iter().filter_map(|part| {
                    if let Some(call) = part.get("functionCall") {
                        // Members in another order, as after deserializing and serializing again.
                        return Some(json!({"functionCall": {"args": call["args"], "name": call["name"]}}));
                    }
                    (part["thought"] != true).then(|| json!({"text": part["text"]}))
                });
                contents.push(json!({"role": "model", "parts": kept.collect::<Vec<_>>()}));
                if calls.is_empty() {
                    break;
                }
                let results = calls.iter().map(
                    |call| json!({"functionResponse": {"name": call["name"], "response": {"output": "5"}}}),
                );
                contents.push(json!({"role": "user", "parts": results.collect::<Vec<_>>()}));
            }
        }
        assert!(known.len() >= 3, "{model}: {known:?}");
    }
}

/// A client that repeats its message receives the same text again, with different reasoning.
#[tokio::test]
async fn signature_cache_repeated_text_keeps_its_turn() {
    let world = world("").await;
    let mut messages = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for _ in 0..4 {
        messages.push(json!({"role": "user", "content": "Say something."}));
        let mut body = chat(GPT, false, &messages);
        body.as_object_mut().unwrap().remove("tools");
        let answer = world.gateway.ask(asking(&body)).await;
        let found = seals(GPT, &world.sent(GPT));
        assert!(found.starts_with(&known), "{found:?} after {known:?}");
        known = found;
        messages.push(plain(&answer));
    }
    let mut once = known.clone();
    once.sort();
    once.dedup();
    assert_eq!((known.len(), once.len()), (3, 3), "{known:?}");
}
