//! Ownership of responses that the provider stores: they belong to the account that made them, although all accounts
//! share the gateway's credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, NARROW_KEY, Setup, key};
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;

/// Two keys of one account, and one key of another.
const ANN: &str = "client-key-of-ann-0011";
const ANNE: &str = "client-key-of-anne-0012";
const BOB: &str = "client-key-of-bob-0013";

/// Starts a provider that accepts every previous response id.
async fn provider() -> Upstream {
    let count = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |mut conn| {
        let count = count.clone();
        async move {
            while let Some(request) = conn.request().await {
                let id = format!("resp_at_provider_{}", count.fetch_add(1, Ordering::SeqCst));
                conn.send(if request.json()["stream"] == true {
                    let frames = Form::Responses.frames("m");
                    let frames: Vec<String> = frames.iter().map(|f| f.replace("resp_1", &id)).collect();
                    reply::stream(&frames)
                } else {
                    reply::json(200, Form::Responses.whole("m").replace("resp_1", &id))
                })
                .await;
            }
        }
    })
    .await
}

fn setup(upstream: &Upstream, store: &str) -> Setup {
    let mut setup = Setup::each_provider(upstream.addr).account("one", "10").account("two", "10");
    setup.keys += &key("ann", ANN, "account = \"one\"");
    setup.keys += &key("anne", ANNE, "account = \"one\"");
    setup.keys += &key("bob", BOB, "account = \"two\"");
    setup.log = format!("[store]\n{store}\n");
    setup
}

async fn say(gateway: &Gateway, key: &str, more: Value) -> Answer {
    let mut body = json!({"model": "at-responses", "input": "and then?"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with("/v1/responses", &[("authorization", &bearer)], body.to_string())).await
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let text = answer.text();
    let from = text.find("resp_at_provider_").unwrap();
    text[from..].split('"').next().unwrap().to_owned()
}

fn assert_not_found(answer: &Answer) {
    assert_eq!(answer.status(), 400, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("previous_response_not_found"), &json!("previous_response_id"))
    );
}

#[tokio::test]
async fn response_owner_is_the_account_that_made_it() {
    let upstream = provider().await;
    for store in ["", "foreign_responses = \"refuse\""] {
        let gateway = Gateway::start(&setup(&upstream, store)).await;
        for stream in [false, true] {
            let made = id(&say(&gateway, ANN, json!({"stream": stream})).await);
            let asked = upstream.count();
            for other in [BOB, KEY, NARROW_KEY] {
                let bearer = say(&gateway, other, json!({"previous_response_id": made})).await;
                if other == NARROW_KEY {
                    assert_eq!(bearer.status(), 403);
                } else {
                    assert_not_found(&bearer);
                }
            }
            // Escapes in name and value do not circumvent the check.
            let hidden = made.replace('_', "\\u005f");
            let body =
                format!(r#"{{"model":"at-responses","input":"x","previous_response\u005fid":"{hidden}"}}"#);
            let bearer = format!("Bearer {BOB}");
            let answer = gateway.ask(post_with("/v1/responses", &[("authorization", &bearer)], body)).await;
            assert_not_found(&answer);
            assert_eq!(upstream.count(), asked, "nobody was asked");
            // Both keys of the account may continue each other's responses.
            let next =
                id(&say(&gateway, ANNE, json!({"previous_response_id": made, "stream": stream})).await);
            id(&say(&gateway, ANN, json!({"previous_response_id": next})).await);
            assert_not_found(&say(&gateway, BOB, json!({"previous_response_id": next})).await);
        }
    }
}

#[tokio::test]
async fn response_owner_outlives_its_process() {
    let upstream = provider().await;
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::each_provider(upstream.addr);
    // A key without an account owns its own responses only, whatever its name.
    setup.keys += &key("zoe", BOB, "");
    setup.log = format!("[store]\nsqlite = \"{}\"\n", folder.path().join("shared.db").display());
    let one = Gateway::start(&setup).await;
    let made = id(&say(&one, KEY, json!({"stream": true})).await);
    assert_not_found(&say(&one, BOB, json!({"previous_response_id": made})).await);
    drop(one);
    let next = Gateway::start(&setup).await;
    assert_not_found(&say(&next, BOB, json!({"previous_response_id": made})).await);
    id(&say(&next, KEY, json!({"previous_response_id": made})).await);
}

#[tokio::test]
async fn response_owner_is_not_stored_for_unstored_responses() {
    let upstream = provider().await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    id(&say(&gateway, ANN, json!({"store": false})).await);
    let claims = [("operation", "claim")];
    assert_eq!(gateway.metrics().await.sum("gateway_store_operations_total", &claims), 0.0);
    id(&say(&gateway, ANN, json!({"store": true})).await);
    assert_eq!(gateway.metrics().await.sum("gateway_store_operations_total", &claims), 1.0);
}

#[tokio::test]
async fn response_owner_unknown_is_claimed_by_the_first_user_or_refused() {
    let upstream = provider().await;
    let foreign = json!({"previous_response_id": "resp_of_old"});
    let conversation = json!({"conversation": {"id": "conv_of_old"}});
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    id(&say(&gateway, ANN, foreign.clone()).await);
    id(&say(&gateway, ANN, foreign.clone()).await);
    assert_not_found(&say(&gateway, BOB, foreign.clone()).await);
    id(&say(&gateway, BOB, conversation.clone()).await);
    let answer = say(&gateway, ANN, json!({"conversation": "conv_of_old"})).await;
    assert_eq!(answer.status(), 404, "{}", answer.text());
    assert_eq!(answer.json()["error"]["param"], "conversation");

    let gateway = Gateway::start(&setup(&upstream, "foreign_responses = \"refuse\"")).await;
    let asked = upstream.count();
    assert_not_found(&say(&gateway, ANN, foreign).await);
    assert_eq!(say(&gateway, ANN, conversation).await.status(), 404);
    for odd in [json!({"conversation": {}}), json!({"previous_response_id": ["resp_of_old"]})] {
        assert_eq!(say(&gateway, ANN, odd).await.status(), 400);
    }
    assert_eq!(upstream.count(), asked);
}

#[tokio::test]
async fn owner_is_known_although_the_client_leaves_in_the_middle_of_a_stream() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            if request.json()["stream"] == true {
                let frames = Form::Responses.frames("m");
                let first = frames[0].replace("resp_1", "resp_at_provider_0");
                conn.send(reply::stream_head()).await;
                conn.send(reply::chunk(first)).await;
                conn.closed().await;
                return;
            }
            conn.send(reply::json(200, Form::Responses.whole("m").replace("resp_1", "resp_at_provider_1")))
                .await;
        }
    })
    .await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    let mut client = gateway.connect().await;
    let body = json!({"model": "at-responses", "input": "x", "stream": true}).to_string();
    client.send(post_with("/v1/responses", &[("authorization", &format!("Bearer {ANN}"))], body)).await;
    assert_eq!(client.head().await.status(), 200);
    read_until(&mut client, &mut Vec::new(), "resp_at_provider_0").await;
    drop(client);
    let made = json!({"previous_response_id": "resp_at_provider_0"});
    assert_not_found(&say(&gateway, BOB, made.clone()).await);
    id(&say(&gateway, ANNE, made).await);
}
