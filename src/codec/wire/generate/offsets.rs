//! Conversion between byte and character offsets: grounding counts UTF-8 bytes, citations count characters.

use json::JsonStr;

/// Offset table of a text that is not stored: only the runs of multi-byte characters. ASCII text needs no entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Offsets {
    bytes: u64,
    chars: u64,
    runs: Vec<Run>,
}

/// Run of adjacent characters of the same width.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Byte offset of the run.
    start: u64,
    /// Byte offset of the end of the run.
    end: u64,
    /// Bytes per character.
    width: u64,
    /// Character offset of the run.
    chars: u64,
}

impl Offsets {
    /// Appends a piece of the text.
    #[inline]
    pub(super) fn push(&mut self, text: JsonStr<'_>) {
        let mut rest = text.escaped();
        // Most text is ASCII without escapes. This loop has no branches, so the compiler vectorizes it.
        let special = rest.bytes().fold(0, |all, byte| all | (byte & 0x80) | u8::from(byte == b'\\'));
        if special == 0 {
            self.bytes += rest.len() as u64;
            self.chars += rest.len() as u64;
            return;
        }
        loop {
            let run = JsonStr::from_escaped(rest).single_run();
            self.bytes += run as u64;
            self.chars += run as u64;
            let special = rest.get(run..).unwrap_or_default();
            let Some(first) = special.chars().next() else { return };
            let (width, length) = match first {
                '\\' => escape(special),
                other => (other.len_utf8() as u64, other.len_utf8()),
            };
            self.character(width);
            rest = special.get(length..).unwrap_or_default();
        }
    }

    #[inline]
    fn character(&mut self, width: u64) {
        if width > 1 {
            match self.runs.last_mut().filter(|run| run.width == width && run.end == self.bytes) {
                Some(run) => run.end += width,
                None => self.runs.push(Run {
                    start: self.bytes,
                    end: self.bytes + width,
                    width,
                    chars: self.chars,
                }),
            }
        }
        self.bytes += width;
        self.chars += 1;
    }

    /// Returns the length of the text in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the length of the text in characters.
    pub(super) fn chars(&self) -> u64 {
        self.chars
    }

    /// Converts a byte offset to a character offset. Offsets beyond the end become the end.
    pub(super) fn char_of(&self, byte: u64) -> u64 {
        let byte = byte.min(self.bytes);
        let before = self.runs.partition_point(|run| run.start <= byte);
        match before.checked_sub(1).and_then(|last| self.runs.get(last)) {
            Some(run) => {
                let inside = byte.min(run.end) - run.start;
                run.chars + inside / run.width + byte.saturating_sub(run.end)
            }
            None => byte,
        }
    }

    /// Converts a character offset to a byte offset. Offsets beyond the end become the end.
    pub(super) fn byte_of(&self, char: u64) -> u64 {
        let char = char.min(self.chars);
        let before = self.runs.partition_point(|run| run.chars <= char);
        match before.checked_sub(1).and_then(|last| self.runs.get(last)) {
            Some(run) => {
                let inside = (char - run.chars).min((run.end - run.start) / run.width);
                run.start + inside * run.width + (char - run.chars - inside)
            }
            None => char,
        }
    }
}

/// Returns the number of UTF-8 bytes that the escape at the start of `tail` stands for, and its own length in bytes.
fn escape(tail: &str) -> (u64, usize) {
    let Some(first) = unicode(tail) else { return (1, 2) };
    match first {
        0..0x80 => (1, 6),
        0x80..0x800 => (2, 6),
        0xD800..0xDC00 => match tail.get(6..).and_then(unicode) {
            Some(0xDC00..0xE000) => (4, 12),
            // A lone surrogate is decoded as U+FFFD.
            _ => (3, 6),
        },
        _ => (3, 6),
    }
}

fn unicode(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_convert_between_bytes_and_characters(pieces in prop::collection::vec("[a-c\u{e9}\u{4e16}\u{1f30d}\n\"]{0,6}", 0..6)) {
            let mut offsets = Offsets::default();
            for (number, piece) in pieces.iter().enumerate() {
                let json = serde_json::to_string(piece).unwrap();
                let mut inside = json[1..json.len() - 1].to_owned();
                if number % 2 == 1 {
                    inside = inside.replace('\u{e9}', "\\u00e9").replace('\u{1f30d}', "\\ud83c\\udf0d");
                }
                offsets.push(JsonStr::from_escaped(&inside));
            }
            let text = pieces.concat();
            let positions = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
            for (char, byte) in positions.enumerate() {
                prop_assert_eq!(offsets.char_of(byte as u64), char as u64);
                prop_assert_eq!(offsets.byte_of(char as u64), byte as u64);
            }
            prop_assert_eq!(offsets.bytes(), text.len() as u64);
        }
    }
}
