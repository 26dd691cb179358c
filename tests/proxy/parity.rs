//! HTTP/2 uses Pingora's server loop and HTTP/1 the gateway's own; both run the same steps and must give the same
//! responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::Value;

use crate::bodies::body_of;
use crate::support::client::{Answer, post_with};
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::setup::{DISABLED_KEY, KEY, NARROW_KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{http2, reply, tls};

/// Starts an upstream that gives each of these answers twice, and closes the connection after the last one.
async fn answering_twice(answers: Vec<Vec<u8>>) -> Upstream {
    let answers = Arc::new(answers);
    let turn = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |mut conn| {
        let (answers, turn) = (answers.clone(), turn.clone());
        async move {
            while conn.request().await.is_some() {
                let turn = turn.fetch_add(1, Ordering::SeqCst) / 2;
                conn.send(&answers[turn]).await;
                if turn + 1 == answers.len() {
                    return;
                }
            }
        }
    })
    .await
}

/// Sends a request over HTTP/1 and over HTTP/2, and compares the responses.
async fn ask_both(
    gateway: &Gateway,
    h2: &mut http2::Client,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) {
    let one = gateway.ask(post_with(path, headers, &body)).await;
    let length = body.len().to_string();
    let announced = [headers, &[("content-length", &*length)]].concat();
    let (answer, mut send) = h2.begin_with(path, &announced).await;
    // The gateway may refuse the request by its head, before the body is sent.
    let _ = http2::send_all(&mut send, Bytes::from(body), true).await;
    let (two, body) = http2::answer(answer).await;
    compare(&one, &two, &body);
}

fn compare(one: &Answer, two: &http::Response<()>, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    assert_eq!((one.status(), one.text()), (two.status().as_u16(), &*text));
    let hop = |name: &str| matches!(name, "connection" | "transfer-encoding" | "keep-alive" | "date");
    let fields = one.head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut first: Vec<(String, String)> = fields.filter(|(name, _)| !hop(name)).collect();
    let fields =
        two.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let mut second: Vec<(String, String)> = fields.filter(|(name, _)| !hop(name)).collect();
    first.sort();
    second.sort();
    assert_eq!(first, second);
}

/// Compares the access log lines of both requests.
fn compare_lines(mut lines: Vec<Value>) {
    while let Some(one) = lines.pop() {
        let at = lines.iter().position(|line| line["request_id"] == one["request_id"]).unwrap();
        let two = lines.remove(at);
        let mut versions = [one["http"].as_str().unwrap(), two["http"].as_str().unwrap()];
        versions.sort_unstable();
        assert_eq!(versions, ["1.1", "2"]);
        let same = |line: &Value| {
            let mut line = line.as_object().unwrap().clone();
            for field in ["time", "http", "duration_ms", "first_token_ms", "upstream_ms"] {
                line.remove(field);
            }
            line
        };
        assert_eq!(same(&one), same(&two));
    }
}

#[tokio::test]
async fn parity_of_http1_and_http2_for_provider_responses() {
    every_form(|form| async move {
        let frames = form.frames(form.model());
        let refused = provider_error(form, 429, "slow down");
        let kind = [("content-type", "application/json"), ("retry-after", "7")];
        let answers = [
            (false, reply::json(200, form.whole(form.model()))),
            (true, reply::stream(&frames)),
            (true, reply::whole(429, &kind, refused)),
            (false, reply::whole(502, &[("content-type", "text/html")], "<html>")),
            (false, reply::json(200, "[]")),
            (false, reply::json(401, "{}")),
            (true, [reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat()),
        ];
        let upstream = answering_twice(answers.iter().map(|(_, answer)| answer.clone()).collect()).await;
        let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
        let mut h2 = http2::Client::connect(gateway.addr).await;
        for (n, (stream, _)) in answers.iter().enumerate() {
            let id = format!("id-{n}");
            let headers = [("x-api-key", KEY), ("x-request-id", &*id)];
            let path = form.path(form.model(), *stream);
            let body = form.body(form.model(), *stream).into_bytes();
            ask_both(&gateway, &mut h2, &path, &headers, body).await;
        }
        compare_lines(gateway.wait_for_log(2 * answers.len()).await);
        // The provider receives the same requests from both.
        let requests = upstream.requests();
        for pair in requests.chunks(2) {
            assert_eq!(pair[0].everything(), pair[1].everything());
        }
    })
    .await;
}

#[tokio::test]
async fn parity_of_http1_and_http2_for_gateway_errors() {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup =
        Setup::providers(upstream.addr).tls(&identity.chain, &identity.key).limits("body = \"64KiB\"");
    let gateway = Gateway::start(&setup).await;
    let mut plain = http2::Client::connect(gateway.addr).await;
    let config = authority.client(&["h2"]);
    let mut encrypted = http2::Client::connect_tls(gateway.tls, config, "gateway.test").await;
    let mut asked = 0;
    for form in Form::ALL {
        let (path, body) = (form.path(form.model(), false), form.body(form.model(), false).into_bytes());
        for (path, key, extra, body) in [
            (&*path, KEY, ("x-a", "b"), b"{".to_vec()),
            (&*path, KEY, ("x-a", "b"), Vec::new()),
            (&*path, KEY, ("x-a", "b"), body_of(70_000)),
            (&*path, KEY, ("content-encoding", "gzip"), body.clone()),
            (&*path, KEY, ("content-encoding", "compress"), body.clone()),
            (&*path, "no-such-key", ("x-a", "b"), body.clone()),
            (&*path, DISABLED_KEY, ("x-a", "b"), body.clone()),
            (&*form.path("claude", false), NARROW_KEY, ("x-a", "b"), form.body("claude", false).into_bytes()),
            (&*form.path("nope", false), KEY, ("x-a", "b"), form.body("nope", false).into_bytes()),
            ("/v1/nowhere", KEY, ("x-a", "b"), b"{}".to_vec()),
            ("/v1/nowhere", KEY, ("anthropic-version", "2023-06-01"), b"{}".to_vec()),
            ("/v1/models", KEY, ("x-a", "b"), b"{}".to_vec()),
            ("/v1/embeddings", KEY, ("x-a", "b"), b"{\"model\":\"claude\",\"input\":\"x\"}".to_vec()),
        ] {
            for client in [&mut plain, &mut encrypted] {
                let id = format!("id-{asked}");
                let headers = [("x-api-key", key), ("x-request-id", &*id), extra];
                ask_both(&gateway, client, path, &headers, body.clone()).await;
                asked += 1;
            }
        }
    }
    compare_lines(gateway.wait_for_log(2 * asked).await);
    assert_eq!(upstream.count(), 0);
}
