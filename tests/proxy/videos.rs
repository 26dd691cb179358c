//! Videos from submission to download, for all client formats and all kinds of providers.

use std::collections::BTreeMap;

use base64_simd::STANDARD;
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::support::client::{Answer, post, post_with, request};
use super::support::gateway::Gateway;
use super::support::setup::{CREDENTIAL, KEY, NARROW_KEY, Setup};

/// Models with their provider, its kind, and the path of its base URL.
const MODELS: [(&str, SimulatedProvider, &str, &str); 8] = [
    ("sora-2", SimulatedProvider::OpenAi, "openai", "v1"),
    ("sora-azure", SimulatedProvider::OpenAi, "azure", "openai/v1"),
    ("veo-3.1-fast-generate-preview", SimulatedProvider::Google, "gemini", "v1beta"),
    ("veo-3.1-generate-001", SimulatedProvider::Google, "vertex", "v1/projects/p/locations/l"),
    ("wan2.5-t2v-preview", SimulatedProvider::DashScope, "dashscope", "compatible-mode/v1"),
    ("wan2.5-i2v-preview", SimulatedProvider::DashScope, "dashscope", "api/v1"),
    ("doubao-seedance-1-5-pro-251215", SimulatedProvider::Ark, "ark", "api/v3"),
    ("doubao-seedance-1-5-pro-251215-noAudio", SimulatedProvider::Ark, "ark", "api/v3"),
];

/// A PNG of one red pixel, in Base64.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// A gateway with all [`MODELS`], each at its own simulated provider.
pub(crate) struct Studio {
    pub(crate) gateway: Gateway,
    pub(crate) providers: BTreeMap<&'static str, Simulator>,
}

pub(crate) async fn providers(mut setup: Setup) -> (Setup, BTreeMap<&'static str, Simulator>) {
    let mut providers = BTreeMap::new();
    for (model, provider, kind, path) in MODELS {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        let simulator = Simulator::start(provider, options).await.unwrap();
        let base = format!("http://{}/{path}", simulator.addr());
        let lines = if kind == "vertex" { "apis = [\"videos\"]" } else { "" };
        setup = setup.provider(model, kind, &base, lines).model(model, model, model);
        providers.insert(model, simulator);
    }
    (setup, providers)
}

impl Studio {
    pub(crate) async fn open() -> Studio {
        let (setup, providers) = providers(Setup::new()).await;
        Studio { gateway: Gateway::start(&setup).await, providers }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        get(&self.gateway, path).await
    }

    /// Submits a task and returns its id.
    async fn begin(&self, body: &Value) -> String {
        let answer = self.gateway.ask(post("/v1/video/generations", body.to_string())).await;
        assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
        let answer = answer.json();
        assert_eq!((&answer["status"], &answer["format"]), (&json!("submitted"), &json!("mp4")));
        answer["task_id"].as_str().unwrap().to_owned()
    }

    /// Polls a task until it has ended, and returns its final state.
    async fn end(&self, id: &str) -> Value {
        end(&self.gateway, id).await
    }

    /// Like [`Studio::end`], for several tasks.
    async fn ends(&self, ids: impl Iterator<Item = &String>) -> Vec<Value> {
        let ids: Vec<&str> = ids.map(String::as_str).collect();
        ends(&self.gateway, &ids).await
    }

    fn asked(&self, model: &str) -> (String, Value) {
        let last = self.providers[model].last_request().unwrap();
        (last.path, serde_json::from_slice(&last.body).unwrap_or_default())
    }
}

pub(crate) async fn get(gateway: &Gateway, path: &str) -> Answer {
    gateway.ask(request("GET", path, &[("authorization", &format!("Bearer {KEY}"))])).await
}

pub(crate) async fn end(gateway: &Gateway, id: &str) -> Value {
    ends(gateway, &[id]).await.remove(0)
}

/// Polls tasks until all have ended, and returns their final states. The gateway asks a provider at most once a second
/// for each task, so all tasks are polled together.
async fn ends(gateway: &Gateway, ids: &[&str]) -> Vec<Value> {
    let mut ended = vec![Value::Null; ids.len()];
    for _ in 0..40 {
        for (id, ended) in ids.iter().zip(&mut ended).filter(|(_, ended)| ended.is_null()) {
            let answer = get(gateway, &format!("/v1/video/generations/{id}")).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let answer = answer.json();
            assert_eq!(answer["task_id"], *id);
            match answer["status"].as_str().unwrap() {
                "succeeded" | "failed" => *ended = answer,
                "submitted" | "queued" | "in_progress" => {}
                other => panic!("{other}"),
            }
        }
        if ended.iter().all(|ended| !ended.is_null()) {
            return ended;
        }
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    }
    panic!("of the tasks {ids:?} not all end: {ended:?}");
}

