//! Texts into numbers of tokens: exactly as long as they are short, from evenly spaced parts when they are long.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::json::{JsonStr, RawJson};

/// Up to so many bytes all of the text is counted. A core counts 20 to 30 MB a second, so that a count takes 10 ms at
/// most, however long the text is.
const EXACT: usize = 192 << 10;
/// The length of a part that is counted of a longer text. What is cut at its ends is wrong by one token at most.
const WINDOW: usize = 4 << 10;
/// How far a better place for a cut is looked for.
const NEAR: usize = 64;

/// A vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// GPT-4o and later.
    O200k,
    /// GPT-4, GPT-3.5 and the third embedding models.
    Cl100k,
}

static READY: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

impl Table {
    fn tokenizer(self) -> &'static bpe_openai::Tokenizer {
        let tokenizer = match self {
            Table::O200k => bpe_openai::o200k_base(),
            Table::Cl100k => bpe_openai::cl100k_base(),
        };
        self.ready().store(true, Ordering::Release);
        tokenizer
    }

    fn ready(self) -> &'static AtomicBool {
        let [o200k, cl100k] = &READY;
        match self {
            Table::O200k => o200k,
            Table::Cl100k => cl100k,
        }
    }
}

/// See [`super::prepare`].
pub(super) fn prepare(table: Table) {
    table.tokenizer().count("ready");
}

/// See [`super::is_ready`].
pub(super) fn is_ready(table: Table) -> bool {
    table.ready().load(Ordering::Acquire)
}

/// See [`super::decode`].
pub(super) fn decode(table: Table, tokens: &[u32]) -> Option<String> {
    let tokenizer = table.tokenizer();
    let known = u32::try_from(tokenizer.bpe.num_tokens()).ok()?;
    if tokens.iter().any(|token| *token >= known) {
        return None;
    }
    tokenizer.decode(tokens)
}

/// A text as it stands in a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// Plain.
    Plain(&'a str),
    /// The inside of a JSON string.
    Escaped(JsonStr<'a>),
    /// JSON that the model sees as text.
    Json(RawJson<'a>),
}

impl<'a> Piece<'a> {
    fn source(self) -> &'a str {
        match self {
            Piece::Plain(text) => text,
            Piece::Escaped(text) => text.escaped(),
            Piece::Json(value) => value.text(),
        }
    }

    /// What a part of the source means.
    fn meaning(self, part: &'a str) -> Cow<'a, str> {
        match self {
            Piece::Plain(_) => Cow::Borrowed(part),
            Piece::Escaped(_) => JsonStr::from_escaped(part).decode(),
            Piece::Json(_) => compact(part),
        }
    }
}

/// The tokens of all pieces.
pub(super) fn count(table: Table, pieces: &[Piece<'_>]) -> u64 {
    count_up_to(table, pieces, EXACT)
}

/// The same with another bound.
pub(super) fn count_up_to(table: Table, pieces: &[Piece<'_>], exact: usize) -> u64 {
    let bytes: usize = pieces.iter().map(|piece| piece.source().len()).sum();
    if bytes == 0 {
        return 0;
    }
    let tokenizer = table.tokenizer();
    let tokens = |piece: Piece<'_>, part| tokenizer.count(&*piece.meaning(part)) as u64;
    if bytes <= exact {
        return pieces.iter().map(|piece| tokens(*piece, piece.source())).sum();
    }
    // The pieces as one long text, of which a window is counted in each stride.
    let stride = usize::try_from(bytes as u128 * WINDOW as u128 / exact.max(1) as u128).unwrap_or(usize::MAX);
    let (mut counted, mut seen) = (0u64, 0u64);
    let mut before = 0;
    for piece in pieces {
        let source = piece.source();
        let end = before + source.len();
        // The first window that reaches into this piece.
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

/// A place at or soon behind `at` where a text can be cut: between characters, and in no escape.
fn cut(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let clean = |at: &usize| {
        let before = bytes.get(at.saturating_sub(6)..*at).unwrap_or_default();
        let begins_escape = bytes.get(*at) == Some(&b'\\') && before.last() != Some(&b'\\');
        text.is_char_boundary(*at) && (begins_escape || !before.contains(&b'\\'))
    };
    let end = (at + NEAR).min(text.len());
    // A cut in an escape costs a token or two; it is no reason to look on for ever.
    (at..end)
        .find(clean)
        .or_else(|| (at..text.len()).find(|at| text.is_char_boundary(*at)))
        .unwrap_or(text.len())
}

/// JSON without the white space between its values.
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
