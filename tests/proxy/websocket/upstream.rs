//! Responses whose provider is reached over a WebSocket.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::client::Socket;
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, Setup};
use crate::support::sse::events;
use crate::support::upstream::Upstream;

pub(super) async fn simulated(options: Options) -> Simulator {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..options };
    Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap()
}

pub(super) fn setup(provider: &Simulator) -> Setup {
    let lines = "apis = [\"responses\"]\nwebsocket = true";
    Setup::new().provider("openai", "openai", &provider.base_url(), lines).model("gpt", "openai", "gpt-4.1")
}

async fn started() -> (Simulator, Gateway) {
    let provider = simulated(Options::default()).await;
    let gateway = Gateway::start(&setup(&provider)).await;
    (provider, gateway)
}

fn body(input: &str) -> Value {
    json!({"model": "gpt", "input": input, "stream": true, "store": false})
}

/// Returns the events of a stream over HTTP.
async fn stream(gateway: &Gateway, body: &Value) -> Vec<Value> {
    // The socket of the request before is idle.
    gateway.idle().await;
    let answer = gateway.ask(post("/v1/responses", body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    events(answer.text()).iter().map(|event| event.json()).collect()
}

/// Returns the last request of the provider, if it came over a WebSocket.
fn message(provider: &Simulator) -> Value {
    let request = provider.last_request().unwrap();
    assert_eq!(request.method, "GET");
    serde_json::from_slice(&request.body).unwrap()
}

#[tokio::test]
async fn upstream_socket_gives_the_events_of_the_stream() {
    let (provider, gateway) = started().await;
    let over_socket = stream(&gateway, &body("Say \"é\" and hello")).await;
    let sent = message(&provider);
    assert_eq!((&sent["type"], &sent["model"]), (&json!("response.create"), &json!("gpt-4.1")));
    let direct = {
        let plain = simulated(Options::default()).await;
        let setup = Setup::new()
            .provider("openai", "openai", &plain.base_url(), "apis = [\"responses\"]")
            .model("gpt", "openai", "gpt-4.1");
        stream(&Gateway::start(&setup).await, &body("Say \"é\" and hello")).await
    };
    let kinds = |events: &[Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&over_socket), kinds(&direct));
    let last = over_socket.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["model"]), (&json!("response.completed"), &json!("gpt")));
    let line = gateway.wait_for_log(1).await.pop().unwrap();
    assert_eq!(line["output_tokens"], last["response"]["usage"]["output_tokens"]);
}

