//! A pull reader over one whole document: forward only, borrowed, without a tree and without an allocation.

use super::run::string_end;
use super::{JsonStr, RawJson};

/// Nesting that is read at most. Far beyond what any provider sends; the skipping loop itself does not recurse.
const MAX_DEPTH: u32 = 512;

/// What kind of value stands next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// `-` or a digit
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// The document is not JSON, or not of the shape that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Byte offset from the start of the document.
    pub at: usize,
    /// What was expected or found.
    pub what: &'static str,
}

/// Reads a document from front to back.
///
/// The caller drives: it asks for the kind of value that it wants and skips what it does not know. Members are
/// visited in document order.
///
/// ```
/// use model_gateway::json::Cursor;
/// let mut json = Cursor::new(r#"{"skip":[1,{"a":2}],"id":"x"}"#);
/// let mut id = None;
/// json.begin_object()?;
/// while let Some(key) = json.next_key()? {
///     match key.escaped() {
///         "id" => id = Some(json.string()?),
///         _ => json.skip()?,
///     }
/// }
/// json.end()?;
/// assert_eq!(id.unwrap().escaped(), "x");
/// # Ok::<(), model_gateway::json::JsonError>(())
/// ```
///
/// What is skipped is checked for balance and for well-formed strings and scalars, which is what is needed to find
/// the end of it; the strict check of a whole document is [`Scanner`](super::Scanner)'s.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Nothing stands before the next member or element of the container that is being read.
    first: bool,
}

