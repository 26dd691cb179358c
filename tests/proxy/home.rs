//! Session stickiness: a request that continues a response goes to the target that stores it, and a conversation's id
//! keeps it at one target.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::support::client::{Answer, post};
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// A provider that stores its responses and does not know those of others.
struct Keeper {
    upstream: Upstream,
    down: Arc<AtomicBool>,
}

async fn keeper(name: &'static str) -> Keeper {
    let down = Arc::new(AtomicBool::new(false));
    let (is_down, count) = (down.clone(), Arc::new(AtomicUsize::new(0)));
    let upstream = Upstream::start(move |mut conn| {
        let (is_down, count) = (is_down.clone(), count.clone());
        async move {
            while let Some(request) = conn.request().await {
                let body = request.json();
                let stays = format!("resp_{name}_");
                let before = body["previous_response_id"].as_str();
                let answer = if is_down.load(Ordering::SeqCst) {
                    reply::json(503, provider_error(Form::Responses, 503, "down for a moment"))
                } else if let Some(id) = before.filter(|id| !id.starts_with(&stays)) {
                    let message = format!("Previous response with id '{id}' not found.");
                    let error = json!({"message": message, "type": "invalid_request_error",
                        "param": "previous_response_id", "code": "previous_response_not_found"});
                    reply::json(400, json!({ "error": error }).to_string())
                } else {
                    let id = format!("{stays}{}", count.fetch_add(1, Ordering::SeqCst));
                    if body["stream"] == true {
                        let frames = Form::Responses.frames("m");
                        let frames: Vec<String> = frames.iter().map(|f| f.replace("resp_1", &id)).collect();
                        reply::stream(&frames)
                    } else {
                        reply::json(200, Form::Responses.whole("m").replace("resp_1", &id))
                    }
                };
                conn.send(answer).await;
            }
        }
    })
    .await;
    Keeper { upstream, down }
}

/// The first target is used as long as it is healthy.
const IN_TURN: &str = "policy = \"least\"";

async fn gateway(lines: &str, keepers: &[(&str, &Keeper)]) -> Gateway {
    let mut setup = Setup::new();
    let mut targets = Vec::new();
    for (tier, (name, keeper)) in keepers.iter().enumerate() {
        let base = format!("http://{}/v1", keeper.upstream.addr);
        setup = setup.provider(name, "openai", &base, "apis = [\"responses\"]");
        let tier = if lines == IN_TURN { tier } else { 0 };
        targets.push(format!("{{ provider = \"{name}\", model = \"m\", tier = {tier} }}"));
    }
    let targets = targets.join(", ");
    setup.routes += &format!("[[model]]\nid = \"gpt\"\n{lines}\ntargets = [{targets}]\n");
    Gateway::start(&setup).await
}

async fn say(gateway: &Gateway, stream: bool, previous: Option<&str>) -> Answer {
    let mut body = json!({"model": "gpt", "input": "and then?", "stream": stream});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    gateway.ask(post("/v1/responses", body.to_string())).await
}

