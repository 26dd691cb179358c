//! References to stored responses and to their items: who may use which id, and what the model is sent in its place.

use serde_json::{Value, json};

use super::websocket::client::Socket;
use crate::support::client::{Answer, post_with, request};
use crate::support::form::{Form, provider_of_every_form};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{Setup, key};
use crate::support::sse::events;
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;

const ALICE: &str = "client-key-of-alice-0021";
const BOB: &str = "client-key-of-bob-0022";
/// Targets of both kinds: the first keeps its own responses, the gateway those of the others.
const NATIVE: &str = "at-responses";
const TRANSLATED: [&str; 3] = ["at-chat", "at-messages", "at-generate"];

fn setup(upstream: &Upstream, store: &str) -> Setup {
    let mut setup = Setup::each_provider(upstream.addr).account("one", "10").account("two", "10");
    setup.keys += &key("alma", ALICE, "account = \"one\"");
    setup.keys += &key("bert", BOB, "account = \"two\"");
    // Must stay the last table of the file.
    setup.log = format!("[store]\n{store}\n");
    setup
}

async fn say(gateway: &Gateway, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with("/v1/responses", &[("authorization", &bearer)], body.to_string())).await
}

fn response(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    if answer.get("content-type") == Some("application/json") {
        return answer.json();
    }
    events(answer.text()).pop().unwrap().json()["response"].clone()
}

/// Returns the error without the id that it names.
fn error(answer: &Answer, id: &str) -> (u16, Value) {
    let text = answer.text().replace(id, "*");
    (answer.status(), serde_json::from_str::<Value>(&text).unwrap()["error"].clone())
}

/// Returns the id of the first item of a kind.
fn item(response: &Value, kind: &str) -> String {
    let items = response["output"].as_array().unwrap();
    let found =
        items.iter().find(|item| item["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {response}"));
    found["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one paragraph for each target and store")]
