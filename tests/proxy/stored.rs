//! Responses that the gateway stores: `previous_response_id` and the responses endpoints, with providers of every
//! format.

use serde_json::{Value, json};

use crate::support::client::{Answer, post, post_with, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::metrics::Metrics;
use crate::support::setup::{KEY, NARROW_KEY, Setup};
use crate::support::sse::events;
use crate::support::upstream::Upstream;
use crate::support::{reply, until};

/// Formats whose providers store no responses.
const OTHERS: [Form; 3] = [Form::Chat, Form::Messages, Form::Generate];

/// Starts a provider of one format, and a gateway in which its model is called `m`.
async fn started(form: Form, stream: bool, store: &str) -> (Upstream, Gateway) {
    let answer = match stream {
        true => reply::stream(&form.frames("m")),
        false => reply::json(200, form.whole("m")),
    };
    let upstream = Upstream::answering(answer).await;
    let gateway = Gateway::start(&setup(form, &upstream, store)).await;
    (upstream, gateway)
}

fn setup(form: Form, upstream: &Upstream, store: &str) -> Setup {
    let base = format!("http://{}", upstream.addr);
    let setup = match form {
        Form::Chat => {
            Setup::new().provider("v", "openai-compatible", &format!("{base}/v1"), "apis = [\"chat\"]")
        }
        Form::Messages => Setup::new().provider("v", "anthropic", &format!("{base}/v1"), ""),
        Form::Responses => Setup::new().provider("v", "openai", &format!("{base}/v1"), ""),
        Form::Generate => Setup::new().provider("v", "gemini", &format!("{base}/v1beta"), ""),
    };
    let mut setup = setup.model("m", "v", "m").model("fast-m", "v", "m");
    // Must stay the last table of the file.
    setup.log = format!("[store]\n{store}\n");
    setup
}

fn asking(body: &Value) -> Vec<u8> {
    post("/v1/responses", body.to_string())
}

/// Returns a request that continues from a response.
fn going_on(from: &str, stream: bool, text: &str) -> Value {
    json!({"model": "fast-m", "previous_response_id": from, "stream": stream, "input": [{"role": "user", "content": text}]})
}

/// Returns the response object of a document or of a stream.
fn response(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    assert!(answer.complete);
    if answer.get("content-type") == Some("application/json") {
        return answer.json();
    }
    let last = events(answer.text()).pop().unwrap();
    assert_eq!(last.name, "response.completed");
    last.json()["response"].clone()
}

fn id_of(answer: &Answer) -> String {
    response(answer)["id"].as_str().unwrap().to_owned()
}

/// Returns the turns that a provider received, each with role and text.
fn turns(form: Form, body: &Value) -> Vec<(String, String)> {
    let list = if form == Form::Generate { &body["contents"] } else { &body["messages"] };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        parts => parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect(),
    };
    let turn = |turn: &Value| {
        let content = if form == Form::Generate { &turn["parts"] } else { &turn["content"] };
        let role = turn["role"].as_str().unwrap().replace("model", "assistant");
        (role, text(content))
    };
    list.as_array().unwrap().iter().map(turn).collect()
}

fn said(turns: &[(&str, &str)]) -> Vec<(String, String)> {
    turns.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

fn get(path: &str, key: &str) -> Vec<u8> {
    request("GET", path, &[("authorization", &format!("Bearer {key}"))])
}

fn delete(path: &str, key: &str) -> Vec<u8> {
    request("DELETE", path, &[("authorization", &format!("Bearer {key}"))])
}

/// Asserts that the answer is the error for an unknown response id.
fn assert_unknown(answer: &Answer) {
    assert_eq!(answer.status(), 400, "{}", answer.everything());
    Form::Responses.error(answer);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "previous_response_not_found");
    assert_eq!(error["param"], "previous_response_id");
    assert_eq!(error["type"], "invalid_request_error");
}

fn operations(metrics: &Metrics, operation: &str, result: &str) -> f64 {
    metrics.sum("gateway_store_operations_total", &[("operation", operation), ("result", result)])
}

