//! Compaction of conversations of the responses format: by the provider where it knows compaction, by the gateway for
//! all others.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup, key};
use crate::support::sse::events;
use crate::support::upstream::Upstream;
use crate::support::valkey::Server;

/// Two keys of one account, and one key of another.
const ANN: &str = "client-key-of-ann-0011";
const ANNE: &str = "client-key-of-anne-0012";
const BOB: &str = "client-key-of-bob-0013";

/// Text that the providers answer with, which becomes the summary.
const SUMMARY: &str = "Grüße";

/// A provider without compaction, for each format.
const PLAIN: [Form; 4] = Form::ALL;

/// Starts a provider that answers in one format, with and without streams.
async fn provider(form: Form) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let streams =
                request.json()["stream"] == true || request.everything().contains("streamGenerateContent");
            conn.send(match streams {
                true => reply::stream(&form.frames("m")),
                false => reply::json(200, form.whole("m")),
            })
            .await;
        }
    })
    .await
}

/// Adds a provider without compaction whose only model is called like its format.
fn with(setup: Setup, form: Form, upstream: &Upstream) -> Setup {
    let base = format!("http://{}", upstream.addr);
    let name = name(form);
    let setup = match form {
        Form::Chat => setup.provider(name, "openai-compatible", &format!("{base}/v1"), "apis = [\"chat\"]"),
        Form::Messages => setup.provider(name, "anthropic", &format!("{base}/v1"), ""),
        Form::Responses => {
            setup.provider(name, "openai-compatible", &format!("{base}/v1"), "apis = [\"responses\"]")
        }
        Form::Generate => setup.provider(name, "gemini", &format!("{base}/v1beta"), ""),
    };
    setup.model(name, name, "m")
}

fn name(form: Form) -> &'static str {
    match form {
        Form::Chat => "in-chat",
        Form::Messages => "in-messages",
        Form::Responses => "in-responses",
        Form::Generate => "in-generate",
    }
}

fn setup() -> Setup {
    let mut setup = Setup::new().account("one", "10").account("two", "10");
    setup.keys += &key("ann", ANN, "account = \"one\"");
    setup.keys += &key("anne", ANNE, "account = \"one\"");
    setup.keys += &key("bob", BOB, "account = \"two\"");
    setup
}

async fn say(gateway: &Gateway, path: &str, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with(path, &[("authorization", &bearer)], body.to_string())).await
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// Returns a request of Codex that compacts the conversation.
fn compacting(model: &str, stream: bool) -> Value {
    json!({"model": model, "stream": stream, "store": false, "tool_choice": "auto",
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
        "input": [user("Fix the build."),
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "It is broken."},
            {"type": "compaction_trigger"}]})
}

/// Returns the only item of a compaction: from a stream as Codex reads it, or from a document.
fn item(answer: &Answer, stream: bool) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    let response = if stream {
        let events = events(answer.text());
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!(names, expected, "{}", answer.text());
        let done = events[3].json()["item"].clone();
        let response = events[4].json()["response"].clone();
        assert_eq!(response["output"], json!([done]));
        response
    } else {
        answer.json()
    };
    assert_eq!(response["status"], "completed");
    let usage = &response["usage"];
    assert_eq!(
        [&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]],
        [11, 7, 18],
        "{usage}"
    );
    let [item] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!(item["type"], "compaction");
    assert!(item["id"].as_str().unwrap().starts_with("cmp_"), "{item}");
    let sealed = item["encrypted_content"].as_str().unwrap();
    assert!(sealed.starts_with("gwc1.") && !sealed.contains(SUMMARY), "{sealed}");
    item.clone()
}

fn continuing(model: &str, items: &[Value]) -> Value {
    json!({"model": model, "store": false, "input": items})
}

fn assert_refused(answer: &Answer, param: &str) {
    assert_eq!(answer.status(), 400, "{}", answer.everything());
    Form::Responses.error(answer);
    let error = &answer.json()["error"];
    assert_eq!(error["param"], param, "{error}");
    assert!(error["message"].as_str().unwrap().contains(param), "{error}");
}

