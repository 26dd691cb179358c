//! Journal segments: the files that frames are appended to. They are read in pieces, so that memory use does not depend
//! on the size of a segment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::frame::{self, JournalFrames};

/// Bytes read at a time. The largest frame fits in one piece.
const PIECE: usize = 1 << 20;

const _: () = assert!(PIECE > frame::HEADER + frame::LARGEST);

/// One of the two segment files of a journal. `end` is the offset behind the last frame, in bytes.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(super) file: File,
    pub(super) end: u64,
}

impl Segment {
    pub(super) fn is_empty(&self) -> bool {
        self.end <= frame::OPENING as u64
    }

    /// Returns a reader from the first frame to the last.
    pub(crate) fn pieces(&self) -> io::Result<Pieces> {
        Pieces::new(self.file.try_clone()?, self.end)
    }
}

/// Reader of a segment. Each piece consists of the opening and whole frames, so a piece is a valid segment itself.
#[derive(Debug)]
pub(crate) struct Pieces {
    file: File,
    /// Offset of the next frame, in bytes.
    at: u64,
    end: u64,
    /// Number of the last frame that was read.
    last: Option<u64>,
    piece: Vec<u8>,
}

impl Pieces {
    /// Creates a reader of the bytes before `end`. If the file is not a segment, it yields no pieces.
    pub(super) fn new(file: File, end: u64) -> io::Result<Self> {
        let mut opening = vec![0; frame::OPENING];
        // `end` is `u64::MAX` for the journal of an ended process, whose last frame is not known.
        let end = end.min(file.metadata()?.len());
        if end >= frame::OPENING as u64 {
            file.read_exact_at(&mut opening, 0)?;
        }
        let at = if JournalFrames::new(&opening).is_some() { frame::OPENING as u64 } else { end };
        Ok(Pieces { file, at, end, last: None, piece: opening })
    }

    /// Returns the next piece; `None` behind the last complete frame.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.piece.truncate(frame::OPENING);
        let length = self.end.saturating_sub(self.at).min(PIECE as u64);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.piece.resize(length.saturating_add(frame::OPENING), 0);
        let body = self.piece.get_mut(frame::OPENING..).unwrap_or_default();
        self.file.read_exact_at(body, self.at)?;
        let Some(mut frames) = JournalFrames::new(&self.piece) else { return Ok(None) };
        // A piece must continue the sequence of the previous one: old frames behind the end do not.
        frames.expect_after(self.last);
        frames.by_ref().for_each(drop);
        let (last, left) = (frames.last_number(), frames.remaining_bytes());
        let whole = length.saturating_sub(left);
        // Not one valid frame: it is torn, or left over from before the segment was recycled.
        if whole == 0 {
            self.at = self.end;
            return Ok(None);
        }
        (self.last, self.at) = (last, self.at.saturating_add(whole as u64));
        self.piece.truncate(whole.saturating_add(frame::OPENING));
        Ok(Some(&self.piece))
    }

    /// Returns the number of the first frame, or `None` if there is none, and rewinds the reader.
    pub(super) fn first(&mut self) -> io::Result<Option<u64>> {
        let first = self.next()?.and_then(JournalFrames::new).and_then(|mut frames| frames.next());
        let first = first.map(|frame| frame.number);
        if first.is_some() {
            (self.at, self.last) = (frame::OPENING as u64, None);
        }
        Ok(first)
    }

    /// Returns the memory of the buffer, in bytes.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
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
            let frames = JournalFrames::new(piece).unwrap();
            assert_eq!(frames.journal(), 7);
            read.extend(frames.map(|frame| (frame.number, frame.payload.len())));
        }
        read
    }

    /// Some frames straddle two pieces, and some have the largest permitted size.
    #[test]
    fn segment_is_read_in_pieces_with_bounded_memory() {
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
        assert!(pieces.buffer_bytes() <= 2 * PIECE, "{}", pieces.buffer_bytes());
        // A frame that is cut off ends the reading before it.
        let mut pieces = Pieces::new(file(&bytes), bytes.len() as u64 - 1).unwrap();
        assert_eq!(read(&mut pieces).len(), 999);
    }

    #[test]
    fn segment_reading_ends_at_a_gap_in_frame_numbers() {
        let mut bytes = opening(7).to_vec();
        for number in (1..=20).chain(30..=40) {
            write(7, number, &mut bytes, |out| out.resize(out.len() + frame::LARGEST, 1));
        }
        let mut pieces = Pieces::new(file(&bytes), u64::MAX).unwrap();
        assert_eq!(read(&mut pieces).len(), 20);
    }

    #[test]
    fn segment_invalid_has_no_frames() {
        for bytes in [&b""[..], b"short", &[0; 64], &opening(7)] {
            let mut pieces = Pieces::new(file(bytes), u64::MAX).unwrap();
            assert_eq!((pieces.first().unwrap(), read(&mut pieces).len()), (None, 0));
        }
    }
}
