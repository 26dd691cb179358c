//! HTTP/1 connections of clients: keep-alive, pipelining, `100-continue`, and protection against request smuggling.

use crate::bodies::{assert_arrived, body_of, chat, chunked_head};
use crate::support::client::{post, post_with, request};
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::{Upstream, a_moment};

#[tokio::test]
async fn http_1_0_document_has_no_chunks_and_ends_the_connection() {
    let (upstream, gateway) = chat().await;
    let body = body_of(70_000);
    let mut client = gateway.connect().await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {KEY}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let answer = client.ask([head.as_bytes(), &body].concat()).await;
    assert!(answer.head.line.starts_with("HTTP/1.0 200"), "{}", answer.head.line);
    assert_eq!(answer.get("transfer-encoding"), None);
    assert_eq!(answer.text(), Form::Chat.whole("gpt"));
    assert_arrived(&upstream, &body);
    // An HTTP/1.0 client recognizes the end of the answer by the end of the connection.
    assert!(client.closed().await.is_empty());
}

#[tokio::test]
async fn http_1_0_stream_has_no_chunks_and_ends_with_the_connection() {
    let frames = Form::Chat.frames("gpt");
    let upstream = Upstream::answering(reply::stream(&frames)).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let body = Form::Chat.body("gpt", true);
    let mut client = gateway.connect().await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let answer = client.ask([head, body].concat()).await;
    assert!(answer.head.line.starts_with("HTTP/1.0 200"), "{}", answer.head.line);
    assert_eq!((answer.get("transfer-encoding"), answer.get("content-length")), (None, None));
    assert_eq!(answer.text(), frames.concat());
}

/// This request is shorter than the HTTP/2 preface, so the gateway must not wait for all of the preface.
#[tokio::test]
async fn head_shorter_than_the_http2_preface_is_answered() {
    let (_upstream, gateway) = chat().await;
    let answer = gateway.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(answer.json().is_object());
}

#[tokio::test]
async fn expect_100_continue_is_answered_before_the_body() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    for size in [200, 1 << 20] {
        let body = body_of(size);
        let whole = post_with(
            "/v1/chat/completions",
            &[("authorization", &format!("Bearer {KEY}")), ("expect", "100-continue")],
            &body,
        );
        let (head, body_bytes) = whole.split_at(whole.len() - size);
        client.send(head).await;
        assert_eq!(client.head().await.status(), 100);
        client.send(body_bytes).await;
        assert_eq!(client.answer().await.status(), 200);
        assert_arrived(&upstream, &body);
        assert_eq!(upstream.last_request().head.get("expect"), None);
    }
}

#[tokio::test]
async fn expect_100_continue_refused_request_gets_no_100() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr).limits("body = \"1MiB\"")).await;
    let head = |key: &str, length: usize| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {key}\r\n\
             expect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    for (key, length, status) in [(KEY, 2 << 20, 413), ("no-such-key", 100, 401)] {
        let mut client = gateway.connect().await;
        let answer = client.ask(head(key, length)).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        Form::Chat.error(&answer);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn connection_is_kept_alive_after_every_outcome() {
    let (upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    let path = "/v1/chat/completions";
    let wrong_key = [("authorization", "Bearer no-such-key")];
    for _ in 0..2 {
        for (request, status) in [
            (post(path, body_of(200)), 200),
            (post(path, "{"), 400),
            (post(path, r#"{"model":"no-such-model","messages":[]}"#), 404),
            (request("GET", "/nowhere", &[]), 404),
            (request("GET", path, &[]), 405),
            (post_with(path, &wrong_key, body_of(70_000)), 401),
            (request("GET", "/v1/models", &[("authorization", &format!("Bearer {KEY}"))]), 200),
            (post(path, body_of(100_000)), 200),
        ] {
            let answer = client.ask(&request).await;
            let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
            assert_eq!(answer.status(), status, "{shown}: {}", answer.text());
            if status == 401 {
                // The request body was not read, so the gateway may close this connection.
                client = gateway.connect().await;
            } else {
                assert_eq!(answer.get("connection").filter(|value| *value == "close"), None, "{shown}");
            }
        }
    }
    assert_eq!(upstream.count(), 4);
}

#[tokio::test]
async fn connection_close_of_the_client_is_honored() {
    let frames = Form::Chat.frames("gpt");
    let upstream = Upstream::answering_each(vec![
        reply::json(200, Form::Chat.whole("gpt")),
        reply::stream(&frames),
        reply::json(429, "{}"),
    ])
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("connection", "close")];
    for (stream, status) in [(false, 200), (true, 200), (false, 429)] {
        let mut client = gateway.connect().await;
        let answer = client.ask(Form::Chat.request_with(stream, &headers)).await;
        assert_eq!((answer.status(), answer.get("connection")), (status, Some("close")));
        assert!(answer.complete);
        assert_eq!(client.closed().await, b"");
    }
    // `connection: close` of the client does not affect the upstream connection, which is reused.
    assert_eq!(upstream.connections(), 1);
}

/// A `100 Continue` does not change the final response: document, stream or error.
#[tokio::test]
async fn expect_100_continue_does_not_change_the_final_response() {
    let frames = Form::Chat.frames("gpt");
    let refused = provider_error(Form::Chat, 429, "slow down");
    let upstream = Upstream::answering_each(vec![
        reply::stream(&frames),
        reply::json(429, &refused),
        reply::json(200, Form::Chat.whole("gpt")),
    ])
    .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("expect", "100-continue")];
    let mut client = gateway.connect().await;
    for (stream, status, expected) in
        [(true, 200, frames.concat()), (false, 429, refused), (false, 200, Form::Chat.whole("gpt"))]
    {
        client.send(Form::Chat.request_with(stream, &headers)).await;
        assert_eq!(client.head().await.status(), 100);
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text()), (status, &*expected));
    }
    // A request that the gateway itself refuses.
    client.send(post_with("/v1/chat/completions", &headers, "{]")).await;
    assert_eq!(client.head().await.status(), 100);
    assert_eq!(client.answer().await.status(), 400);
    // An upstream that refuses connections.
    drop(upstream);
    client.send(Form::Chat.request_with(true, &headers)).await;
    assert_eq!(client.head().await.status(), 100);
    assert_eq!(client.answer().await.status(), 503);
}

