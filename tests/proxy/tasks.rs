//! Task group: six endpoints, two body shapes, one response envelope, idempotency keys (`req_key`) and access tokens.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::{Answer, post, post_with, request};
use super::support::gateway::Gateway;
use super::support::setup::{CREDENTIAL, KEY, NARROW_KEY, Setup};
use super::support::soon;

const API: &str = "/prod-api/svc/v4/api";
/// Ed25519 key pair for tests only (RFC 8032, section 7.1, test 1), in Base64.
const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g";
const PUBLIC: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

struct Group {
    gateway: Gateway,
    ark: Simulator,
    dashscope: Simulator,
}

async fn simulator(provider: SimulatedProvider) -> Simulator {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    Simulator::start(provider, options).await.unwrap()
}

fn tokens(keys: &str) -> String {
    format!("[tokens]\naudience = \"group\"\nlifetime = \"1h\"\n{keys}\n")
}

fn secret(id: &str) -> String {
    let secret = format!("{id}-0123456789-0123456789-0123456789");
    format!("[[tokens.key]]\nid = \"{id}\"\nalgorithm = \"HS256\"\nsecret = {{ value = \"{secret}\" }}\n")
}

fn setup(ark: &Simulator, dashscope: &Simulator) -> Setup {
    Setup::new()
        .provider("ark", "ark", &ark.base_url(), "")
        .provider("dashscope", "dashscope", &dashscope.base_url(), "")
        .model("vendorImageFirstLast", "ark", "doubao-seedance-1-5-pro-251215")
        .model("videoFaceMergeSubmit", "dashscope", "wan2.2-animate-mix")
        .model("text2imageSubmit", "ark", "doubao-seedream-4-0-250828")
        .model("img2imgSubmit", "dashscope", "qwen-image-edit-plus")
        .model("seedance", "ark", "doubao-seedance-1-0-lite-t2v-250428")
        .model("seedream", "ark", "doubao-seedream-4-5-251128")
}

impl Group {
    async fn open() -> Group {
        let (ark, dashscope) =
            (simulator(SimulatedProvider::Ark).await, simulator(SimulatedProvider::DashScope).await);
        let gateway = Gateway::start(&setup(&ark, &dashscope)).await;
        Group { gateway, ark, dashscope }
    }

    async fn post(&self, name: &str, body: &Value) -> Answer {
        self.gateway.ask(post(&format!("{API}/{name}"), body.to_string())).await
    }
}

fn asked(provider: &Simulator) -> (String, Value) {
    let last = provider.last_request().unwrap();
    (last.path, serde_json::from_slice(&last.body).unwrap_or_default())
}

fn data(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!((&answer["code"], &answer["msg"]), (&json!(200), &json!("success")));
    answer["data"].clone()
}

async fn get(gateway: &Gateway, path: &str, bearer: &str) -> Answer {
    gateway.ask(request("GET", path, &[("authorization", &format!("Bearer {bearer}"))])).await
}

