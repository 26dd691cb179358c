//! HTTP/1 sessions with providers: what is written, what is read, and when a connection can be reused.

use bytes::Bytes;
use pingora::ErrorType;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1Session;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::support::{Call, NEVER, Recorded, h1, poll_once, post, received, soon, upstream};

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Reads the rest of a body.
async fn body(session: &mut HttpSession) -> pingora::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = soon(session.read_response_body()).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Returns whether the connection can be reused after this response has been read to its end.
async fn is_reusable(response: &str, respect: bool) -> bool {
    let (mut session, _far) = upstream(response).await;
    soon(session.read_response_header()).await.unwrap();
    let _ = timeout(NEVER, body(&mut session)).await;
    let HttpSession::H1(mut session) = session else { panic!("not HTTP/1") };
    if respect {
        session.respect_keepalive();
    }
    soon(session.reuse()).await.is_some()
}

/// A request head is written and flushed alone. `proxy::coalesce` holds it back until the body follows; if this fails,
/// it may be unnecessary.
#[tokio::test]
async fn request_head_is_flushed_before_the_body() {
    let (near, _far, calls) = Recorded::new();
    let mut session: HttpSession = HttpSession::H1(Http1Session::new(Box::new(near)));
    soon(session.write_request_header(post(4))).await.unwrap();
    let written = calls.take();
    assert!(matches!(written[..], [Call::Write(_), Call::Flush]), "{written:?}");
}

/// A body with a length is flushed when its last byte is written, and not before. `proxy::exchange` writes slices, and
/// announces exactly the length that it writes.
#[tokio::test]
async fn request_body_is_flushed_at_its_end() {
    let (near, _far, calls) = Recorded::new();
    let mut session: HttpSession = HttpSession::H1(Http1Session::new(Box::new(near)));
    soon(session.write_request_header(post(4))).await.unwrap();
    calls.take();
    soon(session.write_request_body(Bytes::from_static(b"bo"), false)).await.unwrap();
    assert_eq!(calls.take(), [Call::Write(2)]);
    soon(session.write_request_body(Bytes::from_static(b"dy"), true)).await.unwrap();
    assert_eq!(calls.take(), [Call::Write(2), Call::Flush]);
}

/// The head is written as it was built: nothing is added, and the names keep their order.
/// `proxy::upstream` builds the whole head, `Host` and `Content-Length` included.
#[tokio::test]
async fn request_head_is_written_as_built() {
    let (near, mut far) = tokio::io::duplex(4096);
    let mut session: HttpSession = HttpSession::H1(Http1Session::new(Box::new(near)));
    soon(session.write_request_header(post(4))).await.unwrap();
    let text = received(&mut far).to_lowercase();
    assert_eq!(text, "post /path http/1.1\r\nhost: upstream.example\r\ncontent-length: 4\r\n\r\n");
}

/// An interim response is returned like a final one, and the next call reads the next head, whether both came in one
/// read or not. There is no bound on their number. `proxy::interim` loops and counts.
#[tokio::test]
async fn interim_responses_are_returned_one_by_one() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    let (mut session, mut far) = upstream(interim.repeat(20)).await;
    for _ in 0..20 {
        soon(session.read_response_header()).await.unwrap();
        assert_eq!(session.response_header().unwrap().status, 103);
    }
    far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody").await.unwrap();
    soon(session.read_response_header()).await.unwrap();
    assert_eq!(session.response_header().unwrap().status, 200);
    assert_eq!(body(&mut session).await.unwrap(), b"body");
}

/// A read of a head can be dropped and repeated: what has arrived is kept. `proxy::exchange` drops it at a time-out of
/// a failed write and reads again.
#[tokio::test]
async fn head_read_is_cancel_safe() {
    let (mut session, mut far) = upstream("HTTP/1.1 200 OK\r\nconte").await;
    for _ in 0..3 {
        assert!(poll_once(session.read_response_header()).is_none());
    }
    far.write_all(b"nt-length: 0\r\n\r\n").await.unwrap();
    soon(session.read_response_header()).await.unwrap();
    assert!(session.response_header().unwrap().headers.contains_key("content-length"));
}

