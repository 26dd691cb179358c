//! Bounds on upstream responses: how long the first frames are buffered, the minimum transfer rate, interim responses,
//! and values of rate-limit headers.

use std::time::Duration;

use crate::support::client::post;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::support::sse::read_until;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply};

/// A model with two targets; the first has priority.
fn two(first: &Upstream, second: &Upstream, lines: &str) -> Setup {
    let mut setup = Setup::new();
    for (name, upstream) in [("one", first), ("two", second)] {
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, lines);
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"one\", model = \"m\" }, \
                     { provider = \"two\", model = \"m\", tier = 1 }]\n\n";
    setup
}

async fn healthy() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let stream = request.text().contains("\"stream\":true");
            let frames = Form::Chat.frames("m");
            let whole = reply::json(200, Form::Chat.whole("m"));
            conn.send(if stream { reply::stream(&frames) } else { whole }).await;
        }
    })
    .await
}

/// Starts an upstream that sends the head of a stream and `before`, and waits for the gate before it sends the rest.
async fn beginning(before: impl Into<Vec<u8>>, gate: &Gate) -> Upstream {
    let (before, gate) = (before.into(), gate.clone());
    Upstream::start(move |mut conn| {
        let (before, gate) = (before.clone(), gate.clone());
        async move {
            conn.request().await;
            conn.send(reply::stream_head()).await;
            conn.send(reply::chunk(before)).await;
            gate.passed().await;
            conn.send(reply::chunk(Form::Chat.frames("m").concat())).await;
            conn.send(reply::LAST_CHUNK).await;
            conn.closed().await;
        }
    })
    .await
}

/// Regression: without another wake-up, the stream was held back for a third of `timeouts.idle` (100 seconds).
#[tokio::test]
async fn prefix_buffer_is_flushed_after_the_hold_of_the_route() {
    let gate = Gate::new();
    let opening = Form::Chat.opening("m");
    let (first, second) = (beginning(opening.clone(), &gate).await, healthy().await);
    let limits = "heartbeat = \"0s\"\nslow_start = \"0s\"";
    let mut setup = two(&first, &second, "").limits(limits);
    setup.routes = format!("[retry]\nhold = \"1s\"\n\n{}", setup.routes);
    let gateway = Gateway::start(&setup).await;
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request_for("gpt", true)).await;
    assert_eq!(client.head().await.status(), 200);
    // The frame carries the client's name of the model.
    read_until(&mut client, &mut Vec::new(), Form::Chat.opening("gpt").trim_end()).await;
    assert!(!gate.is_open());
    gate.open();
}

/// The gateway cannot interpret invalid UTF-8, but forwards it to the client.
#[tokio::test]
async fn prefix_buffer_forwards_frames_with_invalid_utf8() {
    let broken = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff <here>\"}}]}\n\n";
    let opening = Form::Chat.opening("m").into_bytes();
    for before in [broken.to_vec(), [&opening[..], broken].concat()] {
        let gate = Gate::new();
        let (first, second) = (beginning(before, &gate).await, healthy().await);
        let mut setup = two(&first, &second, "");
        setup.routes = format!("[retry]\nhold = \"1h\"\n\n{}", setup.routes);
        let gateway = Gateway::start(&setup.limits("slow_start = \"0s\"")).await;
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request_for("gpt", true)).await;
        assert_eq!(client.head().await.status(), 200);
        read_until(&mut client, &mut Vec::new(), "<here>").await;
        assert!(!gate.is_open());
        gate.open();
    }
}

