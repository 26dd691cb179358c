//! HTTP/1 connections of clients: heads, keep-alive, pipelining and responses.

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::date::get_cached_date;
use pingora::{ErrorType, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Duration, sleep, timeout};

use super::support::{Call, NEVER, Recorded, head, poll_once, read_head, received, request, server, soon};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn read(head: &str) -> Result<bool> {
    let (mut session, _client) = server(head).await;
    soon(session.read_request()).await
}

/// A head may have 1 MiB and 256 headers, not more. `config::settings` permits `limits.head` up to that size, and
/// `proxy::http1` answers the error [`ErrorType::InvalidHTTPHeader`] with 400.
#[tokio::test]
async fn head_size_is_limited_to_one_mebibyte_and_256_headers() {
    let padded = |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(length));
    assert!(read(&padded(1_048_000)).await.unwrap());
    let error = read(&padded(1_100_000)).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::InvalidHTTPHeader);
    let many = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(count - 1));
    assert!(read(&many(256)).await.unwrap());
    assert_eq!(*read(&many(257)).await.unwrap_err().etype(), ErrorType::InvalidHTTPHeader);
}

/// The parser accepts bare line feeds. `proxy::head` rejects them first; if this fails, that scan may be simplified.
#[tokio::test]
async fn head_with_bare_line_feeds_is_accepted() {
    assert!(read("GET / HTTP/1.1\nHost: a\n\n").await.unwrap());
}

/// A target in absolute form is rejected if its authority is not that of `Host`, although RFC 9112 (section 3.2.2) has
/// `Host` ignored. `proxy::head` rewrites it to origin form.
#[tokio::test]
async fn head_in_absolute_form_with_another_host_is_rejected() {
    assert!(read("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap());
    let error = read("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n").await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::InvalidHTTPHeader);
}

/// The time-out of a head runs per read: a client that sends a byte now and then is never cut off.
/// `proxy::header_timeout` bounds the whole head.
#[tokio::test]
async fn head_has_no_deadline() {
    let (mut session, mut client) = server("GET / HTTP/1.1\r\n").await;
    session.set_keepalive(Some(2));
    let drip = async {
        for _ in 0..26 {
            client.write_all(b"a: b\r\n").await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        client.write_all(b"Host: a\r\n\r\n").await.unwrap();
    };
    let (read, ()) = tokio::join!(session.read_request(), drip);
    assert!(read.unwrap());
}

/// A client that closes before its first byte is no error, one that closes inside a head is one that is not
/// [`ErrorType::InvalidHTTPHeader`]. `proxy::http1` answers neither.
#[tokio::test]
async fn head_that_ends_early_is_not_invalid() {
    let (mut session, client) = server("").await;
    drop(client);
    assert!(!soon(session.read_request()).await.unwrap());
    let (mut session, client) = server("GET / HT").await;
    drop(client);
    assert_eq!(*soon(session.read_request()).await.unwrap_err().etype(), ErrorType::ConnectionClosed);
}

/// Reading a head sets keep-alive anew: without a limit (0) for HTTP/1.1, and `None` for HTTP/1.0, `Connection: close`,
/// and a head with both lengths. `proxy::request` sets its own value after each head, and takes `None` as a reason to
/// close.
#[tokio::test]
async fn keepalive_is_taken_from_each_head() {
    for (text, expected) in [
        (GET, Some(0)),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", None),
        ("GET / HTTP/1.0\r\n\r\n", None),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            None,
        ),
    ] {
        let (mut session, _client) = server(text).await;
        session.set_keepalive(Some(7));
        assert!(soon(session.read_request()).await.unwrap());
        assert_eq!(session.get_keepalive(), expected, "{text:?}");
    }
}

/// A head with both lengths loses `Content-Length`: the body is chunked. `proxy::request` reads its limit from
/// `Content-Length` and must not see the false one.
#[tokio::test]
async fn head_with_two_lengths_loses_content_length() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (session, _client) = request(text).await;
    assert!(!session.req_header().headers.contains_key("content-length"));
}

