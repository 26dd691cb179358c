//! The front: connections, how many there may be, and how long a client may take to say what it wants.
//!
//! Pingora bounds neither the number of connections nor the time in which a request's head must arrive. Both are
//! done here, one layer below: every connection is counted, and wrapped in a stream that knows whether a head is being
//! read and since when.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown as CloseStream, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID,
};
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use super::Gateway;
use crate::metrics::Metrics;

/// What a connection beyond the limit is told before it is closed. No format is known at that point.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 124\r\n\
retry-after: 1\r\nconnection: close\r\n\r\n\
{\"error\":{\"message\":\"Too many connections.\",\"type\":\"service_unavailable\",\"param\":null,\"code\":\"server_is_overloaded\"}}         ";

/// Pingora's application behind the limits.
pub(super) struct Front {
    proxy: Arc<HttpProxy<Gateway>>,
    permits: Arc<Semaphore>,
    header_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Front {
    pub(super) fn new(
        proxy: HttpProxy<Gateway>,
        connections: usize,
        header_timeout: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Front {
            proxy: Arc::new(proxy),
            permits: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            header_timeout,
            metrics,
        }
    }
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(self: &Arc<Self>, mut session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let Ok(_permit) = self.permits.try_acquire() else {
            self.metrics.connections_refused.inc();
            let _ = tokio::time::timeout(Duration::from_secs(1), session.write_all(FULL)).await;
            let _ = session.flush().await;
            let _ = session.shutdown().await;
            return None;
        };
        self.metrics.connections.inc();
        let stream: Stream = Box::new(Guarded::new(session, self.header_timeout));
        let again = self.proxy.process_new(stream, shutdown).await;
        self.metrics.connections.dec();
        again
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}

/// A connection that gives a request's head only so much time, from its first byte on.
pub(super) struct Guarded {
    inner: Stream,
    timeout: Duration,
    /// A head is awaited or being read.
    in_head: AtomicBool,
    /// What is written stays in the buffer until something follows it.
    corked: AtomicBool,
    /// Runs from the first byte of a head until the head is complete, if that needs more than one read.
    deadline: Option<Pin<Box<Sleep>>>,
    begun: bool,
}

impl Guarded {
    fn new(inner: Stream, timeout: Duration) -> Self {
        Guarded {
            inner,
            timeout,
            in_head: AtomicBool::new(true),
            corked: AtomicBool::new(false),
            deadline: None,
            begun: false,
        }
    }

    /// The guard of a session's connection.
    pub(super) fn of(stream: &Stream) -> Option<&Guarded> {
        (**stream).as_any().downcast_ref::<Guarded>()
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
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if !self.in_head.load(Ordering::Relaxed) {
            self.begun = false;
            self.deadline = None;
            return polled;
        }
        match polled {
            Poll::Ready(Ok(())) => {
                self.begun |= buf.filled().len() > before;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(error) => Poll::Ready(error),
            // Before the first byte the connection is merely idle, which is the keep-alive's business.
            Poll::Pending if !self.begun => Poll::Pending,
            Poll::Pending => {
                let timeout = self.timeout;
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                match deadline.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl AsyncWrite for Guarded {
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
impl CloseStream for Guarded {
    async fn shutdown(&mut self) {
        CloseStream::shutdown(&mut *self.inner).await;
    }
}

impl UniqueID for Guarded {
    fn id(&self) -> i32 {
        self.inner.id()
    }
}

impl Ssl for Guarded {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Guarded {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for Guarded {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Guarded {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

#[async_trait]
impl Peek for Guarded {
    async fn try_peek(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(buf).await
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
