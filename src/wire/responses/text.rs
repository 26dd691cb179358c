//! Small things about escaped text that only this format asks for.

use bytes::BufMut;

use crate::json::{Cursor, JsonStr, push_escaped};

/// What the id of an item begins with that carries the seal of the text before it.
pub(super) const SEAL_OF_TEXT: &str = "rs_of_text_";

/// How many characters (Unicode code points) a text has, which is how this format counts in annotations.
pub(super) fn char_count(text: JsonStr<'_>) -> u64 {
    let mut rest = text.escaped();
    let mut count = 0;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at(at);
        count += plain_count(plain);
        let length = match escape.as_bytes().get(1) {
            Some(b'u') if is_surrogate(escape, 0, b"89abAB") && is_surrogate(escape, 6, b"cdefCDEF") => 12,
            Some(b'u') => 6,
            _ => 2,
        };
        count += 1;
        rest = escape.get(length..).unwrap_or_default();
    }
    count + plain_count(rest)
}

/// Bytes that do not continue a character: one for each character.
fn plain_count(text: &str) -> u64 {
    text.bytes().filter(|byte| byte & 0xC0 != 0x80).count() as u64
}

/// Whether `\ud8..` (or another half, by its third digit) stands at this place.
fn is_surrogate(text: &str, at: usize, third: &[u8]) -> bool {
    match text.as_bytes().get(at..at + 4) {
        Some([b'\\', b'u', b'd' | b'D', digit]) => third.contains(digit),
        _ => false,
    }
}

/// Writes a JSON value as the inside of a JSON string, without the white space between its tokens.
pub(super) fn put_as_string(out: &mut impl BufMut, value: &str) {
    let mut rest = value;
    while let Some(at) = memchr::memchr(b'"', rest.as_bytes()) {
        let (between, string) = rest.split_at(at);
        put_tokens(out, between);
        let (string, after) = string.split_at(string_length(string));
        push_escaped(out, string);
        rest = after;
    }
    put_tokens(out, rest);
}

fn put_tokens(out: &mut impl BufMut, text: &str) {
    for run in text.split_ascii_whitespace() {
        // There is nothing to escape in a value that is sound; one that is not must not end the string.
        push_escaped(out, run);
    }
}

/// The length of the string that `text` begins with, quotes included.
fn string_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

/// Whether the text, its escapes undone, is one JSON value.
pub(super) fn holds_json(text: JsonStr<'_>) -> bool {
    let plain = text.decode();
    let mut json = Cursor::new(&plain);
    json.skip().is_ok() && json.end().is_ok()
}

/// The bytes of a buffer that holds text only.
pub(super) fn as_text(bytes: &[u8]) -> JsonStr<'_> {
    JsonStr::from_escaped(std::str::from_utf8(bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_as_code_points() {
        for (escaped, count) in [
            ("", 0),
            ("abc", 3),
            ("a\\n\\\"b", 4),
            ("Grüße 🌍", 7),
            ("\\u00e9x", 2),
            ("\\ud83c\\udf0d!", 2),
            ("\\ud83c!", 2),
        ] {
            assert_eq!(char_count(JsonStr::from_escaped(escaped)), count, "{escaped}");
        }
    }

    #[test]
    fn an_object_becomes_a_string_without_the_space_between_its_tokens() {
        let mut out = Vec::new();
        put_as_string(&mut out, "{\n  \"a b\" : [1, true ],\n \"q\": \"x \\\" \\\\ y\"\n}");
        assert_eq!(String::from_utf8(out).unwrap(), r#"{\"a b\":[1,true],\"q\":\"x \\\" \\\\ y\"}"#);
    }

    #[test]
    fn a_value_that_is_broken_stays_within_its_string() {
        for broken in [r#"{"a"\"b":1}"#, r#"{"a":\}"#, "{\u{1}\"x", r#"{"a":"b\"#] {
            let mut out = vec![b'"'];
            put_as_string(&mut out, broken);
            out.push(b'"');
            assert!(serde_json::from_slice::<String>(&out).is_ok(), "{broken}");
        }
    }

    #[test]
    fn broken_arguments_are_noticed() {
        for (text, fits) in
            [("{}", true), ("{\\\"a\\\":1}", true), ("{\\\"a\\\":", false), ("", false), ("{}}", false)]
        {
            assert_eq!(holds_json(JsonStr::from_escaped(text)), fits, "{text}");
        }
    }
}
