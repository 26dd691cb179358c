//! Rotation of keys: with a grace period, by the API and by the command, and with an answer that was lost.

use serde_json::{Value, json};

use super::changes::patch;
use super::{OPERATOR, get, post, with_tokens};
use crate::bodies::body_of;
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

async fn chat(gateway: &Gateway, key: &str) -> u16 {
    gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", key)], body_of(200))).await.status()
}

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&with_tokens(Setup::providers(upstream.addr))).await;
    (upstream, gateway)
}

fn key_of(answer: &Value) -> String {
    answer["key"].as_str().unwrap_or_else(|| panic!("no key: {answer}")).to_owned()
}

#[tokio::test]
async fn admin_rotated_key_works_with_both_texts_for_the_grace_period() {
    let (_upstream, gateway) = start().await;
    let first = key_of(&post("/keys").body(json!({ "name": "ci" })).expect(&gateway, 200).await);
    let rotate = |grace: Value| post("/keys/ci/rotate").body(json!({ "grace": grace }));
    for wrong in ["soon", "0s", "91d", "-1h"] {
        let error = rotate(json!(wrong)).expect(&gateway, 400).await["error"].clone();
        assert_eq!(error["field"], "grace", "{error}");
    }
    let second = rotate(json!("1h")).expect(&gateway, 200).await;
    assert_eq!(second["after"]["previous"][0]["sha256"].as_str().unwrap().len(), 12, "{second}");
    let second = key_of(&second);
    assert_eq!((chat(&gateway, &first).await, chat(&gateway, &second).await), (200, 200));
    let shown = get("/keys/ci").expect(&gateway, 200).await;
    assert_eq!(shown["previous"].as_array().unwrap().len(), 1, "{shown}");
    assert!(shown["previous"][0]["until"].as_str().unwrap().ends_with('Z'), "{shown}");
    // Both texts are one key.
    assert_eq!(get("/keys").expect(&gateway, 200).await["items"].as_array().unwrap().len(), 5);

    // A short grace ends by itself.
    let third = key_of(&rotate(json!("1s")).expect(&gateway, 200).await);
    assert_eq!((chat(&gateway, &first).await, chat(&gateway, &third).await), (200, 200));
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    assert_eq!((chat(&gateway, &first).await, chat(&gateway, &second).await), (200, 401));
    // What is over leaves the file with the next rotation, and a rotation without a grace ends all.
    let fourth = key_of(&rotate(json!("1h")).expect(&gateway, 200).await);
    let texts = get("/keys/ci").expect(&gateway, 200).await["previous"].as_array().unwrap().len();
    assert_eq!((texts, gateway.read("keys.toml").matches("until").count()), (2, 2));
    let last = key_of(&post("/keys/ci/rotate").expect(&gateway, 200).await);
    for old in [&first, &second, &third, &fourth] {
        assert_eq!(chat(&gateway, old).await, 401);
    }
    assert_eq!(chat(&gateway, &last).await, 200);
    assert!(!gateway.read("keys.toml").contains("previous"));

    // A grace that is to end early.
    rotate(json!("24h")).expect(&gateway, 200).await;
    assert_eq!(chat(&gateway, &last).await, 200);
    let set = patch("/keys/ci").body(json!({ "previous": [] })).expect(&gateway, 400).await;
    assert_eq!(set["error"]["field"], "previous");
    patch("/keys/ci").body(json!({ "previous": null })).expect(&gateway, 200).await;
    assert_eq!(chat(&gateway, &last).await, 401);
    // An earlier text is redacted like any other.
    assert!(!gateway.read("admin/audit.jsonl").contains(&last));
}

#[tokio::test]
async fn admin_key_is_rotated_by_the_command() {
    let (_upstream, gateway) = start().await;
    let first = gateway.command(&["keys", "create", "ci"]).trim().to_owned();
    gateway.reload("applied").await;
    let second = gateway.command(&["keys", "rotate", "ci", "--grace", "24h"]).trim().to_owned();
    let reload = async || post("/config/reload").expect(&gateway, 200).await["reload"]["result"].clone();
    assert_eq!(reload().await, "applied");
    assert_eq!((chat(&gateway, &first).await, chat(&gateway, &second).await), (200, 200));
    let third = gateway.command(&["keys", "rotate", "ci"]).trim().to_owned();
    assert_eq!(reload().await, "applied");
    for (key, status) in [(&first, 401), (&second, 401), (&third, 200)] {
        assert_eq!(chat(&gateway, key).await, status);
    }
    let lines = get("/audit?object=key%2Fci").expect(&gateway, 200).await;
    assert_eq!(lines["items"][0]["action"], "key.rotate");
}

/// The answer with the text of the key was lost: the caller asks again.
#[tokio::test]
async fn admin_key_whose_answer_was_lost_is_shown_again_to_its_caller() {
    let (_upstream, gateway) = start().await;
    let create = post("/keys").body(json!({ "name": "ci" })).header("idempotency-key", "deploy-7");
    let first = create.expect(&gateway, 200).await;
    let again = create.send(&gateway).await;
    assert_eq!((again.status(), &again.json()["repeated"]), (200, &json!(true)), "{}", again.text());
    assert_eq!((key_of(&again.json()), &again.json()["etag"]), (key_of(&first), &first["etag"]));
    assert_eq!(
        get("/audit?action=key.create").expect(&gateway, 200).await["items"].as_array().unwrap().len(),
        1
    );
    // Another request with the same key is a mistake; another key is another request.
    let other = post("/keys").body(json!({ "name": "other" })).header("idempotency-key", "deploy-7");
    assert_eq!(other.expect(&gateway, 409).await["error"]["code"], "exists");
    let taken = create.header("idempotency-key", "deploy-8").expect(&gateway, 409).await;
    assert_eq!(taken["error"]["code"], "exists");
    // A refused request is not kept.
    let wrong = post("/keys").body(json!({ "name": "x", "losses": "some" })).header("idempotency-key", "k");
    wrong.expect(&gateway, 400).await;
    let right = post("/keys").body(json!({ "name": "x" })).header("idempotency-key", "k");
    right.expect(&gateway, 200).await;
    let rotate = post("/keys/ci/rotate").header("idempotency-key", "deploy-7");
    let rotated = key_of(&rotate.expect(&gateway, 200).await);
    assert_eq!(key_of(&rotate.expect(&gateway, 200).await), rotated);
    assert_eq!(chat(&gateway, &rotated).await, 200);
    rotate.token(OPERATOR).expect(&gateway, 403).await;
}
