//! Pull reader of a whole document: forward only, borrowed, without a tree and without allocations.

use super::run::string_end;
use super::{JsonStr, RawJson};

/// Maximum nesting depth of skipped values. It is far beyond real documents; the skipping loop does not recurse.
const MAX_DEPTH: u32 = 512;

/// Kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Starts with `{`.
    Object,
    /// Starts with `[`.
    Array,
    /// Starts with `"`.
    String,
    /// Starts with `-` or a digit.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

/// Error: the document is not JSON, or has another shape than the caller requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Byte offset from the start of the document.
    pub at: usize,
    /// Expected or unexpected element.
    pub what: &'static str,
}

/// Pull reader of a document, from front to back.
///
/// The caller requests the kind of value that it expects, and skips unknown members. Members are visited in document
/// order.
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
/// Skipped values are checked only as far as needed to find their end: balanced brackets, terminated strings, valid
/// words. [`Scanner`](super::Scanner) does the strict validation of a whole document.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Whether no comma precedes the next member or element.
    first: bool,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor before the document's value.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        Cursor { text, at: 0, first: true }
    }

    /// Creates a cursor inside a document, before a value. The first `offset` bytes must be valid and end where a value
    /// must follow.
    #[inline]
    pub fn resume(text: &'a str, offset: usize) -> Self {
        Cursor { text, at: offset, first: false }
    }

    /// Returns the current byte offset.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the text since an earlier [`offset`](Self::offset), which must be one whole value.
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

    /// Skips white space and returns the next byte without consuming it.
    #[inline]
    fn look(&mut self) -> Option<u8> {
        loop {
            match self.bytes().get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Returns the kind of the next value without consuming it.
    pub fn kind(&mut self) -> Result<ValueKind, JsonError> {
        match self.look() {
            Some(b'{') => Ok(ValueKind::Object),
            Some(b'[') => Ok(ValueKind::Array),
            Some(b'"') => Ok(ValueKind::String),
            Some(b'-' | b'0'..=b'9') => Ok(ValueKind::Number),
            Some(b't' | b'f') => Ok(ValueKind::Bool),
            Some(b'n') => Ok(ValueKind::Null),
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

    /// Returns the name of the next member; `None` at the end of the object, which is consumed.
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

    /// Returns whether the array has another element; the end of the array is consumed.
    #[inline]
    pub fn next_element(&mut self) -> Result<bool, JsonError> {
        Ok(!self.next_in(b']')?)
    }

    /// Consumes the comma. Returns true if the container ends instead.
    #[inline]
    fn next_in(&mut self, close: u8) -> Result<bool, JsonError> {
        let next = self.look();
        if next == Some(close) {
            self.at += 1;
            self.first = false;
            return Ok(true);
        }
        // No comma precedes the first member; before every other one it is required.
        if self.first {
            self.first = false;
        } else if next == Some(b',') {
            self.at += 1;
        } else {
            return self.fail("expected ',' or the end of the container");
        }
        Ok(false)
    }

    /// Reads a string.
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
        // Both ends are next to ASCII bytes, so they are character boundaries.
        self.text.get(start..end).ok_or(JsonError { at: start, what: "broken text" })
    }

    /// Advances from behind the opening quote to behind the closing one.
    #[inline]
    fn skip_string_body(&mut self) -> Result<(), JsonError> {
        // An escaped byte is skipped. A multi-byte character after a backslash is invalid JSON; the search then
        // continues inside the character, which is harmless, because its bytes are not quotes.
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

    /// Reads a string; `None` for `null`.
    pub fn string_or_null(&mut self) -> Result<Option<JsonStr<'a>>, JsonError> {
        if self.look() == Some(b'n') {
            self.literal("null")?;
            return Ok(None);
        }
        self.string().map(Some)
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self) -> Result<bool, JsonError> {
        match self.look() {
            Some(b't') => self.literal("true").map(|()| true),
            Some(b'f') => self.literal("false").map(|()| false),
            _ => self.fail("expected true or false"),
        }
    }

    /// Reads a value of any kind without decoding it.
    #[inline]
    pub fn raw(&mut self) -> Result<RawJson<'a>, JsonError> {
        self.look();
        let start = self.at;
        self.skip()?;
        Ok(RawJson::from_text(self.slice(start, self.at)?))
    }

    /// Reads a non-negative integer. Returns `None` for `null` and for any other value, which is skipped.
    pub fn u64_or_skip(&mut self) -> Result<Option<u64>, JsonError> {
        Ok(self.raw()?.as_u64())
    }

    /// Skips a value of any kind.
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

    /// Skips an object or array by counting the brackets outside of strings.
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
            // Folding bit 0x20 maps both kinds of brackets to the braces; no other byte maps to a brace.
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
                // Byte 0x02 also folds to the quote; it is invalid outside of strings.
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

    /// Checks that only white space follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.look() {
            None => Ok(()),
            Some(_) => self.fail("something follows the document"),
        }
    }
}
