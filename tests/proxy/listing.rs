//! Model listing in three formats: pages, single models, and errors.

use serde_json::{Value, json};

use super::support::client::{Answer, request};
use super::support::gateway::Gateway;
use super::support::setup::{KEY, NARROW_KEY, Setup};

/// Header that selects the messages format.
const MESSAGES: (&str, &str) = ("anthropic-version", "2023-06-01");

async fn gateway() -> Gateway {
    let mut setup = Setup::new().provider("openai", "openai", "http://127.0.0.1:9/v1", "");
    for number in 0..75 {
        let id = format!("model-{number:02}");
        setup = setup.model(&id, "openai", &id);
    }
    Gateway::start(&setup).await
}

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Answer {
    gateway.ask(request("GET", path, headers)).await
}

fn ids(list: &Value, key: &str, name: &str) -> Vec<String> {
    let id = |entry: &Value| entry[name].as_str().unwrap().trim_start_matches("models/").to_owned();
    list[key].as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn listing_is_paginated_in_native_formats() {
    let gateway = gateway().await;
    let all: Vec<String> = (0..75).map(|number| format!("model-{number:02}")).collect();
    let headers = [("x-api-key", KEY), MESSAGES];
    let (mut seen, mut path) = (Vec::new(), "/v1/models".to_owned());
    loop {
        let page = get(&gateway, &path, &headers).await.json();
        let some = ids(&page, "data", "id");
        assert!(some.len() <= 20 && page["first_id"] == json!(some[0]), "{page}");
        path = format!("/v1/models?after_id={}", page["last_id"].as_str().unwrap());
        seen.extend(some);
        if page["has_more"] == json!(false) {
            break;
        }
    }
    assert_eq!(seen, all);
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1beta/models?key={KEY}&pageSize=30&pageToken={token}");
        let page = get(&gateway, &path, &[]).await.json();
        seen.extend(ids(&page, "models", "name"));
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, all);
    let bearer = format!("Bearer {KEY}");
    let whole = get(&gateway, "/v1/models", &[("authorization", &bearer)]).await.json();
    assert_eq!(ids(&whole, "data", "id"), all, "the list has no pages");
    for (query, count) in [("pageSize=0", 50), ("pageSize=5000", 75), ("pageSize=7", 7), ("", 50)] {
        let page = get(&gateway, &format!("/v1beta/models?{query}"), &[("x-goog-api-key", KEY)]).await.json();
        assert_eq!(ids(&page, "models", "name").len(), count, "{query}");
    }
}

#[tokio::test]
async fn listing_invalid_page_is_400() {
    let gateway = gateway().await;
    for (path, headers, name) in [
        ("/v1/models?limit=0", vec![("x-api-key", KEY), MESSAGES], "limit"),
        ("/v1/models?limit=1001", vec![("x-api-key", KEY), MESSAGES], "limit"),
        ("/v1/models?after_id=nobody", vec![("x-api-key", KEY), MESSAGES], "after_id"),
        ("/v1/models?before_id=nobody", vec![("x-api-key", KEY), MESSAGES], "before_id"),
        ("/v1beta/models?pageSize=x", vec![("x-goog-api-key", KEY)], "pageSize"),
        ("/v1beta/models?pageToken=nobody", vec![("x-vendor-api-key", KEY)], "pageToken"),
    ] {
        let answer = get(&gateway, path, &headers).await;
        let told = answer.json();
        assert_eq!(answer.status(), 400, "{path}: {told}");
        assert!(told["error"]["message"].as_str().unwrap().contains(name), "{path}: {told}");
    }
}

#[tokio::test]
async fn listing_single_model_equals_its_entry() {
    let gateway = gateway().await;
    let bearer = format!("Bearer {KEY}");
    let shapes = [
        ("/v1/models", "data", vec![("authorization", bearer.as_str())]),
        ("/v1/models", "data", vec![("x-api-key", KEY), MESSAGES]),
        ("/v1beta/models", "models", vec![("x-goog-api-key", KEY)]),
    ];
    for (path, key, headers) in shapes {
        let list = get(&gateway, path, &headers).await.json();
        let one = get(&gateway, &format!("{path}/model-00"), &headers).await;
        assert_eq!((one.status(), one.json()), (200, list[key][0].clone()), "{path}");
        let missing = get(&gateway, &format!("{path}/nobody"), &headers).await;
        assert_eq!(missing.status(), 404, "{path}");
        assert!(missing.json()["error"]["message"].as_str().unwrap().contains("nobody"));
    }
    // A model without permission is reported as not found.
    let narrow = get(&gateway, "/v1/models/model-00", &[("x-api-key", NARROW_KEY)]).await;
    assert_eq!(narrow.status(), 404);
}

