//! Slices of JSON text that are passed on without being decoded.

use std::borrow::Cow;
use std::fmt;

use super::push_escaped;
use super::run::{characters, escaped_bytes, single_run};

/// Inside of a JSON string, still escaped and without its quotes. It is copied from frame to frame without decoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JsonStr<'a>(&'a str);

impl<'a> JsonStr<'a> {
    /// Wraps text that is known to be the inside of a valid JSON string.
    ///
    /// Nothing is checked: invalid text produces invalid JSON later. Readers of this module construct it only from text
    /// that they have validated; for constants, use it with plain ASCII.
    pub const fn from_escaped(escaped: &'a str) -> Self {
        JsonStr(escaped)
    }

    /// Returns the text as written in the document, escapes included.
    pub const fn escaped(self) -> &'a str {
        self.0
    }

    /// Returns true for `""`.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the decoded string equals `plain`, however it is escaped.
    #[inline]
    pub fn is(self, plain: &str) -> bool {
        if self.0.as_bytes().contains(&b'\\') { self.decode() == plain } else { self.0 == plain }
    }

    /// Returns the number of leading bytes that are one character each: ASCII and not escaped.
    #[inline]
    pub fn single_run(self) -> usize {
        single_run(self.0.as_bytes())
    }

    /// Counts the characters of the decoded string. A lone surrogate counts as one.
    #[inline]
    pub fn char_count(self) -> u64 {
        let bytes = self.0.as_bytes();
        let (count, escapes) = characters(bytes);
        let surplus = if escapes { surplus(bytes) } else { 0 };
        count.saturating_sub(surplus) as u64
    }

    /// Returns false if the decoded string is certainly not a JSON object: its first character that is not white space
    /// is not `{`. This takes constant time for most texts, where decoding and parsing read all of it.
    pub fn may_be_object(self) -> bool {
        let mut rest = self.0.as_bytes();
        loop {
            rest = match rest {
                [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] | [b'\\', b'n' | b't' | b'r', rest @ ..] => rest,
                // Other escapes and characters beyond ASCII may stand for white space, and `\u007b` for the brace.
                [first, ..] => return matches!(first, b'{' | b'\\' | 0x80..),
                [] => return false,
            };
        }
    }

    /// Decodes the string; borrowed if it has no escapes. Lone surrogates become U+FFFD.
    pub fn decode(self) -> Cow<'a, str> {
        if !self.0.as_bytes().contains(&b'\\') {
            return Cow::Borrowed(self.0);
        }
        let mut out = String::with_capacity(self.0.len());
        decode_into(self.0, &mut out);
        Cow::Owned(out)
    }
}

/// Returns how many characters the escapes in a string have beyond the characters that they stand for.
// Apart from the count of a text without escapes, which needs fewer registers.
#[inline(never)]
fn surplus(bytes: &[u8]) -> usize {
    let (mut surplus, mut end) = (0, 0);
    escaped_bytes(bytes, |at| {
        if bytes.get(at) != Some(&b'u') {
            surplus += 1;
        // The second half of a surrogate pair is no character of its own.
        } else if at >= end {
            let from = at.saturating_sub(1);
            let length = escape_length(bytes.get(from..).unwrap_or_default());
            surplus += length - 1;
            end = from + length;
        }
    });
    surplus
}

/// Returns the length in bytes of the escape at the start of `escape`; a surrogate pair is one escape of 12 bytes.
#[inline]
fn escape_length(escape: &[u8]) -> usize {
    let half = |at: usize, third: &[u8]| match escape.get(at..at + 4) {
        Some([b'\\', b'u', b'd' | b'D', digit]) => third.contains(digit),
        _ => false,
    };
    match escape.get(1) {
        Some(b'u') if half(0, b"89abAB") && half(6, b"cdefCDEF") => 12,
        Some(b'u') => 6,
        _ => 2,
    }
}

impl fmt::Debug for JsonStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// JSON value of any kind, as written in the document.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The value `null`.
    pub const NULL: RawJson<'static> = RawJson("null");

    /// Wraps text that is known to be one valid JSON value without surrounding white space.
    pub const fn from_text(text: &'a str) -> Self {
        RawJson(text)
    }

    /// Returns the text of the value.
    pub const fn text(self) -> &'a str {
        self.0
    }

    /// Returns true for `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// Returns true for the values that stand for "absent": `null`, `false` and `""`.
    pub fn is_void(self) -> bool {
        matches!(self.0, "null" | "false" | "\"\"")
    }

    /// Returns the value if it is a string, and `None` otherwise.
    pub fn as_str(self) -> Option<JsonStr<'a>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(JsonStr(inside))
    }

    /// Returns the value if it is a non-negative integer (`1`, `1.0` and `1e3` are), and `None` otherwise.
    pub fn as_u64(self) -> Option<u64> {
        match self.0.parse::<u64>() {
            Ok(n) => Some(n),
            Err(_) => {
                let float = self.0.parse::<f64>().ok()?;
                // Above 2^53 an `f64` does not represent every integer.
                (float >= 0.0 && float.fract() == 0.0 && float <= 9_007_199_254_740_992.0)
                    .then_some(float as u64)
            }
        }
    }

    /// Returns the value if it is a boolean, and `None` otherwise.
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
}

