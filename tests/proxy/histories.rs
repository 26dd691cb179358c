//! What another model, another host or an interrupted agent has left in a conversation, and what the next provider gets of it.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

async fn ask(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    gateway.ask(post_with(path, &[("authorization", &bearer)], body.to_string())).await
}

#[tokio::test]
async fn members_of_other_hosts_in_a_chat_history_reach_no_provider_that_lacks_them() {
    let openai = Simulator::start(SimulatedProvider::OpenAi, Options::default()).await.unwrap();
    let compatible = Upstream::answering(reply::json(200, Form::Chat.whole("m"))).await;
    let base = format!("http://{}/v1", compatible.addr);
    let mut setup = Setup::new().provider("o", "openai", &openai.base_url(), "").model("gpt", "o", "gpt-4.1");
    for dialect in
        ["mistral", "groq", "deepseek", "moonshot", "glm", "vllm", "qwen", "ark", "ollama", "fireworks"]
    {
        let extra = format!("dialect = \"{dialect}\"");
        setup =
            setup.provider(dialect, "openai-compatible", &base, &extra).model(dialect, dialect, "some-model");
    }
    let gateway = Gateway::start(&setup).await;
    let body = |model: &str| {
        json!({"model": model, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
            "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Well.", "reasoning_content": "hm", "reasoning": "hm",
             "reasoning_details": [{"type": "reasoning.encrypted", "data": "SEAL", "id": "rs_1"}],
             "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "SEAL"}],
             "provider_specific_fields": {"thought_signatures": ["SEAL"]},
             "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "SEAL"}}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
            {"role": "user", "content": "Go on"},
        ]})
    };
    let answer = ask(&gateway, "/v1/chat/completions", &body("gpt")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let sent: Value = serde_json::from_slice(&openai.last_request().unwrap().body).unwrap();
    let mut expected = body("gpt");
    let message = expected["messages"][1].as_object_mut().unwrap();
    message.retain(|name, _| matches!(name.as_str(), "role" | "content" | "tool_calls"));
    message["tool_calls"][0].as_object_mut().unwrap().remove("extra_content");
    expected["model"] = json!("gpt-4.1");
    // Nothing else changes.
    assert_eq!(sent, expected);
    for dialect in
        ["mistral", "groq", "deepseek", "moonshot", "glm", "vllm", "qwen", "ark", "ollama", "fireworks"]
    {
        let answer = ask(&gateway, "/v1/chat/completions", &body(dialect)).await;
        assert_eq!(answer.status(), 200, "{dialect}: {}", answer.text());
        let sent = compatible.last_request().json();
        assert!(!sent.to_string().contains("SEAL"), "{dialect}: {sent}");
        let reasoning = match dialect {
            "mistral" | "groq" => [Value::Null, Value::Null],
            "vllm" | "ollama" => [Value::Null, json!("hm")],
            _ => [json!("hm"), Value::Null],
        };
        let message = &sent["messages"][1];
        let said = ["reasoning_content", "reasoning"].map(|name| message[name].clone());
        assert_eq!(said, reasoning, "{dialect}: {sent}");
    }
}

const SIGNATURE: &str = "0199c0de-7e57-4bad-9a1f-deadbeef0001";

/// Provider of another maker's model that speaks the messages format, in a stream and in a document.
async fn compatible() -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let blocks = [json!({"type": "thinking", "thinking": "hm", "signature": SIGNATURE}), json!({"type": "text", "text": "Well."})];
            if request.json()["stream"] != true {
                let answer = json!({"id": "m1", "type": "message", "role": "assistant", "model": "deepseek-v4-flash", "content": blocks,
                    "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 4}});
                conn.send(reply::json(200, answer.to_string())).await;
                continue;
            }
            let events = [
                json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "model": "deepseek-v4-flash",
                    "content": [], "stop_reason": null, "usage": {"input_tokens": 3, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": SIGNATURE}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Well."}}),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
                json!({"type": "message_stop"}),
            ];
            let stream: String = events
                .iter()
                .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
                .collect();
            conn.send(reply::whole(200, &[("content-type", "text/event-stream")], stream)).await;
        }
    })
    .await
}

/// Returns the signature in a response.
fn signature_of(answer: &Answer) -> String {
    let text = answer.text();
    let at = text.rfind("\"signature\":\"").unwrap() + 13;
    text[at..at + text[at..].find('"').unwrap()].to_owned()
}

