//! A client's connection that gives a request's head only so much time, and lets what belongs together leave in one
//! write.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, BytesMut};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown as CloseStream, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::chunks::{Chunks, Misframed};

/// How much of a client's first bytes is read at once: most heads, and often the body.
const FIRST_READ: usize = 3 * 1024;

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Downstream connection whose reads fail once a request head takes longer than `limits.header_timeout`.
pub(super) struct HeaderTimeoutStream {
    inner: Stream,
    timeout: Duration,
    /// A head is awaited or being read.
    in_head: AtomicBool,
    /// What is written stays in the buffer until something follows it.
    corked: AtomicBool,
    /// Runs from the first byte of a head until the head is complete, if that needs more than one read.
    deadline: Option<Pin<Box<Sleep>>>,
    begun: bool,
    /// Framing of the body that is being read, where it comes in chunks.
    chunks: Option<Box<Chunks>>,
    /// What was read to find out the protocol, to be read again.
    again: BytesMut,
}

impl HeaderTimeoutStream {
    pub(super) fn new(inner: Stream, timeout: Duration) -> Self {
        HeaderTimeoutStream {
            inner,
            timeout,
            in_head: AtomicBool::new(true),
            corked: AtomicBool::new(false),
            deadline: None,
            begun: false,
            chunks: None,
            again: BytesMut::new(),
        }
    }

    /// The guard of a session's connection.
    pub(super) fn of(stream: &Stream) -> Option<&HeaderTimeoutStream> {
        (**stream).as_any().downcast_ref::<HeaderTimeoutStream>()
    }

    /// Whether the client begins to speak HTTP/2. What was read on the way is read again, or can be taken with
    /// [`HeaderTimeoutStream::take_first`]. A client that says nothing, or closes, speaks HTTP/1.
    ///
    /// # Errors
    /// HTTP/2 was agreed on, but nothing came that begins so.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        let agreed = match self.inner.selected_alpn_proto() {
            Some(ALPN::H2) => true,
            Some(_) => return Ok(false),
            None if self.inner.get_ssl_digest().is_some() => return Ok(false),
            None => false,
        };
        let mut first = BytesMut::with_capacity(FIRST_READ);
        // Not all of the preface is waited for: the shortest HTTP/1 head is shorter than it.
        while H2_PREFACE.starts_with(&first) {
            if !matches!(self.read_buf(&mut first).await, Ok(1..)) {
                break;
            }
            if first.starts_with(H2_PREFACE) {
                self.again = first;
                return Ok(true);
            }
        }
        self.again = first;
        if agreed { Err(io::ErrorKind::InvalidData.into()) } else { Ok(false) }
    }

    /// What was read to find out the protocol.
    pub(super) fn take_first(&mut self) -> BytesMut {
        std::mem::take(&mut self.again)
    }

    /// A head is read next, of which `begun` says whether some bytes have come already.
    pub(super) fn begin_head(&mut self, begun: bool) {
        self.await_head();
        self.begun |= begun;
        self.chunks = None;
    }

    /// Checks the framing of a chunked body from here on; `first` are the bytes of it that came with the head.
    ///
    /// # Errors
    /// These are framed wrongly.
    pub(super) fn watch_chunks(&mut self, first: &[u8]) -> Result<(), Misframed> {
        let mut chunks = Box::<Chunks>::default();
        chunks.feed(first)?;
        self.chunks = Some(chunks);
        Ok(())
    }

    /// The head has come; what is read now is a body and has limits of its own.
    pub(super) fn head_complete(&self) {
        self.in_head.store(false, Ordering::Relaxed);
    }

    /// Holds back what is written from now on: more follows at once, and both are to leave in one write. What is
    /// larger than the connection's buffer leaves all the same.
    pub(super) fn cork(&self) {
        self.corked.store(true, Ordering::Relaxed);
    }

    /// What is held back leaves with whatever is flushed next.
    pub(super) fn uncork(&self) {
        self.corked.store(false, Ordering::Relaxed);
    }

    /// The next bytes are another head.
    pub(super) fn await_head(&self) {
        self.in_head.store(true, Ordering::Relaxed);
    }

    /// What is read of a head, against its deadline.
    fn poll_head(
        &mut self,
        cx: &mut TaskContext<'_>,
        polled: Poll<io::Result<()>>,
        grown: bool,
    ) -> Poll<io::Result<()>> {
        match polled {
            Poll::Ready(Ok(())) => {
                self.begun |= grown;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(error) => Poll::Ready(error),
            // Before the first byte the connection is merely idle, which is the keep-alive's business.
            Poll::Pending if !self.begun => Poll::Pending,
            Poll::Pending => {
                let timeout = self.timeout;
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(deadline.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncRead for HeaderTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.again.is_empty() {
            let length = self.again.len().min(buf.remaining());
            buf.put_slice(self.again.get(..length).unwrap_or_default());
            self.again.advance(length);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if self.in_head.load(Ordering::Relaxed) {
            let grown = buf.filled().len() > before;
            return self.poll_head(cx, polled, grown);
        }
        if self.begun {
            self.begun = false;
            self.deadline = None;
        }
        if let Some(chunks) = &mut self.chunks
            && matches!(polled, Poll::Ready(Ok(())))
            && let Err(misframed) = chunks.feed(buf.filled().get(before..).unwrap_or_default())
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, misframed)));
        }
        polled
    }
}

impl AsyncWrite for HeaderTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if self.corked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl CloseStream for HeaderTimeoutStream {
    async fn shutdown(&mut self) {
        CloseStream::shutdown(&mut *self.inner).await;
    }
}

impl UniqueID for HeaderTimeoutStream {
    fn id(&self) -> i32 {
        self.inner.id()
    }
}

impl Ssl for HeaderTimeoutStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for HeaderTimeoutStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for HeaderTimeoutStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for HeaderTimeoutStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

#[async_trait]
impl Peek for HeaderTimeoutStream {
    // Pingora looks for the preface of HTTP/2 with this.
    async fn try_peek(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        self.read_exact(buf).await?;
        let rest = std::mem::replace(&mut self.again, BytesMut::from(&*buf));
        self.again.unsplit(rest);
        Ok(true)
    }
}

impl fmt::Debug for HeaderTimeoutStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
