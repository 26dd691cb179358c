//! UTF-8 validation of a text that arrives in pieces.

pub use simdutf8::basic::Utf8Error;

/// Returns a whole body or frame as text. It is checked in vectors; for a text of a few bytes the standard library's
/// check is as fast.
///
/// # Errors
/// Returns an error without a position if the bytes are not UTF-8.
#[inline]
pub fn from_utf8(bytes: &[u8]) -> Result<&str, Utf8Error> {
    simdutf8::basic::from_utf8(bytes)
}

/// UTF-8 validator that keeps its state between pieces.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// Start of a character that continues in the next piece.
    tail: [u8; 4],
    pending: usize,
}

impl Utf8 {
    /// Checks the next piece. Returns `Err` with the offset in `piece` of the first invalid character; the offset is
    /// negative if the character began in an earlier piece.
    #[inline]
    pub(super) fn check(&mut self, piece: &[u8]) -> Result<(), isize> {
        if self.pending == 0 && piece.is_ascii() {
            return Ok(());
        }
        let mut from = 0;
        let began = -(self.pending as isize);
        while self.pending > 0 {
            let Some(&byte) = piece.get(from) else { return Ok(()) };
            let Some(slot) = self.tail.get_mut(self.pending) else { return Err(began) };
            *slot = byte;
            self.pending += 1;
            from += 1;
            match std::str::from_utf8(self.tail.get(..self.pending).unwrap_or_default()) {
                Ok(_) => self.pending = 0,
                Err(error) if error.error_len().is_some() => return Err(began),
                Err(_) => {}
            }
        }
        let rest = piece.get(from..).unwrap_or_default();
        if simdutf8::basic::from_utf8(rest).is_ok() {
            return Ok(());
        }
        // `simdutf8::basic` reports only that the text is invalid. The standard check finds the position, and tells an
        // invalid character from one that is cut at the end of the piece.
        match std::str::from_utf8(rest) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_some() => Err((from + error.valid_up_to()) as isize),
            Err(error) => {
                let tail = rest.get(error.valid_up_to()..).unwrap_or_default();
                self.pending = tail.len().min(self.tail.len());
                for (slot, &byte) in self.tail.iter_mut().zip(tail) {
                    *slot = byte;
                }
                Ok(())
            }
        }
    }

    /// Returns true if the text so far ends at a character boundary.
    pub(super) fn is_complete(&self) -> bool {
        self.pending == 0
    }
}