/// Returns the response id of a document or a stream.
fn id(answer: &Answer) -> String {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let text = answer.text();
    let from = text.find("resp_").unwrap();
    text[from..].split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn sticky_target_serves_continuations_of_its_responses() {
    let (one, two, three) = (keeper("one").await, keeper("two").await, keeper("three").await);
    let keepers = [("one", &one), ("two", &two), ("three", &three)];
    for policy in ["weight", "affinity"] {
        let gateway = gateway(&format!("policy = \"{policy}\""), &keepers).await;
        let mut used = BTreeSet::new();
        // By weight, targets are selected at random: a few conversations may all be at two of the three.
        for conversation in 0..200 {
            if conversation >= 18 && (policy == "affinity" || used.len() == 3) {
                break;
            }
            let stream = conversation % 2 == 0;
            let mut last = id(&say(&gateway, stream, None).await);
            let name = last.split('_').nth(1).unwrap().to_owned();
            for _ in 0..3 {
                let answer = say(&gateway, stream, Some(&last)).await;
                assert_eq!(answer.get("x-gateway-attempts"), Some("1"), "{policy}: {}", answer.text());
                last = id(&answer);
                assert!(last.contains(&name), "{policy}: {last} goes on from {name}");
            }
            used.insert(name);
        }
        assert!(policy == "affinity" || used.len() == 3, "{used:?}");
    }
}

/// The response was made through another process: the targets are tried until one knows it.
#[tokio::test]
async fn sticky_target_unknown_is_found_by_trying_targets() {
    let (one, two) = (keeper("one").await, keeper("two").await);
    let keepers = [("one", &one), ("two", &two)];
    let elsewhere = gateway("", &[("two", &two)]).await;
    let last = id(&say(&elsewhere, false, None).await);
    let gateway = gateway(IN_TURN, &keepers).await;
    for _ in 0..6 {
        let answer = say(&gateway, false, Some(&last)).await;
        assert!(id(&answer).starts_with("resp_two_"));
    }
    assert_eq!(one.upstream.count(), 6);
    // `previous_response_not_found` does not open a breaker.
    let targets = gateway.status().await["targets"].clone();
    assert_eq!((&targets[0]["state"], &targets[1]["state"]), (&json!("closed"), &json!("closed")));
    // If no target knows the response, the provider's error is returned.
    let answer = say(&gateway, false, Some("resp_nobody_1")).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");
}

/// If the target that stores the response fails, no other target is tried, and the client receives the failure.
#[tokio::test]
async fn sticky_target_failure_is_returned_without_fallback() {
    let (one, two) = (keeper("one").await, keeper("two").await);
    let keepers = [("one", &one), ("two", &two)];
    let gateway = gateway("", &keepers).await;
    let last = id(&say(&gateway, false, None).await);
    let (home, other) = if last.starts_with("resp_one") { (&one, &two) } else { (&two, &one) };
    let before = other.upstream.count();
    home.down.store(true, Ordering::SeqCst);
    for _ in 0..4 {
        let answer = say(&gateway, false, Some(&last)).await;
        assert_eq!(answer.status(), 503, "{}", answer.text());
    }
    assert_eq!(other.upstream.count(), before);
    home.down.store(false, Ordering::SeqCst);
    assert_eq!(say(&gateway, false, Some(&last)).await.status(), 200);
    // If it is unknown which target stores the response, a failure outranks `previous_response_not_found`.
    home.down.store(true, Ordering::SeqCst);
    for number in 0..4 {
        let strange = format!("{}_{number}", last.rsplit_once('_').unwrap().0);
        assert_eq!(say(&gateway, false, Some(&strange)).await.status(), 503);
    }
}

/// The client's id of a conversation keeps it at one target, and distinguishes conversations with the same beginning.
#[tokio::test]
async fn affinity_by_conversation_id_in_the_body() {
    let mut setup = Setup::new();
    let mut targets = Vec::new();
    let mut upstreams = Vec::new();
    for name in ["one", "two", "three"] {
        let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("m"))).await;
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, "");
        targets.push(format!("{{ provider = \"{name}\", model = \"m\" }}"));
        upstreams.push(upstream);
    }
    let targets = targets.join(", ");
    setup.routes += &format!("[[model]]\nid = \"gpt\"\npolicy = \"affinity\"\ntargets = [{targets}]\n");
    let gateway = Gateway::start(&setup).await;
    let named = |form: Form, name: &str, turn: usize| {
        let mut said = vec![json!({"role": "user", "content": "hello"})];
        said.extend((0..turn).map(|turn| json!({"role": "assistant", "content": turn.to_string()})));
        match form {
            Form::Chat => json!({"model": "gpt", "messages": said, "prompt_cache_key": name}),
            Form::Messages => json!({"model": "gpt", "max_tokens": 9, "messages": said,
                "metadata": {"user_id": name}}),
            _ => json!({"model": "gpt", "input": said, "prompt_cache_key": name}),
        }
    };
    // One connection: a request follows the end of the previous one, which no longer counts as load of its target.
    let mut client = gateway.connect().await;
    for form in [Form::Chat, Form::Messages, Form::Responses] {
        let mut used = BTreeSet::new();
        for conversation in 0..12 {
            let mut at = BTreeSet::new();
            for turn in 0..3 {
                let body = named(form, &format!("session {conversation}"), turn).to_string();
                let answer = client.ask(post(&form.path("gpt", false), body)).await;
                at.insert(answer.get("x-gateway-target").unwrap().to_owned());
            }
            assert_eq!(at.len(), 1, "{form:?} {conversation}: {at:?}");
            used.extend(at);
        }
        assert_eq!(used.len(), 3, "{form:?}: all are at {used:?}");
    }
}