#[tokio::test]
async fn bug_65_stored_conversation_continues_by_id_with_every_provider() {
    for form in OTHERS {
        for stream in [false, true] {
            let (upstream, gateway) = started(form, stream, "").await;
            let first = json!({
                "model": "m", "instructions": "Be brief.", "input": "My name is Ann.", "stream": stream
            });
            let first = gateway.ask(asking(&first)).await;
            let one = response(&first);
            assert_eq!(one["store"], true, "{form:?}");
            let second = gateway.ask(asking(&going_on(&id_of(&first), stream, "What is my name?"))).await;
            let two = response(&second);
            assert_eq!(two["previous_response_id"], one["id"], "{form:?}");
            assert_ne!(two["id"], one["id"], "{form:?}");
            let sent = upstream.last_request().json();
            let conversation =
                said(&[("user", "My name is Ann."), ("assistant", "Grüße 😀"), ("user", "What is my name?")]);
            let answered: Vec<_> = turns(form, &sent)
                .into_iter()
                .map(|(role, text)| (role, text.replace("Grüße / 😀", "Grüße 😀")))
                .collect();
            assert_eq!(answered, conversation, "{form:?}");
            assert!(!sent.to_string().contains("Be brief."), "instructions are not inherited: {sent}");
            // A third turn includes the two before it, and the first response can be continued a second time.
            let third = gateway.ask(asking(&going_on(&id_of(&second), stream, "And now?"))).await;
            assert_eq!(third.status(), 200);
            assert_eq!(turns(form, &upstream.last_request().json()).len(), 5, "{form:?}");
            let other = gateway.ask(asking(&going_on(&id_of(&first), stream, "Or else?"))).await;
            assert_eq!(other.status(), 200);
            assert_eq!(turns(form, &upstream.last_request().json()).len(), 3, "{form:?}");
            let metrics = gateway.metrics().await;
            assert_eq!(operations(&metrics, "keep", "done"), 4.0);
            assert_eq!(operations(&metrics, "find", "done"), 3.0);
            assert!(metrics.sum("gateway_store_bytes", &[]) > 0.0);
        }
    }
}

#[tokio::test]
async fn stored_response_of_a_responses_provider_is_left_to_it() {
    let (upstream, gateway) = started(Form::Responses, false, "").await;
    let body = going_on("resp_of_the_provider", false, "What is my name?");
    let answer = gateway.ask(asking(&body)).await;
    assert_eq!(response(&answer)["id"], "resp_1");
    assert_eq!(upstream.last_request().json()["previous_response_id"], "resp_of_the_provider");
    assert_eq!(gateway.ask(get("/v1/responses/resp_1", KEY)).await.status(), 404);
}

#[tokio::test]
async fn stored_response_is_unknown_to_other_accounts() {
    let (upstream, gateway) = started(Form::Messages, false, "").await;
    let made = id_of(&gateway.ask(asking(&json!({"model": "m", "input": "Mine."}))).await);
    let nora = [("authorization", &*format!("Bearer {NARROW_KEY}"))];
    let body = going_on(&made, false, "Yours?").to_string();
    let other = gateway.ask(post_with("/v1/responses", &nora, body)).await;
    assert_unknown(&other);
    let unknown = gateway.ask(asking(&going_on("resp_unknown", false, "Hello?"))).await;
    assert_unknown(&unknown);
    // Both errors are the same except for the id.
    let message = |answer: &Answer| answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message(&other).replace(&made, "*"), message(&unknown).replace("resp_unknown", "*"));
    let path = format!("/v1/responses/{made}");
    for request in
        [get(&path, NARROW_KEY), delete(&path, NARROW_KEY), get(&format!("{path}/input_items"), NARROW_KEY)]
    {
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status(), 404);
        Form::Responses.error(&answer);
    }
    assert_eq!(gateway.ask(get(&path, KEY)).await.status(), 200);
    assert_eq!(gateway.ask(get(&path, "nobody")).await.status(), 401);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn stored_response_is_skipped_with_store_false() {
    let (upstream, gateway) = started(Form::Chat, false, "").await;
    let first = id_of(&gateway.ask(asking(&json!({"model": "m", "input": "One."}))).await);
    // An unstored response may continue from a stored one.
    let mut body = going_on(&first, false, "Two.");
    body["store"] = false.into();
    let second = gateway.ask(asking(&body)).await;
    assert_eq!(response(&second)["store"], false);
    assert_eq!(turns(Form::Chat, &upstream.last_request().json()).len(), 3);
    assert_unknown(&gateway.ask(asking(&going_on(&id_of(&second), false, "Three."))).await);
    assert_eq!(operations(&gateway.metrics().await, "keep", "done"), 1.0);
}

