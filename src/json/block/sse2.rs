//! x86-64 implementation for every processor: SSE2, 16 bytes at a time.
#![allow(
    unsafe_code,
    reason = "the compiler does not generate such masks; half of the cost of a request with tools is here"
)]

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
};

use super::{BLOCK, Brackets, Marks, NEAR_BLOCK, Vectors};

/// Implementation with SSE2.
#[derive(Clone, Copy)]
pub(in super::super) struct Sse2;

impl Vectors for Sse2 {
    #[inline(always)]
    fn marks(self, block: &[u8; BLOCK]) -> Marks {
        // SAFETY: SSE2 is a part of x86-64. Nothing else is asked of the caller: no pointer is involved.
        unsafe { marks(block) }
    }

    #[inline(always)]
    fn specials_in(self, block: &[u8; BLOCK]) -> u64 {
        // SAFETY: as above.
        unsafe { specials_in(block) }
    }

    #[inline(always)]
    fn brackets(self, block: &[u8; BLOCK]) -> Brackets {
        // SAFETY: as above.
        unsafe { brackets(block) }
    }

    #[inline(always)]
    fn first_special(self, bytes: &[u8; NEAR_BLOCK]) -> usize {
        // SAFETY: as above.
        unsafe { first_special(bytes) }
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn marks(block: &[u8; BLOCK]) -> Marks {
    Marks {
        quotes: bits(block, |bytes| is(bytes, b'"')),
        slashes: bits(block, |bytes| is(bytes, b'\\')),
        controls: bits(block, |bytes| control(bytes)),
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn specials_in(block: &[u8; BLOCK]) -> u64 {
    bits(block, |bytes| _mm_or_si128(_mm_or_si128(is(bytes, b'"'), is(bytes, b'\\')), control(bytes)))
}

#[target_feature(enable = "sse2")]
#[inline]
fn brackets(block: &[u8; BLOCK]) -> Brackets {
    // Folding bit 0x20 maps both kinds of brackets to the braces; no other byte maps to a brace.
    let folded = |bytes| _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    Brackets {
        opening: bits(block, |bytes| is(folded(bytes), b'{')),
        closing: bits(block, |bytes| is(folded(bytes), b'}')),
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn first_special(bytes: &[u8; NEAR_BLOCK]) -> usize {
    let bytes = load(bytes);
    let specials = _mm_or_si128(_mm_or_si128(is(bytes, b'"'), is(bytes, b'\\')), control(bytes));
    // A bit behind the last byte, for bytes without a special one.
    (_mm_movemask_epi8(specials).cast_unsigned() | 1 << NEAR_BLOCK).trailing_zeros() as usize
}

#[target_feature(enable = "sse2")]
#[inline]
fn load(bytes: &[u8; 16]) -> __m128i {
    let both = u128::from_le_bytes(*bytes);
    _mm_set_epi64x(((both >> 64) as u64).cast_signed(), (both as u64).cast_signed())
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
        bits |= u64::from(_mm_movemask_epi8(test(load(quarter))).cast_unsigned()) << (16 * n);
    }
    bits
}
