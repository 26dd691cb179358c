//! Long strings and containers, with the widest vectors of the processor. The choice is made once per run.

use super::block::{BLOCK, Baseline};
use super::{container, run};

/// Defines the function of this name that calls its namesake in a module with the widest vectors.
macro_rules! with_widest_vectors {
    ($(#[$attribute:meta])* $module:ident::$name:ident($($argument:ident: $kind:ty),*) -> $result:ty) => {
        $(#[$attribute])*
        #[allow(unsafe_code, reason = "a function for some processors only is called if this is one of them")]
        pub(super) fn $name($($argument: $kind),*) -> $result {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if let Some(vectors) = super::block::Avx2::detect() {
                // The namesake is inlined, and compiled for AVX2.
                #[target_feature(enable = "avx2,popcnt")]
                fn wide(vectors: super::block::Avx2, $($argument: $kind),*) -> $result {
                    $module::$name(vectors, $($argument),*)
                }
                // SAFETY: the processor has AVX2, because `vectors` exists.
                return unsafe { wide(vectors, $($argument),*) };
            }
            $module::$name(Baseline, $($argument),*)
        }
    };
}

with_widest_vectors! {
    /// Returns the number of leading blocks without a special byte.
    run::clean_blocks(blocks: &[[u8; BLOCK]]) -> usize
}

with_widest_vectors! {
    /// Returns the offset of the byte that ends or breaks the string: see [`run::end_in_blocks`].
    run::end_in_blocks(blocks: &[[u8; BLOCK]], carry: &mut bool) -> Option<usize>
}

with_widest_vectors! {
    /// Skips whole blocks of an object or array: see [`container::skip_blocks`](super::container::skip_blocks).
    container::skip_blocks(bytes: &[u8], at: usize, depth: u32) -> (usize, u32)
}
