//! Rope: text in the pieces in which it arrived, so that a large body is stored once and never copied.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Size in bytes below which pieces are copied together. A piece costs about 100 bytes of bookkeeping beside its own
/// allocation. Without this, a client that sends one byte per chunk would make a body cost a hundred times its size.
const SMALL_PIECE: usize = 4096;

/// Capacity of the buffer that collects small pieces, in bytes.
const GATHER: usize = 16 * 1024;

/// Text in pieces. A clone shares the pieces.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    pieces: SmallVec<[Bytes; 2]>,
    gathered: BytesMut,
    len: usize,
    /// Length of the whole text in bytes, if its pieces are to be joined while they arrive; 0 if they stay pieces.
    expected: usize,
}

/// Replacement of one range of a [`Rope`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Byte range in the text before any edit.
    pub range: Range<usize>,
    /// Replacement text.
    pub text: Bytes,
}

impl Rope {
    /// Creates an empty rope.
    pub fn new() -> Self {
        Rope::default()
    }

    /// Joins the pieces of a text of `expected` bytes in one block while they arrive. The block exists from the moment
    /// when an eighth of them has arrived, so that memory is not reserved for what a client only announces.
    pub fn join(&mut self, expected: usize) {
        self.expected = expected;
    }

    /// Returns the number of bytes that are held: the length, or the capacity of the block that pieces are joined in.
    pub fn held(&self) -> usize {
        self.len.max(self.gathered.capacity())
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the rope is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece, without copying it unless it is small.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len();
        if self.expected > 0 && self.push_joined(&piece) {
            return;
        }
        // A first small piece is not copied: most requests arrive in one piece.
        if piece.len() >= SMALL_PIECE || (self.pieces.is_empty() && self.gathered.is_empty()) {
            self.seal();
            self.pieces.push(piece);
            return;
        }
        if self.gathered.capacity() - self.gathered.len() < piece.len() {
            self.seal();
            self.gathered = BytesMut::with_capacity(GATHER);
        }
        self.gathered.extend_from_slice(&piece);
    }

    /// Appends a piece to the block that pieces are joined in. Returns false if there is none yet, or no room in it.
    fn push_joined(&mut self, piece: &[u8]) -> bool {
        if self.gathered.capacity() < self.expected {
            if self.len > self.expected || self.len < self.expected / 8 {
                return false;
            }
            let mut block = BytesMut::with_capacity(self.expected);
            self.pieces.drain(..).for_each(|piece| block.extend_from_slice(&piece));
            block.extend_from_slice(&self.gathered);
            self.gathered = block;
        }
        let has_room = self.gathered.capacity() - self.gathered.len() >= piece.len();
        if has_room {
            self.gathered.extend_from_slice(piece);
        }
        has_room
    }

