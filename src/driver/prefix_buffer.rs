//! First frames of a stream, held back from the client.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

/// Limit of the held-back frames, in bytes. Only a few lines precede the first content.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Buffered first frames of a stream. While they are held back, fallback is still possible.
pub(super) struct PrefixBuffer {
    until: Instant,
    /// Copied: a frame is part of a read buffer, and may be much shorter.
    frames: BytesMut,
}

impl PrefixBuffer {
    /// Creates an empty buffer that holds frames for this time.
    pub(super) fn new(span: Duration) -> Self {
        PrefixBuffer { until: Instant::now() + span, frames: BytesMut::new() }
    }

    /// Returns the held-back frames followed by `last`.
    pub(super) fn flush_with(self, last: Bytes) -> Bytes {
        if self.frames.is_empty() {
            return last;
        }
        let mut frames = self.frames;
        frames.extend_from_slice(&last);
        frames.freeze()
    }

    /// Returns the held-back frames.
    pub(super) fn into_frames(self) -> Bytes {
        self.frames.freeze()
    }

    /// Whether the stream is still held back. With an early head sent, an empty buffer may be held beyond its time.
    pub(super) fn is_holding(&self, early: bool) -> bool {
        Instant::now() < self.until || (early && self.frames.is_empty())
    }

    /// Returns the remaining hold time; `None` once it is over.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
    }

    /// Buffers frames. Returns false if the hold time is over or the buffer is full. With an early head sent, a read
    /// without frames may extend the hold.
    pub(super) fn push(&mut self, frames: &Bytes, early: bool) -> bool {
        if self.remaining().is_none() && !(early && frames.is_empty()) {
            return false;
        }
        let room = self.frames.len() + frames.len() <= MAX_HELD_BYTES;
        if room {
            self.frames.extend_from_slice(frames);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_buffer_holds_no_more_than_its_limit() {
        let mut held = PrefixBuffer::new(Duration::from_secs(60));
        let frame = Bytes::from(vec![b'x'; 1_000]);
        let count = (0..).take_while(|_| held.push(&frame, false)).count();
        assert_eq!(count, MAX_HELD_BYTES / 1_000);
        assert!(held.push(&Bytes::from_static(b":\n\n"), false), "a shorter one still fits");
        assert_eq!(held.flush_with(Bytes::from_static(b"end")).len(), count * 1_000 + 6);
        // An empty buffer passes what comes without a copy.
        let last = Bytes::from_static(b"first");
        assert_eq!(PrefixBuffer::new(Duration::ZERO).flush_with(last.clone()).as_ptr(), last.as_ptr());
    }
}
