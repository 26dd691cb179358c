//! Token estimation: counts the tokens of a request or a text locally, without a call to a provider.
//!
//! Contains the model families with the overhead that each adds to the text of a request ([`TokenizerFamily`]), the
//! vocabularies and the split of text into their tokens (`bpe`), the count of a request's texts (`text`), the walk over a canonical request (`tally`), and the estimates for documents, audio and video
//! (`media`). `tests/tokens.rs` measures the deviation from the providers' counts; docs/token-counting.md lists it.
//!
//! Formats (requests are canonical, so that all formats count alike), prices, limits and sockets must not live here.

mod bpe;
mod family;
mod media;
mod tally;
mod text;

#[cfg(test)]
mod tests;

pub use bpe::{RunBlocking, set_blocking};
pub use family::TokenizerFamily;
pub use media::IMAGE;
pub use tally::Tally;

use crate::canonical::Request;

/// Returns the input tokens of a request: instructions, turns, tools, images and documents.
pub fn count_request(family: TokenizerFamily, request: &Request<'_>) -> u64 {
    Tally::of(request).tokens(family)
}

/// Returns the tokens of a plain text, without the overhead of a request.
///
/// ```
/// use model_gateway_codec::tokens::{TokenizerFamily, count_text};
/// assert_eq!(count_text(TokenizerFamily::of("gpt-4o"), "Hello, world!"), 4);
/// ```
pub fn count_text(family: TokenizerFamily, text: &str) -> u64 {
    count_texts(family, [text])
}

/// Returns the tokens of several plain texts, each tokenized separately. Very long texts are sampled.
pub fn count_texts<'t>(family: TokenizerFamily, texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let pieces: Vec<text::TextPiece<'t>> = texts.into_iter().map(text::TextPiece::Plain).collect();
    family.rule().scaled(text::count(family.rule().table, &pieces))
}

/// Decodes token ids to text. `None` if the family's texts are only counted with the vocabulary of another, a token id
/// is unknown, or the tokens are not valid text.
pub fn decode(family: TokenizerFamily, tokens: &[u32]) -> Option<String> {
    family.has_own_vocabulary().then(|| text::decode(family.rule().table, tokens)).flatten()
}

/// Loads the vocabulary of a family if it is not loaded yet, so that the first count does not have to.
pub fn prepare(family: TokenizerFamily) {
    text::prepare(family.rule().table);
}

/// Returns whether the vocabulary of a family is loaded.
pub fn is_ready(family: TokenizerFamily) -> bool {
    family.rule().table.is_loaded()
}

/// Releases the vocabularies that were not used since the last call, and returns how many. The next use loads them again.
pub fn release_unused() -> usize {
    bpe::release_unused()
}
