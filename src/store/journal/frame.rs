//! Frames: length, checksum, number, payload. What was cut off or written over is not a frame.

/// What a segment begins with: a mark, and the journal's id.
pub(super) const OPENING: usize = 16;
const MARK: &[u8; 8] = b"MGWLEDG1";
/// Length (4), checksum (4), number (8).
pub(super) const HEADER: usize = 16;
/// Largest payload. What a length says beyond it is no length.
pub(super) const LARGEST: usize = 64 << 10;

/// The opening of a segment.
pub fn opening(journal: u64) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    let (mark, id) = bytes.split_at_mut(MARK.len());
    mark.copy_from_slice(MARK);
    id.copy_from_slice(&journal.to_le_bytes());
    bytes
}

/// Appends a frame to a buffer.
pub fn write(journal: u64, number: u64, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    payload(out);
    let Some(frame) = out.get_mut(start..) else { return };
    let Some((header, payload)) = frame.split_first_chunk_mut::<HEADER>() else { return };
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let sum = checksum(journal, number, payload).to_le_bytes();
    let number = number.to_le_bytes();
    for (slot, byte) in header.iter_mut().zip(length.into_iter().chain(sum).chain(number)) {
        *slot = byte;
    }
}

/// Over all but itself, and over the journal, so that no frame of another one is taken for one of this.
fn checksum(journal: u64, number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&journal.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&(payload.len() as u64).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its number; they count up by one.
    pub number: u64,
    /// What it carries.
    pub payload: &'a [u8],
}

/// The frames of a segment, up to the first that is none or that does not follow the one before.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    journal: u64,
    last: Option<u64>,
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Reads a segment; nothing, if it is none.
    pub fn new(segment: &'a [u8]) -> Option<Self> {
        let (opening, rest) = segment.split_at_checked(OPENING)?;
        let id = opening.strip_prefix(MARK)?;
        Some(Frames { journal: u64::from_le_bytes(id.try_into().ok()?), last: None, rest })
    }

    /// Whose segment it is.
    pub fn journal(&self) -> u64 {
        self.journal
    }

    /// The frames must follow one with this number.
    pub(super) fn follow(&mut self, last: Option<u64>) {
        self.last = last;
    }

    /// The number of the frame that was read last.
    pub(super) fn last_number(&self) -> Option<u64> {
        self.last
    }

    /// Bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let (length, header) = header.split_first_chunk::<4>()?;
        let (sum, number) = header.split_first_chunk::<4>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let length = u32::from_le_bytes(*length) as usize;
        if length > LARGEST || self.last.is_some_and(|last| last.checked_add(1) != Some(number)) {
            return None;
        }
        let (payload, rest) = rest.split_at_checked(length)?;
        if checksum(self.journal, number, payload) != u32::from_le_bytes(*sum) {
            return None;
        }
        self.rest = rest;
        self.last = Some(number);
        Some(Frame { number, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(journal: u64, frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = opening(journal).to_vec();
        for (number, payload) in frames {
            write(journal, *number, &mut bytes, |out| out.extend_from_slice(payload));
        }
        bytes
    }

    fn numbers(segment: &[u8]) -> Vec<u64> {
        Frames::new(segment).map_or(Vec::new(), |frames| frames.map(|frame| frame.number).collect())
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = segment(7, &[(3, b"one"), (4, b""), (5, &[0xff; 300])]);
        let frames: Vec<Frame<'_>> = Frames::new(&bytes).unwrap().collect();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[0], Frame { number: 3, payload: b"one" });
        assert_eq!(frames[1], Frame { number: 4, payload: b"" });
        assert_eq!(frames[2], Frame { number: 5, payload: &[0xff; 300] });
        assert_eq!(Frames::new(&bytes).unwrap().journal(), 7);
    }

    #[test]
    fn wherever_it_is_cut_whole_frames_are_read_and_no_other() {
        let bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"three")]);
        let ends = [16 + 19, 16 + 19 * 2, bytes.len()];
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(numbers(&bytes[..cut]).len(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_bit_that_changed_ends_the_reading() {
        let bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"three")]);
        for at in 0..bytes.len() * 8 {
            let mut spoilt = bytes.clone();
            spoilt[at / 8] ^= 1 << (at % 8);
            let read = numbers(&spoilt);
            assert!(read.len() < 3 && [1, 2, 3].starts_with(&read), "bit {at}: {read:?}");
        }
    }

    #[test]
    fn what_stands_behind_from_an_earlier_use_is_not_read() {
        let mut bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"six")]);
        let later = segment(7, &[(9, b"new")]);
        bytes[..later.len()].copy_from_slice(&later);
        assert_eq!(numbers(&bytes), [9]);
        // A frame of another journal, even with the number that would follow.
        let other = segment(8, &[(10, b"oth")]);
        bytes[later.len()..later.len() + 19].copy_from_slice(&other[16..]);
        assert_eq!(numbers(&bytes), [9]);
    }

    #[test]
    fn a_length_beyond_the_bytes_is_none() {
        let mut bytes = segment(7, &[(1, b"one")]);
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(numbers(&bytes).is_empty());
        assert!(Frames::new(&bytes[..15]).is_none() && Frames::new(b"").is_none());
    }
}
