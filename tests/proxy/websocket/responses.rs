//! Single responses: their events, errors, accounting and logs are those of the same request over HTTP.

use serde_json::{Value, json};

use super::client::Socket;
use super::{MODELS, World};
use crate::support::client::post;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::sse::events;
use crate::support::upstream::Upstream;

/// Removes what differs from one response to the next.
fn without_ids(mut event: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                for name in ["id", "item_id", "created_at", "completed_at", "obfuscation"] {
                    object.remove(name);
                }
                object.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut event);
    event
}

#[tokio::test]
async fn websocket_events_are_those_of_the_stream_over_http() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    for model in MODELS {
        let body = json!({"model": model, "input": "Say \"é\" and hello", "stream": true, "store": false});
        let answer = world.gateway.ask(post("/v1/responses", body.to_string())).await;
        let over_http: Vec<Value> =
            events(answer.text()).iter().map(|event| without_ids(event.json())).collect();
        let upstream = world.sent(model);
        let mut event = body.clone();
        event["type"] = json!("response.create");
        socket.send(&event).await;
        let over_socket: Vec<Value> = socket.events().await.into_iter().map(without_ids).collect();
        assert_eq!(over_socket, over_http, "{model}");
        assert_eq!(world.sent(model), upstream, "{model}");
    }
    let sockets = super::responses_logged(&world.gateway, 4).await;
    let lines = world.gateway.wait_for_log(9).await;
    assert_eq!(sockets.len(), 4);
    for line in &sockets {
        let twin = lines.iter().find(|other| other["websocket"].is_null() && other["model"] == line["model"]);
        for field in
            ["status", "client", "endpoint", "key", "provider", "input_tokens", "output_tokens", "stream"]
        {
            assert_eq!(line[field], twin.unwrap()[field], "{field}");
        }
    }
}

#[tokio::test]
async fn websocket_lane_marks_every_event() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    let request =
        json!({"type": "response.create", "model": "fast-claude", "input": "hi", "stream_id": "a\"1"});
    socket.send(&request).await;
    let events = socket.events().await;
    assert!(events.len() > 3 && events.iter().all(|event| event["stream_id"] == "a\"1"), "{events:?}");
    let refused = socket.ask(json!({"model": "unknown", "input": "x", "stream_id": "b"})).await;
    assert_eq!((&refused["stream_id"], &refused["status"]), (&json!("b"), &json!(404)));
}

#[tokio::test]
async fn websocket_errors_have_the_answer_of_http() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    for (body, status) in [
        (json!({"model": "unknown", "input": "x"}), 404),
        (json!({"model": "fast-claude", "input": 7}), 400),
        (json!({"model": "fast-gpt", "input": "x", "temperature": 9}), 400),
        (json!({"model": "fast-gpt", "input": "[[status 429]] [[retry-after 3]]"}), 429),
        (json!({"model": "fast-gpt", "input": "[[status 500]]"}), 500),
        (json!({"input": "x"}), 400),
    ] {
        let mut over_http = body.clone();
        over_http["stream"] = json!(true);
        let answer = world.gateway.ask(post("/v1/responses", over_http.to_string())).await;
        let event = socket.ask(body.clone()).await;
        assert_eq!(event["type"], "error", "{event}");
        assert_eq!((answer.status(), &event["status"]), (status, &json!(status)), "{body} {event}");
        assert_eq!(event["error"]["message"], answer.json()["error"]["message"]);
        assert_eq!(event["error"]["code"], answer.json()["error"]["code"]);
        assert_eq!(event["headers"].get("retry-after").and_then(Value::as_str), answer.get("retry-after"));
    }
}

