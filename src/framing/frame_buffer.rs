//! What stands between the pieces that arrive and the frames that leave: the beginning of a frame whose end is
//! still to come.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::Splitter;

/// A frame grew beyond the limit without ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of the stream is larger than {limit} bytes")]
pub struct FrameTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Frame reassembly buffer: whole frames are handed on without a copy; only a frame that straddles two pieces is kept.
#[derive(Debug)]
pub struct FrameBuffer {
    splitter: Splitter,
    begun: BytesMut,
    limit: usize,
}

impl FrameBuffer {
    /// Frames of up to `limit` bytes.
    pub fn new(splitter: Splitter, limit: usize) -> Self {
        FrameBuffer { splitter, begun: BytesMut::new(), limit }
    }

    /// The framing, with what it knows so far.
    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// Takes a piece and calls `each` for every frame that is complete now, in order: with the bytes that the frame
    /// stands in and its range there. The bytes are the piece itself, or, for a first frame that began in an earlier
    /// piece, the kept beginning joined with the piece's first bytes; the frames of a piece lie side by side.
    ///
    /// # Errors
    /// A frame is too large, or `each` failed.
    #[inline]
    pub fn feed<E: From<FrameTooLarge>>(
        &mut self,
        piece: &Bytes,
        mut each: impl FnMut(&Bytes, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        if !self.begun.is_empty() {
            let Some(end) = self.splitter.next_boundary(piece, 0) else {
                return self.keep(piece).map_err(E::from);
            };
            self.begun.extend_from_slice(piece.get(..end).unwrap_or_default());
            let joined = self.begun.split().freeze();
            each(&joined, 0..joined.len())?;
            from = end;
        }
        while let Some(end) = self.splitter.next_boundary(piece, from) {
            each(piece, from..end)?;
            from = end;
        }
        if from < piece.len() {
            self.keep(piece.get(from..).unwrap_or_default())?;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), FrameTooLarge> {
        if self.begun.len() + bytes.len() > self.limit {
            return Err(FrameTooLarge { limit: self.limit });
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether a frame has begun whose end is still to come.
    pub fn is_partial(&self) -> bool {
        !self.begun.is_empty()
    }

    /// What is left when the stream has ended: a frame without its end, or nothing.
    pub fn rest(&mut self) -> Bytes {
        self.begun.split().freeze()
    }
}
