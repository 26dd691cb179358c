//! Fuzz targets: each is a function that panics when an invariant does not hold.
//!
//! libFuzzer calls the targets for long runs (`fuzz_targets/`), and `replay` calls them for each change, on a stable
//! toolchain (`main.rs`). A target compares the code with a slow reference implementation, with itself under other
//! splits, or with a documented invariant. It must not know the meaning of a response.

mod caching;
mod catalogue;
mod codec;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "config")]
mod encoding;
mod event_stream;
mod exchange;
#[cfg(feature = "config")]
mod http1;
mod images;
#[cfg(feature = "config")]
mod import;
#[cfg(feature = "config")]
mod journal;
mod json;
mod listener;
mod socket;
mod tokens;
mod translate;
mod videos;
mod wire;

pub use caching::{breakpoints, json_reverse};
pub use catalogue::catalogue;
pub use codec::framing;
#[cfg(feature = "config")]
pub use config::{config, keys_file};
#[cfg(feature = "config")]
pub use encoding::request_encoding;
pub use event_stream::{event_stream, signed_request};
pub use exchange::verbatim;
#[cfg(feature = "config")]
pub use http1::{chunks, head};
pub use images::images;
#[cfg(feature = "config")]
pub use import::import;
#[cfg(feature = "config")]
pub use journal::journal;
pub use json::{json_cursor, json_scanner};
#[cfg(feature = "config")]
pub use listener::forwarded;
pub use listener::proxy_header;
pub use socket::{websocket_events, websocket_frames};
pub use tokens::tokens;
pub use translate::{answer, schemas, seals, translated, translated_request};
pub use videos::videos;
pub use wire::{compaction, path, provider_error, request, spellings, watch};

/// Fuzz target: its name, which is also the name of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    ("json_scanner", json_scanner),
    ("json_cursor", json_cursor),
    ("json_reverse", json_reverse),
    ("breakpoints", breakpoints),
    ("framing", framing),
    ("event_stream", event_stream),
    ("signed_request", signed_request),
    ("tokens", tokens),
    ("websocket_frames", websocket_frames),
    ("websocket_events", websocket_events),
    ("proxy_header", proxy_header),
    ("path", path),
    ("request", request),
    ("spellings", spellings),
    ("compaction", compaction),
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
    ("catalogue", catalogue),
    #[cfg(feature = "config")]
    ("config", config),
    #[cfg(feature = "config")]
    ("keys_file", keys_file),
    #[cfg(feature = "config")]
    ("import", import),
    #[cfg(feature = "config")]
    ("journal", journal),
    #[cfg(feature = "config")]
    ("head", head),
    #[cfg(feature = "config")]
    ("forwarded", forwarded),
    #[cfg(feature = "config")]
    ("chunks", chunks),
    #[cfg(feature = "config")]
    ("request_encoding", request_encoding),
];

/// Takes one byte off the front of the input and returns a number below `count`.
fn choose(data: &mut &[u8], count: usize) -> usize {
    match data.split_first() {
        Some((first, rest)) => {
            *data = rest;
            usize::from(*first) % count
        }
        None => 0,
    }
}

/// Splits a text into pieces of pseudo-random sizes. Seed 0 gives one piece.
fn pieces(text: &[u8], seed: usize) -> Vec<&[u8]> {
    if seed == 0 {
        return vec![text];
    }
    let mut state = seed as u64;
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        // Knuth's MMIX generator. Its quality does not matter, but it is the same in every run.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let largest = [1, 2, 8, 64][seed % 4];
        let size = 1 + (state >> 33) as usize % largest;
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