/// Starts an upstream that sends `at_once` bytes of its answer at once and the rest byte by byte, one every 20 ms.
async fn dripping(answer: Vec<u8>, at_once: usize) -> Upstream {
    Upstream::start(move |mut conn| {
        let answer = answer.clone();
        async move {
            while conn.request().await.is_some() {
                let (head, body) = answer.split_at(at_once.min(answer.len()));
                conn.send(head).await;
                for byte in body {
                    if conn.try_send([*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    })
    .await
}

/// A minimum rate of 10,000 bytes a second; the slow upstream sends 50.
const RATE: &str = "timeouts = { min_rate = \"10000B\", rate_window = \"500ms\" }";

fn head_of(answer: &[u8]) -> usize {
    answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4
}

#[tokio::test]
async fn min_rate_slow_document_falls_back_or_is_504() {
    let long = format!("{{\"id\":\"{}\",\"choices\":[]}}", "slow".repeat(500));
    let whole = reply::json(200, &long);
    let at = head_of(&whole);
    let first = dripping(whole, at).await;
    let second = healthy().await;
    let gateway = Gateway::start(&two(&first, &second, RATE)).await;
    let answer = gateway.ask(Form::Chat.request_for("gpt", false)).await;
    assert_eq!((answer.status(), answer.get("x-gateway-target")), (200, Some("two/m")), "{}", answer.text());
    let log = gateway.wait_for_log(1).await.remove(0);
    assert!(log["tried"].as_str().unwrap().starts_with("one/m: upstream_timeout"), "{log}");
    // Without another target the client receives the error.
    let alone = Setup::providers_with(first.addr, RATE);
    let gateway = Gateway::start(&alone).await;
    let answer = gateway.ask(Form::Chat.request(false)).await;
    assert_eq!(answer.status(), 504, "{}", answer.text());
    Form::Chat.error(&answer);
}

#[tokio::test]
async fn min_rate_slow_frame_falls_back_and_whole_slow_frames_pass() {
    let long =
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "slow".repeat(500));
    let chunks: Vec<u8> = long.bytes().flat_map(|byte| reply::chunk([byte])).collect();
    let head = reply::stream_head().into_bytes();
    let first = dripping([&head[..], &chunks].concat(), head.len()).await;
    let second = healthy().await;
    let gateway = Gateway::start(&two(&first, &second, RATE)).await;
    let answer = gateway.ask(Form::Chat.request_for("gpt", true)).await;
    assert_eq!((answer.status(), answer.get("x-gateway-target")), (200, Some("two/m")), "{}", answer.text());
    assert!(Form::Chat.looks_complete(answer.text()), "{}", answer.text());

    // Whole frames may arrive slowly, as a model generates them.
    let slow = Upstream::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.send(reply::stream_head()).await;
            for frame in Form::Chat.frames("m") {
                tokio::time::sleep(Duration::from_millis(400)).await;
                conn.send(reply::chunk(frame)).await;
            }
            conn.send(reply::LAST_CHUNK).await;
        }
    })
    .await;
    let second = healthy().await;
    let gateway = Gateway::start(&two(&slow, &second, RATE)).await;
    let answer = gateway.ask(Form::Chat.request_for("gpt", true)).await;
    assert_eq!((answer.status(), answer.get("x-gateway-target")), (200, Some("one/m")), "{}", answer.text());
    assert_eq!(answer.text(), Form::Chat.frames("gpt").concat());
}

#[tokio::test]
async fn min_rate_slow_job_call_is_504() {
    let long = format!("{{\"embeddings\":{{\"float\":[[{}1]]}}}}", "1, ".repeat(700));
    let whole = reply::json(200, &long);
    let at = head_of(&whole);
    let upstream = dripping(whole, at).await;
    let base = format!("http://{}/v2", upstream.addr);
    let setup = Setup::new().provider("cohere", "cohere", &base, RATE).model("v", "cohere", "v");
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(post("/v1/embeddings", "{\"model\":\"v\",\"input\":\"a\"}")).await;
    assert_eq!(answer.status(), 504, "{}", answer.text());
}

#[tokio::test]
async fn interim_responses_are_bounded_in_number_and_size() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let long = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "a".repeat(40_000));
    let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let vectors = post("/v1/embeddings", "{\"model\":\"v\",\"input\":\"a\"}");
    for (interim, status) in [
        (hint.to_owned(), 200),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(8), 200),
        (hint.repeat(9), 500),
        (hint.repeat(20_000), 500),
        (long.clone(), 200),
        (long.repeat(2), 500),
        (switch.to_owned(), 500),
    ] {
        let shown: String = interim.chars().take(40).collect();
        let upstream = Upstream::start(move |mut conn| {
            let interim = interim.clone();
            async move {
                while let Some(request) = conn.request().await {
                    let embeds = request.head.line.contains("/embed");
                    let vectors = "{\"embeddings\":{\"float\":[[1]]}}".to_owned();
                    let body = if embeds { vectors } else { Form::Chat.whole("gpt") };
                    conn.send([interim.as_bytes(), &reply::json(200, body)].concat()).await;
                }
            }
        })
        .await;
        let base = format!("http://{}/v2", upstream.addr);
        let setup = Setup::providers(upstream.addr).provider("cohere", "cohere", &base, "");
        let gateway = Gateway::start(&setup.model("v", "cohere", "v")).await;
        for request in [&Form::Chat.request(false), &Form::Chat.request(true), &vectors] {
            let answer = gateway.ask(request).await;
            assert_eq!(answer.status(), status, "{shown}: {}", answer.text());
        }
    }
}

/// Absurd values in a provider's rate-limit and `retry-after` headers do not affect the client's response.
#[tokio::test]
async fn reported_quota_with_absurd_values_does_no_harm() {
    let giant = "18000000000000000000s".repeat(2);
    let resets = [&*giant, "1e300", "-1", "inf", "9223372036854775807-01-01T00:00:00Z", "T", "\u{b5}s", ""];
    let mut heads: Vec<(String, String, String)> = Vec::new();
    for reset in resets {
        for left in ["5", "18446744073709551615", "-1", "x"] {
            heads.push(("x-ratelimit".to_owned(), left.to_owned(), reset.to_owned()));
        }
    }
    let answers = heads.iter().map(|(name, left, reset)| {
        let fields = [
            ("content-type".to_owned(), "application/json".to_owned()),
            (format!("{name}-remaining-requests"), left.clone()),
            (format!("{name}-reset-requests"), reset.clone()),
            (format!("{name}-remaining-tokens"), left.clone()),
            (format!("{name}-reset-tokens"), reset.clone()),
            ("retry-after".to_owned(), reset.clone()),
        ];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        reply::whole(200, &fields, Form::Chat.whole("m"))
    });
    let first = Upstream::answering_each(answers.collect()).await;
    let second = healthy().await;
    let gateway = Gateway::start(&two(&first, &second, "")).await;
    let mut client = gateway.connect().await;
    for (name, left, reset) in &heads {
        let answer = client.ask(Form::Chat.request_for("gpt", false)).await;
        assert_eq!(answer.status(), 200, "{name} {left} {reset}: {}", answer.text());
    }
    for wait in [&*giant, "1e300", "99999999999999999999", "-1", "nan", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let fields = [("content-type", "application/json"), ("retry-after", wait)];
        let first = Upstream::answering(reply::whole(429, &fields, "{}")).await;
        let second = healthy().await;
        let gateway = Gateway::start(&two(&first, &second, "")).await;
        for _ in 0..3 {
            let answer = gateway.ask(Form::Chat.request_for("gpt", false)).await;
            assert_eq!(answer.status(), 200, "{wait}: {}", answer.text());
        }
    }
}
