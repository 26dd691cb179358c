//! Connection limits, time-outs of heads, bodies and idle connections, body size limits, backpressure, and HTTP/2
//! stream limits.

use std::time::Duration;

use bytes::Bytes;

use crate::bodies::body_of;
use crate::support::client::{Client, post};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{Gate, http2, reply, soon, tls, until};

async fn chat_with(limits: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits(limits)).await;
    (upstream, gateway)
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn connection_beyond_the_limit_is_503() {
    let (_upstream, gateway) = chat_with("connections = 2").await;
    // Wait until the connection of the readiness check at the start is closed.
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    let mut first = gateway.connect().await;
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
    let mut second = gateway.connect().await;
    assert_eq!(second.ask(Form::Chat.request(false)).await.status(), 200);
    let mut third = gateway.connect().await;
    // The refusal may arrive before the request is sent.
    let _ = third.try_send(Form::Chat.request(false)).await;
    let answer = third.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.get("retry-after").is_some());
    Form::Chat.error(&answer);
    assert!(third.closed().await.is_empty());
    assert_eq!(gateway.metrics().await.sum("gateway_connections_refused_total", &[]), 1.0);
    assert_eq!(gateway.metrics().await.sum("gateway_connections", &[]), 2.0);
    // Admitted connections continue, and a freed connection slot is reused.
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
    drop(second);
    gateway.wait_for_metric("gateway_connections", &[], 1.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
}

