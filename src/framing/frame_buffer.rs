//! Frame reassembly: joins the start of an incomplete frame with the piece that completes it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::Splitter;

/// Error: a frame exceeds the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of the stream is larger than {limit} bytes")]
pub struct FrameTooLarge {
    /// Maximum frame size in bytes.
    pub limit: usize,
}

/// Frame reassembly buffer: passes whole frames on without copying; stores only a frame that straddles two pieces.
#[derive(Debug)]
pub struct FrameBuffer {
    splitter: Splitter,
    partial: BytesMut,
    limit: usize,
}

impl FrameBuffer {
    /// Creates a buffer for frames of at most `limit` bytes.
    pub fn new(splitter: Splitter, limit: usize) -> Self {
        FrameBuffer { splitter, partial: BytesMut::new(), limit }
    }

    /// Returns the splitter with its current state.
    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// Feeds a piece and calls `each` for every frame that it completes, in order, with the bytes that contain the
    /// frame and its range in them. The bytes are the piece itself, except for a frame that began in an earlier piece:
    /// there they are the stored start joined with the first bytes of the piece. The frames of a piece are contiguous.
    ///
    /// # Errors
    /// Returns [`FrameTooLarge`] if a frame exceeds the limit, or the error of `each`.
    #[inline]
    pub fn feed<E: From<FrameTooLarge>>(
        &mut self,
        piece: &Bytes,
        mut each: impl FnMut(&Bytes, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0;
        if !self.partial.is_empty() {
            let Some(end) = self.splitter.next_boundary(piece, 0) else {
                return self.buffer(piece).map_err(E::from);
            };
            self.partial.extend_from_slice(piece.get(..end).unwrap_or_default());
            let joined = self.partial.split().freeze();
            each(&joined, 0..joined.len())?;
            from = end;
        }
        while let Some(end) = self.splitter.next_boundary(piece, from) {
            each(piece, from..end)?;
            from = end;
        }
        if from < piece.len() {
            self.buffer(piece.get(from..).unwrap_or_default())?;
        }
        Ok(())
    }

    fn buffer(&mut self, bytes: &[u8]) -> Result<(), FrameTooLarge> {
        // Without a limit, a provider that never ends a frame would exhaust memory.
        if self.partial.len() + bytes.len() > self.limit {
            return Err(FrameTooLarge { limit: self.limit });
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns true if the start of an incomplete frame is stored.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Removes and returns the incomplete frame at the end of the stream; empty if there is none.
    pub fn take_rest(&mut self) -> Bytes {
        self.partial.split().freeze()
    }
}
