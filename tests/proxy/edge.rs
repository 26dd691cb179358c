//! Limits that hold before authentication: size and memory of request heads, and incomplete TLS handshakes.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::client::{Client, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;
use crate::support::{http2, reply, soon, tls};

async fn gateway_with(limits: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits(limits)).await;
    (upstream, gateway)
}

/// Returns a request whose head has exactly `length` bytes.
fn head_of(length: usize) -> Vec<u8> {
    let bearer = format!("Bearer {KEY}");
    let bare = request("GET", "/v1/models", &[("authorization", &bearer), ("cookie", "")]).len();
    let cookie = "c".repeat(length - bare);
    request("GET", "/v1/models", &[("authorization", &bearer), ("cookie", &cookie)])
}

#[tokio::test]
async fn head_beyond_its_limit_is_answered_431() {
    for (limits, limit) in [("", 64 << 10), ("head = \"8KiB\"", 8 << 10), ("head = \"200KiB\"", 200 << 10)] {
        let (upstream, gateway) = gateway_with(limits).await;
        let mut client = gateway.connect().await;
        // A head of exactly the limit is accepted, also for the second request of a connection.
        for _ in 0..2 {
            let answer = client.ask(head_of(limit)).await;
            assert_eq!(answer.status(), 200, "{limit}: {}", answer.text());
        }
        for head in [head_of(limit + 1), head_of(limit + 100_000)] {
            let mut client = gateway.connect().await;
            client.send(head).await;
            let answer = client.answer().await;
            assert_eq!(answer.status(), 431, "{limit}: {}", answer.text());
            let (_, message) = Form::Chat.error(&answer);
            assert!(message.contains(&limit.to_string()), "{message}");
            assert_eq!(answer.get("x-should-retry"), Some("false"));
            client.closed().await;
        }
        // A head without an end is refused too, be it in a header value, between headers, in the request line or before
        // it.
        for endless in ["GET / HTTP/1.1\r\nhost: a\r\nx: ", "GET /", "GET / HTTP/1.1\r\n", "\r\n"] {
            let mut client = gateway.connect().await;
            let filler = if endless.ends_with("\r\n") { "y: z\r\n" } else { "yyyyyyyy" };
            let filler = if endless == "\r\n" { "\r\n" } else { filler };
            let _ =
                client.try_send(endless.to_owned() + &filler.repeat((limit + 20_000) / filler.len())).await;
            assert_eq!(client.answer().await.status(), 431, "{limit} {endless:?}");
        }
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.sum("gateway_errors_total", &[("kind", "head_too_large")]), 6.0);
        // The gateway still serves requests, and only this one reaches the provider.
        assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test]
async fn head_beyond_its_limit_is_refused_over_http2() {
    for (limits, limit) in [("", 64 << 10), ("head = \"8KiB\"", 8 << 10)] {
        let (_upstream, gateway) = gateway_with(limits).await;
        let mut client = http2::Client::connect(gateway.addr).await;
        for (length, status) in [(limit - 1_000, 401), (limit + 1, 431), (limit + 20_000, 431)] {
            let value = "c".repeat(length);
            let (answer, mut send) = client.begin_with("/v1/chat/completions", &[("x-long", &value)]).await;
            let _ = http2::send_all(&mut send, "{}".into(), true).await;
            let (head, _) = http2::answer(answer).await;
            assert_eq!(head.status(), status, "{limit} {length}");
        }
        // The HTTP/2 connection still serves other requests.
        let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
        assert_eq!(head.status(), 200);
    }
}

#[tokio::test]
async fn tunnel_over_http2_is_refused() {
    let (upstream, gateway) = gateway_with("").await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let (head, body) = client.tunnel("internal.test:443").await;
    assert_eq!(head.status(), 400);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["code"], "invalid_request", "{body}");
    assert_eq!(gateway.metrics().await.sum("gateway_errors_total", &[("kind", "invalid_head")]), 1.0);
    // The HTTP/2 connection still serves other requests.
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
    assert_eq!(upstream.connections(), 1);
}

/// 100 connections with heads that never end use no more memory than the head limit for each.
#[tokio::test]
async fn head_without_an_end_uses_bounded_memory() {
    let (_upstream, gateway) = gateway_with("").await;
    let before = gateway.start_of_peak();
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = gateway.connect().await;
        let _ = client.try_send(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(60 << 10))).await;
        clients.push(client);
    }
    gateway.wait_for_metric("gateway_connections", &[], 100.0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grown = gateway.peak_memory().saturating_sub(before);
    // 100 times 64 KiB plus slack for reallocation; a limit of 1 MiB each would need 100 MiB.
    assert!(grown < 32 << 10, "{grown} KiB");
}

