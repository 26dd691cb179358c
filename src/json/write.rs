//! JSON writer that appends to a byte buffer or a rope. Its only state is whether a comma is due.

use super::block::{BLOCK, Baseline, Vectors};
use super::run::plain_run;
use super::{JsonStr, RawJson, RopeBuilder, Sink};

/// Maximum length in bytes of a text that is appended together with the punctuation around it.
const SHORT: usize = 28;

/// JSON writer. The caller opens and closes containers; the writer inserts the commas.
///
/// ```
/// use model_gateway_json::Writer;
/// let mut out = Vec::new();
/// let mut json = Writer::new(&mut out);
/// json.begin_object();
/// json.key("id").string("chatcmpl-1");
/// json.key("n").number(3u64);
/// json.end_object();
/// assert_eq!(out, br#"{"id":"chatcmpl-1","n":3}"#);
/// ```
pub struct Writer<'o, B: Sink> {
    out: &'o mut B,
    comma: bool,
}

impl Writer<'_, RopeBuilder> {
    /// Returns the length of the document so far, in bytes.
    pub fn written(&self) -> usize {
        self.out.len()
    }
}

impl<'o, B: Sink> Writer<'o, B> {
    /// Creates a writer that appends one value to `out`.
    pub fn new(out: &'o mut B) -> Self {
        Writer { out, comma: false }
    }

    #[inline]
    fn separate(&mut self) {
        if self.comma {
            self.out.put_u8(b',');
        }
        self.comma = true;
    }

    /// Appends a comma if one is due, and the bracket that opens a container.
    #[inline]
    fn open(&mut self, bracket: u8) -> &mut Self {
        let token = [b',', bracket];
        self.out.put_slice(token.get(usize::from(!self.comma)..).unwrap_or_default());
        self.comma = false;
        self
    }

    /// Appends a comma if one is due, a short text in quotes, and `:` behind a member's name. All of it is one token: an
    /// append to the buffer costs more than the few bytes of punctuation. Returns false for a text that is not short.
    #[inline(always)]
    fn put_short(&mut self, text: &[u8], is_name: bool) -> bool {
        let mut token = [b'"'; SHORT + 4];
        let end = 2 + text.len();
        match token.get_mut(2..end) {
            Some(place) if text.len() <= SHORT => place.copy_from_slice(text),
            _ => return false,
        }
        if let (Some(first), true) = (token.first_mut(), self.comma) {
            *first = b',';
        }
        if let (Some(colon), true) = (token.get_mut(end + 1), is_name) {
            *colon = b':';
        }
        let token = token.get(usize::from(!self.comma)..end + 1 + usize::from(is_name));
        self.out.put_slice(token.unwrap_or_default());
        self.comma = !is_name;
        true
    }

    /// Appends a comma if one is due, and the quote that opens a string.
    #[inline]
    fn open_string(&mut self) {
        let token = b",\"";
        self.out.put_slice(token.get(usize::from(!self.comma)..).unwrap_or_default());
        self.comma = true;
    }

    /// Writes `{`.
    pub fn begin_object(&mut self) -> &mut Self {
        self.open(b'{')
    }

    /// Writes `}`.
    pub fn end_object(&mut self) -> &mut Self {
        self.out.put_u8(b'}');
        self.comma = true;
        self
    }

    /// Writes `[`.
    pub fn begin_array(&mut self) -> &mut Self {
        self.open(b'[')
    }

    /// Writes `]`.
    pub fn end_array(&mut self) -> &mut Self {
        self.out.put_u8(b']');
        self.comma = true;
        self
    }

    /// Writes a member name. It must be plain ASCII that needs no escapes; names are constants of a format.
    #[inline]
    pub fn key(&mut self, name: &str) -> &mut Self {
        debug_assert_eq!(plain_run(name.as_bytes()), name.len(), "a member name that needs escapes");
        self.paste_key(JsonStr::from_escaped(name))
    }

    /// Writes a member name that is already escaped.
    #[inline]
    pub fn paste_key(&mut self, name: JsonStr<'_>) -> &mut Self {
        if !self.put_short(name.escaped().as_bytes(), true) {
            self.open_string();
            self.out.put_slice(name.escaped().as_bytes());
            self.out.put_slice(b"\":");
            self.comma = false;
        }
        self
    }

