//! The opening handshake: who is let in, and how others are refused.

use super::World;
use super::client::{Socket, handshake};
use crate::support::client::{ask, request};
use crate::support::gateway::Gateway;
use crate::support::http2;
use crate::support::setup::{DISABLED_KEY, EXPIRED_KEY, KEY, Setup};
use serde_json::json;

/// Gateway without providers.
async fn bare(lines: &str) -> Gateway {
    Gateway::start(&Setup::new().server(lines)).await
}

#[tokio::test]
async fn websocket_opens_at_every_path_of_the_responses() {
    let gateway = bare("").await;
    for path in
        ["/v1/responses", "/responses", "/v1/v1/responses", "/v1//responses/", "/v1/responses/responses"]
    {
        let answer = gateway.ask(handshake(path, &[])).await;
        assert_eq!(answer.status(), 101, "{path}");
        assert_eq!(answer.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(answer.get("openai-model").is_none() && answer.get("sec-websocket-extensions").is_none());
        assert!(answer.get("x-request-id").is_some());
    }
    for (name, value) in [("authorization", format!("Bearer {KEY}")), ("x-api-key", KEY.to_owned())] {
        drop(Socket::open_with(gateway.addr, "/v1/responses", &[(name, &value)]).await);
    }
    drop(Socket::open_with(gateway.addr, &format!("/v1/responses?key={KEY}"), &[]).await);
}

#[tokio::test]
async fn websocket_without_a_valid_key_is_refused_with_401() {
    let gateway = bare("").await;
    for key in ["", "Bearer wrong", &format!("Bearer {DISABLED_KEY}"), &format!("Bearer {EXPIRED_KEY}")] {
        let answer = gateway.ask(handshake("/v1/responses", &[("authorization", key)])).await;
        assert_eq!(answer.status(), 401, "{key}");
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("invalid_request_error"), &json!("invalid_api_key"))
        );
    }
    let lines = gateway.wait_for_log(4).await;
    assert!(lines.iter().all(|line| line["status"] == 401 && line["endpoint"] == "responses"), "{lines:?}");
}

#[tokio::test]
async fn websocket_off_is_answered_426_with_and_without_a_key() {
    let gateway = bare("websocket = false").await;
    for changes in [&[][..], &[("authorization", "")], &[("sec-websocket-version", "8")]] {
        let answer = gateway.ask(handshake("/v1/responses", changes)).await;
        assert_eq!(answer.status(), 426);
        assert_eq!(answer.get("upgrade"), Some("websocket"));
        assert_eq!(answer.json()["error"]["code"], "upgrade_required");
    }
}

#[tokio::test]
async fn websocket_handshake_that_is_not_valid_is_refused_clearly() {
    let gateway = bare("").await;
    for (changes, status) in [
        (&[("sec-websocket-version", "8")][..], 426),
        (&[("sec-websocket-version", "")], 426),
        (&[("sec-websocket-key", "")], 400),
        (&[("sec-websocket-key", "short")], 400),
        (&[("connection", "keep-alive")], 400),
        (&[("upgrade", "h2c")], 400),
        (&[("content-length", "2")], 400),
    ] {
        let answer = gateway.ask([&handshake("/v1/responses", changes)[..], b"{}"].concat()).await;
        assert_eq!(answer.status(), status, "{changes:?}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("WebSocket"), "{changes:?}");
    }
    let old = String::from_utf8(handshake("/v1/responses", &[])).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(gateway.ask(old).await.status(), 426);
    // What asks for no WebSocket is a wrong method, as before.
    let authorization = format!("Bearer {KEY}");
    let plain = request("GET", "/v1/responses", &[("authorization", &authorization)]);
    assert_eq!(ask(gateway.addr, plain).await.status(), 405);
    // Another path has no WebSocket.
    assert_eq!(gateway.ask(handshake("/v1/chat/completions", &[])).await.status(), 405);
}

#[tokio::test]
async fn websocket_over_http2_is_refused_clearly() {
    let gateway = bare("").await;
    let mut h2 = http2::Client::connect(gateway.addr).await;
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", &*authorization), ("sec-websocket-version", "13")];
    let (answer, body) = h2.get("/v1/responses", &headers).await;
    assert_eq!(answer.status(), 400, "{}", String::from_utf8_lossy(&body));
}

#[tokio::test]
async fn websocket_rate_limit_is_an_event_and_no_refusal() {
    let world = World::start_with(|setup| Setup {
        keys: setup
            .keys
            .replace("name = \"alice\"", "name = \"alice\"\nlimits = { requests_per_minute = 1 }"),
        ..setup
    })
    .await;
    let mut socket = Socket::open(&world.gateway).await;
    let request = json!({"model": "fast-gpt", "input": "hello"});
    assert_eq!(socket.ask(request.clone()).await["type"], "response.completed");
    drop(socket);
    let mut socket = Socket::open(&world.gateway).await;
    let refused = socket.ask(request).await;
    assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(429)), "{refused}");
    assert_eq!(refused["error"]["code"], "rate_limit_exceeded");
    assert!(refused["headers"]["retry-after"].as_str().unwrap().parse::<u32>().unwrap() > 0);
    assert!(refused["headers"]["x-request-id"].is_string());
    socket.send(&json!({"type": "response.create", "generate": false, "model": "fast-gpt"})).await;
    assert_eq!(socket.events().await.len(), 2, "the socket stays open");
}
