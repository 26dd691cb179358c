//! Texts: how many tokens they are, how a stream cuts them, and what is found in them.

use serde_json::Value;

/// Bytes per token, in both directions.
pub(super) const BYTES_PER_TOKEN: usize = 4;
/// What a picture or a document counts as in a prompt: what Gemini counts for a picture.
pub(super) const MEDIA_TOKENS: usize = 258;
/// Pieces of a text that has no spaces are not longer than this, in characters.
const LONGEST_PIECE: usize = 24;
/// Length of the pieces of tool arguments, in characters.
const FRAGMENT: usize = 8;
/// Size of the pieces of a `big` text, in bytes.
const BIG_PIECE: usize = 100_000;

/// The estimate that all usage is made of.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN).max(1) as u64
}

/// Bytes of all texts in a part of a request, but not of what only holds it together; media count by
/// [`MEDIA_TOKENS`].
pub(super) fn weigh(value: &Value) -> usize {
    match value {
        Value::String(text) if text.starts_with("data:") => MEDIA_TOKENS * BYTES_PER_TOKEN,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weigh).sum(),
        Value::Object(members) => {
            let media =
                ["media_type", "mime_type", "mimeType", "format"].iter().any(|k| members.contains_key(*k));
            members
                .iter()
                .map(|(name, value)| match name.as_str() {
                    "data" if media => MEDIA_TOKENS * BYTES_PER_TOKEN,
                    "role" | "type" | "id" | "call_id" | "tool_call_id" | "tool_use_id" => 0,
                    "signature" | "thoughtSignature" | "thought_signature" | "encrypted_content" => 0,
                    _ => weigh(value),
                })
                .sum()
        }
        Value::Number(_) => BYTES_PER_TOKEN,
        Value::Bool(_) | Value::Null => 0,
    }
}

/// The text in words, each with the white space before it; together they are the text. Words that are too long are
/// cut, but never inside a character.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut piece = String::new();
    let mut length = 0;
    let mut space = true;
    for c in text.chars() {
        if (c.is_whitespace() && !space) || length >= LONGEST_PIECE {
            pieces.push(std::mem::take(&mut piece));
            length = 0;
        }
        space = c.is_whitespace();
        length += 1;
        piece.push(c);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Tool arguments in pieces.
pub(super) fn fragments(arguments: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut chars = arguments.chars().peekable();
    while chars.peek().is_some() {
        pieces.push(chars.by_ref().take(FRAGMENT).collect());
    }
    pieces
}

/// The text in as few pieces of at most [`BIG_PIECE`] bytes as may be.
pub(super) fn by_bytes(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(floor(rest, BIG_PIECE));
        pieces.push(piece.to_owned());
        rest = tail;
    }
    pieces
}

/// The largest index up to `at` that does not split a character.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first characters of a text, with an ellipsis if there were more.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Whether a name stands in the text as a word of its own, in any case.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    !name.is_empty()
        && text.match_indices(&name).any(|(at, found)| {
            let before = text.get(..at).and_then(|s| s.chars().next_back());
            let after = text.get(at + found.len()..).and_then(|s| s.chars().next());
            !before.is_some_and(word) && !after.is_some_and(word)
        })
}

/// Cuts the text before the first of the stop sequences, and says which one it was.
pub(super) fn cut_at_stop(text: &mut String, stop: &[String]) -> Option<String> {
    let (at, found) = stop
        .iter()
        .filter(|sequence| !sequence.is_empty())
        .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence)))
        .min_by_key(|(at, _)| *at)?;
    text.truncate(at);
    Some(found.clone())
}

/// Words without end.
pub(super) fn filler<'a>() -> impl Iterator<Item = &'a str> {
    FILLER.split_whitespace().cycle()
}

/// A text of so many bytes.
pub(super) fn padding(bytes: usize) -> String {
    let mut text = FILLER.repeat(bytes / FILLER.len() + 1);
    text.truncate(bytes);
    text
}

/// ASCII, so that it can be cut anywhere.
const FILLER: &str = "The quick brown fox jumps over the lazy dog and runs away. ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_text() {
        for text in [
            "",
            "a",
            " Hello  world\n",
            "naïve 🤖🤖 text",
            "一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十",
        ] {
            assert_eq!(words(text).concat(), text);
        }
        assert_eq!(words("Hello big  world"), ["Hello", " big", "  world"]);
        assert_eq!(fragments("{\"city\":\"example\"}").concat(), "{\"city\":\"example\"}");
    }
}
