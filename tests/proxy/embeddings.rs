//! Embeddings: clients of both formats, and all kinds of providers.

use std::collections::BTreeMap;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::post;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{CREDENTIAL, Setup};
use super::support::upstream::Upstream;

/// Models with their provider, its kind, and a variant of the base URL: `own` is DashScope's native API.
const PROVIDERS: [(&str, SimulatedProvider, &str, &str); 9] = [
    ("text-embedding-3-small", SimulatedProvider::OpenAi, "openai", ""),
    ("compatible", SimulatedProvider::OpenAi, "openai-compatible", ""),
    ("gemini-embedding-001", SimulatedProvider::Google, "gemini", ""),
    ("embed-v4.0", SimulatedProvider::Cohere, "cohere", ""),
    ("voyage-3.5", SimulatedProvider::Voyage, "voyage", ""),
    ("jina-embeddings-v3", SimulatedProvider::Jina, "jina", ""),
    ("text-embedding-v4", SimulatedProvider::DashScope, "dashscope", ""),
    ("own-text-embedding-v4", SimulatedProvider::DashScope, "dashscope", "own"),
    ("bge-m3", SimulatedProvider::Tei, "tei", ""),
];

/// A gateway with all [`PROVIDERS`], each simulated.
struct Shop {
    gateway: Gateway,
    providers: BTreeMap<&'static str, Simulator>,
}

impl Shop {
    async fn open() -> Shop {
        let mut setup = Setup::new();
        let mut providers = BTreeMap::new();
        for (model, provider, kind, particular) in PROVIDERS {
            let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
            let simulator = Simulator::start(provider, options).await.unwrap();
            let mut base = simulator.base_url();
            if particular == "own" {
                base = base.replace("compatible-mode", "api");
            }
            setup = setup.provider(model, kind, &base, "").model(model, model, model);
            providers.insert(model, simulator);
        }
        Shop { gateway: Gateway::start(&setup).await, providers }
    }

    async fn list(&self, body: &Value) -> Value {
        let answer = self.gateway.ask(post("/v1/embeddings", body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}: {}", body["model"], answer.text());
        answer.json()
    }

    async fn native(&self, version: &str, model: &str, method: &str, body: &Value) -> Value {
        let path = format!("/{version}/models/{model}:{method}");
        let answer = self.gateway.ask(post(&path, body.to_string())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        answer.json()
    }

    /// Returns path and body of the last request that a provider received.
    fn asked(&self, model: &str) -> (String, Value) {
        let last = self.providers[model].last_request().unwrap();
        (last.path, serde_json::from_slice(&last.body).unwrap())
    }
}

fn floats(value: &Value) -> Vec<f32> {
    match value {
        Value::String(text) => {
            let bytes = base64_simd::STANDARD.decode_to_vec(text).unwrap();
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
        }
        value => value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect(),
    }
}

fn content(text: &str) -> Value {
    json!({"parts": [{"text": text}]})
}

/// The same texts yield the same embeddings in every format and encoding, in order.
#[tokio::test]
async fn embeddings_are_equal_in_every_format_from_every_provider() {
    let shop = Shop::open().await;
    let texts = ["First", "Zweitens: äöü", "3 \"quoted\"\nlines"];
    for (model, ..) in PROVIDERS {
        let plain = json!({"model": model, "input": texts, "dimensions": 256});
        let answer = shop.list(&plain).await;
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(model)));
        let used = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(used > 0 && answer["usage"]["total_tokens"] == used, "{model}: {}", answer["usage"]);
        let data = answer["data"].as_array().unwrap();
        let vectors: Vec<Vec<f32>> = data.iter().map(|entry| floats(&entry["embedding"])).collect();
        assert!(vectors.len() == 3 && vectors.iter().all(|vector| vector.len() == 256), "{model}");
        for (index, entry) in data.iter().enumerate() {
            assert_eq!((&entry["index"], &entry["object"]), (&json!(index), &json!("embedding")), "{model}");
            assert!(entry["embedding"].is_array());
        }
        let mut packed = plain.clone();
        packed["encoding_format"] = json!("base64");
        let answer = shop.list(&packed).await;
        for (entry, vector) in answer["data"].as_array().unwrap().iter().zip(&vectors) {
            assert!(entry["embedding"].is_string(), "{model}");
            assert_eq!(floats(&entry["embedding"]), *vector, "{model}");
        }
        let one = shop.list(&json!({"model": model, "input": texts[1], "dimensions": 256})).await;
        assert_eq!(floats(&one["data"][0]["embedding"]), vectors[1], "{model}");

        for version in ["v1", "v1beta"] {
            let body = json!({"content": content(texts[0]), "outputDimensionality": 256});
            let answer = shop.native(version, model, "embedContent", &body).await;
            assert_eq!(floats(&answer["embedding"]["values"]), vectors[0], "{model}");
            let usage = &answer["metadata"]["usage"];
            assert!(usage["prompt_tokens"].as_u64().unwrap() > 0, "{model}: {answer}");
            assert_eq!(usage["total_tokens"], usage["prompt_tokens"]);
            // With the model in each request, as the official SDK sends it.
            let requests: Vec<Value> = texts
                .iter()
                .map(|text| {
                    json!({"model": format!("models/{model}"), "content": content(text), "outputDimensionality": 256})
                })
                .collect();
            let answer =
                shop.native(version, model, "batchEmbedContents", &json!({"requests": requests})).await;
            let embeddings = answer["embeddings"].as_array().unwrap();
            assert_eq!(embeddings.len(), 3);
            for (embedding, vector) in embeddings.iter().zip(&vectors) {
                assert_eq!(floats(&embedding["values"]), *vector, "{model}");
            }
            assert!(answer["metadata"]["usage"]["total_tokens"].as_u64().unwrap() > 0);
        }
    }
}