/// A response to an HTTP/1.1 request carries `Date`, and `Connection` as keep-alive was set. `proxy::reply` adds
/// neither, and `proxy::http1` adds both to the one response that it writes without a session.
#[tokio::test]
async fn response_head_gets_date_and_connection() {
    for (keep, expected) in [(Some(5), "keep-alive"), (None, "close")] {
        let (mut session, mut client) = request(GET).await;
        session.set_keepalive(keep);
        let mut head = head(200);
        head.insert_header("content-length", 0).unwrap();
        soon(session.write_response_header(head)).await.unwrap();
        let text = received(&mut client).to_lowercase();
        assert!(text.contains("\r\ndate: "), "{text}");
        assert!(text.contains(&format!("\r\nconnection: {expected}\r\n")), "{text}");
    }
    assert_eq!(get_cached_date().to_str().unwrap().len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
}

/// A response with neither `Content-Length` nor `Transfer-Encoding` ends with the connection: Pingora does not add
/// chunks. `proxy::response` and `proxy::early_response` set `Transfer-Encoding: chunked` for HTTP/1.1.
#[tokio::test]
async fn response_without_framing_ends_with_the_connection() {
    let (mut session, mut client) = request(GET).await;
    session.set_keepalive(Some(5));
    soon(session.write_response_header(head(200))).await.unwrap();
    soon(session.write_response_body(Bytes::from_static(b"text"), true)).await.unwrap();
    let text = received(&mut client);
    assert!(text.ends_with("\r\n\r\ntext"), "{text:?}");
    assert_eq!(session.get_keepalive(), None);
    assert!(soon(session.finish()).await.unwrap().is_none());
}

/// An empty piece of a chunked body is not written unless it ends the body: it would be the last chunk.
/// `proxy::answer` passes pieces on without a check.
#[tokio::test]
async fn response_empty_piece_does_not_end_a_chunked_body() {
    let (mut session, mut client) = request(GET).await;
    let mut head = head(200);
    head.insert_header("transfer-encoding", "chunked").unwrap();
    soon(session.write_response_header(head)).await.unwrap();
    read_head(&mut client).await;
    soon(session.write_response_body(Bytes::new(), false)).await.unwrap();
    assert_eq!(received(&mut client), "");
    soon(session.write_response_body(Bytes::from_static(b"a"), false)).await.unwrap();
    soon(session.write_response_body(Bytes::new(), true)).await.unwrap();
    assert_eq!(received(&mut client), "1\r\na\r\n0\r\n\r\n");
}

/// The head of a stream is written and flushed alone, then its first chunk, then the last one: three writes to the
/// stream, each flushed. `proxy::answer` corks the connection around them, which saves packets only while that is so.
#[tokio::test]
async fn response_head_and_chunks_are_separate_writes() {
    let (near, mut far, calls) = Recorded::new();
    far.write_all(GET.as_bytes()).await.unwrap();
    let mut session = ServerSession::new_http1(Box::new(near));
    assert!(soon(session.read_request()).await.unwrap());
    let mut stream = head(200);
    stream.insert_header("transfer-encoding", "chunked").unwrap();
    soon(session.write_response_header(stream)).await.unwrap();
    let written = calls.take();
    assert!(matches!(written[..], [Call::Write(_), Call::Flush]), "{written:?}");
    soon(session.write_response_body(Bytes::from_static(b"text"), false)).await.unwrap();
    let written = calls.take();
    assert_eq!(written.last(), Some(&Call::Flush), "{written:?}");
    soon(session.write_response_body(Bytes::new(), true)).await.unwrap();
    assert_eq!(calls.take().last(), Some(&Call::Flush));
}

/// A head with `Content-Length` is not flushed before its body. `proxy::server` gives connections a write buffer in
/// which such a head waits, so that a JSON response leaves in one write.
#[tokio::test]
async fn response_head_with_a_length_is_not_flushed() {
    let (near, mut far, calls) = Recorded::new();
    far.write_all(GET.as_bytes()).await.unwrap();
    let mut session = ServerSession::new_http1(Box::new(near));
    assert!(soon(session.read_request()).await.unwrap());
    let mut whole = head(200);
    whole.insert_header("content-length", 4).unwrap();
    soon(session.write_response_header(whole)).await.unwrap();
    assert!(!calls.take().contains(&Call::Flush));
    soon(session.write_response_body(Bytes::from_static(b"text"), true)).await.unwrap();
    assert_eq!(calls.take().last(), Some(&Call::Flush));
}

/// Between the end of a request and the end of its response, `read_body_or_idle(true)` returns only when the client
/// closes. `proxy::exchange` takes its return for a disconnect.
#[tokio::test]
async fn idle_read_returns_at_the_end_of_the_connection_only() {
    let (mut session, client) = request(GET).await;
    session.set_pipelining_enabled(true);
    assert!(timeout(NEVER, session.read_body_or_idle(true)).await.is_err());
    drop(client);
    let error = soon(session.read_body_or_idle(true)).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::ConnectionClosed);
}

/// A request that follows in the same read is in the bytes that `finish` returns.
#[tokio::test]
async fn pipelined_request_of_the_same_read_is_returned() {
    let (mut session, _client) = request(format!("{GET}{GET}")).await;
    session.set_keepalive(Some(5));
    session.set_pipelining_enabled(true);
    assert!(poll_once(session.read_body_or_idle(true)).is_none());
    let mut head = head(200);
    head.insert_header("content-length", 0).unwrap();
    soon(session.write_response_header(head)).await.unwrap();
    soon(session.write_response_body(Bytes::new(), true)).await.unwrap();
    let (_, prefix) = soon(session.finish()).await.unwrap().unwrap().into_parts();
    assert_eq!(prefix.unwrap()[..], *GET.as_bytes());
}

/// Without pipelining, the next request ends the connection: it is an error for an idle read, and it is dropped by
/// `finish`. `proxy::request` enables pipelining for that reason.
#[tokio::test]
async fn pipelined_request_is_lost_by_default() {
    let (mut session, mut client) = request(GET).await;
    client.write_all(GET.as_bytes()).await.unwrap();
    let error = soon(session.read_body_or_idle(true)).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::ConnectError);
    let (mut session, _client) = request(format!("{GET}{GET}")).await;
    session.set_keepalive(Some(5));
    let mut head = head(200);
    head.insert_header("content-length", 0).unwrap();
    soon(session.write_response_header(head)).await.unwrap();
    soon(session.write_response_body(Bytes::new(), true)).await.unwrap();
    assert!(soon(session.finish()).await.unwrap().is_none());
}
