//! The operator's file over the catalogue decides what requests to a model contain, from one load of it to the next.

use serde_json::{Value, json};

use crate::support::client::{post, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

/// Takes from GPT-5.2 what the embedded catalogue says that it takes.
const NARROW: &str = r#"
schema = 1
[sources]
test = "a test"

[[model]]
id = "gpt-5.2"
efforts = ["low", "high"]
efforts_chat = ["low", "high"]
default = "low"
off = "no"
forced = false
role = "system"
limit = "max_tokens"
input = ["text"]
sampling = "no"
tokenizer = "claude-new"
source = ["test"]

[[provider]]
id = "ours"
family = "house"
source = ["test"]

[[family]]
id = "house"
maker = "ourselves"
match = ["house-model"]
reasoning = "effort"
efforts = ["low"]
input = ["text"]
source = ["test"]

[[serving]]
provider = "ours"
families = ["house"]
input = ["text", "image"]
source = ["test"]
"#;

/// A later edition of it.
const WIDE: &str = r#"
schema = 1
[sources]
test = "a test"

[[model]]
id = "gpt-5.2"
efforts = ["medium", "high", "xhigh", "max"]
efforts_chat = ["medium"]
role = "developer"
source = ["test"]
"#;

fn setup(upstream: &Upstream) -> Setup {
    let base = format!("http://{}/v1", upstream.addr);
    Setup::new()
        .top("catalogue = \"models.toml\"")
        .file("models.toml", NARROW)
        .provider("openai", "openai", &base, "apis = [\"chat\"]")
        .provider("ours", "openai-compatible", &base, "apis = [\"chat\"]")
        .model("gpt-5.2", "openai", "gpt-5.2")
        .model("house-model", "ours", "house-model")
}

/// Sends a request of another format and returns what the provider got.
async fn sent(gateway: &Gateway, upstream: &Upstream, model: &str, effort: &str) -> Value {
    let body = json!({
        "model": model, "max_tokens": 900, "system": "Be brief.", "temperature": 0.5,
        "thinking": {"type": "adaptive"}, "output_config": {"effort": effort},
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}], "tool_choice": {"type": "any"},
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Hi"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        ]}],
    });
    let bearer = format!("Bearer {KEY}");
    let answer = gateway
        .ask(post_with(&Form::Messages.path("", false), &[("authorization", &bearer)], body.to_string()))
        .await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    upstream.last_request().json()
}

/// Returns the tokens that the gateway counts.
async fn counted(gateway: &Gateway, model: &str) -> u64 {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    let body =
        json!({"model": model, "max_tokens": 5, "messages": [{"role": "user", "content": text}]}).to_string();
    let answer = gateway.ask(post("/v1/messages/count_tokens", body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()["input_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn operators_file_decides_what_a_request_contains() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    let body = sent(&gateway, &upstream, "gpt-5.2", "medium").await;
    assert_eq!(body["reasoning_effort"], "high", "{body}");
    assert_eq!(body["messages"][0]["role"], "system", "{body}");
    assert_eq!((&body["max_tokens"], &body["max_completion_tokens"]), (&json!(900), &Value::Null), "{body}");
    assert_eq!((&body["tool_choice"], &body["temperature"]), (&json!("auto"), &Value::Null), "{body}");
    assert!(!body.to_string().contains("image_url"), "{body}");
    let narrow = counted(&gateway, "gpt-5.2").await;

    gateway.replace("models.toml", WIDE);
    gateway.reload("applied").await;
    let body = sent(&gateway, &upstream, "gpt-5.2", "max").await;
    assert_eq!(body["reasoning_effort"], "medium", "{body}");
    assert_eq!(body["messages"][0]["role"], "developer", "{body}");
    assert_eq!(body["max_completion_tokens"], 900, "{body}");
    assert_eq!(body["tool_choice"], "required", "{body}");
    assert!(body.to_string().contains("image_url"), "{body}");
    let wide = counted(&gateway, "gpt-5.2").await;
    assert!(narrow > wide * 12 / 10, "another tokenizer: {narrow} and {wide} tokens");

    // A file that is wrong changes nothing.
    gateway.replace("models.toml", &WIDE.replace("\"medium\"", "\"median\""));
    gateway.reload("refused").await;
    let body = sent(&gateway, &upstream, "gpt-5.2", "max").await;
    assert_eq!(body["reasoning_effort"], "medium", "{body}");
}

#[tokio::test]
async fn operators_file_decides_over_verbatim_requests_too() {
    // A chosen effort that the file refuses is adapted after the provider's refusal, and an image at once.
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&setup(&upstream)).await;
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let ask = json!({"model": "gpt-5.2", "messages": [{"role": "user", "content": [image]}]});
    for (edition, reads) in [(NARROW, false), (WIDE, true)] {
        gateway.replace("models.toml", edition);
        gateway.reload("applied").await;
        let bearer = format!("Bearer {KEY}");
        let head = [("authorization", &*bearer)];
        let answer = gateway.ask(post_with(&Form::Chat.path("", false), &head, ask.to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(upstream.last_request().text().contains("image_url"), reads, "{}", answer.text());
    }
}

#[tokio::test]
async fn row_under_the_name_of_a_provider_holds_at_that_provider() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = setup(&upstream).model("unheard-of", "ours", "unheard-of");
    let gateway = Gateway::start(&setup).await;
    let body = sent(&gateway, &upstream, "house-model", "max").await;
    assert!(
        body.to_string().contains("image_url"),
        "the family reads text, and images at this provider: {body}"
    );
    let body = sent(&gateway, &upstream, "unheard-of", "max").await;
    assert!(body.to_string().contains("image_url"), "unknown models are taken for the same family: {body}");
}