#[tokio::test]
async fn websocket_prepared_response_calls_no_provider_and_is_continued() {
    let world = World::start_with(|setup| setup.priced("input = 1\noutput = 1")).await;
    let mut socket = Socket::open(&world.gateway).await;
    for model in MODELS {
        let calls = world.provider(model).requests();
        let prepare = json!({
            "type": "response.create", "model": model, "generate": false, "store": false, "stream": true,
            "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
        });
        socket.send(&prepare).await;
        let prepared = socket.events().await;
        let kinds: Vec<&str> = prepared.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["response.created", "response.completed"]);
        let response = &prepared[1]["response"];
        assert_eq!((&response["output"], &response["usage"]["total_tokens"]), (&json!([]), &json!(0)));
        assert_eq!(response["model"], model);
        assert_eq!(world.provider(model).requests(), calls, "{model}");
        let id = response["id"].as_str().unwrap();
        let next = json!({"model": model, "previous_response_id": id, "input": "hello", "store": false});
        assert_eq!(socket.ask(next).await["type"], "response.completed");
        let sent = world.sent(model).to_string();
        assert!(sent.contains("Be brief.") && sent.contains("hello"), "{sent}");
    }
    // A prepared response has the permissions of a request, and is not charged.
    let refused = socket.ask(json!({"model": "unknown", "generate": false})).await;
    assert_eq!(refused["status"], 404);
    world.gateway.records(4).await;
}

#[tokio::test]
async fn websocket_events_that_mean_nothing_are_ignored_or_reported() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.gateway).await;
    socket.send(&json!({"type": "response.processed", "response_id": "resp_1"})).await;
    socket.send(&json!({"type": "session.update"})).await;
    socket.send(&json!({"type": "response.steer", "previous_response_id": "resp_1", "input": "more"})).await;
    let failed = socket.event().await;
    assert_eq!(failed["type"], "response.steer.failed");
    assert_eq!(failed["error"]["code"], "response_not_found");
    assert_eq!(failed["steer"], json!({"previous_response_id": "resp_1", "input": "more"}));
    for bad in
        [json!({}), json!([]), json!({"type": "response.create", "background": true, "model": "fast-gpt"})]
    {
        socket.send(&bad).await;
        assert_eq!(socket.event().await["status"], 400, "{bad}");
    }
    assert_eq!(socket.ask(json!({"model": "fast-gpt", "input": "hi"})).await["type"], "response.completed");
}

#[tokio::test]
async fn websocket_stream_that_breaks_off_ends_with_an_error_event() {
    let world = World::start().await;
    for fault in ["cut 1", "end 1", "error 1"] {
        for model in MODELS {
            let mut socket = Socket::open(&world.gateway).await;
            let end =
                socket.ask(json!({"model": model, "input": format!("[[{fault}]] one two three four")})).await;
            let kind = end["type"].as_str().unwrap();
            assert!(matches!(kind, "error" | "response.failed"), "{model} {fault}: {end}");
            // Codex takes an error without a status for an event like any other, and waits for the end in vain.
            assert!(
                kind != "error" || end["status"].as_u64().is_some_and(|status| status >= 400),
                "{model}: {end}"
            );
        }
    }
}

#[tokio::test]
async fn websocket_response_falls_back_as_over_http() {
    let failing = Upstream::answering(reply::json(503, r#"{"error":{"message":"down"}}"#)).await;
    let frames = crate::support::form::Form::Responses.frames("gpt");
    let working = Upstream::answering(reply::stream(&frames)).await;
    let mut setup = Setup::new()
        .provider("one", "openai", &format!("http://{}/v1", failing.addr), "")
        .provider("two", "openai", &format!("http://{}/v1", working.addr), "");
    setup.routes.push_str(
        "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"one\", model = \"gpt\" }, \
         { provider = \"two\", model = \"gpt\", tier = 2 }]\n",
    );
    let gateway = Gateway::start(&setup).await;
    let mut socket = Socket::open(&gateway).await;
    assert_eq!(socket.ask(json!({"model": "gpt", "input": "hi"})).await["type"], "response.completed");
    let line = super::responses_logged(&gateway, 1).await.remove(0);
    assert_eq!((&line["websocket"], &line["attempts"]), (&json!(true), &json!(2)), "{line}");
    let head = &working.only_request().head;
    assert!(head.get("upgrade").is_none() && head.get("sec-websocket-key").is_none());
}
