//! Held writes: bytes that wait for more, so that both leave in one write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pingora::protocols::Stream;
use tokio::io::AsyncWrite as _;

/// Bytes that were accepted for a connection and not written yet. Has no memory until the first of them.
#[derive(Debug, Default)]
pub(super) struct HeldWrites(Vec<u8>);

impl HeldWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of held bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holds these bytes, behind those that are held already.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns memory beyond `kept` bytes, if no bytes are held.
    pub(super) fn shrink(&mut self, kept: usize) {
        if self.0.is_empty() {
            self.0.shrink_to(kept);
        }
    }

    /// Writes the held bytes, with `more` behind them in one call if possible. Returns the number of bytes of `more` that
    /// were written; 0 too if no bytes were held.
    ///
    /// # Errors
    /// Returns the error of the connection; `WriteZero` if it accepts no more bytes.
    pub(super) fn poll_release(
        &mut self,
        inner: &mut Stream,
        cx: &mut Context<'_>,
        more: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let held = self.0.len();
            if held == 0 {
                return Poll::Ready(Ok(0));
            }
            let stream = Pin::new(&mut *inner);
            // One buffer is less work for the system than a list of two, and nearly all frames are alone.
            let written = if more.is_empty() {
                ready!(stream.poll_write(cx, &self.0))?
            } else {
                ready!(stream.poll_write_vectored(cx, &[IoSlice::new(&self.0), IoSlice::new(more)]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if written >= held {
                self.0.clear();
                return Poll::Ready(Ok(written - held));
            }
            self.0.drain(..written);
        }
    }

    /// Writes the held bytes, and then `bytes` as far as the connection accepts them. Returns the number of these.
    ///
    /// # Errors
    /// As [`HeldWrites::poll_release`].
    pub(super) fn poll_write(
        &mut self,
        inner: &mut Stream,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_release(inner, cx, bytes))? {
            // No byte of `bytes` is written yet. Returning 0 would look like a connection that accepts no more bytes.
            0 => Pin::new(inner).poll_write(cx, bytes),
            written => Poll::Ready(Ok(written)),
        }
    }
}
