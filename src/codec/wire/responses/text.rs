//! Helpers for escaped JSON text that only the responses format needs.

use json::{Cursor, JsonStr, Sink, push_escaped};

/// Id prefix of a reasoning item that carries the provider signature of the preceding text.
pub(super) const SEAL_OF_TEXT: &str = "rs_of_text_";

/// Writes a JSON value as the inside of a JSON string, without the white space between its tokens.
pub(super) fn put_as_string(out: &mut impl Sink, value: &str) {
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

fn put_tokens(out: &mut impl Sink, text: &str) {
    for run in text.split_ascii_whitespace() {
        // Valid JSON has nothing to escape here. Escape all the same: invalid JSON must not end the enclosing string.
        push_escaped(out, run);
    }
}

/// Returns the length in bytes of the JSON string at the start of `text`, quotes included; the length of `text` if
/// the string is not terminated.
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

/// Returns whether the text, once unescaped, is exactly one JSON value.
pub(super) fn holds_json(text: JsonStr<'_>) -> bool {
    let plain = text.decode();
    let mut json = Cursor::new(&plain);
    json.skip().is_ok() && json.end().is_ok()
}

/// Returns the escaped text in a buffer; empty if the buffer is not UTF-8.
pub(super) fn as_text(bytes: &[u8]) -> JsonStr<'_> {
    JsonStr::from_escaped(std::str::from_utf8(bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_as_a_string_has_no_space_between_tokens() {
        let mut out = Vec::new();
        put_as_string(&mut out, "{\n  \"a b\" : [1, true ],\n \"q\": \"x \\\" \\\\ y\"\n}");
        assert_eq!(String::from_utf8(out).unwrap(), r#"{\"a b\":[1,true],\"q\":\"x \\\" \\\\ y\"}"#);
    }

    #[test]
    fn object_that_is_broken_stays_within_its_string() {
        for broken in [r#"{"a"\"b":1}"#, r#"{"a":\}"#, "{\u{1}\"x", r#"{"a":"b\"#] {
            let mut out = vec![b'"'];
            put_as_string(&mut out, broken);
            out.push(b'"');
            assert!(serde_json::from_slice::<String>(&out).is_ok(), "{broken}");
        }
    }

    #[test]
    fn arguments_that_are_not_json_are_detected() {
        for (text, fits) in
            [("{}", true), ("{\\\"a\\\":1}", true), ("{\\\"a\\\":", false), ("", false), ("{}}", false)]
        {
            assert_eq!(holds_json(JsonStr::from_escaped(text)), fits, "{text}");
        }
    }
}
