//! Tests of prescribed responses, and of conversations that a coding client continues by itself.

use serde_json::{Value, json};

use super::super::{PrescribedResponse, SimulatedProvider, Simulator};
use super::client::{Answer, post};
use super::start;

const SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string"}}}"#;

/// Request in each format: provider, path, and body with a tool `shell`.
fn requests(stream: bool) -> Vec<(SimulatedProvider, &'static str, Value)> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let turn = json!([{"role": "user", "content": "Go on."}]);
    let method = match stream {
        true => "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        false => "/v1beta/models/gemini-2.5-flash:generateContent",
    };
    let options = if stream { json!({"include_usage": true}) } else { Value::Null };
    vec![
        (
            SimulatedProvider::OpenAi,
            "/v1/chat/completions",
            json!({"model": "gpt-4o", "messages": turn, "stream": stream, "stream_options": options,
                   "tools": [{"type": "function", "function": {"name": "shell", "parameters": schema}}]}),
        ),
        (
            SimulatedProvider::OpenAi,
            "/v1/responses",
            json!({"model": "gpt-4o", "input": turn, "stream": stream,
                   "tools": [{"type": "function", "name": "shell", "parameters": schema}]}),
        ),
        (
            SimulatedProvider::Anthropic,
            "/v1/messages",
            json!({"model": "claude-sonnet-4-6", "messages": turn, "stream": stream, "max_tokens": 1000,
                   "tools": [{"name": "shell", "input_schema": schema}]}),
        ),
        (
            SimulatedProvider::Google,
            method,
            json!({"contents": [{"role": "user", "parts": [{"text": "Go on."}]}],
                   "tools": [{"functionDeclarations": [{"name": "shell", "parameters": schema}]}]}),
        ),
    ]
}

fn without_tools(mut body: Value) -> Value {
    body.as_object_mut().unwrap().remove("tools");
    body
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.chunks.concat()).replace('\\', "")
}

fn call() -> PrescribedResponse {
    PrescribedResponse {
        text: "First.".to_owned(),
        calls: vec![("shell".to_owned(), json!({"command": "make test"}))],
        prompt_tokens: Some(4321),
        output_tokens: Some(678),
        ..PrescribedResponse::default()
    }
}

fn directed(directives: &str) -> PrescribedResponse {
    PrescribedResponse { directives: directives.to_owned(), ..call() }
}

#[tokio::test]
async fn scenario_is_followed_in_every_format() {
    for stream in [false, true] {
        for (provider, path, body) in requests(stream) {
            let simulator = start(provider).await;
            let end = PrescribedResponse { text: "All is done.".to_owned(), ..PrescribedResponse::default() };
            simulator.prescribe(Some("shell"), vec![directed("status 429 retry-after 2"), call(), end]);

            // A side request without the tool takes none of them.
            let side = post(&simulator, path, &without_tools(body.clone())).await;
            assert_eq!((side.status, simulator.prescribed_left()), (200, 3), "{path}");
            let limited = post(&simulator, path, &body).await;
            assert_eq!(limited.status, 429, "{path}");
            assert!(limited.headers.contains(&("retry-after".to_owned(), "2".to_owned())), "{path}");
            let called = text(&post(&simulator, path, &body).await);
            let expected = ["First.", "shell", "4321", "678"];
            assert!(expected.iter().all(|part| called.contains(part)), "{path}: {called}");
            post(&simulator, path, &body).await;
            assert_eq!(simulator.prescribed_left(), 0);
            assert_eq!(simulator.prescribed_requests().len(), 3);
            let after = text(&post(&simulator, path, &body).await);
            assert!(after.contains("simulated"), "{path}: {after}");
        }
    }
}

#[tokio::test]
async fn scenario_stream_can_be_cut() {
    for (provider, path, body) in requests(true) {
        let simulator: Simulator = start(provider).await;
        simulator.prescribe(None, vec![directed("cut 1")]);
        let answer = post(&simulator, path, &body).await;
        assert_eq!((answer.status, answer.complete), (200, false), "{path}");
    }
}

/// Coding clients add text with tool names behind the results of tools. The next response must be text.
#[tokio::test]
async fn tool_results_are_followed_by_text_if_the_client_adds_reminders() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": "{}"}});
    let body = json!({
        "model": "gpt-4o",
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": schema}}],
        "messages": [
            {"role": "user", "content": "Use the shell."},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "4 files"},
            {"role": "user", "content": "Reminder: the shell tool is there."}]});
    let answer = text(&post(&simulator, "/v1/chat/completions", &body).await);
    assert!(
        answer.contains("The tool shell answered: 4 files.") && !answer.contains("tool_calls"),
        "{answer}"
    );
}
