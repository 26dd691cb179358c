//! Video parameters: duration limits of each family, ignored parameters and invalid parameters.

use std::time::Instant;

use serde_json::json;

use super::support::client::post;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::Setup;
use super::support::upstream::Upstream;
use super::videos::{Studio, body, get};

/// Every limit of every family, from both sides.
#[tokio::test]
async fn video_duration_limits_follow_the_specification() {
    let studio = Studio::open().await;
    for (model, field, good, bad) in [
        ("sora-2", "seconds", &[4, 8, 12][..], &[0, 3, 5, 13][..]),
        ("veo-3.1-fast-generate-preview", "durationSeconds", &[4, 6, 8], &[0, 3, 5, 7, 9]),
        ("wan2.5-t2v-preview", "duration", &[5, 10], &[0, 4, 6, 11]),
        ("doubao-seedance-1-5-pro-251215", "duration", &[4, 5, 8, 12], &[0, 3, 13]),
    ] {
        for (seconds, status) in good.iter().map(|n| (n, 200)).chain(bad.iter().map(|n| (n, 400))) {
            let mut body = body(model, "A cat");
            body[field] = json!(seconds);
            let answer = studio.gateway.ask(post("/v1/video/generations", body.to_string())).await;
            assert_eq!(answer.status(), status, "{body}: {}", answer.text());
            if status == 400 {
                assert_eq!(answer.json()["error"]["param"], field, "{body}");
            }
        }
    }
}

#[tokio::test]
async fn video_unsupported_parameter_is_reported_as_dropped() {
    let studio = Studio::open().await;
    for (model, members, warning) in [
        (
            "sora-2",
            json!({"seed": 1, "nonsense": 2, "negative_prompt": "x"}),
            "negative_prompt, seed, nonsense",
        ),
        ("sora-2", json!({"seconds": 8, "size": "1280x720", "generateAudio": true}), ""),
        ("sora-2", json!({"generate_audio": false, "watermark": true}), "watermark, generate_audio"),
        (
            "veo-3.1-fast-generate-preview",
            json!({"seed": 1, "addWatermark": true, "generateAudio": false, "personGeneration": "allow_all"}),
            "seed, addWatermark, generateAudio",
        ),
        ("veo-3.1-fast-generate-preview", json!({"generateAudio": true, "fps": 24}), "fps"),
        ("veo-3.1-generate-001", json!({"seed": 1, "addWatermark": true, "generateAudio": false}), ""),
        ("wan2.5-i2v-preview", json!({"aspect_ratio": "9:16", "resolution": "1080p"}), "aspect_ratio"),
        (
            "wan2.5-i2v-preview",
            json!({"size": "720x1280", "personGeneration": "allow_all"}),
            "personGeneration, size",
        ),
        ("wan2.5-t2v-preview", json!({"aspect_ratio": "9:16", "seed": 3, "negative_prompt": "x"}), ""),
        ("doubao-seedance-1-5-pro-251215", json!({"negativePrompt": "x", "seed": 1}), "negativePrompt"),
        ("doubao-seedance-1-5-pro-251215-noAudio", json!({"generate_audio": true}), "generate_audio"),
    ] {
        let mut body = body(model, "A cat");
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = studio.gateway.ask(post("/v1/video/generations", body.to_string())).await;
        assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
        let expected: Vec<String> = warning
            .split(", ")
            .filter(|name| !name.is_empty())
            .map(|name| format!("{name} dropped"))
            .collect();
        let expected = Some(expected.join(", ")).filter(|text| !text.is_empty());
        assert_eq!(answer.get("x-gateway-warning"), expected.as_deref(), "{body}");
    }
}

