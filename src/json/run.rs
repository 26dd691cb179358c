//! How far plain text reaches inside a JSON string: the inner loop of every reader in this folder.
//!
//! Most strings end within a few bytes and a few are megabytes of base64, so there are two gaits: eight bytes at a
//! time in a register, which finds a near end exactly, and blocks that the compiler turns into vector compares.

/// Bytes that the register gait tries before the block gait takes over.
const NEAR: usize = 24;
/// A block: four SSE registers, or two AVX2 ones.
const BLOCK: usize = 64;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte of `word` that is `"`, `\` or below 0x20. Bytes above the lowest such byte may be marked
/// wrongly (a borrow runs upwards); the lowest mark is always right.
#[inline]
const fn specials(word: u64) -> u64 {
    const fn equal(word: u64, byte: u8) -> u64 {
        let zero_where_equal = word ^ (ONES * byte as u64);
        zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHS
    }
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    control | equal(word, b'"') | equal(word, b'\\')
}

/// The number of leading bytes of `bytes` that are plain text: neither `"`, nor `\`, nor below 0x20.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < NEAR {
        match word_at(bytes, done) {
            Some(word) => match specials(word) {
                0 => done += 8,
                marks => return done + (marks.trailing_zeros() / 8) as usize,
            },
            None => return done + tail(bytes.get(done..).unwrap_or_default()),
        }
    }
    far(bytes, done)
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*eight))
}

/// The last bytes, fewer than eight.
#[inline]
fn tail(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(bytes.len())
}

/// Long text.
fn far(bytes: &[u8], from: usize) -> usize {
    let mut done = from;
    let (blocks, _) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    for block in blocks {
        // Branch-free over the block, so that it becomes vector code.
        let mut hit = 0u8;
        for &byte in block {
            hit |= u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
        }
        if hit != 0 {
            break;
        }
        done += BLOCK;
    }
    while let Some(word) = word_at(bytes, done) {
        match specials(word) {
            0 => done += 8,
            marks => return done + (marks.trailing_zeros() / 8) as usize,
        }
    }
    done + tail(bytes.get(done..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_gaits_find_the_first_special_byte(
            mut text in proptest::collection::vec(0x20u8..=0xff, 0..400),
            marks in proptest::collection::vec((0usize..400, any::<u8>()), 0..6),
        ) {
            for (at, byte) in marks {
                if let Some(slot) = text.get_mut(at) {
                    *slot = byte;
                }
            }
            for start in [0, 1, 7] {
                let text = text.get(start..).unwrap_or_default();
                prop_assert_eq!(plain_run(text), tail(text));
            }
        }
    }
}
