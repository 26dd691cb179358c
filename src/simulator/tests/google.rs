//! Tests of the Gemini API: generation, token counting, embeddings, models and errors.

use serde_json::{Value, json};

use super::super::{Options, SimulatedProvider, Simulator};
use super::client::{get, joined, post, send};
use super::start;

fn path(model: &str, action: &str) -> String {
    format!("/v1beta/models/{model}:{action}")
}

fn generate(text: &str, more: Value) -> Value {
    let mut body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn tools() -> Value {
    let function = |name: &str| json!({"name": name, "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}});
    json!([{"functionDeclarations": [function("get_weather"), function("get_time")]}])
}

#[tokio::test]
async fn stream_as_events_or_array_has_the_content_of_the_json() {
    let simulator = start(SimulatedProvider::Google).await;
    let body = generate("Grüße", json!({}));
    let whole = post(&simulator, &path("gemini-2.5-flash", "generateContent"), &body).await;
    assert_eq!(whole.header("content-type"), Some("application/json; charset=UTF-8"));
    assert!(whole.header("server-timing").is_some());
    let whole = whole.json();
    let text = whole["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap();
    assert_eq!(text, "You said: \"Grüße\". I am gemini-2.5-flash, simulated by Google.");
    let stream = path("gemini-2.5-flash", "streamGenerateContent");
    let events = post(&simulator, &format!("{stream}?alt=sse"), &body).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let raw = events.text();
    assert!(
        raw.starts_with("data: {\"candidates\": [") && raw.ends_with("}\r\n\r\n") && !raw.contains("[DONE]")
    );
    let array = post(&simulator, &stream, &body).await;
    assert!(array.chunks.len() > 3);
    for frames in [events.data(), serde_json::from_value(array.json()).unwrap()] {
        assert_eq!(joined(&frames, "/candidates/0/content/parts/0/text"), text);
        assert!(frames.iter().all(|frame| frame["usageMetadata"]["promptTokenCount"] == 2));
        let last = frames.last().unwrap();
        assert_eq!(last["usageMetadata"], whole["usageMetadata"]);
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    }
}

#[tokio::test]
async fn signature_of_calls_is_checked_in_the_next_turn() {
    let simulator = start(SimulatedProvider::Google).await;
    for (model, needed) in [("gemini-3-pro-preview", true), ("gemini-2.5-flash", false)] {
        let config = json!({"thinkingConfig": {"includeThoughts": true}});
        let asked = generate("get_weather, get_time", json!({"tools": tools(), "generationConfig": config}));
        let first = post(&simulator, &path(model, "generateContent"), &asked).await.json();
        let parts = first["candidates"][0]["content"]["parts"].as_array().unwrap().clone();
        assert_eq!(
            (&parts[0]["thought"], &parts[1]["functionCall"]["name"]),
            (&json!(true), &json!("get_weather"))
        );
        assert!(parts[1]["thoughtSignature"].is_string() && parts[2].get("thoughtSignature").is_none());
        assert_eq!(parts[1]["functionCall"]["id"].is_string(), needed);
        assert_eq!(first["candidates"][0]["finishReason"], "STOP");
        let again = async |change: &dyn Fn(&mut Value)| {
            let result =
                |name: &str| json!({"functionResponse": {"name": name, "response": {"output": "fine"}}});
            let mut body = asked.clone();
            body["contents"] = json!([asked["contents"][0], {"role": "model", "parts": parts[1..].to_vec()},
                {"role": "user", "parts": [result("get_weather"), result("get_time")]}]);
            change(&mut body["contents"]);
            post(&simulator, &path(model, "generateContent"), &body).await
        };
        let answer = again(&|_| {}).await;
        assert!(
            answer.text().contains("The tool get_weather answered: fine. The tool get_time answered: fine.")
        );
        let bare = again(&|contents| {
            drop(contents[1]["parts"][0].as_object_mut().unwrap().remove("thoughtSignature"))
        })
        .await;
        assert_eq!(bare.status, if needed { 400 } else { 200 });
        assert_eq!(bare.text().contains("function call `default_api:get_weather` , position 2"), needed);
        for escape in ["skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="] {
            let escaped =
                again(&|contents| contents[1]["parts"][0]["thoughtSignature"] = json!(escape)).await;
            assert_eq!(escaped.status, 200);
        }
        let forged = again(&|contents| contents[1]["parts"][0]["thoughtSignature"] = json!("AAAA")).await;
        assert_eq!(forged.json()["error"]["message"], "Corrupted thought signature.");
        let fewer = again(&|contents| drop(contents[2]["parts"].as_array_mut().unwrap().pop())).await;
        assert!(fewer.text().contains("number of function response parts"));
    }
}

#[tokio::test]
async fn generation_config_candidates_limits_and_schema_apply() {
    let simulator = start(SimulatedProvider::Google).await;
    let ask = async |config: Value| {
        let body = generate("x", json!({ "generationConfig": config }));
        post(&simulator, &path("gemini-2.5-flash", "generateContent"), &body).await.json()
    };
    assert_eq!(ask(json!({"candidateCount": 2})).await["candidates"].as_array().unwrap().len(), 2);
    let cut = ask(json!({"max_output_tokens": 2})).await;
    assert_eq!(cut["candidates"][0]["finishReason"], "MAX_TOKENS");
    assert_eq!(cut["usageMetadata"]["candidatesTokenCount"], 2);
    let thought = ask(json!({"maxOutputTokens": 2, "thinkingConfig": {"thinkingBudget": 99}})).await;
    assert_eq!(thought["candidates"][0]["content"], json!({"role": "model"}));
    assert_eq!(thought["usageMetadata"]["thoughtsTokenCount"], 2);
    let schema = json!({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}});
    let structured = ask(json!({"responseMimeType": "application/json", "responseSchema": schema})).await;
    assert_eq!(structured["candidates"][0]["content"]["parts"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn request_invalid_is_refused_like_the_provider() {
    let simulator = start(SimulatedProvider::Google).await;
    for (body, part) in [
        (json!({}), "contents is not specified"),
        (json!({"contents": "x"}), "Invalid value at 'contents'"),
        (json!({"contents": [{"parts": []}]}), "contents.parts must not be empty"),
        (json!({"contents": [{"parts": [{}]}]}), "required oneof field 'data'"),
        (
            json!({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}),
            "Please use a valid role: user, model.",
        ),
        (generate("x", json!({"messages": []})), "Unknown name \\\"messages\\\": Cannot find field."),
        (
            generate("x", json!({"generationConfig": {"max_tokens": 1}})),
            "at 'generation_config': Cannot find field.",
        ),
        (generate("x", json!({"generationConfig": {"temperature": 3}})), "must be in the range [0.0, 2.0]"),
    ] {
        let answer = post(&simulator, &path("gemini-2.5-flash", "generateContent"), &body).await;
        assert_eq!((answer.status, &answer.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
        assert!(answer.text().contains(part), "{body}: {}", answer.text());
    }
    let broken = send(&simulator, "POST", &path("m", "generateContent"), &[], b"{bad").await;
    assert!(broken.status == 400 && broken.text().contains("Invalid JSON payload received."));
    let body = generate("x", json!({}));
    let missing = post(&simulator, &path("missing-1", "generateContent"), &body).await;
    assert_eq!((missing.status, &missing.json()["error"]["status"]), (404, &json!("NOT_FOUND")));
    let array = post(&simulator, &path("missing-1", "streamGenerateContent"), &body).await;
    assert_eq!(array.json()[0]["error"]["code"], 404);
    for (path, status) in
        [("/v1beta/nothing", 404), ("/v1beta/models/m:nothing", 404), ("/v1beta/models/m:countTokens", 405)]
    {
        let page = get(&simulator, path).await;
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=UTF-8")));
    }
}

#[tokio::test]
async fn key_is_accepted_in_header_query_or_bearer() {
    let options = Options { credential: Some("AIza".into()), ..Options::default() };
    let simulator = Simulator::start(SimulatedProvider::Google, options).await.unwrap();
    let ask = async |path: &str, headers: &[(&str, &str)]| send(&simulator, "GET", path, headers, b"").await;
    assert_eq!(ask("/v1beta/models", &[("x-goog-api-key", "AIza")]).await.status, 200);
    assert_eq!(ask("/v1/models?key=AIza", &[]).await.status, 200);
    assert_eq!(ask("/v1/models", &[("authorization", "Bearer AIza")]).await.status, 200);
    let wrong = ask("/v1beta/models?key=no", &[]).await;
    assert_eq!(
        (wrong.status, &wrong.json()["error"]["details"][0]["reason"]),
        (400, &json!("API_KEY_INVALID"))
    );
    assert_eq!(ask("/v1beta/models", &[]).await.status, 403);
    assert_eq!(ask("/v1beta/models", &[("authorization", "Bearer no")]).await.status, 401);
}

#[tokio::test]
async fn embeddings_token_counts_and_models_are_served() {
    let simulator = start(SimulatedProvider::Google).await;
    let content = json!({"parts": [{"text": "abcde"}]});
    let one = post(&simulator, &path("gemini-embedding-001", "embedContent"), &json!({ "content": content }))
        .await
        .json();
    assert_eq!(one["embedding"]["values"].as_array().unwrap().len(), 3072);
    let request =
        json!({"model": "models/text-embedding-004", "content": content, "output_dimensionality": 8});
    let batch = json!({"requests": [request, request]});
    let many = post(&simulator, &path("text-embedding-004", "batchEmbedContents"), &batch).await.json();
    assert_eq!(many["embeddings"][1]["values"].as_array().unwrap().len(), 8);
    let other = post(&simulator, &path("other", "batchEmbedContents"), &batch).await;
    assert_eq!(other.status, 400);
    let count = json!({"contents": [content]});
    let nested = json!({"generateContentRequest": {"model": "models/m", "contents": [content]}});
    for body in [count, nested] {
        assert_eq!(post(&simulator, "/v1/models/m:countTokens", &body).await.json()["totalTokens"], 2);
    }
    let first = get(&simulator, "/v1beta/models?pageSize=4").await.json();
    let next = format!("/v1beta/models?pageToken={}", first["nextPageToken"].as_str().unwrap());
    assert_eq!(get(&simulator, &next).await.json()["models"].as_array().unwrap().len(), 2);
    assert_eq!(get(&simulator, "/v1/models/gemini-x").await.json()["name"], "models/gemini-x");
}