#[tokio::test]
async fn pipelining_is_answered_in_order() {
    let answers =
        (0..4).map(|n| reply::json(200, format!("{{\"id\":\"answer-{n}\",\"choices\":[]}}"))).collect();
    let upstream = Upstream::answering_each(answers).await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    let path = "/v1/chat/completions";
    let three =
        [post(path, body_of(200)), post(path, body_of(70_000)), post(path, "{"), post(path, body_of(300))];
    client.send(three.concat()).await;
    assert_eq!(client.answer().await.json()["id"], "answer-0");
    assert_eq!(client.answer().await.json()["id"], "answer-1");
    assert_eq!(client.answer().await.status(), 400);
    assert_eq!(client.answer().await.json()["id"], "answer-2");
    let sizes: Vec<usize> = upstream.requests().iter().map(|request| request.body.len()).collect();
    assert_eq!(sizes, [200, 70_000, 300]);
}

#[tokio::test]
async fn pipelining_behind_a_stream_waits_for_its_end() {
    let frames = Form::Chat.frames("gpt");
    let upstream =
        Upstream::answering_each(vec![reply::stream(&frames), reply::json(200, Form::Chat.whole("gpt"))])
            .await;
    let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
    let mut client = gateway.connect().await;
    client.send([Form::Chat.request(true), Form::Chat.request(false)].concat()).await;
    assert_eq!(client.answer().await.text(), frames.concat());
    assert_eq!(client.answer().await.text(), Form::Chat.whole("gpt"));
}

