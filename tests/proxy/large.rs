//! Large bodies do not delay other clients: a worker answers other requests while a large body is translated.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// Metric: number of waits of large bodies for their turn.
const WAITS: &str = "gateway_large_body_wait_seconds_count";

/// Returns a chat request with this number of unknown members in its message.
fn large(members: usize) -> Vec<u8> {
    large_for("claude", members)
}

fn large_for(model: &str, members: usize) -> Vec<u8> {
    let mut body = format!("{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hi\"");
    for number in 0..members {
        write!(body, ",\"k{number}\":1").unwrap();
    }
    body.push_str("}]}");
    post("/v1/chat/completions", body)
}

/// Starts an upstream that answers in the format of the path.
async fn providers() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let form = if request.head.line.contains("messages") { Form::Messages } else { Form::Chat };
            let status = if request.text().contains("\"model\":\"overloaded\"") { 503 } else { 200 };
            conn.send(reply::json(status, form.whole("x"))).await;
        }
    })
    .await
}

#[tokio::test]
async fn large_body_does_not_block_other_requests_of_its_worker() {
    let upstream = providers().await;
    let mut setup = Setup::providers(upstream.addr);
    setup.server = setup.server.replace("threads = 2", "threads = 1");
    let gateway = Gateway::start(&setup).await;
    let mut slow = gateway.connect().await;
    // Several seconds of work in a debug build.
    slow.send(large(2_000_000)).await;
    gateway.wait_for_metric(WAITS, &[], 1.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(upstream.count(), 1, "the large body was done first");
    assert_eq!(slow.answer().await.status(), 200);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn large_body_of_a_disconnected_client_is_not_translated() {
    let upstream = providers().await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Other clients occupy all places for large bodies.
    let mut stay = Vec::new();
    for _ in 0..(cores / 2).max(1) {
        let mut client = gateway.connect().await;
        client.send(large(2_000_000)).await;
        stay.push(client);
    }
    gateway.wait_for_metric(WAITS, &[], stay.len() as f64).await;
    let mut leave = gateway.connect().await;
    leave.send(large(30_000)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(leave);
    for client in &mut stay {
        assert_eq!(client.answer().await.status(), 200);
    }
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    assert_eq!(upstream.count(), stay.len(), "somebody worked for a client that had left");
}

#[tokio::test]
async fn large_body_of_a_disconnected_client_is_not_retried() {
    let upstream = providers().await;
    let mut setup = Setup::providers(upstream.addr);
    setup.routes.push_str(
        "[[model]]\nid = \"both\"\nowned_by = \"us\"\ncreated = 1715367049\ntargets = [\n\
         { provider = \"openai\", model = \"overloaded\" },\n\
         { provider = \"anthropic\", model = \"claude\", tier = 2 },\n]\n",
    );
    let gateway = Gateway::start(&setup).await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut stay = Vec::new();
    for _ in 0..(cores / 2).max(1) {
        let mut client = gateway.connect().await;
        client.send(large(2_000_000)).await;
        stay.push(client);
    }
    gateway.wait_for_metric(WAITS, &[], stay.len() as f64).await;
    let mut leave = gateway.connect().await;
    leave.send(large_for("both", 30_000)).await;
    // The first target has the client's format, so its attempt needs no translation and did not wait.
    gateway.wait_for_metric("gateway_upstream_errors_total", &[], 1.0).await;
    assert_eq!(upstream.count(), 1);
    drop(leave);
    for client in &mut stay {
        assert_eq!(client.answer().await.status(), 200);
    }
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    assert_eq!(upstream.count(), 1 + stay.len(), "somebody worked for a client that had left");
}

/// Translation does not copy long texts and media, and each attempt is a translation of its own.
#[tokio::test]
async fn large_body_that_is_translated_is_whole_at_each_target() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let seen = received.clone();
    let upstream = Upstream::start(move |mut conn| {
        let received = received.clone();
        async move {
            while let Some(request) = conn.request().await {
                let body: Value = serde_json::from_str(request.text()).unwrap();
                let status = if body["model"] == "overloaded" { 503 } else { 200 };
                received.lock().unwrap().push(body);
                conn.send(reply::json(status, Form::Messages.whole("x"))).await;
            }
        }
    })
    .await;
    let mut setup = Setup::providers(upstream.addr);
    setup.routes.push_str(
        "[[model]]\nid = \"both\"\nowned_by = \"us\"\ncreated = 1715367049\ntargets = [\n\
         { provider = \"anthropic\", model = \"overloaded\" },\n\
         { provider = \"anthropic\", model = \"claude\", tier = 2 },\n]\n",
    );
    let gateway = Gateway::start(&setup).await;
    let (text, image) = ("A line, \"quoted\".\n".repeat(40_000), "iVBORw0KGgoAAAANSUhEUgAA".repeat(40_000));
    let words: Vec<Value> =
        (0..20_000).map(|n| json!({"role": "user", "content": format!("{n} é")})).collect();
    let mut messages = vec![json!({"role": "user", "content": [
        {"type": "text", "text": &text},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{image}")}},
    ]})];
    messages.extend(words);
    let body = json!({"model": "both", "max_tokens": 9, "messages": messages});
    assert_eq!(gateway.ask(post("/v1/chat/completions", body.to_string())).await.status(), 200);
    let received = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(received.len(), 2);
    for body in received {
        let content = body["messages"][0]["content"].as_array().unwrap();
        assert!(content[0]["text"] == *text, "{}", body["model"]);
        assert!(content[1]["source"]["data"] == *image, "{}", body["model"]);
        let words = content.iter().skip(2).map(|part| part["text"].as_str().unwrap());
        assert!(words.eq((0..20_000).map(|n| format!("{n} é"))), "{}", body["model"]);
    }
}

#[tokio::test]
async fn large_body_with_too_many_members_is_refused() {
    let upstream = providers().await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let members = |count: usize| {
        let mut body = "{\"model\":\"gpt\",\"messages\":[]".to_owned();
        for number in 2..count {
            write!(body, ",\"k{number}\":1").unwrap();
        }
        body.push('}');
        post("/v1/chat/completions", body)
    };
    assert_eq!(gateway.ask(members(65_536)).await.status(), 200);
    let refused = gateway.ask(members(65_537)).await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("65536 members"), "{}", refused.text());
    assert_eq!(upstream.count(), 1);
}