/// Heads that are sent slowly or stop, at every position where a head can stop.
#[tokio::test]
async fn timeout_of_a_slow_head_closes_the_connection() {
    let (upstream, gateway) = chat_with("header_timeout = \"1s\"\nkeepalive = \"30s\"").await;
    let whole = String::from_utf8(post("/v1/chat/completions", body_of(100))).unwrap();
    let in_head = whole.find("content-length").unwrap();
    let mut clients = Vec::new();
    for stop in [1, 10, 23, 24, 25, in_head] {
        let mut client = gateway.connect().await;
        client.send(&whole[..stop]).await;
        clients.push(client);
    }
    for mut client in clients {
        client.closed().await;
    }
    // A head that arrives byte by byte is timed out too.
    let mut client = gateway.connect().await;
    for byte in whole.as_bytes().chunks(1).cycle() {
        if client.try_send(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        if upstream.count() > 0 {
            panic!("a head that took far too long was served");
        }
    }
    // The time-out also holds for a later request of the connection.
    let mut client = gateway.connect().await;
    assert_eq!(client.ask(&whole).await.status(), 200);
    client.send(&whole[..40]).await;
    client.closed().await;
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
}

#[tokio::test]
async fn timeout_of_an_idle_connection_closes_it() {
    let (_upstream, gateway) = chat_with("keepalive = \"1s\"\nheader_timeout = \"2s\"").await;
    // A connection without any request.
    let mut silent = gateway.connect().await;
    // A connection after a request.
    let mut used = gateway.connect().await;
    assert_eq!(used.ask(Form::Chat.request(false)).await.status(), 200);
    // The same over HTTP/2.
    let mut silent_h2 = http2::Client::connect(gateway.addr).await;
    let mut used_h2 = http2::Client::connect(gateway.addr).await;
    let (head, _) = http2::answer(used_h2.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    assert_eq!((silent.closed().await, used.closed().await), (vec![], vec![]));
    let _ = silent_h2.closed().await;
    let _ = used_h2.closed().await;
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
}

/// Idle time-out after the TLS handshake, for both ALPN protocols.
#[tokio::test]
async fn timeout_of_an_idle_tls_connection_closes_it() {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = Setup::providers(upstream.addr)
        .tls(&identity.chain, &identity.key)
        .limits("header_timeout = \"1s\"\nkeepalive = \"1s\"");
    let gateway = Gateway::start(&setup).await;
    let mut clients = Vec::new();
    for (alpn, stop) in [("http/1.1", 0), ("http/1.1", 10), ("h2", 0), ("h2", 10)] {
        let config = authority.client(&[alpn]);
        let (mut client, agreed) = gateway.connect_tls(config, "gateway.test").await.unwrap();
        assert_eq!(agreed.as_deref(), Some(alpn.as_bytes()));
        client.send(&b"PRI * HTTP/2.0\r\n"[..stop]).await;
        clients.push(client);
    }
    for mut client in clients {
        client.closed().await;
    }
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
}

#[tokio::test]
async fn timeout_of_a_stopped_body_is_408() {
    let (upstream, gateway) = chat_with("body_timeout = \"1s\"").await;
    let mut clients = Vec::new();
    for form in Form::ALL {
        let whole = form.request(false);
        let mut client = gateway.connect().await;
        client.send(&whole[..whole.len() - 5]).await;
        clients.push((form, client));
    }
    for (form, mut client) in clients {
        let answer = client.answer().await;
        assert_eq!(answer.status(), 408, "{form:?}");
        form.error(&answer);
        assert_eq!(client.closed().await, b"", "{form:?}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn timeout_of_a_slow_body_is_408() {
    let (upstream, gateway) = chat_with("body_timeout = \"1s\"").await;
    let mut client = gateway.connect().await;
    client.send(head(4000)).await;
    for byte in body_of(4000).chunks(1) {
        if client.try_send(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        if gateway.metrics().await.sum("gateway_errors_total", &[("kind", "body_timeout")]) > 0.0 {
            break;
        }
    }
    let answer = client.answer().await;
    assert_eq!(answer.status(), 408);
    Form::Chat.error(&answer);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn timeout_of_a_stopped_http2_body_is_408() {
    let (upstream, gateway) = chat_with("body_timeout = \"1s\"").await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let (answer, mut send) = client.begin("/v1/chat/completions", &[]).await;
    http2::send_all(&mut send, Bytes::from_static(b"{\"model\":"), false).await.unwrap();
    let (head, body) = http2::answer(answer).await;
    assert_eq!(head.status(), 408);
    Form::Chat.error_in(&serde_json::from_slice(&body).unwrap(), 408);
    // The HTTP/2 connection still serves other requests.
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn body_size_by_content_length_is_refused_before_the_body() {
    let (upstream, gateway) = chat_with("body = \"64KiB\"").await;
    for form in Form::ALL {
        let mut client = gateway.connect().await;
        let path = form.path(form.model(), false);
        client.send(head(65_537).replace("/v1/chat/completions", &path)).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 413, "{form:?}");
        form.error(&answer);
    }
    assert_eq!(upstream.connections(), 0);
    // A body of exactly the limit is accepted.
    assert_eq!(gateway.ask(post("/v1/chat/completions", body_of(65_536))).await.status(), 200);
}

#[tokio::test]
async fn body_size_413_reaches_clients_that_send_before_they_read() {
    let (upstream, gateway) = chat_with("body = \"64KiB\"").await;
    for size in [65_537, 1 << 20, 3 << 20] {
        let mut client = gateway.connect().await;
        client.send(post("/v1/chat/completions", body_of(size))).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 413, "{size}");
        Form::Chat.error(&answer);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn body_size_over_http2_is_413() {
    let (upstream, gateway) = chat_with("body = \"64KiB\"").await;
    let mut client = http2::Client::connect(gateway.addr).await;
    for headers in [&[][..], &[("content-length", "100000")]] {
        let (answer, mut send) = client.begin("/v1/chat/completions", headers).await;
        let sending =
            tokio::spawn(
                async move { http2::send_all(&mut send, Bytes::from(body_of(100_000)), true).await },
            );
        let (head, body) = http2::answer(answer).await;
        assert_eq!(head.status(), 413);
        Form::Chat.error_in(&serde_json::from_slice(&body).unwrap(), 413);
        let _ = sending.await;
    }
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    assert_eq!(upstream.count(), 1);
}

/// The head time-out does not end an HTTP/2 connection whose requests take longer than that.
#[tokio::test]
async fn http2_connection_outlives_the_head_timeout() {
    let gate = Gate::new();
    let waiting = gate.clone();
    let frames = Form::Chat.frames("gpt");
    let sent = frames.clone();
    let upstream = Upstream::start(move |mut conn| {
        let (gate, frames) = (waiting.clone(), sent.clone());
        async move {
            conn.request().await;
            conn.send(reply::stream_head() + &String::from_utf8(reply::chunk(&frames[0])).unwrap()).await;
            gate.passed().await;
            conn.send(reply::chunk(frames[1..].concat())).await;
            conn.send(reply::LAST_CHUNK).await;
            conn.closed().await;
        }
    })
    .await;
    let setup = Setup::providers(upstream.addr).limits("header_timeout = \"1s\"\nkeepalive = \"60s\"");
    let gateway = Gateway::start(&setup).await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let answer = soon(client.request(Form::Chat, true).await).await.unwrap();
    // Longer than the head time-out; the client sends nothing meanwhile, as is usual during a stream.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    gate.open();
    let (body, error) = http2::read_body(answer.into_body()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(String::from_utf8(body).unwrap(), frames.concat());
    assert!(!client.is_closed());
}

/// Starts an upstream that sends `frames` large frames as fast as possible, and counts the bytes sent.
async fn firehose(frames: usize) -> (Upstream, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = sent.clone();
    let upstream = Upstream::start(move |mut conn| {
        let counter = counter.clone();
        async move {
            conn.request().await;
            conn.send(reply::stream_head()).await;
            let text = "x".repeat(16_000);
            let frame = format!(
                "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
            );
            let chunk = reply::chunk(&frame);
            for _ in 0..frames {
                if conn.try_send(&chunk).await.is_err() {
                    return;
                }
                counter.fetch_add(chunk.len(), std::sync::atomic::Ordering::SeqCst);
            }
            let end = Form::Chat.frames("gpt");
            conn.send(reply::chunk(end[3..].concat())).await;
            conn.send(reply::LAST_CHUNK).await;
            conn.closed().await;
        }
    })
    .await;
    (upstream, sent)
}

/// Backpressure: a client that does not read stops the provider; the gateway does not buffer the stream.
#[tokio::test]
async fn backpressure_of_a_slow_reader_stops_the_upstream() {
    let (upstream, sent) = firehose(6_000).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = Client::connect_narrow(gateway.addr).await;
    client.send(Form::Chat.request(true)).await;
    client.head().await;
    let idle = gateway.memory("RssAnon");
    let mut before = 0;
    soon(async {
        loop {
            tokio::time::sleep(Duration::from_millis(400)).await;
            let now = sent.load(std::sync::atomic::Ordering::SeqCst);
            if now == before && now > 0 {
                break;
            }
            before = now;
        }
    })
    .await;
    // What fits into the buffers of four sockets, far less than the whole stream.
    assert!(before < 40 << 20, "{before} bytes left the upstream");
    let grown = gateway.memory("RssAnon").saturating_sub(idle);
    assert!(grown < 8 << 10, "{grown} KiB");
    // No byte is lost.
    let mut body = Vec::new();
    while let Piece::Data(piece) = client.piece().await {
        body.extend_from_slice(&piece);
    }
    let content = "x".repeat(16_000);
    assert_eq!(memchr::memmem::find_iter(&body, &content).count(), 6_000);
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn backpressure_reader_that_never_reads_times_out() {
    let (upstream, _) = firehose(100_000).await;
    let setup = Setup::providers(upstream.addr).limits("write_timeout = \"1s\"");
    let gateway = Gateway::start(&setup).await;
    let mut h1 = Client::connect_narrow(gateway.addr).await;
    h1.send(Form::Chat.request(true)).await;
    h1.head().await;
    let mut h2 = http2::Client::connect(gateway.addr).await;
    let answer = soon(h2.request(Form::Chat, true).await).await.unwrap();
    until(|| upstream.closed() == 2).await;
    drop(answer);
    a_moment().await;
}

#[tokio::test]
async fn http2_streams_are_bounded() {
    let (_upstream, gateway) = chat_with("").await;
    let mut client = http2::Client::connect(gateway.addr).await;
    // The gateway's SETTINGS frame comes before any response. Until then the client has a default of its own.
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    let most = client.max_streams();
    assert!((100..=1000).contains(&most), "{most}");
}

/// 400 concurrent requests, more than the stream limit: the client waits, and all are served.
#[tokio::test]
async fn http2_connection_is_shared_by_many_requests() {
    let (upstream, gateway) = chat_with("").await;
    let client = http2::Client::connect(gateway.addr).await;
    let client = std::sync::Arc::new(tokio::sync::Mutex::new(client));
    let mut asked = Vec::new();
    for _ in 0..400 {
        let client = client.clone();
        asked.push(tokio::spawn(async move {
            let answer = client.lock().await.request(Form::Chat, false).await;
            http2::answer(answer).await.0.status()
        }));
    }
    for answer in asked {
        assert_eq!(soon(answer).await.unwrap(), 200);
    }
    assert_eq!(upstream.count(), 400);
}
