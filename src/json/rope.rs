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

    fn seal(&mut self) {
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
    pub fn slice(&mut self, range: Range<usize>) -> Bytes {
        self.seal();
        let mut start = 0;
        let mut straddling: Option<BytesMut> = None;
        for piece in &self.pieces {
            let end = start + piece.len();
            let from = range.start.max(start);
            let to = range.end.min(end);
            if from < to {
                let part = piece.slice(from - start..to - start);
                match &mut straddling {
                    None if range.end <= end => return part,
                    None => {
                        let mut whole = BytesMut::with_capacity(range.len().min(self.len));
                        whole.extend_from_slice(&part);
                        straddling = Some(whole);
                    }
                    Some(whole) => whole.extend_from_slice(&part),
                }
            }
            start = end;
        }
        straddling.unwrap_or_default().freeze()
    }

    /// Returns a borrowed range of the text; copies only if it straddles pieces.
    pub fn view(&mut self, range: Range<usize>) -> Cow<'_, [u8]> {
        self.seal();
        let mut start = 0;
        for (index, piece) in self.pieces.iter().enumerate() {
            let end = start + piece.len();
            if start <= range.start && range.end <= end {
                // Indexed again instead of using `piece`: the borrow checker rejects returning a borrow from inside the
                // loop.
                let piece = self.pieces.get(index).map(|piece| &piece[..]).unwrap_or_default();
                return Cow::Borrowed(piece.get(range.start - start..range.end - start).unwrap_or_default());
            }
            if range.start < end {
                break;
            }
            start = end;
        }
        Cow::Owned(self.slice(range).to_vec())
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

    fn push_exact(&mut self, piece: Bytes) {
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
impl Rope {
    /// Appends a piece of any size without copying it into another.
    pub(super) fn push_exact_for_test(&mut self, piece: Bytes) {
        self.push_exact(piece);
    }
}