/// Polls a task until it has ended, and returns its final state.
async fn end(gateway: &Gateway, id: &str) -> Value {
    let path = format!("{API}/task/{id}");
    soon(async {
        loop {
            let data = data(&get(gateway, &path, KEY).await);
            assert_eq!(data["task_id"], id);
            match data["task_status"].as_str().unwrap() {
                "SUCCEEDED" | "FAILED" => return data,
                "PENDING" | "RUNNING" => {}
                other => panic!("{other}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    })
    .await
}

#[tokio::test]
async fn task_endpoints_reach_their_providers_and_answer_in_their_shape() {
    let group = Group::open().await;
    let body = json!({"image_urls": ["https://h/1.png", "https://h/2.png"], "prompt": "p", "duration": 5,
        "resolution": "720P", "return_url": true, "req_key": "a"});
    let first = data(&group.post("vendorImageFirstLast", &body).await);
    assert_eq!(
        asked(&group.ark),
        (
            "/api/v3/contents/generations/tasks".to_owned(),
            json!({"model": "doubao-seedance-1-5-pro-251215", "content": [{"type": "text", "text": "p"},
                {"type": "image_url", "image_url": {"url": "https://h/1.png"}, "role": "first_frame"},
                {"type": "image_url", "image_url": {"url": "https://h/2.png"}, "role": "last_frame"}],
                "resolution": "720p", "duration": 5, "generate_audio": true})
        )
    );
    let face = json!({"imageUrl": "https://h/face.png", "videoUrl": "https://h/v.mp4", "reqKey": "b"});
    let wrapped = json!({"visualFaceFusionMovieSubmitTaskRequest": face});
    let second = data(&group.post("videoFaceMergeSubmit", &wrapped).await);
    assert_eq!(second["output"]["task_status"], "PENDING");
    assert!(second["request_id"].as_str().unwrap().starts_with("req_"));
    let (path, body) = asked(&group.dashscope);
    assert_eq!(path, "/api/v1/services/aigc/image2video/video-synthesis");
    assert_eq!(
        (&body["input"]["image_url"], &body["input"]["video_url"]),
        (&json!("https://h/face.png"), &json!("https://h/v.mp4"))
    );
    let body = json!({"model": "seedance", "prompt": "p", "duration": "5", "aspect_ratio": "16:9"});
    let third = data(&group.post("svcVideoCompletions", &body).await);
    for (answer, pointer) in [(&first, "/id"), (&second, "/output/task_id"), (&third, "/task_id")] {
        let id = answer.pointer(pointer).unwrap().as_str().unwrap();
        let ended = end(&group.gateway, id).await;
        assert_eq!(ended["task_status"], "SUCCEEDED");
        assert!(ended["video_url"].as_str().unwrap().contains("/films/"), "{ended}");
        // The tasks are visible through the plain video endpoint too.
        let shown = get(&group.gateway, &format!("/v1/video/generations/{id}"), KEY).await.json();
        assert_eq!((&shown["status"], &shown["url"]), (&json!("succeeded"), &ended["video_url"]));
    }

    let body = json!({"prompt": "p", "size": "1328x1328", "value": "1328x1328", "req_key": "c", "return_url": true,
        "width": 1328, "height": 1328});
    for body in [body.clone(), json!({"req": body})] {
        let images = data(&group.post("text2imageSubmit", &body).await);
        assert!(images["images"][0]["url"].as_str().unwrap().contains("/pictures/"), "{images}");
        let (path, asked) = asked(&group.ark);
        assert_eq!(
            (path.as_str(), &asked["size"], &asked["watermark"]),
            ("/api/v3/images/generations", &json!("1328x1328"), &json!(false))
        );
    }
    for wrong in
        [json!({"width": 1300, "height": 1328}), json!({"width": 1328}), json!({"width": 0, "height": 0})]
    {
        let mut body = json!({"prompt": "p", "size": "1328x1328", "value": "1328x1328", "req_key": "c"});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let answer = group.post("text2imageSubmit", &json!({"req": body})).await;
        assert_eq!(answer.json()["code"], 400, "{body}");
        assert!(answer.text().contains("width"), "{}", answer.text());
    }
    let body = json!({"model": "seedream", "prompt": "p", "n": 3, "size": "2K", "temperature": 1, "watermark": true,
        "image": "https://h/p.png", "sequentialImageGeneration": "auto", "promptOptions": {"mode": "standard"}});
    for body in [body.clone(), json!({"batchImageGenerationDTO": body})] {
        let images = data(&group.post("productExtractionSubmit", &body).await);
        assert_eq!(images["images"].as_array().unwrap().len(), 3, "{images}");
    }
    assert_eq!(
        asked(&group.ark).1,
        json!({"model": "doubao-seedream-4-5-251128", "prompt": "p", "image": "https://h/p.png", "size": "2K",
            "response_format": "url", "watermark": true, "sequential_image_generation": "auto",
            "sequential_image_generation_options": {"max_images": 3}, "optimize_prompt_options": {"mode": "standard"}})
    );
    let body = json!({"vendorImageBo": {"imageUrl": "https://h/1", "image_urls": ["https://h/1", "https://h/mask"], "prompt": "p"}});
    let images = data(&group.post("img2imgSubmit", &body).await);
    assert!(images["images"][0]["url"].is_string());
    let (path, body) = asked(&group.dashscope);
    assert_eq!(path, "/api/v1/services/aigc/multimodal-generation/generation");
    assert_eq!(
        body["input"]["messages"][0]["content"],
        json!([{"image": "https://h/1"}, {"image": "https://h/mask"}, {"text": "p"}])
    );
}

#[expect(clippy::too_many_lines, reason = "a table of requests and errors")]
#[tokio::test]
async fn task_invalid_member_is_named_in_the_envelope() {
    let group = Group::open().await;
    let urls = json!(["https://h/1", "https://h/2"]);
    for (name, body, status, word) in [
        ("vendorImageFirstLast", json!({"prompt": "p", "duration": 5}), 400, "image_urls"),
        (
            "vendorImageFirstLast",
            json!({"image_urls": ["https://h/1"], "prompt": "p", "duration": 5}),
            400,
            "image_urls",
        ),
        (
            "vendorImageFirstLast",
            json!({"image_urls": ["https://h/1", "x"], "prompt": "p", "duration": 5}),
            400,
            "image_urls[1]",
        ),
        ("vendorImageFirstLast", json!({"image_urls": urls, "duration": 5}), 400, "prompt"),
        ("vendorImageFirstLast", json!({"image_urls": urls, "prompt": "p"}), 400, "duration"),
        ("vendorImageFirstLast", json!({"image_urls": urls, "prompt": "p", "duration": 13}), 400, "duration"),
        ("vendorImageFirstLast", json!({"image_urls": urls, "prompt": "p", "duration": 7}), 400, "duration"),
        ("vendorImageFirstLast", json!({"image_urls": urls, "prompt": "p", "duration": 0}), 400, "duration"),
        (
            "vendorImageFirstLast",
            json!({"image_urls": urls, "prompt": "p --rs 1p", "duration": 5}),
            400,
            "prompt",
        ),
        ("videoFaceMergeSubmit", json!({"videoUrl": "https://h/v", "reqKey": "k"}), 400, "imageUrl"),
        ("videoFaceMergeSubmit", json!({"imageUrl": "https://h/v", "reqKey": "k"}), 400, "videoUrl"),
        (
            "videoFaceMergeSubmit",
            json!({"imageUrl": "https://h/v", "videoUrl": "https://h/v"}),
            400,
            "reqKey",
        ),
        ("svcVideoCompletions", json!({"prompt": "p", "duration": 5, "aspect_ratio": "16:9"}), 400, "model"),
        (
            "svcVideoCompletions",
            json!({"model": "seedance", "prompt": "p", "duration": "4", "aspect_ratio": "16:9"}),
            400,
            "duration",
        ),
        (
            "svcVideoCompletions",
            json!({"model": "seedance", "prompt": "p", "duration": "5"}),
            400,
            "aspect_ratio",
        ),
        (
            "svcVideoCompletions",
            json!({"model": "none", "prompt": "p", "duration": "5", "aspect_ratio": "16:9"}),
            404,
            "none",
        ),
        (
            "text2imageSubmit",
            json!({"prompt": "p", "size": "1024x1024", "value": "1024x1025", "req_key": "k"}),
            400,
            "value",
        ),
        (
            "text2imageSubmit",
            json!({"prompt": "p", "size": "2048x2048", "value": "2048x2048", "req_key": "k"}),
            400,
            "size",
        ),
        (
            "text2imageSubmit",
            json!({"prompt": "p", "size": "1024x1024", "value": "1024x1024"}),
            400,
            "req_key",
        ),
        (
            "productExtractionSubmit",
            json!({"model": "seedream", "prompt": "p", "size": "2K", "temperature": 1, "watermark": true}),
            400,
            "n",
        ),
        ("img2imgSubmit", json!({"prompt": "p"}), 400, "imageUrl"),
        ("img2imgSubmit", json!([1]), 400, "JSON"),
    ] {
        let answer = group.post(name, &body).await;
        let found = answer.json();
        assert_eq!((answer.status(), &found["code"]), (status, &json!(status)), "{name} {body}: {found}");
        assert!(
            found["msg"].as_str().unwrap().contains(word) && found["data"].is_null(),
            "{name} {body}: {found}"
        );
    }
    assert_eq!((group.ark.requests(), group.dashscope.requests()), (0, 0));
    let body =
        json!({"prompt": "p [[status 429]]", "size": "1024x1024", "value": "1024x1024", "req_key": "k"});
    let answer = group.post("text2imageSubmit", &body).await;
    assert_eq!((answer.status(), &answer.json()["code"]), (429, &json!(429)));
    let nobody = group.gateway.ask(post_with(&format!("{API}/img2imgSubmit"), &[], "{}")).await;
    assert_eq!((nobody.status(), &nobody.json()["code"]), (401, &json!(401)));
    let unknown = get(&group.gateway, &format!("{API}/task/task_0"), KEY).await;
    assert_eq!((unknown.status(), &unknown.json()["code"]), (404, &json!(404)));
}

#[tokio::test]
async fn task_idempotency_key_makes_one_video_of_two_requests() {
    let group = Group::open().await;
    let body = |tag: &str| json!({"model": "seedance", "prompt": "p", "duration": "5", "aspect_ratio": "16:9", "req_key": tag});
    let id = |answer: Answer| data(&answer)["task_id"].as_str().unwrap().to_owned();
    let first = id(group.post("svcVideoCompletions", &body("one")).await);
    let requests = group.ark.requests();
    assert_eq!(id(group.post("svcVideoCompletions", &body("one")).await), first);
    assert_eq!(group.ark.requests(), requests, "the provider is not asked again");
    assert_ne!(id(group.post("svcVideoCompletions", &body("two")).await), first);
    // Different formatting of the same request matches; different members make another task.
    let spaced = serde_json::to_string_pretty(&body("one")).unwrap();
    let again = group.gateway.ask(post(&format!("{API}/svcVideoCompletions"), spaced)).await;
    assert_eq!(id(again), first);
    for (name, value) in [("prompt", "another"), ("duration", "8"), ("aspect_ratio", "9:16")] {
        let mut other = body("one");
        other[name] = json!(value);
        assert_ne!(id(group.post("svcVideoCompletions", &other).await), first, "{name}");
    }
    // A refused request releases its idempotency key.
    let mut failing = body("three");
    failing["prompt"] = json!("p [[status 500]]");
    assert_eq!(group.post("svcVideoCompletions", &failing).await.status(), 500);
    assert_eq!(group.post("svcVideoCompletions", &failing).await.status(), 500);
    id(group.post("svcVideoCompletions", &body("three")).await);
}

#[tokio::test]
async fn task_idempotency_key_makes_images_once() {
    let group = Group::open().await;
    let body = |tag: &str| json!({"prompt": "p", "size": "1328x1328", "value": "1328x1328", "req_key": tag});
    let first = data(&group.post("text2imageSubmit", &body("one")).await);
    assert_eq!(group.ark.requests(), 1);
    let wrapped = data(&group.post("text2imageSubmit", &json!({"req": body("one")})).await);
    assert!(wrapped["images"][0]["url"].is_string());
    let made = group.ark.requests();
    assert_eq!(data(&group.post("text2imageSubmit", &body("one")).await), first);
    assert_eq!(group.ark.requests(), made, "the provider is not asked again");
    let mut other = body("one");
    other["prompt"] = json!("another");
    data(&group.post("text2imageSubmit", &other).await);
    data(&group.post("text2imageSubmit", &body("two")).await);
    assert_eq!(group.ark.requests(), made + 2);
    // Two concurrent requests are one; a failed one releases its idempotency key.
    let slow =
        json!({"prompt": "p [[delay 300]]", "size": "1328x1328", "value": "1328x1328", "req_key": "three"});
    let (one, two) =
        tokio::join!(group.post("text2imageSubmit", &slow), group.post("text2imageSubmit", &slow));
    assert_eq!(data(&one), data(&two));
    assert_eq!(group.ark.requests(), made + 3);
    let failing =
        json!({"prompt": "p [[status 500]]", "size": "1328x1328", "value": "1328x1328", "req_key": "four"});
    for _ in 0..2 {
        assert_eq!(group.post("text2imageSubmit", &failing).await.status(), 500);
    }
    assert_eq!(group.ark.requests(), made + 5);
}

/// Issues an access token and returns it.
async fn token(gateway: &Gateway) -> String {
    let answer = gateway.ask(post(&format!("{API}/token"), "")).await;
    let data = data(&answer);
    assert_eq!((&data["token_type"], &data["expires_in"]), (&json!("Bearer"), &json!(3_600)));
    data["access_token"].as_str().unwrap().to_owned()
}

async fn with(gateway: &Gateway, bearer: &str) -> u16 {
    get(gateway, &format!("{API}/task/task_0"), bearer).await.status()
}

#[tokio::test]
async fn task_token_stands_for_its_key_until_key_or_secret_is_removed() {
    let (ark, dashscope) =
        (simulator(SimulatedProvider::Ark).await, simulator(SimulatedProvider::DashScope).await);
    let setup = setup(&ark, &dashscope);
    let routes = setup.routes.clone();
    let mut first = setup;
    first.routes = tokens(&secret("old")) + &routes;
    let gateway = Gateway::start(&first).await;
    let old = token(&gateway).await;
    assert_eq!(with(&gateway, &old).await, 404, "there is no such task, but the token is one");
    let body =
        json!({"model": "seedance", "prompt": "p", "duration": "5", "aspect_ratio": "16:9"}).to_string();
    let bearer = format!("Bearer {old}");
    let answer = gateway
        .ask(post_with(&format!("{API}/svcVideoCompletions"), &[("authorization", &bearer)], body))
        .await;
    let id = data(&answer)["task_id"].as_str().unwrap().to_owned();
    // A task that was started with the token belongs to the token's key.
    assert_eq!(get(&gateway, &format!("{API}/task/{id}"), KEY).await.status(), 200);
    assert_eq!(get(&gateway, &format!("{API}/task/{id}"), NARROW_KEY).await.status(), 404);
    // The token is valid for the task group only, and does not issue another token.
    assert_eq!(get(&gateway, "/v1/models", &old).await.status(), 401);
    assert_eq!(
        gateway.ask(post_with(&format!("{API}/token"), &[("authorization", &bearer)], "")).await.status(),
        401
    );
    // The API key may be sent in the body.
    let in_body =
        gateway.ask(post_with(&format!("{API}/token"), &[], json!({"apiKey": KEY}).to_string())).await;
    assert!(data(&in_body)["access_token"].is_string());
    let wrong =
        gateway.ask(post_with(&format!("{API}/token"), &[], json!({"apiKey": "nobody's"}).to_string())).await;
    assert_eq!((wrong.status(), &wrong.json()["code"]), (401, &json!(401)));

    let pair = format!(
        "[[tokens.key]]\nid = \"new\"\nalgorithm = \"EdDSA\"\nsecret = {{ value = \"{PRIVATE}\" }}\npublic = \"{PUBLIC}\"\n"
    );
    gateway.replace("routes.toml", &(tokens(&(pair.clone() + &secret("old"))) + &routes));
    gateway.reload("applied").await;
    let new = token(&gateway).await;
    assert_eq!((with(&gateway, &old).await, with(&gateway, &new).await), (404, 404));
    gateway.replace("routes.toml", &(tokens(&pair) + &routes));
    gateway.reload("applied").await;
    assert_eq!((with(&gateway, &old).await, with(&gateway, &new).await), (401, 404));
    // Disabling a key disables its tokens.
    gateway
        .replace("keys.toml", &first.keys.replace("name = \"alice\"", "name = \"alice\"\nenabled = false"));
    gateway.reload("applied").await;
    assert_eq!(with(&gateway, &new).await, 401);
    gateway.replace("routes.toml", &routes);
    gateway.reload("applied").await;
    assert_eq!(with(&gateway, &new).await, 401);
}

#[tokio::test]
async fn task_provider_may_be_another_gateway_of_the_group() {
    let group = Group::open().await;
    let base = format!("http://{}{API}", group.gateway.addr);
    let lines = "apis = [\"tasks\"]\n";
    let setup = Setup::new()
        .provider("other", "openai-compatible", &base, lines)
        .model("svc", "other", "seedance")
        .model("text2imageSubmit", "other", "text2imageSubmit");
    let mut setup = setup;
    setup.routes = setup.routes.replace(CREDENTIAL, KEY);
    let front = Gateway::start(&setup).await;
    let body =
        json!({"model": "svc", "prompt": "p", "duration": "5", "aspect_ratio": "16:9", "req_key": "k"});
    let answer = front.ask(post(&format!("{API}/svcVideoCompletions"), body.to_string())).await;
    let id = data(&answer)["task_id"].as_str().unwrap().to_owned();
    assert_eq!(asked(&group.ark).1["model"], "doubao-seedance-1-0-lite-t2v-250428");
    let ended = end(&front, &id).await;
    assert_eq!(ended["task_status"], "SUCCEEDED");
    assert!(ended["video_url"].as_str().unwrap().contains("/films/"));
    let body = json!({"prompt": "p", "size": "1024x1024", "value": "1024x1024", "req_key": "k"});
    let answer = front.ask(post(&format!("{API}/text2imageSubmit"), body.to_string())).await;
    assert!(data(&answer)["images"][0]["url"].as_str().unwrap().contains("/pictures/"));
}