#[tokio::test]
async fn upstream_socket_is_used_again() {
    let (provider, gateway) = started().await;
    for _ in 0..3 {
        stream(&gateway, &body("hi")).await;
        message(&provider);
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_upstream_connections_total", &[("reused", "true")]), 2.0);
}

#[tokio::test]
async fn upstream_socket_serves_clients_of_other_formats() {
    let (provider, gateway) = started().await;
    let chat = json!({"model": "gpt", "messages": [{"role": "user", "content": "hello"}], "stream": true});
    let answer = gateway.ask(post("/v1/chat/completions", chat.to_string())).await;
    assert_eq!(answer.status(), 200);
    let text: String = events(answer.text())
        .iter()
        .filter(|event| event.data != "[DONE]")
        .filter_map(|event| event.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert!(text.contains("hello"), "{text}");
    assert_eq!(message(&provider)["type"], "response.create");
    // What is no stream goes over HTTP.
    let whole = json!({"model": "gpt", "input": "hello", "store": false});
    assert_eq!(gateway.ask(post("/v1/responses", whole.to_string())).await.status(), 200);
    assert_eq!(provider.last_request().unwrap().method, "POST");
    let background = json!({"model": "gpt", "input": "hello", "stream": true, "background": true});
    gateway.ask(post("/v1/responses", background.to_string())).await;
    assert_eq!(provider.last_request().unwrap().method, "POST");
}

#[tokio::test]
async fn upstream_socket_error_has_the_status_of_the_event() {
    let (provider, gateway) = started().await;
    let answer = gateway.ask(post("/v1/responses", body("[[status 429]]").to_string())).await;
    assert_eq!((answer.status(), answer.get("retry-after")), (429, Some("7")));
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded", "{}", answer.text());
    gateway.idle().await;
    let answer = gateway.ask(post("/v1/responses", body("[[status 404]]").to_string())).await;
    assert_eq!((answer.status(), answer.json()["error"]["code"].as_str()), (404, Some("model_not_found")));
    // The socket is used again.
    stream(&gateway, &body("hi")).await;
    assert_eq!((provider.requests(), reused(&gateway).await), (3, 2.0));
}

async fn reused(gateway: &Gateway) -> f64 {
    gateway.metrics().await.sum("gateway_upstream_connections_total", &[("reused", "true")])
}

#[tokio::test]
async fn upstream_socket_error_falls_back_to_another_target() {
    // Its first event is an error with a status.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let busy = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        let error =
            json!({"type": "server_error", "code": "server_is_overloaded", "message": "busy", "param": null});
        send(&mut socket, json!({"type": "error", "status": 503, "error": error})).await;
        let _ = socket.next().await;
    });
    let free = simulated(Options::default()).await;
    let lines = "apis = [\"responses\"]\nwebsocket = true";
    let setup = Setup::new()
        .provider("busy", "openai", &busy, lines)
        .provider("free", "openai", &free.base_url(), lines)
        .model("gpt", "busy", "gpt-4.1\", tier = 0 }, { tier = 1, provider = \"free\", model = \"gpt-4.1");
    let gateway = Gateway::start(&setup).await;
    let events = stream(&gateway, &body("hi")).await;
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    assert_eq!(free.requests(), 1);
}

#[tokio::test]
async fn upstream_socket_that_breaks_off_ends_the_stream_with_an_error() {
    let (_provider, gateway) = started().await;
    for fault in ["cut", "end"] {
        let events = stream(&gateway, &body(&format!("[[{fault} 3]] one two three four five six"))).await;
        let last = events.last().unwrap();
        assert!(matches!(last["type"].as_str(), Some("error" | "response.failed")), "{fault}: {last}");
    }
    // A new socket is opened.
    assert_eq!(stream(&gateway, &body("hi")).await.last().unwrap()["type"], "response.completed");
}

#[tokio::test]
async fn upstream_socket_is_closed_when_the_client_goes_away() {
    let (provider, gateway) = started().await;
    let mut client = gateway.connect().await;
    client.send(post("/v1/responses", body("[[stall 3]] one two three four").to_string())).await;
    assert_eq!(client.head().await.status(), 200);
    assert!(matches!(client.piece().await, Piece::Data(_)));
    drop(client);
    crate::support::until(|| provider.aborted() == 1).await;
}

#[tokio::test]
async fn upstream_socket_without_a_response_times_out() {
    let provider = simulated(Options::default()).await;
    let lines = "apis = [\"responses\"]\nwebsocket = true\ntimeouts = { first_byte = \"300ms\" }";
    let setup = Setup::new()
        .provider("openai", "openai", &provider.base_url(), lines)
        .model("gpt", "openai", "gpt-4.1");
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(post("/v1/responses", body("[[hang]]").to_string())).await;
    assert_eq!(answer.status(), 504, "{}", answer.text());
}

