//! Compressed copy of the start of a stream, stored while the stream lasts.
//!
//! The lines of a stream differ in a few bytes. Only the part of a line that differs from an earlier line (its pattern)
//! is stored, which is about a tenth of it.

/// Compressed line: lengths of the prefix and the suffix shared with its pattern, and of its own bytes in between. It is
/// stored as three numbers of 7 bits a byte, the lowest bits first: most lines take three or four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    first: usize,
    own: usize,
    last: usize,
    long: bool,
}

impl Line {
    fn write(self, out: &mut Vec<u8>) {
        for number in [self.own << 1 | usize::from(self.long), self.first, self.last] {
            let mut rest = number;
            while rest >= 0x80 {
                out.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }

    /// Reads the line at the front of `lines`, and takes it off. `None` at the end.
    fn read(lines: &mut &[u8]) -> Option<Line> {
        let mut number = || {
            let (mut number, mut shift) = (0, 0);
            loop {
                let (byte, rest) = lines.split_first()?;
                *lines = rest;
                number |= usize::from(byte & 0x7f) << shift;
                if *byte < 0x80 {
                    return Some(number);
                }
                shift += 7;
            }
        };
        let own = number()?;
        Some(Line { own: own >> 1, long: own & 1 == 1, first: number()?, last: number()? })
    }
}

/// Length in bytes from which on lines have a separate pattern: short `event:` lines alternate with long `data:` lines.
const LONG: usize = 64;
/// Minimum length in bytes of a pattern.
const SHORT: usize = 8;
/// Maximum number of bytes of a stored [`Line`]: lengths are below 64 KiB.
const LINE: usize = 9;
/// Number of bytes by which the copy grows, at most a few dozen times.
const STEP: usize = 256;

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
    /// Lines, each as [`Line::write`] stores it.
    lines: Vec<u8>,
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
            make_room(&mut self.bytes, rest.len());
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
        let mut lines = &*self.lines;
        while let Some(Line { first, own, last, long }) = Line::read(&mut lines) {
            let (begin, pattern) = (text.len(), patterns.of(long));
            let (from, to) = *pattern;
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
        make_room(&mut self.lines, LINE);
        Line { first, own: own.len(), last, long }.write(&mut self.lines);
        make_room(&mut self.bytes, own.len());
        self.bytes.extend_from_slice(own);
        self.open = self.bytes.len();
    }
}

/// Makes room for `more` bytes, in steps: doubling would leave a third of the memory of a stream's copy empty.
fn make_room(bytes: &mut Vec<u8>, more: usize) {
    if bytes.capacity() - bytes.len() < more {
        bytes.reserve_exact(more.next_multiple_of(STEP));
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
