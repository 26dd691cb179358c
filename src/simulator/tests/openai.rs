//! Tests of the OpenAI API: chat completions, embeddings, models and errors.

use serde_json::{Value, json};

use super::super::{Options, SimulatedProvider, Simulator};
use super::client::{get, joined, post, send};
use super::start;

const CHAT: &str = "/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn tools() -> Value {
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object",
            "properties": {"city": {"type": "string"}}, "required": ["city"]}}})
    };
    json!([tool("get_weather"), tool("get_time")])
}

#[tokio::test]
async fn stream_has_the_content_and_usage_of_the_json_response() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let whole = post(&simulator, CHAT, &chat("Grüße 🤖")).await;
    assert_eq!(whole.header("content-type"), Some("application/json"));
    assert!(whole.header("x-request-id").unwrap().starts_with("req_"));
    for name in ["openai-processing-ms", "openai-version", "x-ratelimit-remaining-tokens"] {
        assert!(whole.header(name).is_some(), "{name}");
    }
    let whole = whole.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text, "You said: \"Grüße 🤖\". I am gpt-4o, simulated by OpenAI.");
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let stream = post(&simulator, CHAT, &with(chat("Grüße 🤖"), options)).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(stream.events().last().unwrap().1, "[DONE]");
    let data = stream.data();
    assert_eq!(joined(&data, "/choices/0/delta/content"), text);
    let last = data.last().unwrap();
    assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
    assert!(data[..data.len() - 1].iter().all(|chunk| chunk["usage"].is_null()));
    let plain = post(&simulator, CHAT, &with(chat("x"), json!({"stream": true}))).await;
    assert!(plain.data().iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn response_is_deterministic() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let text = async || post(&simulator, CHAT, &chat("x")).await.json()["choices"].clone();
    assert_eq!(text().await, text().await);
}

#[tokio::test]
async fn tool_calls_in_parallel_need_all_their_results() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let asked = with(chat("get_weather and get_time"), json!({"tools": tools()}));
    let stream = post(&simulator, CHAT, &with(asked.clone(), json!({"stream": true}))).await.data();
    let calls: Vec<&Value> =
        stream.iter().filter_map(|c| c.pointer("/choices/0/delta/tool_calls/0")).collect();
    for (index, name) in [(0, "get_weather"), (1, "get_time")] {
        let own: Vec<Value> = calls.iter().filter(|c| c["index"] == index).map(|c| (*c).clone()).collect();
        assert_eq!(own[0]["function"], json!({"name": name, "arguments": ""}));
        assert!(own.len() > 2 && own[1].get("id").is_none());
        assert_eq!(joined(&own, "/function/arguments"), r#"{"city":"example"}"#);
    }
    assert_eq!(stream.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    let message = post(&simulator, CHAT, &asked).await.json()["choices"][0]["message"].clone();
    let mut messages = vec![asked["messages"][0].clone(), message.clone()];
    let missing = post(&simulator, CHAT, &with(asked.clone(), json!({ "messages": messages }))).await;
    assert_eq!(missing.status, 400);
    assert!(missing.text().contains("did not have response messages: call_"));
    for call in message["tool_calls"].as_array().unwrap() {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "fine"}));
    }
    let answer = post(&simulator, CHAT, &with(asked, json!({ "messages": messages }))).await.json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        text.ends_with("The tool get_weather answered: fine. The tool get_time answered: fine."),
        "{text}"
    );
}

#[tokio::test]
async fn stream_choices_alternate() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let body = with(chat("x"), json!({"stream": true, "n": 2}));
    let data = post(&simulator, CHAT, &body).await.data();
    let order: Vec<u64> = data.iter().map(|c| c["choices"][0]["index"].as_u64().unwrap()).take(6).collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);
}

#[tokio::test]
async fn response_honors_schema_limit_and_reasoning() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                        "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
    let answer = post(&simulator, CHAT, &with(chat("x"), json!({"response_format": format}))).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], r#"{"n":1}"#);
    let answer = post(&simulator, CHAT, &with(chat("x"), json!({"max_tokens": 2}))).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    let answer = post(
        &simulator,
        CHAT,
        &with(chat("[[cached 2]] x"), json!({"model": "gpt-5.2", "reasoning_effort": "low"})),
    )
    .await
    .json();
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

