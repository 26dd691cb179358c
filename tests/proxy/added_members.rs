//! Members that other providers have added to the chat format, for OpenAI, which refuses requests with unknown members.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::post_with;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};

#[tokio::test]
async fn added_members_are_not_sent_to_openai() {
    let openai = Simulator::start(SimulatedProvider::OpenAi, Options::default()).await.unwrap();
    let setup = Setup::new()
        .provider("strict", "openai", &openai.base_url(), "")
        .model("plain", "strict", "gpt-4o")
        .model("reasoning", "strict", "gpt-5.1");
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {KEY}");
    for model in ["plain", "reasoning"] {
        for (member, value, asked) in [
            ("thinking", Value::Null, None),
            ("enable_thinking", Value::Null, None),
            ("parameters", Value::Null, None),
            ("reasoning", Value::Null, None),
            ("thinking_budget", Value::Null, None),
            ("include_reasoning", Value::Null, None),
            ("thinking", json!({"type": "enabled"}), Some("medium")),
            ("thinking", json!({"type": "disabled"}), Some("none")),
            ("enable_thinking", json!(true), Some("medium")),
            (
                "parameters",
                json!({"enable_search": false, "incremental_output": true, "asr_options": {}, "search_options": {}}),
                None,
            ),
            ("reasoning", json!({"effort": "high"}), Some("high")),
            ("thinking_budget", json!(20_000), Some("high")),
            ("include_reasoning", json!(false), None),
        ] {
            for stream in [false, true] {
                // What the gateway does not know stays.
                let body = json!({"model": model, "stream": stream, member: value, "user": "u",
                                  "messages": [{"role": "user", "content": "Hello"}]});
                let headers = [("authorization", bearer.as_str())];
                let answer = gateway.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
                assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
                let sent: Value = serde_json::from_slice(&openai.last_request().unwrap().body).unwrap();
                assert!(sent.get(member).is_none() && sent["user"] == "u", "{sent}");
                let effort = asked.filter(|_| model == "reasoning");
                assert_eq!(sent.get("reasoning_effort").and_then(Value::as_str), effort, "{body}: {sent}");
                // A setting that the model does not have is not dropped in silence.
                let is_lost = model == "plain" && asked.is_some_and(|effort| effort != "none");
                let warning = answer.get("x-gateway-warning").unwrap_or_default();
                assert_eq!(warning.contains("reasoning_effort dropped"), is_lost, "{body}: {warning:?}");
            }
        }
    }
}
