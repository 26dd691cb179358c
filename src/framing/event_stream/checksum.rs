//! Checksums of messages: CRC-32 (IEEE).
//!
//! The checksum of a message covers its prelude, so that it continues from the checksum of the lengths. These are eight
//! bytes: table lookups take a third of the instructions of the general function, which first selects an implementation
//! for the processor and for the number of bytes.

/// Length in bytes of the two lengths, at the beginning of a message.
pub(super) const LENGTHS: usize = 8;

/// Polynomial, with its bits in reverse order.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Checksums of single bytes that zero to seven zero bytes follow.
static TABLES: [[u32; 256]; LENGTHS] = tables();

#[allow(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which refuses an index that is out of range"
)]
const fn tables() -> [[u32; 256]; LENGTHS] {
    let mut tables = [[0; 256]; LENGTHS];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut step = 0;
        while step < 8 * LENGTHS {
            state = if state & 1 == 0 { state >> 1 } else { (state >> 1) ^ POLYNOMIAL };
            step += 1;
            if step % 8 == 0 {
                tables[step / 8 - 1][byte] = state;
            }
        }
        byte += 1;
    }
    tables
}

/// Returns the checksum of the two lengths.
#[inline]
pub(super) fn of_lengths(lengths: [u8; LENGTHS]) -> u32 {
    let [a, b, c, d, e, f, g, h] = lengths;
    let [a, b, c, d] = (u32::from_le_bytes([a, b, c, d]) ^ u32::MAX).to_le_bytes();
    let [first, second, third, fourth, fifth, sixth, seventh, eighth] = &TABLES;
    let each = |table: &[u32; 256], byte: u8| table.get(usize::from(byte)).copied().unwrap_or_default();
    !(each(eighth, a)
        ^ each(seventh, b)
        ^ each(sixth, c)
        ^ each(fifth, d)
        ^ each(fourth, e)
        ^ each(third, f)
        ^ each(second, g)
        ^ each(first, h))
}

/// Returns the checksum of a text whose beginning has the checksum `before`, and which goes on with `bytes`.
#[inline]
pub(super) fn continued(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn checksum_of_lengths_equals_that_of_the_general_function(lengths: [u8; LENGTHS], rest: Vec<u8>) {
            let before = of_lengths(lengths);
            prop_assert_eq!(before, crc32fast::hash(&lengths));
            prop_assert_eq!(continued(before, &rest), crc32fast::hash(&[&lengths[..], &rest].concat()));
        }
    }
}