#[tokio::test]
async fn request_invalid_is_refused_like_the_provider() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for (body, param, code) in [
        (json!({"model": "m"}), json!("messages"), json!("missing_required_parameter")),
        (json!({"model": "m", "messages": []}), json!("messages"), json!("empty_array")),
        (json!({"model": "m", "messages": "x"}), json!("messages"), json!("invalid_type")),
        (with(chat("x"), json!({"temperature": 3})), json!("temperature"), json!("decimal_above_max_value")),
        (with(chat("x"), json!({"n": 0})), json!("n"), json!("integer_below_min_value")),
        (
            with(chat("x"), json!({"model": "gpt-5", "max_tokens": 9})),
            json!("max_tokens"),
            json!("unsupported_parameter"),
        ),
        (with(chat("x"), json!({"stream_options": {}})), json!("stream_options"), Value::Null),
        (with(chat("x"), json!({"tool_choice": "auto"})), json!("tool_choice"), Value::Null),
        (with(chat("x"), json!({"top_k": 1})), Value::Null, Value::Null),
    ] {
        let answer = post(&simulator, CHAT, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{body}");
        assert_eq!((&error["param"], &error["code"]), (&param, &code), "{error}");
    }
    let answer = send(&simulator, "POST", CHAT, &[], b"{\"model\":").await;
    assert!(answer.status == 400 && answer.text().contains("We could not parse the JSON body"));
    let missing = post(&simulator, CHAT, &with(chat("x"), json!({"model": "missing-1"}))).await;
    assert_eq!((missing.status, &missing.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(
        get(&simulator, "/v1/nothing").await.json()["error"]["message"],
        "Invalid URL (GET /v1/nothing)"
    );
    assert_eq!(get(&simulator, CHAT).await.status, 405);
}

#[tokio::test]
async fn key_wrong_or_missing_is_refused_and_masked() {
    let options = Options { credential: Some("sk-right".into()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::OpenAi, options).await.unwrap();
    let ask = async |headers: &[(&str, &str)]| send(&simulator, "GET", "/v1/models", headers, b"").await;
    assert_eq!(ask(&[("authorization", "Bearer sk-right")]).await.status, 200);
    let wrong = ask(&[("authorization", "Bearer sk-wrong-wrong-wrong")]).await;
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    assert!(wrong.text().contains("sk-wrong********rong"));
    assert_eq!(ask(&[]).await.json()["error"]["code"], Value::Null);
    assert_eq!(ask(&[("x-api-key", "sk-right")]).await.status, 401);
}

#[tokio::test]
async fn embeddings_accept_text_or_tokens_and_return_floats_or_base64() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let embed = async |body: Value| post(&simulator, "/v1/embeddings", &body).await.json();
    let floats =
        embed(json!({"model": "text-embedding-3-small", "input": ["a", "b"], "dimensions": 4})).await;
    assert_eq!(floats["data"][1]["index"], 1);
    let vector: Vec<f64> = serde_json::from_value(floats["data"][0]["embedding"].clone()).unwrap();
    assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-6);
    let body = json!({"model": "text-embedding-3-small", "input": "a", "dimensions": 4, "encoding_format": "base64"});
    let base64 = embed(body).await;
    let bytes = super::super::ids::decode_base64(base64["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let decoded: Vec<f32> = bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(decoded, vector.iter().map(|x| *x as f32).collect::<Vec<f32>>());
    let tokens = embed(json!({"model": "text-embedding-3-large", "input": [[1, 2], [3]]})).await;
    assert_eq!(tokens["data"][0]["embedding"].as_array().unwrap().len(), 3072);
    assert_eq!(tokens["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    assert!(
        embed(json!({"model": "m", "input": []})).await["error"]["message"]
            .as_str()
            .unwrap()
            .contains("$.input")
    );
}
