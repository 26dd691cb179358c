//! How many tokens a request or a text is, estimated here, without asking anybody.
//!
//! Here live the families of models and what each adds around the words of a request ([`Family`]), the tokenizers that
//! stand behind them (`text`), the walk over a request on the hub (`tally`), and what a document, a sound or a video is
//! taken for (`media`). How far the estimates are from what providers count is measured by `tests/tokens.rs` and told
//! in docs/token-counting.md.
//!
//! Here must not live: formats (a request comes from the hub, so that all formats count alike), prices, limits,
//! sockets.

mod family;
mod media;
mod tally;
mod text;

#[cfg(test)]
mod tests;

pub use family::Family;
pub use media::IMAGE;
pub use tally::Tally;

use crate::canonical::Request;

/// The tokens of a request's input: instructions, turns, tools, pictures and documents.
pub fn count_request(family: Family, request: &Request<'_>) -> u64 {
    Tally::of(request).tokens(family)
}

/// The tokens of a plain text, without anything around it.
///
/// ```
/// use model_gateway::tokens::{Family, count_text};
/// assert_eq!(count_text(Family::of("gpt-4o"), "Hello, world!"), 4);
/// ```
pub fn count_text(family: Family, text: &str) -> u64 {
    count_texts(family, [text])
}

/// The tokens of several plain texts together, each counted by itself; of very long ones parts are counted.
pub fn count_texts<'t>(family: Family, texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let pieces: Vec<text::Piece<'t>> = texts.into_iter().map(text::Piece::Plain).collect();
    family.rule().scaled(text::count(family.rule().table, &pieces))
}

/// The text of tokens of a family's vocabulary; nothing where the family has no vocabulary of its own here, or where
/// the tokens are none of it or no text.
pub fn decode(family: Family, tokens: &[u32]) -> Option<String> {
    if family.rule().words != 1_000 {
        return None;
    }
    text::decode(family.rule().table, tokens)
}

/// Reads the family's vocabulary, unless that has been done: a twentieth of a second that the first count would take
/// longer.
pub fn prepare(family: Family) {
    text::prepare(family.rule().table);
}

/// Whether [`prepare`] has nothing left to do for this family.
pub fn is_ready(family: Family) -> bool {
    text::is_ready(family.rule().table)
}
