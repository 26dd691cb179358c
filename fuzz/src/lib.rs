//! What is held against arbitrary bytes: each target is a plain function that panics when a promise is broken.
//!
//! A target is called by libFuzzer (`fuzz_targets/`, for long runs) and by `replay` (`main.rs`, on a stable toolchain,
//! for each change). Here must not live: knowledge of what an answer means; a target compares the code with a slow
//! twin, with itself under other splits, or with what it promises.

mod codec;
#[cfg(feature = "config")]
mod config;
mod exchange;
#[cfg(feature = "config")]
mod http1;
mod images;
#[cfg(feature = "config")]
mod journal;
mod json;
mod translate;
mod videos;
mod wire;

pub use codec::framing;
#[cfg(feature = "config")]
pub use config::{config, keys_file};
pub use exchange::verbatim;
#[cfg(feature = "config")]
pub use http1::{chunks, head};
pub use images::images;
#[cfg(feature = "config")]
pub use journal::journal;
pub use json::{json_cursor, json_scanner};
pub use translate::{answer, schemas, seals, translated, translated_request};
pub use videos::videos;
pub use wire::{path, provider_error, request, spellings, watch};

/// A target: its name, which is the name of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("json_scanner", json_scanner),
    ("json_cursor", json_cursor),
    ("framing", framing),
    ("path", path),
    ("request", request),
    ("spellings", spellings),
    ("watch", watch),
    ("provider_error", provider_error),
    ("verbatim", verbatim),
    ("translated", translated),
    ("answer", answer),
    ("translated_request", translated_request),
    ("seals", seals),
    ("schemas", schemas),
    ("images", images),
    ("videos", videos),
    #[cfg(feature = "config")]
    ("config", config),
    #[cfg(feature = "config")]
    ("keys_file", keys_file),
    #[cfg(feature = "config")]
    ("journal", journal),
    #[cfg(feature = "config")]
    ("head", head),
    #[cfg(feature = "config")]
    ("chunks", chunks),
];

/// Takes a choice of `count` off the front of the input.
fn choose(data: &mut &[u8], count: usize) -> usize {
    match data.split_first() {
        Some((first, rest)) => {
            *data = rest;
            usize::from(*first) % count
        }
        None => 0,
    }
}

/// Cuts a text into pieces whose sizes are led by `seed`; 0 is one piece.
fn pieces(text: &[u8], seed: usize) -> Vec<&[u8]> {
    if seed == 0 {
        return vec![text];
    }
    let mut state = seed as u64;
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        // Knuth's MMIX generator: any spread will do, but the same each time.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let largest = [1, 2, 8, 64][seed % 4];
        let size = 1 + (state >> 33) as usize % largest;
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
