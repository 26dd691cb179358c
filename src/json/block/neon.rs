//! aarch64 implementation: NEON, 16 bytes at a time.
#![allow(unsafe_code, reason = "the compiler does not generate such masks")]

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqq_u8, vcltq_u8, vcombine_u8, vcreate_u8, vdupq_n_u8, vdupq_n_u64,
    vgetq_lane_u64, vorrq_u8, vpaddq_u8, vreinterpretq_u8_u64, vreinterpretq_u64_u8,
};

use super::{BLOCK, Brackets, Marks, Vectors};

/// Implementation with NEON.
#[derive(Clone, Copy)]
pub(in super::super) struct Neon;

impl Vectors for Neon {
    #[inline(always)]
    fn marks(self, block: &[u8; BLOCK]) -> Marks {
        // SAFETY: NEON is a part of aarch64 as Rust's targets define it. Nothing else is asked of the caller: no pointer
        // is involved.
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

#[target_feature(enable = "neon")]
#[inline]
fn marks(block: &[u8; BLOCK]) -> Marks {
    Marks {
        quotes: bits(block, |bytes| is(bytes, b'"')),
        slashes: bits(block, |bytes| is(bytes, b'\\')),
        controls: bits(block, |bytes| control(bytes)),
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn specials_in(block: &[u8; BLOCK]) -> u64 {
    bits(block, |bytes| vorrq_u8(vorrq_u8(is(bytes, b'"'), is(bytes, b'\\')), control(bytes)))
}

#[target_feature(enable = "neon")]
#[inline]
fn brackets(block: &[u8; BLOCK]) -> Brackets {
    // Folding bit 0x20 maps both kinds of brackets to the braces; no other byte maps to a brace.
    let folded = |bytes| vorrq_u8(bytes, vdupq_n_u8(0x20));
    Brackets {
        opening: bits(block, |bytes| is(folded(bytes), b'{')),
        closing: bits(block, |bytes| is(folded(bytes), b'}')),
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn is(bytes: uint8x16_t, byte: u8) -> uint8x16_t {
    vceqq_u8(bytes, vdupq_n_u8(byte))
}

#[target_feature(enable = "neon")]
#[inline]
fn control(bytes: uint8x16_t) -> uint8x16_t {
    vcltq_u8(bytes, vdupq_n_u8(0x20))
}

/// Returns one bit for each byte that is all ones. NEON has no instruction that collects the high bits: each byte keeps
/// the bit of its place among eight, and three pairwise additions join eight bytes each.
#[target_feature(enable = "neon")]
#[inline]
fn bits(block: &[u8; BLOCK], test: impl Fn(uint8x16_t) -> uint8x16_t) -> u64 {
    let places = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let (words, _) = block.as_chunks::<8>();
    let word = |n: usize| vcreate_u8(words.get(n).map_or(0, |word| u64::from_le_bytes(*word)));
    let quarter = |n: usize| vandq_u8(test(vcombine_u8(word(n), word(n + 1))), places);
    let halves = vpaddq_u8(vpaddq_u8(quarter(0), quarter(2)), vpaddq_u8(quarter(4), quarter(6)));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(halves, halves)))
}