#[tokio::test]
async fn stored_response_is_returned_and_deleted() {
    let (_upstream, gateway) = started(Form::Generate, true, "").await;
    let body = json!({"model": "m", "input": "Hello.", "stream": true, "metadata": {"a": "b"}});
    let answer = gateway.ask(asking(&body)).await;
    let made = response(&answer);
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    let shown = gateway.ask(get(&path, KEY)).await;
    assert_eq!(shown.json(), made);
    assert_eq!(gateway.ask(request("HEAD", &path, &[("x-api-key", KEY)])).await.status(), 200);
    assert_eq!(gateway.ask(get(&format!("{path}?stream=true"), KEY)).await.status(), 400);
    let gone = gateway.ask(delete(&path, KEY)).await;
    assert_eq!(gone.json(), json!({"id": made["id"], "object": "response", "deleted": true}));
    for request in [get(&path, KEY), delete(&path, KEY)] {
        assert_eq!(gateway.ask(request).await.status(), 404);
    }
    assert_unknown(&gateway.ask(asking(&going_on(made["id"].as_str().unwrap(), true, "?"))).await);
    let wrong = gateway.ask(post(&path, "{}")).await;
    assert_eq!((wrong.status(), wrong.get("allow")), (405, Some("GET, HEAD, DELETE")));
}

#[tokio::test]
async fn stored_input_items_are_listed_in_pages() {
    let (_upstream, gateway) = started(Form::Messages, false, "").await;
    let first = id_of(&gateway.ask(asking(&json!({"model": "m", "input": "One."}))).await);
    let second = id_of(&gateway.ask(asking(&going_on(&first, false, "Two."))).await);
    let path = format!("/v1/responses/{second}/input_items");
    let list = gateway.ask(get(&format!("{path}?order=asc"), KEY)).await.json();
    let text = |item: &Value| item["content"][0]["text"].as_str().unwrap().to_owned();
    let data = list["data"].as_array().unwrap().clone();
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    assert_eq!(data.iter().map(text).collect::<Vec<_>>(), ["One.", "Grüße 😀", "Two."]);
    assert_eq!(data[0]["content"][0]["type"], "input_text");
    assert!(data.iter().all(|item| item["type"] == "message" && item["status"] == "completed"), "{list}");
    assert_eq!((&list["first_id"], &list["last_id"]), (&data[0]["id"], &data[2]["id"]));

    // The default order is newest first.
    let page = gateway.ask(get(&format!("{path}?limit=2"), KEY)).await.json();
    assert_eq!(page["data"], json!([data[2], data[1]]));
    assert_eq!(page["has_more"], true);
    let after = page["last_id"].as_str().unwrap();
    let rest = gateway.ask(get(&format!("{path}?limit=2&after={after}"), KEY)).await.json();
    assert_eq!((&rest["data"], &rest["has_more"]), (&json!([data[0]]), &json!(false)));
    for wrong in ["limit=0", "limit=101", "limit=x", "order=up", "after=nothing"] {
        let answer = gateway.ask(get(&format!("{path}?{wrong}"), KEY)).await;
        assert_eq!(answer.status(), 400, "{wrong}");
        assert_eq!(answer.json()["error"]["param"], wrong.split('=').next().unwrap());
    }
}