    /// Ends the block of gathered pieces, which is shared from then on.
    pub(super) fn seal(&mut self) {
        if !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            self.pieces.push(gathered.freeze());
        }
    }

    /// Returns the pieces in order, as slices.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.pieces.iter().map(|piece| &piece[..]).chain(std::iter::once(&self.gathered[..]))
    }

    /// Returns the pieces in order, shared.
    pub fn into_pieces(mut self) -> SmallVec<[Bytes; 2]> {
        self.seal();
        self.pieces
    }

    /// Returns the text as one piece; copies only if there are several pieces.
    pub fn into_contiguous(mut self) -> Bytes {
        self.seal();
        if self.pieces.len() <= 1 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.len);
        for piece in self.pieces {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }

    /// Returns a range of the text; copies only if it straddles pieces. A range beyond the end is cut.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        match self.locate(range.start) {
            Some((index, start)) => match self.pieces.get(index) {
                Some(piece) if range.end <= start + piece.len() => {
                    piece.slice(range.start - start..range.end.max(range.start) - start)
                }
                _ => Bytes::from(self.joined(index, start, range)),
            },
            None => Bytes::new(),
        }
    }

    /// Returns a borrowed range of the text; copies only if it straddles pieces. A range beyond the end is cut.
    pub fn view(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let Some((index, start)) = self.locate(range.start) else { return Cow::Borrowed(&[]) };
        let piece = self.piece(index);
        if range.end <= start + piece.len() {
            return Cow::Borrowed(piece.get(range.start - start..range.end - start).unwrap_or_default());
        }
        Cow::Owned(self.joined(index, start, range))
    }

    /// Returns a piece; the last one is that of the gathered bytes.
    fn piece(&self, index: usize) -> &[u8] {
        self.pieces.get(index).map_or(&self.gathered[..], |piece| &piece[..])
    }

    /// Returns the index of the piece with this offset, and the offset of the piece. Searches from the nearer end.
    /// `None` if the offset is not within the text.
    fn locate(&self, at: usize) -> Option<(usize, usize)> {
        if at >= self.len {
            return None;
        }
        if at >= self.len / 2 {
            let mut end = self.len;
            for index in (0..=self.pieces.len()).rev() {
                end -= self.piece(index).len();
                if end <= at {
                    return Some((index, end));
                }
            }
            return None;
        }
        let mut start = 0;
        for (index, piece) in self.pieces.iter().enumerate() {
            if at < start + piece.len() {
                return Some((index, start));
            }
            start += piece.len();
        }
        Some((self.pieces.len(), start))
    }

    /// Copies a range that begins in the piece `index`, whose offset is `start`.
    fn joined(&self, index: usize, mut start: usize, range: Range<usize>) -> Vec<u8> {
        let end = range.end.min(self.len);
        let mut out = Vec::with_capacity(end.saturating_sub(range.start));
        for index in index..=self.pieces.len() {
            let piece = self.piece(index);
            let from = range.start.max(start);
            let to = end.min(start + piece.len());
            if from >= end {
                break;
            }
            out.extend_from_slice(piece.get(from - start..to - start).unwrap_or_default());
            start += piece.len();
        }
        out
    }

    /// Applies edits, which must be sorted and must not overlap. The unchanged text is shared, not copied.
    pub fn edited(mut self, edits: &[Edit]) -> Rope {
        debug_assert!(
            edits.is_sorted_by(|a, b| a.range.end <= b.range.start),
            "edits overlap or are unsorted"
        );
        if edits.is_empty() {
            return self;
        }
        self.seal();
        let mut out = Rope::new();
        // Each edit splits a piece at most once more than it adds one.
        out.pieces.reserve(self.pieces.len() + 2 * edits.len());
        let mut edits = edits.iter().peekable();
        let mut start = 0;
        // Offset up to which the old text is replaced.
        let mut replaced = 0;
        for piece in &self.pieces {
            let end = start + piece.len();
            let mut at = replaced.max(start);
            // An edit may start in this piece and end in a later one: `replaced` carries its end over.
            while let Some(edit) = edits.peek().filter(|edit| edit.range.start < end) {
                if at < edit.range.start {
                    out.push_exact(piece.slice(at - start..edit.range.start - start));
                }
                out.push_exact(edit.text.clone());
                replaced = edit.range.end;
                at = replaced.min(end).max(at);
                edits.next();
            }
            if at < end {
                out.push_exact(piece.slice(at - start..));
            }
            start = end;
        }
        for edit in edits {
            out.push_exact(edit.text.clone());
        }
        out
    }

    /// Appends a piece of any size without copying it into another.
    pub(super) fn push_exact(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }
}

impl From<Bytes> for Rope {
    fn from(piece: Bytes) -> Self {
        let mut rope = Rope::new();
        rope.push(piece);
        rope
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_rope_is_the_text_of_its_pieces_whatever_was_announced(
            sizes in prop::collection::vec(0..20_000_usize, 0..30),
            announced in 0..300_000_usize,
        ) {
            let text: Vec<u8> = (0..sizes.iter().sum()).map(|n| (n * 7 % 251) as u8).collect();
            let mut rope = Rope::new();
            rope.join(announced);
            let mut at = 0;
            for size in sizes {
                rope.push(Bytes::copy_from_slice(&text[at..at + size]));
                at += size;
                prop_assert_eq!(rope.pieces().collect::<Vec<_>>().concat(), &text[..at]);
                prop_assert!(rope.held() <= (8 * at).max(at + GATHER), "{} of {at}", rope.held());
            }
            prop_assert_eq!(rope.len(), text.len());
            prop_assert_eq!(rope.slice(text.len() / 3..text.len() / 2), &text[text.len() / 3..text.len() / 2]);
            prop_assert_eq!(rope.into_contiguous(), text);
        }
    }

    #[test]
    fn joined_rope_is_one_block_from_an_eighth_of_its_text_on() {
        let piece = Bytes::from(vec![b'x'; 50_000]);
        let mut rope = Rope::new();
        rope.join(800_000);
        rope.push(piece.clone());
        assert_eq!(rope.held(), 50_000);
        for _ in 1..16 {
            rope.push(piece.clone());
            assert_eq!(rope.held(), 800_000);
        }
        rope.seal();
        assert_eq!((rope.pieces.len(), rope.len()), (1, 800_000));
        let start = rope.pieces[0].as_ptr();
        assert_eq!(rope.into_contiguous().as_ptr(), start, "not copied again");
    }
}
