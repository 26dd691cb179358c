//! Header time-out and corking: a downstream connection that bounds the time of a request head, checks the framing of
//! chunked bodies, and coalesces writes that belong together. It has buffers only while a request needs them: most
//! connections of clients are idle most of the time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
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
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;

use super::chunks::{Chunks, Misframed};
use super::held_writes::HeldWrites;
use super::http2_frames::FrameWatch;

/// Size of the first read of a head, in bytes: enough for most heads, often with their body.
const FIRST_READ: usize = 4 * 1024;
/// Maximum size of the held writes, in bytes: a head and a typical JSON response leave in one write.
const WRITE_BUFFER: usize = 3 * 1024;

/// Size of that buffer behind the head of a stream, in bytes: a frame of one or two tokens fits.
const FRAME_BUFFER: usize = 512;

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of the head of an HTTP/2 frame (RFC 9113, section 4.1).
const FRAME_HEAD: usize = 9;

/// An empty SETTINGS frame, and a GOAWAY frame with PROTOCOL_ERROR: the answer to a connection preface that is not valid.
const NO_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Downstream connection whose reads fail once a request head takes longer than `limits.header_timeout`.
pub struct HeaderTimeoutStream {
    inner: Stream,
    timeout: Duration,
    /// Whether a head is awaited or being read.
    in_head: AtomicBool,
    /// Whether flushes are suppressed, so that writes stay in the buffer until more follows.
    corked: AtomicBool,
    /// Whether something was written since the client closed its side of the connection.
    probed: AtomicBool,
    /// Timer of a head that needs more than one read; runs from its first bytes until it is complete.
    deadline: Option<Pin<Box<Sleep>>>,
    head_started: bool,
    /// Frames of an HTTP/2 connection; `None` for HTTP/1.
    frames: Option<Box<FrameWatch>>,
    /// Framing checker of the body that is being read; `None` if the body is not chunked.
    chunks: Option<Box<Chunks>>,
    /// Bytes that were read to detect the protocol, to be read again.
    prefetched: BytesMut,
    /// Written bytes that wait for a flush.
    held: HeldWrites,
    /// Flushes of the current response that had such bytes, up to the second.
    flushes: u8,
}

impl HeaderTimeoutStream {
    /// Wraps the stream of a connection whose first head must arrive within `timeout`.
    pub fn new(inner: Stream, timeout: Duration) -> Self {
        HeaderTimeoutStream {
            inner,
            timeout,
            in_head: AtomicBool::new(true),
            corked: AtomicBool::new(false),
            probed: AtomicBool::new(false),
            deadline: None,
            head_started: false,
            frames: None,
            chunks: None,
            prefetched: BytesMut::new(),
            held: HeldWrites::default(),
            flushes: 0,
        }
    }

    /// Returns the wrapper of a session's connection; `None` if it is not wrapped.
    pub fn of(stream: &Stream) -> Option<&HeaderTimeoutStream> {
        (**stream).as_any().downcast_ref::<HeaderTimeoutStream>()
    }

    /// Detects whether the client speaks HTTP/2, by ALPN and by the connection preface. The bytes that this takes are
    /// read again, or taken with [`HeaderTimeoutStream::take_first`]. A client that sends nothing, or closes, counts as
    /// HTTP/1.
    ///
    /// # Errors
    /// Returns `InvalidData` if ALPN selected HTTP/2 but the preface does not follow.
    pub async fn is_http2(&mut self) -> io::Result<bool> {
        let agreed = match self.inner.selected_alpn_proto() {
            Some(ALPN::H2) => true,
            Some(_) => return Ok(false),
            // Over TLS, HTTP/2 is selected by ALPN only (RFC 9113, section 3.2).
            None if self.inner.get_ssl_digest().is_some() => return Ok(false),
            None => false,
        };
        let mut first = BytesMut::new();
        // Stop at the first byte that differs: the shortest HTTP/1 head is shorter than the preface, and waiting for
        // all of it would block that client.
        while H2_PREFACE.starts_with(&first) {
            if !matches!(self.read_first(&mut first).await, Ok(1..)) {
                break;
            }
            if first.starts_with(H2_PREFACE) {
                self.prefetched = first;
                return Ok(true);
            }
        }
        self.prefetched = first;
        if agreed { Err(io::ErrorKind::InvalidData.into()) } else { Ok(false) }
    }

    /// Reads the head of the frame behind the connection preface, to be read again. Returns false if it is not the SETTINGS
    /// frame that must follow, after telling the client: h2 would take any frame (RFC 9113, section 3.4).
    ///
    /// # Errors
    /// Returns the error of the connection; `TimedOut` after the time-out of a head.
    pub async fn begins_with_settings(&mut self) -> io::Result<bool> {
        let mut first = std::mem::take(&mut self.prefetched);
        while first.len() < H2_PREFACE.len() + FRAME_HEAD {
            self.begin_head(true);
            if self.read_first(&mut first).await? == 0 {
                return Ok(false);
            }
        }
        // Length, type, flags and stream: of the type SETTINGS, of the connection, and not an acknowledgement.
        let is_settings = matches!(first.get(H2_PREFACE.len()..), Some([_, _, _, 4, flags, reserved, 0, 0, 0, ..]) if flags & 1 == 0 && reserved & 0x7f == 0);
        self.prefetched = first;
        self.frames = Some(Box::default());
        if !is_settings {
            self.inner.write_all(NO_SETTINGS).await?;
            self.inner.flush().await?;
        }
        Ok(is_settings)
    }

