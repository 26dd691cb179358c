//! Remote media: links of providers to what they generated, and of clients to their images. Forbidden networks,
//! redirects, size and time are checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::images::{MADE, picture};
use super::support::client::post;
use super::support::gateway::Gateway;
use super::support::setup::Setup;
use super::support::tls;
use super::support::upstream::{Upstream, a_moment};
use super::support::{Gate, reply};

const ALLOWED: &str = "fetch_allow = [\"127.0.0.0/8\"]";

/// Starts a provider whose response links to `url`.
async fn linking(url: impl Into<String>) -> Upstream {
    let body = json!({"created": 1, "data": [{"url": url.into()}]}).to_string();
    Upstream::answering(reply::json(200, body)).await
}

fn setup(provider: &Upstream, limits: &str) -> Setup {
    Setup::new()
        .limits(limits)
        .provider("ark", "ark", &format!("http://{}/api/v3", provider.addr), "")
        .provider("openai", "openai", &format!("http://{}/v1", provider.addr), "")
        .model("seedream", "ark", "doubao-seedream-4-0")
        .model("gpt-image-1", "openai", "gpt-image-1")
}

async fn gateway(provider: &Upstream, limits: &str) -> Gateway {
    Gateway::start(&setup(provider, limits)).await
}

fn wanted() -> String {
    json!({"model": "seedream", "prompt": "x", "response_format": "b64_json"}).to_string()
}

