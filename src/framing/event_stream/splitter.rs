//! Splitter of event streams: finds where a message ends by the length in its prelude.

use super::{PRELUDE_LENGTH, Prelude};

/// Event stream splitter. It stores a prelude that arrives in several pieces, and no other bytes.
#[derive(Clone, Debug, Default)]
pub struct EventStreamSplitter {
    /// Prelude that arrives in several pieces, as far as it has arrived.
    prelude: [u8; PRELUDE_LENGTH],
    /// Number of bytes in `prelude`.
    arrived: usize,
    /// Number of bytes of the message behind its prelude that have not arrived yet.
    missing: usize,
    /// Whether a prelude was invalid. Nothing behind it can be split.
    broken: bool,
}

impl EventStreamSplitter {
    /// Returns the end of the next message: see [`Splitter::next_boundary`](crate::Splitter::next_boundary).
    ///
    /// An invalid prelude is a frame of its own, and the last one: [`EventMessage::parse`](super::EventMessage::parse) returns its
    /// fault. The length in it is not trusted, so that no memory is reserved for it.
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        // Most pieces end where a message does, and are asked for another one.
        if self.broken || from >= piece.len() {
            return None;
        }
        let mut at = from;
        if self.missing == 0 {
            let rest = piece.get(at..)?;
            // Most preludes arrive in one piece, and are read where they are.
            let prelude = match rest.first_chunk() {
                Some(prelude) if self.arrived == 0 => {
                    at += PRELUDE_LENGTH;
                    *prelude
                }
                _ => {
                    at += self.collect_prelude(rest)?;
                    self.prelude
                }
            };
            match Prelude::read(&prelude) {
                Ok(prelude) => self.missing = prelude.total.saturating_sub(PRELUDE_LENGTH),
                Err(_) => {
                    self.broken = true;
                    return Some(at);
                }
            }
        }
        let left = piece.len().saturating_sub(at);
        if left < self.missing {
            self.missing -= left;
            return None;
        }
        at += self.missing;
        self.missing = 0;
        Some(at)
    }

    /// Stores the next bytes of a prelude that arrives in several pieces. Returns how many bytes were the rest of it;
    /// `None` while it is incomplete.
    #[cold]
    fn collect_prelude(&mut self, rest: &[u8]) -> Option<usize> {
        let wanted = PRELUDE_LENGTH.saturating_sub(self.arrived).min(rest.len());
        let slot = self.prelude.get_mut(self.arrived..self.arrived + wanted)?;
        slot.copy_from_slice(rest.get(..wanted)?);
        self.arrived += wanted;
        if self.arrived < PRELUDE_LENGTH {
            return None;
        }
        self.arrived = 0;
        Some(wanted)
    }
}
