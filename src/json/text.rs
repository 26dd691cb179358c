//! Slices of JSON text that are carried on without being read.

use std::borrow::Cow;
use std::fmt;

use super::push_escaped;
use super::run::{backslash, characters, single_run};

/// The inside of a JSON string, still escaped and without its quotes: pasted from frame to frame unread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JsonStr<'a>(&'a str);

impl<'a> JsonStr<'a> {
    /// Takes text that is known to be the inside of a valid JSON string.
    ///
    /// Nothing is checked: what is not valid here comes out as invalid JSON later. Readers in this folder only
    /// construct it from what they have validated; for constants use it with plain ASCII.
    pub const fn from_escaped(escaped: &'a str) -> Self {
        JsonStr(escaped)
    }

    /// The text as it stands in the document, escapes included.
    pub const fn escaped(self) -> &'a str {
        self.0
    }

    /// True for `""`.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the string *means* `plain`, whichever way it is escaped.
    #[inline]
    pub fn is(self, plain: &str) -> bool {
        if self.0.as_bytes().contains(&b'\\') { self.decode() == plain } else { self.0 == plain }
    }

    /// How many bytes it begins with that are one character each: ASCII, and not escaped.
    #[inline]
    pub fn single_run(self) -> usize {
        single_run(self.0.as_bytes())
    }

    /// How many characters the string means. A lone half of a surrogate pair counts as one.
    #[inline]
    pub fn char_count(self) -> u64 {
        let bytes = self.0.as_bytes();
        let (mut count, escapes) = characters(bytes);
        if !escapes {
            return count as u64;
        }
        let mut at = 0;
        while let Some(escape) = bytes.get(at..).and_then(|rest| rest.get(backslash(rest)?..)) {
            let length = escape_length(escape);
            count = count.saturating_sub(length - 1);
            at = bytes.len() - escape.len() + length;
        }
        count as u64
    }

    /// The meaning of the string; borrowed when it has no escapes. Lone surrogates become U+FFFD.
    pub fn decode(self) -> Cow<'a, str> {
        if !self.0.as_bytes().contains(&b'\\') {
            return Cow::Borrowed(self.0);
        }
        let mut out = String::with_capacity(self.0.len());
        decode_into(self.0, &mut out);
        Cow::Owned(out)
    }
}

/// The length of the escape at the start of a text, both halves of a surrogate pair together.
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

/// One JSON value of any kind, as it stands in the document.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The value `null`.
    pub const NULL: RawJson<'static> = RawJson("null");

    /// Takes text that is known to be one valid JSON value, without surrounding white space.
    pub const fn from_text(text: &'a str) -> Self {
        RawJson(text)
    }

    /// The text of the value.
    pub const fn text(self) -> &'a str {
        self.0
    }

    /// True for the value `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// True for what says that there is nothing: `null`, `false` and `""`.
    pub fn is_void(self) -> bool {
        matches!(self.0, "null" | "false" | "\"\"")
    }

    /// The value as a string, if it is one.
    pub fn as_str(self) -> Option<JsonStr<'a>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(JsonStr(inside))
    }

    /// The value as a whole number that is not negative, if it is one (`1`, `1.0` and `1e3` are).
    pub fn as_u64(self) -> Option<u64> {
        match self.0.parse::<u64>() {
            Ok(n) => Some(n),
            Err(_) => {
                let float = self.0.parse::<f64>().ok()?;
                // 2^53: beyond it a float no longer says which whole number was meant.
                (float >= 0.0 && float.fract() == 0.0 && float <= 9_007_199_254_740_992.0)
                    .then_some(float as u64)
            }
        }
    }

    /// The value as a boolean, if it is one.
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

/// Appends the meaning of the escaped text to `out`. Unknown escapes are taken literally, lone surrogates become
/// U+FFFD: by the time this runs a reader has validated the text.
fn decode_into(escaped: &str, out: &mut String) {
    let mut rest = escaped;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = tail.chars();
        chars.next();
        let Some(escape) = chars.next() else {
            return;
        };
        rest = chars.as_str();
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
    out.push_str(rest);
}

/// Reads the digits after `\u`, and the second half of a surrogate pair if there is one.
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

/// Owned escaped text made from plain text, for the few places that must build a string.
impl From<&str> for EscapedString {
    fn from(plain: &str) -> Self {
        let mut bytes = Vec::with_capacity(plain.len() + 8);
        push_escaped(&mut bytes, plain);
        EscapedString(String::from_utf8(bytes).unwrap_or_default())
    }
}

/// Text that was escaped once, at load, to be pasted many times.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct EscapedString(String);

impl EscapedString {
    /// The text as a slice to paste.
    pub fn as_json_str(&self) -> JsonStr<'_> {
        JsonStr(&self.0)
    }
}

impl fmt::Debug for EscapedString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_json_str().fmt(f)
    }
}
