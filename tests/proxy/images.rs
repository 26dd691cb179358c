//! Images: three client APIs, and all kinds of providers.

use std::collections::BTreeMap;

use base64_simd::STANDARD;
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::{Answer, post, post_with, request};
use super::support::gateway::Gateway;
use super::support::setup::{CREDENTIAL, KEY, Setup, key};

/// Models with their provider and its kind.
const MODELS: [(&str, SimulatedProvider, &str); 14] = [
    ("gpt-image-1", SimulatedProvider::OpenAi, "openai"),
    ("gpt-image-1-mini", SimulatedProvider::OpenAi, "openai"),
    ("dall-e-3", SimulatedProvider::OpenAi, "openai"),
    ("gemini-2.5-flash-image", SimulatedProvider::Google, "gemini"),
    ("gemini-3-pro-image", SimulatedProvider::Google, "gemini"),
    ("imagen-4.0-generate-001", SimulatedProvider::Google, "gemini"),
    ("doubao-seedream-3-0-t2i", SimulatedProvider::Ark, "ark"),
    ("doubao-seededit-3-0-i2i", SimulatedProvider::Ark, "ark"),
    ("doubao-seedream-4-0", SimulatedProvider::Ark, "ark"),
    ("doubao-seedream-4-5", SimulatedProvider::Ark, "ark"),
    ("qwen-image-plus", SimulatedProvider::DashScope, "dashscope"),
    ("qwen-image-edit", SimulatedProvider::DashScope, "dashscope"),
    ("qwen-image-edit-plus", SimulatedProvider::DashScope, "dashscope"),
    ("wan2.2-t2i-plus", SimulatedProvider::DashScope, "dashscope"),
];
/// Models that return the image inline, whatever `response_format` the client requests.
const INLINE: [&str; 4] = ["gpt-image-1", "gpt-image-1-mini", "gemini-2.5-flash-image", "gemini-3-pro-image"];
/// A key with `images = "plain"`, for clients such as OpenAI's SDK.
pub(crate) const PLAIN: &str = "client-key-of-otto-0008";
/// A key with an account.
const PAYING: &str = "client-key-of-pia-0007";
/// A key without permission for images.
const CHATTING: &str = "client-key-of-carl-0009";

pub(crate) const MADE: &str = "/v1/images/generations";
pub(crate) const EDITED: &str = "/v1/images/edits";

pub(crate) struct Studio {
    pub(crate) gateway: Gateway,
    pub(crate) providers: BTreeMap<&'static str, Simulator>,
}

fn needs_image(model: &str) -> bool {
    model.contains("edit")
}

/// Returns a small valid PNG.
pub(crate) fn picture() -> Vec<u8> {
    let base64 = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAAA1BMVEX/AAAZ4gk3AAAAD0lEQVR4nGNgGAWjYCABAAIAAAFAkz3hAAAAAElFTkSuQmCC";
    STANDARD.decode_to_vec(base64).unwrap()
}

impl Studio {
    pub(crate) async fn open() -> Studio {
        Studio::open_with(Setup::new().limits("fetch_allow = [\"127.0.0.0/8\"]")).await
    }

    async fn open_with(mut setup: Setup) -> Studio {
        let mut providers = BTreeMap::new();
        for (model, provider, kind) in MODELS {
            let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
            let simulator = Simulator::start(provider, options).await.unwrap();
            setup = setup.provider(model, kind, &simulator.base_url(), "").model(model, model, model);
            providers.insert(model, simulator);
        }
        setup.keys += &key("otto", PLAIN, "images = \"plain\"");
        setup.keys += &key("carl", CHATTING, "endpoints = [\"chat\"]");
        Studio { gateway: Gateway::start(&setup).await, providers }
    }

