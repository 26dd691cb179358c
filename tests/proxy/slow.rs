//! Slow start: after `limits.slow_start` without a response, a client that requested a stream receives an early
//! response head and keep-alive filler. Then a response, a fallback or an error follows correctly.

use std::sync::Arc;

use crate::support::client::{Client, post};
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::http1::{Head, Piece};
use crate::support::http2;
use crate::support::setup::{KEY, Setup, key, provider_of};
use crate::support::sse::{read_until, told};
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{Gate, reply, soon};

const SHORT: &str = "slow_start = \"100ms\"\nheartbeat = \"100ms\"";

/// Returns the filler of two heartbeats in this format, at the beginning of a body.
fn filler(form: Form) -> &'static str {
    match form {
        Form::Chat | Form::Responses => ": keep-alive\n\n: keep-alive\n\n",
        Form::Messages => {
            "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
        }
        Form::Generate => "\r\n\r\n",
    }
}

/// Starts an upstream that reads a request, waits for the gate, and sends `answer`.
async fn late(answer: Vec<u8>, gate: &Gate) -> Upstream {
    let (answer, gate): (Arc<[u8]>, _) = (answer.into(), gate.clone());
    Upstream::start(move |mut conn| {
        let (answer, gate) = (answer.clone(), gate.clone());
        async move {
            while conn.request().await.is_some() {
                gate.passed().await;
                conn.send(&answer).await;
            }
        }
    })
    .await
}

/// A client after a slow start: it has received the head and filler of two heartbeats.
struct Kept {
    client: Client,
    head: Head,
    seen: Vec<u8>,
}

impl Kept {
    async fn begin(gateway: &Gateway, form: Form, request: Vec<u8>) -> Kept {
        let mut client = gateway.connect().await;
        client.send(request).await;
        let head = client.head().await;
        assert_eq!(head.status(), 200, "{form:?}: {head:?}");
        let mut seen = Vec::new();
        read_until(&mut client, &mut seen, filler(form)).await;
        assert_eq!(String::from_utf8_lossy(&seen), filler(form), "{form:?}");
        Kept { client, head, seen }
    }

