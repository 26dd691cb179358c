//! Token counting endpoints: the gateway counts without calling a provider.

use serde_json::{Value, json};

use super::support::client::{post, post_with, request};
use super::support::form::Form;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{KEY, NARROW_KEY, Setup, provider_of};
use super::support::upstream::Upstream;

/// Starts a gateway whose provider answers every request with 500.
async fn alone() -> (Gateway, Upstream) {
    let upstream = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(reply::json(500, "{}")).await;
        }
    })
    .await;
    (Gateway::start(&Setup::providers(upstream.addr)).await, upstream)
}

async fn counted(gateway: &Gateway, path: &str, body: Value) -> Value {
    let answer = gateway.ask(post(path, body.to_string())).await;
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn count_tokens_answers_in_each_format() {
    let (gateway, upstream) = alone().await;
    let text = "Hello, how are you today?";
    let count = counted(
        &gateway,
        "/v1/messages/count_tokens",
        json!({"model": "claude", "messages": [{"role": "user", "content": text}], "max_tokens": 5}),
    )
    .await;
    let tokens = count["input_tokens"].as_u64().unwrap();
    assert!((7..=20).contains(&tokens), "{count}");
    let contents = json!([{"role": "user", "parts": [{"text": text}]}]);
    for version in ["v1beta", "v1"] {
        let path = format!("/{version}/models/claude:countTokens");
        let count = counted(&gateway, &path, json!({"contents": contents})).await;
        let details = json!([{"modality": "TEXT", "tokenCount": tokens}]);
        assert_eq!(count, json!({"totalTokens": tokens, "promptTokensDetails": details}));
        let whole = json!({"generateContentRequest": {"model": "models/claude", "contents": contents}});
        assert_eq!(counted(&gateway, &path, whole).await["totalTokens"], tokens);
    }
    let count =
        counted(&gateway, "/v1/responses/input_tokens", json!({"model": "claude", "input": text})).await;
    assert_eq!(count, json!({"object": "response.input_tokens", "input_tokens": tokens}));
    assert_eq!((upstream.connections(), upstream.count()), (0, 0), "no provider is asked");
}

#[tokio::test]
async fn count_tokens_includes_all_input_and_no_output_settings() {
    let (gateway, _upstream) = alone().await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let count = |body: Value| {
        let gateway = &gateway;
        async move {
            let answer = counted(gateway, "/v1/messages/count_tokens", body).await;
            answer["input_tokens"].as_u64().unwrap()
        }
    };
    let plain = count(json!({"model": "claude", "messages": messages})).await;
    let limited = json!({"model": "claude", "messages": messages, "max_tokens": 9, "stop_sequences": ["x"],
                         "temperature": 0.5, "stream": true});
    assert_eq!(count(limited).await, plain);
    let text = "You are a very terse assistant.";
    let blocks = json!([{"type": "text", "text": text}]);
    let blocks = count(json!({"model": "claude", "messages": messages, "system": blocks})).await;
    assert!(blocks >= plain + 7, "{blocks}");
    let string = count(json!({"model": "claude", "messages": messages, "system": text})).await;
    assert!(string >= plain + 7 && string.abs_diff(blocks) <= 3, "{string} {blocks}");
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let turns = [turn("user", "Hello"), turn("assistant", text), turn("user", text)];
    let several = count(json!({"model": "claude", "messages": turns})).await;
    assert!(several >= plain + 14, "each message counts: {several}");
    let tool = json!({"name": "get_weather", "description": "Weather of a city",
                      "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}});
    let tool = count(json!({"model": "claude", "messages": messages, "tools": [tool]})).await;
    assert!(tool >= plain + 20, "{tool}");
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let linked = json!({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}});
    let pictures = json!([{"role": "user", "content": [image, linked]}]);
    let pictures = count(json!({"model": "claude", "messages": pictures})).await;
    assert!((2_000..2_020).contains(&pictures), "{pictures}");
}

#[tokio::test]
async fn count_tokens_invalid_member_is_named() {
    let (gateway, _upstream) = alone().await;
    let messages = json!([{"role": "user", "content": "x"}]);
    for (path, body, field) in [
        ("/v1/messages/count_tokens", json!({"model": "claude"}), "messages"),
        ("/v1/messages/count_tokens", json!({"messages": messages}), "model"),
        (
            "/v1/messages/count_tokens",
            json!({"model": "claude", "messages": [{"content": "x"}]}),
            "messages[0].role",
        ),
        ("/v1/messages/count_tokens", json!({"model": "claude", "messages": "x"}), "messages"),
        ("/v1/responses/input_tokens", json!({"model": "gpt"}), "input"),
        ("/v1beta/models/gemini:countTokens", json!({}), "contents"),
        ("/v1beta/models/gemini:countTokens", json!({"contents": []}), "contents"),
    ] {
        let answer = gateway.ask(post(path, body.to_string())).await;
        let told = answer.json();
        assert_eq!(answer.status(), 400, "{path}: {told}");
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(field), "{path}: {message}");
        if path.contains("messages") {
            assert_eq!(
                (&told["type"], &told["error"]["type"]),
                (&json!("error"), &json!("invalid_request_error"))
            );
        }
    }
}

#[tokio::test]
async fn count_tokens_requires_key_model_and_permission() {
    let (gateway, _upstream) = alone().await;
    let body =
        |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]}).to_string();
    let path = "/v1/messages/count_tokens";
    for (key, model, status, kind) in [
        ("wrong", "claude", 401, "invalid_request_error"),
        (NARROW_KEY, "claude", 403, "authentication_error"),
        (KEY, "nobody", 404, "not_found_error"),
    ] {
        let answer = gateway.ask(post_with(path, &[("x-api-key", key)], body(model))).await;
        assert_eq!((answer.status(), &answer.json()["error"]["type"]), (status, &json!(kind)), "{model}");
    }
    let answer = gateway.ask(request("GET", path, &[("x-api-key", KEY)])).await;
    assert_eq!((answer.status(), answer.get("allow")), (405, Some("POST")));
    // Metrics are updated after the response has been sent.
    let refused = [("endpoint", "count_tokens"), ("status", "403")];
    gateway.wait_for_metric("gateway_requests_total", &refused, 1.0).await;
}

