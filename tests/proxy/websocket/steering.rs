//! Input that a client sends during a response (`response.steer`).

use model_gateway::simulator::Options;
use serde_json::{Value, json};

use super::client::Socket;
use super::upstream::{accept, completed, receive, scripted, send, setup, simulated};
use crate::support::gateway::Gateway;

fn created(id: &str) -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": id, "object": "response",
           "status": "in_progress", "model": "gpt-4.1", "output": []}})
}

/// Last event of a response with this usage: 100 input tokens, and 10 output tokens.
fn ended(id: &str, reason: Option<&str>) -> Value {
    let mut event = completed(id);
    if let Some(reason) = reason {
        event["type"] = json!("response.incomplete");
        event["response"]["status"] = json!("incomplete");
        event["response"]["incomplete_details"] = json!({"reason": reason});
    }
    event["response"]["usage"] = json!({"input_tokens": 100, "output_tokens": 10, "total_tokens": 110});
    event
}

fn answer(kind: &str, id: &str) -> Value {
    let steer = json!({"id": "steer_1", "previous_response_id": id});
    json!({"type": format!("response.steer.{kind}"), "sequence_number": 1, "steer": steer})
}

fn steer(id: &str, input: &str) -> Value {
    json!({"type": "response.steer", "previous_response_id": id, "input": input})
}

/// Sends a request over a lane, and waits until it is in progress.
async fn begin(socket: &mut Socket, input: &str) {
    let request =
        json!({"type": "response.create", "model": "gpt", "input": input, "store": false, "stream_id": "a"});
    socket.send(&request).await;
    assert_eq!(next(socket).await, "response.created");
}

/// Returns the type of the next event.
async fn next(socket: &mut Socket) -> String {
    let event = socket.event().await;
    assert_eq!(event["stream_id"], "a", "{event}");
    event["type"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn steered_response_and_its_successor_are_one_request() {
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        send(&mut socket, created("resp_1")).await;
        let steer = receive(&mut socket).await;
        assert_eq!(
            steer,
            json!({"type": "response.steer", "previous_response_id": "resp_1", "input": "in French"})
        );
        send(&mut socket, answer("accepted", "resp_1")).await;
        send(&mut socket, ended("resp_1", Some("steered"))).await;
        send(&mut socket, created("resp_2")).await;
        send(&mut socket, ended("resp_2", None)).await;
        // The successor is continued on the same socket, with what is new.
        let next = receive(&mut socket).await;
        assert_eq!(next["previous_response_id"], "resp_2");
        assert_eq!(next["input"].as_array().unwrap().len(), 1, "{next}");
        send(&mut socket, created("resp_3")).await;
        send(&mut socket, ended("resp_3", None)).await;
        receive(&mut socket).await;
    })
    .await;
    let mut socket = Socket::open(&gateway).await;
    begin(&mut socket, "a poem").await;
    socket.send(&steer("resp_1", "in French")).await;
    for kind in ["response.steer.accepted", "response.incomplete", "response.created", "response.completed"] {
        assert_eq!(next(&mut socket).await, kind);
    }
    let record = gateway.records(1).await.pop().unwrap();
    assert_eq!((&record["input"], &record["output"]), (&json!(200), &json!(20)));
    let again = json!({"model": "gpt", "input": "shorter", "store": false, "stream_id": "a",
                       "previous_response_id": "resp_2"});
    assert_eq!(socket.ask(again).await["response"]["id"], "resp_3");
    let records = gateway.records(2).await;
    assert!(records.iter().any(|record| record["input"] == 100), "{records:?}");
}

#[tokio::test]
async fn steered_conversation_is_sent_whole_to_another_socket() {
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        send(&mut socket, created("resp_1")).await;
        receive(&mut socket).await;
        send(&mut socket, answer("accepted", "resp_1")).await;
        send(&mut socket, ended("resp_1", Some("steered"))).await;
        send(&mut socket, created("resp_2")).await;
        send(&mut socket, ended("resp_2", None)).await;
        drop(socket);
        let mut socket = accept(&listener).await;
        let next = receive(&mut socket).await;
        assert!(next.get("previous_response_id").is_none(), "{next}");
        let roles: Vec<_> =
            next["input"].as_array().unwrap().iter().map(|item| item["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
        assert_eq!(next["input"][2]["content"], "in French");
        send(&mut socket, created("resp_3")).await;
        send(&mut socket, ended("resp_3", None)).await;
        receive(&mut socket).await;
    })
    .await;
    let mut socket = Socket::open(&gateway).await;
    begin(&mut socket, "a poem").await;
    socket.send(&steer("resp_1", "in French")).await;
    while next(&mut socket).await != "response.completed" {}
    gateway.idle().await;
    let again = json!({"model": "gpt", "input": "shorter", "store": false, "stream_id": "a",
                       "previous_response_id": "resp_2"});
    assert_eq!(socket.ask(again).await["response"]["id"], "resp_3");
}

