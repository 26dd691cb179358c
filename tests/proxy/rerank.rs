//! Reranking through all kinds of providers.

use std::collections::BTreeMap;

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::post;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{CREDENTIAL, Setup};
use super::support::upstream::Upstream;

const PROVIDERS: [(&str, SimulatedProvider, &str); 8] = [
    ("rerank-v3.5", SimulatedProvider::Cohere, "cohere"),
    ("jina-reranker-v2", SimulatedProvider::Jina, "jina"),
    ("rerank-2.5", SimulatedProvider::Voyage, "voyage"),
    ("qwen3-rerank", SimulatedProvider::DashScope, "dashscope"),
    ("gte-rerank-v2", SimulatedProvider::DashScope, "dashscope"),
    ("bge-reranker", SimulatedProvider::Vllm, "openai-compatible"),
    ("bge-logits", SimulatedProvider::Vllm, "openai-compatible"),
    ("bge-reranker-v2-m3", SimulatedProvider::Tei, "tei"),
];

const QUERY: &str = "What is the capital of France?";
const DOCUMENTS: [&str; 4] = [
    "Bread is eaten everywhere.",
    "Paris is the capital of France.",
    "The capital \"of\" Italy is Rome.\n",
    "Über allen Gipfeln ist Ruh.",
];
/// The order that the simulated providers return.
const ORDER: [u64; 4] = [1, 2, 0, 3];

struct Shop {
    gateway: Gateway,
    providers: BTreeMap<&'static str, Simulator>,
}

impl Shop {
    async fn open() -> Shop {
        let mut setup = Setup::new();
        let mut providers = BTreeMap::new();
        for (model, provider, kind) in PROVIDERS {
            let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
            let simulator = Simulator::start(provider, options).await.unwrap();
            setup = setup.provider(model, kind, &simulator.base_url(), "").model(model, model, model);
            providers.insert(model, simulator);
        }
        Shop { gateway: Gateway::start(&setup).await, providers }
    }