/// Requests the image behind a provider's link, and returns status and error message.
async fn told(gateway: &Gateway) -> (u16, String) {
    let answer = gateway.ask(post(MADE, wanted())).await;
    (answer.status(), answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

async fn detail(gateway: &Gateway) -> String {
    let line = gateway.wait_for_log(1).await.pop().unwrap();
    line["detail"].as_str().unwrap_or_default().to_owned()
}

/// Starts a file server that gives every request the same answer.
async fn serving(answer: Vec<u8>) -> Upstream {
    Upstream::answering(answer).await
}

fn png() -> Vec<u8> {
    reply::whole(200, &[("content-type", "image/png")], picture())
}

#[tokio::test]
async fn fetch_sends_no_credential() {
    let files = serving(png()).await;
    let provider = linking(format!("http://{}/x.png?Signature=a%2Bb&Expires=9#f", files.addr)).await;
    let gateway = gateway(&provider, ALLOWED).await;
    let answer = gateway.ask(post(MADE, wanted())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let image = answer.json()["data"]["data"][0]["b64_json"].as_str().unwrap().to_owned();
    assert_eq!(STANDARD.decode_to_vec(image).unwrap(), picture());
    let asked = files.only_request();
    assert_eq!(asked.head.line, "GET /x.png?Signature=a%2Bb&Expires=9 HTTP/1.1");
    assert_eq!(asked.head.get("host"), Some(&*files.addr.to_string()));
    assert!(asked.head.get("authorization").is_none() && asked.head.get("cookie").is_none());
}

#[tokio::test]
async fn fetch_verifies_the_host_and_never_leaves_tls() {
    let (ours, theirs) = (tls::Authority::new(), tls::Authority::new());
    let plain = serving(png()).await;
    let out = reply::whole(302, &[("location", &format!("http://{}/x.png", plain.addr))], "");
    let within = reply::whole(302, &[("location", "/moved.png")], "");
    for (what, identity, answers, reached) in [
        ("right", ours.identity(&["localhost"]), vec![png()], true),
        ("leads on", ours.identity(&["localhost"]), vec![within, png()], true),
        ("leads out", ours.identity(&["localhost"]), vec![out], false),
        ("another authority", theirs.identity(&["localhost"]), vec![png()], false),
        ("another name", ours.identity(&["elsewhere.test"]), vec![png()], false),
    ] {
        let turn = Arc::new(AtomicUsize::new(0));
        let files = Upstream::start_tls(identity.server(&["http/1.1"]), move |mut conn| {
            let (answers, turn) = (answers.clone(), turn.clone());
            async move {
                while conn.request().await.is_some() {
                    conn.send(&answers[turn.fetch_add(1, Ordering::SeqCst)]).await;
                }
            }
        })
        .await;
        let provider = linking(format!("https://localhost:{}/x.png", files.addr.port())).await;
        let setup = setup(&provider, ALLOWED).file("system-roots.pem", ours.pem());
        let gateway = Gateway::start(&setup).await;
        assert_eq!(told(&gateway).await.0, if reached { 200 } else { 500 }, "{what}");
    }
    assert_eq!(plain.count(), 0);
}

#[tokio::test]
async fn fetch_refuses_private_networks() {
    let files = serving(png()).await;
    for host in [
        files.addr.to_string(),
        format!("localhost:{}", files.addr.port()),
        format!("2130706433:{}", files.addr.port()),
        format!("[::ffff:127.0.0.1]:{}", files.addr.port()),
        format!("0.0.0.0:{}", files.addr.port()),
        "169.254.169.254".to_owned(),
        "[::1]:80".to_owned(),
        "10.0.0.1".to_owned(),
    ] {
        let provider = linking(format!("http://{host}/latest/meta-data")).await;
        let gateway = gateway(&provider, "").await;
        let (status, message) = told(&gateway).await;
        assert_eq!(status, 500, "{host}");
        assert!(!message.contains(&*host), "{message}");
        let detail = detail(&gateway).await;
        assert!(detail.contains("does not connect") || detail.contains("localhost"), "{host}: {detail}");
        // A client's link is an error of the client.
        let url = format!("http://{host}/latest/meta-data");
        let body = json!({"model": "gpt-image-1", "prompt": "x", "image": url}).to_string();
        let answer = gateway.ask(post(MADE, body)).await;
        assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("image")), "{host}");
        if !host.starts_with("localhost") {
            for from in ["provider", "client"] {
                let refused = [("from", from), ("result", "forbidden")];
                assert_eq!(gateway.metrics().await.sum("gateway_links_total", &refused), 1.0, "{host}");
            }
        }
    }
    assert_eq!(files.count(), 0, "somebody was connected to");
}

#[tokio::test]
async fn fetch_checks_every_redirect_and_bounds_their_number() {
    // To a network that is not allowed.
    let leads = serving(reply::whole(302, &[("location", "http://10.0.0.1/x")], "")).await;
    let provider = linking(format!("http://{}/a", leads.addr)).await;
    let one = gateway(&provider, ALLOWED).await;
    assert_eq!(told(&one).await.0, 500);
    assert!(detail(&one).await.contains("does not connect"));
    // To itself, without end.
    let circle = serving(reply::whole(307, &[("location", "/again")], "")).await;
    let provider = linking(format!("http://{}/a", circle.addr)).await;
    let two = gateway(&provider, ALLOWED).await;
    assert_eq!(told(&two).await.0, 500);
    assert!(detail(&two).await.contains("redirects too many times"));
    assert_eq!(circle.count(), 4);
    // To the image.
    let files = serving(png()).await;
    let there = format!("http://{}/x.png", files.addr);
    let leads = serving(reply::whole(301, &[("location", &there)], "")).await;
    let provider = linking(format!("http://{}/a", leads.addr)).await;
    let three = gateway(&provider, ALLOWED).await;
    assert_eq!(told(&three).await.0, 200);
    // To a URL that is not HTTP.
    let leads = serving(reply::whole(302, &[("location", "file:///etc/passwd")], "")).await;
    let provider = linking(format!("http://{}/a", leads.addr)).await;
    let four = gateway(&provider, ALLOWED).await;
    assert_eq!(told(&four).await.0, 500);
}

#[tokio::test]
async fn fetch_invalid_or_expired_link_of_a_provider_is_an_error() {
    let gone = "<Error><Code>AccessDenied</Code><Message>Request has expired.</Message></Error>";
    for (answer, status, message) in [
        (reply::whole(403, &[], gone), 500, "is invalid or has expired"),
        (reply::whole(404, &[], ""), 500, "is invalid or has expired"),
        (reply::whole(500, &[], ""), 500, "could not be fetched"),
        (reply::whole(200, &[("content-type", "image/png")], "<html>"), 500, "is not valid"),
        (reply::whole(200, &[("content-encoding", "gzip")], picture()), 500, "could not be fetched"),
    ] {
        let files = serving(answer).await;
        let provider = linking(format!("http://{}/a.png", files.addr)).await;
        let gateway = gateway(&provider, ALLOWED).await;
        let (found, text) = told(&gateway).await;
        assert_eq!(found, status);
        assert!(text.contains(message), "{text}");
    }
    let provider = linking("ftp://example.com/a.png").await;
    assert_eq!(told(&gateway(&provider, ALLOWED).await).await.0, 500);
    let provider = linking("http://127.0.0.1:1/a.png").await;
    assert_eq!(told(&gateway(&provider, ALLOWED).await).await.0, 500);
}

#[tokio::test]
async fn fetch_is_bounded_in_size_and_time() {
    // The response announces its length.
    let large = reply::head(200, &[("content-length", "99999999999")]);
    let announced = Upstream::answering(large).await;
    let provider = linking(format!("http://{}/a.png", announced.addr)).await;
    let one = gateway(&provider, "fetch_allow = [\"127.0.0.1\"]\nfetch = \"1MiB\"").await;
    assert_eq!(told(&one).await.0, 500);
    assert!(detail(&one).await.contains("larger than 1048576 bytes"));
    // The response is chunked and never ends.
    let endless = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(reply::head(200, &[("transfer-encoding", "chunked")])).await;
            let piece = reply::chunk(picture().repeat(200));
            while conn.try_send(&piece).await.is_ok() {}
        }
    })
    .await;
    let provider = linking(format!("http://{}/a.png", endless.addr)).await;
    let two = gateway(&provider, "fetch_allow = [\"127.0.0.1\"]\nfetch = \"8MiB\"").await;
    let before = two.start_of_peak();
    assert_eq!(told(&two).await.0, 500);
    assert!(detail(&two).await.contains("larger than 8388608 bytes"));
    let grown = two.peak_memory().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} kB for an answer of which 8 MiB are taken");
    // No body arrives.
    let silent = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(reply::head(200, &[("content-length", "10")])).await;
            std::future::pending::<()>().await;
        }
    })
    .await;
    let provider = linking(format!("http://{}/a.png", silent.addr)).await;
    let three = gateway(&provider, "fetch_allow = [\"127.0.0.1\"]\nfetch_timeout = \"300ms\"").await;
    let (status, message) = told(&three).await;
    assert_eq!((status, message.contains("in time")), (504, true), "{message}");
}