#[tokio::test]
async fn compaction_of_a_provider_without_it_is_one_sealed_item() {
    for form in PLAIN {
        let upstream = provider(form).await;
        let gateway = Gateway::start(&with(setup(), form, &upstream)).await;
        for stream in [false, true] {
            let answer = say(&gateway, "/v1/responses", ANN, &compacting(name(form), stream)).await;
            let compaction = item(&answer, stream);
            let sent = upstream.last_request().json();
            let text = sent.to_string();
            assert!(
                !text.contains("compaction_trigger") && !text.contains("json_schema"),
                "{form:?}: {sent}"
            );
            assert!(text.contains("will be replaced by your next message"), "{form:?}: {sent}");
            assert!(text.contains("\"look\"") && text.contains("It is broken."), "{form:?}: {sent}");
            let choice = match form {
                Form::Chat | Form::Responses => &sent["tool_choice"],
                Form::Messages => &sent["tool_choice"]["type"],
                Form::Generate => &sent["toolConfig"]["functionCallingConfig"]["mode"],
            };
            assert_eq!(choice.as_str().unwrap().to_lowercase(), "none", "{form:?}: {sent}");

            // The item is opened for every key of its account, and for no other.
            let items = [compaction.clone(), user("And now?")];
            let answer = say(&gateway, "/v1/responses", ANNE, &continuing(name(form), &items)).await;
            assert_eq!(answer.status(), 200, "{}", answer.everything());
            let sent = upstream.last_request().json().to_string();
            assert!(
                sent.contains(SUMMARY) && sent.contains("Summary of the conversation"),
                "{form:?}: {sent}"
            );
            assert!(!sent.contains("gwc1.") && sent.contains("And now?"), "{form:?}: {sent}");
            let seen = upstream.count();
            for other in [BOB, KEY] {
                let answer = say(&gateway, "/v1/responses", other, &continuing(name(form), &items)).await;
                assert_refused(&answer, "input[0].encrypted_content");
            }
            let mut changed = items.clone();
            let broken = items[0]["encrypted_content"].as_str().unwrap().replace("gwc1.", "gwc1.A");
            changed[0]["encrypted_content"] = broken.into();
            let answer = say(&gateway, "/v1/responses", ANN, &continuing(name(form), &changed)).await;
            assert_refused(&answer, "input[0].encrypted_content");
            assert_eq!(upstream.count(), seen, "nothing was sent");
        }
    }
}

#[tokio::test]
async fn compaction_of_openai_is_forwarded_and_its_items_go_to_openai_only() {
    let (openai, other) = (provider(Form::Responses).await, provider(Form::Messages).await);
    let setup = setup()
        .provider("openai", "openai", &format!("http://{}/v1", openai.addr), "")
        .model("gpt", "openai", "gpt");
    let gateway = Gateway::start(&with(setup, Form::Messages, &other)).await;
    let body = compacting("gpt", true);
    assert_eq!(say(&gateway, "/v1/responses", ANN, &body).await.status(), 200);
    assert_eq!(openai.last_request().json(), body, "the request is forwarded unchanged");
    let theirs = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABq"});
    let body = continuing("gpt", &[theirs.clone(), user("Go on.")]);
    assert_eq!(say(&gateway, "/v1/responses", ANN, &body).await.status(), 200);
    assert_eq!(openai.last_request().json(), body);
    let body = continuing(name(Form::Messages), &[user("Hi"), theirs.clone(), user("Go on.")]);
    assert_refused(&say(&gateway, "/v1/responses", ANN, &body).await, "input[1].encrypted_content");
    assert_eq!(other.count(), 0);

    // An item of the gateway is opened for OpenAI too; one of OpenAI beside it stays.
    let ours =
        item(&say(&gateway, "/v1/responses", ANN, &compacting(name(Form::Messages), false)).await, false);
    let body = continuing("gpt", &[theirs.clone(), ours.clone(), user("Go on.")]);
    assert_eq!(say(&gateway, "/v1/responses", ANN, &body).await.status(), 200);
    let sent = openai.last_request().json();
    assert_eq!((&sent["input"][0], &sent["input"][2]), (&theirs, &user("Go on.")));
    assert!(sent["input"][1]["content"][0]["text"].as_str().unwrap().contains(SUMMARY), "{sent}");
    assert_eq!(sent["input"][1]["role"], "user");
    let body = continuing("gpt", &[ours, user("Go on.")]);
    assert_refused(&say(&gateway, "/v1/responses", BOB, &body).await, "input[0].encrypted_content");
}

