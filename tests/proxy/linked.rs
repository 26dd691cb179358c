//! Conversations with images given as URLs, for providers that accept only inline data.

use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::images::picture;
use super::support::client::post;
use super::support::form::Form;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::Setup;
use super::support::upstream::Upstream;

const ALLOWED: &str = "fetch_allow = [\"127.0.0.0/8\"]";

async fn provider() -> Upstream {
    Upstream::answering(reply::json(200, Form::Generate.whole("gemini-2.5-flash"))).await
}

async fn gateway(provider: &Upstream, limits: &str) -> Gateway {
    let setup = Setup::new()
        .limits(limits)
        .provider("google", "gemini", &format!("http://{}/v1beta", provider.addr), "")
        .model("flash", "google", "gemini-2.5-flash");
    Gateway::start(&setup).await
}

fn wanted(urls: &[String]) -> String {
    let mut content = vec![json!({"type": "text", "text": "Look"})];
    content.extend(urls.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url}})));
    json!({"model": "flash", "messages": [{"role": "user", "content": content}]}).to_string()
}

fn png() -> Vec<u8> {
    reply::whole(200, &[("content-type", "text/html")], picture())
}

#[tokio::test]
async fn linked_image_is_fetched_and_sent_inline() {
    let files = Upstream::answering(png()).await;
    let provider = provider().await;
    let gateway = gateway(&provider, ALLOWED).await;
    let url = |name: &str| format!("http://{}/{name}.png?x=%20&y=1", files.addr);
    let answer = gateway.ask(post("/v1/chat/completions", wanted(&[url("a"), url("b"), url("a")]))).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(answer.get("x-gateway-warning").is_none());
    let sent: Value = serde_json::from_slice(&provider.only_request().body).unwrap();
    let parts = sent["contents"][0]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 4);
    for part in &parts[1..] {
        // The type is detected from the bytes, not from the server's content type.
        assert_eq!(part["inlineData"]["mimeType"], "image/png");
        let data = part["inlineData"]["data"].as_str().unwrap();
        assert_eq!(STANDARD.decode_to_vec(data).unwrap(), picture());
    }
    // Each URL is fetched once, without any key or credential.
    let asked = files.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|request| request.head.get("authorization").is_none()));
}

#[tokio::test]
async fn linked_image_failure_is_400_without_a_provider_call() {
    let files = Upstream::answering(png()).await;
    let page = Upstream::answering(reply::whole(200, &[("content-type", "image/png")], "<html>")).await;
    let gone = Upstream::answering(reply::whole(404, &[], "")).await;
    let provider = provider().await;
    let at = |upstream: &Upstream| format!("http://{}/a.png?token=secret", upstream.addr);
    for (limits, url, message) in [
        ("", at(&files), "a network to which the gateway does not connect"),
        (ALLOWED, at(&page), "its content is of another type"),
        (ALLOWED, at(&gone), "HTTP status 404"),
        (ALLOWED, "http://127.0.0.1:1/a.png".to_owned(), "its host is unreachable"),
    ] {
        let gateway = gateway(&provider, limits).await;
        let answer = gateway.ask(post("/v1/chat/completions", wanted(&[url]))).await;
        assert_eq!(answer.status(), 400, "{}", answer.text());
        let error = &answer.json()["error"];
        let told = error["message"].as_str().unwrap();
        assert!(told.contains(message) && !told.contains("secret"), "{told}");
    }
    assert_eq!((provider.count(), files.count()), (0, 0));
    // The number of links in a request is limited to 100.
    let gateway = gateway(&provider, ALLOWED).await;
    let many: Vec<String> = (0..101).map(|n| format!("http://{}/{n}.png", files.addr)).collect();
    let answer = gateway.ask(post("/v1/chat/completions", wanted(&many))).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("more than 100"), "{}", answer.text());
    assert_eq!(files.count(), 0);
}

