//! Text functions: token estimates, splitting into stream pieces, and searching.

use serde_json::Value;

/// Bytes per token, for input and output.
pub(super) const BYTES_PER_TOKEN: usize = 4;
/// Tokens of an image or a document in a prompt: Gemini's number for an image.
pub(super) const MEDIA_TOKENS: usize = 258;
/// Maximum length of a piece without spaces, in characters.
const LONGEST_PIECE: usize = 24;
/// Length of a piece of tool arguments, in characters.
const FRAGMENT: usize = 8;
/// Size of a piece of `[[big]]` text, in bytes.
const BIG_PIECE: usize = 100_000;

/// Returns the token estimate for a number of bytes, at least 1. All usage derives from it.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN).max(1) as u64
}

/// Returns the number of bytes of all texts in a part of a request, without structural members. Media items count as
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

/// Splits a text into words, each with the white space before it, so that the pieces concatenate to the text. Words
/// above the maximum length are split between characters.
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

/// Splits tool arguments into pieces.
pub(super) fn fragments(arguments: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut chars = arguments.chars().peekable();
    while chars.peek().is_some() {
        pieces.push(chars.by_ref().take(FRAGMENT).collect());
    }
    pieces
}

/// Splits a text into the fewest pieces of at most [`BIG_PIECE`] bytes.
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

/// Returns the largest character boundary up to `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the first `most` characters of a text, with an ellipsis if it is longer.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the text without the blocks `<system-reminder>...</system-reminder>`, which coding clients (Claude Code 2.1,
/// Qwen Code 0.24) add to what the user wrote.
pub(super) fn without_reminders(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, inside)) = rest.split_once("<system-reminder>") {
        kept.push_str(before);
        rest = inside.split_once("</system-reminder>").map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Returns true if the text contains the name as a whole word, ignoring case.
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

/// Truncates the text before the first stop sequence, and returns that sequence. `None` if there is none.
pub(super) fn cut_at_stop(text: &mut String, stop: &[String]) -> Option<String> {
    let (at, found) = stop
        .iter()
        .filter(|sequence| !sequence.is_empty())
        .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence)))
        .min_by_key(|(at, _)| *at)?;
    text.truncate(at);
    Some(found.clone())
}

/// Returns an endless sequence of words.
pub(super) fn filler<'a>() -> impl Iterator<Item = &'a str> {
    FILLER.split_whitespace().cycle()
}

/// Returns a text of `bytes` bytes.
pub(super) fn padding(bytes: usize) -> String {
    let mut text = FILLER.repeat(bytes / FILLER.len() + 1);
    text.truncate(bytes);
    text
}

/// ASCII only, so that it can be cut at any byte.
const FILLER: &str = "The quick brown fox jumps over the lazy dog and runs away. ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_are_removed() {
        let text =
            "<system-reminder>read</system-reminder>Hello<system-reminder>\nwrite</system-reminder> you";
        assert_eq!(without_reminders(text), "Hello you");
        assert_eq!(without_reminders("a <system-reminder> b"), "a ");
        assert_eq!(without_reminders("no reminder"), "no reminder");
    }

    #[test]
    fn text_words_concatenate_to_the_text() {
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
