//! Body members that let another model answer (`models`, `fallbacks` and the like): the key's model permissions apply
//! to them too.

use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, NARROW_KEY, Setup};
use crate::support::upstream::Upstream;

async fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    (upstream, gateway)
}

async fn ask(gateway: &Gateway, key: &str, more: Value) -> Answer {
    let mut body = json!({"model": "gpt", "messages": [{"role": "user", "content": "a"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with("/v1/chat/completions", &[("authorization", &bearer)], body.to_string())).await
}

#[tokio::test]
async fn fallback_models_in_the_body_need_permission_of_the_key() {
    let (upstream, gateway) = gateway().await;
    for more in [
        json!({"models": ["claude"], "route": "fallback"}),
        json!({"models": ["gpt", "openai/gpt-5"]}),
        json!({"Models": ["claude"]}),
        json!({"fallbacks": ["fast-gpt", "claude"]}),
        json!({"fallbacks": [{"model": "claude"}]}),
        json!({"fallback_models": "claude"}),
        json!({"providerOptions": {"gateway": {"models": ["claude"]}}}),
        json!({"models": [7]}),
    ] {
        let answer = ask(&gateway, NARROW_KEY, more.clone()).await;
        assert_eq!(answer.status(), 403, "{more}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "model_not_permitted", "{more}");
    }
    assert_eq!(upstream.count(), 0);
    for more in [
        json!({"models": ["gpt", "fast-claude", "fast-anything"]}),
        json!({"fallbacks": [{"model": "fast-gpt"}]}),
        json!({"models": null}),
        json!({"models": []}),
    ] {
        let answer = ask(&gateway, NARROW_KEY, more.clone()).await;
        assert_eq!(answer.status(), 200, "{more}: {}", answer.text());
    }
    // A key for all models may name any model; the member passes unchanged.
    assert_eq!(ask(&gateway, KEY, json!({"models": ["any/thing", 7]})).await.status(), 200);
    assert_eq!(upstream.last_request().json()["models"], json!(["any/thing", 7]));
}

#[tokio::test]
async fn model_member_in_another_case_is_refused_for_every_key() {
    let (upstream, gateway) = gateway().await;
    for key in [KEY, NARROW_KEY] {
        for name in ["Model", "MODEL", "modeL"] {
            let answer = ask(&gateway, key, json!({name: "claude"})).await;
            assert_eq!(answer.status(), 400, "{}", answer.text());
            assert_eq!(answer.json()["error"]["param"], name);
        }
    }
    assert_eq!(upstream.count(), 0);
}
