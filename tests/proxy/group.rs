//! Task group endpoints with models of several providers: synchronous images, and videos that are fetched with a token.

use base64_simd::STANDARD;
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::images::picture;
use super::support::client::{Answer, post, post_with, request};
use super::support::gateway::Gateway;
use super::support::setup::{CREDENTIAL, Setup};
use super::support::soon;

const API: &str = "/prod-api/svc/v4/api";
/// A gray image, black on one side and white on the other.
const MASK: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKklEQVR42u3MQREAAAwCIPuX3iL49yAASXFFBAKBQCAQCAQCgUAgEKwHD1Qt+GoVX6fRAAAAAElFTkSuQmCC";

struct Group {
    gateway: Gateway,
    openai: Simulator,
    google: Simulator,
    ark: Simulator,
}

async fn simulator(provider: SimulatedProvider) -> Simulator {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    Simulator::start(provider, options).await.unwrap()
}

impl Group {
    async fn open() -> Group {
        let (openai, google, ark) = (
            simulator(SimulatedProvider::OpenAi).await,
            simulator(SimulatedProvider::Google).await,
            simulator(SimulatedProvider::Ark).await,
        );
        let mut setup = Setup::new()
            .limits("fetch_allow = [\"127.0.0.0/8\"]")
            .provider("openai", "openai", &openai.base_url(), "")
            .provider("google", "gemini", &google.base_url(), "")
            .provider("ark", "ark", &ark.base_url(), "")
            .model("gpt-image-1", "openai", "gpt-image-1")
            .model("img2imgSubmit", "openai", "gpt-image-1")
            .model("gemini-2.5-flash-image", "google", "gemini-2.5-flash-image")
            .model("seedream", "ark", "doubao-seedream-4-0-250828")
            .model("sora-2", "openai", "sora-2")
            .model("vendorImageFirstLast", "google", "veo-3.1-generate-preview");
        let secret = "one-secret-that-signs-tokens-in-this-test-0123456789";
        setup.routes = format!(
            "[tokens]\nlifetime = \"1h\"\n[[tokens.key]]\nid = \"a\"\nalgorithm = \"HS256\"\nsecret = {{ value = \"{secret}\" }}\n{}",
            setup.routes
        );
        Group { gateway: Gateway::start(&setup).await, openai, google, ark }
    }

    async fn post(&self, name: &str, body: &Value) -> Answer {
        self.gateway.ask(post(&format!("{API}/{name}"), body.to_string())).await
    }
}

fn data(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!((&answer["code"], &answer["msg"]), (&json!(200), &json!("success")));
    answer["data"].clone()
}

fn extraction(model: &str, size: &str) -> Value {
    json!({"model": model, "prompt": "p", "n": 1, "size": size, "temperature": 1, "watermark": false})
}

fn is_data_url(url: &Value) {
    let text = url.as_str().unwrap().strip_prefix("data:image/png;base64,").unwrap();
    assert!(STANDARD.decode_to_vec(text).unwrap().starts_with(b"\x89PNG"));
}

#[tokio::test]
async fn group_images_of_every_provider_have_urls() {
    let group = Group::open().await;
    for (model, size, path) in [
        ("gpt-image-1", "1024x1024", "/v1/images/generations"),
        ("gemini-2.5-flash-image", "1:1", "/v1beta/models/gemini-2.5-flash-image:generateContent"),
    ] {
        let answer = group.post("productExtractionSubmit", &extraction(model, size)).await;
        is_data_url(&data(&answer)["images"][0]["url"]);
        let provider = if model.starts_with("gpt") { &group.openai } else { &group.google };
        assert_eq!(provider.last_request().unwrap().path, path);
    }
    // An image in the request makes it an edit; members that the model does not support are reported as dropped.
    let mut body = extraction("gpt-image-1", "1024x1024");
    body["image"] = json!(STANDARD.encode_to_string(picture()));
    body["score"] = json!(0.5);
    let answer = group.post("productExtractionSubmit", &json!({"batchImageGenerationDTO": body})).await;
    is_data_url(&data(&answer)["images"][0]["url"]);
    assert_eq!(group.openai.last_request().unwrap().path, "/v1/images/edits");
    assert_eq!(
        answer.get("x-gateway-warning"),
        Some("temperature dropped, batchImageGenerationDTO.score dropped")
    );
    for (format, starts) in [("url", "http://"), ("b64_json", "data:image/png;base64,")] {
        let mut body = extraction("seedream", "2048x2048");
        body["responseFormat"] = json!(format);
        body["n"] = json!(2);
        let images = data(&group.post("productExtractionSubmit", &body).await)["images"].clone();
        assert_eq!(images.as_array().unwrap().len(), 2);
        assert!(images[1]["url"].as_str().unwrap().starts_with(starts), "{images}");
    }
}

