//! Losses: request elements that cannot be carried to the provider, under the loss policy of the key.

use serde_json::json;

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup, key, provider_of};
use crate::support::upstream::Upstream;

const LAX: &str = "client-key-of-ada-0005";
const STRICT: &str = "client-key-of-ida-0006";

async fn ask(gateway: &Gateway, key: &str, more: serde_json::Value) -> Answer {
    let mut body =
        json!({"model": provider_of(Form::Messages), "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with(&Form::Chat.path("", false), &[("authorization", &bearer)], body.to_string())).await
}

#[tokio::test]
async fn loss_policy_of_the_key_decides() {
    let upstream = Upstream::answering(reply::json(200, Form::Messages.whole("at-messages"))).await;
    let mut setup = Setup::each_provider(upstream.addr);
    setup.keys += &key("ada", LAX, "losses = \"allow\"");
    setup.keys += &key("ida", STRICT, "losses = \"refuse\"");
    let gateway = Gateway::start(&setup).await;
    let warned = || json!({"logprobs": true, "seed": 7});

    let answer = ask(&gateway, KEY, warned()).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, Some("logprobs dropped")));
    let answer = ask(&gateway, LAX, warned()).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, None));
    assert_eq!(upstream.count(), 2);

    let answer = ask(&gateway, STRICT, warned()).await;
    assert_eq!(answer.status(), 400);
    let (_, message) = Form::Chat.error(&answer);
    assert!(message.contains("'logprobs'"), "{message}");
    assert_eq!(answer.json()["error"]["param"], "logprobs");
    assert_eq!(upstream.count(), 2, "nothing was asked");

    // A silently dropped element is not a loss; an element that is always refused is refused for every key.
    let answer = ask(&gateway, STRICT, json!({"seed": 7})).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, None));
    assert_eq!(ask(&gateway, LAX, json!({"n": 2})).await.status(), 400);

    let lost = |policy| [("element", "logprobs"), ("policy", policy)];
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("gateway_translation_losses_total", &lost("warn")), 2.0);
    assert_eq!(metrics.sum("gateway_translation_losses_total", &lost("refuse")), 1.0);
}

/// An element that is removed from a body in the provider's own format is a loss too.
#[tokio::test]
async fn loss_policy_applies_to_one_format_too() {
    let upstream = Upstream::answering(reply::json(200, Form::Messages.whole("at-messages"))).await;
    let mut setup = Setup::each_provider(upstream.addr);
    setup.keys += &key("ada", LAX, "losses = \"allow\"");
    setup.keys += &key("ida", STRICT, "losses = \"refuse\"");
    let gateway = Gateway::start(&setup).await;
    let ask = async |key: &str| {
        let body = json!({
            "model": provider_of(Form::Messages), "max_tokens": 3000, "temperature": 1.0, "top_p": 0,
            "thinking": {"type": "enabled", "budget_tokens": 2000}, "messages": [{"role": "user", "content": "Hi"}],
        });
        let bearer = format!("Bearer {key}");
        let path = Form::Messages.path("", false);
        gateway.ask(post_with(&path, &[("authorization", &bearer)], body.to_string())).await
    };
    let answer = ask(KEY).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, Some("top_p dropped")));
    let answer = ask(LAX).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, None));
    let answer = ask(STRICT).await;
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert!(answer.text().contains("'top_p'"), "{}", answer.text());
    assert_eq!(upstream.count(), 2, "nothing was asked");
}