/// With `x-api-key`, a provider's version header with a date selects the messages shape (docs/specification.md, 4.13).
#[tokio::test]
async fn listing_shape_follows_a_provider_version_header() {
    let gateway = gateway().await;
    for (header, value, native) in [
        ("anthropic-version", "2023-06-01", true),
        ("acme-version", "2025-01-31", true),
        ("acme-version", "v1.2.3", false),
        ("api-version", "2025-01-31", false),
        ("x-stainless-runtime-version", "2025-01-31", false),
    ] {
        let list = get(&gateway, "/v1/models", &[("x-api-key", KEY), (header, value)]).await.json();
        assert_eq!(list["has_more"].is_boolean(), native, "{header}: {value}: {list}");
        let bearer = format!("Bearer {KEY}");
        let list = get(&gateway, "/v1/models", &[("authorization", &bearer), (header, value)]).await.json();
        assert_eq!(list["has_more"].is_boolean(), header == "anthropic-version", "{header}: {list}");
    }
}

/// A model without `owned_by` shows its provider, the prefix of `{provider}/{model}` (docs/specification.md, 4.1).
#[tokio::test]
async fn listing_shows_the_provider_of_a_model_without_an_owner() {
    let mut setup = Setup::new().provider("acme", "openai", "http://127.0.0.1:9/v1", "");
    setup.routes += "[[model]]\nid = \"m\"\ntargets = [{ provider = \"acme\", model = \"m-1\" }]\n";
    let gateway = Gateway::start(&setup).await;
    let list = get(&gateway, "/v1/models", &[("x-api-key", KEY)]).await.json();
    assert_eq!(list["data"][0]["owned_by"], "acme", "{list}");
}

/// `model-gateway run` and `configure` read these: a client must not be offered a model that cannot converse, has to know
/// what an alias stands for, and opens a WebSocket only where it is served.
#[tokio::test]
async fn listing_says_what_coding_clients_need_to_know() {
    for websocket in [true, false] {
        let mut setup = Setup::new().provider("acme", "openai", "http://127.0.0.1:9/v1", "");
        setup = setup.server(&format!("websocket = {websocket}"));
        for id in ["gpt-5.1", "text-embedding-3-small", "gpt-image-1"] {
            setup = setup.model(id, "acme", id);
        }
        let gateway = Gateway::start(&setup).await;
        let answer = get(&gateway, "/v1/models", &[("x-api-key", KEY)]).await;
        let served = answer.get("x-gateway-websocket");
        assert_eq!(served, websocket.then_some("responses"));
        let list = answer.json();
        let converses: Vec<&Value> =
            list["data"].as_array().unwrap().iter().map(|entry| &entry["conversational"]).collect();
        assert_eq!(converses, [&Value::Null, &json!(false), &json!(false)], "{list}");
        let alias = get(&gateway, "/v1/models/claude-gw-gpt-5.1", &[("x-api-key", KEY)]).await.json();
        assert_eq!((&alias["id"], &alias["alias_of"]), (&json!("claude-gw-gpt-5.1"), &json!("gpt-5.1")));
    }
}

#[tokio::test]
async fn path_unknown_is_404_in_the_shape_of_its_group() {
    let gateway = gateway().await;
    for version in ["v1", "v1beta"] {
        let path = format!("/{version}/models/model-00:nope");
        let answer = gateway.ask(request("POST", &path, &[("x-goog-api-key", KEY)])).await;
        let told = answer.json();
        assert_eq!((answer.status(), &told["error"]["code"]), (404, &json!(404)), "{path}: {told}");
        assert_eq!(told["error"]["status"], "NOT_FOUND", "{path}: {told}");
    }
    for (method, path) in
        [("POST", "noSuchEndpoint"), ("GET", "noSuchEndpoint"), ("GET", "task/1/2"), ("GET", "")]
    {
        let path = format!("/prod-api/svc/v4/api/{path}");
        let answer = gateway.ask(request(method, &path, &[("x-api-key", KEY)])).await;
        let told = answer.json();
        assert_eq!((answer.status(), &told["code"]), (404, &json!(404)), "{path}: {told}");
        assert!(told["msg"].as_str().is_some_and(|text| text.contains("Unknown path")), "{told}");
        assert_eq!(told["data"], Value::Null, "{told}");
    }
}