#[tokio::test]
async fn group_unsupported_member_is_named_as_the_client_spelled_it() {
    let group = Group::open().await;
    for (model, size, members, word) in [
        ("gpt-image-1", "1328x1328", json!({}), "'size'"),
        (
            "gpt-image-1",
            "1024x1024",
            json!({"sequentialImageGeneration": "auto"}),
            "'sequentialImageGeneration'",
        ),
        ("gpt-image-1", "1024x1024", json!({"optimizePrompt": "standard"}), "'optimizePrompt'"),
        ("gpt-image-1", "1024x1024", json!({"promptOptions": {"mode": "slow"}}), "'promptOptions.mode'"),
        ("gpt-image-1", "1024x1024", json!({"quality": "best"}), "'quality'"),
        ("gpt-image-1", "1024x1024", json!({"responseFormat": "xml"}), "'responseFormat'"),
        ("gpt-image-1", "1024x1024", json!({"n": 11}), "'n'"),
        ("gpt-image-1", "1024x1024", json!({"temperature": 3}), "'temperature'"),
        ("seedream", "64x64", json!({}), "'size'"),
        (
            "seedream",
            "2K",
            json!({"sequentialImageGenerationOptions": {"max_images": 2}}),
            "'sequentialImageGenerationOptions'",
        ),
        (
            "seedream",
            "2K",
            json!({"sequentialImageGeneration": "auto", "sequentialImageGenerationOptions": {"max_images": 5}}),
            "'sequentialImageGenerationOptions.max_images'",
        ),
    ] {
        let mut body = extraction(model, size);
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = group.post("productExtractionSubmit", &body).await;
        let found = answer.json();
        assert_eq!((answer.status(), &found["code"]), (400, &json!(400)), "{body}: {found}");
        assert!(found["msg"].as_str().unwrap().contains(word), "{body}: {found}");
    }
    assert_eq!((group.openai.requests(), group.ark.requests()), (0, 0));
}

/// White marks the editable area in the group's mask; transparency marks it in the provider's mask.
#[tokio::test]
async fn group_mask_is_converted_for_a_model_with_masks() {
    let group = Group::open().await;
    let image = format!("data:image/png;base64,{}", STANDARD.encode_to_string(picture()));
    let body = |mask: &str| {
        json!({"vendorImageBo": {"imageUrl": image, "prompt": "p",
        "image_urls": [image, format!("data:image/png;base64,{mask}")]}})
    };
    is_data_url(&data(&group.post("img2imgSubmit", &body(MASK)).await)["images"][0]["url"]);
    let sent = group.openai.last_request().unwrap().body;
    let has = |text: &[u8]| sent.windows(text.len()).any(|part| part == text);
    assert!(has(b"name=\"mask\"") && has(b"tRNS"));
    let answer = group.post("img2imgSubmit", &body(&STANDARD.encode_to_string(b"GIF89a\x01\0\x01\0"))).await;
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert!(answer.json()["msg"].as_str().unwrap().contains("image_urls[1]"), "{}", answer.text());
}

#[tokio::test]
async fn group_unknown_path_is_404_in_the_envelope() {
    let group = Group::open().await;
    for path in ["nothing", "task", "task/a/b", "text2imageSubmit/x", ""] {
        let answer = group.gateway.ask(post(&format!("{API}/{path}"), "{}")).await;
        let found = answer.json();
        assert_eq!(
            (answer.status(), &found["code"], &found["data"]),
            (404, &json!(404), &Value::Null),
            "{path}"
        );
    }
}

#[tokio::test]
async fn group_video_started_with_a_token_is_fetched_with_it() {
    let group = Group::open().await;
    let issued = data(&group.gateway.ask(post(&format!("{API}/token"), "")).await);
    let bearer = format!("Bearer {}", issued["access_token"].as_str().unwrap());
    let bearer = [("authorization", bearer.as_str())];
    let body = json!({"model": "sora-2", "prompt": "A cat [[film looks 0]]", "duration": "8", "aspect_ratio": "16:9"});
    let answer =
        group.gateway.ask(post_with(&format!("{API}/svcVideoCompletions"), &bearer, body.to_string())).await;
    let id = data(&answer)["task_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("video_"), "{id}");
    let told: Value = serde_json::from_slice(&group.openai.last_request().unwrap().body).unwrap();
    assert_eq!((&told["size"], &told["seconds"]), (&json!("1280x720"), &json!("8")));
    let query = format!("{API}/task/{id}");
    let url = soon(async {
        loop {
            let shown = data(&group.gateway.ask(request("GET", &query, &bearer)).await);
            if shown["task_status"] == "SUCCEEDED" {
                return shown["video_url"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
    let (_, path) = url.split_once("http://gateway.test").unwrap();
    let film = group.gateway.ask(request("GET", path, &bearer)).await;
    assert_eq!((film.status(), film.body.get(4..12)), (200, Some(&b"ftypmp42"[..])));
    // The finished video can be remixed, as any video of its family.
    let remix = json!({"model": "sora-2", "prompt": "A dog", "remix_from_video_id": id}).to_string();
    let again = group.gateway.ask(post("/v1/video/generations", remix)).await;
    assert_eq!(again.status(), 200, "{}", again.text());
}

/// For a provider that accepts no URLs the gateway fetches the images.
#[tokio::test]
async fn group_frames_are_fetched_for_providers_without_url_support() {
    let group = Group::open().await;
    let made = data(&group.post("productExtractionSubmit", &extraction("seedream", "2K")).await);
    let url = made["images"][0]["url"].as_str().unwrap();
    let body = json!({"image_urls": [url, url], "prompt": "p", "duration": 8});
    data(&group.post("vendorImageFirstLast", &body).await);
    let told: Value = serde_json::from_slice(&group.google.last_request().unwrap().body).unwrap();
    let instance = &told["instances"][0];
    for frame in ["image", "lastFrame"] {
        let text = instance[frame]["bytesBase64Encoded"].as_str().unwrap();
        assert!(STANDARD.decode_to_vec(text).unwrap().starts_with(b"\x89PNG"), "{frame}");
    }
}
