//! Totals, explanations and the playground.

use serde_json::{Value, json};

use super::{Ask, OPERATOR, READER, get, with_tokens};
use crate::support::client::{Client, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, NARROW_KEY, Setup};
use crate::support::upstream::Upstream;

async fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::new()
        .provider("a", "openai", &format!("http://{}/v1", upstream.addr), "")
        .model("gpt", "a", "gpt")
        .model("other", "a", "gpt-2026")
        .priced("input = 2.5\noutput = 10");
    let gateway = Gateway::start(&with_tokens(setup)).await;
    (upstream, gateway)
}

fn chat(model: &str) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": "open sesame" }] }).to_string()
}

/// Runs a request of the playground and returns its events.
async fn play(gateway: &Gateway, path: &str, key: &str, body: &str) -> Vec<(String, Value)> {
    let body = json!({ "path": path, "key": key, "body": body });
    let answer = Ask::new("POST", "/playground").token(OPERATOR).body(body).send(gateway).await;
    assert_eq!(
        (answer.status(), answer.get("content-type")),
        (200, Some("text/event-stream")),
        "{}",
        answer.text()
    );
    let events = answer.text().split("\n\n").filter(|event| !event.is_empty());
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        (name.to_owned(), serde_json::from_str(data).unwrap())
    };
    events.map(event).collect()
}

fn text_of(events: &[(String, Value)]) -> String {
    events.iter().filter(|(name, _)| name == "body").map(|(_, data)| data["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn admin_playground_takes_the_path_of_a_client_with_its_rules() {
    let (_upstream, gateway) = gateway().await;
    let events = play(&gateway, "/v1/chat/completions", KEY, &chat("gpt")).await;
    let (first, last) = (&events[0], events.last().unwrap());
    assert_eq!((first.0.as_str(), &first.1["status"]), ("head", &json!(200)), "{events:?}");
    assert_eq!((last.0.as_str(), &last.1["complete"]), ("end", &json!(true)));
    let answer: Value = serde_json::from_str(&text_of(&events)).unwrap();
    assert_eq!(answer["model"], "gpt");
    // It is counted, charged and logged as a client's; what was said is nowhere.
    gateway.metrics_after(1).await;
    let log = std::fs::read_to_string(gateway.folder().join("access.log")).unwrap_or_default();
    assert!(!log.contains("sesame") && !gateway.log().contains("sesame"), "{log}");
    // The key's permission holds, in the client's own format.
    let events = play(&gateway, "/v1/chat/completions", NARROW_KEY, &chat("other")).await;
    assert_eq!(events[0].1["status"], 403, "{events:?}");
    assert!(text_of(&events).contains("\"error\""), "{events:?}");
    let events = play(&gateway, "/v1/messages", "mgw_wrong", &chat("gpt")).await;
    assert_eq!(events[0].1["status"], 401, "{events:?}");
}

#[tokio::test]
async fn admin_playground_needs_a_role_and_a_path() {
    let (_upstream, gateway) = gateway().await;
    let body = json!({ "path": "/v1/models", "key": KEY, "body": "{}" });
    Ask::new("POST", "/playground").token(READER).body(body).expect(&gateway, 403).await;
    for (path, key, field) in
        [("v1/models", KEY, "path"), ("/v1/ models", KEY, "path"), ("/v1", "a\nb", "key")]
    {
        let body = json!({ "path": path, "key": key, "body": "{}" });
        let refused = Ask::new("POST", "/playground").token(OPERATOR).body(body).expect(&gateway, 400).await;
        assert_eq!(refused["error"]["field"], field);
    }
}

#[tokio::test]
async fn admin_playground_that_is_left_ends_its_request() {
    // Connections are never accepted.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let setup = Setup::new().provider("a", "openai-compatible", &format!("http://{address}/v1"), "");
    let gateway = Gateway::start(&with_tokens(setup.model("gpt", "a", "gpt"))).await;
    let body = json!({ "path": "/v1/chat/completions", "key": KEY, "body": chat("gpt") });
    let mut client = Client::connect(gateway.admin).await;
    client.send(Ask::new("POST", "/playground").token(OPERATOR).body(body).bytes()).await;
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 1.0).await;
    drop(client);
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
}

#[tokio::test]
async fn admin_explanation_shows_what_each_target_gets() {
    let (_upstream, gateway) = gateway().await;
    let ask = |body: Value| Ask::new("POST", "/explain").token(READER).body(body);
    let same =
        ask(json!({ "format": "chat", "body": chat("gpt"), "key": "nora" })).expect(&gateway, 200).await;
    assert_eq!((&same["model"], &same["permitted"]), (&json!("gpt"), &json!(true)));
    assert_eq!((&same["targets"][0]["verbatim"], &same["targets"][0]["body"]), (&json!(true), &Value::Null));
    assert!(same["input_tokens"].as_u64().unwrap() > 0 && same["input_cost"].is_string(), "{same}");
    let body = json!({
        "model": "other", "max_tokens": 10, "top_k": 5, "messages": [{ "role": "user", "content": "Hello" }]
    });
    let other = json!({ "format": "messages", "body": body.to_string(), "key": "nora" });
    let other = ask(other).expect(&gateway, 200).await;
    let target = &other["targets"][0];
    assert_eq!(
        (&other["permitted"], &target["verbatim"], &target["format"]),
        (&json!(false), &json!(false), &json!("responses"))
    );
    assert!(target["body"].as_str().unwrap().contains("gpt-2026"), "{target}");
    assert!(target["losses"].as_array().unwrap().iter().any(|loss| loss["element"] == "top_k"), "{target}");
    for (body, status, field) in [
        (json!({ "format": "chat", "body": chat("unknown") }), 404, "model"),
        (json!({ "format": "chat", "body": "[]" }), 400, "body"),
        (json!({ "format": "chat", "body": "{}" }), 400, "model"),
        (json!({ "format": "verse", "body": "{}" }), 400, "format"),
        (json!({ "format": "chat", "body": chat("gpt"), "key": "nobody" }), 400, "key"),
    ] {
        let refused = ask(body.clone()).expect(&gateway, status).await;
        assert_eq!(refused["error"]["field"], field, "{body}");
    }
    // Nothing was sent, and nothing charged.
    assert_eq!(gateway.metrics().await.sum("gateway_requests_total", &[]), 0.0);
}

#[tokio::test]
async fn admin_totals_are_sums_since_the_start() {
    let (_upstream, gateway) = gateway().await;
    let before = get("/totals").expect(&gateway, 200).await;
    assert_eq!((&before["requests"], &before["cost"]), (&json!(0), &json!("0")));
    for (key, status) in [(KEY, 200), (KEY, 200), ("nobody", 401)] {
        let answer = gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", key)], chat("gpt"))).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
    }
    gateway.metrics_after(3).await;
    let after = get("/totals").expect(&gateway, 200).await;
    assert_eq!(
        (&after["requests"], &after["statuses"]["200"], &after["statuses"]["401"]),
        (&json!(3), &json!(2), &json!(1))
    );
    assert_eq!(after["errors"], json!([{ "kind": "invalid_key", "source": "downstream", "count": 1 }]));
    assert!(after["cost"] != "0" && after["tokens"]["output"].as_u64().unwrap() > 0, "{after}");
    assert!(after["duration"]["count"].as_u64().unwrap() >= 2, "{after}");
}
