//! How much, how many and how slow: connections, heads, bodies, idle connections, readers that do not read.

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
async fn a_connection_beyond_the_cap_is_told_so() {
    let (_upstream, gateway) = chat_with("connections = 2").await;
    // That of the start has been served, and its place may be free a moment later.
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    let mut first = gateway.connect().await;
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
    let mut second = gateway.connect().await;
    assert_eq!(second.ask(Form::Chat.request(false)).await.status(), 200);
    let mut third = gateway.connect().await;
    // It may be told before it has sent anything.
    let _ = third.try_send(Form::Chat.request(false)).await;
    let answer = third.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.get("retry-after").is_some());
    Form::Chat.error(&answer);
    assert!(third.closed().await.is_empty());
    assert_eq!(gateway.metrics().await.sum("gateway_connections_refused_total", &[]), 1.0);
    assert_eq!(gateway.metrics().await.sum("gateway_connections", &[]), 2.0);
    // Those who are in go on, and a place that becomes free is given away.
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
    drop(second);
    gateway.wait_for_metric("gateway_connections", &[], 1.0).await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(first.ask(Form::Chat.request(false)).await.status(), 200);
}

/// What is dripped, and what stops in the middle, at every place where a head can stop.
#[tokio::test]
async fn a_slow_head_ends_the_connection() {
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
    // Dripping does not help.
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
    // Neither does a request that was served before.
    let mut client = gateway.connect().await;
    assert_eq!(client.ask(&whole).await.status(), 200);
    client.send(&whole[..40]).await;
    client.closed().await;
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_is_closed() {
    let (_upstream, gateway) = chat_with("keepalive = \"1s\"\nheader_timeout = \"2s\"").await;
    // One that never said anything.
    let mut silent = gateway.connect().await;
    // One that was used.
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

/// After the handshake, whatever was agreed on in it.
#[tokio::test]
async fn a_tls_connection_on_which_nothing_comes_is_closed() {
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
async fn a_body_that_stops_is_answered_408() {
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
async fn a_body_that_drips_is_answered_408() {
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
async fn a_body_over_http2_that_stops_is_answered_408() {
    let (upstream, gateway) = chat_with("body_timeout = \"1s\"").await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let (answer, mut send) = client.begin("/v1/chat/completions", &[]).await;
    http2::send_all(&mut send, Bytes::from_static(b"{\"model\":"), false).await.unwrap();
    let (head, body) = http2::answer(answer).await;
    assert_eq!(head.status(), 408);
    Form::Chat.error_in(&serde_json::from_slice(&body).unwrap(), 408);
    // Its connection serves others.
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn too_large_is_said_before_the_body_is_sent() {
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
    // What is exactly as large as the limit is served.
    assert_eq!(gateway.ask(post("/v1/chat/completions", body_of(65_536))).await.status(), 200);
}

#[tokio::test]
async fn too_large_is_seen_by_those_who_send_first_and_read_then() {
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
async fn too_large_over_http2() {
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

/// A time-out for heads must not end a connection whose requests take longer than a head may.
#[tokio::test]
async fn an_http2_connection_outlives_the_time_for_a_head() {
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
    // Longer than any head may take; the client says nothing meanwhile, as clients of streams do.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    gate.open();
    let (body, error) = http2::read_body(answer.into_body()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(String::from_utf8(body).unwrap(), frames.concat());
    assert!(!client.is_closed());
}

/// An upstream that sends frames for as long as it is let, and says how many bytes left.
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

/// A client that does not read holds the provider back; the gateway collects nothing meanwhile.
#[tokio::test]
async fn a_slow_reader_holds_the_upstream_back() {
    let (upstream, sent) = firehose(6_000).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = Client::connect_narrow(gateway.addr).await;
    client.send(Form::Chat.request(true)).await;
    client.head().await;
    let idle = gateway.memory("VmRSS");
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
    // What fits into the buffers of four sockets, and not what is sent in all.
    assert!(before < 40 << 20, "{before} bytes left the upstream");
    let grown = gateway.memory("VmRSS").saturating_sub(idle);
    assert!(grown < 8 << 10, "{grown} KiB");
    // Nothing is lost by it.
    let mut body = Vec::new();
    while let Piece::Data(piece) = client.piece().await {
        body.extend_from_slice(&piece);
    }
    let content = "x".repeat(16_000);
    assert_eq!(memchr::memmem::find_iter(&body, &content).count(), 6_000);
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_reader_that_never_reads_is_given_up() {
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
    let client = http2::Client::connect(gateway.addr).await;
    a_moment().await;
    let most = client.max_streams();
    assert!((100..=1000).contains(&most), "{most}");
}

/// More requests at once than streams are permitted: the client waits, and all of them are served.
#[tokio::test]
async fn many_requests_share_an_http2_connection() {
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

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let (upstream, gateway) = chat_with("").await;
    let mut client = gateway.connect().await;
    let huge = "x".repeat(2 << 20);
    let _ = client.try_send(format!("GET / HTTP/1.1\r\nhost: x\r\nx-huge: {huge}\r\n\r\n")).await;
    let everything = String::from_utf8_lossy(&client.closed().await).into_owned();
    assert!(!everything.contains("HTTP/1.1 2"), "{everything}");
    // The gateway goes on.
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
    assert_eq!(upstream.count(), 1);
}
