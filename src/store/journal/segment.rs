//! Segments: the files that frames are appended to, and how they are read: piece by piece, so that a segment takes the same
//! memory whatever its size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::frame::{self, Frames};

/// Bytes that are read at a time. The largest frame fits in.
const PIECE: usize = 1 << 20;

const _: () = assert!(PIECE > frame::HEADER + frame::LARGEST);

/// One of the two files of a journal.
#[derive(Debug)]
pub(in crate::store) struct Segment {
    pub(super) file: File,
    pub(super) end: u64,
}

impl Segment {
    /// Whether there is a frame in it.
    pub(super) fn is_empty(&self) -> bool {
        self.end <= frame::OPENING as u64
    }

    /// What was written, from its first frame to its last.
    pub(in crate::store) fn pieces(&self) -> io::Result<Pieces> {
        Pieces::new(self.file.try_clone()?, self.end)
    }
}

/// Reads a segment: each piece has the opening and whole frames, and so is a segment itself.
#[derive(Debug)]
pub(in crate::store) struct Pieces {
    file: File,
    /// Where the next frame begins.
    at: u64,
    end: u64,
    /// Number of the last frame that was read.
    last: Option<u64>,
    piece: Vec<u8>,
}

impl Pieces {
    /// Reads what stands before `end`; nothing, if the file is no segment.
    pub(super) fn new(file: File, end: u64) -> io::Result<Self> {
        let mut opening = vec![0; frame::OPENING];
        let end = end.min(file.metadata()?.len());
        if end >= frame::OPENING as u64 {
            file.read_exact_at(&mut opening, 0)?;
        }
        let at = if Frames::new(&opening).is_some() { frame::OPENING as u64 } else { end };
        Ok(Pieces { file, at, end, last: None, piece: opening })
    }

    /// The next piece; nothing behind the last whole frame.
    pub(in crate::store) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.piece.truncate(frame::OPENING);
        let length = self.end.saturating_sub(self.at).min(PIECE as u64);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.piece.resize(frame::OPENING + length, 0);
        let body = self.piece.get_mut(frame::OPENING..).unwrap_or_default();
        self.file.read_exact_at(body, self.at)?;
        let Some(mut frames) = Frames::new(&self.piece) else { return Ok(None) };
        frames.follow(self.last);
        frames.by_ref().for_each(drop);
        let (last, left) = (frames.last_number(), frames.left());
        let whole = length.saturating_sub(left);
        if whole == 0 {
            self.at = self.end;
            return Ok(None);
        }
        (self.last, self.at) = (last, self.at.saturating_add(whole as u64));
        self.piece.truncate(frame::OPENING + whole);
        Ok(Some(&self.piece))
    }

    /// The number of the first frame; nothing, where there is none. The next piece is the first one again.
    pub(super) fn first(&mut self) -> io::Result<Option<u64>> {
        let first = self.next()?.and_then(Frames::new).and_then(|mut frames| frames.next());
        let first = first.map(|frame| frame.number);
        if first.is_some() {
            (self.at, self.last) = (frame::OPENING as u64, None);
        }
        Ok(first)
    }

    /// Most bytes that were held at a time.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.piece.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::{opening, write};
    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read(pieces: &mut Pieces) -> Vec<(u64, usize)> {
        let mut read = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            let frames = Frames::new(piece).unwrap();
            assert_eq!(frames.journal(), 7);
            read.extend(frames.map(|frame| (frame.number, frame.payload.len())));
        }
        read
    }

    /// Sizes of which some straddle two pieces, and some are the largest that there may be.
    #[test]
    fn a_segment_is_read_in_pieces_and_takes_the_memory_of_one() {
        let mut bytes = opening(7).to_vec();
        let mut written = Vec::new();
        for number in 1..=1_000u64 {
            let size =
                if number % 10 == 0 { frame::LARGEST } else { usize::try_from(number).unwrap() * 7 % 5_000 };
            write(7, number, &mut bytes, |out| out.resize(out.len() + size, 1));
            written.push((number, size));
        }
        assert!(bytes.len() > 7 * PIECE);
        let mut pieces = Pieces::new(file(&bytes), u64::MAX).unwrap();
        assert_eq!(pieces.first().unwrap(), Some(1));
        assert_eq!(read(&mut pieces), written);
        assert!(pieces.held() <= 2 * PIECE, "{}", pieces.held());
        // An end in the middle of a frame ends the reading before it.
        let mut pieces = Pieces::new(file(&bytes), bytes.len() as u64 - 1).unwrap();
        assert_eq!(read(&mut pieces).len(), 999);
    }

    #[test]
    fn what_does_not_follow_on_the_piece_before_ends_the_reading() {
        let mut bytes = opening(7).to_vec();
        for number in (1..=20).chain(30..=40) {
            write(7, number, &mut bytes, |out| out.resize(out.len() + frame::LARGEST, 1));
        }
        let mut pieces = Pieces::new(file(&bytes), u64::MAX).unwrap();
        assert_eq!(read(&mut pieces).len(), 20);
    }

    #[test]
    fn what_is_no_segment_has_no_frames() {
        for bytes in [&b""[..], b"short", &[0; 64], &opening(7)] {
            let mut pieces = Pieces::new(file(bytes), u64::MAX).unwrap();
            assert_eq!((pieces.first().unwrap(), read(&mut pieces).len()), (None, 0));
        }
    }
}