fn tls_gateway(upstream: &Upstream, limits: &str) -> (tls::Authority, Setup) {
    let authority = tls::Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let setup = Setup::providers(upstream.addr).tls(&identity.chain, &identity.key).limits(limits);
    (authority, setup)
}

#[tokio::test]
async fn tls_incomplete_handshakes_count_as_connections_and_time_out() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let (authority, setup) = tls_gateway(&upstream, "connections = 50\nheader_timeout = \"10s\"");
    let gateway = Gateway::start(&setup).await;
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    // All 400 connections must be made before the first ones time out.
    let mut silent = Vec::new();
    for number in 0..400 {
        let mut client = Client::over(soon(TcpStream::connect(gateway.tls)).await.unwrap());
        if number % 2 == 0 {
            // The first bytes of a TLS ClientHello.
            let _ = client.try_send(b"\x16\x03\x01\x02\x00\x01").await;
        }
        silent.push(client);
    }
    gateway.wait_for_metric("gateway_connections", &[], 50.0).await;
    gateway.wait_for_metric("gateway_connections_refused_total", &[], 350.0).await;
    // Both listeners share the connection limit.
    let mut refused = gateway.connect().await;
    let _ = refused.try_send(Form::Chat.request(false)).await;
    assert_eq!(refused.answer().await.status(), 503);
    // The gateway closes all of them after `header_timeout`. A regression to a fixed 60 s would exceed the limit of
    // `soon`.
    for mut client in silent {
        assert_eq!(client.closed().await, b"");
    }
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    gateway.wait_for_metric("gateway_tls_handshakes_failed_total", &[("reason", "timeout")], 50.0).await;
    // The freed connections are available to clients that complete the handshake.
    for alpn in [&["h2"][..], &["http/1.1"], &[]] {
        let (mut client, agreed) = gateway.connect_tls(authority.client(alpn), "gateway.test").await.unwrap();
        assert_eq!(agreed.as_deref(), alpn.first().map(|name| name.as_bytes()));
        if alpn != ["h2"] {
            assert_eq!(client.ask(Form::Chat.request(false)).await.status(), 200);
        }
    }
    let mut client = http2::Client::connect_tls(gateway.tls, authority.client(&["h2"]), "gateway.test").await;
    let (head, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(head.status(), 200);
}

#[tokio::test]
async fn tls_handshake_failures_are_counted_and_plaintext_stays_plaintext() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let (authority, mut setup) = tls_gateway(&upstream, "");
    setup.log = "level = \"debug\"".to_owned();
    let gateway = Gateway::start(&setup).await;
    let labels = [("reason", "failed")];
    let failed = || async { gateway.metrics().await.sum("gateway_tls_handshakes_failed_total", &labels) };
    // Plain HTTP on the TLS listener, and TLS on the plaintext listener.
    let before = failed().await;
    let mut client = Client::over(soon(TcpStream::connect(gateway.tls)).await.unwrap());
    client.send(Form::Chat.request(false)).await;
    assert!(!client.closed().await.starts_with(b"HTTP/"));
    assert!(Client::connect_tls(gateway.addr, authority.client(&[]), "gateway.test").await.is_err());
    soon(async {
        while failed().await <= before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // A client that does not trust the certificate.
    let before = failed().await;
    let other = tls::Authority::new();
    assert!(gateway.connect_tls(other.client(&[]), "gateway.test").await.is_err());
    soon(async {
        while failed().await <= before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
}

#[tokio::test]
async fn connection_that_is_closed_without_a_byte_is_no_failed_handshake() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let (_, setup) = tls_gateway(&upstream, "");
    let gateway = Gateway::start(&setup).await;
    let name = "gateway_tls_handshakes_failed_total";
    let before = gateway.metrics().await.sum(name, &[]);
    // Balancers ask in this way whether a port is open; some end the connection with a reset.
    for probe in 0..40 {
        let socket = soon(TcpStream::connect(gateway.tls)).await.unwrap();
        if probe % 2 == 0 {
            socket.set_zero_linger().unwrap();
        }
        drop(socket);
    }
    // A first byte makes it a handshake, and this one comes after all of them.
    let mut client = Client::over(soon(TcpStream::connect(gateway.tls)).await.unwrap());
    client.send(b"\x16").await;
    drop(client);
    gateway.wait_for_metric(name, &[("reason", "failed")], before + 1.0).await;
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    assert_eq!(gateway.metrics().await.sum(name, &[]), before + 1.0);
}