#[tokio::test]
async fn stored_response_is_unknown_after_it_expires() {
    let (_upstream, gateway) = started(Form::Chat, false, "response_lifetime = \"1ms\"").await;
    let made = id_of(&gateway.ask(asking(&json!({"model": "m", "input": "One."}))).await);
    let path = format!("/v1/responses/{made}");
    crate::support::soon(async {
        while gateway.ask(get(&path, KEY)).await.status() != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_unknown(&gateway.ask(asking(&going_on(&made, false, "Two."))).await);
}

#[tokio::test]
async fn stored_response_survives_a_killed_gateway() {
    let (upstream, mut gateway) = started(Form::Messages, true, "").await;
    let made = id_of(&gateway.ask(asking(&json!({"model": "m", "input": "One.", "stream": true}))).await);
    gateway.signal(nix::sys::signal::Signal::SIGKILL);
    gateway.ended().await;
    let mut again = gateway.start_beside(&[]);
    crate::support::soon(async {
        while gateway.admin_status("/readyz").await != Some(200) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let answer = gateway.ask(asking(&going_on(&made, true, "Two."))).await;
    assert_eq!(response(&answer)["previous_response_id"], made);
    assert_eq!(turns(Form::Messages, &upstream.last_request().json()).len(), 3);
    assert!(again.runs());
}

/// The client receives the response even if it cannot be stored.
#[tokio::test]
async fn stored_response_too_large_still_reaches_its_client() {
    for stream in [false, true] {
        let (_upstream, gateway) = started(Form::Chat, stream, "response_limit = \"1KiB\"").await;
        let body = json!({"model": "m", "input": "long ".repeat(400), "stream": stream});
        let answer = gateway.ask(asking(&body)).await;
        let made = response(&answer);
        assert_eq!(made["output"][0]["content"][0]["text"].as_str().unwrap().replace("/ ", ""), "Grüße 😀");
        assert_eq!(operations(&gateway.metrics().await, "keep", "too_large"), 1.0);
        until(|| gateway.log().contains("was not stored")).await;
        assert_unknown(&gateway.ask(asking(&going_on(made["id"].as_str().unwrap(), stream, "?"))).await);
    }
}

/// The client sends only the result of a tool call: reasoning, its signature and the call come from the stored
/// response.
#[tokio::test]
async fn stored_response_keeps_reasoning_signature_and_tool_calls() {
    let called = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "Where is it?", "signature": "c2lnbmF0dXJl"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        ],
        "usage": {"input_tokens": 11, "output_tokens": 7},
    });
    let answers = vec![reply::json(200, called.to_string()), reply::json(200, Form::Messages.whole("m"))];
    let upstream = Upstream::answering_each(answers).await;
    let gateway = Gateway::start(&setup(Form::Messages, &upstream, "")).await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let body = json!({
        "model": "m", "input": "Weather?", "tools": tools, "reasoning": {"effort": "low", "summary": "auto"}
    });
    let made = id_of(&gateway.ask(asking(&body)).await);
    let first = upstream.last_request().json();
    let body = json!({
        "model": "m", "previous_response_id": made, "tools": tools, "reasoning": {"effort": "low"},
        "input": [{"type": "function_call_output", "call_id": "toolu_1", "output": "5 degrees"}]
    });
    assert_eq!(gateway.ask(asking(&body)).await.status(), 200);
    let second = upstream.last_request().json();
    let turns = second["messages"].as_array().unwrap();
    assert_eq!(turns[0], first["messages"][0], "what was said before is said in the same words");
    assert_eq!(turns[1]["content"], called["content"]);
    assert_eq!(turns[2]["content"][0]["tool_use_id"], "toolu_1", "{second}");
    assert_eq!(turns.len(), 3);
}

/// A client that has read the end of a stream can continue from it before the upstream connection has ended.
#[tokio::test]
async fn bug_65_stored_stream_is_available_before_its_end_is_sent() {
    let gate = crate::support::Gate::new();
    let opened = gate.clone();
    let frames = Form::Chat.frames("m");
    let upstream = Upstream::start(move |mut conn| {
        let (frames, gate) = (frames.clone(), opened.clone());
        async move {
            while conn.request().await.is_some() {
                conn.send([reply::stream_head().into_bytes(), reply::chunk(frames.concat())].concat()).await;
                gate.passed().await;
                conn.send(reply::LAST_CHUNK).await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&setup(Form::Chat, &upstream, "")).await;
    let mut client = gateway.connect().await;
    client.send(asking(&json!({"model": "m", "input": "One.", "stream": true}))).await;
    client.head().await;
    let mut seen = Vec::new();
    crate::support::sse::read_until(&mut client, &mut seen, "event: response.completed").await;
    let text = String::from_utf8(seen).unwrap();
    let made = text.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(gateway.ask(get(&format!("/v1/responses/{made}"), KEY)).await.status(), 200);
    gate.open();
}

#[tokio::test]
async fn stored_response_is_skipped_after_a_failure() {
    let frames = Form::Chat.frames("m");
    let cut = [reply::stream_head().into_bytes(), reply::chunk(&frames[1]), reply::LAST_CHUNK.to_vec()];
    let upstream = Upstream::answering(cut.concat()).await;
    let gateway = Gateway::start(&setup(Form::Chat, &upstream, "")).await;
    let answer = gateway.ask(asking(&json!({"model": "m", "input": "One.", "stream": true}))).await;
    let last = events(answer.text()).pop().unwrap();
    assert_eq!(last.name, "response.failed", "{}", answer.text());
    let made = last.json()["response"]["id"].as_str().unwrap().to_owned();
    assert_unknown(&gateway.ask(asking(&going_on(&made, true, "Two."))).await);
    assert_eq!(operations(&gateway.metrics().await, "keep", "done"), 0.0);
}

#[tokio::test]
async fn stored_response_is_skipped_with_a_lifetime_of_zero() {
    let (upstream, gateway) = started(Form::Chat, false, "response_lifetime = \"0s\"").await;
    let answer = gateway.ask(asking(&json!({"model": "m", "input": "One."}))).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(operations(&gateway.metrics().await, "keep", "done"), 0.0);
    let answer = gateway.ask(asking(&going_on("resp_1", false, "Two."))).await;
    assert_eq!((answer.status(), upstream.count()), (400, 1), "{}", answer.text());
    assert_eq!(answer.json()["error"]["param"], "previous_response_id");
}