#[tokio::test]
async fn signature_of_a_compatible_provider_returns_to_it_alone() {
    let (deepseek, other) = (compatible().await, compatible().await);
    let claude = Upstream::answering(reply::json(200, Form::Messages.whole("claude"))).await;
    let base = |upstream: &Upstream| format!("http://{}/v1", upstream.addr);
    let setup = Setup::new()
        .provider("deepseek", "anthropic", &base(&deepseek), "")
        .provider("other", "anthropic", &base(&other), "")
        .provider("anthropic", "anthropic", &base(&claude), "")
        .model("flash", "deepseek", "deepseek-v4-flash")
        .model("mini", "other", "MiniMax-M3")
        .model("claude", "anthropic", "claude-sonnet-4-5");
    let gateway = Gateway::start(&setup).await;
    let first = json!([{"role": "user", "content": "Hi"}]);
    for stream in [false, true] {
        let request = |model: &str, messages: &Value| {
            json!({"model": model, "max_tokens": 9000, "stream": stream, "thinking": {"type": "enabled", "budget_tokens": 2000},
                "messages": messages})
        };
        let answer = ask(&gateway, "/v1/messages", &request("flash", &first)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let signature = signature_of(&answer);
        assert!(
            !answer.text().contains(SIGNATURE) && signature.starts_with("gw1.deepseek."),
            "{}",
            answer.text()
        );
        let talk = |signature: &str| {
            json!([{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": signature}, {"type": "text", "text": "Well."}]},
                {"role": "user", "content": "Go on"}])
        };
        // To its issuer, as it gave it; nothing else changes.
        ask(&gateway, "/v1/messages", &request("flash", &talk(&signature))).await;
        let sent = deepseek.last_request().json();
        assert_eq!(sent, request("deepseek-v4-flash", &talk(SIGNATURE)));
        // To another compatible provider, which reads the reasoning; and so it does that of Claude.
        for foreign in [&*signature, "EqQBCkYIBRgCKkDw"] {
            ask(&gateway, "/v1/messages", &request("mini", &talk(foreign))).await;
            assert_eq!(other.last_request().json(), request("MiniMax-M3", &talk("")), "{foreign}");
        }
        // To Claude without it.
        ask(&gateway, "/v1/messages", &request("claude", &talk(&signature))).await;
        let sent = claude.last_request().json().to_string();
        assert!(
            !sent.contains("thinking\",\"thinking") && !sent.contains("gw1.") && sent.contains("Well."),
            "{sent}"
        );
        // Claude's own signature stays.
        ask(&gateway, "/v1/messages", &request("claude", &talk("EqQBCkYIBRgCKkDw"))).await;
        let sent = claude.last_request().json();
        assert_eq!(sent["messages"], talk("EqQBCkYIBRgCKkDw"));
    }
}

const UNANSWERED: &str =
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1.";

#[tokio::test]
async fn unanswered_call_is_mended_after_the_provider_has_refused_it() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": UNANSWERED}});
    let upstream = Upstream::start(move |mut conn| {
        let refusal = refusal.to_string();
        async move {
            while let Some(request) = conn.request().await {
                let is_answered = request.text().contains("\"tool_result\"");
                conn.send(match is_answered && !request.text().contains("refuse me") {
                    true => reply::json(200, Form::Messages.whole("claude")),
                    false => reply::json(400, &refusal),
                })
                .await;
            }
        }
    })
    .await;
    let setup = Setup::new()
        .provider("anthropic", "anthropic", &format!("http://{}/v1", upstream.addr), "")
        .model("claude", "anthropic", "claude-sonnet-4-5");
    let gateway = Gateway::start(&setup).await;
    let request = |talk: Value| {
        json!({"model": "claude", "max_tokens": 900, "messages": talk,
            "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]})
    };
    let call = json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}});
    let interrupted = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [call]},
        {"role": "user", "content": "What now?"}]);
    for count in [2, 4] {
        let answer = ask(&gateway, "/v1/messages", &request(interrupted.clone())).await;
        assert_eq!((answer.status(), upstream.count()), (200, count), "{}", answer.text());
        assert_eq!(answer.get("x-gateway-warning"), Some("tool_result_placeholder added"));
    }
    let sent = upstream.last_request().json();
    let result = &sent["messages"][2]["content"][0];
    assert_eq!((&result["tool_use_id"], &result["is_error"]), (&json!("t1"), &json!(true)), "{sent}");
    // A conversation that is whole is sent once: the refusal is the answer.
    let whole = json!([{"role": "user", "content": "refuse me"}, {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}]);
    let answer = ask(&gateway, "/v1/messages", &request(whole)).await;
    assert_eq!((answer.status(), upstream.count()), (400, 5), "{}", answer.text());
    assert!(answer.text().contains("immediately after"), "{}", answer.text());
}
