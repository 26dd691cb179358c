//! Bodies of clients' HTTP/1 requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, timeout};

use super::support::{NEVER, head, read_body, received, request, soon};

/// The retry buffer holds 64 KiB; a larger body is dropped from it, and nothing enlarges it. This is why the exchange
/// is driven by a loop of the gateway (docs/decisions/002). If this fails, read that decision again.
#[tokio::test]
async fn retry_buffer_ends_at_64_kib() {
    for (length, buffered) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let (mut session, _client) = request(head + &"x".repeat(length)).await;
        session.enable_retry_buffering();
        assert_eq!(read_body(&mut session).await.unwrap().len(), length);
        assert_eq!(session.get_retry_buffer().map(|body| body.len()), buffered.then_some(length));
        assert_eq!(session.retry_buffer_truncated(), !buffered);
    }
}

/// Reading a body does not send "100 Continue"; `write_continue_response` does. `proxy::request` calls it.
#[tokio::test]
async fn continue_is_sent_only_on_request() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let (mut session, mut client) = request(text).await;
    assert!(timeout(NEVER, session.read_request_body()).await.is_err());
    assert_eq!(received(&mut client), "");
    soon(session.write_continue_response()).await.unwrap();
    assert_eq!(received(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
}

/// What is written before the end of the request body switches keep-alive off, "100 Continue" included, and an interim
/// response counts as written. `proxy::request` restores keep-alive, `proxy::reply` ignores interim responses.
#[tokio::test]
async fn continue_switches_keepalive_off_and_counts_as_written() {
    let (mut session, _client) = request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await;
    session.set_keepalive(Some(5));
    soon(session.write_continue_response()).await.unwrap();
    assert_eq!(session.get_keepalive(), None);
    assert_eq!(session.response_written().unwrap().status, 100);
    soon(session.write_response_header(head(200))).await.unwrap();
    assert_eq!(session.response_written().unwrap().status, 200);
}

/// A line feed inside a chunk extension is skipped, where other parsers end the line. `proxy::chunks` rejects it first;
/// if this fails, that check may be simplified.
#[tokio::test]
async fn chunk_extension_with_a_line_feed_is_accepted() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n";
    let (mut session, _client) = request(text).await;
    assert_eq!(read_body(&mut session).await.unwrap(), b"hello");
}

/// Framing faults have these error names. `proxy::request` answers them with 400, and takes any other error for a
/// client that is gone.
#[tokio::test]
async fn chunk_faults_have_known_names() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, expected) in [
        ("zz\r\n", "InvalidChunk"),
        ("5\r\nhello0\r\n\r\n", "InvalidChunk"),
        ("0\r\nx: y\rz", "InvalidTrailerEnd"),
    ] {
        let (mut session, _client) = request(head.to_owned() + body).await;
        assert_eq!(read_body(&mut session).await.unwrap_err().etype().as_str(), expected, "{body:?}");
    }
}

/// A body that ends early is none of these.
#[tokio::test]
async fn body_that_ends_early_is_not_misframed() {
    for text in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi",
    ] {
        let (mut session, client) = request(text).await;
        drop(client);
        assert_eq!(
            read_body(&mut session).await.unwrap_err().etype().as_str(),
            "ConnectionClosed",
            "{text:?}"
        );
    }
}

/// The read time-out of HTTP/1 runs per read and is named `ReadTimedout`. `proxy::request` answers it with 408.
#[tokio::test]
async fn body_time_out_has_a_known_name() {
    let (mut session, _client) = request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhi").await;
    session.set_read_timeout(Some(Duration::from_millis(50)));
    assert_eq!(soon(session.read_request_body()).await.unwrap().unwrap()[..], b"hi"[..]);
    assert_eq!(soon(session.read_request_body()).await.unwrap_err().etype().as_str(), "ReadTimedout");
}

/// Fault of a stream that checks what it reads.
#[derive(Debug, thiserror::Error)]
#[error("fault")]
struct Fault;

/// Stream that yields a head, and then fails.
#[derive(Debug)]
struct Faulty(&'static [u8]);

impl AsyncRead for Faulty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, Fault)));
        }
        buf.put_slice(self.0);
        self.0 = b"";
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Faulty {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Shutdown for Faulty {
    async fn shutdown(&mut self) {}
}

impl UniqueID for Faulty {
    fn id(&self) -> i32 {
        0
    }
}

impl Ssl for Faulty {}
impl Peek for Faulty {}

impl GetTimingDigest for Faulty {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Faulty {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Faulty {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

/// An error of the stream is the root cause of the error of the body read. `proxy::header_timeout` reports false
/// framing in this way, and `proxy::request` recognizes it.
#[tokio::test]
async fn body_error_has_the_error_of_the_stream_as_root_cause() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut session = ServerSession::new_http1(Box::new(Faulty(head)));
    assert!(soon(session.read_request()).await.unwrap());
    let error = read_body(&mut session).await.unwrap_err();
    let cause = error.root_cause().downcast_ref::<io::Error>().unwrap();
    assert!(cause.get_ref().unwrap().is::<Fault>());
}
