//! What coding agents read besides conversations: model limits, the catalogue of Codex, names of single models, the
//! start-up probe of Claude Code, and response headers that name a model.

use serde_json::{Value, json};

use super::support::client::{post_with, request};
use super::support::form::{Form, provider_of_every_form};
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{KEY, NARROW_KEY, Setup, provider_of};
use super::support::upstream::Upstream;

/// Models with limits, without limits, without conversations, and out of use.
const ROUTES: &str = r#"
[[model]]
id = "gpt"
context_window = 400000
max_output_tokens = 128000
targets = [{ provider = "openai", model = "gpt-5" }]

[[model]]
id = "plain"
targets = [{ provider = "openai", model = "gpt-4o" }]

[[model]]
id = "vectors"
targets = [{ provider = "openai", model = "text-embedding-3-small" }]

[[model]]
id = "claude"
context_window = 200000
targets = [{ provider = "anthropic", model = "claude-sonnet-4-6" }]

[[model]]
id = "models/with/slashes"
targets = [{ provider = "anthropic", model = "claude-sonnet-4-6" }]
"#;

async fn gateway() -> Gateway {
    let base = "http://127.0.0.1:9/v1";
    let mut setup =
        Setup::new().provider("openai", "openai", base, "").provider("anthropic", "anthropic", base, "");
    setup.routes += ROUTES;
    Gateway::start(&setup).await
}

/// Returns the JSON body of a GET request with this key, which must succeed.
async fn get(gateway: &Gateway, path: &str, key: &str) -> Value {
    let answer = gateway.ask(request("GET", path, &[("authorization", &format!("Bearer {key}"))])).await;
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    answer.json()
}