    /// Appends what can be read to `buf`, at most [`FIRST_READ`] bytes, and returns their number. Unlike `read_buf`, it
    /// needs no room in `buf` while it waits.
    pub async fn read_first(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| {
            let mut room = [const { MaybeUninit::uninit() }; FIRST_READ];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut *self).poll_read(cx, &mut read))?;
            buf.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
        .await
    }

    /// Takes the bytes that were read to detect the protocol.
    pub fn take_first(&mut self) -> BytesMut {
        std::mem::take(&mut self.prefetched)
    }

    /// Starts a head; `begun` is true if some of its bytes have arrived already.
    pub fn begin_head(&mut self, begun: bool) {
        self.await_head();
        self.head_started |= begun;
        self.chunks = None;
        self.held.shrink(0);
        self.flushes = 0;
    }

    /// Checks the framing of a chunked body from here on; `first` is the part of it that arrived with the head.
    ///
    /// # Errors
    /// Returns [`Misframed`] if the framing of `first` is invalid.
    pub fn watch_chunks(&mut self, first: &[u8]) -> Result<(), Misframed> {
        let mut chunks = Box::<Chunks>::default();
        chunks.feed(first)?;
        self.chunks = Some(chunks);
        Ok(())
    }

    /// Ends the head: further reads are of a body, which has time-outs of its own.
    pub fn head_complete(&self) {
        self.in_head.store(false, Ordering::Relaxed);
    }

    /// Suppresses flushes, because more follows at once and both should leave in one write. Data beyond the
    /// connection's buffer is written nevertheless.
    pub fn cork(&self) {
        self.corked.store(true, Ordering::Relaxed);
    }

    /// Permits flushes again: held data leaves with the next one.
    pub fn uncork(&self) {
        self.corked.store(false, Ordering::Relaxed);
    }

    /// Whether something was written since the client closed its side of the connection.
    pub fn is_probed(&self) -> bool {
        self.probed.load(Ordering::Relaxed)
    }

    /// Records that something was written since then.
    pub fn mark_probed(&self) {
        self.probed.store(true, Ordering::Relaxed);
    }

    /// Treats the next bytes as a head.
    pub fn await_head(&self) {
        self.in_head.store(true, Ordering::Relaxed);
    }

    /// Writes the held bytes.
    fn poll_release(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let length = self.held.len();
        ready!(self.held.poll_release(&mut self.inner, cx, &[]))?;
        if length > 0 && self.flushes < 2 {
            self.flushes += 1;
            if self.flushes == 2 {
                // A stream: the frames behind its head are smaller than the head with the first ones. Only once, so that
                // frames of different sizes do not allocate.
                self.held.shrink(FRAME_BUFFER.max(length));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Applies the header time-out to a read of a head.
    fn poll_head(
        &mut self,
        cx: &mut TaskContext<'_>,
        polled: Poll<io::Result<()>>,
        grown: bool,
    ) -> Poll<io::Result<()>> {
        match polled {
            Poll::Ready(Ok(())) => {
                self.head_started |= grown;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(error) => Poll::Ready(error),
            // Before the first byte the connection is only idle: the keep-alive time-out applies.
            Poll::Pending if !self.head_started => Poll::Pending,
            Poll::Pending => {
                let timeout = self.timeout;
                // Created only when a head has to wait for its rest: most arrive whole and need no timer.
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
        if !self.prefetched.is_empty() {
            let length = self.prefetched.len().min(buf.remaining());
            let before = buf.filled().len();
            buf.put_slice(self.prefetched.get(..length).unwrap_or_default());
            self.prefetched.advance(length);
            if let Some(frames) = &mut self.frames {
                frames.pass(buf.filled_mut().get_mut(before..).unwrap_or_default());
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if self.in_head.load(Ordering::Relaxed) {
            let grown = buf.filled().len() > before;
            return self.poll_head(cx, polled, grown);
        }
        // First read of a body: the timer of its head has done its work.
        if self.head_started {
            self.head_started = false;
            self.deadline = None;
        }
        if let Some(frames) = &mut self.frames {
            frames.pass(buf.filled_mut().get_mut(before..).unwrap_or_default());
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
        if self.held.len() + buf.len() <= WRITE_BUFFER {
            self.held.push(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        let this = &mut *self;
        this.held.poll_write(&mut this.inner, cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if self.corked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        if self.held.len() + length <= WRITE_BUFFER {
            bufs.iter().for_each(|buf| self.held.push(buf));
            return Poll::Ready(Ok(length));
        }
        if !self.held.is_empty() {
            // A partial write is permitted, and this one keeps the order behind the held bytes.
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            let this = &mut *self;
            return this.held.poll_write(&mut this.inner, cx, first);
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl CloseStream for HeaderTimeoutStream {
    async fn shutdown(&mut self) {
        // The connection is closed either way, so an error changes nothing.
        let _ = poll_fn(|cx| self.poll_release(cx)).await;
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
    // Pingora detects the HTTP/2 preface with this.
    async fn try_peek(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        self.read_exact(buf).await?;
        let rest = std::mem::replace(&mut self.prefetched, BytesMut::from(&*buf));
        self.prefetched.unsplit(rest);
        // The same bytes are read once more.
        self.frames = self.frames.take().map(|_| Box::default());
        Ok(true)
    }
}

impl fmt::Debug for HeaderTimeoutStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
