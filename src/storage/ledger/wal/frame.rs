//! Frame format of a journal: length, checksum, number, payload. Truncated and overwritten frames fail the check.

/// Size of the opening of a segment, in bytes: magic number (8) and journal id (8).
pub(super) const OPENING: usize = 16;
const MAGIC: &[u8; 8] = b"MGWLEDG1";
/// Size of a frame header, in bytes: length (4), checksum (4), number (8). All little-endian.
pub(super) const HEADER: usize = 16;
/// Largest payload, in bytes. A larger length field means that the frame is invalid.
pub(super) const LARGEST: usize = 64 << 10;

/// Returns the opening of a segment.
pub fn opening(journal: u64) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    let (mark, id) = bytes.split_at_mut(MAGIC.len());
    mark.copy_from_slice(MAGIC);
    id.copy_from_slice(&journal.to_le_bytes());
    bytes
}

/// Appends a frame to a buffer. `payload` appends the payload.
pub fn write(journal: u64, number: u64, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // The header is filled in last: the payload is written in place, and its length is not known before.
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

/// Returns the CRC-32 of the journal id, number, length and payload. The id is included so that a frame of another
/// journal is not accepted.
fn checksum(journal: u64, number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&journal.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&(payload.len() as u64).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFrame<'a> {
    /// Sequence number; consecutive frames count up by one.
    pub number: u64,
    /// Payload, an encoded usage record.
    pub payload: &'a [u8],
}

/// Iterator over the frames of a segment. It ends at the first frame that is invalid or out of sequence.
#[derive(Clone, Copy, Debug)]
pub struct JournalFrames<'a> {
    journal: u64,
    last: Option<u64>,
    rest: &'a [u8],
}

impl<'a> JournalFrames<'a> {
    /// Reads a segment. Returns `None` if it does not begin with a valid opening.
    pub fn new(segment: &'a [u8]) -> Option<Self> {
        let (opening, rest) = segment.split_at_checked(OPENING)?;
        let id = opening.strip_prefix(MAGIC)?;
        Some(JournalFrames { journal: u64::from_le_bytes(id.try_into().ok()?), last: None, rest })
    }

    /// Returns the id of the journal.
    pub fn journal(&self) -> u64 {
        self.journal
    }

    /// Sets the number that the first frame must follow.
    pub(super) fn expect_after(&mut self, last: Option<u64>) {
        self.last = last;
    }

    /// Returns the number of the last frame that was read.
    pub(super) fn last_number(&self) -> Option<u64> {
        self.last
    }

    /// Returns the number of unread bytes.
    pub(super) fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for JournalFrames<'a> {
    type Item = JournalFrame<'a>;

    fn next(&mut self) -> Option<JournalFrame<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let (length, header) = header.split_first_chunk::<4>()?;
        let (sum, number) = header.split_first_chunk::<4>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let length = u32::from_le_bytes(*length) as usize;
        // A torn write can leave any length, so it is bounded before it is used.
        if length > LARGEST || self.last.is_some_and(|last| last.checked_add(1) != Some(number)) {
            return None;
        }
        let (payload, rest) = rest.split_at_checked(length)?;
        if checksum(self.journal, number, payload) != u32::from_le_bytes(*sum) {
            return None;
        }
        self.rest = rest;
        self.last = Some(number);
        Some(JournalFrame { number, payload })
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
        JournalFrames::new(segment).map_or(Vec::new(), |frames| frames.map(|frame| frame.number).collect())
    }

    #[test]
    fn frame_written_is_read_back() {
        let bytes = segment(7, &[(3, b"one"), (4, b""), (5, &[0xff; 300])]);
        let frames: Vec<JournalFrame<'_>> = JournalFrames::new(&bytes).unwrap().collect();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[0], JournalFrame { number: 3, payload: b"one" });
        assert_eq!(frames[1], JournalFrame { number: 4, payload: b"" });
        assert_eq!(frames[2], JournalFrame { number: 5, payload: &[0xff; 300] });
        assert_eq!(JournalFrames::new(&bytes).unwrap().journal(), 7);
    }

    #[test]
    fn frame_reading_ends_at_a_truncated_frame() {
        let bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"three")]);
        let ends = [16 + 19, 16 + 19 * 2, bytes.len()];
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(numbers(&bytes[..cut]).len(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn frame_reading_ends_at_a_flipped_bit() {
        let bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"three")]);
        for at in 0..bytes.len() * 8 {
            let mut spoilt = bytes.clone();
            spoilt[at / 8] ^= 1 << (at % 8);
            let read = numbers(&spoilt);
            assert!(read.len() < 3 && [1, 2, 3].starts_with(&read), "bit {at}: {read:?}");
        }
    }

    #[test]
    fn frame_left_from_an_earlier_use_is_not_read() {
        let mut bytes = segment(7, &[(1, b"one"), (2, b"two"), (3, b"six")]);
        let later = segment(7, &[(9, b"new")]);
        bytes[..later.len()].copy_from_slice(&later);
        assert_eq!(numbers(&bytes), [9]);
        // A frame of another journal must not be read, even if its number continues the sequence.
        let other = segment(8, &[(10, b"oth")]);
        bytes[later.len()..later.len() + 19].copy_from_slice(&other[16..]);
        assert_eq!(numbers(&bytes), [9]);
    }

    #[test]
    fn frame_length_beyond_the_bytes_ends_the_reading() {
        let mut bytes = segment(7, &[(1, b"one")]);
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(numbers(&bytes).is_empty());
        assert!(JournalFrames::new(&bytes[..15]).is_none() && JournalFrames::new(b"").is_none());
    }
}
