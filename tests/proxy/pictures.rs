//! Image edits, Google's predict endpoint, large images, and conversion of image formats.

use base64_simd::STANDARD;
use serde_json::json;

use super::images::{EDITED, MADE, PLAIN, Studio, decoded, picture};
use super::support::client::{post, post_with};
use super::support::setup::KEY;

/// Returns content type and body of a multipart form.
pub(crate) fn form(parts: &[(&str, Option<&str>, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, file, value) in parts {
        body.extend(format!("--frontier\r\nContent-Disposition: form-data; name=\"{name}\"").bytes());
        if let Some(file) = file {
            body.extend(format!("; filename=\"{file}\"\r\nContent-Type: image/png").bytes());
        }
        body.extend(b"\r\n\r\n");
        body.extend_from_slice(value);
        body.extend(b"\r\n");
    }
    body.extend(b"--frontier--\r\n");
    ("multipart/form-data; boundary=frontier".to_owned(), body)
}

fn edit(headers: &[(&str, &str)], parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let (media, body) = form(parts);
    let mut head = format!("POST {EDITED} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: {media}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [head.as_bytes(), &body].concat()
}

#[tokio::test]
async fn image_edit_accepts_forms_and_json() {
    let studio = Studio::open().await;
    let file = picture();
    let headers = [("authorization", format!("Bearer {PLAIN}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for model in ["gpt-image-1", "gemini-2.5-flash-image", "doubao-seedream-4-0", "qwen-image-edit-plus"] {
        let parts: Vec<(&str, Option<&str>, &[u8])> = vec![
            ("model", None, model.as_bytes()),
            ("prompt", None, b"make it \"blue\""),
            ("image", Some("a b.png"), &file),
            ("n", None, b"1"),
            ("size", None, b""),
        ];
        let answer = studio.gateway.ask(edit(&headers, &parts)).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        assert_eq!(answer.json()["data"].as_array().unwrap().len(), 1, "{model}");
        let json =
            json!({"model": model, "prompt": "make it blue", "image": STANDARD.encode_to_string(&file)});
        let answer = studio.gateway.ask(post_with(EDITED, &headers, json.to_string())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
    }
    let last = studio.providers["gpt-image-1"].last_request().unwrap();
    assert_eq!(last.path, "/v1/images/edits");
    let sent = String::from_utf8_lossy(&last.body).into_owned();
    assert!(sent.contains("name=\"image\"; filename=\"image0.png\"\r\nContent-Type: image/png"), "{sent}");
    for (parts, field) in [
        (vec![("prompt", None, &b"x"[..]), ("image", Some("a.png"), &file[..])], "model"),
        (vec![("model", None, &b"gpt-image-1"[..]), ("prompt", None, b"x")], "image"),
        (vec![("model", None, &b"gpt-image-1"[..]), ("image", Some("a.png"), &file)], "prompt"),
        (
            vec![
                ("model", None, &b"gpt-image-1"[..]),
                ("prompt", None, b"x"),
                ("image", Some("a.png"), b"GIF"),
            ],
            "image[0]",
        ),
        (vec![("model", None, &b"gpt-image-1"[..]), ("prompt", None, b"x"), ("n", None, b"many")], "n"),
    ] {
        let answer = studio.gateway.ask(edit(&headers, &parts)).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["param"]),
            (400, &json!(field)),
            "{}",
            answer.text()
        );
    }
    let broken = studio.gateway.ask(edit(&headers, &[("model\"\r\nx: \"", None, b"x")])).await;
    assert_eq!(broken.status(), 400);
    // Other endpoints do not accept forms.
    let (media, body) = form(&[("model", None, b"gpt-image-1")]);
    let mut head =
        format!("POST {MADE} HTTP/1.1\r\nhost: g\r\nx-api-key: {KEY}\r\ncontent-type: {media}\r\n");
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    assert_eq!(studio.gateway.ask([head.as_bytes(), &body].concat()).await.status(), 415);
}

#[tokio::test]
async fn image_predict_endpoint_works_with_every_provider() {
    let studio = Studio::open().await;
    let body = json!({"instances": [{"prompt": "a red circle"}], "parameters": {"sampleCount": 2, "aspectRatio": "16:9"}});
    for (version, prefix) in [
        ("v1beta", ""),
        ("v1beta1", "publishers/google/"),
        ("v1", "projects/p/locations/l/publishers/google/"),
    ] {
        for model in ["imagen-4.0-generate-001", "gpt-image-1", "gemini-2.5-flash-image", "qwen-image-plus"] {
            let path = format!("/{version}/{prefix}models/{model}:predict");
            let headers = [("x-goog-api-key", KEY)];
            let answer = studio.gateway.ask(post_with(&path, &headers, body.to_string())).await;
            assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
            let predictions = answer.json()["predictions"].clone();
            assert_eq!(predictions.as_array().unwrap().len(), 2, "{path}");
            assert_eq!(predictions[0]["mimeType"], "image/png");
            decoded(&predictions[0]["bytesBase64Encoded"]);
        }
    }
    let wrong = json!({"instances": [{}]}).to_string();
    let answer = studio.gateway.ask(post("/v1beta/models/gpt-image-1:predict", wrong)).await;
    let error = answer.json();
    assert_eq!((answer.status(), &error["error"]["status"]), (400, &json!("INVALID_ARGUMENT")), "{error}");
}

/// Measurement: `cargo test --release --test proxy large_image -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "figures"]
async fn large_image_is_held_once_in_memory() {
    const SIZE: usize = 20 << 20;
    for (model, format) in
        [("gpt-image-1", "b64_json"), ("qwen-image-plus", "b64_json"), ("gemini-2.5-flash-image", "url")]
    {
        let studio = Studio::open().await;
        let prompt = format!("x [[big {SIZE}]]");
        let body = json!({"model": model, "prompt": prompt, "response_format": format}).to_string();
        // A small request first, for the memory that any request uses.
        let small = json!({"model": model, "prompt": "x", "response_format": format}).to_string();
        assert_eq!(studio.gateway.ask(post(MADE, small)).await.status(), 200);
        let before = studio.gateway.start_of_peak();
        let begun = std::time::Instant::now();
        let answer = studio.gateway.ask(post(MADE, &body)).await;
        let took = begun.elapsed();
        assert_eq!(answer.status(), 200);
        let image = answer.json()["data"]["data"][0]["b64_json"].as_str().unwrap().len();
        assert!(image >= SIZE / 3 * 4);
        let peak = studio.gateway.peak_memory().saturating_sub(before) as f64 / 1024.0;
        eprintln!(
            "{model}: {:.0} ms with the provider's own, {peak:.0} MiB more at the peak for {:.0} MiB of base64",
            took.as_secs_f64() * 1e3,
            image as f64 / f64::from(1 << 20)
        );
        // A peak of 1.5 times the size would mean a second copy.
        assert!(peak < 1.5 * image as f64 / f64::from(1 << 20), "{peak} MiB");
    }
}

/// A GIF of two by two pixels.
const GIF: &[u8] =
    b"GIF89a\x02\0\x02\0\x80\0\0\xff\0\0\0\0\xff\x2c\0\0\0\0\x02\0\x02\0\0\x02\x03\x44\x02\x05\0\x3b";

#[tokio::test]
async fn image_gif_is_converted_for_the_provider() {
    let studio = Studio::open().await;
    let image = format!("data:image/gif;base64,{}", STANDARD.encode_to_string(GIF));
    let body = json!({"model": "gpt-image-1", "prompt": "make it blue", "image": image});
    let answer = studio.gateway.ask(post(MADE, body.to_string())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let sent = studio.providers["gpt-image-1"].last_request().unwrap();
    assert_eq!(sent.path, "/v1/images/edits");
    assert!(String::from_utf8_lossy(&sent.body).contains("image/png"));
    // An invalid GIF is refused.
    let image = format!("data:image/gif;base64,{}", STANDARD.encode_to_string(b"GIF89a\x40\0\x40\0"));
    let body = json!({"model": "gpt-image-1", "prompt": "make it blue", "image": image});
    let answer = studio.gateway.ask(post(MADE, body.to_string())).await;
    assert_eq!(
        (answer.status(), &answer.json()["error"]["param"]),
        (400, &json!("image")),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn image_unsupported_member_is_reported_as_warning() {
    let studio = Studio::open().await;
    for (model, members, warning) in [
        (
            "gemini-2.5-flash-image",
            json!({"mime_type": "image/jpeg", "image_size": "1K"}),
            Some("mime_type dropped"),
        ),
        ("gemini-3-pro-image", json!({"image_size": "3K"}), Some("image_size 3K made as 4K")),
        ("doubao-seedream-4-0", json!({"temperature": 0.5, "image_size": "3K"}), Some("temperature dropped")),
        (
            "gpt-image-1",
            json!({"seed": 1, "nonsense": true, "user": "u"}),
            Some("seed dropped, nonsense dropped"),
        ),
        ("qwen-image-plus", json!({"quality": "high", "negative_prompt": "fog"}), Some("quality dropped")),
        ("gpt-image-1", json!({"quality": "high", "mime_type": "image/webp", "watermark": false}), None),
    ] {
        let mut body = json!({"model": model, "prompt": "x"});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = studio.gateway.ask(post(MADE, body.to_string())).await;
        assert_eq!(answer.status(), 200, "{body}: {}", answer.text());
        assert_eq!(answer.get("x-gateway-warning"), warning, "{body}");
    }
}