/// Returns a request of each client's format that gives one address several times.
fn given(form: Form, url: &str, times: usize) -> Vec<u8> {
    match form {
        Form::Chat => post("/v1/chat/completions", wanted(&vec![url.to_owned(); times])),
        Form::Messages => {
            let image = json!({"type": "image", "source": {"type": "url", "url": url}});
            let messages = json!([{"role": "user", "content": vec![image; times]}]);
            post("/v1/messages", json!({"model": "flash", "max_tokens": 9, "messages": messages}).to_string())
        }
        Form::Responses => {
            let file = json!({"type": "input_file", "file_url": url});
            let input = json!([{"role": "user", "content": vec![file; times]}]);
            post("/v1/responses", json!({"model": "flash", "input": input}).to_string())
        }
        Form::Generate => {
            let part = json!({"fileData": {"mimeType": "image/png", "fileUri": url}});
            let contents = json!([{"role": "user", "parts": vec![part; times]}]);
            post("/v1beta/models/pictures:generateContent", json!({"contents": contents}).to_string())
        }
    }
}

fn image_of(size: usize) -> Vec<u8> {
    let mut file = picture();
    file.resize(size, 0);
    reply::whole(200, &[("content-type", "image/png")], file)
}

#[tokio::test]
async fn linked_media_counts_each_time_it_is_given() {
    let files = Upstream::answering(image_of(200_000)).await;
    let provider = crate::support::form::provider_of_every_form().await;
    let base = format!("http://{}", provider.addr);
    let setup = Setup::new()
        .limits(ALLOWED)
        .limits("body = \"1MiB\"")
        .provider("google", "gemini", &format!("{base}/v1beta"), "")
        .provider(
            "local",
            "openai-compatible",
            &format!("{base}/v1"),
            "dialect = \"ollama\"\napis = [\"chat\"]",
        )
        .model("flash", "google", "gemini-2.5-flash")
        .model("pictures", "local", "gemma4");
    let gateway = Gateway::start(&setup).await;
    for form in Form::ALL {
        let url = format!("http://{}/{form:?}.png", files.addr);
        // 1 MiB of base64 are 786,432 bytes.
        let answer = gateway.ask(given(form, &url, 3)).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.everything());
        let fetched = files.count();
        let sent = provider.count();
        let answer = gateway.ask(given(form, &url, 4)).await;
        assert_eq!(answer.status(), 413, "{form:?}: {}", answer.everything());
        assert!(form.error(&answer).1.contains("limits.body"), "{}", answer.text());
        assert_eq!((files.count(), provider.count()), (fetched + 1, sent), "fetched once, nothing sent");
    }
    // A stored conversation brings its media with it.
    let url = format!("http://{}/stored.png", files.addr);
    let first = gateway.ask(given(Form::Responses, &url, 3)).await;
    let next = json!({"model": "flash", "previous_response_id": first.json()["id"],
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]});
    let answer = gateway.ask(post("/v1/responses", next.to_string())).await;
    assert_eq!(answer.status(), 413, "{}", answer.everything());
}

#[tokio::test]
async fn linked_media_that_is_given_many_times_is_in_memory_once() {
    let files = Upstream::answering(image_of(2 << 20)).await;
    let provider = provider().await;
    let gateway = gateway(&provider, &format!("{ALLOWED}\nmemory = \"70MiB\"")).await;
    let url = format!("http://{}/a.png", files.addr);
    assert_eq!(gateway.ask(given(Form::Responses, &url, 1)).await.status(), 200);
    let before = gateway.start_of_peak();
    let answer = gateway.ask(given(Form::Responses, &url, 23)).await;
    assert_eq!(answer.status(), 200, "{}", answer.everything());
    let sent = provider.last_request().body.len();
    assert!(sent > 23 * (2 << 20) / 3 * 4, "{sent} bytes");
    let grown = gateway.peak_memory().saturating_sub(before) / 1024;
    assert!(grown < 24, "{grown} MiB for 64 MB that were sent");
}
