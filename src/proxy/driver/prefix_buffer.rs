//! First frames of a stream, held back from the client.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Limit of the held-back frames, in bytes. Only a few lines precede the first content.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Buffered first frames of a stream. While they are held back, fallback is still possible.
pub(super) struct PrefixBuffer {
    until: Instant,
    frames: Vec<Bytes>,
}

impl PrefixBuffer {
    /// Creates an empty buffer that holds frames for this time.
    pub(super) fn new(span: Duration) -> Self {
        PrefixBuffer { until: Instant::now() + span, frames: Vec::new() }
    }

    /// Returns the held-back frames followed by `last`.
    pub(super) fn flush_with(self, last: Bytes) -> Bytes {
        if self.frames.is_empty() {
            return last;
        }
        let mut frames = self.frames;
        frames.push(last);
        frames.concat().into()
    }

    /// Returns the held-back frames.
    pub(super) fn into_frames(self) -> Bytes {
        self.frames.concat().into()
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
        let held: usize = self.frames.iter().map(Bytes::len).sum();
        let room = held + frames.len() <= MAX_HELD_BYTES;
        if room && !frames.is_empty() {
            self.frames.push(frames.clone());
        }
        room
    }
}