    async fn rank(&self, body: &Value) -> Value {
        let answer = self.gateway.ask(post("/v1/rerank", body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}: {}", body["model"], answer.text());
        answer.json()
    }
}

fn indexes(answer: &Value) -> Vec<u64> {
    answer["results"].as_array().unwrap().iter().map(|result| result["index"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn rerank_with_every_provider_returns_order_and_scores() {
    let shop = Shop::open().await;
    for (model, ..) in PROVIDERS {
        let plain = json!({"model": model, "query": QUERY, "documents": DOCUMENTS});
        let answer = shop.rank(&plain).await;
        assert_eq!(indexes(&answer), ORDER, "{model}: {answer}");
        assert_eq!(answer["model"], model);
        assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 0, "{model}");
        let scores: Vec<f64> = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| {
                assert!(result.get("document").is_none(), "{model}: documents that nobody asked for");
                result["relevance_score"].as_f64().unwrap()
            })
            .collect();
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{model}: {scores:?}");
        assert!(scores.is_sorted_by(|a, b| a >= b), "{model}: {scores:?}");

        let mut some = plain.clone();
        some["top_n"] = json!(2);
        some["return_documents"] = json!(true);
        let answer = shop.rank(&some).await;
        assert_eq!(indexes(&answer), ORDER[..2], "{model}");
        for result in answer["results"].as_array().unwrap() {
            assert_eq!(result["document"], DOCUMENTS[result["index"].as_u64().unwrap() as usize], "{model}");
        }
        // A `top_n` beyond the number of documents returns all of them; documents may be objects, as in some providers'
        // APIs.
        let objects: Vec<Value> = DOCUMENTS.iter().map(|text| json!({"text": text})).collect();
        let answer =
            shop.rank(&json!({"model": model, "query": QUERY, "documents": objects, "top_n": 99})).await;
        assert_eq!(indexes(&answer), ORDER, "{model}");
    }
}

#[tokio::test]
async fn rerank_request_uses_path_and_members_of_each_provider() {
    let shop = Shop::open().await;
    for (model, path, member) in [
        ("rerank-v3.5", "/v2/rerank", "/top_n"),
        ("rerank-2.5", "/v1/rerank", "/top_k"),
        ("qwen3-rerank", "/compatible-api/v1/reranks", "/top_n"),
        ("gte-rerank-v2", "/api/v1/services/rerank/text-rerank/text-rerank", "/parameters/top_n"),
        ("bge-reranker", "/v1/rerank", "/top_n"),
        ("bge-reranker-v2-m3", "/rerank", ""),
    ] {
        shop.rank(&json!({"model": model, "query": QUERY, "documents": DOCUMENTS, "top_n": 3})).await;
        let last = shop.providers[model].last_request().unwrap();
        assert_eq!(last.path, path, "{model}");
        let body: Value = serde_json::from_slice(&last.body).unwrap();
        if !member.is_empty() {
            assert_eq!(body.pointer(member), Some(&json!(3)), "{model}: {body}");
        }
    }
}

#[tokio::test]
async fn rerank_many_documents_are_split_and_merged() {
    let shop = Shop::open().await;
    let mut documents: Vec<String> = (0..100).map(|n| format!("Document {n}")).collect();
    documents[70] = DOCUMENTS[1].to_owned();
    documents[5] = DOCUMENTS[2].to_owned();
    let body = json!({"model": "bge-reranker-v2-m3", "query": QUERY, "documents": documents, "top_n": 2});
    let answer = shop.rank(&body).await;
    assert_eq!(indexes(&answer), [70, 5]);
    assert_eq!(shop.providers["bge-reranker-v2-m3"].requests(), 4, "32 at a time");
}

/// Cohere's SDK adds `/v2` to the base URL, and Cohere reports no tokens, so the gateway counts them.
#[tokio::test]
async fn rerank_usage_is_counted_where_the_provider_reports_none() {
    let shop = Shop::open().await;
    let body = json!({"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS}).to_string();
    let answer = shop.gateway.ask(post("/v2/rerank", body)).await;
    let used = answer.json()["usage"]["total_tokens"].as_u64().unwrap();
    // The query is counted once for each of four documents.
    assert!((40..90).contains(&used), "{used}");
    let line = shop.gateway.wait_for_log(1).await.pop().unwrap();
    assert_eq!((&line["endpoint"], &line["input_tokens"]), (&json!("rerank"), &json!(used)), "{line}");
    let metrics = shop.gateway.metrics().await;
    assert_eq!(
        metrics.sum("gateway_tokens_total", &[("model", "rerank-v3.5"), ("kind", "input")]),
        used as f64
    );
    assert_eq!(metrics.sum("gateway_requests_total", &[("endpoint", "rerank"), ("status", "200")]), 1.0);
}

#[tokio::test]
async fn rerank_invalid_member_is_named_without_a_provider_call() {
    let shop = Shop::open().await;
    let whole = json!({"model": "rerank-v3.5", "query": "q", "documents": ["a"]});
    for (member, value) in [
        ("model", Value::Null),
        ("query", Value::Null),
        ("query", json!("")),
        ("query", json!(["q"])),
        ("documents", Value::Null),
        ("documents", json!([])),
        ("documents", json!("a")),
        ("documents", json!([1])),
        ("top_n", json!(0)),
        ("top_n", json!("1")),
        ("return_documents", json!("yes")),
    ] {
        let mut body = whole.clone();
        match &value {
            Value::Null => _ = body.as_object_mut().unwrap().remove(member),
            value => body[member] = value.clone(),
        }
        let answer = shop.gateway.ask(post("/v1/rerank", body.to_string())).await;
        let told = answer.json();
        assert_eq!(answer.status(), 400, "{member}: {value}: {told}");
        assert!(told["error"]["param"].as_str().unwrap().starts_with(member), "{told}");
        assert_eq!(told["error"]["type"], "invalid_request_error");
    }
    assert!(shop.providers.values().all(|provider| provider.requests() == 0));
    // A model without rerank support.
    let upstream = Upstream::answering(reply::json(200, "{}")).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let answer = gateway
        .ask(post("/v1/rerank", json!({"model": "gpt", "query": "q", "documents": ["a"]}).to_string()))
        .await;
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("model")));
}

#[tokio::test]
async fn rerank_provider_error_is_returned_in_the_client_format() {
    let shop = Shop::open().await;
    for (model, ..) in PROVIDERS {
        for status in [400, 429, 500] {
            let query = format!("q [[status {status}]]");
            let body = json!({"model": model, "query": query, "documents": ["a"]}).to_string();
            let answer = shop.gateway.ask(post("/v1/rerank", body)).await;
            assert_eq!(answer.status(), status, "{model}: {}", answer.text());
            assert!(
                answer.json()["error"]["message"].as_str().unwrap().contains("simulated"),
                "{}",
                answer.text()
            );
        }
    }
    for body in ["{}", "[[]]", "x", "{\"results\":[{\"index\":7,\"relevance_score\":0.1}]}"] {
        let upstream = Upstream::answering(reply::json(200, body)).await;
        let setup = Setup::new()
            .provider("server", "openai-compatible", &format!("http://{}/v1", upstream.addr), "")
            .model("m", "server", "up");
        let gateway = Gateway::start(&setup).await;
        let request = json!({"model": "m", "query": "q", "documents": ["a"]}).to_string();
        let answer = gateway.ask(post("/v1/rerank", request)).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["type"]),
            (500, &json!("upstream_error")),
            "{body}"
        );
    }
}