impl<'a> Cursor<'a> {
    /// Starts before the document's value.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        Cursor { text, at: 0, first: true }
    }

    /// Starts before a value in the middle of a document whose first `offset` bytes are known to be sound, and to end
    /// where a value must follow.
    #[inline]
    pub fn resume(text: &'a str, offset: usize) -> Self {
        Cursor { text, at: offset, first: false }
    }

    /// The byte offset that is read next.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// What was read since an earlier [`offset`](Self::offset), where a value began there and has ended.
    #[inline]
    pub fn since(&self, offset: usize) -> RawJson<'a> {
        RawJson::from_text(self.text.get(offset..self.at).unwrap_or("null"))
    }

    #[inline]
    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    #[inline]
    fn fail<T>(&self, what: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, what })
    }

    /// The next byte that is not white space, without taking it.
    #[inline]
    fn look(&mut self) -> Option<u8> {
        loop {
            match self.bytes().get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// What stands next.
    pub fn kind(&mut self) -> Result<Kind, JsonError> {
        match self.look() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => self.fail("expected a value"),
        }
    }

    /// Enters an object.
    #[inline]
    pub fn begin_object(&mut self) -> Result<(), JsonError> {
        if self.look() != Some(b'{') {
            return self.fail("expected an object");
        }
        self.at += 1;
        self.first = true;
        Ok(())
    }

    /// The name of the next member, or the end of the object.
    #[inline]
    pub fn next_key(&mut self) -> Result<Option<JsonStr<'a>>, JsonError> {
        if self.next_in(b'}')? {
            return Ok(None);
        }
        let key = self.string()?;
        if self.look() != Some(b':') {
            return self.fail("expected ':'");
        }
        self.at += 1;
        Ok(Some(key))
    }

    /// Enters an array.
    #[inline]
    pub fn begin_array(&mut self) -> Result<(), JsonError> {
        if self.look() != Some(b'[') {
            return self.fail("expected an array");
        }
        self.at += 1;
        self.first = true;
        Ok(())
    }

    /// Whether the array has another element; at its end the array is left.
    #[inline]
    pub fn next_element(&mut self) -> Result<bool, JsonError> {
        Ok(!self.next_in(b']')?)
    }

    /// Steps over the comma; true when the container was closed instead.
    #[inline]
    fn next_in(&mut self, close: u8) -> Result<bool, JsonError> {
        let next = self.look();
        if next == Some(close) {
            self.at += 1;
            self.first = false;
            return Ok(true);
        }
        if self.first {
            self.first = false;
        } else if next == Some(b',') {
            self.at += 1;
        } else {
            return self.fail("expected ',' or the end of the container");
        }
        Ok(false)
    }

    /// A string.
    #[inline]
    pub fn string(&mut self) -> Result<JsonStr<'a>, JsonError> {
        if self.look() != Some(b'"') {
            return self.fail("expected a string");
        }
        let start = self.at + 1;
        self.at = start;
        self.skip_string_body()?;
        let inside = self.slice(start, self.at - 1)?;
        self.first = false;
        Ok(JsonStr::from_escaped(inside))
    }

    #[inline]
    fn slice(&self, start: usize, end: usize) -> Result<&'a str, JsonError> {
        // Both ends stand beside ASCII bytes, so they are character boundaries.
        self.text.get(start..end).ok_or(JsonError { at: start, what: "broken text" })
    }

    /// From behind the opening quote to behind the closing one.
    #[inline]
    fn skip_string_body(&mut self) -> Result<(), JsonError> {
        // An escaped byte is stepped over; a multi-byte character after a backslash is not valid JSON, and then the
        // search goes on inside it, which is harmless: it holds no quote.
        match string_end(self.bytes(), self.at) {
            Ok(end) => {
                self.at = end + 1;
                Ok(())
            }
            Err(at) => {
                self.at = at;
                let control = self.bytes().get(at).is_some_and(|byte| *byte < 0x20);
                self.fail(if control { "control character in a string" } else { "unterminated string" })
            }
        }
    }

    /// A string, or nothing for `null`.
    pub fn string_or_null(&mut self) -> Result<Option<JsonStr<'a>>, JsonError> {
        if self.look() == Some(b'n') {
            self.literal("null")?;
            return Ok(None);
        }
        self.string().map(Some)
    }

    /// `true` or `false`
    pub fn boolean(&mut self) -> Result<bool, JsonError> {
        match self.look() {
            Some(b't') => self.literal("true").map(|()| true),
            Some(b'f') => self.literal("false").map(|()| false),
            _ => self.fail("expected true or false"),
        }
    }

    /// Any value, unread.
    #[inline]
    pub fn raw(&mut self) -> Result<RawJson<'a>, JsonError> {
        self.look();
        let start = self.at;
        self.skip()?;
        Ok(RawJson::from_text(self.slice(start, self.at)?))
    }

    /// A whole number that is not negative; nothing for `null` or for any other value, which is stepped over.
    pub fn u64_or_skip(&mut self) -> Result<Option<u64>, JsonError> {
        Ok(self.raw()?.as_u64())
    }

    /// Steps over one value of any kind.
    #[inline]
    pub fn skip(&mut self) -> Result<(), JsonError> {
        match self.look() {
            Some(b'"') => {
                self.at += 1;
                self.skip_string_body()?;
            }
            Some(b'{' | b'[') => self.skip_container()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            Some(b'-' | b'0'..=b'9') => self.skip_number()?,
            _ => return self.fail("expected a value"),
        }
        self.first = false;
        Ok(())
    }

    /// Steps over an object or array by counting brackets outside of strings.
    fn skip_container(&mut self) -> Result<(), JsonError> {
        let bytes = self.bytes();
        let mut depth = 0u32;
        let mut at = self.at;
        loop {
            let Some(&byte) = bytes.get(at) else {
                self.at = at;
                return self.fail("unterminated object or array");
            };
            at += 1;
            // Brackets of both kinds differ in one bit, and nothing else shares the other seven.
            match byte | 0x20 {
                b'{' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        self.at = at;
                        return self.fail("nested too deeply");
                    }
                }
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at = at;
                        return Ok(());
                    }
                }
                // The quote, and the byte that differs from it in that bit, which never stands outside a string.
                b'"' if byte == b'"' => {
                    self.at = at;
                    self.skip_string_body()?;
                    at = self.at;
                }
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), JsonError> {
        let end = self.at + word.len();
        if self.bytes().get(self.at..end) != Some(word.as_bytes()) {
            return self.fail("expected a value");
        }
        self.at = end;
        self.first = false;
        Ok(())
    }

    fn skip_number(&mut self) -> Result<(), JsonError> {
        let rest = self.bytes().get(self.at..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        self.at += length;
        Ok(())
    }

    /// Asserts that nothing but white space follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.look() {
            None => Ok(()),
            Some(_) => self.fail("something follows the document"),
        }
    }
}
