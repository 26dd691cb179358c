//! Byte-pair encoding (BPE): splits text into the tokens of OpenAI's vocabularies.
//!
//! Contains the vocabularies as compressed data (`data`), their table in memory (`encoder`), the split of a text into
//! pieces that no token crosses (`pretokenizer`) with the character classes that it rests on (`classes`), and the merge
//! of a piece's bytes to tokens (`merge`). Model families and their overheads must not live here.
//!
//! Source of the vocabularies and of the patterns: <https://github.com/openai/tiktoken> (MIT), read 2026-11-23.

mod classes;
mod encoder;
mod merge;
mod pretokenizer;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use vocabulary::{RunBlocking, set_blocking};
pub(super) use vocabulary::{Vocabulary, release_unused};
