//! SIMD classification of 64-byte blocks: special characters as bit masks.
//!
//! Text with many escapes (programs, JSON in JSON) is slow in a reader that stops at each escape, because the branch is
//! unpredictable. Bit masks need no branch per escape.
//!
//! Each instruction set has an implementation of [`Vectors`]. All of them return the same masks as [`Words`], which is
//! plain Rust; it serves targets without an implementation of their own, and Miri.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
mod neon;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2;
#[cfg(any(
    test,
    miri,
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))
))]
mod words;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use avx2::Avx2;
/// Implementation for an instruction set that every processor of the target has.
#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub(super) use neon::Neon as Baseline;
/// Implementation for an instruction set that every processor of the target has.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use sse2::Sse2 as Baseline;
/// Implementation for an instruction set that every processor of the target has.
#[cfg(any(
    miri,
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))
))]
pub(super) use words::Words as Baseline;

#[cfg(test)]
pub(super) use words::Words;

/// Block size, in bytes.
pub(super) const BLOCK: usize = 64;

/// Size in bytes of the blocks in which a near end is searched.
pub(super) const NEAR_BLOCK: usize = 16;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Returns the high bit of each byte of `word` that is `"`, `\` or below 0x20. Bytes above the lowest such byte may be
/// marked wrongly, because a borrow propagates upwards; the lowest mark is always right.
#[inline]
pub(super) const fn specials(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    control | equal(word, b'"') | equal(word, b'\\')
}

/// Returns the high bit of each byte of `word` that equals `byte`; again only the lowest mark is reliable.
#[inline]
pub(super) const fn equal(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHS
}

/// Returns the high bit of each byte of `word` beyond ASCII.
#[inline]
pub(super) const fn beyond_ascii(word: u64) -> u64 {
    word & HIGHS
}

/// Classification of a block with the vectors of one instruction set. A value is the proof that the processor has it.
pub(super) trait Vectors: Copy {
    /// Returns the special bytes of a block, by kind.
    fn marks(self, block: &[u8; BLOCK]) -> Marks;

    /// Returns the mask of all special bytes: quotes, backslashes and control characters.
    fn specials_in(self, block: &[u8; BLOCK]) -> u64;

    /// Returns the brackets of a block.
    fn brackets(self, block: &[u8; BLOCK]) -> Brackets;

    /// Returns the offset of the first special byte; [`NEAR_BLOCK`] if there is none.
    #[inline(always)]
    fn first_special(self, bytes: &[u8; NEAR_BLOCK]) -> usize {
        let both = u128::from_le_bytes(*bytes);
        let (low, high) = (specials(both as u64), specials((both >> 64) as u64));
        let bits = if low == 0 { 64 + high.trailing_zeros() } else { low.trailing_zeros() };
        (bits / 8) as usize
    }
}

/// Bit masks of the special bytes of a block. The lowest bit is the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) quotes: u64,
    pub(super) slashes: u64,
    /// Control characters: bytes below 0x20.
    pub(super) controls: u64,
}

/// Bit masks of the brackets of a block, of objects and arrays alike. The lowest bit is the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brackets {
    pub(super) opening: u64,
    pub(super) closing: u64,
}

impl Marks {
    /// Shifts out the first `bytes` bytes, which must be fewer than [`BLOCK`].
    #[inline]
    pub(super) fn without_first(self, bytes: usize) -> Marks {
        Marks {
            quotes: self.quotes >> bytes,
            slashes: self.slashes >> bytes,
            controls: self.controls >> bytes,
        }
    }

    /// Returns the bytes that end or break a string: unescaped quotes and all control characters. An escaped line break
    /// still counts, because the string is inserted into frames that end with a line break. `carry` is whether the
    /// first byte is escaped; it is set to whether the byte after the block is.
    #[inline]
    pub(super) fn ends(self, carry: &mut bool) -> u64 {
        self.ends_and_escaped(carry).0
    }

    /// Same as `ends`, and also returns the mask of escaped bytes.
    #[inline]
    pub(super) fn ends_and_escaped(self, carry: &mut bool) -> (u64, u64) {
        let escaped = escaped(self.slashes, carry);
        ((self.quotes & !escaped) | self.controls, escaped)
    }

    /// Returns the unescaped quotes, with `carry` as in `ends`.
    #[inline]
    pub(super) fn unescaped_quotes(self, carry: &mut bool) -> u64 {
        self.quotes & !escaped(self.slashes, carry)
    }
}

/// Returns the mask of escaped bytes, from the mask of backslashes. A backslash escapes unless it is escaped itself, so
/// in a run every other one escapes. The subtraction propagates a borrow through each run, which handles runs that
/// start at even and at odd positions without a loop.
#[inline]
const fn escaped(slashes: u64, carry: &mut bool) -> u64 {
    let before = *carry as u64;
    if slashes == 0 {
        *carry = false;
        return before;
    }
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let maybe = slashes & !before;
    let behind = ((maybe << 1) | ODD).wrapping_sub(maybe) ^ ODD;
    *carry = (behind & slashes) >> 63 != 0;
    behind ^ (slashes | before)
}

/// Returns the bytes inside of strings, from the unescaped quotes: from each opening quote to the byte before its
/// closing one. `inside` is whether the block begins inside of a string.
#[inline]
pub(super) const fn strings(quotes: u64, inside: bool) -> u64 {
    let mut bits = quotes;
    // Prefix sum without carry: each bit becomes the parity of the quotes up to it.
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    if inside { !bits } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = [u8; BLOCK]> {
        let byte = prop_oneof![
            4 => Just(b'\\'), 2 => Just(b'"'), 2 => proptest::sample::select(&b"{}[]"[..]), 1 => 0u8..0x20,
            4 => any::<u8>(), 6 => Just(b'a'),
        ];
        proptest::collection::vec(byte, BLOCK).prop_map(|bytes| bytes.try_into().unwrap())
    }

    fn bits(block: &[u8; BLOCK], which: impl Fn(u8) -> bool) -> u64 {
        block.iter().enumerate().fold(0u64, |bits, (n, byte)| bits | u64::from(which(*byte)) << n)
    }

    /// Compares one implementation with the definition of the masks.
    fn check(vectors: impl Vectors, block: &[u8; BLOCK]) {
        let expected = Marks {
            quotes: bits(block, |byte| byte == b'"'),
            slashes: bits(block, |byte| byte == b'\\'),
            controls: bits(block, |byte| byte < 0x20),
        };
        assert_eq!(vectors.marks(block), expected);
        assert_eq!(vectors.specials_in(block), expected.quotes | expected.slashes | expected.controls);
        let expected = Brackets {
            opening: bits(block, |byte| matches!(byte, b'{' | b'[')),
            closing: bits(block, |byte| matches!(byte, b'}' | b']')),
        };
        assert_eq!(vectors.brackets(block), expected);
        for near in block.windows(NEAR_BLOCK).filter_map(|near| near.first_chunk()) {
            let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
            let expected = near.iter().position(is_special).unwrap_or(NEAR_BLOCK);
            assert_eq!(vectors.first_special(near), expected, "{near:?}");
        }
    }

    /// Compares all implementations that this processor has.
    fn check_all(block: &[u8; BLOCK]) {
        check(Words, block);
        check(Baseline, block);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(vectors) = Avx2::detect() {
            check(vectors, block);
        }
    }

    proptest! {
        #[test]
        fn block_masks_have_one_bit_per_byte(block in block()) {
            check_all(&block);
        }

        #[test]
        fn block_byte_after_an_unescaped_backslash_is_escaped(blocks in proptest::collection::vec(block(), 1..4)) {
            let (mut carry, mut next) = (false, false);
            for block in blocks {
                let mut expected = 0u64;
                for (n, byte) in block.iter().enumerate() {
                    expected |= u64::from(next) << n;
                    next = *byte == b'\\' && !next;
                }
                prop_assert_eq!(escaped(Baseline.marks(&block).slashes, &mut carry), expected);
                prop_assert_eq!(carry, next);
            }
        }

        #[test]
        fn block_strings_begin_at_one_quote_and_end_before_the_next(quotes in any::<u64>(), inside in any::<bool>()) {
            let (mut now, mut expected) = (inside, 0u64);
            for n in 0..BLOCK {
                now ^= quotes >> n & 1 == 1;
                expected |= u64::from(now) << n;
            }
            prop_assert_eq!(strings(quotes, inside), expected);
        }
    }

    // Without a generator, which takes minutes under Miri.
    #[test]
    fn block_of_each_byte_is_classified_by_all_implementations() {
        // Miri looks for undefined behavior, which no byte's value decides: a byte of each class is enough, and all of
        // them would take minutes.
        let is_tried =
            |byte: &u8| !cfg!(miri) || byte.is_multiple_of(32) || b"\"\\{}[],:\x1f\x7f".contains(byte);
        let places: &[usize] = if cfg!(miri) { &[0, 31, 63] } else { &[0, 15, 16, 31, 32, 47, 63] };
        for byte in (0..=u8::MAX).filter(is_tried) {
            for &at in places {
                let mut block = [b'a'; BLOCK];
                block[at] = byte;
                check_all(&block);
            }
        }
    }

    #[test]
    fn block_of_plain_text_has_no_marks() {
        for byte in [b'a', 0x20, 0x7f, 0x80, 0xff] {
            check_all(&[byte; BLOCK]);
            assert_eq!(Baseline.specials_in(&[byte; BLOCK]), 0);
        }
    }
}
