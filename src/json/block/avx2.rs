//! x86-64 implementation for processors with AVX2: 32 bytes at a time.
#![allow(unsafe_code, reason = "the compiler does not generate such masks")]

use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set_epi64x,
    _mm256_set1_epi8,
};

use super::{BLOCK, Brackets, Marks, Vectors};

/// Implementation with AVX2. A value exists only if the processor has AVX2 and POPCNT (the processors with AVX2 have
/// both): [`Avx2::detect`] is the one place that creates it.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx2(());

impl Avx2 {
    /// Returns the implementation; `None` if the processor lacks it. The standard library caches the answer.
    #[inline]
    pub(in super::super) fn detect() -> Option<Avx2> {
        let is_there =
            std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt");
        is_there.then_some(Avx2(()))
    }
}

impl Vectors for Avx2 {
    #[inline(always)]
    fn marks(self, block: &[u8; BLOCK]) -> Marks {
        // SAFETY: the processor has AVX2, because `self` exists. Nothing else is asked of the caller: no pointer is
        // involved.
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
}

#[target_feature(enable = "avx2")]
#[inline]
fn marks(block: &[u8; BLOCK]) -> Marks {
    Marks {
        quotes: bits(block, |bytes| is(bytes, b'"')),
        slashes: bits(block, |bytes| is(bytes, b'\\')),
        controls: bits(block, |bytes| control(bytes)),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn specials_in(block: &[u8; BLOCK]) -> u64 {
    bits(block, |bytes| _mm256_or_si256(_mm256_or_si256(is(bytes, b'"'), is(bytes, b'\\')), control(bytes)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn brackets(block: &[u8; BLOCK]) -> Brackets {
    // Folding bit 0x20 maps both kinds of brackets to the braces; no other byte maps to a brace.
    let folded = |bytes| _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
    Brackets {
        opening: bits(block, |bytes| is(folded(bytes), b'{')),
        closing: bits(block, |bytes| is(folded(bytes), b'}')),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn is(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte.cast_signed()))
}

#[target_feature(enable = "avx2")]
#[inline]
fn control(bytes: __m256i) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes)
}

/// Returns one bit for each byte that is all ones.
#[target_feature(enable = "avx2")]
#[inline]
fn bits(block: &[u8; BLOCK], test: impl Fn(__m256i) -> __m256i) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    let word = |n: usize| words.get(n).map_or(0, |word| i64::from_le_bytes(*word));
    // The compiler turns the four words into one load.
    let half = |n: usize| {
        let bytes = _mm256_set_epi64x(word(n + 3), word(n + 2), word(n + 1), word(n));
        u64::from(_mm256_movemask_epi8(test(bytes)).cast_unsigned())
    };
    half(0) | half(4) << 32
}