#[tokio::test]
async fn compaction_items_that_are_invalid_are_refused_with_their_path() {
    let upstream = provider(Form::Chat).await;
    let gateway = Gateway::start(&with(setup(), Form::Chat, &upstream)).await;
    let trigger = json!({"type": "compaction_trigger"});
    for (items, param) in [
        (vec![trigger.clone(), user("Hi")], "input[0]"),
        (vec![user("Hi"), trigger.clone(), trigger.clone()], "input[1]"),
        (vec![user("Hi"), json!({"type": "compaction"})], "input[1].encrypted_content"),
        (
            vec![user("Hi"), json!({"type": "compaction", "encrypted_content": 7})],
            "input[1].encrypted_content",
        ),
    ] {
        assert_refused(
            &say(&gateway, "/v1/responses", ANN, &continuing(name(Form::Chat), &items)).await,
            param,
        );
    }
    assert_eq!(upstream.count(), 0);
}

/// A response without text is no summary: the client gets an error that it retries, and no item.
#[tokio::test]
async fn compaction_without_a_summary_is_an_error() {
    let whole = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":" \n"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let frame = |rest: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,{rest}}}]}}\n\n"
        )
    };
    let frames = [
        frame(r#""delta":{"role":"assistant","content":" "},"finish_reason":null"#),
        frame(r#""delta":{},"finish_reason":"stop""#),
        "data: [DONE]\n\n".to_owned(),
    ];
    for (answer, stream) in [(reply::json(200, whole), false), (reply::stream(&frames), true)] {
        let upstream = Upstream::answering(answer).await;
        let gateway = Gateway::start(&with(setup(), Form::Chat, &upstream)).await;
        let answer = say(&gateway, "/v1/responses", ANN, &compacting(name(Form::Chat), stream)).await;
        let text = answer.everything();
        assert!(!text.contains("\"compaction\"") && text.contains("no summary"), "{text}");
        if stream && answer.status() == 200 {
            let last = events(answer.text()).pop().unwrap();
            assert_eq!(last.name, "response.failed");
            assert_eq!(last.json()["response"]["error"]["code"], "server_error");
        } else {
            assert!(answer.status() >= 500, "{text}");
            Form::Responses.error(&answer);
        }
    }
}

/// A stream that breaks off ends with an error, wherever it is cut, and never with an item.
#[tokio::test]
async fn compaction_stream_that_breaks_off_has_no_item() {
    let frames = Form::Messages.frames("m");
    for kept in [2, 4, frames.len() - 1] {
        let mut cut = reply::stream_head();
        for frame in &frames[..kept] {
            cut += &String::from_utf8(reply::chunk(frame)).unwrap();
        }
        cut += "0\r\n\r\n";
        let upstream = Upstream::answering(cut).await;
        let gateway = Gateway::start(&with(setup(), Form::Messages, &upstream)).await;
        let answer = say(&gateway, "/v1/responses", ANN, &compacting(name(Form::Messages), true)).await;
        let text = answer.everything();
        assert!(!text.contains("response.completed"), "{kept}: {text}");
        if answer.status() == 200 {
            assert_eq!(events(answer.text()).pop().unwrap().name, "response.failed", "{kept}");
        } else {
            assert!(answer.status() >= 500, "{kept}: {text}");
        }
    }
}

#[tokio::test]
async fn compaction_endpoint_returns_the_users_messages_and_one_item() {
    let openai = provider(Form::Responses).await;
    let mut setup = setup()
        .provider("openai", "openai", &format!("http://{}/v1", openai.addr), "")
        .model("gpt", "openai", "gpt");
    let mut upstreams = Vec::new();
    for form in PLAIN {
        let upstream = provider(form).await;
        setup = with(setup, form, &upstream);
        upstreams.push(upstream);
    }
    let gateway = Gateway::start(&setup).await;
    for form in PLAIN {
        let body = json!({"model": name(form), "instructions": "Be brief.",
            "input": [{"role": "user", "content": "One."}, {"role": "assistant", "content": "1"}, user("Two.")]});
        let answer = say(&gateway, "/v1/responses/compact", ANN, &body).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        let first = answer.json();
        assert_eq!(first["object"], "response.compaction", "{first}");
        assert!(
            first["id"].as_str().unwrap().starts_with("resp_") && first["created_at"].is_u64(),
            "{first}"
        );
        assert_eq!(first["usage"]["total_tokens"], 18);
        let output = first["output"].as_array().unwrap();
        let kinds: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message", "message", "compaction"], "{first}");
        assert_eq!(output[0]["content"], json!([{"type": "input_text", "text": "One."}]));
        assert_eq!((&output[1]["content"][0]["text"], &output[1]["role"]), (&json!("Two."), &json!("user")));
        // The output is the input of the next request, and of the next compaction, which keeps no older summary.
        let mut next = output.clone();
        next.push(user("Three."));
        let answer = say(&gateway, "/v1/responses", ANN, &continuing(name(form), &next)).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        let answer = say(&gateway, "/v1/responses/compact", ANN, &continuing(name(form), &next)).await.json();
        let kinds: Vec<_> =
            answer["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
        assert_eq!(kinds, ["message", "message", "message", "compaction"], "{answer}");
        let text = say(&gateway, "/v1/responses/compact", ANN, &json!({"model": name(form), "input": "Hi"}))
            .await
            .json();
        assert_eq!(text["output"][0]["content"][0]["text"], "Hi", "{text}");
    }
    let body = json!({"model": "gpt", "input": [user("One.")]});
    assert_eq!(say(&gateway, "/v1/responses/compact", ANN, &body).await.status(), 200);
    let sent = openai.last_request();
    assert_eq!(sent.json(), body);
    assert!(sent.everything().starts_with("POST /v1/responses/compact HTTP/1.1"), "{}", sent.everything());
    // Every request is charged like any other.
    assert_eq!(gateway.records(17).await.len(), 17);
}

#[tokio::test]
async fn compaction_items_are_opened_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = provider(Form::Chat).await;
    let mut setup = with(Setup::new(), Form::Chat, &upstream);
    setup.log = format!("[store]\nsqlite = \"{}\"\n", folder.path().join("state.db").display());
    let mut first = Gateway::start(&setup).await;
    let made = item(&say(&first, "/v1/responses", KEY, &compacting(name(Form::Chat), true)).await, true);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().await.code(), Some(0));
    let second = Gateway::start(&setup).await;
    let body = continuing(name(Form::Chat), &[made, user("And now?")]);
    let answer = say(&second, "/v1/responses", KEY, &body).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    assert!(upstream.last_request().text().contains(SUMMARY));
}

#[tokio::test]
async fn compaction_items_are_opened_by_every_gateway_of_a_fleet() {
    let Some(server) = Server::start() else { return };
    let upstream = provider(Form::Chat).await;
    let mut setup = with(Setup::new(), Form::Chat, &upstream);
    setup.log = format!("[store]\nvalkey = \"{}\"\n", server.url());
    let (one, two) = (Gateway::start(&setup).await, Gateway::start(&setup).await);
    let at_one = item(&say(&one, "/v1/responses", KEY, &compacting(name(Form::Chat), false)).await, false);
    let at_two = item(&say(&two, "/v1/responses", KEY, &compacting(name(Form::Chat), false)).await, false);
    for (gateway, made) in [(&one, &at_two), (&two, &at_one)] {
        let body = continuing(name(Form::Chat), &[made.clone(), user("And now?")]);
        let answer = say(gateway, "/v1/responses", KEY, &body).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        assert!(upstream.last_request().text().contains(SUMMARY));
    }
}