    /// Writes a string and escapes it.
    pub fn string(&mut self, plain: &str) -> &mut Self {
        if plain.len() <= SHORT && plain_run(plain.as_bytes()) == plain.len() {
            return self.paste(JsonStr::from_escaped(plain));
        }
        self.open_string();
        push_escaped(self.out, plain);
        self.out.put_u8(b'"');
        self
    }

    /// Writes a string that is already escaped.
    #[inline]
    pub fn paste(&mut self, text: JsonStr<'_>) -> &mut Self {
        if !self.put_short(text.escaped().as_bytes(), false) {
            self.open_string();
            self.out.put_slice(text.escaped().as_bytes());
            self.out.put_u8(b'"');
        }
        self
    }

    /// Writes a string from parts that are already escaped.
    #[inline]
    pub fn pasted(&mut self, write: impl FnOnce(&mut B)) {
        self.open_string();
        write(self.out);
        self.out.put_u8(b'"');
    }

    /// Writes a value that is already JSON.
    #[inline]
    pub fn raw(&mut self, value: RawJson<'_>) -> &mut Self {
        self.separate();
        self.out.put_slice(value.text().as_bytes());
        self
    }

    /// Writes an integer.
    #[inline]
    pub fn number(&mut self, n: impl itoa::Integer) -> &mut Self {
        self.separate();
        self.out.put_slice(itoa::Buffer::new().format(n).as_bytes());
        self
    }

    /// Writes a decimal number with a fixed number of decimals, for log lines.
    pub fn fixed(&mut self, n: f64, decimals: usize) -> &mut Self {
        self.separate();
        self.out.put_slice(format!("{n:.decimals$}").as_bytes());
        self
    }

    /// Writes `true` or `false`.
    #[inline]
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.separate();
        self.out.put_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Writes `null`.
    #[inline]
    pub fn null(&mut self) -> &mut Self {
        self.separate();
        self.out.put_slice(b"null");
        self
    }
}

/// Number of bytes that are copied at a time between two escapes. Most of them are fewer bytes apart.
const STEP: usize = 16;

/// Appends plain text to `out`, escaped as the inside of a JSON string.
pub fn push_escaped(out: &mut impl Sink, plain: &str) {
    let mut rest = plain.as_bytes();
    loop {
        let (clean, tail) = rest.split_at(plain_run(rest));
        out.put_slice(clean);
        if tail.is_empty() {
            return;
        }
        // Text with one special byte mostly has many (programs, JSON in JSON): escape blocks of it until one has none.
        rest = push_escaped_blocks(out, tail);
    }
}

/// Appends text, escaped, a block at a time. Returns the rest of the text: that from the first block without special
/// bytes, or nothing.
fn push_escaped_blocks<'t>(out: &mut impl Sink, mut rest: &'t [u8]) -> &'t [u8] {
    // Each byte of a block has at most six bytes as an escape, and the last copy may write a whole step.
    let mut staged = [0; 6 * BLOCK + STEP];
    while !rest.is_empty() {
        // The text is copied in whole steps, also at its end: there is a step behind the block.
        let mut padded = [b' '; BLOCK + STEP];
        let known = rest.len().min(BLOCK + STEP);
        if let Some(whole) = rest.first_chunk() {
            padded = *whole;
        } else if let (Some(place), Some(text)) = (padded.get_mut(..known), rest.get(..known)) {
            place.copy_from_slice(text);
        }
        let mut specials = match padded.first_chunk() {
            Some(block) => Baseline.specials_in(block),
            None => 0,
        };
        if specials == 0 {
            return rest;
        }
        let length = known.min(BLOCK);
        let (mut from, mut to) = (0, 0);
        while specials != 0 {
            let at = specials.trailing_zeros() as usize;
            copy_steps(&padded, from, at - from, &mut staged, to);
            to += at - from;
            from = at + 1;
            let (escape, count) = escape_of(padded.get(at).copied().unwrap_or_default());
            if let Some(place) = staged.get_mut(to..to + escape.len()) {
                place.copy_from_slice(&escape);
            }
            to += count;
            specials &= specials - 1;
        }
        copy_steps(&padded, from, length - from, &mut staged, to);
        out.put_slice(staged.get(..to + length - from).unwrap_or_default());
        rest = rest.get(length..).unwrap_or_default();
    }
    rest
}

