//! Portable implementation: SWAR, 8 bytes at a time.

use super::{BLOCK, Brackets, Marks, Vectors};

const ONES: u64 = 0x0101_0101_0101_0101;
const LOWS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Implementation in plain Rust.
#[derive(Clone, Copy)]
pub(in super::super) struct Words;

/// Returns one bit for each byte of a word that is zero.
#[inline]
fn zeros(word: u64) -> u64 {
    // The high bit of each byte that is zero; no carry crosses a byte boundary.
    let highs = !(((word & LOWS) + LOWS) | word | LOWS);
    // Gathers the high bits of the 8 bytes into the low 8 bits.
    (highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Returns one bit for each byte that `test` maps to zero in its word.
#[inline]
fn bits(block: &[u8; BLOCK], test: impl Fn(u64) -> u64) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    words
        .iter()
        .enumerate()
        .fold(0, |bits, (n, word)| bits | zeros(test(u64::from_le_bytes(*word))) << (8 * n))
}

impl Vectors for Words {
    #[inline(always)]
    fn marks(self, block: &[u8; BLOCK]) -> Marks {
        Marks {
            quotes: bits(block, |word| word ^ (ONES * u64::from(b'"'))),
            slashes: bits(block, |word| word ^ (ONES * u64::from(b'\\'))),
            controls: bits(block, |word| word & (ONES * 0xe0)),
        }
    }

    #[inline(always)]
    fn specials_in(self, block: &[u8; BLOCK]) -> u64 {
        let Marks { quotes, slashes, controls } = self.marks(block);
        quotes | slashes | controls
    }

    #[inline(always)]
    fn brackets(self, block: &[u8; BLOCK]) -> Brackets {
        // Folding bit 0x20 maps both kinds of brackets to the braces; no other byte maps to a brace.
        let is = |brace: u8| bits(block, |word| (word | (ONES * 0x20)) ^ (ONES * u64::from(brace)));
        Brackets { opening: is(b'{'), closing: is(b'}') }
    }
}