#[tokio::test]
async fn embeddings_task_type_is_translated_for_each_provider() {
    let shop = Shop::open().await;
    for (model, task, member, word) in [
        ("gemini-embedding-001", "RETRIEVAL_QUERY", "taskType", json!("RETRIEVAL_QUERY")),
        ("gemini-embedding-001", "CODE_RETRIEVAL_QUERY", "taskType", json!("CODE_RETRIEVAL_QUERY")),
        ("embed-v4.0", "RETRIEVAL_QUERY", "input_type", json!("search_query")),
        ("embed-v4.0", "RETRIEVAL_DOCUMENT", "input_type", json!("search_document")),
        ("embed-v4.0", "CLUSTERING", "input_type", json!("clustering")),
        ("embed-v4.0", "", "input_type", json!("search_document")),
        ("voyage-3.5", "QUESTION_ANSWERING", "input_type", json!("query")),
        ("voyage-3.5", "CLUSTERING", "input_type", Value::Null),
        ("jina-embeddings-v3", "RETRIEVAL_DOCUMENT", "task", json!("retrieval.passage")),
        ("own-text-embedding-v4", "RETRIEVAL_DOCUMENT", "parameters", json!({"text_type": "document"})),
        ("text-embedding-v4", "RETRIEVAL_QUERY", "text_type", Value::Null),
    ] {
        let mut body = json!({"content": content("x")});
        if !task.is_empty() {
            body["taskType"] = json!(task);
        }
        shop.native("v1beta", model, "embedContent", &body).await;
        let (_, asked) = shop.asked(model);
        assert_eq!(asked[member], word, "{model} {task}: {asked}");
    }
    // Clients of the list format use other members for the task type.
    for (model, member, word, expected) in [
        ("gemini-embedding-001", "input_type", "query", json!("RETRIEVAL_QUERY")),
        ("embed-v4.0", "task", "retrieval.query", json!("search_query")),
    ] {
        shop.list(&json!({"model": model, "input": "x", member: word})).await;
        let (_, asked) = shop.asked(model);
        let found = if model == "embed-v4.0" { &asked["input_type"] } else { &asked["taskType"] };
        assert_eq!(*found, expected, "{asked}");
    }
}

