//! Compressed copy of the start of a stream, stored while the stream lasts.
//!
//! The lines of a stream differ in a few bytes. Only the part of a line that differs from an earlier line (its pattern)
//! is stored, which is about a tenth of it.

/// Compressed line: lengths of the prefix and the suffix shared with its pattern, and of its own bytes in between.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u16,
    own: u16,
    last: u16,
    long: bool,
}

/// Length in bytes from which on lines have a separate pattern: short `event:` lines alternate with long `data:` lines.
const LONG: usize = 64;
/// Minimum length in bytes of a pattern.
const SHORT: usize = 8;

/// Byte ranges of the two current patterns.
#[derive(Clone, Copy, Debug, Default)]
struct Patterns {
    short: (usize, usize),
    long: (usize, usize),
}

impl Patterns {
    fn of(&mut self, long: bool) -> &mut (usize, usize) {
        if long { &mut self.long } else { &mut self.short }
    }
}

/// Compressed start of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamPrefix {
    lines: Vec<Line>,
    /// Own bytes of all lines, followed by the current incomplete line.
    bytes: Vec<u8>,
    /// Offset of the incomplete line in `bytes`.
    open: usize,
    patterns: Patterns,
    length: usize,
    full: bool,
}

impl StreamPrefix {
    /// Appends a piece. At most `most` bytes of the stream are stored; `most` must be below 64 KiB.
    pub(super) fn push(&mut self, piece: &[u8], most: usize) {
        // Limit the uncompressed length, so that the count at the end has a bounded cost.
        let room = most.saturating_sub(self.length);
        self.full = piece.len() > room;
        let mut rest = piece.get(..room).unwrap_or(piece);
        self.length += rest.len();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, behind) = rest.split_at(end + 1);
            rest = behind;
            // The whole line is in this piece: compress it without a copy.
            if self.open == self.bytes.len() {
                self.pack(line);
            } else {
                // Rare: the line arrived in several pieces.
                let mut whole = self.bytes.split_off(self.open);
                whole.extend_from_slice(line);
                self.pack(&whole);
            }
        }
        if !rest.is_empty() {
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Returns true if the stream was longer than the stored part.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the stored part of the stream, decompressed.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text: Vec<u8> = Vec::with_capacity(self.length);
        // Patterns follow from the lines before, in the order of `pack`, so they are not stored.
        let mut patterns = Patterns::default();
        let mut at = 0;
        for line in &self.lines {
            let (begin, pattern) = (text.len(), patterns.of(line.long));
            let (from, to) = *pattern;
            let (first, own, last) = (usize::from(line.first), usize::from(line.own), usize::from(line.last));
            text.extend_from_within(from..from + first);
            text.extend_from_slice(self.bytes.get(at..at + own).unwrap_or_default());
            text.extend_from_within(to - last..to);
            at += own;
            if own >= SHORT && first + last == 0 {
                *pattern = (begin, begin + own);
            }
        }
        text.extend_from_slice(self.bytes.get(self.open..).unwrap_or_default());
        text
    }

    fn pack(&mut self, line: &[u8]) {
        let long = line.len() >= LONG;
        let pattern = self.patterns.of(long);
        let like = self.bytes.get(pattern.0..pattern.1).unwrap_or_default();
        let mut first = alike(like, line);
        let mut last =
            alike_at_the_end(like.get(first..).unwrap_or_default(), line.get(first..).unwrap_or_default());
        if (first + last) * 2 < line.len() {
            // The line shares too little with its pattern: store it whole, so that it becomes the new pattern.
            (first, last) = (0, 0);
        }
        let own = line.get(first..line.len() - last).unwrap_or_default();
        if own.len() >= SHORT && first + last == 0 {
            *pattern = (self.bytes.len(), self.bytes.len() + own.len());
        }
        let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
        self.lines.push(Line { first: short(first), own: short(own.len()), last: short(last), long });
        self.bytes.extend_from_slice(own);
        self.open = self.bytes.len();
    }
}

/// Number of bytes that are compared at a time.
const BLOCK: usize = size_of::<u128>();

/// Returns the length of the common prefix, in bytes.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let (blocks, others) = (one.as_chunks::<BLOCK>(), other.as_chunks::<BLOCK>());
    let mut alike = 0;
    for (one, other) in blocks.0.iter().zip(others.0) {
        let unlike = u128::from_le_bytes(*one) ^ u128::from_le_bytes(*other);
        if unlike != 0 {
            // In little-endian order the lowest differing byte is the first one.
            return alike + bytes(unlike.trailing_zeros());
        }
        alike += BLOCK;
    }
    let rest = one.get(alike..).unwrap_or_default().iter().zip(other.get(alike..).unwrap_or_default());
    alike + rest.take_while(|(one, other)| one == other).count()
}

/// Returns the length of the common suffix, in bytes.
fn alike_at_the_end(one: &[u8], other: &[u8]) -> usize {
    let (blocks, others) = (one.as_rchunks::<BLOCK>(), other.as_rchunks::<BLOCK>());
    let mut alike = 0;
    for (one, other) in blocks.1.iter().rev().zip(others.1.iter().rev()) {
        let unlike = u128::from_le_bytes(*one) ^ u128::from_le_bytes(*other);
        if unlike != 0 {
            // In little-endian order the highest differing byte is the last one.
            return alike + bytes(unlike.leading_zeros());
        }
        alike += BLOCK;
    }
    let left = |text: &'_ [u8]| text.len() - alike;
    let (one, other) =
        (one.get(..left(one)).unwrap_or_default(), other.get(..left(other)).unwrap_or_default());
    alike + one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

fn bytes(bits: u32) -> usize {
    usize::try_from(bits / 8).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(text: &[u8], pieces: &[usize], most: usize) -> StreamPrefix {
        let mut beginning = StreamPrefix::default();
        let mut rest = text;
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*piece).clamp(1, rest.len()));
            beginning.push(piece, most);
            rest = behind;
        }
        beginning
    }

    #[test]
    fn beginning_of_a_stream_is_compressed_to_less_than_a_quarter() {
        let mut chat = String::new();
        let mut messages = String::new();
        for n in 0..100 {
            chat += &format!(
                "data: {{\"id\":\"chatcmpl-9zQ4dWkyq0\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
                 \"model\":\"gpt-4o-2024-08-06\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{{\"index\":0,\
                 \"delta\":{{\"content\":\" w{n}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
            );
            messages += &format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
                 {{\"type\":\"text_delta\",\"text\":\" words {n}\"}}}}\n\n"
            );
        }
        for (text, most) in [(chat, 1_300), (messages, 1_900)] {
            let text = text.as_bytes();
            for pieces in [&[usize::MAX][..], &[251], &[1], &[7, 300]] {
                let kept = heard(text, pieces, 8_192);
                assert!(kept.is_full());
                assert_eq!(kept.text(), &text[..8_192]);
                let bytes = kept.bytes.len() + size_of_val(&*kept.lines);
                assert!(bytes < most, "{bytes}");
            }
        }
    }

    proptest! {
        #[test]
        fn beginning_restores_the_recorded_text(
            lines in prop::collection::vec("(data: )?[ab]{0,90}(\r?\n)?", 0..40),
            pieces in prop::collection::vec(1..200usize, 1..8),
            most in 0..3_000usize,
        ) {
            let text = lines.concat().into_bytes();
            let kept = heard(&text, &pieces, most);
            prop_assert_eq!(kept.text(), &text[..text.len().min(most)]);
            prop_assert_eq!(kept.is_full(), text.len() > most);
        }
    }
}
