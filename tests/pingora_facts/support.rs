//! Streams in memory, sessions on them, and bounded waiting.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

/// Maximum duration of any wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time after which something counts as not happening. Only tests that expect nothing to happen wait for so long.
pub(crate) const NEVER: Duration = Duration::from_millis(300);
/// Capacity of a stream in memory: everything that a test writes fits.
const CAPACITY: usize = 4 << 20;

/// Awaits a future, and panics after `PATIENCE`.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("this did not happen in time")
}

/// Polls a future once. `None` if it is pending; it is dropped then.
pub(crate) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Returns a server session on these bytes of a client, and the client's side.
pub(crate) async fn server(bytes: impl AsRef<[u8]>) -> (ServerSession, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(CAPACITY);
    client.write_all(bytes.as_ref()).await.unwrap();
    (ServerSession::new_http1(Box::new(server)), client)
}

/// Returns a server session that has read this head.
pub(crate) async fn request(bytes: impl AsRef<[u8]>) -> (ServerSession, DuplexStream) {
    let (mut session, client) = server(bytes).await;
    assert!(soon(session.read_request()).await.unwrap());
    (session, client)
}

/// Reads the rest of a request body.
pub(crate) async fn read_body(session: &mut ServerSession) -> pingora::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = soon(session.read_request_body()).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Returns a response head without headers.
pub(crate) fn head(status: u16) -> Box<ResponseHeader> {
    Box::new(ResponseHeader::build(StatusCode::from_u16(status).unwrap(), None).unwrap())
}

/// Reads until the end of a head, byte by byte, so that what follows it stays unread.
pub(crate) async fn read_head(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(io.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads what has arrived, without waiting for more.
pub(crate) fn received(io: &mut DuplexStream) -> String {
    let mut all = vec![0; CAPACITY];
    let length = match poll_once(io.read(&mut all)) {
        Some(read) => read.unwrap(),
        None => 0,
    };
    all.truncate(length);
    String::from_utf8(all).unwrap()
}

/// Call that a session made to its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write(usize),
    Flush,
}

/// Calls of a session, recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    /// Returns the calls since the last time.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Stream that records writes and flushes.
#[derive(Debug)]
pub(crate) struct Recorded {
    inner: DuplexStream,
    calls: Calls,
    /// Whether Pingora may look ahead. The preface of HTTP/2 is taken to have been seen.
    pub(crate) peeks: Option<Vec<u8>>,
}

impl Recorded {
    /// Creates a stream with the other side and the record.
    pub(crate) fn new() -> (Recorded, DuplexStream, Calls) {
        let (near, far) = tokio::io::duplex(CAPACITY);
        let calls = Calls::default();
        (Recorded { inner: near, calls: calls.clone(), peeks: None }, far, calls)
    }
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.calls.0.lock().unwrap().push(Call::Write(buf.len()));
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.calls.0.lock().unwrap().push(Call::Write(bufs.iter().map(|buf| buf.len()).sum()));
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.0.lock().unwrap().push(Call::Flush);
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Recorded {
    async fn shutdown(&mut self) {}
}

impl UniqueID for Recorded {
    fn id(&self) -> i32 {
        0
    }
}

impl Ssl for Recorded {}

impl GetTimingDigest for Recorded {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Recorded {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Recorded {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[async_trait]
impl Peek for Recorded {
    async fn try_peek(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        let Some(seen) = &self.peeks else { return Ok(false) };
        buf.copy_from_slice(&seen[..buf.len()]);
        Ok(true)
    }
}