    /// Sends a request that must succeed, and returns `data` of the envelope.
    async fn make(&self, body: &Value) -> Value {
        let answer = self.gateway.ask(post(MADE, body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}: {}", body["model"], answer.text());
        let envelope = answer.json();
        assert_eq!((&envelope["code"], &envelope["msg"]), (&json!(200), &json!("success")));
        envelope["data"].clone()
    }

    /// Returns the last request body that a provider received.
    fn asked(&self, model: &str) -> Value {
        serde_json::from_slice(&self.providers[model].last_request().unwrap().body).unwrap()
    }

    /// Sends a request that fails. Returns the status, the member that the error names, and the error.
    async fn refused(&self, body: &Value) -> (u16, Option<String>, Value) {
        let answer = self.gateway.ask(post(MADE, body.to_string())).await;
        let error = answer.json();
        (answer.status(), error["error"]["param"].as_str().map(str::to_owned), error)
    }
}

pub(crate) fn decoded(text: &Value) -> Vec<u8> {
    let bytes = STANDARD.decode_to_vec(text.as_str().unwrap()).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    bytes
}

/// Downloads from a link of a simulated provider.
async fn behind(url: &str) -> Answer {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    super::support::client::ask(host.parse().unwrap(), request("GET", &format!("/{path}"), &[])).await
}

#[tokio::test]
async fn image_response_of_every_family_follows_the_specification() {
    let studio = Studio::open().await;
    let image = STANDARD.encode_to_string(picture());
    for (model, ..) in MODELS {
        for format in [None, Some("url"), Some("b64_json")] {
            let mut body = json!({"model": model, "prompt": "a red circle"});
            if let Some(format) = format {
                body["response_format"] = json!(format);
            }
            if needs_image(model) {
                body["image"] = json!(image);
            }
            let data = studio.make(&body).await;
            assert!(data["created"].as_i64().unwrap() > 1_700_000_000, "{model}: {data}");
            let images = data["data"].as_array().unwrap();
            assert_eq!(images.len(), 1, "{model}");
            let (url, here) = (images[0]["url"].as_str().unwrap(), images[0]["b64_json"].as_str().unwrap());
            assert!(images[0]["revised_prompt"].is_string(), "{model}");
            if INLINE.contains(&model) || format == Some("b64_json") {
                assert_eq!(url, "", "{model} {format:?}");
                decoded(&images[0]["b64_json"]);
            } else if model.starts_with("imagen") {
                // The provider returns no links: a requested URL is a data URL.
                assert_eq!(url.starts_with("data:image/png;base64,"), format.is_some(), "{model} {format:?}");
                assert_eq!(here.is_empty(), format.is_some(), "{model} {format:?}");
            } else {
                assert_eq!(here, "", "{model} {format:?}");
                let found = behind(url).await;
                assert_eq!((found.status(), found.get("content-type")), (200, Some("image/png")), "{model}");
            }
        }
    }
    let usage = &studio.make(&json!({"model": "gpt-image-1", "prompt": "x"})).await["usage"];
    assert_eq!(usage["output_tokens"], 272, "{usage}");
    assert_eq!(usage["input_tokens_details"]["image_tokens"], 0, "{usage}");
}

#[tokio::test]
async fn image_plain_shape_is_selected_by_key_or_header() {
    let studio = Studio::open().await;
    let body = json!({"model": "gpt-image-1", "prompt": "x"}).to_string();
    for (key, wish, plain) in [
        (KEY, None, false),
        (PLAIN, None, true),
        (KEY, Some("plain"), true),
        (PLAIN, Some("envelope"), false),
    ] {
        let mut headers = vec![("x-api-key", key)];
        headers.extend(wish.map(|wish| ("x-gateway-images", wish)));
        let answer = studio.gateway.ask(post_with(MADE, &headers, &body)).await;
        assert_eq!(answer.status(), 200);
        let answer = answer.json();
        assert_eq!(answer.get("code").is_none(), plain, "{wish:?}");
        let images = if plain { &answer["data"] } else { &answer["data"]["data"] };
        decoded(&images[0]["b64_json"]);
        let wrong = studio.gateway.ask(post_with(MADE, &headers, r#"{"model":"gpt-image-1"}"#)).await;
        let error = wrong.json();
        assert_eq!((wrong.status(), &error["error"]["param"]), (400, &json!("prompt")));
        let enveloped = (error["code"] == 400, error["msg"] == error["error"]["message"]);
        assert_eq!(enveloped, (!plain, !plain), "{error}");
    }
    let headers = [("x-api-key", KEY), ("x-gateway-images", "round")];
    let wrong = studio.gateway.ask(post_with(MADE, &headers, &body)).await;
    assert_eq!((wrong.status(), &wrong.json()["error"]["param"]), (400, &json!("x-gateway-images")));
}

#[tokio::test]
async fn image_request_has_path_and_members_of_each_provider() {
    let studio = Studio::open().await;
    let image = format!("data:image/png;base64,{}", STANDARD.encode_to_string(picture()));
    for (model, members, path, pointers) in [
        (
            "gpt-image-1",
            json!({"quality": "low", "size": "1024x1536", "n": 2, "watermark": true, "background": "opaque"}),
            "/v1/images/generations",
            json!({"/quality": "low", "/size": "1024x1536", "/n": 2, "/watermark": null, "/background": "opaque",
                   "/response_format": null}),
        ),
        (
            "dall-e-3",
            json!({"style": "vivid", "response_format": "b64_json"}),
            "/v1/images/generations",
            json!({"/style": "vivid", "/response_format": "b64_json"}),
        ),
        (
            "gemini-2.5-flash-image",
            json!({"size": "16:9", "temperature": 0.5, "quality": "high", "image": image}),
            "/v1beta/models/gemini-2.5-flash-image:generateContent",
            json!({"/generationConfig/imageConfig/aspectRatio": "16:9", "/generationConfig/temperature": 0.5,
                   "/contents/0/parts/1/inlineData/mimeType": "image/png"}),
        ),
        (
            "gemini-3-pro-image",
            json!({"image_size": "2K"}),
            "/v1beta/models/gemini-3-pro-image:generateContent",
            json!({"/generationConfig/imageConfig/imageSize": "2K"}),
        ),
        (
            "imagen-4.0-generate-001",
            json!({"size": "1920x1080", "n": 3}),
            "/v1beta/models/imagen-4.0-generate-001:predict",
            json!({"/parameters/aspectRatio": "16:9", "/parameters/sampleCount": 3}),
        ),
        (
            "doubao-seedream-3-0-t2i",
            json!({"seed": 7, "guidance_scale": 2.5, "size": "1512x648"}),
            "/api/v3/images/generations",
            json!({"/watermark": false, "/seed": 7, "/guidance_scale": 2.5, "/response_format": "url"}),
        ),
        (
            "doubao-seededit-3-0-i2i",
            json!({"image": image, "watermark": true}),
            "/api/v3/images/generations",
            json!({"/watermark": true, "/image": image, "/size": "adaptive", "/guidance_scale": 2.5}),
        ),
        (
            "doubao-seedream-4-5",
            json!({"image": [image, "https://example.com/a.png"], "size": "2K", "watermark": null,
                   "optimize_prompt_options": {"mode": "standard"}}),
            "/api/v3/images/generations",
            json!({"/watermark": false, "/image/1": "https://example.com/a.png", "/optimize_prompt_options/mode": "standard"}),
        ),
        (
            "qwen-image-plus",
            json!({"size": "1664x928", "seed": 5, "negative_prompt": "fog"}),
            "/api/v1/services/aigc/multimodal-generation/generation",
            json!({"/parameters/watermark": false, "/parameters/size": "1664*928", "/parameters/seed": 5,
                   "/parameters/negative_prompt": "fog", "/input/messages/0/content/0/text": "a red circle"}),
        ),
        (
            "qwen-image-edit-plus",
            json!({"image": "https://example.com/a.png", "n": 2}),
            "/api/v1/services/aigc/multimodal-generation/generation",
            json!({"/input/messages/0/content/0/image": "https://example.com/a.png", "/parameters/n": 2}),
        ),
    ] {
        let mut body = json!({"model": model, "prompt": "a red circle"});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        studio.make(&body).await;
        assert_eq!(studio.providers[model].last_request().unwrap().path, path, "{model}");
        let asked = studio.asked(model);
        for (pointer, expected) in pointers.as_object().unwrap() {
            let found = asked.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(found, expected, "{model} {pointer}: {asked}");
        }
    }
}

#[tokio::test]
async fn image_count_beyond_the_provider_limit_is_split_into_calls() {
    let studio = Studio::open().await;
    for (model, count, calls) in [
        ("gpt-image-1", 10, 1),
        ("dall-e-3", 3, 3),
        ("gemini-2.5-flash-image", 3, 3),
        ("imagen-4.0-generate-001", 6, 2),
        ("doubao-seedream-4-0", 5, 5),
        ("qwen-image-plus", 2, 2),
        ("qwen-image-edit", 6, 6),
        ("qwen-image-edit-plus", 6, 1),
    ] {
        let mut body = json!({"model": model, "prompt": "x", "n": count});
        if needs_image(model) {
            body["image"] = json!(STANDARD.encode_to_string(picture()));
        }
        let data = studio.make(&body).await;
        assert_eq!(data["data"].as_array().unwrap().len(), count, "{model}");
        assert_eq!(studio.providers[model].requests(), calls, "{model}");
    }
    // Images of one sequence are one call.
    let body = json!({"model": "doubao-seedream-4-5", "prompt": "x", "sequential_image_generation": "auto",
        "sequential_image_generation_options": {"max_images": 3}});
    let data = studio.make(&body).await;
    assert_eq!(data["data"].as_array().unwrap().len(), 3);
    assert_eq!(studio.asked("doubao-seedream-4-5")["sequential_image_generation_options"]["max_images"], 3);
}

#[tokio::test]
async fn image_task_of_the_provider_is_polled_until_it_ends() {
    let studio = Studio::open().await;
    let data = studio
        .make(&json!({"model": "wan2.2-t2i-plus", "prompt": "x", "n": 2, "response_format": "b64_json"}))
        .await;
    for image in data["data"].as_array().unwrap() {
        decoded(&image["b64_json"]);
        assert_eq!(image["revised_prompt"], "A picture.");
    }
    assert_eq!(data["data"].as_array().unwrap().len(), 2);
    let (status, _, error) =
        studio.refused(&json!({"model": "wan2.2-t2i-plus", "prompt": "x [[refuse]]"})).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("DataInspectionFailed")), "{error}");
    assert!(error["msg"].as_str().unwrap().contains("inappropriate"), "{error}");
}

#[tokio::test]
async fn image_invalid_member_is_named_without_a_provider_call() {
    let studio = Studio::open().await;
    let image = STANDARD.encode_to_string(picture());
    for (body, field) in [
        (json!({"prompt": "x"}), "model"),
        (json!({"model": "gpt-image-1"}), "prompt"),
        (json!({"model": "gpt-image-1", "prompt": "x", "size": "1x1"}), "size"),
        (json!({"model": "gpt-image-1", "prompt": "x", "n": 11}), "n"),
        (json!({"model": "gpt-image-1", "prompt": "x", "stream": true}), "stream"),
        (json!({"model": "doubao-seedream-3-0-t2i", "prompt": "x", "image": image}), "image"),
        (json!({"model": "doubao-seedream-4-0", "prompt": "x", "image": vec![image.clone(); 6]}), "image"),
        (json!({"model": "doubao-seedream-4-5", "prompt": "x", "guidance_scale": 2}), "guidance_scale"),
        (json!({"model": "qwen-image-plus", "prompt": "x", "image": image}), "image"),
        (json!({"model": "qwen-image-edit", "prompt": "x"}), "image"),
        (json!({"model": "qwen-image-edit-plus", "prompt": "x", "image": image, "n": 7}), "n"),
        (json!({"model": "gemini-2.5-flash-image", "prompt": "x", "image": "AAAA"}), "image"),
        (json!({"model": "wan2.2-t2i-plus", "prompt": "x", "image": image}), "image"),
    ] {
        let (status, param, error) = studio.refused(&body).await;
        assert_eq!((status, param.as_deref()), (400, Some(field)), "{body}: {error}");
        let (message, kind) = (&error["error"]["message"], &error["error"]["type"]);
        assert!(message.as_str().unwrap().contains(&format!("'{field}")), "{error}");
        assert_eq!(
            (kind, &error["code"], &error["msg"]),
            (&json!("invalid_request_error"), &json!(400), message)
        );
    }
    assert!(studio.providers.values().all(|provider| provider.requests() == 0));
    let chatting = [("x-api-key", CHATTING)];
    let body = json!({"model": "gpt-image-1", "prompt": "x"}).to_string();
    for path in [MADE, EDITED, "/v1beta/models/gpt-image-1:predict"] {
        let answer = studio.gateway.ask(post_with(path, &chatting, &body)).await;
        assert_eq!(answer.status(), 403, "{path}");
    }
    // All errors have the envelope, also those of authentication and method.
    let unknown = studio.gateway.ask(post_with(MADE, &[("x-api-key", "wrong")], &body)).await;
    assert_eq!((unknown.status(), &unknown.json()["code"]), (401, &json!(401)), "{}", unknown.text());
    let method = studio.gateway.ask(request("GET", MADE, &chatting)).await;
    assert_eq!((method.status(), &method.json()["code"]), (405, &json!(405)), "{}", method.text());
}

#[tokio::test]
async fn image_provider_error_is_returned_in_the_envelope() {
    let studio = Studio::open().await;
    for (model, prompt, status, code, told) in [
        ("gpt-image-1", "x [[refuse]]", 400, json!("moderation_blocked"), "safety system"),
        ("gpt-image-1", "x [[status 429]]", 429, json!("rate_limit_exceeded"), "Rate limit"),
        ("gpt-image-1", "x [[garbage]]", 500, json!("upstream_error"), "not valid"),
        ("gpt-image-1", "x [[empty]]", 500, json!("upstream_error"), "not valid"),
        ("gpt-image-1", "x [[html]]", 500, json!("upstream_error"), "not valid"),
        ("gemini-2.5-flash-image", "x [[refuse]]", 400, json!("IMAGE_SAFETY"), "generated no image"),
        ("gemini-2.5-flash-image", "x [[status 503]]", 503, json!("upstream_error"), "overloaded"),
        ("imagen-4.0-generate-001", "x [[refuse]]", 400, json!("unsupported"), "Unable to show"),
        (
            "doubao-seedream-4-0",
            "x [[refuse]]",
            400,
            json!("OutputImageSensitiveContentDetected"),
            "sensitive",
        ),
        ("doubao-seedream-4-0", "x [[status 429]]", 429, json!("RateLimitExceeded"), "staged"),
        ("qwen-image-plus", "x [[refuse]]", 400, json!("DataInspectionFailed"), "inappropriate"),
        ("qwen-image-plus", "x [[status 500]]", 500, json!("upstream_error"), "staged"),
    ] {
        let (found, _, error) = studio.refused(&json!({"model": model, "prompt": prompt})).await;
        assert_eq!((found, &error["code"]), (status, &json!(status)), "{model} {prompt}: {error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(told), "{model} {prompt}: {error}");
        if code != "unsupported" {
            assert_eq!(error["error"]["code"], code, "{model} {prompt}: {error}");
        }
    }
}

#[tokio::test]
async fn image_cost_is_per_image_and_per_token() {
    let price = "request = 0\ninput = 1000000\nimage_output = 2000000\n\
                 image = [{ size = \"1024x1024\", quality = \"low\", each = 10 }, { size = \"1024x1024\", each = 20 }, { each = 40 }]";
    let mut setup =
        Setup::new().limits("fetch_allow = [\"127.0.0.0/8\"]").priced(price).account("acme", "100000");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let studio = Studio::open_with(setup).await;
    let headers = [("x-api-key", PAYING)];
    let requests = [
        // A token is 4 bytes of a prompt; an image of the simulated provider costs 272 tokens.
        (
            json!({"model": "gpt-image-1", "prompt": "abcd", "n": 2, "size": "1024x1024", "quality": "low"}),
            1 + 2 * 544 + 20,
        ),
        (
            json!({"model": "gpt-image-1", "prompt": "abcd", "size": "1024x1024", "quality": "high"}),
            1 + 544 + 20,
        ),
        // Quality and size that the request omits are taken from the provider's response.
        (json!({"model": "gpt-image-1", "prompt": "abcd", "size": "auto"}), 1 + 544 + 20),
        (json!({"model": "qwen-image-plus", "prompt": "abcd", "n": 2}), 80),
    ];
    for (number, (body, cost)) in requests.into_iter().enumerate() {
        let answer = studio.gateway.ask(post_with(MADE, &headers, body.to_string())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let record = studio.gateway.records(number + 1).await.pop().unwrap();
        assert_eq!(record["cost"], json!(format!("{cost}.00")), "{body}: {record}");
        assert_eq!((&record["endpoint"], &record["counted"]), (&json!("images"), &json!(false)), "{record}");
    }
    let log = studio.gateway.wait_for_log(4).await;
    assert_eq!(
        (&log[0]["endpoint"], &log[0]["output_tokens"]),
        (&json!("images"), &json!(544)),
        "{}",
        log[0]
    );
    let counted = [("endpoint", "images"), ("model", "gpt-image-1")];
    studio.gateway.wait_for_metric("gateway_requests_total", &counted, 3.0).await;
    // A refused request costs nothing.
    let before = studio.gateway.account("acme")["balance"].clone();
    let body = json!({"model": "gpt-image-1", "prompt": "x [[refuse]]"}).to_string();
    assert_eq!(studio.gateway.ask(post_with(MADE, &headers, body)).await.status(), 400);
    assert_eq!(studio.gateway.account("acme")["balance"], before);
}