/// Copies `count` bytes, rounded up to whole steps.
#[inline(always)]
fn copy_steps(from: &[u8], at: usize, count: usize, to: &mut [u8], place: usize) {
    let mut done = 0;
    while done < count {
        let bytes = from.get(at + done..).and_then(|rest| rest.first_chunk::<STEP>());
        let room = to.get_mut(place + done..).and_then(|rest| rest.first_chunk_mut::<STEP>());
        if let (Some(bytes), Some(room)) = (bytes, room) {
            *room = *bytes;
        }
        done += STEP;
    }
}

/// Letter of the escape of each special byte; 0 for those that have a number instead.
#[expect(clippy::indexing_slicing, reason = "constants, at compile time")]
const LETTERS: [u8; 128] = {
    let mut letters = [0; 128];
    letters[b'"' as usize] = b'"';
    letters[b'\\' as usize] = b'\\';
    letters[b'\n' as usize] = b'n';
    letters[b'\r' as usize] = b'r';
    letters[b'\t' as usize] = b't';
    letters
};

/// Returns the escape of a special byte, and its length.
#[inline(always)]
fn escape_of(special: u8) -> ([u8; 6], usize) {
    match LETTERS.get(usize::from(special)) {
        Some(letter @ 1..) => ([b'\\', *letter, 0, 0, 0, 0], 2),
        _ => {
            let low = special & 15;
            let digit = if low < 10 { b'0' + low } else { b'a' + low - 10 };
            ([b'\\', b'u', b'0', b'0', b'0' + (special >> 4), digit], 6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Escapes byte by byte.
    fn escaped_bytewise(plain: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for byte in plain.bytes() {
            match byte {
                b'"' => out.extend(b"\\\""),
                b'\\' => out.extend(b"\\\\"),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                0..0x20 => out.extend(format!("\\u{byte:04x}").bytes()),
                _ => out.push(byte),
            }
        }
        out
    }

    fn check_escapes(plain: &str) {
        let mut out = b"before".to_vec();
        push_escaped(&mut out, plain);
        assert_eq!(out.strip_prefix(b"before"), Some(&*escaped_bytewise(plain)), "{plain:?}");
    }

    proptest! {
        #[test]
        fn text_is_escaped_in_blocks_as_byte_by_byte(
            text in "([a-zé😀 ]{0,40}|[a-z]{60,140}|[\"\\\\\n\r\t\u{1}\u{8}\u{1f}/]{1,9}){0,9}",
        ) {
            check_escapes(&text);
        }
    }

    #[test]
    fn text_is_escaped_at_every_place_of_a_block() {
        let lengths: &[usize] =
            if cfg!(miri) { &[0, 63, 64, 65] } else { &[0, 1, 15, 16, 17, 63, 64, 65, 80, 200] };
        for at in (0..150).filter(|at| !cfg!(miri) || at % 37 == 0) {
            for &behind in lengths {
                for special in ["\"", "\\", "\n", "\u{1}", "\"\u{1f}\"", "\u{0}\u{0}\u{0}é\u{7f}"] {
                    check_escapes(&format!("{}{special}{}", "x".repeat(at), "y".repeat(behind)));
                }
            }
        }
        for length in [63, 64, 65, 127, 128, 129] {
            check_escapes(&"\u{1}".repeat(length));
        }
    }

    #[test]
    fn writer_tokens_of_every_length_have_their_punctuation() {
        for length in 0..2 * SHORT {
            let text = "n".repeat(length);
            let mut out = Vec::new();
            let mut json = Writer::new(&mut out);
            json.begin_array().begin_object();
            json.key(&text).string(&text).key(&text).paste(JsonStr::from_escaped(&text));
            json.paste_key(JsonStr::from_escaped(&text)).begin_array().string(&text).string(&text);
            json.end_array().end_object().begin_object().end_object().string("\n").end_array();
            let expected = format!(
                "[{{\"{text}\":\"{text}\",\"{text}\":\"{text}\",\"{text}\":[\"{text}\",\"{text}\"]}},{{}},\"\\n\"]"
            );
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
