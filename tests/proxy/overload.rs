//! Overload: requests and bodies beyond the limits are answered with 503 in the client's format; admitted requests are
//! served.

use crate::support::Gate;
use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// Starts an upstream that answers when the gate opens.
async fn waiting(gate: Gate) -> Upstream {
    Upstream::start(move |mut conn| {
        let gate = gate.clone();
        async move {
            while conn.request().await.is_some() {
                gate.passed().await;
                conn.send(reply::json(200, Form::Chat.whole("gpt"))).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn overload_of_requests_is_503_with_retry_after() {
    let gate = Gate::new();
    let upstream = waiting(gate.clone()).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("requests = 2")).await;
    let mut first = [gateway.connect().await, gateway.connect().await];
    for (number, client) in first.iter_mut().enumerate() {
        client.send(Form::Chat.request(false)).await;
        upstream.wait_for(number + 1).await;
    }
    for form in Form::ALL {
        let answer = gateway.ask(form.request(true)).await;
        assert_eq!(answer.status(), 503, "{form:?}: {}", answer.text());
        assert_eq!(answer.get("retry-after"), Some("1"), "{form:?}");
        let (kind, _) = form.error(&answer);
        let expected = match form {
            Form::Messages => "overloaded_error",
            Form::Generate => "UNAVAILABLE",
            Form::Chat | Form::Responses => "service_unavailable",
        };
        assert_eq!(kind, expected, "{form:?}");
    }
    assert_eq!(upstream.count(), 2);
    gate.open();
    for client in &mut first {
        assert_eq!(client.answer().await.status(), 200);
    }
    gateway.idle().await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
}

#[tokio::test]
async fn overload_of_body_memory_is_503_with_retry_after() {
    let gate = Gate::new();
    let upstream = waiting(gate.clone()).await;
    let limits = "body = \"1MiB\"\nmemory = \"1536KiB\"";
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits(limits)).await;
    let text = "lang ".repeat(180_000);
    let body = format!("{{\"model\":\"gpt\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}");
    let mut first = gateway.connect().await;
    first.send(post("/v1/chat/completions", &body)).await;
    upstream.wait_for(1).await;
    let answer = gateway.ask(post("/v1/chat/completions", &body)).await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert_eq!(answer.get("retry-after"), Some("1"));
    // A small body is still admitted.
    let mut small = gateway.connect().await;
    small.send(Form::Chat.request(false)).await;
    upstream.wait_for(2).await;
    gate.open();
    assert_eq!(first.answer().await.status(), 200);
    assert_eq!(small.answer().await.status(), 200);
    for _ in 0..4 {
        gateway.idle().await;
        assert_eq!(gateway.ask(post("/v1/chat/completions", &body)).await.status(), 200);
    }
}

/// Connections without a request do not count as requests.
#[tokio::test]
async fn overload_idle_connections_do_not_count_as_requests() {
    let gate = Gate::new();
    let upstream = waiting(gate.clone()).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("requests = 2")).await;
    let mut silent = Vec::new();
    for number in 0..8 {
        let mut client = gateway.connect().await;
        // Half of them stop in the middle of a request head.
        if number % 2 == 0 {
            client.send("POST /v1/chat").await;
        }
        silent.push(client);
    }
    gateway.wait_for_metric("gateway_connections", &[], 8.0).await;
    assert_eq!(gateway.status().await["requests_in_flight"], 0);
    let mut first = gateway.connect().await;
    first.send(Form::Chat.request(false)).await;
    upstream.wait_for(1).await;
    assert_eq!(gateway.status().await["requests_in_flight"], 1);
    let mut second = gateway.connect().await;
    second.send(Form::Chat.request(false)).await;
    upstream.wait_for(2).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 503);
    gate.open();
    assert_eq!(first.answer().await.status(), 200);
    assert_eq!(second.answer().await.status(), 200);
}