/// More texts than a provider accepts at once are split into several calls and merged into one response.
#[tokio::test]
async fn embeddings_many_texts_are_split_and_merged_in_order() {
    let shop = Shop::open().await;
    let texts: Vec<String> = (0..130).map(|n| format!("Text number {n}")).collect();
    let before: BTreeMap<&str, u64> =
        shop.providers.iter().map(|(model, provider)| (*model, provider.requests())).collect();
    for (model, calls) in [
        ("gemini-embedding-001", 2),
        ("embed-v4.0", 2),
        ("text-embedding-v4", 13),
        ("own-text-embedding-v4", 13),
        ("bge-m3", 5),
        ("voyage-3.5", 1),
    ] {
        let answer = shop.list(&json!({"model": model, "input": texts, "dimensions": 256})).await;
        let data = answer["data"].as_array().unwrap();
        assert_eq!(data.len(), texts.len());
        assert_eq!(shop.providers[model].requests() - before[model], calls, "{model}");
        for at in [0, 9, 10, 95, 96, 100, 129] {
            assert_eq!(data[at]["index"], json!(at));
            let one = shop.list(&json!({"model": model, "input": texts[at], "dimensions": 256})).await;
            let expected = floats(&one["data"][0]["embedding"]);
            assert_eq!(floats(&data[at]["embedding"]), expected, "{model} {at}");
        }
        let used = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(used >= texts.len() as u64, "{model}: {used}");
    }
}

/// Most providers accept one task type and dimension for each call; native requests may mix them.
#[tokio::test]
async fn embeddings_mixed_settings_are_sent_in_separate_calls() {
    let shop = Shop::open().await;
    let request = |text: &str, task: &str, size: u64| json!({"content": content(text), "taskType": task, "outputDimensionality": size});
    let requests = json!({"requests": [
        request("a", "RETRIEVAL_QUERY", 256), request("b", "RETRIEVAL_QUERY", 256),
        request("c", "RETRIEVAL_DOCUMENT", 256), request("d", "RETRIEVAL_DOCUMENT", 512)]});
    let answer = shop.native("v1beta", "embed-v4.0", "batchEmbedContents", &requests).await;
    let lengths: Vec<usize> =
        answer["embeddings"].as_array().unwrap().iter().map(|one| floats(&one["values"]).len()).collect();
    assert_eq!(lengths, [256, 256, 256, 512]);
    assert_eq!(shop.providers["embed-v4.0"].requests(), 3);
    shop.native("v1beta", "gemini-embedding-001", "batchEmbedContents", &requests).await;
    assert_eq!(shop.providers["gemini-embedding-001"].requests(), 1);
}

#[tokio::test]
async fn embeddings_token_input_is_passed_on_or_decoded_to_text() {
    let shop = Shop::open().await;
    // "Hello world" and "Hello" in the encoding cl100k.
    let both = json!([[9906, 1917], [9906]]);
    shop.list(&json!({"model": "text-embedding-3-small", "input": both})).await;
    assert_eq!(shop.asked("text-embedding-3-small").1["input"], both);
    for model in ["embed-v4.0", "gemini-embedding-001", "bge-m3"] {
        let answer = shop.list(&json!({"model": model, "input": both, "dimensions": 256})).await;
        let texts =
            shop.list(&json!({"model": model, "input": ["Hello world", "Hello"], "dimensions": 256})).await;
        assert_eq!(answer["data"], texts["data"], "{model}");
    }
    let answer = shop
        .gateway
        .ask(post("/v1/embeddings", json!({"model": "embed-v4.0", "input": [4_000_000_000u32]}).to_string()))
        .await;
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("input")));
}

