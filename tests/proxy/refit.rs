//! Requests of a target's own format with settings that its model may refuse.

use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

const REFUSAL: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"adaptive thinking is not supported on this model"}}"#;

/// Provider whose model refuses adaptive thinking if `refuses`.
async fn provider(refuses: bool) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let is_adaptive = request.text().contains("\"adaptive\"");
            conn.send(match refuses && is_adaptive {
                true => reply::json(400, REFUSAL),
                false => reply::json(200, Form::Messages.whole("claude")),
            })
            .await;
        }
    })
    .await
}

fn setup(upstream: &Upstream) -> Setup {
    Setup::new().provider("anthropic", "anthropic", &format!("http://{}/v1", upstream.addr), "").model(
        "claude-sonnet-4-5",
        "anthropic",
        "claude-sonnet-4-5",
    )
}

fn request(model: &str) -> Value {
    json!({
        "model": model, "max_tokens": 9000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
        "messages": [{"role": "user", "content": "Hi"}],
    })
}

async fn ask(gateway: &Gateway, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    gateway
        .ask(post_with(&Form::Messages.path("", false), &[("authorization", &bearer)], body.to_string()))
        .await
}

#[tokio::test]
async fn settings_of_the_client_pass_if_the_model_takes_them() {
    let upstream = provider(false).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    let body = request("claude-sonnet-4-5");
    for _ in 0..2 {
        let answer = ask(&gateway, &body).await;
        assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, None), "{}", answer.text());
        assert_eq!(upstream.last_request().json(), body);
    }
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn settings_that_the_model_refuses_are_adapted_and_remembered() {
    let upstream = provider(true).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    let body = request("claude-sonnet-4-5");
    let answer = ask(&gateway, &body).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let sent = upstream.last_request().json();
    assert_eq!((upstream.count(), &sent["thinking"]["type"]), (2, &json!("enabled")), "{sent}");
    assert_eq!(sent["output_config"]["effort"], Value::Null, "{sent}");
    gateway.wait_for_metric("gateway_upstream_retries_total", &[("reason", "adapted")], 1.0).await;
    // The next one does not ask.
    let answer = ask(&gateway, &body).await;
    assert_eq!((answer.status(), upstream.count()), (200, 3), "{}", answer.text());
}

#[tokio::test]
async fn refusal_for_another_reason_is_the_answer() {
    let refusal =
        REFUSAL.replace("adaptive thinking is not supported on this model", "max_tokens: too large");
    let upstream = Upstream::answering(reply::json(400, &refusal)).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    for tries in [2, 4] {
        let answer = ask(&gateway, &request("claude-sonnet-4-5")).await;
        assert_eq!((answer.status(), upstream.count()), (400, tries), "{}", answer.text());
        assert!(answer.text().contains("max_tokens: too large"), "{}", answer.text());
    }
    // A request that the model takes is sent once.
    let plain = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!((ask(&gateway, &plain).await.status(), upstream.count()), (400, 5));
}

#[tokio::test]
async fn settings_are_adapted_at_once_for_a_target_that_the_gateway_chose() {
    let busy = reply::whole(429, &[("retry-after", "30"), ("content-type", "application/json")], "{}");
    let (down, upstream) = (Upstream::answering(busy).await, provider(true).await);
    let mut setup = setup(&upstream).provider("first", "anthropic", &format!("http://{}/v1", down.addr), "");
    setup.routes += "[[model]]\nid = \"opus\"\ntargets = [{ provider = \"first\", model = \"claude-opus-5\" }, \
                     { provider = \"anthropic\", model = \"claude-sonnet-4-5\", tier = 1 }]\n";
    let gateway = Gateway::start(&setup).await;
    let answer = ask(&gateway, &request("opus")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(
        (upstream.count(), upstream.last_request().json()["thinking"]["type"].clone()),
        (1, json!("enabled"))
    );
    assert_eq!(down.last_request().json()["thinking"]["type"], "adaptive");
    // While the first target is passed over, too.
    let before = down.count();
    let answer = ask(&gateway, &request("opus")).await;
    assert_eq!((answer.status(), down.count()), (200, before), "{}", answer.text());
    assert_eq!(upstream.last_request().json()["thinking"]["type"], "enabled");
    assert_eq!(upstream.count(), 2, "no refusal was provoked");
}

#[tokio::test]
async fn settings_beside_what_another_model_signed_are_adapted_at_once() {
    let upstream = provider(true).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    let mut body = request("claude-sonnet-4-5");
    body["messages"] = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "gw1.openai.Z0FBQQ"}, {"type": "text", "text": "Yes?"}]},
        {"role": "user", "content": "Go on"},
    ]);
    let answer = ask(&gateway, &body).await;
    assert_eq!((answer.status(), upstream.count()), (200, 1), "{}", answer.text());
    assert!(!upstream.last_request().text().contains("gw1."));
}

/// Providers with a format of their own kind, too: what fits them otherwise is not looked at alone.
#[tokio::test]
async fn chat_envelope_reaches_no_provider_with_a_dialect() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("m"))).await;
    for dialect in ["vllm", "openrouter", "xai", "deepseek", "moonshot", "mistral", "groq", "qwen", "glm"] {
        let extra = format!("dialect = \"{dialect}\"");
        let base = format!("http://{}/v1", upstream.addr);
        let setup =
            Setup::new().provider("p", "openai-compatible", &base, &extra).model("m", "p", "some-model");
        let gateway = Gateway::start(&setup).await;
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Yes?", "reasoning_content": "hm", "reasoning_details": [
                {"type": "reasoning.text", "text": "hm", "signature": "gw1.anthropic.Z0FBQQ"}]},
            {"role": "user", "content": "Go on"},
        ]});
        let headers = [("authorization", format!("Bearer {KEY}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = gateway.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
        assert_eq!(answer.status(), 200, "{dialect}: {}", answer.text());
        assert!(!upstream.last_request().text().contains("gw1."), "{dialect}");
    }
}