#[tokio::test]
async fn upstream_socket_past_its_lifetime_is_replaced() {
    let provider =
        simulated(Options { websocket_lifetime: Duration::from_millis(100), ..Options::default() }).await;
    let gateway = Gateway::start(&setup(&provider)).await;
    for _ in 0..3 {
        assert_eq!(stream(&gateway, &body("hi")).await.last().unwrap()["type"], "response.completed");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(reused(&gateway).await, 0.0);
}

/// Provider over HTTP that refuses upgrades with this status.
async fn refusing(status: &'static str) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            if request.head.line.starts_with("GET") {
                conn.send(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")).await;
            } else {
                conn.send(reply::stream(&Form::Responses.frames("gpt"))).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn upstream_without_sockets_gets_requests_over_http() {
    for (status, handshakes) in
        [("426 Upgrade Required", 1), ("404 Not Found", 1), ("405 Method Not Allowed", 1), ("503 Busy", 2)]
    {
        let upstream = refusing(status).await;
        let lines = "apis = [\"responses\"]\nwebsocket = true";
        let setup = Setup::new()
            .provider("openai", "openai", &format!("http://{}/v1", upstream.addr), lines)
            .model("gpt", "openai", "gpt-4.1");
        let gateway = Gateway::start(&setup).await;
        for _ in 0..2 {
            assert_eq!(stream(&gateway, &body("hi")).await.last().unwrap()["type"], "response.completed");
        }
        let gets = upstream.requests().iter().filter(|request| request.head.line.starts_with("GET")).count();
        assert_eq!(gets, handshakes, "{status}");
    }
}

#[tokio::test]
async fn conversation_reaches_the_provider_as_what_is_new() {
    let (provider, gateway) = started().await;
    let mut socket = Socket::open(&gateway).await;
    let tools = json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}]);
    let first = socket.ask(json!({"model": "gpt", "input": "one", "store": false, "tools": tools})).await;
    let id = first["response"]["id"].clone();
    assert!(message(&provider).get("previous_response_id").is_none());
    let second =
        json!({"model": "gpt", "input": "two", "store": false, "tools": tools, "previous_response_id": id});
    let second = socket.ask(second).await;
    assert_eq!(second["type"], "response.completed", "{second}");
    let sent = message(&provider);
    assert_eq!(sent["previous_response_id"], id);
    assert_eq!(sent["input"], json!([{"type": "message", "role": "user", "content": "two"}]));
    assert_eq!((&sent["tools"][0]["name"], &sent["model"]), (&json!("f"), &json!("gpt-4.1")));
    // An earlier response is not the latest one of the provider's socket: the whole conversation is sent.
    let fork = json!({"model": "gpt", "input": "three", "store": false, "previous_response_id": id});
    assert_eq!(socket.ask(fork).await["type"], "response.completed");
    let sent = message(&provider);
    assert!(sent.get("previous_response_id").is_none());
    assert_eq!(sent["input"].as_array().unwrap().len(), 3);
}

/// Provider's side of one socket.
pub(super) async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (socket, _) = crate::support::soon(listener.accept()).await.unwrap();
    tokio_tungstenite::accept_async(socket).await.unwrap()
}