#[tokio::test]
async fn embeddings_invalid_member_is_named_without_a_provider_call() {
    let shop = Shop::open().await;
    let list = |more: Value| {
        let mut body = json!({"model": "embed-v4.0"});
        for (name, value) in more.as_object().unwrap() {
            body[name.as_str()] = value.clone();
        }
        ("/v1/embeddings".to_owned(), body)
    };
    let native = |method: &str, body: Value| (format!("/v1beta/models/embed-v4.0:{method}"), body);
    for ((path, body), field) in [
        (list(json!({})), "input"),
        (list(json!({"input": ""})), "input"),
        (list(json!({"input": []})), "input"),
        (list(json!({"input": {}})), "input"),
        (list(json!({"input": ["a", ""]})), "input[1]"),
        (list(json!({"input": ["a", 1]})), "input[1]"),
        (list(json!({"input": [["a"]]})), "input[0]"),
        (list(json!({"input": "a", "encoding_format": "hex"})), "encoding_format"),
        (list(json!({"input": "a", "dimensions": 0})), "dimensions"),
        (list(json!({"input": "a", "dimensions": "8"})), "dimensions"),
        (native("embedContent", json!({})), "content"),
        (native("embedContent", json!({"content": {}})), "content.parts"),
        (native("embedContent", json!({"content": {"parts": []}})), "content.parts"),
        (native("embedContent", json!({"content": content("")})), "content.parts"),
        (native("embedContent", json!({"content": content("x"), "taskType": "DREAM"})), "taskType"),
        (
            native("embedContent", json!({"content": content("x"), "outputDimensionality": -1})),
            "outputDimensionality",
        ),
        (native("embedContent", json!({"content": content("x"), "model": "models/other"})), "model"),
        (
            native(
                "embedContent",
                json!({"content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}}),
            ),
            "content.parts",
        ),
        (native("batchEmbedContents", json!({})), "requests"),
        (native("batchEmbedContents", json!({"requests": []})), "requests"),
        (native("batchEmbedContents", json!({"requests": [{}]})), "requests[0].content"),
        (
            native(
                "batchEmbedContents",
                json!({"requests": [{"content": content("x")}, {"content": content("")}]}),
            ),
            "requests[1].content.parts",
        ),
        (
            native(
                "batchEmbedContents",
                json!({"requests": [{"content": content("x"), "model": "models/other"}]}),
            ),
            "requests[0].model",
        ),
    ] {
        let answer = shop.gateway.ask(post(&path, body.to_string())).await;
        let told = answer.json();
        assert_eq!(answer.status(), 400, "{body}: {told}");
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("'{field}'")), "{body}: {message}");
        if path.contains("models") {
            assert_eq!(told["error"]["status"], "INVALID_ARGUMENT", "{told}");
        } else {
            assert_eq!(told["error"]["param"], field, "{told}");
        }
    }
    assert!(shop.providers.values().all(|provider| provider.requests() == 0));
}

#[tokio::test]
async fn embeddings_provider_error_is_returned_in_the_client_format() {
    let shop = Shop::open().await;
    for (model, ..) in PROVIDERS {
        for status in [400, 429, 500] {
            let text = format!("x [[status {status}]]");
            let answer = shop
                .gateway
                .ask(post("/v1/embeddings", json!({"model": model, "input": [text]}).to_string()))
                .await;
            assert_eq!(answer.status(), status, "{model}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string(), "{model}: {}", answer.text());
            assert_eq!(answer.get("retry-after").is_some(), status == 429, "{model}");
            let path = format!("/v1beta/models/{model}:embedContent");
            let answer = shop.gateway.ask(post(&path, json!({"content": content(&text)}).to_string())).await;
            assert_eq!(
                (answer.status(), &answer.json()["error"]["code"]),
                (status, &json!(status)),
                "{model}"
            );
        }
    }
    // If one of several calls fails, the whole request fails.
    let mut texts: Vec<String> = (0..55).map(|n| format!("Text {n}")).collect();
    texts[39].push_str(" [[status 500]]");
    let body = json!({"model": "text-embedding-v4", "input": texts}).to_string();
    let answer = shop.gateway.ask(post("/v1/embeddings", body)).await;
    assert_eq!(answer.status(), 500, "{}", answer.text());
    let line = shop.gateway.wait_for_log(PROVIDERS.len() * 6 + 1).await.pop().unwrap();
    assert_eq!(
        (&line["error"], &line["upstream_status"]),
        (&json!("upstream_failed"), &json!(500)),
        "{line}"
    );
}

#[tokio::test]
async fn embeddings_malformed_provider_response_is_an_error() {
    for body in [
        "{}",
        "[]",
        "not json",
        "{\"embeddings\":{\"float\":[[1,2]]}}",
        "{\"embeddings\":{\"float\":[[1,2],[3,4],[5,6]]}}",
        "{\"embeddings\":{\"float\":[[1,2],\"AAAA\",null]}}",
    ] {
        let upstream = Upstream::answering(reply::json(200, body)).await;
        let setup = Setup::new()
            .provider("cohere", "cohere", &format!("http://{}/v2", upstream.addr), "")
            .model("m", "cohere", "m");
        let gateway = Gateway::start(&setup).await;
        let request = json!({"model": "m", "input": ["a", "b"]}).to_string();
        let answer = gateway.ask(post("/v1/embeddings", request)).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["type"]),
            (500, &json!("upstream_error")),
            "{body}"
        );
    }
}