    /// Reads the body to its end and returns it.
    async fn end(&mut self) -> String {
        loop {
            match self.client.piece().await {
                Piece::Data(piece) => self.seen.extend_from_slice(&piece),
                end => {
                    assert_eq!(end, Piece::End);
                    return String::from_utf8(self.seen.clone()).unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn slow_start_sends_head_and_filler_until_the_response() {
    every_form(|form| async move {
        let (gate, frames) = (Gate::new(), form.frames(provider_of(form)));
        let upstream = late(reply::stream(&frames), &gate).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
        let mut kept = Kept::begin(&gateway, form, form.request_for(provider_of(form), true)).await;
        for (name, value) in [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(kept.head.all(name), [value], "{form:?}");
        }
        let id = if form == Form::Messages { "request-id" } else { "x-request-id" };
        let id = kept.head.get(id).unwrap().to_owned();
        gate.open();
        let text = kept.end().await;
        assert_eq!(told(&text), told(&frames.concat()), "{form:?}: {text}");
        gateway.wait_for_metric("gateway_slow_starts_total", &[("model", provider_of(form))], 1.0).await;
        // The connection is kept alive. On a busy machine the second response may have a slow start too.
        let answer = kept.client.ask(form.request_for(provider_of(form), true)).await;
        let (text, filler) = (answer.text(), &filler(form)[..filler(form).len() / 2]);
        let before = text.strip_suffix(&*frames.concat()).unwrap_or_else(|| panic!("{form:?}: {text}"));
        assert_eq!((answer.status(), &*before.replace(filler, "")), (200, ""), "{form:?}");
        let log = gateway.wait_for_log(2).await.remove(0);
        assert_eq!(
            (&log["request_id"], &log["status"], &log["stream"]),
            (&id.into(), &200.into(), &true.into())
        );
        assert_eq!(log["usage"]["output"].as_u64().or(log["output_tokens"].as_u64()), Some(7), "{log}");
    })
    .await;
}

#[tokio::test]
async fn slow_start_with_translation_and_with_a_document_as_response() {
    every_form(|provider| async move {
        let stream = reply::stream(&provider.frames(provider_of(provider)));
        let whole = reply::json(200, provider.whole(provider_of(provider)));
        for answer in [stream, whole] {
            for client in Form::ALL {
                let gate = Gate::new();
                let upstream = late(answer.clone(), &gate).await;
                let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
                let mut kept =
                    Kept::begin(&gateway, client, client.request_for(provider_of(provider), true)).await;
                gate.open();
                let text = kept.end().await;
                assert!(client.looks_complete(&text), "{provider:?} to {client:?}: {text}");
                assert!(text.contains("😀"), "{provider:?} to {client:?}: {text}");
                assert_eq!(client.stream_error(&text), None, "{provider:?} to {client:?}: {text}");
            }
        }
    })
    .await;
}

/// After an early head, every kind of failure is reported inside the stream.
#[tokio::test]
async fn slow_start_error_is_reported_in_the_stream() {
    every_form(|form| async move {
        let frame = |status, word| {
            let name = if matches!(form, Form::Messages | Form::Responses) { "event: error\n" } else { "" };
            let body: String = provider_error(form, status, word).split_whitespace().collect();
            format!("{name}data: {body}\n\n")
        };
        let cases = [
            (reply::json(503, provider_error(form, 503, "sorry")), "sorry"),
            (reply::json(400, provider_error(form, 400, "wrong")), "wrong"),
            (reply::stream(&[frame(529, "busy")]), "busy"),
            (reply::stream(&[]), "ended before it was complete"),
            (reply::json(200, "{\"a\":"), "not valid"),
            (reply::whole(200, &[("content-type", "text/html")], "<html>"), "not valid"),
            (b"SSH-2.0-nothing\r\n\r\n".to_vec(), "response ended early"),
            (reply::whole(200, &[("content-encoding", "br")], "???"), "not valid"),
        ];
        for (answer, word) in cases {
            let gate = Gate::new();
            let upstream = late(answer.clone(), &gate).await;
            let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
            let mut kept = Kept::begin(&gateway, form, form.request_for(provider_of(form), true)).await;
            gate.open();
            let text = kept.end().await;
            let (_, message) = form.stream_error(&text).unwrap_or_else(|| panic!("{form:?} {word}: {text}"));
            assert!(message.contains(word), "{form:?} {word}: {text}");
            assert_eq!(told(&text).len(), 1, "{form:?} {word}: {text}");
            assert!(!form.looks_complete(&text), "{form:?} {word}: {text}");
            let log = gateway.wait_for_log(1).await.remove(0);
            assert_eq!((log["status"].as_u64(), &log["stream"]), (Some(200), &true.into()), "{log}");
            assert!(log["error"].is_string(), "{log}");
            // The body is complete, so the connection can be reused.
            kept.client.send(form.request_for(provider_of(form), true)).await;
            assert!(kept.client.try_head().await.is_some(), "{form:?} {word}");
        }
    })
    .await;
}

/// A model with targets at two providers; the first has priority.
fn two(form: Form, [first, second]: [&str; 2], lines: &str) -> Setup {
    let mut setup = Setup::new().account("acme", "1000").limits(SHORT);
    setup.keys = key("alice", KEY, "account = \"acme\"") + "[[account]]\nname = \"acme\"\n";
    let (kind, version) = match form {
        Form::Chat | Form::Responses => ("openai", "v1"),
        Form::Messages => ("anthropic", "v1"),
        Form::Generate => ("gemini", "v1beta"),
    };
    let api = provider_of(form).trim_start_matches("at-");
    for (name, base) in [("one", first), ("two", second)] {
        let lines = format!("apis = [\"{api}\"]\n{lines}");
        setup = setup.provider(name, kind, &format!("{base}/{version}"), &lines);
    }
    setup.routes += "[[model]]\nid = \"m\"\nprice = { input = 1000, output = 1000 }\n\
                     targets = [{ provider = \"one\", model = \"m\" }, { provider = \"two\", model = \"m\", tier = 1 }]\n";
    setup
}

fn at(upstream: &Upstream) -> String {
    format!("http://{}", upstream.addr)
}

#[tokio::test]
async fn slow_start_fallback_is_invisible_to_the_client() {
    every_form(|form| async move {
        let frames = form.frames("m");
        let beginning = reply::stream(&[form.opening("m")]);
        let cases = [
            reply::json(503, provider_error(form, 503, "sorry")),
            // Frames before the content are not forwarded.
            beginning,
        ];
        for failure in cases {
            let gates = [Gate::new(), Gate::new()];
            let first = late(failure, &gates[0]).await;
            let second = late(reply::stream(&frames), &gates[1]).await;
            let gateway = Gateway::start(&two(form, [&at(&first), &at(&second)], "")).await;
            let mut kept = Kept::begin(&gateway, form, form.request_for("m", true)).await;
            assert_eq!(kept.head.get("x-gateway-target"), None);
            gates[0].open();
            second.wait_for(1).await;
            kept.seen.clear();
            read_until(&mut kept.client, &mut kept.seen, filler(form)).await;
            gates[1].open();
            let text = kept.end().await;
            assert_eq!(told(&text), told(&frames.concat()), "{form:?}: {text}");
            assert_eq!((first.count(), second.count()), (1, 1));
            let record = gateway.records(1).await.remove(0);
            assert_eq!(
                (&record["provider"], record["attempts"].as_u64()),
                (&"two".into(), Some(2)),
                "{record}"
            );
            let log = gateway.wait_for_log(1).await.remove(0);
            assert_eq!((log["cost"].as_f64(), log["status"].as_u64()), (Some(0.018), Some(200)), "{log}");
        }
    })
    .await;
}

/// While frames are buffered until the first content, the client receives filler and none of these frames.
#[tokio::test]
async fn slow_start_sends_filler_while_frames_are_buffered() {
    every_form(|form| async move {
        let frames = form.frames("m");
        let gate = Gate::new();
        let (opening, opened) = (form.opening("m"), gate.clone());
        let first = Upstream::start(move |mut conn| {
            let (opening, gate) = (opening.clone(), opened.clone());
            async move {
                conn.request().await;
                conn.send(reply::stream_head()).await;
                conn.send(reply::chunk(opening)).await;
                gate.passed().await;
            }
        })
        .await;
        let second = Upstream::answering(reply::stream(&frames)).await;
        let gateway = Gateway::start(&two(form, [&at(&first), &at(&second)], "")).await;
        let mut kept = Kept::begin(&gateway, form, form.request_for("m", true)).await;
        assert_eq!(second.count(), 0);
        gate.open();
        let text = kept.end().await;
        assert_eq!(told(&text), told(&frames.concat()), "{form:?}: {text}");
        assert_eq!(second.count(), 1);
    })
    .await;
}

/// If all targets fail, the most useful error is reported, and nothing is charged.
#[tokio::test]
async fn slow_start_ends_with_the_most_useful_error_if_all_fail() {
    every_form(|form| async move {
        let gate = Gate::new();
        let first = late(reply::json(429, provider_error(form, 429, "slow down")), &gate).await;
        let second = late(reply::json(502, provider_error(form, 502, "bad gateway")), &gate).await;
        let gateway = Gateway::start(&two(form, [&at(&first), &at(&second)], "")).await;
        let mut kept = Kept::begin(&gateway, form, form.request_for("m", true)).await;
        gate.open();
        let text = kept.end().await;
        let (_, message) = form.stream_error(&text).unwrap_or_else(|| panic!("{text}"));
        assert!(message.contains("slow down"), "{form:?}: {text}");
        assert_eq!(second.count(), 1);
        let record = gateway.records(1).await.remove(0);
        assert_eq!(
            (&record["status"], &record["stream"], &record["cost"]),
            (&200.into(), &true.into(), &"0.00".into())
        );
    })
    .await;
}

/// The provider accepts the connection and never answers the TLS handshake.
#[tokio::test]
async fn slow_start_covers_connecting_to_the_provider() {
    let silent = Upstream::start(|mut conn| async move { conn.closed().await }).await;
    let frames = Form::Chat.frames("m");
    let second = Upstream::answering(reply::stream(&frames)).await;
    let bases = [format!("https://{}", silent.addr), at(&second)];
    let setup = two(Form::Chat, [&bases[0], &bases[1]], "timeouts = { connect = \"2s\" }");
    let gateway = Gateway::start(&setup).await;
    let mut kept = Kept::begin(&gateway, Form::Chat, Form::Chat.request_for("m", true)).await;
    assert_eq!(second.count(), 0);
    let text = kept.end().await;
    assert_eq!(told(&text), told(&frames.concat()), "{text}");
}

#[tokio::test]
async fn slow_start_of_a_json_array_sends_white_space() {
    let elements: Vec<String> = Form::Generate
        .frames("m")
        .iter()
        .map(|frame| frame.trim().strip_prefix("data: ").unwrap().to_owned())
        .collect();
    let kind = [("content-type", "application/json")];
    let array = format!("[{}]", elements.join(",\r\n"));
    let stream = reply::stream(&Form::Generate.frames("m"));
    let error = reply::json(503, provider_error(Form::Generate, 503, "sorry"));
    for (answer, fails) in [(reply::whole(200, &kind, &array), false), (stream, false), (error, true)] {
        let gate = Gate::new();
        let upstream = late(answer, &gate).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
        let path = format!("/v1beta/models/{}:streamGenerateContent", provider_of(Form::Generate));
        let request = post(&path, Form::Generate.body("", true));
        let mut kept = Kept::begin(&gateway, Form::Generate, request).await;
        assert_eq!(kept.head.all("content-type"), ["application/json"]);
        gate.open();
        let text = kept.end().await;
        let read: Vec<serde_json::Value> =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let last = read.last().unwrap();
        assert_eq!(last.get("error").is_some(), fails, "{text}");
        assert_eq!(last["candidates"][0]["finishReason"] == "STOP", !fails, "{text}");
    }
}

/// For a document there is no filler; without slow start the client of a stream receives the error status instead.
#[tokio::test]
async fn slow_start_is_off_for_documents_and_when_disabled() {
    let error = reply::json(503, provider_error(Form::Chat, 503, "sorry"));
    for (limits, stream) in [(SHORT, false), ("slow_start = \"0s\"\nheartbeat = \"50ms\"", true)] {
        let gate = Gate::new();
        let upstream = late(error.clone(), &gate).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(limits)).await;
        let mut client = gateway.connect().await;
        client.send(Form::Chat.request_for(provider_of(Form::Chat), stream)).await;
        upstream.wait_for(1).await;
        a_moment().await;
        gate.open();
        let answer = client.answer().await;
        assert_eq!(answer.status(), 503, "{limits}: {}", answer.text());
        assert_eq!(gateway.metrics().await.sum("gateway_slow_starts_total", &[]), 0.0);
    }
}

/// Without a heartbeat only the head is sent early.
#[tokio::test]
async fn slow_start_without_heartbeat_sends_only_the_head() {
    let (gate, frames) = (Gate::new(), Form::Chat.frames(provider_of(Form::Chat)));
    let upstream = late(reply::stream(&frames), &gate).await;
    let limits = "slow_start = \"50ms\"\nheartbeat = \"0s\"";
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(limits)).await;
    let mut client = gateway.connect().await;
    client.send(Form::Chat.request_for(provider_of(Form::Chat), true)).await;
    assert_eq!(client.head().await.status(), 200);
    a_moment().await;
    gate.open();
    let mut seen = Vec::new();
    while let Piece::Data(piece) = client.piece().await {
        seen.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), frames.concat());
}

#[tokio::test]
async fn slow_start_over_http_1_0_and_http2() {
    let (gate, frames) = (Gate::new(), Form::Messages.frames(provider_of(Form::Messages)));
    let upstream = late(reply::stream(&frames), &gate).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr).limits(SHORT)).await;
    let request = Form::Messages.request_for(provider_of(Form::Messages), true);
    let old = String::from_utf8(request).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut kept = Kept::begin(&gateway, Form::Messages, old.into_bytes()).await;
    assert!(kept.head.line.starts_with("HTTP/1.0 "), "{:?}", kept.head);
    assert_eq!((kept.head.get("transfer-encoding"), kept.head.get("content-length")), (None, None));
    let mut client = http2::Client::connect(gateway.addr).await;
    let body = Form::Messages.body(provider_of(Form::Messages), true);
    let answer = client.post("/v1/messages", body).await;
    let answer = soon(answer).await.unwrap();
    assert_eq!(answer.status(), 200);
    gate.open();
    let text = kept.end().await;
    assert_eq!(told(&text), told(&frames.concat()), "{text}");
    let (seen, error) = http2::read_body(answer.into_body()).await;
    assert!(error.is_none(), "{error:?}");
    let text = String::from_utf8(seen).unwrap();
    assert!(text.starts_with("event: ping\n"), "{text}");
    assert_eq!(told(&text), told(&frames.concat()), "{text}");
}

/// A client that disconnects after an early head ends the upstream exchange.
#[tokio::test]
async fn slow_start_ends_when_the_client_disconnects() {
    let ended = Upstream::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let gateway = Gateway::start(&Setup::each_provider(ended.addr).limits(SHORT)).await;
    let form = Form::Responses;
    let kept = Kept::begin(&gateway, form, form.request_for(provider_of(form), true)).await;
    drop(kept);
    crate::support::until(|| ended.closed() == 1).await;
    let log = gateway.wait_for_log(1).await.remove(0);
    assert_eq!(log["error"], "client_gone", "{log}");
}