fn slugs(catalogue: &Value) -> Vec<&str> {
    catalogue["models"].as_array().unwrap().iter().map(|model| model["slug"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn listing_shows_token_limits_in_each_shape() {
    let gateway = gateway().await;
    let list = get(&gateway, "/v1/models", KEY).await;
    let (gpt, plain) = (&list["data"][0], &list["data"][1]);
    assert_eq!((&gpt["context_window"], &gpt["max_output_tokens"]), (&json!(400_000), &json!(128_000)));
    // Those that are not configured are the model's own, as the catalogue has them.
    assert_eq!((&plain["context_window"], &plain["max_output_tokens"]), (&json!(128_000), &json!(16_384)));
    assert_eq!((&gpt["max_input_tokens"], plain.get("max_input_tokens")), (&json!(272_000), None));
    let headers = [("x-api-key", KEY), ("anthropic-version", "2023-06-01")];
    let list = gateway.ask(request("GET", "/v1/models", &headers)).await.json();
    let (gpt, claude) = (&list["data"][0], &list["data"][3]);
    assert_eq!((&gpt["max_input_tokens"], &gpt["max_tokens"]), (&json!(272_000), &json!(128_000)));
    assert_eq!((&claude["max_input_tokens"], &claude["max_tokens"]), (&json!(200_000), &json!(128_000)));
    let list = gateway.ask(request("GET", "/v1beta/models", &[("x-goog-api-key", KEY)])).await.json();
    let (gpt, plain) = (&list["models"][0], &list["models"][1]);
    assert_eq!((&gpt["inputTokenLimit"], &gpt["outputTokenLimit"]), (&json!(272_000), &json!(128_000)));
    assert_eq!((&plain["inputTokenLimit"], &plain["outputTokenLimit"]), (&json!(128_000), &json!(16_384)));
    // Codex compacts before the input limit, and leaves room for a whole response.
    let list = get(&gateway, "/v1/models?client_version=0.169.0", KEY).await;
    let (gpt, claude) = (&list["models"][0], &list["models"][2]);
    assert_eq!(gpt["auto_compact_token_limit"], 244_800, "{gpt}");
    assert_eq!(
        (&claude["context_window"], &claude["auto_compact_token_limit"]),
        (&json!(200_000), &json!(100_000))
    );
}

/// Limits of the catalogue are shown, and bound no request; of several targets the smallest counts, and with one that is not known
/// none is shown.
#[tokio::test]
async fn listing_limits_of_the_catalogue_bound_no_request() {
    let form = Form::Chat;
    let upstream = Upstream::answering(reply::json(200, form.whole("m"))).await;
    let base = format!("http://{}/v1", upstream.addr);
    let mut setup =
        Setup::new().provider("openai", "openai", &base, "").provider("other", "openai", &base, "");
    for (id, other) in [("both", "gpt-4o"), ("unknown", "house-model")] {
        setup.routes += &format!(
            "[[model]]\nid = \"{id}\"\ntargets = [{{ provider = \"openai\", model = \"gpt-5\" }}, \
             {{ provider = \"other\", model = \"{other}\", weight = 0 }}]\n"
        );
    }
    let gateway = Gateway::start(&setup).await;
    let list = get(&gateway, "/v1/models", KEY).await;
    let limits =
        |at: usize| (list["data"][at].get("context_window"), list["data"][at].get("max_output_tokens"));
    assert_eq!(limits(0), (Some(&json!(128_000)), Some(&json!(16_384))));
    assert_eq!(limits(1), (None, None));
    let body = json!({ "model": "both", "max_completion_tokens": 100_000, "messages": [{ "role": "user", "content": "x" }] });
    let answer =
        gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let sent = upstream.last_request().json();
    assert_eq!(sent["max_completion_tokens"], 100_000, "{sent}");
}

#[tokio::test]
async fn catalogue_has_the_conversational_models_of_the_key() {
    let gateway = gateway().await;
    let path = "/v1/models?client_version=0.169.0";
    let catalogue = get(&gateway, path, KEY).await;
    assert_eq!(slugs(&catalogue), ["gpt", "plain", "claude", "models/with/slashes"]);
    assert_eq!(catalogue["models"][0]["context_window"], 400_000);
    let efforts = |at: usize| -> Vec<&str> {
        let levels = catalogue["models"][at]["supported_reasoning_levels"].as_array().unwrap();
        levels.iter().map(|level| level["effort"].as_str().unwrap()).collect()
    };
    assert!(efforts(0).starts_with(&["low", "medium", "high"]), "{:?}", efforts(0));
    assert_eq!(efforts(1), Vec::<&str>::new(), "gpt-4o refuses an effort");
    // Codex patches files with a tool of its own, and sets the verbosity, where every target takes both.
    let patches = |at: usize| {
        let model = &catalogue["models"][at];
        (model["apply_patch_tool_type"].as_str(), model["support_verbosity"] == true)
    };
    assert_eq!(
        [patches(0), patches(1), patches(2)],
        [(Some("freeform"), true), (None, false), (None, false)]
    );
    assert!(efforts(2).starts_with(&["low", "medium", "high"]), "{:?}", efforts(2));
    assert_eq!(slugs(&get(&gateway, path, NARROW_KEY).await), ["gpt"]);
    let refused = gateway.ask(request("GET", path, &[])).await;
    assert_eq!((refused.status(), &refused.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    // A header that names another API takes precedence.
    let headers = [("x-api-key", KEY), ("anthropic-version", "2023-06-01")];
    let list = gateway.ask(request("GET", path, &headers)).await.json();
    assert_eq!(list["data"][0]["id"], "gpt");
}

#[tokio::test]
async fn catalogue_has_the_configured_abilities() {
    let base = "http://127.0.0.1:9/v1";
    let mut setup = Setup::new().provider("openai", "openai", base, "");
    for (id, name, lines) in [
        ("known", "gpt-5", ""),
        ("text", "gpt-5", "image_input = false\nparallel_tool_calls = false"),
        ("coder", "qwen3-coder", ""),
        ("eyes", "qwen3-coder", "image_input = true"),
        ("fallen", "gpt-5", "fallback = [\"text\"]"),
    ] {
        setup.routes += &format!(
            "[[model]]\nid = \"{id}\"\n{lines}\ntargets = [{{ provider = \"openai\", model = \"{name}\" }}]\n"
        );
    }
    // A fallback to the same model at the same provider would be no second target.
    setup.routes = setup.routes.replacen(
        "\"gpt-5\" }]\n[[model]]\nid = \"coder\"",
        "\"gpt-5-mini\" }]\n[[model]]\nid = \"coder\"",
        1,
    );
    let gateway = Gateway::start(&setup).await;
    let catalogue = get(&gateway, "/v1/models?client_version=0.169.0", KEY).await;
    let of = |slug: &str| {
        let models = catalogue["models"].as_array().unwrap();
        let model = models.iter().find(|model| model["slug"] == slug).unwrap();
        let images = model["input_modalities"].as_array().unwrap().contains(&json!("image"));
        (images, model["supports_parallel_tool_calls"].as_bool().unwrap())
    };
    assert_eq!(of("known"), (true, true));
    assert_eq!(of("text"), (false, false));
    assert_eq!(of("coder"), (false, true), "known to read text only");
    assert_eq!(of("eyes"), (true, true));
    assert_eq!(of("fallen"), (false, false), "its fallback can do less");
}

/// Anthropic requires `max_tokens`; the other formats do not.
#[tokio::test]
async fn output_limit_of_a_model_is_that_of_requests_without_one() {
    let upstream = provider_of_every_form().await;
    for (setting, sent) in [("created = 0", 8_192), ("max_output_tokens = 16000", 16_000)] {
        let mut setup = Setup::each_provider(upstream.addr);
        setup.routes = setup.routes.replace("created = 1715367049", setting);
        let gateway = Gateway::start(&setup).await;
        for provider in Form::ALL {
            let model = provider_of(provider);
            let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
            let bearer = format!("Bearer {KEY}");
            let answer =
                gateway.ask(post_with("/v1/chat/completions", &[("authorization", &bearer)], body)).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let request = upstream.last_request().json();
            match provider {
                Form::Messages => assert_eq!(request["max_tokens"], sent),
                Form::Chat => assert_eq!(
                    (request.get("max_tokens"), request.get("max_completion_tokens")),
                    (None, None)
                ),
                Form::Responses => assert_eq!(request.get("max_output_tokens"), None),
                Form::Generate => {
                    let config =
                        request.get("generationConfig").and_then(|config| config.get("maxOutputTokens"));
                    assert_eq!(config, None);
                }
            }
        }
    }
}

#[tokio::test]
async fn model_is_found_by_every_name_that_requests_can_use() {
    let gateway = gateway().await;
    for (name, id) in [
        ("claude", "claude"),
        ("anthropic/claude", "claude"),
        ("anthropic%2Fclaude", "claude"),
        ("claude-thinking", "claude"),
        ("anthropic/claude-thinking-low", "claude"),
        ("anthropic/claude-nothinking", "claude"),
        ("gpt-thinking-8192", "gpt"),
        ("openai/gpt?client_version=0.169.0", "gpt"),
    ] {
        assert_eq!(get(&gateway, &format!("/v1/models/{name}"), KEY).await["id"], id, "{name}");
    }
    let one =
        gateway.ask(request("GET", "/v1beta/models/anthropic/claude", &[("x-goog-api-key", KEY)])).await;
    assert_eq!(one.json()["baseModelId"], "claude");
    for (name, key) in [
        ("openai/claude", KEY),
        ("nobody/claude", KEY),
        ("claude-thinking-deep", KEY),
        ("anthropic/claude", NARROW_KEY),
        ("claude-thinking", NARROW_KEY),
    ] {
        let bearer = format!("Bearer {key}");
        let path = format!("/v1/models/{name}");
        let missing = gateway.ask(request("GET", &path, &[("authorization", &bearer)])).await;
        assert_eq!(missing.status(), 404, "{name}: {}", missing.text());
        assert!(missing.json()["error"]["message"].as_str().unwrap().contains(name), "{}", missing.text());
    }
}

#[tokio::test]
async fn probe_of_a_starting_client_needs_no_key() {
    let gateway = gateway().await;
    let mut client = gateway.connect().await;
    client.send(request("HEAD", "/api/hello", &[])).await;
    assert_eq!(client.answer_to_head().await.status(), 200);
    let answer = gateway.ask(request("GET", "/api/hello", &[])).await;
    assert_eq!((answer.status(), answer.json()), (200, json!({"service": "model-gateway"})));
    let wrong = gateway.ask(request("POST", "/api/hello", &[])).await;
    assert_eq!((wrong.status(), wrong.get("allow")), (405, Some("GET, HEAD")));
    for line in &gateway.wait_for_log(3).await[..2] {
        assert_eq!((&line["endpoint"], &line["status"]), (&json!("root"), &json!(200)), "{line}");
        assert_eq!(line.get("error"), None, "{line}");
    }
    let metrics = gateway.metrics_after(3).await;
    assert_eq!(metrics.sum("gateway_requests_total", &[("endpoint", "root"), ("status", "200")]), 2.0);
}

/// Codex warns its user of a rerouted model if this header names another model than the requested one.
#[tokio::test]
async fn header_with_the_model_of_the_provider_is_not_forwarded() {
    let model = ("openai-model", "gpt-other");
    let json = ("content-type", "application/json");
    for form in Form::ALL {
        let headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), model];
        let frames: Vec<u8> = form.frames("gpt").iter().flat_map(reply::chunk).collect();
        let stream = [reply::head(200, &headers).as_bytes(), &frames, reply::LAST_CHUNK].concat();
        for (streamed, answer, status) in [
            (false, reply::whole(200, &[json, model], form.whole("gpt")), 200),
            (true, stream, 200),
            (false, reply::whole(400, &[json, model], r#"{"error":{"message":"no","type":"x"}}"#), 400),
        ] {
            let upstream = Upstream::answering(answer).await;
            let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
            for client in [Form::Responses, form] {
                let name = provider_of(form);
                let answer = gateway.ask(client.request_for(name, streamed)).await;
                assert_eq!(
                    (answer.status(), answer.get("openai-model")),
                    (status, None),
                    "{form:?} {client:?}"
                );
            }
        }
    }
}
