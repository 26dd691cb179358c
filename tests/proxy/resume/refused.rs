//! Streams that cannot be continued by another target: the client receives the error.

use serde_json::{Value, json};

use super::providers::{Break, Frames, STORY, frames, going_on, pieces};
use super::told::read;
use super::{Asked, CONTINUED, ON, able, asking, gateway, hear, sending};
use crate::support::client::Answer;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};

/// Asserts that the client received an error and was charged for what was delivered.
async fn is_an_error(gateway: &Gateway, form: Form, answer: &Answer, what: &str) {
    assert_eq!(answer.status(), 200, "{what}");
    assert!(form.stream_error(answer.text()).is_some(), "{what}: {}", answer.text());
    let log = gateway.wait_for_log(1).await;
    assert!(log[0]["cost"].as_f64().unwrap() > 0.0, "{what}: {}", log[0]);
    assert!(log[0]["error"].is_string(), "{what}: {}", log[0]);
}

fn begun(form: Form) -> String {
    let Frames { opening, content, .. } = frames(form, "msg_first", &pieces(STORY)[..6]);
    opening + &content.concat()
}

#[tokio::test]
async fn resume_is_off_unless_the_route_enables_it() {
    for lines in ["", "retry = { continue = false }"] {
        for form in [Form::Chat, Form::Messages, Form::Generate] {
            let gate = Gate::new();
            let one = sending(form, begun(form), Break::Cut, &gate).await;
            let two = going_on(form, false).await;
            let gateway = gateway(&[able(form, &one), able(form, &two)], lines).await;
            let answer = hear(&gateway, asking(form, json!({})), "dann:", &gate).await;
            is_an_error(&gateway, form, &answer, &format!("{form:?}")).await;
            assert_eq!(two.count(), 0);
            assert_eq!(gateway.metrics().await.sum(CONTINUED, &[]), 0.0);
        }
    }
}

fn chat(delta: &Value) -> String {
    let chunk = json!({"id": "chatcmpl-first", "object": "chat.completion.chunk", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    format!("data: {chunk}\n\n")
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// Returns a stream of the messages format that begins with reasoning.
fn thinking(more: &[Value]) -> String {
    let opening = frames(Form::Messages, "msg_first", &[]).opening;
    let start = json!({"type": "content_block_start", "index": 0,
                       "content_block": {"type": "thinking", "thinking": "", "signature": ""}});
    let thought = json!({"type": "content_block_delta", "index": 0,
                         "delta": {"type": "thinking_delta", "thinking": "Hm, dann"}});
    let before = opening.split("event: content_block_start").next().unwrap().to_owned();
    before + &event(&start) + &event(&thought) + &more.iter().map(event).collect::<String>()
}

/// Content and request parameters that prevent a continuation.
#[tokio::test]
async fn resume_is_refused_for_more_than_plain_text() {
    let call = chat(&json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                                            "function": {"name": "look", "arguments": "{\"a\":"}}]}));
    let signed = thinking(&[
        json!({"type": "content_block_delta", "index": 0,
               "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "dann:"}}),
    ]);
    let thought = json!({"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000});
    let schema = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}});
    let end = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                     "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let plain = || begun(Form::Chat);
    let refusal = chat(&json!({"refusal": "I will not."}));
    let cases = [
        (Form::Chat, plain() + &call, "look", json!({}), "content"),
        (Form::Chat, plain() + &refusal, "I will not", json!({}), "content"),
        (Form::Messages, signed, "dann:", thought.clone(), "thinking"),
        (Form::Messages, thinking(&[]), "dann", thought, "thinking"),
        (Form::Chat, plain(), "dann:", json!({"response_format": schema}), "request"),
        (Form::Chat, plain(), "dann:", json!({"response_format": {"type": "json_object"}}), "request"),
        (Form::Chat, plain(), "dann:", json!({"n": 2}), "request"),
        (Form::Chat, plain(), "dann:", json!({"logprobs": true}), "request"),
        (Form::Chat, plain() + &format!("data: {end}\n\n"), "\"stop\"", json!({}), "ended"),
    ];
    for (form, beginning, needle, more, outcome) in cases {
        let what = format!("{form:?}, {more}, {outcome}");
        let gate = Gate::new();
        let one = sending(form, beginning, Break::Cut, &gate).await;
        let two = going_on(form, false).await;
        let gateway = gateway(&[able(form, &one), able(form, &two)], ON).await;
        let answer = hear(&gateway, asking(form, more), needle, &gate).await;
        is_an_error(&gateway, form, &answer, &what).await;
        assert_eq!(two.count(), 0, "{what}");
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.sum(CONTINUED, &[("outcome", outcome)]), 1.0, "{what}");
        assert_eq!(metrics.sum(CONTINUED, &[]), 1.0, "{what}");
    }
}

/// A target without prefill support is not used; attempts, deadline and retry budget apply to continuations too.
#[tokio::test]
async fn resume_is_bounded_by_targets_attempts_deadline_and_budget() {
    for (lines, retry, outcome) in [
        ("", ON, "targets"),
        ("prefill = true", "retry = { continue = true, attempts = 1 }", "attempts"),
        ("prefill = true", "retry = { continue = true, deadline = \"0ms\" }", "deadline"),
        ("prefill = true", "retry = { continue = true, percent = 0, reserve = 0 }", "budget"),
    ] {
        let gate = Gate::new();
        let one = sending(Form::Chat, begun(Form::Chat), Break::Cut, &gate).await;
        let two = going_on(Form::Chat, false).await;
        let second = Asked { form: Form::Chat, upstream: &two, lines };
        let gateway = gateway(&[able(Form::Chat, &one), second], retry).await;
        let answer = hear(&gateway, asking(Form::Chat, json!({})), "dann:", &gate).await;
        is_an_error(&gateway, Form::Chat, &answer, outcome).await;
        assert_eq!(two.count(), 0, "{outcome}");
        assert_eq!(gateway.metrics().await.sum(CONTINUED, &[("outcome", outcome)]), 1.0, "{outcome}");
    }
}

/// If every continuation fails, the client receives the first target's error and pays for what was delivered.
#[tokio::test]
async fn resume_failing_everywhere_yields_the_error_of_the_first_target() {
    let gate = Gate::new();
    let one = sending(Form::Messages, begun(Form::Messages), Break::End, &gate).await;
    let two =
        Upstream::answering(reply::json(401, provider_error(Form::Messages, 401, "bad key of yours"))).await;
    let gateway = gateway(&[able(Form::Messages, &one), able(Form::Messages, &two)], ON).await;
    let answer = hear(&gateway, asking(Form::Messages, json!({})), "dann:", &gate).await;
    is_an_error(&gateway, Form::Messages, &answer, "all fail").await;
    let (_, message) = Form::Messages.stream_error(answer.text()).unwrap();
    assert!(message.contains("ended before it was complete"), "{message}");
    assert_eq!((one.count(), two.count()), (1, 1));
    let log = gateway.wait_for_log(1).await;
    assert_eq!(log[0]["error"], "upstream_broken", "{}", log[0]);
    assert!(!Form::Messages.looks_complete(answer.text()));
    assert!(std::panic::catch_unwind(|| read(Form::Messages, answer.text())).is_err());
}
