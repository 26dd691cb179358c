//! Write coalescing: an upstream connection that holds a request head back until its body follows, so that both leave
//! in one write.
//!
//! Pingora flushes a head at once. For a small request that costs a second system call, a second packet and a second
//! wake-up of the receiver.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::held_writes::HeldWrites;

/// Size of the hold-back buffer, in bytes. Heads are a few hundred bytes.
const BUFFER_SIZE: usize = 16 * 1024;
/// Size of that buffer that a connection keeps when nothing is held, in bytes.
const KEPT: usize = 1024;

/// Upstream connection that sends a head and the body behind it in one write.
pub(in crate::proxy) struct CoalescingStream {
    inner: Stream,
    buffered: HeldWrites,
    corked: AtomicBool,
    last_read: AtomicUsize,
    response_started: AtomicBool,
}

impl CoalescingStream {
    /// Wraps a connection, unless it is wrapped already.
    pub(in crate::proxy) fn wrap(stream: Stream) -> Stream {
        if CoalescingStream::of(&stream).is_some() {
            return stream;
        }
        let corked = CoalescingStream {
            inner: stream,
            buffered: HeldWrites::default(),
            corked: AtomicBool::new(false),
            last_read: AtomicUsize::new(0),
            response_started: AtomicBool::new(false),
        };
        Box::new(corked)
    }

    /// Returns the wrapper of a connection; `None` if it is not wrapped.
    pub(in crate::proxy) fn of(stream: &Stream) -> Option<&CoalescingStream> {
        (**stream).as_any().downcast_ref::<CoalescingStream>()
    }

    /// Starts a request: writes are held back from now on.
    pub(in crate::proxy) fn cork(&self) {
        // Atomics, because `of` gives a shared reference only. One task at a time uses a connection, so `Relaxed` does.
        self.corked.store(true, Ordering::Relaxed);
        self.response_started.store(false, Ordering::Relaxed);
    }

    /// Ends the hold-back: held bytes leave with the next write or flush.
    pub(in crate::proxy) fn uncork(&self) {
        self.corked.store(false, Ordering::Relaxed);
    }

    /// Returns the number of bytes of the last read.
    pub(in crate::proxy) fn last_read(&self) -> usize {
        self.last_read.load(Ordering::Relaxed)
    }

    /// Whether any byte has been read since the request began.
    pub(in crate::proxy) fn has_response(&self) -> bool {
        self.response_started.load(Ordering::Relaxed)
    }

    /// Writes the held bytes.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = ready!(self.buffered.poll_release(&mut self.inner, cx, &[]));
        // An idle connection keeps its buffer, which would stay as large as the largest head.
        self.buffered.shrink(KEPT);
        Poll::Ready(written.map(drop))
    }
}

impl AsyncRead for CoalescingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        self.last_read.store(read, Ordering::Relaxed);
        if read > 0 {
            self.response_started.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CoalescingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.corked.load(Ordering::Relaxed) && self.buffered.len() + buf.len() <= BUFFER_SIZE {
            self.buffered.push(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        let this = &mut *self;
        let written = this.buffered.poll_write(&mut this.inner, cx, buf);
        this.buffered.shrink(KEPT);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.corked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // No body follows before a close: bytes that were written before it must still be sent.
        self.uncork();
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.corked.load(Ordering::Relaxed) || !self.buffered.is_empty() {
            // A partial write is permitted, and `poll_write` keeps the order behind the held bytes.
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            return self.poll_write(cx, first);
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for CoalescingStream {
    async fn shutdown(&mut self) {
        self.uncork();
        // The connection is closed either way, so an error changes nothing.
        let _ = std::future::poll_fn(|cx| self.poll_release(cx)).await;
        Shutdown::shutdown(&mut *self.inner).await;
    }
}

impl UniqueID for CoalescingStream {
    fn id(&self) -> i32 {
        self.inner.id()
    }
}

impl Ssl for CoalescingStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for CoalescingStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for CoalescingStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for CoalescingStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

#[async_trait]
impl Peek for CoalescingStream {}

impl fmt::Debug for CoalescingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt};

    /// Returns what the other side receives within 20 ms.
    async fn received(other: &mut tokio::io::DuplexStream) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let read = tokio::time::timeout(std::time::Duration::from_millis(20), other.read(&mut out)).await;
        out.truncate(read.map_or(0, |read| read.unwrap()));
        out
    }

    #[tokio::test]
    async fn corked_head_is_sent_with_its_body() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut stream = CoalescingStream::wrap(Box::new(near));
        CoalescingStream::of(&stream).unwrap().cork();
        stream.write_all(b"head").await.unwrap();
        stream.flush().await.unwrap();
        assert!(received(&mut far).await.is_empty());
        CoalescingStream::of(&stream).unwrap().uncork();
        stream.write_all(b"body").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(received(&mut far).await, b"headbody");
        stream.write_all(b"more").await.unwrap();
        assert_eq!(received(&mut far).await, b"more");
    }

    #[tokio::test]
    async fn corked_head_is_sent_by_shutdown() {
        for narrow in [7, 1 << 20] {
            let (near, mut far) = tokio::io::duplex(narrow);
            let mut stream = CoalescingStream::wrap(Box::new(near));
            let reading = tokio::spawn(async move {
                let mut all = Vec::new();
                far.read_to_end(&mut all).await.unwrap();
                all
            });
            CoalescingStream::of(&stream).unwrap().cork();
            stream.write_all(b"a head without its body").await.unwrap();
            stream.flush().await.unwrap();
            AsyncWriteExt::shutdown(&mut stream).await.unwrap();
            drop(stream);
            assert_eq!(reading.await.unwrap(), b"a head without its body");
        }
    }

    #[tokio::test]
    async fn corked_head_and_large_body_survive_partial_writes() {
        let (near, mut far) = tokio::io::duplex(7);
        let mut stream = CoalescingStream::wrap(Box::new(near));
        let body: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = [&b"a head of some length"[..], &body].concat();
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            all
        });
        CoalescingStream::of(&stream).unwrap().cork();
        stream.write_all(b"a head of some length").await.unwrap();
        stream.flush().await.unwrap();
        CoalescingStream::of(&stream).unwrap().uncork();
        stream.write_all(&body).await.unwrap();
        stream.flush().await.unwrap();
        AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        drop(stream);
        assert_eq!(reading.await.unwrap(), expected);
    }
}