#[tokio::test]
async fn fetch_images_of_clients_are_checked() {
    let provider =
        Upstream::answering(reply::json(200, r#"{"created":1,"data":[{"b64_json":"iVBORw0KGgo="}]}"#)).await;
    let gateway = gateway(&provider, ALLOWED).await;
    let files = serving(png()).await;
    let url = format!("http://{}/a.png", files.addr);
    let body = |url: &str| json!({"model": "gpt-image-1", "prompt": "x", "image": [url, url]}).to_string();
    let answer = gateway.ask(post(MADE, body(&url))).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let sent = provider.last_request();
    assert!(sent.head.get("content-type").unwrap().starts_with("multipart/form-data; boundary="));
    let mark = b"\x89PNG\r\n\x1a\n";
    assert_eq!(sent.body.windows(mark.len()).filter(|window| window == mark).count(), 2);
    for (answer, told) in [
        (reply::whole(200, &[], "%PDF-1.7"), "must be an image"),
        (reply::whole(200, &[], picture().repeat(150_000)), "larger than 10485760 bytes"),
        (reply::whole(404, &[], ""), "HTTP status 404"),
    ] {
        let files = serving(answer).await;
        let url = format!("http://{}/a.png", files.addr);
        let body = json!({"model": "gpt-image-1", "prompt": "x", "image": url}).to_string();
        let answer = gateway.ask(post(MADE, body)).await;
        let error: Value = answer.json();
        assert_eq!((answer.status(), &error["error"]["param"]), (400, &json!("image")), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(told), "{error}");
    }
}

/// Links are fetched concurrently, so the order in which they fail varies.
#[tokio::test]
async fn fetch_several_failures_report_the_first_link() {
    let provider = Upstream::answering(reply::json(500, "{}")).await;
    let gateway = gateway(&provider, ALLOWED).await;
    for (paths, told) in [
        (["/late", "/early", "/early"], "image[0]"),
        (["/well", "/late", "/early"], "image[1]"),
        (["/well", "/well", "/early"], "image[2]"),
    ] {
        let gate = Gate::new();
        let opened = gate.clone();
        let files = Upstream::start(move |mut conn| {
            let gate = opened.clone();
            async move {
                while let Some(request) = conn.request().await {
                    let path = request.head.target().to_owned();
                    if path == "/late" {
                        gate.passed().await;
                    }
                    let nothing = || reply::whole(404, &[], "");
                    conn.send(if path == "/well" { png() } else { nothing() }).await;
                }
            }
        })
        .await;
        let images = paths.map(|path| format!("http://{}{path}", files.addr));
        let body = json!({"model": "gpt-image-1", "prompt": "x", "image": images}).to_string();
        let late = async {
            files.wait_for(3).await;
            a_moment().await;
            gate.open();
        };
        let (answer, ()) = tokio::join!(gateway.ask(post(MADE, body)), late);
        assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!(told)), "{paths:?}");
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn fetch_total_size_of_a_request_is_bounded() {
    let mut large = picture();
    large.resize(600_000, 0);
    let files = serving(reply::whole(200, &[], large)).await;
    let provider = linking(format!("http://{}/a.png", files.addr)).await;
    let gateway = gateway(&provider, "fetch_allow = [\"127.0.0.1\"]\nanswer = \"1MiB\"").await;
    let wanted = |count: u32| {
        json!({"model": "seedream", "prompt": "x", "response_format": "b64_json", "n": count}).to_string()
    };
    let links = [("from", "provider"), ("result", "ok")];
    assert_eq!(gateway.ask(post(MADE, wanted(1))).await.status(), 200);
    assert_eq!(gateway.metrics().await.sum("gateway_links_total", &links), 1.0);
    let answer = gateway.ask(post(MADE, wanted(3))).await;
    let message = answer.json()["msg"].as_str().unwrap().to_owned();
    assert_eq!(
        (answer.status(), message.contains("exceed 1048576 bytes in total")),
        (500, true),
        "{message}"
    );
    // The three downloads run concurrently and share the limit: any of them may fail before its end, and two cannot
    // both complete.
    assert!(gateway.metrics().await.sum("gateway_links_total", &links) <= 2.0);
    assert!(gateway.metrics().await.sum("gateway_links_total", &[("from", "provider")]) > 1.0);
}

/// A provider that fails at each step of a task: the error reaches the client, and polling ends.
#[tokio::test]
async fn image_task_provider_failure_at_each_step_is_an_error() {
    let submitted = json!({"output": {"task_id": "t/1?x", "task_status": "PENDING"}}).to_string();
    let open = json!({"output": {"task_id": "t/1?x", "task_status": "RUNNING"}}).to_string();
    let done = |url: &str| {
        json!({"output": {"task_id": "t/1?x", "task_status": "SUCCEEDED", "results": [{"url": url}]}})
            .to_string()
    };
    let failed = json!({"code": "InternalError", "message": "broken", "request_id": "r"}).to_string();
    let files = serving(reply::whole(403, &[], "expired")).await;
    let link = format!("http://{}/x.png", files.addr);
    let ok = |body: &str| reply::json(200, body);
    for (answers, status, told) in [
        (vec![reply::json(500, &failed)], 500, "broken"),
        (vec![ok(&failed)], 500, "broken"),
        (vec![ok(&submitted), reply::json(500, &failed)], 500, "broken"),
        (vec![ok(&submitted), ok(&open), reply::json(429, &failed)], 429, "broken"),
        (vec![ok(&submitted), ok("{}")], 500, "not valid"),
        (vec![ok(&submitted), ok(r#"{"output":{"task_id":"t","task_status":"UNKNOWN"}}"#)], 400, "failed"),
        (vec![ok(&submitted), ok(&done(&link))], 500, "has expired"),
    ] {
        let provider = Upstream::answering_each(answers.clone()).await;
        let setup = Setup::new()
            .limits(ALLOWED)
            .provider("dashscope", "dashscope", &format!("http://{}/api/v1", provider.addr), "")
            .model("wan", "dashscope", "wan2.2-t2i-plus");
        let gateway = Gateway::start(&setup).await;
        let body = json!({"model": "wan", "prompt": "x", "response_format": "b64_json"}).to_string();
        let answer = gateway.ask(post(MADE, body)).await;
        let error = answer.json();
        assert_eq!(answer.status(), status, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(told), "{error}");
        assert_eq!(provider.count(), answers.len());
        if answers.len() > 1 {
            assert_eq!(provider.requests()[1].head.line, "GET /api/v1/tasks/t/1%3Fx HTTP/1.1");
        }
    }
}
