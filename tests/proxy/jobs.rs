//! Jobs (responses that need several provider calls): their charges, limits, time-outs and retries.

use serde_json::{Value, json};

use super::support::client::{Client, post, post_with};
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{Setup, key};
use super::support::upstream::Upstream;

/// A key with an account.
const PAYING: &str = "client-key-of-pia-0007";

/// Starts a Cohere provider, which is asked for at most 96 texts at once and reports 4 input tokens for each request.
async fn cohere() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            let texts = asked.json()["texts"].as_array().unwrap().len();
            let vectors = vec![[0.5, 0.25]; texts];
            let body =
                json!({"embeddings": {"float": vectors}, "meta": {"billed_units": {"input_tokens": 4}}});
            conn.send(reply::json(200, body.to_string())).await;
        }
    })
    .await
}

fn setup(upstream: &Upstream, lines: &str) -> Setup {
    Setup::new().provider("cohere", "cohere", &format!("http://{}/v2", upstream.addr), lines).model(
        "m",
        "cohere",
        "embed-v4.0",
    )
}

fn request(texts: usize) -> String {
    let texts: Vec<String> = (0..texts).map(|n| format!("text {n}")).collect();
    json!({"model": "m", "input": texts}).to_string()
}

#[tokio::test]
async fn job_calls_are_one_charge() {
    let upstream = cohere().await;
    let mut setup = setup(&upstream, "").priced("input = 1000").account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let headers = [("x-api-key", PAYING)];
    let answer = gateway.ask(post_with("/v1/embeddings", &headers, request(200))).await;
    assert_eq!((answer.status(), &answer.json()["usage"]["total_tokens"]), (200, &json!(12)));
    let record = gateway.records(1).await.pop().unwrap();
    for (name, expected) in [
        ("input", json!(12)),
        ("cost", json!("0.012")),
        ("account", json!("acme")),
        ("attempts", json!(3)),
        ("endpoint", json!("embeddings")),
        ("counted", json!(false)),
    ] {
        assert_eq!(record[name], expected, "{name}: {record}");
    }
    assert_eq!(gateway.account("acme")["balance"], "0.988");
    // Usage that the provider does not report is counted, and the record says so.
    let silent = Upstream::answering(reply::json(200, r#"{"embeddings":{"float":[[1,2]]}}"#)).await;
    let mut setup = self::setup(&silent, "").priced("input = 1000").account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.ask(post_with("/v1/embeddings", &headers, request(1))).await.status(), 200);
    let record = gateway.records(1).await.pop().unwrap();
    assert!(record["counted"] == true && record["input"].as_u64().unwrap() >= 2, "{record}");
}

#[tokio::test]
async fn job_that_fails_costs_nothing() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            let last = asked.text().contains("text 150");
            let texts = asked.json()["texts"].as_array().unwrap().len();
            let body = json!({"embeddings": {"float": vec![[0.5]; texts]}}).to_string();
            let error = reply::json(503, r#"{"message":"busy"}"#);
            conn.send(if last { error } else { reply::json(200, body) }).await;
        }
    })
    .await;
    let mut setup = setup(&upstream, "").priced("input = 1000").account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(post_with("/v1/embeddings", &[("x-api-key", PAYING)], request(200))).await;
    assert_eq!(
        (answer.status(), &answer.json()["error"]["message"]),
        (503, &json!("busy")),
        "{}",
        answer.text()
    );
    let record = gateway.records(1).await.pop().unwrap();
    assert_eq!((&record["cost"], &record["error"]), (&json!("0.00"), &json!("upstream_failed")), "{record}");
    assert_eq!(gateway.account("acme")["balance"], "1.00");
}

#[tokio::test]
async fn job_counts_against_limits_and_token_counting_does_not() {
    let upstream = cohere().await;
    let mut setup = setup(&upstream, "");
    setup.keys += &key("pia", PAYING, "limits = { requests_per_minute = 1, tokens_per_minute = 2000 }");
    let gateway = Gateway::start(&setup).await;
    let headers = [("x-api-key", PAYING)];
    // Three of them have more tokens than a minute's quota.
    let text = "word ".repeat(1500);
    let count = json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string();
    for _ in 0..3 {
        let answer = gateway.ask(post_with("/v1/messages/count_tokens", &headers, &count)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    for status in [200, 429] {
        let answer = gateway.ask(post_with("/v1/embeddings", &headers, request(1))).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
    }
}

#[tokio::test]
async fn job_call_that_hangs_or_breaks_is_an_error() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            match asked.json()["texts"][0].as_str().unwrap() {
                "silent" => conn.closed().await,
                "half" => {
                    let head =
                        reply::head(200, &[("content-type", "application/json"), ("content-length", "99")]);
                    conn.send(format!("{head}{{\"embeddings\":")).await;
                    return;
                }
                "stuck" => {
                    let head =
                        reply::head(200, &[("content-type", "application/json"), ("content-length", "99")]);
                    conn.send(format!("{head}{{\"embeddings\":")).await;
                    conn.closed().await;
                }
                _ => conn.send(reply::json(200, "{\"embeddings\":{\"float\":[[1]]}}")).await,
            }
        }
    })
    .await;
    // Short, because the test waits for it twice, and longer than an answer takes on a busy machine.
    let lines = "timeouts = { first_byte = \"2s\", idle = \"2s\" }";
    let gateway = Gateway::start(&setup(&upstream, lines)).await;
    for (text, status, error) in [
        ("silent", 504, "upstream_timeout"),
        ("stuck", 504, "upstream_timeout"),
        ("half", 500, "upstream_broken"),
    ] {
        let body = json!({"model": "m", "input": text}).to_string();
        let answer = gateway.ask(post("/v1/embeddings", body)).await;
        assert_eq!(answer.status(), status, "{text}: {}", answer.text());
        let lines = gateway.wait_for_log(upstream.count()).await;
        assert_eq!(lines.last().unwrap()["error"], error, "{text}");
    }
    let body = json!({"model": "m", "input": "fine"}).to_string();
    assert_eq!(gateway.ask(post("/v1/embeddings", body)).await.status(), 200);
}

/// The provider closes a pooled connection just as the next request arrives on it.
#[tokio::test]
async fn job_call_on_a_stale_connection_is_resent() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.send(reply::json(200, "{\"embeddings\":{\"float\":[[1]]}}")).await;
        if conn.number == 0 {
            // Read the head of the second request, then close.
            conn.head().await;
            return;
        }
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        let answer = client.ask(post("/v1/embeddings", request(1))).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &[("reason", "stale_connection")]), 1.0);
    assert_eq!(gateway.wait_for_log(2).await[1]["attempts"], 2);
}

#[tokio::test]
async fn job_ends_when_its_client_disconnects() {
    let upstream = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    let mut client = Client::connect(gateway.addr).await;
    client.send(post("/v1/embeddings", request(200))).await;
    super::support::until(|| upstream.count() == 3).await;
    drop(client);
    let line: Value = gateway.wait_for_log(1).await.pop().unwrap();
    assert_eq!((&line["error"], &line["status"]), (&json!("client_gone"), &json!(499)), "{line}");
    super::support::until(|| upstream.closed() == 3).await;
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
}
