//! Trusted proxies: the client's address in `X-Forwarded-For` and `Forwarded`.

use super::{NET_KEY, list, setup};
use crate::support::client::{Client, request};
use crate::support::gateway::Gateway;
use crate::support::{http2, until};

#[tokio::test]
async fn forwarded_address_of_a_trusted_proxy_is_the_client() {
    let gateway =
        Gateway::start(&setup().server("trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]")).await;
    let mut connection = gateway.connect().await;
    for (chain, status, client) in [
        (&["203.0.113.9"][..], 200, Some("203.0.113.9")),
        (&["198.51.100.1, 203.0.113.9, 10.1.1.1"], 200, Some("203.0.113.9")),
        (&["198.51.100.1", "203.0.113.9", "10.1.1.1"], 200, Some("203.0.113.9")),
        // The claim of a client, to the left of what the proxy appends.
        (&["203.0.113.9, 198.51.100.1"], 403, Some("198.51.100.1")),
        (&["203.0.113.9", "198.51.100.1"], 403, Some("198.51.100.1")),
        (&["unknown"], 403, None),
        (&[], 403, Some("127.0.0.1")),
    ] {
        let lines = gateway.access_log().len();
        let headers: Vec<_> = chain.iter().map(|line| ("x-forwarded-for", *line)).collect();
        // The other header is not read.
        let headers =
            [&headers[..], &[("forwarded", "for=203.0.113.1"), ("x-real-ip", "203.0.113.1")]].concat();
        assert_eq!(connection.ask(list(&headers)).await.status(), status, "{chain:?}");
        let log = gateway.wait_for_log(lines + 1).await;
        assert_eq!(log[lines].get("client").and_then(|client| client.as_str()), client, "{chain:?}");
    }
    let mut client = http2::Client::connect(gateway.addr).await;
    let bearer = format!("Bearer {NET_KEY}");
    let headers = [("authorization", &*bearer), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(client.get("/v1/models", &headers).await.0.status(), 200);
}

#[tokio::test]
async fn forwarded_header_of_rfc_7239_replaces_the_other() {
    let server = "trusted_proxies = [\"127.0.0.1\"]\nforwarded_header = \"forwarded\"";
    let gateway = Gateway::start(&setup().server(server)).await;
    let mut connection = gateway.connect().await;
    for (value, status) in [
        ("for=203.0.113.9;proto=https", 200),
        ("for=198.51.100.1, For=\"[2001:db8::7]:4711\"", 200),
        ("for=203.0.113.9, for=198.51.100.1", 403),
        ("for=_hidden", 403),
        ("for=\"203.0.113.9", 403),
    ] {
        let headers = [("forwarded", value), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(connection.ask(list(&headers)).await.status(), status, "{value}");
    }
}

#[tokio::test]
async fn forwarded_address_of_an_untrusted_peer_is_ignored() {
    for server in ["", "trusted_proxies = [\"192.0.2.0/24\"]"] {
        let gateway = Gateway::start(&setup().server(server)).await;
        let headers = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(gateway.ask(list(&headers)).await.status(), 403);
        assert_eq!(gateway.wait_for_log(1).await[0]["client"], "127.0.0.1");
    }
}

/// The requests over a WebSocket are those of the client that has opened it.
#[tokio::test]
async fn forwarded_address_holds_for_a_websocket() {
    let gateway = Gateway::start(&setup().server("trusted_proxies = [\"127.0.0.0/8\"]")).await;
    let bearer = format!("Bearer {NET_KEY}");
    for (address, status) in [("198.51.100.1", 403), ("203.0.113.9", 101)] {
        let handshake = request(
            "GET",
            "/v1/responses",
            &[
                ("authorization", &*bearer),
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("x-forwarded-for", address),
            ],
        );
        let mut client = Client::connect(gateway.addr).await;
        client.send(handshake).await;
        assert_eq!(client.head().await.status(), status, "{address}");
        if status != 101 {
            continue;
        }
        let text = br#"{"type":"response.create","model":"no-such-model","input":"x"}"#;
        // A text frame, masked with zeros.
        let frame = [&[0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0], &text[..]].concat();
        client.send(frame).await;
        let mut found = None;
        until(|| {
            found = gateway.access_log().into_iter().find(|line| line["websocket"] == true);
            found.is_some()
        })
        .await;
        let line = found.unwrap();
        assert_eq!((&line["client"], &line["error"]), (&address.into(), &"unknown_model".into()), "{line}");
    }
}