/// A read of a body can be dropped and repeated, inside the framing of a chunk too. `proxy::reader` polls once for more
/// and drops the read if there is nothing.
#[tokio::test]
async fn body_read_is_cancel_safe() {
    let (mut session, mut far) = upstream("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    soon(session.read_response_header()).await.unwrap();
    let mut read = Vec::new();
    for byte in b"4\r\nbody\r\n3\r\nand\r\n0\r\n\r\n" {
        far.write_all(&[*byte]).await.unwrap();
        while let Some(piece) = poll_once(session.read_response_body()) {
            match piece.unwrap() {
                Some(piece) => read.extend_from_slice(&piece),
                None => break,
            }
        }
    }
    assert_eq!(read, b"bodyand");
    assert!(session.response_done());
}

/// A chunked body with trailers yields an empty piece before them: an empty piece is not the end. `proxy::reader` skips
/// it.
#[tokio::test]
async fn body_has_an_empty_piece_before_trailers() {
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx: y\r\n\r\n";
    let (mut session, _far) = upstream(text).await;
    soon(session.read_response_header()).await.unwrap();
    let session = h1(&mut session);
    let mut pieces = Vec::new();
    while let Some(piece) = soon(session.read_body_ref()).await.unwrap() {
        pieces.push(piece.to_vec());
    }
    assert_eq!(pieces, [b"body".to_vec(), Vec::new()]);
}

/// A body that ends before its length or its last chunk is an error; one that is framed by the end of the connection
/// ends there. `proxy::reply` answers the first with 502.
#[tokio::test]
async fn body_that_ends_early_is_an_error() {
    for (head, complete) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody", false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n", false),
        ("HTTP/1.1 200 OK\r\n\r\nbody", true),
    ] {
        let (mut session, far) = upstream(head).await;
        soon(session.read_response_header()).await.unwrap();
        drop(far);
        let body = body(&mut session).await;
        assert_eq!(body.is_ok(), complete, "{head:?}");
    }
}

/// A connection that closes before the head gives an error whose retry depends on whether the connection was reused:
/// `retry` panics until `decide_reuse` was called. `proxy::exchange` calls it before `proxy::resend` decides.
#[tokio::test]
async fn head_of_a_closed_connection_can_be_retried_if_it_was_reused() {
    for reused in [true, false] {
        let (mut session, far) = upstream("").await;
        drop(far);
        let mut error = soon(session.read_response_header()).await.unwrap_err();
        assert_eq!(*error.etype(), ErrorType::ConnectionClosed);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| error.retry())).is_err());
        error.retry.decide_reuse(reused);
        assert_eq!(error.retry(), reused);
    }
}

/// A new session does not keep its connection: `reuse` closes it unless `respect_keepalive` was called.
/// `proxy::connection` calls it.
#[tokio::test]
async fn reuse_needs_respect_keepalive() {
    assert!(is_reusable(EMPTY, true).await);
    assert!(!is_reusable(EMPTY, false).await);
}

/// A connection is not reusable after a response that is incomplete, is followed by more bytes, ends with the
/// connection, asks to close, or is HTTP/1.0. `proxy::connection` leaves that check to Pingora.
#[tokio::test]
async fn reuse_is_refused_where_the_end_is_not_certain() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n",
        "HTTP/1.1 200 OK\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    ] {
        assert!(!is_reusable(text, true).await, "{text:?}");
    }
    assert!(
        is_reusable("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", true)
            .await
    );
}

/// `reuse` of a connection that stays open is ready at the first poll, and returns the stream that the session was made
/// with. `proxy::connection` polls it once and drops it otherwise, which closes the connection.
#[tokio::test]
async fn reuse_is_ready_at_once() {
    let (near, mut far, _calls) = Recorded::new();
    far.write_all(EMPTY.as_bytes()).await.unwrap();
    let mut session: HttpSession = HttpSession::H1(Http1Session::new(Box::new(near)));
    soon(session.write_request_header(post(0))).await.unwrap();
    soon(session.read_response_header()).await.unwrap();
    assert!(body(&mut session).await.unwrap().is_empty());
    let HttpSession::H1(mut session) = session else { panic!("not HTTP/1") };
    session.respect_keepalive();
    let stream = poll_once(session.reuse()).unwrap().unwrap();
    assert!((*stream).as_any().is::<Recorded>());
}

/// A session waits for ever unless it is given a time-out, and there is none for the whole exchange. `proxy::exchange`
/// has timers of its own.
#[tokio::test]
async fn session_has_no_time_outs() {
    let (mut session, _far) = upstream("").await;
    let session = h1(&mut session);
    assert_eq!((session.read_timeout, session.write_timeout), (None, None));
}