/// A conversation has the same token count in every format. No provider is called, also if the model's provider has a
/// counting endpoint of its own.
#[tokio::test]
async fn count_tokens_is_equal_in_all_formats() {
    let upstream = Upstream::start(|_| async {}).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    let (system, asked, said, more) = ("Be brief.", "What is 2 + 2?", "It is 4.", "And 你好?");
    for form in Form::ALL {
        let model = provider_of(form);
        let path = format!("/v1beta/models/{model}:countTokens");
        let parts = |text: &str| json!([{"text": text}]);
        let messages = json!([{"role": "user", "content": asked}, {"role": "assistant", "content": said},
                              {"role": "user", "content": [{"type": "text", "text": more}]}]);
        let counts = [
            (
                "/v1/messages/count_tokens",
                json!({"model": model, "system": system, "messages": messages}),
                "input_tokens",
            ),
            (
                "/v1/responses/input_tokens",
                json!({"model": model, "instructions": system, "input": [
                    {"role": "user", "content": asked}, {"role": "assistant", "content": said},
                    {"role": "user", "content": [{"type": "input_text", "text": more}]}]}),
                "input_tokens",
            ),
            (
                &path,
                json!({"systemInstruction": {"parts": parts(system)}, "contents": [
                    {"role": "user", "parts": parts(asked)}, {"role": "model", "parts": parts(said)},
                    {"role": "user", "parts": parts(more)}]}),
                "totalTokens",
            ),
        ];
        let mut found = Vec::new();
        for (path, body, name) in counts {
            found.push(counted(&gateway, path, body).await[name].as_u64().unwrap());
        }
        assert!(found[0] > 20 && found.iter().all(|count| *count == found[0]), "{model}: {found:?}");
    }
    assert_eq!((upstream.connections(), upstream.count()), (0, 0), "no provider is called");
}
