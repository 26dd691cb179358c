//! Tests of the Anthropic API: messages, token counting, models and errors.

use serde_json::{Value, json};

use super::super::{Options, SimulatedProvider, Simulator};
use super::client::{Answer, get, joined, post, send};
use super::start;

const MESSAGES: &str = "/v1/messages";

fn message(content: Value, more: Value) -> Value {
    let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 4000,
                          "messages": [{"role": "user", "content": content}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn tools() -> Value {
    let tool = |name: &str| {
        json!({"name": name, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                                              "required": ["city"]}})
    };
    json!([tool("get_weather"), tool("get_time")])
}

fn kinds(answer: &Answer) -> Vec<String> {
    let mut kinds: Vec<String> = answer.events().into_iter().map(|(name, _)| name).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn stream_has_the_content_and_usage_of_the_json_response() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    let whole = post(&simulator, MESSAGES, &message(json!("Grüße"), json!({}))).await;
    assert!(whole.header("request-id").unwrap().starts_with("req_"));
    for name in ["anthropic-organization-id", "anthropic-ratelimit-tokens-reset"] {
        assert!(whole.header(name).is_some(), "{name}");
    }
    let whole = whole.json();
    assert_eq!(
        whole["content"][0]["text"],
        "You said: \"Grüße\". I am claude-sonnet-4-5, simulated by Anthropic."
    );
    let stream = post(&simulator, MESSAGES, &message(json!("Grüße"), json!({"stream": true}))).await;
    assert_eq!(
        kinds(&stream),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let data = stream.data();
    assert_eq!(joined(&data, "/delta/text"), whole["content"][0]["text"].as_str().unwrap());
    let delta = &data[data.len() - 2];
    assert_eq!(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    assert_eq!(data[0]["message"]["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
    let count = json!({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Grüße"}]});
    let count = post(&simulator, "/v1/messages/count_tokens", &count).await.json();
    assert_eq!(count["input_tokens"], whole["usage"]["input_tokens"]);
}

#[tokio::test]
async fn thinking_with_tools_is_verified_in_the_second_turn() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    let more = json!({"tools": tools(), "thinking": {"type": "enabled", "budget_tokens": 1024}});
    let asked = message(json!("get_weather and get_time"), more);
    let first = post(&simulator, MESSAGES, &asked).await.json();
    assert_eq!((&first["stop_reason"], first["content"].as_array().unwrap().len()), (&json!("tool_use"), 3));
    let mut streamed = asked.clone();
    streamed["stream"] = json!(true);
    let data = post(&simulator, MESSAGES, &streamed).await.data();
    assert_eq!(joined(&data, "/delta/thinking"), first["content"][0]["thinking"].as_str().unwrap());
    assert_eq!(joined(&data, "/delta/signature"), first["content"][0]["signature"].as_str().unwrap());
    let second: Vec<Value> = data.iter().filter(|event| event["index"] == 2).cloned().collect();
    assert_eq!(second[1]["delta"]["partial_json"], "");
    assert_eq!(joined(&second, "/delta/partial_json"), r#"{"city":"example"}"#);

    let result = |at: usize| json!({"type": "tool_result", "tool_use_id": first["content"][at]["id"], "content": "fine"});
    let mut next = asked.clone();
    next["messages"] = json!([asked["messages"][0], {"role": "assistant", "content": first["content"]},
                              {"role": "user", "content": [result(1), result(2)]}]);
    let answer = post(&simulator, MESSAGES, &next).await.json();
    let text = answer["content"][1]["text"].as_str().unwrap();
    assert!(
        text.ends_with("The tool get_weather answered: fine. The tool get_time answered: fine."),
        "{text}"
    );

    let refused = async |change: &dyn Fn(&mut Value)| {
        let mut changed = next.clone();
        change(&mut changed["messages"]);
        let answer = post(&simulator, MESSAGES, &changed).await;
        assert_eq!(answer.status, 400);
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let forged = refused(&|messages| messages[1]["content"][0]["thinking"] = json!("something else")).await;
    assert_eq!(forged, "messages.1.content.0: Invalid `signature` in `thinking` block");
    let bare = refused(&|messages| drop(messages[1]["content"].as_array_mut().unwrap().remove(0))).await;
    assert!(bare.starts_with("messages.1.content.0.type: Expected `thinking`"), "{bare}");
    let alone = refused(&|messages| drop(messages[2]["content"].as_array_mut().unwrap().pop())).await;
    assert!(alone.starts_with("messages.1: `tool_use` ids were found without"), "{alone}");
}

#[tokio::test]
async fn prompt_cache_is_written_and_read() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    let system =
        json!([{"type": "text", "text": "word ".repeat(2000), "cache_control": {"type": "ephemeral"}}]);
    let usage = async |text: &str| {
        let body = message(json!(text), json!({ "system": system }));
        post(&simulator, MESSAGES, &body).await.json()["usage"].clone()
    };
    let first = usage("a").await;
    assert_eq!(first["cache_creation"]["ephemeral_5m_input_tokens"], first["cache_creation_input_tokens"]);
    assert!(first["cache_creation_input_tokens"].as_u64() > Some(2000));
    let second = usage("b").await;
    assert_eq!(second["cache_read_input_tokens"], first["cache_creation_input_tokens"]);
    assert_eq!((&second["input_tokens"], &second["cache_creation_input_tokens"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn stop_reason_is_the_same_in_json_and_stream() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    for (more, text, reason) in [
        (json!({"max_tokens": 2}), "x", "max_tokens"),
        (json!({"stop_sequences": ["simulated"]}), "x", "stop_sequence"),
        (json!({}), "[[refuse]]", "refusal"),
    ] {
        let answer = post(&simulator, MESSAGES, &message(json!(text), more.clone())).await.json();
        assert_eq!(answer["stop_reason"], reason);
        let mut streamed = message(json!(text), more);
        streamed["stream"] = json!(true);
        let data = post(&simulator, MESSAGES, &streamed).await.data();
        let delta = &data[data.len() - 2]["delta"];
        for name in ["stop_reason", "stop_sequence", "stop_details"] {
            assert_eq!(delta[name], answer[name], "{name}");
        }
    }
}

#[tokio::test]
async fn headers_version_and_key_are_checked() {
    let options = Options { credential: Some("key".into()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::Anthropic, options).await.unwrap();
    let ask = async |headers: &[(&str, &str)], body: Value| {
        let answer = send(&simulator, "POST", MESSAGES, headers, body.to_string().as_bytes()).await;
        let error = answer.json()["error"].clone();
        (answer.status, error["type"].as_str().unwrap_or_default().to_owned(), error["message"].clone())
    };
    let plain = message(json!("x"), json!({}));
    let warm = message(json!("x"), json!({"temperature": 1.0}));
    let (old, new) = (("anthropic-version", "2023-06-01"), ("anthropic-version", "2026-10-21"));
    let bearer = ("authorization", "Bearer key");
    assert_eq!(ask(&[("x-api-key", "key"), old], warm.clone()).await.0, 200);
    assert_eq!(ask(&[bearer, new], plain.clone()).await.0, 200);
    assert_eq!(ask(&[bearer, new], warm).await.2, "temperature: Extra inputs are not permitted");
    assert_eq!(ask(&[bearer], plain.clone()).await.2, "anthropic-version: header is required");
    for headers in [&[old][..], &[("x-api-key", "no"), old], &[("authorization", "Bearer no"), old]] {
        let (status, kind, _) = ask(headers, plain.clone()).await;
        assert_eq!((status, kind.as_str()), (401, "authentication_error"));
    }
}

#[tokio::test]
async fn request_invalid_is_refused_like_the_provider() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    for (body, part) in [
        (json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}), "max_tokens: Field required"),
        (json!({"model": "m", "max_tokens": 5}), "messages: Field required"),
        (
            json!({"model": "m", "max_tokens": 5, "messages": []}),
            "messages: at least one message is required",
        ),
        (json!({"model": "m", "max_tokens": 5, "messages": ["x"]}), "messages.0: Input does not match"),
        (
            json!({"model": "m", "max_tokens": "5", "messages": [{}]}),
            "max_tokens: Input should be a valid integer",
        ),
        (message(json!([]), json!({})), "user messages must have non-empty content"),
        (
            message(json!([{"type": "image_url"}]), json!({})),
            "messages.0.content.0: Input tag 'image_url' found",
        ),
        (message(json!("x"), json!({"top_k": -1})), "top_k: Input should be greater than or equal to 0"),
        (message(json!("x"), json!({"logprobs": true})), "logprobs: Extra inputs are not permitted"),
        (message(json!("x"), json!({"service_tier": "default"})), "service_tier: Input should be"),
        (message(json!("x"), json!({"mcp_servers": []})), "mcp_servers: Extra inputs are not permitted"),
        (message(json!("x"), json!({"context_management": {}})), "context_management: Extra inputs"),
        (
            message(json!("x"), json!({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]})),
            "tools.0.custom.name: String",
        ),
        (
            message(json!("x"), json!({"thinking": {"type": "enabled", "budget_tokens": 5000}})),
            "`max_tokens` must be greater",
        ),
    ] {
        let answer = post(&simulator, MESSAGES, &body).await;
        let error = answer.json();
        assert_eq!((answer.status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
        assert_eq!(error["request_id"].as_str(), answer.header("request-id"));
        let text = error["error"]["message"].as_str().unwrap();
        assert!(text.contains(part), "{body}: {text}");
    }
    let missing = post(&simulator, MESSAGES, &message(json!("x"), json!({"model": "missing-1"}))).await;
    assert_eq!((missing.status, &missing.json()["error"]["type"]), (404, &json!("not_found_error")));
    assert_eq!(get(&simulator, "/v1/nothing").await.json()["error"]["type"], "not_found_error");
    assert_eq!(get(&simulator, MESSAGES).await.status, 405);
}

#[tokio::test]
async fn models_are_listed_in_pages() {
    let simulator = start(SimulatedProvider::Anthropic).await;
    let first = get(&simulator, "/v1/models?limit=2").await.json();
    assert_eq!((&first["has_more"], first["data"].as_array().unwrap().len()), (&json!(true), 2));
    let path = format!("/v1/models?limit=100&after_id={}", first["last_id"].as_str().unwrap());
    let rest = get(&simulator, &path).await.json();
    assert_eq!((&rest["has_more"], rest["data"].as_array().unwrap().len()), (&json!(false), 4));
    assert_eq!(get(&simulator, "/v1/models/anything").await.json()["type"], "model");
}

#[tokio::test]
async fn platform_vertex_has_the_model_in_the_path_and_the_version_in_the_body() {
    let options = Options { credential: Some("token".into()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::ClaudeVertex, options).await.unwrap();
    let path = "/v1/projects/p/locations/global/publishers/anthropic/models/claude-sonnet-4-5@20250929";
    let (bearer, key) = (("authorization", "Bearer token"), ("x-api-key", "token"));
    let mut body = message(json!("x"), json!({"anthropic_version": "vertex-2023-10-16"}));
    let model = body.as_object_mut().unwrap().remove("model").unwrap();
    let ask = async |header, verb: &str, body: &Value| {
        let path = format!("{path}:{verb}");
        send(&simulator, "POST", &path, &[header], body.to_string().as_bytes()).await
    };
    let answer = ask(bearer, "rawPredict", &body).await;
    assert_eq!((answer.status, &answer.json()["model"]), (200, &json!("claude-sonnet-4-5@20250929")));
    assert_eq!(ask(key, "rawPredict", &body).await.status, 401, "a key is of no use");
    assert_eq!(ask(bearer, "streamRawPredict", &body).await.status, 400, "`stream` does not fit");
    assert_eq!(ask(bearer, "predict", &body).await.status, 404);
    let changed = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    for (body, part) in [
        (changed("model", model), "model: Extra inputs are not permitted"),
        (
            changed("anthropic_version", json!("2023-06-01")),
            "anthropic_version: \"2023-06-01\" is not supported",
        ),
    ] {
        let answer = ask(bearer, "rawPredict", &body).await;
        assert_eq!((answer.status, answer.json()["error"]["message"].as_str()), (400, Some(part)));
    }
}

#[tokio::test]
async fn platform_foundry_takes_a_key_or_a_token_below_its_own_path() {
    let options = Options { credential: Some("key".into()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::ClaudeFoundry, options).await.unwrap();
    let body = message(json!("x"), json!({})).to_string();
    let version = ("anthropic-version", "2023-06-01");
    for (path, header, status) in [
        ("/anthropic/v1/messages", ("api-key", "key"), 200),
        ("/anthropic/v1/messages", ("authorization", "Bearer key"), 200),
        ("/anthropic/v1/messages", ("api-key", "other"), 401),
        ("/v1/messages", ("api-key", "key"), 404),
    ] {
        let answer = send(&simulator, "POST", path, &[header, version], body.as_bytes()).await;
        assert_eq!(answer.status, status, "{path} {header:?}");
    }
}
