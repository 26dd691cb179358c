//! Targets through the admin API: draining for a time, and closing a breaker by hand.

use serde_json::{Value, json};

use super::changes::{chat, provider};
use super::{Ask, OPERATOR, get, with_tokens};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

/// Formats Unix seconds.
fn rfc3339(seconds: u64) -> String {
    jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap().to_string()
}

#[tokio::test]
async fn admin_drained_target_is_resumed_at_its_time_and_says_why_it_was_drained() {
    let upstream = provider().await;
    let setup = Setup::new().provider("a", "openai-compatible", &format!("http://{}/v1", upstream.addr), "");
    let gateway = Gateway::start(&with_tokens(setup.model("gpt", "a", "gpt"))).await;
    let drain = |body: Value| Ask::new("POST", "/targets/a/gpt/drain").token(OPERATOR).body(body);
    for (body, field) in [
        (json!({ "until": "soon" }), "until"),
        (json!({ "until": "2020-01-01T00:00:00Z" }), "until"),
        (json!({ "reason": "x".repeat(257) }), "reason"),
    ] {
        assert_eq!(drain(body).expect(&gateway, 400).await["error"]["field"], field);
    }
    let far = json!({ "until": "2099-01-31T00:00:00Z", "reason": "maintenance" });
    let drained = drain(far).expect(&gateway, 200).await["target"].clone();
    assert_eq!(
        (&drained["state"], &drained["drain_reason"], &drained["drained_until"]),
        (&json!("drained"), &json!("maintenance"), &json!("2099-01-31T00:00:00Z"))
    );
    assert_eq!(chat(&gateway, KEY).await, 503, "a drained target may come back");
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let soon = rfc3339(soon);
    let changed = drain(json!({ "until": soon })).expect(&gateway, 200).await;
    assert_eq!((&changed["changed"], &changed["target"]["drain_reason"]), (&json!(true), &Value::Null));
    crate::support::soon(async {
        while get("/targets/a/gpt").expect(&gateway, 200).await["state"] != "closed" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(chat(&gateway, KEY).await, 200);
    let line = get("/audit?action=target.resume").expect(&gateway, 200).await["items"][0].clone();
    assert_eq!((&line["actor"], &line["object"]), (&json!("clock"), &json!("target/a/gpt")));
    assert!(!gateway.read("admin/drained.json").contains("gpt"));
}

#[tokio::test]
async fn admin_breaker_is_closed_by_hand() {
    let answers = vec![reply::json(500, "{}"), reply::json(200, Form::Chat.whole("gpt"))];
    let upstream = Upstream::answering_each(answers).await;
    let mut setup =
        Setup::new().provider("a", "openai-compatible", &format!("http://{}/v1", upstream.addr), "");
    setup.routes += "[breaker]\nfailures = 1\ncooldown = \"10m\"\nlongest = \"10m\"\n[retry]\nattempts = 1\n";
    let gateway = Gateway::start(&with_tokens(setup.model("gpt", "a", "gpt"))).await;
    chat(&gateway, KEY).await;
    let open = get("/targets/a/gpt").expect(&gateway, 200).await;
    assert_eq!(open["state"], "open", "{open}");
    Ask::new("POST", "/targets/a/gpt/close").token(super::READER).expect(&gateway, 403).await;
    let close = Ask::new("POST", "/targets/a/gpt/close").token(OPERATOR);
    let closed = close.expect(&gateway, 200).await;
    assert_eq!(
        (&closed["changed"], &closed["target"]["state"]),
        (&json!(true), &json!("closed")),
        "{closed}"
    );
    assert_eq!(close.expect(&gateway, 200).await["changed"], false);
    assert_eq!(chat(&gateway, KEY).await, 200);
    assert_eq!(get("/targets/a/gpt").expect(&gateway, 200).await["failures_percent"], 0);
    let line = get("/audit?action=target.close").expect(&gateway, 200).await["items"][0].clone();
    assert_eq!((&line["actor"], &line["before"]["state"]), (&json!("token:otto"), &json!("open")));
}
