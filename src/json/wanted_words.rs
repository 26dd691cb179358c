//! Words whose presence a scan notes, and strings that are cut between two pieces of the document.

use memchr::memrchr;
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

/// Length in bytes from which a string is no word.
const TOO_LONG: usize = 64;

/// Beginning of a string that continues in the next piece, as far as it may be a word.
#[derive(Default)]
pub(super) struct CutString {
    /// Text behind the last quote, cut at [`TOO_LONG`] bytes.
    text: SmallVec<[u8; TOO_LONG]>,
}

impl CutString {
    /// Notes the end of a piece that ends within a string.
    pub(super) fn end_piece(&mut self, piece: &[u8]) {
        let end = piece.get(piece.len().saturating_sub(TOO_LONG)..).unwrap_or(piece);
        match memrchr(b'"', end) {
            // A word has no quotes: the last one begins the string, or the string is none.
            Some(quote) => {
                self.text.clear();
                self.push(end.get(quote + 1..).unwrap_or_default());
            }
            // With pieces this small, the string may have begun in the piece before.
            None => self.push(end),
        }
    }

    fn push(&mut self, text: &[u8]) {
        let room = TOO_LONG - self.text.len();
        self.text.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    /// Returns the whole string, given its end in the next piece. `None` if it is too long for a word.
    pub(super) fn join(&mut self, end: &[u8]) -> Option<SmallVec<[u8; TOO_LONG]>> {
        self.push(end);
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
        ] {
            for piece in 1..=text.len() {
                assert_eq!(found(text, piece), expected, "{piece}: {text}");
            }
        }
    }
}