#[tokio::test]
async fn steer_that_waits_for_tools_is_part_of_the_next_request() {
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        send(&mut socket, created("resp_1")).await;
        receive(&mut socket).await;
        send(&mut socket, answer("accepted", "resp_1")).await;
        send(&mut socket, ended("resp_1", None)).await;
        send(&mut socket, answer("pending", "resp_1")).await;
        let next = receive(&mut socket).await;
        assert_eq!(
            (&next["previous_response_id"], &next["input"][0]["content"]),
            (&json!("resp_1"), &json!("go on"))
        );
        send(&mut socket, created("resp_2")).await;
        send(&mut socket, ended("resp_2", None)).await;
        receive(&mut socket).await;
    })
    .await;
    let mut socket = Socket::open(&gateway).await;
    begin(&mut socket, "a poem").await;
    socket.send(&steer("resp_1", "in French")).await;
    for kind in ["response.steer.accepted", "response.completed", "response.steer.pending"] {
        assert_eq!(next(&mut socket).await, kind);
    }
    let again = json!({"model": "gpt", "input": "go on", "store": false, "stream_id": "a",
                       "previous_response_id": "resp_1"});
    assert_eq!(socket.ask(again).await["response"]["id"], "resp_2");
    gateway.records(2).await;
}

#[tokio::test]
async fn steered_response_whose_successor_is_missing_ends_with_an_error() {
    let gateway = scripted(|listener| async move {
        let mut socket = accept(&listener).await;
        receive(&mut socket).await;
        send(&mut socket, created("resp_1")).await;
        receive(&mut socket).await;
        send(&mut socket, answer("accepted", "resp_1")).await;
        send(&mut socket, ended("resp_1", Some("steered"))).await;
    })
    .await;
    let mut socket = Socket::open(&gateway).await;
    begin(&mut socket, "a poem").await;
    socket.send(&steer("resp_1", "in French")).await;
    for kind in ["response.steer.accepted", "response.incomplete"] {
        assert_eq!(next(&mut socket).await, kind);
    }
    let error = socket.event().await;
    assert!(error["status"].as_u64().unwrap() >= 500, "{error}");
    let record = gateway.records(1).await.pop().unwrap();
    assert_eq!((&record["input"], &record["output"]), (&json!(100), &json!(10)));
}

#[tokio::test]
async fn steer_is_refused_with_a_reason() {
    let provider = simulated(Options::default()).await;
    let gateway = Gateway::start(&setup(&provider)).await;
    let mut socket = Socket::open(&gateway).await;
    let code = |event: Value| event["error"]["code"].as_str().unwrap().to_owned();
    socket.send(&steer("resp_1", "more")).await;
    assert_eq!(code(socket.event().await), "response_not_found");
    let first = socket.ask(json!({"model": "gpt", "input": "hi", "store": false})).await;
    let id = first["response"]["id"].as_str().unwrap();
    socket.send(&steer(id, "more")).await;
    assert_eq!(code(socket.event().await), "response_already_completed");
    socket.send(&json!({"type": "response.steer", "previous_response_id": id, "input": 5})).await;
    assert_eq!(code(socket.event().await), "invalid_input");
    socket.send(&json!({"type": "response.steer", "previous_response_id": id})).await;
    assert_eq!(code(socket.event().await), "invalid_input");
}

#[tokio::test]
async fn steer_reaches_the_simulated_provider() {
    let provider = simulated(Options::default()).await;
    let gateway = Gateway::start(&setup(&provider)).await;
    let mut socket = Socket::open(&gateway).await;
    let request = json!({"type": "response.create", "model": "gpt", "store": false,
                         "input": "[[pace 100]] [[words 100]] one"});
    socket.send(&request).await;
    let id = socket.event().await["response"]["id"].as_str().unwrap().to_owned();
    socket.send(&steer(&id, "two")).await;
    let first = socket.events().await.pop().unwrap();
    assert_eq!(
        (&first["type"], &first["response"]["incomplete_details"]["reason"]),
        (&json!("response.incomplete"), &json!("steered"))
    );
    let second = socket.events().await.pop().unwrap();
    assert_eq!(second["type"], "response.completed");
    assert!(second["response"]["output"].to_string().contains("two"), "{second}");
    let sum = |name: &str| {
        first["response"]["usage"][name].as_u64().unwrap()
            + second["response"]["usage"][name].as_u64().unwrap()
    };
    let record = gateway.records(1).await.pop().unwrap();
    assert_eq!(record["input"], sum("input_tokens"));
    assert_eq!(record["output"], sum("output_tokens"));
}