#[tokio::test]
async fn smuggling_by_ambiguous_body_length_is_refused() {
    let (upstream, gateway) = chat().await;
    let hidden = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";
    for headers in [
        // Two lengths, a length beside chunks, and unknown transfer encodings.
        "content-length: 5\r\ncontent-length: 60",
        "content-length: 5, 60",
        "content-length: +5",
        "content-length: -1",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: xchunked",
    ] {
        let mut client = gateway.connect().await;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {KEY}\r\n{headers}\r\n\r\n"
        );
        client.send(format!("{head}0\r\n\r\n{hidden}")).await;
        client.finish_sending().await;
        let everything = String::from_utf8_lossy(&client.closed().await).into_owned();
        let answers = everything.matches("HTTP/1.1 ").count();
        assert!(answers <= 1, "{headers}: {everything}");
        assert!(!everything.contains("HTTP/1.1 2"), "{headers}: {everything}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn smuggling_by_malformed_chunks_is_refused() {
    let (upstream, gateway) = chat().await;
    let hidden = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";
    for body in [
        "zz\r\n{}\r\n0\r\n\r\n".to_owned(),
        "-2\r\n{}\r\n0\r\n\r\n".to_owned(),
        "2\r\n{}XX0\r\n\r\n".to_owned(),
        "fffffffffffffffff\r\n{}".to_owned(),
        // Some parsers take a bare line feed for the end of a line, others do not.
        format!("2;a\nb\r\n{{}}\r\n0\r\n\r\n{hidden}"),
        format!("2;a=\"\n\"\r\n{{}}\r\n0\r\n\r\n{hidden}"),
        format!("2\n{{}}\r\n0\r\n\r\n{hidden}"),
        format!("2\r\n{{}}\n0\r\n\r\n{hidden}"),
        format!("2\r\n{{}}\r\n0\r\nx: y\n\r\n{hidden}"),
    ] {
        for apart in [false, true] {
            let mut client = gateway.connect().await;
            let head = chunked_head("/v1/chat/completions");
            if apart {
                client.send(&head).await;
                a_moment().await;
                // The gateway may refuse the request before all bytes are sent.
                for byte in body.as_bytes().chunks(1) {
                    let _ = client.try_send(byte).await;
                }
            } else {
                client.send(head + &body).await;
            }
            client.finish_sending().await;
            let everything = String::from_utf8_lossy(&client.closed().await).into_owned();
            assert!(everything.starts_with("HTTP/1.1 400 "), "{body:?} {apart}: {everything:?}");
            assert_eq!(everything.matches("HTTP/1.1 ").count(), 1, "{body:?} {apart}: {everything}");
        }
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn head_method_is_answered_without_a_body() {
    let (_upstream, gateway) = chat().await;
    let mut client = gateway.connect().await;
    client.send([request("HEAD", "/", &[]), post("/v1/chat/completions", body_of(100))].concat()).await;
    assert_eq!(client.answer_to_head().await.status(), 200);
    assert_eq!(client.answer().await.text(), Form::Chat.whole("gpt"));
    assert_eq!(client.unread(), b"");
}

/// Variants of valid heads: absolute-form target, names in any case, unusual white space, and empty lines before the
/// head.
#[tokio::test]
async fn head_variants_of_valid_syntax_are_accepted() {
    let (upstream, gateway) = chat().await;
    let body = body_of(100);
    for head in [
        format!(
            "POST http://gateway.test/v1/chat/completions HTTP/1.1\r\nHost: gateway.test\r\nAUTHORIZATION: Bearer {KEY}\r\n"
        ),
        // The authority of an absolute-form target overrides the `host` header (RFC 9112, section 3.2.2).
        format!(
            "POST HTTPS://gateway.test:8443/v1/chat/completions?x=1 HTTP/1.1\r\nHost: proxy.test\r\nx-api-key: {KEY}\r\n"
        ),
        format!("\r\n\r\nPOST /v1/chat/completions HTTP/1.1\r\nHost:\r\nx-api-key: {KEY}\r\n"),
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost:gateway.test\r\nauthorization:Bearer {KEY}\r\n"),
        format!("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: \t {KEY} \t\r\n"),
    ] {
        let mut client = gateway.connect().await;
        let request = [format!("{head}Content-Length: 100\r\n\r\n").as_bytes(), &body].concat();
        // Pipelined.
        client.send([&request[..], &request[..], &request[..]].concat()).await;
        for _ in 0..3 {
            let answer = client.answer().await;
            assert_eq!(answer.status(), 200, "{head:?}: {}", answer.text());
            assert_arrived(&upstream, &body);
            assert_eq!(upstream.last_request().head.all("host"), [upstream.addr.to_string()]);
        }
        // In small pieces.
        for byte in request.chunks(50) {
            client.send(byte).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer().await.status(), 200, "{head:?}");
    }
}

/// An invalid head is answered with 400 or with a closed connection, and is never processed as a request.
#[tokio::test]
async fn head_malformed_is_refused() {
    let (upstream, gateway) = chat().await;
    for head in [
        "\0\0\0\0\r\n\r\n",
        "POST\r\n\r\n",
        "POST /v1/chat/completions\r\n\r\n",
        "POST /v1/chat/completions HTTP/9.9\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nna me: x\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nx: a\0b\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        // Heads that two parsers may interpret differently.
        "POST /v1/chat/completions HTTP/1.1\nhost: x\n\n",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\nx-a: b\r\n\r\n",
        "POST  /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /v1/chat/completions  HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /v1/chat completions HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\naccept: x\r\n\r\n",
        "POST http://gateway.test/v1/chat/completions HTTP/1.1\r\naccept: x\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n",
        "POST http://x/v1/chat/completions HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
        "POST http://user@x/v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST ftp://x/v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        let mut client = gateway.connect().await;
        client.send(head).await;
        client.finish_sending().await;
        let said = String::from_utf8_lossy(&client.closed().await).into_owned();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{head:?}: {said}");
        assert!(said.matches("HTTP/1.1").count() <= 1, "{head:?}: {said}");
    }
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.ask(Form::Chat.request(false)).await.status(), 200);
}