impl fmt::Debug for RawJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Decodes escaped text and appends it to `out`. Unknown escapes are taken literally and lone surrogates become U+FFFD:
/// a reader has validated the text before.
fn decode_into(escaped: &str, out: &mut String) {
    // Escapes of source code are a few bytes apart: they are found in blocks, without a search from each to the next.
    let mut from = 0;
    escaped_bytes(escaped.as_bytes(), |at| {
        // The second half of a surrogate pair was decoded with the first.
        if at < from {
            return;
        }
        out.push_str(escaped.get(from..at - 1).unwrap_or_default());
        from = at + 1;
        match escaped.as_bytes().get(at) {
            Some(b'n') => out.push('\n'),
            Some(b't') => out.push('\t'),
            Some(b'r') => out.push('\r'),
            Some(b'b') => out.push('\u{8}'),
            Some(b'f') => out.push('\u{c}'),
            Some(b'u') => {
                let (decoded, after) = decode_unicode(escaped.get(from..).unwrap_or_default());
                out.push(decoded);
                from = escaped.len() - after.len();
            }
            Some(other) if other.is_ascii() => out.push(char::from(*other)),
            // A character beyond ASCII stands for itself, and is copied with the text behind it.
            _ => from = at,
        }
    });
    let rest = escaped.get(from..).unwrap_or_default();
    // A backslash that escapes nothing is dropped.
    out.push_str(rest.strip_suffix('\\').unwrap_or(rest));
}

/// Decodes the digits after `\u`, and the second half of a surrogate pair if it follows.
fn decode_unicode(digits: &str) -> (char, &str) {
    let Some((first, rest)) = hex4(digits) else {
        return (char::REPLACEMENT_CHARACTER, digits);
    };
    if let Some(plain) = char::from_u32(first) {
        return (plain, rest);
    }
    if (0xD800..0xDC00).contains(&first)
        && let Some((second, after)) = rest.strip_prefix("\\u").and_then(hex4)
        && (0xDC00..0xE000).contains(&second)
    {
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), after);
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

fn hex4(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

/// Escapes plain text into an owned string, for the few places that must build one.
impl From<&str> for EscapedString {
    fn from(plain: &str) -> Self {
        let mut bytes = Vec::with_capacity(plain.len() + 8);
        push_escaped(&mut bytes, plain);
        EscapedString(String::from_utf8(bytes).unwrap_or_default())
    }
}

/// Owned escaped text: escaped once at load time and copied many times.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct EscapedString(String);

impl EscapedString {
    /// Borrows the text.
    pub fn as_json_str(&self) -> JsonStr<'_> {
        JsonStr(&self.0)
    }
}

impl fmt::Debug for EscapedString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_json_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes character by character.
    fn decoded_stepwise(escaped: &str) -> String {
        let (mut out, mut rest) = (String::new(), escaped);
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            if first != '\\' {
                out.push(first);
                continue;
            }
            let Some(escape) = rest.chars().next() else { break };
            rest = &rest[escape.len_utf8()..];
            match escape {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                'b' => out.push('\u{8}'),
                'f' => out.push('\u{c}'),
                'u' => {
                    let (decoded, after) = decode_unicode(rest);
                    out.push(decoded);
                    rest = after;
                }
                other => out.push(other),
            }
        }
        out
    }

    fn check(escaped: &str) {
        assert_eq!(JsonStr::from_escaped(escaped).decode(), decoded_stepwise(escaped), "{escaped:?}");
    }

    proptest! {
        #[test]
        fn string_is_decoded_in_blocks_as_stepwise(
            text in "([a-zé😀]{0,40}|[a-z]{60,140}|\\\\[\"\\\\/nrtbfxé]|\\\\{1,5}|\\\\u[0-9a-f]{0,4}|\\\\ud83d\\\\ude00|[\"\n]){0,9}",
        ) {
            check(&text);
        }
    }

    #[test]
    fn string_is_decoded_at_every_place_of_a_block() {
        for at in (0..140).filter(|at| !cfg!(miri) || at % 31 < 2) {
            for escape in [
                "\\n",
                "\\\\",
                "\\\\\\\"",
                "\\u00e9",
                "\\ud83d\\ude00",
                "\\ud83dx",
                "\\é",
                "\\u12",
                "\\",
                "\\\\\\",
            ] {
                for behind in [0, 1, 60, 70] {
                    check(&format!("{}{escape}{}", "x".repeat(at), "y".repeat(behind)));
                }
            }
        }
    }
}
