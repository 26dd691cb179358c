//! Words whose presence a scan notes, and strings that are cut between two pieces of the document.

use memchr::memrchr2;
use smallvec::SmallVec;

/// Word whose presence is noted: a string value or a member name.
#[derive(Clone, Copy, Debug)]
pub struct WantedWord {
    /// Text, in characters that need no escapes; shorter than 64 bytes.
    pub text: &'static str,
    /// Whether it is a member name instead of a value.
    pub is_name: bool,
    /// Minimum and maximum number of containers around it. A member of the outermost object has 1.
    pub depth: (usize, usize),
}

/// Member whose string value is looked at, wherever it occurs within a range of depths.
#[derive(Clone, Copy, Debug)]
pub struct WantedValue {
    /// Name of the member, in characters that need no escapes; shorter than 64 bytes.
    pub name: &'static str,
    /// Minimum and maximum number of containers around it, as in [`WantedWord`].
    pub depth: (usize, usize),
    /// Returns the bits to be noted, beside those of the words. Its argument is `None` for a value with escapes, and for one
    /// that is cut between two pieces.
    pub look: ValueLook,
}

/// Look at the value of a [`WantedValue`].
pub type ValueLook = fn(Option<&[u8]>) -> u32;

/// Length in bytes from which a string is no word.
const TOO_LONG: usize = 64;

/// Beginning of a string that continues in the next piece, as far as it may be a word.
#[derive(Default)]
pub(super) struct CutString {
    /// Text behind the last quote or escape, cut at [`TOO_LONG`] bytes.
    text: SmallVec<[u8; TOO_LONG]>,
    /// Offset in the document behind the last escape that was read byte by byte.
    escaped_until: usize,
    /// Whether there was an escape before.
    has_escape: bool,
}

impl CutString {
    /// Notes the offset in the document at which an escape ends.
    #[inline]
    pub(super) fn end_escape(&mut self, offset: usize) {
        self.escaped_until = offset;
    }

    /// Notes the end of a piece that ends within a string; `offset` is that of the piece in the document.
    pub(super) fn end_piece(&mut self, piece: &[u8], offset: usize) {
        let escaped = self.escaped_until.saturating_sub(offset);
        let rest = piece.get(escaped..).unwrap_or_default();
        let end = rest.get(rest.len().saturating_sub(TOO_LONG)..).unwrap_or(rest);
        // A word has no quotes and no escapes: the last of them is before it, or the string is none.
        let start = match memrchr2(b'"', b'\\', end) {
            Some(at) if end.get(at) == Some(&b'"') => at + 1,
            Some(at) if end.get(at + 1) == Some(&b'u') => at + 6,
            Some(at) => at + 2,
            None => 0,
        };
        if start > 0 || escaped > 0 {
            self.has_escape = start.checked_sub(1).and_then(|at| end.get(at)) != Some(&b'"')
                || start > 1 && {
                    // Behind an escape that ends in a quote, too.
                    end.get(start - 2) == Some(&b'\\')
                };
            self.text.clear();
        }
        // With pieces this small, the string may have begun in the piece before.
        self.push(end.get(start..).unwrap_or_default());
    }

    /// Returns whether the string has an escape in the pieces so far.
    pub(super) fn has_escape(&self) -> bool {
        self.has_escape
    }

    fn push(&mut self, text: &[u8]) {
        let room = TOO_LONG - self.text.len();
        self.text.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    /// Returns the whole string, given its end in the next piece. `None` if it is too long for a word.
    pub(super) fn join(&mut self, end: &[u8]) -> Option<SmallVec<[u8; TOO_LONG]>> {
        self.push(end);
        self.has_escape = false;
        let whole = std::mem::take(&mut self.text);
        (whole.len() < TOO_LONG).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scanner, WantedMembers};
    use super::*;

    static WANTED: WantedMembers = WantedMembers::new(
        &["a"],
        &[
            WantedWord { text: "mark", is_name: true, depth: (1, 3) },
            WantedWord { text: "mark", is_name: false, depth: (2, 2) },
        ],
    );

    /// Notes bit 8 for a value that is `mark`, bit 9 for another one and bit 10 for one that cannot be looked at.
    fn look(value: Option<&[u8]>) -> u32 {
        value.map_or(1 << 10, |value| if value == b"mark" { 1 << 8 } else { 1 << 9 })
    }

    static LOOKING: WantedMembers =
        WantedMembers::new(&["a"], &[]).with_values(&[WantedValue { name: "seal", depth: (3, 4), look }]);

    #[test]
    fn wanted_values_are_looked_at_or_noted_as_unknown_at_every_split() {
        for (text, whole) in [
            (r#"{"a":[{"seal":"mark","b":"x"}]}"#, 1 << 8),
            (r#"{"a":[{"seal": "marks"},{"seal":"mark"}]}"#, 1 << 9 | 1 << 8),
            (r#"{"a":[{"seal":""}]}"#, 1 << 9),
            (r#"{"a":[{"seal":"m\u0061rk"}]}"#, 1 << 10),
            (r#"{"a":[{"seal":"a\"mark"}]}"#, 1 << 10),
            (r#"{"a":[{"seal":null,"b":"mark"}]}"#, 0),
            (r#"{"a":[{"seal":{"b":"mark"}}]}"#, 0),
            (r#"{"seal":"mark","a":[{"seals":"mark"}]}"#, 0),
        ] {
            for piece in 1..=text.len() {
                let mut scan = Scanner::seeking(&LOOKING);
                for piece in text.as_bytes().chunks(piece) {
                    scan.push(piece).unwrap();
                }
                let found = scan.words_found();
                let is_exact = found == whole;
                // A value that is cut is unknown, and so is none that is not there.
                let is_careful = found & 1 << 10 != 0 && whole != 0;
                assert!(is_exact || (is_careful && piece < text.len()), "{piece}: {text}: {found:b}");
            }
        }
    }

    fn found(text: &str, piece: usize) -> u32 {
        let mut scan = Scanner::seeking(&WANTED);
        for piece in text.as_bytes().chunks(piece) {
            scan.push(piece).unwrap();
        }
        scan.words_found()
    }

    #[test]
    fn wanted_words_are_found_exactly_at_every_split() {
        let long = format!(r#"{{"a":["{}mark"],"{}mark":1}}"#, "x".repeat(60), "x".repeat(100));
        for (text, expected) in [
            (r#"{"a":[{"mark":1}],"b":"mark"}"#, 0b01),
            (r#"{"a":["mark"]}"#, 0b10),
            (r#"{"a":["k"],"ark":"mark","marks":1,"a mark":"","":[]}"#, 0),
            (&long, 0),
            // Of a string with escapes the text behind the last one counts.
            (r#"{"a":["m\u0061rk"]}"#, 0),
        ] {
            for piece in 1..=text.len() {
                assert_eq!(found(text, piece), expected, "{piece}: {text}");
            }
        }
    }
}