#[expect(clippy::too_many_lines, reason = "a table of requests and errors")]
#[tokio::test]
async fn video_invalid_parameter_is_named() {
    let studio = Studio::open().await;
    let before = studio.providers["sora-2"].requests();
    for (body, status, param) in [
        (json!({"prompt": "p"}), 400, "model"),
        (json!({"model": "none", "prompt": "p"}), 404, "model"),
        (json!({"model": "sora-2"}), 400, "prompt"),
        (json!({"model": "sora-2", "prompt": "p", "seconds": 5}), 400, "seconds"),
        (json!({"model": "sora-2", "prompt": "p", "size": "1x1"}), 400, "size"),
        (json!({"model": "sora-2", "prompt": "p", "aspect_ratio": "4:3"}), 400, "aspect_ratio"),
        (json!({"model": "sora-2", "prompt": "p", "resolution": "480p"}), 400, "resolution"),
        (json!({"model": "sora-2", "prompt": "p", "resolution": "1080p"}), 400, "resolution"),
        (
            json!({"model": "sora-2", "prompt": "p", "size": "1280x720", "aspectRatio": "9:16"}),
            400,
            "aspectRatio",
        ),
        (
            json!({"model": "veo-3.1-fast-generate-preview", "prompt": "p", "durationSeconds": 4, "resolution": "1080p"}),
            400,
            "durationSeconds",
        ),
        (json!({"model": "veo-3.1-fast-generate-preview", "prompt": "p", "size": "1x1"}), 400, "size"),
        (
            json!({"model": "veo-3.1-fast-generate-preview", "prompt": "p", "personGeneration": "all"}),
            400,
            "personGeneration",
        ),
        (json!({"model": "wan2.5-t2v-preview", "prompt": "p", "duration": 7}), 400, "duration"),
        (
            json!({"model": "wan2.5-t2v-preview", "prompt": "p", "resolution": "480p", "aspect_ratio": "4:3"}),
            400,
            "aspect_ratio",
        ),
        (json!({"model": "doubao-seedance-1-5-pro-251215", "prompt": "x --dur 3"}), 400, "prompt"),
        (json!({"model": "doubao-seedance-1-5-pro-251215", "prompt": "x--ratio 7:5"}), 400, "prompt"),
        (json!({"model": "doubao-seedance-1-5-pro-251215", "prompt": "p", "size": "640x640"}), 400, "size"),
        (
            json!({"model": "sora-2", "prompt": "p", "remix_from_video_id": "task_1"}),
            400,
            "remix_from_video_id",
        ),
        (json!({"model": "sora-2", "prompt": "p", "lastFrame": "https://h/x"}), 400, "lastFrame"),
        (json!({"model": "sora-2", "prompt": "p", "image": "no picture"}), 400, "image"),
        (json!({"model": "sora-2", "prompt": 5}), 400, "prompt"),
        (
            json!({"model": "veo-3.1-generate-001", "prompt": "p", "durationSeconds": 5}),
            400,
            "durationSeconds",
        ),
        (json!({"model": "veo-3.1-generate-001", "prompt": "p", "aspectRatio": "1:1"}), 400, "aspectRatio"),
        (json!({"model": "veo-3.1-generate-001", "prompt": "p", "resolution": "480p"}), 400, "resolution"),
        (json!({"model": "veo-3.1-generate-001", "prompt": "p", "sampleCount": 5}), 400, "sampleCount"),
        (
            json!({"model": "veo-3.1-generate-001", "prompt": "p", "image": "http://127.0.0.1:1/x"}),
            400,
            "image",
        ),
        (json!({"model": "wan2.5-t2v-preview", "prompt": "p", "image": "https://h/x"}), 400, "image"),
        (json!({"model": "wan2.5-i2v-preview", "prompt": "p"}), 400, "image"),
        (
            json!({"model": "wan2.5-t2v-preview", "prompt": "p", "metadata": {"content": []}}),
            400,
            "metadata.content",
        ),
        (json!({"model": "doubao-seedance-1-5-pro-251215"}), 400, "metadata.content"),
        (json!({"model": "doubao-seedance-1-5-pro-251215", "prompt": "p", "duration": 13}), 400, "duration"),
        (
            json!({"model": "doubao-seedance-1-5-pro-251215", "prompt": "p", "resolution": "1080p"}),
            400,
            "resolution",
        ),
        (
            json!({"model": "doubao-seedance-1-5-pro-251215", "metadata": {"content": [{"type": "text", "text": "x --rs 1080p"}]}}),
            400,
            "metadata.content[0].text",
        ),
        (
            json!({"model": "doubao-seedance-1-5-pro-251215", "metadata": {"content": [{"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": "https://h/1"}, "role": "reference_image"}]}}),
            400,
            "metadata.content[1]",
        ),
    ] {
        let answer = studio.gateway.ask(post("/v1/video/generations", body.to_string())).await;
        let found = answer.json();
        assert_eq!((answer.status(), &found["error"]["param"]), (status, &json!(param)), "{body}: {found}");
        assert!(found["error"]["message"].as_str().unwrap().len() > 10);
    }
    assert_eq!(studio.providers["sora-2"].requests(), before);
    let answer = studio.get("/v1/video/generations/download").await;
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("id")));
}

/// Queries poll a provider at most once a second, whether or not it answers.
#[tokio::test]
async fn video_query_does_not_repeat_a_failed_poll_at_once() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let submitted = json!({"id": "video_up", "object": "video", "status": "queued"}).to_string();
            let failed = json!({"error": {"message": "No.", "type": "server_error"}}).to_string();
            let is_poll = request.head.line.starts_with("GET");
            conn.send(if is_poll { reply::json(500, failed) } else { reply::json(200, submitted) }).await;
        }
    })
    .await;
    let base = format!("http://{}/v1", upstream.addr);
    let setup = Setup::new().provider("openai", "openai", &base, "").model("sora-2", "openai", "sora-2");
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(post("/v1/video/generations", body("sora-2", "A cat").to_string())).await;
    let path = format!("/v1/video/generations/{}", answer.json()["task_id"].as_str().unwrap());
    let begun = Instant::now();
    let mut queries = 0;
    while queries < 10 || upstream.count() < 3 {
        let shown = get(&gateway, &path).await;
        assert_eq!((shown.status(), &shown.json()["status"]), (200, &json!("submitted")), "{}", shown.text());
        queries += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (polls, seconds) = (upstream.count() - 1, begun.elapsed().as_secs());
    assert!(polls <= seconds as usize + 1, "{polls} polls in {seconds} s, for {queries} queries");
}