pub(super) async fn receive(socket: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        match crate::support::soon(socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn send(socket: &mut WebSocketStream<TcpStream>, event: Value) {
    socket.send(Message::text(event.to_string())).await.unwrap();
}

pub(super) fn completed(id: &str) -> Value {
    json!({"type": "response.completed", "sequence_number": 1, "response": {"id": id, "object": "response",
           "status": "completed", "model": "gpt-4.1", "output": [{"type": "message", "id": "msg_1", "status": "completed",
           "role": "assistant", "content": [{"type": "output_text", "text": "ok", "annotations": []}]}],
           "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})
}

pub(super) async fn scripted<F>(script: impl FnOnce(TcpListener) -> F) -> Gateway
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(script(listener));
    let lines = "apis = [\"responses\"]\nwebsocket = true";
    Gateway::start(&Setup::new().provider("openai", "openai", &base, lines).model("gpt", "openai", "gpt-4.1"))
        .await
}

#[tokio::test]
async fn conversation_that_the_provider_has_forgotten_is_sent_whole() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let seen = received.clone();
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        let event = receive(&mut socket).await;
        seen.lock().unwrap().push(event);
        // Statements about the account do not reach the client.
        send(&mut socket, json!({"type": "codex.rate_limits", "rate_limits": {}})).await;
        send(&mut socket, completed("resp_1")).await;
        let event = receive(&mut socket).await;
        seen.lock().unwrap().push(event);
        let error = json!({"type": "invalid_request_error", "code": "previous_response_not_found", "message": "no",
                           "param": "previous_response_id"});
        send(&mut socket, json!({"type": "error", "status": 400, "error": error})).await;
        let event = receive(&mut socket).await;
        seen.lock().unwrap().push(event);
        send(&mut socket, completed("resp_2")).await;
        let _ = socket.next().await;
    })
    .await;
    let mut socket = Socket::open(&gateway).await;
    socket.send(&json!({"type": "response.create", "model": "gpt", "input": "one", "store": false})).await;
    let events = socket.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    let second = json!({"model": "gpt", "input": "two", "store": false, "previous_response_id": "resp_1"});
    let end = socket.ask(second).await;
    assert_eq!((&end["type"], &end["response"]["id"]), (&json!("response.completed"), &json!("resp_2")));
    let received = received.lock().unwrap();
    assert_eq!(received[1]["previous_response_id"], "resp_1");
    assert_eq!(received[1]["input"].as_array().unwrap().len(), 1);
    assert!(received[2].get("previous_response_id").is_none());
    assert_eq!(received[2]["input"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn upstream_socket_that_was_closed_while_idle_is_replaced() {
    let gateway = scripted(|listener| async move {
        for number in 0..3 {
            let mut socket = accept(&listener).await;
            receive(&mut socket).await;
            send(&mut socket, completed(&format!("resp_{number}"))).await;
            if number == 0 {
                let _ = socket.close(None).await;
            } else {
                // Closed in the moment in which the next request is sent.
                receive(&mut socket).await;
            }
        }
    })
    .await;
    for number in 0..3 {
        let events = stream(&gateway, &body("hi")).await;
        assert_eq!(events.last().unwrap()["response"]["id"], format!("resp_{number}"));
    }
}

#[tokio::test]
async fn upstream_socket_that_is_idle_answers_pings() {
    let ponged = Arc::new(Mutex::new(false));
    let seen = ponged.clone();
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        send(&mut socket, completed("resp_1")).await;
        socket.send(Message::Ping(Vec::new().into())).await.unwrap();
        assert!(matches!(socket.next().await, Some(Ok(Message::Pong(_)))));
        *seen.lock().unwrap() = true;
        receive(&mut socket).await;
        send(&mut socket, completed("resp_2")).await;
        let _ = socket.next().await;
    })
    .await;
    stream(&gateway, &body("hi")).await;
    crate::support::until(|| *ponged.lock().unwrap()).await;
    let events = stream(&gateway, &body("hi")).await;
    assert_eq!(events.last().unwrap()["response"]["id"], "resp_2");
}

#[tokio::test]
async fn upstream_socket_with_what_is_no_event_is_a_broken_response() {
    let gateway = scripted(|listener| async move {
        for message in [Message::text("{"), Message::text("[]"), Message::Binary(Vec::new().into())] {
            let mut socket = accept(&listener).await;
            receive(&mut socket).await;
            let created =
                json!({"id": "resp_1", "object": "response", "status": "in_progress", "output": []});
            send(&mut socket, json!({"type": "response.created", "response": created})).await;
            socket.send(message).await.unwrap();
            while let Some(Ok(_)) = socket.next().await {}
        }
    })
    .await;
    for _ in 0..3 {
        gateway.idle().await;
        let answer = gateway.ask(post("/v1/responses", body("hi").to_string())).await;
        let failed =
            answer.status() >= 500 || events(answer.text()).last().unwrap().json()["type"] == "error";
        assert!(failed, "{} {}", answer.status(), answer.text());
    }
}
