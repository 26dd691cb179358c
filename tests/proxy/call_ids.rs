//! Tool call ids for providers that send none: unique across requests, even if their clients reuse a request id.

use serde_json::json;

use crate::support::client::post_with;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

#[tokio::test]
async fn tool_call_ids_differ_between_requests_with_one_request_id() {
    let answer = json!({"candidates": [{"content": {"role": "model", "parts": [
        {"functionCall": {"name": "look", "args": {"q": 1}}}, {"functionCall": {"name": "look", "args": {"q": 2}}}
    ]}, "finishReason": "STOP", "index": 0}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}});
    let upstream = Upstream::answering(reply::json(200, answer.to_string())).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("x-request-id", "session-1")];
    let mut ids = Vec::new();
    for _ in 0..3 {
        for (path, body) in [
            (
                "/v1/chat/completions",
                json!({"model": "gemini", "messages": [{"role": "user", "content": "a"}]}),
            ),
            (
                "/v1/messages",
                json!({"model": "gemini", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
            ),
            ("/v1/responses", json!({"model": "gemini", "input": "a"})),
        ] {
            let answer = gateway.ask(post_with(path, &headers, body.to_string())).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert_eq!(answer.get("x-request-id"), Some("session-1"));
            let answer = answer.json();
            let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
            let calls = calls.or(answer["content"].as_array()).or(answer["output"].as_array()).unwrap();
            let id = |call: &serde_json::Value| call.get("call_id").or(call.get("id")).unwrap().to_string();
            let calls = calls.iter().filter(|call| call.to_string().contains("look"));
            ids.extend(calls.map(id));
            // The id of the response.
            ids.push(answer["id"].to_string());
        }
    }
    assert_eq!(ids.len(), 27, "{ids:?}");
    let before = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), before, "{ids:?}");
}
