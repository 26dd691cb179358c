use std::future::Future;
use std::task::Waker;

use tokio::io::DuplexStream;

use super::*;

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Returns an exchange whose provider has sent this text, and the provider's end of the connection.
async fn exchange(text: &str) -> (Http1Exchange, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(text.as_bytes()).await.unwrap();
    (Http1Exchange::new(Box::new(near)), far)
}

fn post(length: usize) -> Box<RequestHeader> {
    let mut head = RequestHeader::build_no_case("POST", b"/v1/x?y=1", None).unwrap();
    head.insert_header("host", "provider.example").unwrap();
    head.insert_header("content-length", length.to_string()).unwrap();
    Box::new(head)
}

/// Reads the rest of the body, and how it ends.
async fn body(exchange: &mut Http1Exchange) -> Result<Vec<u8>> {
    let mut body = BytesMut::new();
    while exchange.read_body(&mut body).await? != BodyRead::End {}
    Ok(body.to_vec())
}

/// Polls a future once, and drops it.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Whether the connection is reusable after this response, read to its end.
async fn is_reusable(text: &str) -> bool {
    let (mut exchange, far) = exchange(text).await;
    drop(far);
    exchange.read_head().await.unwrap();
    let _ = body(&mut exchange).await;
    exchange.into_reusable().is_some()
}

#[tokio::test]
async fn request_is_written_as_it_was_built_at_every_width() {
    let text = b"POST /v1/x?y=1 HTTP/1.1\r\nhost: provider.example\r\ncontent-length: 300007\r\n\r\n";
    let body: Vec<u8> = (0..300_007u32).map(|n| n.to_le_bytes()[0]).collect();
    for (width, pieces) in
        [(7, vec![300_007]), (4_096, vec![1, 6, 100_000, 200_000]), (1 << 20, vec![300_000, 7])]
    {
        let (near, mut far) = tokio::io::duplex(width);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            all
        });
        let mut rest = Bytes::from(body.clone());
        let pieces = pieces.into_iter().map(|length| rest.split_to(length)).collect::<Vec<_>>();
        let mut exchange = Http1Exchange::new(Box::new(near));
        exchange.write_request(post(body.len()), pieces).await.unwrap();
        drop(exchange);
        let all = String::from_utf8_lossy(&reading.await.unwrap()).to_lowercase();
        let expected = [&text.to_ascii_lowercase()[..], &body].concat();
        assert!(all == String::from_utf8_lossy(&expected).to_lowercase(), "{width}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_the_provider_does_not_read_times_out() {
    let (near, _far) = tokio::io::duplex(1);
    let mut exchange = Http1Exchange::new(Box::new(near));
    exchange.set_write_timeout(Duration::from_secs(30));
    let error = exchange.write_request(post(1), [Bytes::from_static(b"x")]).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::WriteTimedout);
}

#[tokio::test]
async fn interim_heads_are_read_one_by_one() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    let (mut exchange, mut far) = exchange(&interim.repeat(3)).await;
    for _ in 0..3 {
        exchange.read_head().await.unwrap();
        assert_eq!(exchange.head().unwrap().status, 103);
    }
    far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody").await.unwrap();
    exchange.read_head().await.unwrap();
    assert_eq!(exchange.take_head().unwrap().status, 200);
    assert_eq!(body(&mut exchange).await.unwrap(), b"body");
}

#[tokio::test]
async fn head_and_body_are_cancel_safe_at_every_byte() {
    let (mut exchange, mut far) = exchange("").await;
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for byte in head.bytes() {
        assert!(poll_once(exchange.read_head()).is_none());
        far.write_all(&[byte]).await.unwrap();
    }
    exchange.read_head().await.unwrap();
    let mut out = BytesMut::new();
    for byte in b"4\r\nbody\r\n3\r\nand\r\n0\r\nx: y\r\n\r\n" {
        assert!(!exchange.is_complete());
        far.write_all(&[*byte]).await.unwrap();
        while let Some(read) = poll_once(exchange.read_body(&mut out)) {
            if read.unwrap() == BodyRead::End {
                break;
            }
        }
    }
    assert_eq!(&out[..], b"bodyand");
    assert!(exchange.is_complete());
}

#[tokio::test]
async fn long_body_is_read_to_its_place() {
    let long: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
    let (near, mut far) = tokio::io::duplex(100_000);
    let sent = long.clone();
    let writing = tokio::spawn(async move {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", sent.len());
        far.write_all(head.as_bytes()).await.unwrap();
        far.write_all(&sent).await.unwrap();
        far.write_all(b"HTTP/1.1").await.unwrap();
        far
    });
    let mut exchange = Http1Exchange::new(Box::new(near));
    exchange.read_head().await.unwrap();
    assert!(body(&mut exchange).await.unwrap() == long);
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn body_that_ends_early_is_an_error() {
    for (text, complete) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\nbody", false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n", false),
        ("HTTP/1.1 200 OK\r\n\r\nbody", true),
    ] {
        let (mut exchange, far) = exchange(text).await;
        drop(far);
        exchange.read_head().await.unwrap();
        let read = body(&mut exchange).await.map_err(|error| error.etype().clone());
        let expected = if complete { Ok(b"body".to_vec()) } else { Err(ErrorType::ConnectionClosed) };
        assert_eq!(read, expected, "{text:?}");
    }
    let (mut exchange, _far) = exchange("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").await;
    exchange.read_head().await.unwrap();
    assert_eq!(*body(&mut exchange).await.unwrap_err().etype(), INVALID_CHUNK);
}

#[tokio::test]
async fn head_of_a_closed_connection_can_be_requested_again_if_it_was_reused() {
    for (text, reused) in [("", true), ("", false), ("HTTP/1.1 200", true)] {
        let (mut exchange, far) = exchange(text).await;
        drop(far);
        let mut error = exchange.read_head().await.unwrap_err();
        assert_eq!(*error.etype(), ErrorType::ConnectionClosed);
        error.retry.decide_reuse(reused);
        assert_eq!(error.retry(), reused);
        assert_eq!(exchange.has_response(), !text.is_empty());
    }
}

#[tokio::test]
async fn connection_is_reused_only_where_the_end_is_certain() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 204 No Content\r\n\r\nx",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nx",
        "HTTP/1.1 200 OK\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ] {
        assert!(!is_reusable(text).await, "{text:?}");
    }
    for text in [EMPTY, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"] {
        assert!(is_reusable(text).await, "{text:?}");
    }
    // Not read to its end.
    let (mut exchange, _far) = exchange(EMPTY).await;
    assert!(exchange.read_head().await.is_ok());
    assert!(exchange.into_reusable().is_some());
    let (exchange, _far) = self::exchange("").await;
    assert!(exchange.into_reusable().is_none());
}

#[tokio::test]
async fn connection_that_the_request_closes_is_not_reused() {
    let (mut exchange, _far) = exchange(EMPTY).await;
    let mut head = post(0);
    head.insert_header("connection", "close").unwrap();
    exchange.write_request(head, Vec::new()).await.unwrap();
    exchange.read_head().await.unwrap();
    assert!(exchange.into_reusable().is_none());
}

#[tokio::test]
async fn response_to_head_has_no_body() {
    let (mut exchange, _far) = exchange("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await;
    let head = RequestHeader::build_no_case("HEAD", b"/", None).unwrap();
    exchange.write_request(Box::new(head), Vec::new()).await.unwrap();
    exchange.read_head().await.unwrap();
    assert!(exchange.is_complete());
    assert!(exchange.into_reusable().is_some());
}
