//! HTTP/1 requests that RFC 9110 and 9112 forbid: refused with the status that they demand, in the format of the path, and
//! the connection is closed.

use crate::bodies::{body_of, chat};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::KEY;

const PATH: &str = "/v1/chat/completions";

/// Returns a request for a chat completion with this request line and these headers.
fn request(line: &str, headers: &str, body: &str) -> String {
    format!(
        "{line}\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n{headers}\r\n\r\n{body}"
    )
}

/// Sends a request with another one behind it, and returns everything that the gateway says until it closes the
/// connection, which it must do without the client's closing it.
async fn said(gateway: &Gateway, request: &str) -> String {
    let mut client = gateway.connect().await;
    let _ = client.try_send(format!("{request}GET /v1/models HTTP/1.1\r\nhost: hidden\r\n\r\n")).await;
    String::from_utf8_lossy(&client.closed().await).into_owned()
}

/// Asserts that a request gets this one answer and that the connection is closed.
async fn refused(gateway: &Gateway, request: &str, status: u16) {
    let said = said(gateway, request).await;
    assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {said}");
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{request:?}: {said}");
    assert!(said.to_ascii_lowercase().contains("connection: close\r\n"), "{request:?}: {said}");
}

#[tokio::test]
async fn transfer_codings_other_than_chunked_are_refused() {
    let (upstream, gateway) = chat().await;
    let body = String::from_utf8(body_of(100)).unwrap();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let line = format!("POST {PATH} HTTP/1.1\r\nhost: x");
    for (headers, status) in [
        ("transfer-encoding: gzip, chunked", 501),
        ("transfer-encoding: identity, chunked", 501),
        ("transfer-encoding: x, Chunked", 501),
        ("transfer-encoding: gzip", 400),
        ("transfer-encoding: chunked, chunked", 400),
        ("transfer-encoding: chunked, gzip", 400),
        ("transfer-encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("transfer-encoding: chunked\r\ntransfer-encoding: gzip", 400),
        ("transfer-encoding: chunked;a=b", 400),
        ("transfer-encoding:", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 3", 400),
    ] {
        refused(&gateway, &request(&line, headers, &chunked), status).await;
    }
    let old = format!("POST {PATH} HTTP/1.0\r\nhost: x");
    refused(&gateway, &request(&old, "transfer-encoding: chunked", &chunked), 400).await;
    assert_eq!(upstream.connections(), 0);
    let mut client = gateway.connect().await;
    let answer = client.ask(request(&line, "Transfer-Encoding: \t CHUNKED ", &chunked)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[tokio::test]
async fn authority_and_target_must_be_valid() {
    let (upstream, gateway) = chat().await;
    let body = String::from_utf8(body_of(100)).unwrap();
    let length = "content-length: 100";
    for line in [
        format!("POST {PATH} HTTP/1.1\r\nhost: x:abc"),
        format!("POST {PATH} HTTP/1.1\r\nhost: x:1:2"),
        format!("POST {PATH} HTTP/1.1\r\nhost: x:65536"),
        format!("POST {PATH} HTTP/1.1\r\nhost: [::1"),
        format!("POST {PATH} HTTP/1.1\r\nhost: [::1]x"),
        format!("POST {PATH} HTTP/1.1\r\nhost: [::g]"),
        format!("POST {PATH} HTTP/1.1\r\nhost: ::1"),
        format!("POST {PATH} HTTP/1.1\r\nhost: :80"),
        format!("POST {PATH} HTTP/1.1\r\nhost: a%zz"),
        format!("POST http://x:abc{PATH} HTTP/1.1\r\nhost: x"),
        format!("POST http://[::1{PATH} HTTP/1.1\r\nhost: x"),
        format!("POST http://x{PATH} HTTP/1.1\r\nhost: x:abc"),
        format!("POST {PATH}#fragment HTTP/1.1\r\nhost: x"),
        format!("POST {PATH}?a=b#c HTTP/1.1\r\nhost: x"),
        format!("POST http://x{PATH}#c HTTP/1.1\r\nhost: x"),
        "POST * HTTP/1.1\r\nhost: x".to_owned(),
        "CONNECT x:443 HTTP/1.1\r\nhost: x:443".to_owned(),
    ] {
        refused(&gateway, &request(&line, length, &body), 400).await;
    }
    refused(&gateway, &request(&format!("CONNECT {PATH} HTTP/1.1\r\nhost: x"), length, &body), 405).await;
    assert_eq!(upstream.connections(), 0);
    for host in ["x:", "x:65535", "[::1]:8080", "[::1]", "127.0.0.1", ""] {
        let line = format!("POST {PATH} HTTP/1.1\r\nhost: {host}");
        let answer = gateway.ask(request(&line, length, &body)).await;
        assert_eq!(answer.status(), 200, "{host:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn refusal_of_a_head_has_the_format_of_its_path() {
    let (_upstream, gateway) = chat().await;
    let messages = said(&gateway, &request("POST /v1/messages HTTP/1.1\r\nhost: x:abc", "", "")).await;
    assert!(messages.contains(r#""type":"error""#), "{messages}");
    let generate = "POST http://x/v1beta/models/m:generateContent HTTP/1.1\r\nhost: x:abc";
    let generate = said(&gateway, &request(generate, "", "")).await;
    assert!(generate.contains(r#""status":"INVALID_ARGUMENT""#), "{generate}");
    let converse = "POST /model/m/converse HTTP/1.1\r\nhost: x";
    let converse = said(&gateway, &request(converse, "transfer-encoding: gzip, chunked", "0\r\n\r\n")).await;
    assert!(converse.starts_with("HTTP/1.1 501 "), "{converse}");
    assert!(converse.contains("x-amzn-errortype: "), "{converse}");
    let unread = said(&gateway, "POST\r\n\r\n").await;
    assert!(unread.contains(r#""type":"invalid_request_error""#), "{unread}");
}

#[tokio::test]
async fn connection_headers_are_one_list() {
    let (_upstream, gateway) = chat().await;
    for (headers, closes) in [
        ("connection: keep-alive\r\nconnection: close", true),
        ("connection: close\r\nconnection: keep-alive", true),
        ("Connection: te\r\nConnection: x, CLOSE", true),
        ("connection: keep-alive\r\nconnection: te", false),
    ] {
        let mut client = gateway.connect().await;
        let line = format!("POST {PATH} HTTP/1.1\r\nhost: x");
        let request =
            [request(&line, &format!("content-length: 100\r\n{headers}"), "").as_bytes(), &body_of(100)]
                .concat();
        let answer = client.ask(&request).await;
        assert_eq!(answer.status(), 200, "{headers:?}");
        assert_eq!(answer.get("connection") == Some("close"), closes, "{headers:?}");
        if closes {
            assert_eq!(client.closed().await, b"");
        } else {
            assert_eq!(client.ask(&request).await.status(), 200, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn chunk_framing_with_control_characters_is_refused() {
    let (upstream, gateway) = chat().await;
    let body = String::from_utf8(body_of(100)).unwrap();
    let line = format!("POST {PATH} HTTP/1.1\r\nhost: x");
    for framed in [
        format!("64;a\0b\r\n{body}\r\n0\r\n\r\n"),
        format!("64;a=\"\u{7f}\"\r\n{body}\r\n0\r\n\r\n"),
        format!("64 a\r\n{body}\r\n0\r\n\r\n"),
        format!("64\r\n{body}\r\n0;\u{1}\r\n\r\n"),
        format!("64\r\n{body}\r\n0\r\nx: \0\r\n\r\n"),
        format!("64\r\n{body}\r\n0\r\nno colon\r\n\r\n"),
        format!("64;{}\r\n{body}\r\n0\r\n\r\n", "e".repeat(100_000)),
        format!("64\r\n{body}\r\n0\r\n{}\r\n", "x: y\r\n".repeat(20_000)),
    ] {
        refused(&gateway, &request(&line, "transfer-encoding: chunked", &framed), 400).await;
    }
    assert_eq!(upstream.connections(), 0);
    for framed in [
        format!("64;a;b=c;d=\"e;f\"\r\n{body}\r\n0\r\nx: y\r\n\r\n"),
        format!("64  \r\n{body}\r\n000\r\n\r\n"),
        format!("64 ; a = b\r\n{body}\r\n0 ;x\r\n\r\n"),
    ] {
        let answer = gateway.ask(request(&line, "transfer-encoding: chunked", &framed)).await;
        assert_eq!((answer.status(), answer.text()), (200, &*Form::Chat.whole("gpt")), "{framed:?}");
    }
}
