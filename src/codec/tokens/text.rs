//! Token counts of texts: exact for short texts, sampled at regular intervals for long ones.

use std::borrow::Cow;

use super::bpe::Vocabulary;
use json::{JsonStr, RawJson};

/// Maximum size in bytes of texts that are counted exactly, and sample size of longer ones. A core tokenizes 20 to 30
/// MB/s of text with words, so a count takes about 10 ms, however long the text is. Random letters without spaces take some
/// 30 ms.
const EXACT: usize = 192 << 10;
/// Length of a sample in bytes. Cutting a token at its ends costs at most one token.
const WINDOW: usize = 4 << 10;
/// Maximum distance in bytes to search for a clean cut.
const NEAR: usize = 64;

/// See [`super::prepare`].
pub(super) fn prepare(table: Vocabulary) {
    table.encoder();
}

/// See [`super::decode`].
pub(super) fn decode(table: Vocabulary, tokens: &[u32]) -> Option<String> {
    table.encoder().decode(tokens)
}

/// Text of a request in its source form.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextPiece<'a> {
    /// Plain text.
    Plain(&'a str),
    /// Contents of a JSON string, with escapes.
    Escaped(JsonStr<'a>),
    /// JSON that the model gets as text.
    Json(RawJson<'a>),
}

impl<'a> TextPiece<'a> {
    fn source(self) -> &'a str {
        match self {
            TextPiece::Plain(text) => text,
            TextPiece::Escaped(text) => text.escaped(),
            TextPiece::Json(value) => value.text(),
        }
    }

    /// Returns the text that the model gets for a part of the source.
    fn meaning(self, part: &'a str) -> Cow<'a, str> {
        match self {
            TextPiece::Plain(_) => Cow::Borrowed(part),
            TextPiece::Escaped(_) => JsonStr::from_escaped(part).decode(),
            TextPiece::Json(_) => compact(part),
        }
    }
}

/// Returns the tokens of all pieces.
pub(super) fn count(table: Vocabulary, pieces: &[TextPiece<'_>]) -> u64 {
    count_up_to(table, pieces, EXACT)
}

/// Same as [`count`], with another limit of the exactly counted bytes.
pub(super) fn count_up_to(table: Vocabulary, pieces: &[TextPiece<'_>], exact: usize) -> u64 {
    let bytes: usize = pieces.iter().map(|piece| piece.source().len()).sum();
    if bytes == 0 {
        return 0;
    }
    let encoder = table.encoder();
    let tokens = |piece: TextPiece<'_>, part| encoder.count(&piece.meaning(part));
    if bytes <= exact {
        return pieces.iter().map(|piece| tokens(*piece, piece.source())).sum();
    }
    // Treat the pieces as one long text, and count one window in each stride.
    let stride = usize::try_from(bytes as u128 * WINDOW as u128 / exact.max(1) as u128).unwrap_or(usize::MAX);
    let (mut counted, mut seen) = (0u64, 0u64);
    let mut before = 0;
    for piece in pieces {
        let source = piece.source();
        let end = before + source.len();
        // First window that overlaps this piece.
        let first = before.saturating_sub(WINDOW - 1).div_ceil(stride);
        for start in (first..).map(|window| window * stride).take_while(|start| *start < end) {
            let from = cut(source, start.saturating_sub(before));
            let to = cut(source, (start + WINDOW - before).min(source.len()));
            if let Some(part) = source.get(from..to).filter(|part| !part.is_empty()) {
                counted += tokens(*piece, part);
                seen += part.len() as u64;
            }
        }
        before = end;
    }
    let whole = u128::from(counted) * bytes as u128 / u128::from(seen.max(1));
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// Returns the first clean cut at or after `at`: on a character boundary and not inside an escape sequence.
fn cut(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let clean = |at: &usize| {
        let before = bytes.get(at.saturating_sub(6)..*at).unwrap_or_default();
        let begins_escape = bytes.get(*at) == Some(&b'\\') && before.last() != Some(&b'\\');
        text.is_char_boundary(*at) && (begins_escape || !before.contains(&b'\\'))
    };
    let end = (at + NEAR).min(text.len());
    // A cut inside an escape costs a token or two, so fall back to the next character boundary.
    (at..end)
        .find(clean)
        .or_else(|| (at..text.len()).find(|at| text.is_char_boundary(*at)))
        .unwrap_or(text.len())
}

/// Removes the white space between the values of JSON.
fn compact(json: &str) -> Cow<'_, str> {
    if !json.contains([' ', '\n', '\r', '\t']) {
        return Cow::Borrowed(json);
    }
    let (mut quoted, mut escaped) = (false, false);
    let kept = json.chars().filter(|c| {
        if !quoted {
            quoted = *c == '"';
            return !matches!(c, ' ' | '\n' | '\r' | '\t');
        }
        quoted = escaped || *c != '"';
        escaped = !escaped && *c == '\\';
        true
    });
    Cow::Owned(kept.collect())
}
