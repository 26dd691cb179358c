//! Conversations over a socket: what the provider receives is what it would receive over HTTP with the whole input.

use serde_json::{Value, json};

use super::client::Socket;
use super::{MODELS, World};
use crate::support::client::post;
use crate::support::sse::events;

fn tools() -> Value {
    json!([{"type": "function", "name": "get_weather", "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])
}

/// Sends a request over HTTP with its whole input, and returns the output items.
async fn over_http(world: &World, model: &str, input: &[Value]) -> Vec<Value> {
    let body = json!({"model": model, "input": input, "tools": tools(), "stream": true, "store": false});
    let answer = world.gateway.ask(post("/v1/responses", body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let last = events(answer.text()).pop().unwrap().json();
    last["response"]["output"].as_array().unwrap().clone()
}

/// Sends only what is new, and returns the response.
async fn delta(socket: &mut Socket, model: &str, previous: Option<&str>, input: Value) -> Value {
    let mut request = json!({"model": model, "input": input, "tools": tools(), "store": false});
    if let Some(previous) = previous {
        request["previous_response_id"] = json!(previous);
    }
    let mut end = socket.ask(request).await;
    assert_eq!(end["type"], "response.completed", "{end}");
    end["response"].take()
}

fn id(response: &Value) -> String {
    response["id"].as_str().unwrap().to_owned()
}

/// Removes ids: those of calls are made anew for every response by some providers.
fn plain(value: &Value) -> Value {
    let mut text = value.to_string();
    let mut known = Vec::new();
    for prefix in ["call_", "toolu_", "fc_", "msg_", "rs_"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(&format!("\"{prefix}")) {
            let start = from + at + 1;
            let end = start + text[start..].find('"').unwrap();
            let id = text[start..end].to_owned();
            if !known.contains(&id) {
                known.push(id);
            }
            from = end;
        }
    }
    for (number, id) in known.iter().enumerate() {
        text = text.replace(id.as_str(), &format!("id-{number}"));
    }
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn websocket_deltas_with_tools_are_the_conversation_of_http_at_every_provider() {
    let world = World::start().await;
    for model in MODELS {
        let mut socket = Socket::open(&world.gateway).await;
        let mut whole: Vec<Value> = Vec::new();
        let mut previous: Option<String> = None;
        // The first two turns end with a call, whose result is the only input of the next one.
        for turn in 0..4 {
            let new = match whole.iter().rev().find(|item| item["type"] == "function_call") {
                Some(call) if turn == 1 || turn == 3 => json!({
                    "type": "function_call_output", "call_id": call["call_id"], "output": format!("sunny {turn}")
                }),
                _ => {
                    json!({"type": "message", "role": "user", "content": format!("{turn}: call get_weather é")})
                }
            };
            let response = delta(&mut socket, model, previous.as_deref(), json!([new])).await;
            let sent_deltas = world.sent(model);
            previous = Some(id(&response));
            whole.push(new);
            over_http(&world, model, &whole).await;
            assert_eq!(plain(&sent_deltas), plain(&world.sent(model)), "{model} {turn}");
            whole.extend(response["output"].as_array().unwrap().iter().cloned());
        }
        assert!(whole.iter().filter(|item| item["type"] == "function_call").count() >= 2, "{whole:?}");
    }
}

#[tokio::test]
async fn websocket_conversation_forks_from_an_earlier_response_and_into_lanes() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    let model = "fast-chat";
    let first = delta(&mut socket, model, None, json!("one")).await;
    let second = delta(&mut socket, model, Some(&id(&first)), json!("two")).await;
    delta(&mut socket, model, Some(&id(&second)), json!("three")).await;
    let fork = json!({"model": model, "previous_response_id": id(&first), "input": "other", "store": false,
                      "stream_id": "fork"});
    assert_eq!(socket.ask(fork).await["type"], "response.completed");
    let texts = world.sent(model).to_string();
    assert!(texts.contains("one") && texts.contains("other") && !texts.contains("two"), "{texts}");
}

#[tokio::test]
async fn websocket_unknown_response_is_an_error_and_the_socket_stays_open() {
    let world = World::start().await;
    let mut first = Socket::open(&world.gateway).await;
    let mut second = Socket::open(&world.gateway).await;
    for model in MODELS {
        let unstored = delta(&mut first, model, None, json!("secret")).await;
        for id in [id(&unstored), format!("resp_{}", "0".repeat(32))] {
            let request = json!({"model": model, "previous_response_id": id, "input": "x", "store": false});
            let refused = second.ask(request).await;
            assert_eq!(
                (&refused["type"], &refused["status"]),
                (&json!("error"), &json!(400)),
                "{model} {refused}"
            );
            assert_eq!(refused["error"]["code"], "previous_response_not_found", "{model}");
        }
    }
    assert_eq!(second.ask(json!({"model": "fast-gpt", "input": "hi"})).await["type"], "response.completed");
}

#[tokio::test]
async fn websocket_stored_response_is_continued_as_over_http() {
    let world = World::start().await;
    for model in MODELS {
        let body = json!({"model": model, "input": "my name is Ann"});
        let answer = world.gateway.ask(post("/v1/responses", body.to_string())).await;
        let stored = id(&answer.json());
        let mut socket = Socket::open(&world.gateway).await;
        let second = delta(&mut socket, model, Some(&stored), json!("two")).await;
        delta(&mut socket, model, Some(&id(&second)), json!("three")).await;
        let sent = world.sent(model);
        let text = sent.to_string();
        // A provider that stores responses has the beginning; the others are sent all of it.
        let begins = text.contains("Ann") || sent["previous_response_id"] == json!(stored);
        assert!(begins && text.contains("two") && text.contains("three"), "{model}: {text}");
    }
}

#[tokio::test]
async fn websocket_response_that_was_stored_is_found_over_http() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    for model in MODELS {
        let end = socket.ask(json!({"model": model, "input": "my name is Ann"})).await;
        let body = json!({"model": model, "input": "two", "previous_response_id": end["response"]["id"]});
        let answer = world.gateway.ask(post("/v1/responses", body.to_string())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
    }
}
