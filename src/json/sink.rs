//! Sink: what JSON text is appended to. A byte buffer, or a rope under construction.

use bytes::BufMut;

/// Sink of text. Every [`BufMut`] is one: the text is copied to its end.
pub trait Sink {
    /// Appends bytes.
    fn put_slice(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn put_u8(&mut self, byte: u8);
}

impl<B: BufMut> Sink for B {
    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        BufMut::put_slice(self, bytes);
    }

    #[inline]
    fn put_u8(&mut self, byte: u8) {
        BufMut::put_u8(self, byte);
    }
}