/// Providers may ignore `encoding_format`, or return Base64 that was not requested.
#[tokio::test]
async fn embeddings_encoding_is_converted_if_the_provider_ignored_it() {
    let numbers = "[0.25,-0.5,1.0]";
    let packed = "\"AACAPgAAAL8AAIA/\"";
    let bytes = "\"9sYAAzzy/vfgDQAeOgD2\"";
    for (given, format, expected) in [
        (numbers, "base64", packed),
        (numbers, "float", numbers),
        (packed, "base64", packed),
        (packed, "float", numbers),
        // Bytes that are no float vector pass unchanged.
        (bytes, "float", bytes),
    ] {
        let answer = |vector: &str| {
            format!(
                "{{\"object\":\"list\",\"id\":\"e\",\"data\":[{{\"index\":0,\"embedding\":{vector},\"object\":\"embedding\"}}],\"model\":\"up\",\"usage\":{{\"prompt_tokens\":2,\"total_tokens\":2}}}}"
            )
        };
        let upstream = Upstream::answering(reply::json(200, answer(given))).await;
        let setup = Setup::new()
            .provider("server", "openai-compatible", &format!("http://{}/v1", upstream.addr), "")
            .model("m", "server", "up");
        let gateway = Gateway::start(&setup).await;
        let request = json!({"model": "m", "input": "a", "encoding_format": format, "truncate": "END"});
        let told = gateway.ask(post("/v1/embeddings", request.to_string())).await;
        assert_eq!(told.text(), answer(expected).replace("\"up\"", "\"m\""), "{format}");
        let mut asked = request.clone();
        asked["model"] = json!("up");
        assert_eq!(upstream.last_request().json(), asked, "the provider's own members go along");
    }
}

#[tokio::test]
async fn embeddings_calls_are_summed_in_log_and_metrics() {
    let shop = Shop::open().await;
    let texts: Vec<String> = (0..25).map(|n| format!("Text {n}")).collect();
    let answer = shop.list(&json!({"model": "own-text-embedding-v4", "input": texts})).await;
    let used = answer["usage"]["total_tokens"].as_f64().unwrap();
    let line = shop.gateway.wait_for_log(1).await.pop().unwrap();
    for (field, expected) in [
        ("status", json!(200)),
        ("endpoint", json!("embeddings")),
        ("model", json!("own-text-embedding-v4")),
        ("provider", json!("own-text-embedding-v4")),
        ("upstream_status", json!(200)),
        ("attempts", json!(3)),
        ("input_tokens", json!(used as u64)),
    ] {
        assert_eq!(line[field], expected, "{field}: {line}");
    }
    let metrics = shop.gateway.metrics_after(1).await;
    let answered = [("endpoint", "embeddings"), ("status", "200")];
    assert_eq!(metrics.sum("gateway_requests_total", &answered), 1.0);
    let provider = ("provider", "own-text-embedding-v4");
    assert_eq!(metrics.sum("gateway_tokens_total", &[provider, ("kind", "input")]), used);
    assert_eq!(metrics.sum("gateway_upstream_connections_total", &[provider]), 3.0);
}