pub(crate) fn body(model: &str, prompt: &str) -> Value {
    if model.contains("seedance") {
        return json!({"model": model, "metadata": {"content": [{"type": "text", "text": prompt}]}});
    }
    let mut body = json!({"model": model, "prompt": prompt});
    if model.contains("i2v") {
        body["image"] = json!(format!("data:image/png;base64,{PICTURE}"));
    }
    body
}

fn is_video(bytes: &[u8], size: usize) {
    assert_eq!(bytes.len(), size);
    assert_eq!(bytes.get(4..12).unwrap(), b"ftypmp42");
}

#[tokio::test]
async fn video_of_every_provider_is_submitted_polled_and_downloaded() {
    let studio = Studio::open().await;
    let mut ids = Vec::new();
    for (model, ..) in MODELS {
        let id = studio.begin(&body(model, "A cat [[film bytes 70001]]")).await;
        assert_eq!(id.starts_with("video_"), model.starts_with("sora"), "{id}");
        ids.push((model, id));
    }
    let ends = studio.ends(ids.iter().map(|(_, id)| id)).await;
    for ((model, id), ended) in ids.into_iter().zip(ends) {
        assert_eq!((&ended["status"], &ended["model"]), (&json!("succeeded"), &json!(model)), "{ended}");
        let everything = ended.to_string();
        assert!(!everything.contains(CREDENTIAL), "{model}");
        let content = studio.get(&format!("/v1/videos/{id}/content")).await;
        if model.starts_with("sora") {
            assert!(ended["url"].is_null(), "{ended}");
            let download = studio.get(&format!("/v1/video/generations/download?id={id}")).await;
            assert_eq!(download.status(), 200, "{}", download.text());
            let download = download.json();
            assert_eq!((&download["success"], &download["size"]), (&json!(true), &json!(70_001)));
            assert_eq!((&download["generation_id"], &download["task_id"]), (&json!(id), &json!(id)));
            assert_eq!(download["format"], "mp4");
            let text = download["base64"].as_str().unwrap();
            assert_eq!(download["data_url"], format!("data:video/mp4;base64,{text}"));
            is_video(&STANDARD.decode_to_vec(text).unwrap(), 70_001);
            is_video(&content.body, 70_001);
        } else if model.starts_with("veo") {
            let text = ended["url"].as_str().unwrap().strip_prefix("data:video/mp4;base64,").unwrap();
            is_video(&STANDARD.decode_to_vec(text).unwrap(), 70_001);
            is_video(&content.body, 70_001);
        } else {
            let url = ended["url"].as_str().unwrap();
            assert!(url.starts_with("http://") && url.contains("/films/"), "{url}");
            // A public link is passed on to the client.
            assert_eq!((content.status(), content.get("location")), (302, Some(url)));
        }
        if !model.starts_with("sora") {
            let download = studio.get(&format!("/v1/video/generations/download?id={id}")).await;
            assert_eq!((download.status(), &download.json()["error"]["param"]), (400, &json!("id")));
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a table of providers and requests")]
#[tokio::test]
async fn video_request_has_the_members_of_each_provider() {
    let studio = Studio::open().await;
    let data = format!("data:image/png;base64,{PICTURE}");
    for (model, body, path, expected) in [
        (
            "sora-2",
            json!({"prompt": "p", "seconds": 8, "size": "1280x720", "input_reference": data}),
            "/v1/videos",
            json!({"model": "sora-2", "prompt": "p", "seconds": "8", "size": "1280x720", "input_reference": {"image_url": data}}),
        ),
        (
            "sora-azure",
            json!({"prompt": "p"}),
            "/openai/v1/videos",
            json!({"model": "sora-azure", "prompt": "p", "seconds": "4", "size": "720x1280"}),
        ),
        (
            "veo-3.1-fast-generate-preview",
            json!({"prompt": "p", "image": PICTURE, "lastFrame": data, "durationSeconds": 8, "seed": 1, "generateAudio": true, "sampleCount": 1}),
            "/v1beta/models/veo-3.1-fast-generate-preview:predictLongRunning",
            json!({"instances": [{"prompt": "p", "image": {"bytesBase64Encoded": PICTURE, "mimeType": "image/png"},
                "lastFrame": {"bytesBase64Encoded": PICTURE, "mimeType": "image/png"}}],
                "parameters": {"aspectRatio": "16:9", "resolution": "1080p", "durationSeconds": 8}}),
        ),
        (
            "veo-3.1-generate-001",
            json!({"prompt": "p", "aspectRatio": "9:16", "resolution": "720p", "seed": 7, "generateAudio": true,
                "addWatermark": false, "sampleCount": 2, "personGeneration": "allow_adult"}),
            "/v1/projects/p/locations/l/publishers/google/models/veo-3.1-generate-001:predictLongRunning",
            json!({"instances": [{"prompt": "p"}], "parameters": {"aspectRatio": "9:16", "resolution": "720p", "durationSeconds": 4,
                "personGeneration": "allow_adult", "sampleCount": 2, "generateAudio": true, "seed": 7, "addWatermark": false}}),
        ),
        (
            "wan2.5-t2v-preview",
            json!({"prompt": "p", "aspect_ratio": "9:16", "resolution": "1080p", "duration": 10, "metadata": {"prompt_extend": false, "audio_url": "https://h/a"}}),
            "/api/v1/services/aigc/video-generation/video-synthesis",
            json!({"model": "wan2.5-t2v-preview", "input": {"prompt": "p", "audio_url": "https://h/a"},
                "parameters": {"size": "1080*1920", "duration": 10, "watermark": false, "prompt_extend": false}}),
        ),
        (
            "wan2.5-i2v-preview",
            json!({"prompt": "p", "image": "https://h/i.png", "seed": 5}),
            "/api/v1/services/aigc/video-generation/video-synthesis",
            json!({"model": "wan2.5-i2v-preview", "input": {"prompt": "p", "img_url": "https://h/i.png"},
                "parameters": {"resolution": "720P", "duration": 5, "seed": 5, "watermark": false}}),
        ),
        (
            "doubao-seedance-1-5-pro-251215-noAudio",
            json!({"prompt": "not used", "metadata": {"content": [{"type": "text", "text": "p --ratio 16:9 --dur 5"},
                {"type": "image_url", "image_url": {"url": "https://h/1"}, "role": "first_frame"},
                {"type": "image_url", "image_url": {"url": "https://h/2"}, "role": "last_frame"}], "camera_fixed": true}}),
            "/api/v3/contents/generations/tasks",
            json!({"model": "doubao-seedance-1-5-pro-251215", "content": [{"type": "text", "text": "p --ratio 16:9 --dur 5"},
                {"type": "image_url", "image_url": {"url": "https://h/1"}, "role": "first_frame"},
                {"type": "image_url", "image_url": {"url": "https://h/2"}, "role": "last_frame"}],
                "resolution": "720p", "generate_audio": false, "camera_fixed": true}),
        ),
        // Members that the client omits get the defaults of docs/specification.md.
        (
            "doubao-seedance-1-5-pro-251215",
            json!({"prompt": "p"}),
            "/api/v3/contents/generations/tasks",
            json!({"model": "doubao-seedance-1-5-pro-251215", "content": [{"type": "text", "text": "p"}],
                "resolution": "720p", "ratio": "16:9", "duration": 5, "generate_audio": true}),
        ),
        // The provider offers 1080p only with a duration of eight seconds; other videos get 720p and four seconds by
        // default.
        (
            "veo-3.1-fast-generate-preview",
            json!({"prompt": "p"}),
            "/v1beta/models/veo-3.1-fast-generate-preview:predictLongRunning",
            json!({"instances": [{"prompt": "p"}],
                "parameters": {"aspectRatio": "16:9", "resolution": "720p", "durationSeconds": 4}}),
        ),
        (
            "veo-3.1-fast-generate-preview",
            json!({"prompt": "p", "size": "1080x1920"}),
            "/v1beta/models/veo-3.1-fast-generate-preview:predictLongRunning",
            json!({"instances": [{"prompt": "p"}],
                "parameters": {"aspectRatio": "9:16", "resolution": "1080p", "durationSeconds": 8}}),
        ),
        (
            "wan2.5-t2v-preview",
            json!({"prompt": "p", "size": "832x1088"}),
            "/api/v1/services/aigc/video-generation/video-synthesis",
            json!({"model": "wan2.5-t2v-preview", "input": {"prompt": "p"},
                "parameters": {"size": "832*1088", "duration": 5, "watermark": false}}),
        ),
        (
            "sora-2",
            json!({"prompt": "p", "aspect_ratio": "16:9", "resolution": "720p"}),
            "/v1/videos",
            json!({"model": "sora-2", "prompt": "p", "seconds": "4", "size": "1280x720"}),
        ),
    ] {
        let mut body = body;
        body["model"] = json!(model);
        studio.begin(&body).await;
        assert_eq!(studio.asked(model), (path.to_owned(), expected), "{model}");
    }
}

#[tokio::test]
async fn video_remix_goes_to_the_provider_of_the_original() {
    let studio = Studio::open().await;
    let first = studio.begin(&body("sora-2", "A cat")).await;
    let remix = json!({"model": "sora-2", "prompt": "A dog", "remix_from_video_id": first});
    let second = studio.begin(&remix).await;
    let (path, asked) = studio.asked("sora-2");
    assert!(path.starts_with("/v1/videos/video_") && path.ends_with("/remix"), "{path}");
    assert!(!path.contains(&first), "the provider has an id of its own");
    assert_eq!(asked, json!({"prompt": "A dog"}));
    assert_eq!(studio.end(&second).await["status"], "succeeded");
    let shown = studio.get(&format!("/v1/videos/{second}")).await.json();
    assert_eq!((&shown["remixed_from_video_id"], &shown["status"]), (&json!(first), &json!("completed")));
    let unknown = json!({"model": "sora-2", "prompt": "A dog", "remix_from_video_id": "video_0"});
    let answer = studio.gateway.ask(post("/v1/video/generations", unknown.to_string())).await;
    assert_eq!((answer.status(), &answer.json()["error"]["code"]), (404, &json!("task_not_found")));
}

#[tokio::test]
async fn video_failure_has_the_code_and_message_of_the_provider() {
    let studio = Studio::open().await;
    let mut ids = Vec::new();
    for (model, ..) in MODELS {
        for word in ["fail", "cancel", "expire", "forget"] {
            ids.push((model, word, studio.begin(&body(model, &format!("A cat [[film {word}]]"))).await));
        }
    }
    let ends = studio.ends(ids.iter().map(|(.., id)| id)).await;
    for ((model, word, id), ended) in ids.into_iter().zip(ends) {
        assert_eq!(ended["status"], "failed", "{model} {word}");
        assert!(ended["url"].is_null());
        let (code, message) =
            (ended["error"]["code"].as_str().unwrap(), ended["error"]["message"].as_str().unwrap());
        assert!(!message.is_empty(), "{model} {word}");
        let expected: &[&str] = match (word, &model[..3]) {
            ("fail", "sor") => &["moderation_blocked"],
            ("fail", "veo") => &["content_filtered"],
            ("fail", "wan") => &["DataInspectionFailed"],
            ("fail", _) => &["OutputVideoSensitiveContentDetected"],
            ("cancel", "veo") => &["1"],
            ("expire", "veo") => &["4"],
            ("cancel", _) => &["cancelled"],
            _ => &["expired"],
        };
        assert!(expected.contains(&code), "{model} {word}: {ended}");
        let content = studio.get(&format!("/v1/videos/{id}/content")).await;
        assert_eq!((content.status(), &content.json()["error"]["code"]), (409, &json!(code)));
    }
}

#[tokio::test]
async fn video_task_is_not_found_for_other_keys() {
    let studio = Studio::open().await;
    let id = studio.begin(&body("sora-2", "A cat")).await;
    let narrow = [("authorization", format!("Bearer {NARROW_KEY}"))];
    let narrow: Vec<(&str, &str)> = narrow.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for path in [
        format!("/v1/video/generations/{id}"),
        format!("/v1/video/generations/download?id={id}"),
        format!("/v1/videos/{id}"),
        format!("/v1/videos/{id}/content"),
        format!("/v1beta/models/sora-2/operations/{id}"),
        format!("/v1beta/files/{id}:download?alt=media"),
    ] {
        let others = studio.gateway.ask(request("GET", &path, &narrow)).await;
        let nobody_s = studio.gateway.ask(request("GET", &path.replace(&id, "video_0"), &narrow)).await;
        assert_eq!((others.status(), nobody_s.status()), (404, 404), "{path}");
        assert_eq!(others.text().replace(&id, "video_0"), nobody_s.text().to_owned(), "{path}");
    }
    let remix = json!({"model": "sora-2", "prompt": "x", "remix_from_video_id": id}).to_string();
    let answer = studio.gateway.ask(post_with("/v1/video/generations", &narrow, remix)).await;
    assert!(matches!(answer.status(), 403 | 404));
    assert_eq!(studio.end(&id).await["status"], "succeeded");
}

#[tokio::test]
async fn video_endpoints_of_both_sdks_have_their_own_shapes() {
    let studio = Studio::open().await;
    let form = "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nA cat\r\n\
         --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsora-2\r\n\
         --b\r\nContent-Disposition: form-data; name=\"seconds\"\r\n\r\n8\r\n\
         --b\r\nContent-Disposition: form-data; name=\"input_reference\"; filename=\"x.png\"\r\n\
         Content-Type: image/png\r\n\r\n";
    let form = [form.as_bytes(), &STANDARD.decode_to_vec(PICTURE).unwrap(), b"\r\n--b--\r\n"].concat();
    let head = format!(
        "POST /v1/videos HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n\
         content-type: multipart/form-data; boundary=b\r\ncontent-length: {}\r\n\r\n",
        form.len()
    );
    let created = studio.gateway.ask([head.as_bytes(), &form].concat()).await;
    assert_eq!(created.status(), 200, "{}", created.text());
    let created = created.json();
    assert_eq!((&created["object"], &created["status"]), (&json!("video"), &json!("queued")));
    assert_eq!((&created["seconds"], &created["size"]), (&json!("8"), &json!("720x1280")));
    let (_, asked) = studio.asked("sora-2");
    assert_eq!(asked["input_reference"]["image_url"], format!("data:image/png;base64,{PICTURE}"));
    let id = created["id"].as_str().unwrap();
    studio.end(id).await;
    let shown = studio.get(&format!("/v1/videos/{id}")).await.json();
    assert_eq!((&shown["status"], &shown["progress"]), (&json!("completed"), &json!(100)));

    let model = "veo-3.1-fast-generate-preview";
    let body = json!({"instances": [{"prompt": "A cat"}], "parameters": {"durationSeconds": 6}}).to_string();
    let begun = studio.gateway.ask(post(&format!("/v1beta/models/{model}:predictLongRunning"), body)).await;
    assert_eq!(begun.status(), 200, "{}", begun.text());
    let name = begun.json()["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with(&format!("models/{model}/operations/task_")), "{name}");
    studio.end(name.rsplit('/').next().unwrap()).await;
    let operation = studio.get(&format!("/v1beta/{name}")).await.json();
    assert_eq!(operation["done"], true);
    let uri = operation["response"]["generateVideoResponse"]["generatedSamples"][0]["video"]["uri"].clone();
    let uri = uri.as_str().unwrap();
    let (_, path) = uri.split_once("http://gateway.test").unwrap();
    is_video(&studio.get(path).await.body, 4_096);
}

/// The length is that of one video, before and after the end.
#[tokio::test]
async fn video_length_is_that_of_one_of_several_samples() {
    let studio = Studio::open().await;
    let body =
        json!({"model": "veo-3.1-generate-001", "prompt": "A cat", "durationSeconds": 6, "sampleCount": 3});
    let created = studio.gateway.ask(post("/v1/videos", body.to_string())).await;
    assert_eq!(created.status(), 200, "{}", created.text());
    let created = created.json();
    assert_eq!(created["seconds"], "6");
    let id = created["id"].as_str().unwrap();
    assert_eq!(studio.end(id).await["status"], "succeeded");
    assert_eq!(studio.get(&format!("/v1/videos/{id}")).await.json()["seconds"], "6");
}

#[tokio::test]
async fn video_provider_failure_is_an_error_at_submission_only() {
    let studio = Studio::open().await;
    for (model, ..) in MODELS {
        for (words, status) in
            [("[[status 429]]", 429), ("[[status 500]]", 500), ("[[garbage]]", 500), ("[[empty]]", 500)]
        {
            let body = body(model, &format!("A cat {words}"));
            let answer = studio.gateway.ask(post("/v1/video/generations", body.to_string())).await;
            assert_eq!(answer.status(), status, "{model} {words}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string());
        }
        // A task survives if its provider cannot report its state.
        let id = studio.begin(&body(model, "A cat [[film stuck 503]]")).await;
        let shown = studio.get(&format!("/v1/video/generations/{id}")).await;
        assert_eq!((shown.status(), &shown.json()["status"]), (200, &json!("submitted")), "{model}");
        let early = studio.get(&format!("/v1/videos/{id}/content")).await;
        assert_eq!((early.status(), &early.json()["error"]["code"]), (409, &json!("task_state")));
    }
    // The provider has deleted the finished video.
    for model in ["sora-2", "veo-3.1-fast-generate-preview"] {
        let id = studio.begin(&body(model, "A cat [[film gone]] [[film looks 0]]")).await;
        for _ in 0..20 {
            let shown = studio.get(&format!("/v1/videos/{id}")).await.json();
            if shown["status"] == "completed" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        }
        let content = studio.get(&format!("/v1/videos/{id}/content")).await;
        assert_eq!((content.status(), &content.json()["error"]["code"]), (410, &json!("expired")), "{model}");
    }
}
