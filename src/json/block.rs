//! SIMD classification of 64-byte blocks: quotes, backslashes and control characters as bit masks.
//!
//! Text with many escapes (programs, JSON in JSON) is slow in a reader that stops at each escape, because the branch is
//! unpredictable. Bit masks need no branch per escape.

/// Block size, in bytes.
pub(super) const BLOCK: usize = 64;

/// Bit masks of the special bytes of a block. The lowest bit is the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) quotes: u64,
    pub(super) slashes: u64,
    /// Control characters: bytes below 0x20.
    pub(super) controls: u64,
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

/// Returns the special bytes of a block, by kind.
#[inline]
pub(super) fn marks(block: &[u8; BLOCK]) -> Marks {
    vectors::marks(block)
}

/// Returns the mask of all special bytes: quotes, backslashes and control characters.
#[inline]
pub(super) fn specials_in(block: &[u8; BLOCK]) -> u64 {
    vectors::specials_in(block)
}

#[cfg(not(target_arch = "x86_64"))]
use words as vectors;

/// SSE2 implementation, 16 bytes at a time.
#[cfg(target_arch = "x86_64")]
#[allow(
    unsafe_code,
    reason = "the compiler does not generate such masks; half of the cost of a request with tools is here"
)]
mod vectors {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    use super::{BLOCK, Marks};

    #[inline]
    pub(super) fn marks(block: &[u8; BLOCK]) -> Marks {
        // SAFETY: SSE2 is a part of x86-64. Nothing else is asked of the caller: no pointer is involved.
        unsafe { marks_of(block) }
    }

    #[inline]
    pub(super) fn specials_in(block: &[u8; BLOCK]) -> u64 {
        // SAFETY: as above.
        unsafe { specials_of(block) }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn marks_of(block: &[u8; BLOCK]) -> Marks {
        Marks {
            quotes: bits(block, |bytes| is(bytes, b'"')),
            slashes: bits(block, |bytes| is(bytes, b'\\')),
            controls: bits(block, |bytes| control(bytes)),
        }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn specials_of(block: &[u8; BLOCK]) -> u64 {
        bits(block, |bytes| _mm_or_si128(_mm_or_si128(is(bytes, b'"'), is(bytes, b'\\')), control(bytes)))
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn is(bytes: __m128i, byte: u8) -> __m128i {
        _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()))
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn control(bytes: __m128i) -> __m128i {
        _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes)
    }

    /// Returns one bit for each byte that is all ones.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn bits(block: &[u8; BLOCK], test: impl Fn(__m128i) -> __m128i) -> u64 {
        let (quarters, _) = block.as_chunks::<16>();
        let mut bits = 0;
        for (n, quarter) in quarters.iter().enumerate() {
            let both = u128::from_le_bytes(*quarter);
            let bytes = _mm_set_epi64x(((both >> 64) as u64).cast_signed(), (both as u64).cast_signed());
            bits |= u64::from(_mm_movemask_epi8(test(bytes)).cast_unsigned()) << (16 * n);
        }
        bits
    }
}

/// Portable SWAR implementation, 8 bytes at a time.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use super::{BLOCK, Marks};

    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOWS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

    pub(super) fn marks(block: &[u8; BLOCK]) -> Marks {
        // The high bit of each byte that is zero; no carry crosses a byte boundary.
        let zero = |word: u64| !(((word & LOWS) + LOWS) | word | LOWS);
        // Gathers the high bits of the 8 bytes into the low 8 bits.
        let gather = |highs: u64| (highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let mut marks = Marks { quotes: 0, slashes: 0, controls: 0 };
        let (words, _) = block.as_chunks::<8>();
        for (n, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let is = |byte: u8| gather(zero(word ^ (ONES * u64::from(byte)))) << (8 * n);
            marks.quotes |= is(b'"');
            marks.slashes |= is(b'\\');
            marks.controls |= gather(zero(word & (ONES * 0xe0))) << (8 * n);
        }
        marks
    }

    pub(super) fn specials_in(block: &[u8; BLOCK]) -> u64 {
        let Marks { quotes, slashes, controls } = marks(block);
        quotes | slashes | controls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = [u8; BLOCK]> {
        let byte =
            prop_oneof![4 => Just(b'\\'), 2 => Just(b'"'), 1 => 0u8..0x20, 4 => any::<u8>(), 6 => Just(b'a')];
        proptest::collection::vec(byte, BLOCK).prop_map(|bytes| bytes.try_into().unwrap())
    }

    proptest! {
        #[test]
        fn block_marks_have_one_bit_per_byte(block in block()) {
            let bits = |which: &dyn Fn(u8) -> bool| {
                block.iter().enumerate().fold(0u64, |bits, (n, byte)| bits | u64::from(which(*byte)) << n)
            };
            let expected = Marks {
                quotes: bits(&|byte| byte == b'"'),
                slashes: bits(&|byte| byte == b'\\'),
                controls: bits(&|byte| byte < 0x20),
            };
            prop_assert_eq!(marks(&block), expected);
            prop_assert_eq!(words::marks(&block), expected);
            let all = expected.quotes | expected.slashes | expected.controls;
            prop_assert_eq!((specials_in(&block), words::specials_in(&block)), (all, all));
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
                prop_assert_eq!(escaped(marks(&block).slashes, &mut carry), expected);
                prop_assert_eq!(carry, next);
            }
        }
    }

    // Without a generator, which takes minutes under Miri.
    #[test]
    fn block_of_each_byte_is_classified_by_both_implementations() {
        for byte in 0..=u8::MAX {
            for at in [0, 15, 16, 47, 63] {
                let mut block = [b'a'; BLOCK];
                block[at] = byte;
                let expected = Marks {
                    quotes: u64::from(byte == b'"') << at,
                    slashes: u64::from(byte == b'\\') << at,
                    controls: u64::from(byte < 0x20) << at,
                };
                assert_eq!((marks(&block), words::marks(&block)), (expected, expected));
                let all = expected.quotes | expected.slashes | expected.controls;
                assert_eq!((specials_in(&block), words::specials_in(&block)), (all, all));
            }
        }
    }

    #[test]
    fn block_of_plain_text_has_no_marks() {
        for byte in [b'a', 0x20, 0x7f, 0x80, 0xff] {
            assert_eq!((specials_in(&[byte; BLOCK]), words::specials_in(&[byte; BLOCK])), (0, 0));
        }
    }
}