async fn stored_id_belongs_to_its_owner_at_every_target_and_store() {
    let upstream = provider_of_every_form().await;
    let server = Server::start();
    let valkey = server.as_ref().map(|server| format!("valkey = \"{}\"", server.url()));
    for store in std::iter::once(String::new()).chain(valkey) {
        let gateway = Gateway::start(&setup(&upstream, &store)).await;
        let made = response(&say(&gateway, ALICE, &json!({"model": "at-messages", "input": "Mine."})).await);
        let (made, item) = (made["id"].as_str().unwrap(), item(&made, "message"));
        let asked = upstream.count();
        for model in TRANSLATED.into_iter().chain([NATIVE]) {
            for (mut body, id, missing) in [
                (json!({"previous_response_id": made, "input": "Yours?"}), made, "resp_x"),
                (json!({"conversation": made, "input": "Yours?"}), made, "resp_x"),
                (json!({"conversation": {"id": made}, "input": "Yours?"}), made, "resp_x"),
                (json!({"input": [{"type": "item_reference", "id": item}]}), &*item, "msg_x"),
            ] {
                body["model"] = json!(model);
                let other = error(&say(&gateway, BOB, &body).await, id);
                assert!(matches!(other.0, 400 | 404), "{other:?}");
                // The error of an id that does not exist, which no provider is asked about at a translated target.
                let unknown: Value = serde_json::from_str(&body.to_string().replace(id, missing)).unwrap();
                let is_refused = TRANSLATED.contains(&model) && body.get("conversation").is_none();
                if is_refused {
                    assert_eq!(error(&say(&gateway, BOB, &unknown).await, missing), other, "{model}: {body}");
                }
            }
        }
        // Spellings that some reader of JSON takes for the same.
        let (escaped, item_escaped) = (made.replace('_', "\\u005f"), item.replace('_', "\\u005f"));
        for rest in [
            format!(r#""input":"x","previous_response\u005fid":"{escaped}""#),
            format!(r#""input":"x","Previous_Response_ID":"{made}""#),
            format!(r#""input":"x","previous_response_id":" {made}""#),
            format!(r#""input":"x","conversation":"{made} ""#),
            format!(r#""input":"x","conversation":"{made}\u00a0""#),
            format!(r#""input":"x","conversation":{{"id":"conv_x","\u0069d":"{made}"}}"#),
            format!(r#""input":"x","conversation":{{"ID":"{made}"}}"#),
            format!(r#""input":"x","previous_response_id":"{made}","previous_response_id":"resp_1""#),
            format!(r#""input":[{{"id":"{item}"}}]"#),
            format!(r#""input":[{{"\u0069\u0064":"{item_escaped}","type":"item\u005freference"}}]"#),
            format!(r#""input":[{{"id":"{item} ","type":"item_reference"}}]"#),
            format!(r#""input":[{{"ID":"{item}","type":null}}]"#),
            format!(r#""input":[{{"id":"msg_1","id":"{item}","type":"item_reference"}}]"#),
            format!(r#""input":[{{"type":"message","id":"{item}","type":"item_reference"}}]"#),
        ] {
            for model in [NATIVE, "at-chat"] {
                let body = format!(r#"{{"model":"{model}",{rest}}}"#);
                let bearer = format!("Bearer {BOB}");
                // In pieces that cut the names.
                let answer = gateway
                    .ask(post_with("/v1/responses", &[("authorization", &bearer)], body.clone()))
                    .await;
                assert!(matches!(answer.status(), 400 | 404), "{}: {body}", answer.everything());
            }
        }
        for (method, path) in [
            ("GET", format!("/v1/responses/{made}")),
            ("GET", format!("/v1/responses/{made}/input_items")),
            ("GET", format!("/v1/responses/%72esp_{}", &made[5..])),
            ("DELETE", format!("/v1/responses/{made}")),
            ("POST", format!("/v1/responses/{made}/cancel")),
        ] {
            let bearer = format!("Bearer {BOB}");
            let answer = gateway.ask(request(method, &path, &[("authorization", &bearer)])).await;
            assert_eq!(answer.status(), 404, "{method} {path}");
        }
        let bearer = format!("Bearer {BOB}");
        let mut socket =
            Socket::open_with(gateway.addr, "/v1/responses", &[("authorization", &bearer)]).await;
        for model in [NATIVE, "at-chat"] {
            for rest in [
                json!({"previous_response_id": made, "input": "x"}),
                json!({"input": [{"type": "item_reference", "id": item}]}),
            ] {
                let mut event = rest.clone();
                event["model"] = json!(model);
                let end = socket.ask(event).await;
                assert_eq!(end["type"], "error", "{model} {rest}: {end}");
                assert!(end.to_string().contains("not found"), "{end}");
            }
        }
        assert_eq!(upstream.count(), asked, "no provider was asked");
        // The owner continues at every target, and a provider that does not know the response is sent the conversation.
        for model in TRANSLATED.into_iter().chain([NATIVE]) {
            let next = json!({"model": model, "previous_response_id": made, "input": "And?"});
            response(&say(&gateway, ALICE, &next).await);
            let sent = upstream.last_request().json().to_string();
            assert!(
                sent.contains("Mine.") && sent.contains("And?") && !sent.contains(made),
                "{model}: {sent}"
            );
        }
    }
}

/// Answers of a model that thinks, speaks and calls two tools of different kinds.
async fn working_provider() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let form = Form::ALL.into_iter().find(|form| request.head.target().contains(form.mark())).unwrap();
            let body = match form {
                Form::Messages => json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                    "content": [
                        {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"},
                        {"type": "text", "text": "The code word is BANANA."},
                        {"type": "tool_use", "id": "toolu_a", "name": "shell", "input": {"q": "ls"}},
                        {"type": "tool_use", "id": "toolu_b", "name": "patch", "input": {"input": "*** Begin"}},
                    ],
                    "stop_reason": "tool_use", "usage": {"input_tokens": 11, "output_tokens": 7},
                })
                .to_string(),
                other => other.whole("m"),
            };
            conn.send(reply::json(200, body)).await;
        }
    })
    .await
}

fn tools() -> Value {
    json!([
        {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
        {"type": "custom", "name": "patch"},
    ])
}

#[tokio::test]
async fn item_references_become_the_stored_items_at_every_target() {
    let upstream = working_provider().await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    let first = json!({"model": "at-messages", "input": "Pick a word.", "tools": tools(), "reasoning": {"effort": "low", "summary": "auto"}});
    let made = response(&say(&gateway, ALICE, &first).await);
    let refs: Vec<Value> = ["reasoning", "message", "function_call", "custom_tool_call"]
        .into_iter()
        .map(|kind| json!({"type": "item_reference", "id": item(&made, kind)}))
        .collect();
    let mut input = vec![json!({"role": "user", "content": "Pick a word."})];
    input.extend(refs);
    input.push(json!({"type": "function_call_output", "call_id": "toolu_a", "output": "a.txt"}));
    input.push(json!({"type": "custom_tool_call_output", "call_id": "toolu_b", "output": "done"}));
    for model in TRANSLATED.into_iter().chain([NATIVE]) {
        let next = json!({"model": model, "input": input, "tools": tools()});
        let two = response(&say(&gateway, ALICE, &next).await);
        let sent = upstream.last_request().json();
        let text = sent.to_string();
        for part in ["BANANA", "shell", "patch", "*** Begin", "a.txt", "done"] {
            assert!(text.contains(part), "{model}: {part} in {text}");
        }
        assert!(!text.contains("item_reference"), "{model}: {text}");
        if model == "at-messages" {
            let kinds: Vec<&Value> = sent["messages"][1]["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|block| &block["type"])
                .collect();
            assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
            assert_eq!(sent["messages"][1]["content"][0]["signature"], "c2lnbmVk");
        }
        // The items are part of the conversation that continues from here.
        if model != NATIVE {
            let third =
                json!({"model": "at-chat", "previous_response_id": two["id"], "input": "Which one was it?"});
            response(&say(&gateway, ALICE, &third).await);
            assert!(upstream.last_request().json().to_string().contains("BANANA"), "{model}");
        }
    }
    // A reference counts as its item.
    let count = |body: Value| {
        let bearer = format!("Bearer {ALICE}");
        post_with("/v1/responses/input_tokens", &[("authorization", &bearer)], body.to_string())
    };
    let counted = gateway.ask(count(json!({"model": "at-chat", "input": input}))).await;
    assert_eq!(counted.status(), 200, "{}", counted.everything());
    assert!(counted.json()["input_tokens"].as_u64().unwrap() > 60, "{}", counted.text());
}

#[tokio::test]
async fn item_reference_unknown_is_an_error_and_not_dropped() {
    let upstream = working_provider().await;
    let gateway = Gateway::start(&setup(&upstream, "")).await;
    let made =
        response(&say(&gateway, ALICE, &json!({"model": "at-chat", "input": "Hi", "store": false})).await);
    let of_none = item(&made, "message");
    let stored = response(&say(&gateway, ALICE, &json!({"model": "at-chat", "input": "Hi"})).await);
    let absent = format!("{}f", &item(&stored, "message")[..item(&stored, "message").len() - 1]);
    let asked = upstream.count();
    for id in ["msg_nobodyknowsthis", &of_none, &absent] {
        for model in TRANSLATED {
            let reference = json!({"type": "item_reference", "id": id});
            let body = json!({"model": model, "input": [{"role": "user", "content": "hi"}, reference]});
            let answer = say(&gateway, ALICE, &body).await;
            assert_eq!(answer.status(), 404, "{model} {id}: {}", answer.everything());
            let error = &answer.json()["error"];
            assert_eq!(error["message"], format!("Item with id '{id}' not found."));
            assert_eq!((&error["param"], &error["type"]), (&json!("input"), &json!("invalid_request_error")));
        }
    }
    let many = vec![json!({"type": "item_reference", "id": "msg_1"}); 1025];
    for (model, input) in [
        ("at-chat", json!([{"type": "item_reference"}])),
        (NATIVE, json!([{"type": "item_reference", "id": 7}])),
        (NATIVE, json!(many)),
    ] {
        let answer = say(&gateway, ALICE, &json!({"model": model, "input": input})).await;
        assert_eq!(answer.status(), 400, "{}", answer.everything());
    }
    assert_eq!(upstream.count(), asked);
    // After the deletion of its response an item is unknown too.
    let path = format!("/v1/responses/{}", stored["id"].as_str().unwrap());
    let bearer = format!("Bearer {ALICE}");
    assert_eq!(gateway.ask(request("DELETE", &path, &[("authorization", &bearer)])).await.status(), 200);
    let gone = json!({"model": "at-chat", "input": [{"id": item(&stored, "message")}]});
    assert_eq!(say(&gateway, ALICE, &gone).await.status(), 404);
}

#[tokio::test]
async fn item_reference_of_a_provider_passes_to_it_and_belongs_to_its_first_user() {
    let upstream = provider_of_every_form().await;
    for store in ["", "foreign_responses = \"refuse\""] {
        let gateway = Gateway::start(&setup(&upstream, store)).await;
        let body =
            json!({"model": NATIVE, "input": [{"id": "msg_of_old"}, {"role": "user", "content": "x"}]});
        let answer = say(&gateway, ALICE, &body).await;
        if store.is_empty() {
            response(&answer);
            assert_eq!(upstream.last_request().json()["input"], body["input"], "unchanged");
            response(&say(&gateway, ALICE, &body).await);
        } else {
            assert_eq!(answer.status(), 404, "{}", answer.everything());
        }
        let asked = upstream.count();
        let other = error(&say(&gateway, BOB, &body).await, "msg_of_old");
        assert_eq!((other.0, &other.1["message"]), (404, &json!("Item with id '*' not found.")));
        assert_eq!(upstream.count(), asked);
    }
}

#[tokio::test]
async fn item_references_are_bounded_by_the_limit_of_a_body() {
    let upstream = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            let message = json!({"role": "assistant", "content": "x".repeat(40_000)});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let body = json!({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]});
            conn.send(reply::json(200, body.to_string())).await;
        }
    })
    .await;
    let mut setup = setup(&upstream, "");
    setup.limits += "body = \"256KiB\"\n";
    let gateway = Gateway::start(&setup).await;
    let made = response(&say(&gateway, ALICE, &json!({"model": "at-chat", "input": "Hi"})).await);
    let many = |count: usize| {
        let input = vec![json!({"id": item(&made, "message")}); count];
        json!({"model": "at-chat", "input": input, "store": false})
    };
    response(&say(&gateway, ALICE, &many(5)).await);
    let answer = say(&gateway, ALICE, &many(7)).await;
    assert_eq!(answer.status(), 413, "{}", answer.everything());
    assert!(answer.text().contains("limits.body"), "{}", answer.text());
}

#[tokio::test]
async fn stored_conversation_counts_in_the_memory_budget() {
    let upstream = provider_of_every_form().await;
    let mut setup = setup(&upstream, "");
    setup.limits += "body = \"1MiB\"\nmemory = \"1MiB\"\n";
    let gateway = Gateway::start(&setup).await;
    let long = |letter: &str| letter.repeat(600_000);
    let made = response(&say(&gateway, ALICE, &json!({"model": "at-chat", "input": long("a")})).await);
    let next = json!({"model": "at-chat", "previous_response_id": made["id"], "input": long("b")});
    gateway.idle().await;
    let answer = say(&gateway, ALICE, &next).await;
    assert_eq!(answer.status(), 503, "{}", answer.everything());
    assert_eq!(answer.get("retry-after"), Some("1"));
    let short = json!({"model": "at-chat", "previous_response_id": made["id"], "input": "b", "store": false});
    gateway.idle().await;
    let answer = say(&gateway, ALICE, &short).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
}

/// A provider's head and error that never end are cut off.
#[tokio::test]
async fn provider_heads_and_errors_are_bounded() {
    let head = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\ncontent-length: 2\r\n\r\n{{}}", "x".repeat(2 << 20));
    let error = reply::json(500, format!("{{\"error\":{{\"message\":\"{}\"}}}}", "y".repeat(8 << 20)));
    for (answer, statuses) in [(head.into_bytes(), [500, 502, 503]), (error, [500, 500, 500])] {
        let upstream = Upstream::start(move |mut conn| {
            let answer = answer.clone();
            async move {
                while conn.request().await.is_some() {
                    if conn.try_send(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        let gateway = Gateway::start(&setup(&upstream, "")).await;
        let ask = json!({"model": "at-chat", "input": "Hi"});
        say(&gateway, ALICE, &ask).await;
        let before = gateway.start_of_peak();
        let answer = say(&gateway, ALICE, &ask).await;
        assert!(statuses.contains(&answer.status()), "{}", answer.status());
        assert!(answer.text().len() < 300_000);
        let grown = gateway.peak_memory().saturating_sub(before);
        assert!(grown < 4 * 1024, "{grown} KiB");
    }
}
