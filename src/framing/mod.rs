//! From bytes to frames: where one event of a stream ends and the next begins.
//!
//! Here live the framings that providers stream in: server-sent events ([`sse`]) and one JSON array in pieces
//! ([`json_array`], Gemini without `alt=sse`). A splitter keeps a few bits of state, never text; whoever feeds it
//! keeps the beginning of a frame whose end has not arrived ([`FrameBuffer`]).
//!
//! Here must not live: what a frame means. No format is named and no JSON is read in this folder.

pub mod frame_buffer;
pub mod json_array;
pub mod sse;

#[cfg(test)]
mod tests;

pub use frame_buffer::FrameBuffer;

/// Finds frame boundaries in bytes that arrive in pieces.
#[derive(Clone, Debug)]
pub enum Splitter {
    /// Server-sent events.
    Sse(sse::SseSplitter),
    /// The elements of one JSON array.
    JsonArray(json_array::ArraySplitter),
}

impl Splitter {
    /// The offset just behind the next frame that ends in `piece[from..]`; nothing when none ends there, and then
    /// the piece has been taken note of and must not be shown again.
    #[inline]
    pub fn next_boundary(&mut self, piece: &[u8], from: usize) -> Option<usize> {
        match self {
            Splitter::Sse(splitter) => splitter.next_boundary(piece, from),
            Splitter::JsonArray(splitter) => splitter.next_boundary(piece, from),
        }
    }
}
