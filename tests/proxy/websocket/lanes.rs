//! Several responses on one socket.

use serde_json::{Value, json};

use super::client::{Socket, is_end};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{Gate, reply};

/// Provider whose responses to requests with "wait" in them wait for the gate.
async fn waiting(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            while let Some(request) = conn.request().await {
                if request.text().contains("wait") {
                    gate.passed().await;
                }
                conn.send(reply::stream(&Form::Responses.frames("gpt"))).await;
            }
        }
    })
    .await
}

fn create(input: &str, lane: Option<&str>) -> Value {
    match lane {
        Some(lane) => json!({"type": "response.create", "model": "gpt", "input": input, "stream_id": lane}),
        None => json!({"type": "response.create", "model": "gpt", "input": input}),
    }
}

#[tokio::test]
async fn websocket_lanes_run_in_parallel_and_each_in_order() {
    let gate = Gate::new();
    let upstream = waiting(&gate).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut socket = Socket::open(&gateway).await;
    for (input, lane) in [("wait a", Some("a")), ("wait none", None), ("a2", Some("a")), ("none2", None)] {
        socket.send(&create(input, lane)).await;
    }
    upstream.wait_for(2).await;
    socket.send(&create("b", Some("b"))).await;
    let events = socket.events().await;
    assert!(events.iter().all(|event| event["stream_id"] == "b"), "{events:?}");
    a_moment().await;
    assert_eq!(upstream.count(), 3, "a lane runs one request at a time");
    gate.open();
    let mut ends = Vec::new();
    while ends.len() < 4 {
        let event = socket.event().await;
        if is_end(&event) {
            assert_eq!(event["type"], "response.completed");
            ends.push(event["stream_id"].as_str().unwrap_or("none").to_owned());
        }
    }
    ends.sort();
    assert_eq!(ends, ["a", "a", "none", "none"]);
    let bodies: Vec<String> = upstream.requests().iter().map(|request| request.text().to_owned()).collect();
    let place = |text: &str| bodies.iter().position(|body| body.contains(&format!("\"{text}\""))).unwrap();
    assert!(place("wait a") < place("a2") && place("wait none") < place("none2"));
}

#[tokio::test]
async fn websocket_requests_beyond_the_queue_are_refused() {
    let gate = Gate::new();
    let upstream = waiting(&gate).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut socket = Socket::open(&gateway).await;
    for number in 0..18 {
        socket.send(&create(&format!("wait {number}"), None)).await;
    }
    let refused = socket.event().await;
    assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(429)));
    assert_eq!(refused["error"]["code"], "too_many_pending_responses");
    for lane in 0..16 {
        socket.send(&create("wait", Some(&lane.to_string()))).await;
    }
    let refused = socket.event().await;
    assert_eq!((&refused["stream_id"], &refused["status"]), (&json!("15"), &json!(429)), "{refused}");
    upstream.wait_for(16).await;
    gate.open();
    for _ in 0..17 + 15 {
        assert_eq!(socket.events().await.pop().unwrap()["type"], "response.completed");
    }
}

#[tokio::test]
async fn websocket_that_is_closed_stops_its_responses() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut socket = Socket::open(&gateway).await;
    socket.send(&create("wait", None)).await;
    upstream.wait_for(1).await;
    drop(socket);
    let line = super::responses_logged(&gateway, 1).await.remove(0);
    assert_eq!(line["error"], "client_gone", "{line}");
    gateway.wait_for_metric("gateway_websocket_connections", &[], 0.0).await;
    crate::support::until(|| upstream.closed() == 1).await;
}
