//! Reverse reader: reads validated JSON from its end, so that the last elements of a long array cost nothing for the
//! elements before them.

use std::ops::Range;

use memchr::memrchr;

use super::JsonRope;

/// Sizes in bytes of the end of a value that is read, per attempt. A text in several pieces is copied for that.
const WINDOWS: [usize; 4] = [8 * 1024, 64 * 1024, 1024 * 1024, usize::MAX];

/// Error of a read that needs text before the beginning of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text begins inside of the value")]
pub struct Truncated;

/// Reads a value of a text in pieces from its end. `search` gets the reader, the bytes that it reads, and their offset
/// in the text. It is called again with more bytes as long as it returns [`Truncated`]. `None` if it does so with the
/// whole value.
pub fn read_from_end<T>(
    text: &JsonRope,
    range: Range<usize>,
    search: impl Fn(&mut ReverseReader<'_>, &[u8], usize) -> Result<T, Truncated>,
) -> Option<T> {
    for window in WINDOWS {
        let start = range.end.saturating_sub(window).max(range.start);
        // A window may begin within a character, so it is bytes and not text.
        let window = text.bytes(start..range.end);
        match search(&mut ReverseReader::new(&window, window.len()), &window, start) {
            Ok(found) => return Some(found),
            Err(Truncated) if start == range.start => return None,
            Err(Truncated) => {}
        }
    }
    None
}

/// Reader of a validated document, or of the end of one, from its end to its beginning. Positions are byte offsets in
/// the slice. It does not validate again. Every method returns [`Truncated`] if the slice begins too late.
#[derive(Clone, Debug)]
pub struct ReverseReader<'t> {
    text: &'t [u8],
    /// Offset behind the unread text.
    at: usize,
}

impl<'t> ReverseReader<'t> {
    /// Creates a reader of a value that ends at byte `end` of the slice.
    pub fn new(text: &'t [u8], end: usize) -> Self {
        ReverseReader { text, at: end.min(text.len()) }
    }

    /// Returns the offset behind the unread text.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the last unread byte that is not white space, without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, Truncated> {
        loop {
            match self.text.get(self.at.wrapping_sub(1)) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at -= 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Truncated),
            }
        }
    }

    /// Consumes the closing bracket of an object or array.
    pub fn enter(&mut self) -> Result<(), Truncated> {
        self.peek()?;
        self.at -= 1;
        Ok(())
    }

    /// Returns whether the entered object or array has another element before the last one that was read. Consumes the
    /// comma behind it, or the opening bracket if there is none.
    pub fn has_previous(&mut self) -> Result<bool, Truncated> {
        match self.peek()? {
            b'[' | b'{' => {
                self.at -= 1;
                Ok(false)
            }
            b',' => {
                self.at -= 1;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Reads a member of an object. Returns the ranges of its name, with the quotes, and of its value.
    pub fn member(&mut self) -> Result<(Range<usize>, Range<usize>), Truncated> {
        let value = self.value()?;
        if self.peek()? == b':' {
            self.at -= 1;
        }
        Ok((self.value()?, value))
    }

    /// Reads a value and returns its range.
    pub fn value(&mut self) -> Result<Range<usize>, Truncated> {
        let last = self.peek()?;
        let end = self.at;
        match last {
            b'"' => self.string()?,
            b']' | b'}' => self.container()?,
            _ => {
                // A number or a literal. Consumes at least one byte, so that the reader always advances.
                self.at -= 1;
                while !matches!(
                    self.text.get(self.at.wrapping_sub(1)).ok_or(Truncated)?,
                    b',' | b':' | b'[' | b'{' | b' ' | b'\n' | b'\r' | b'\t'
                ) {
                    self.at -= 1;
                }
            }
        }
        Ok(self.at..end)
    }

    fn container(&mut self) -> Result<(), Truncated> {
        let mut depth = 0_usize;
        loop {
            match self.text.get(self.at.wrapping_sub(1)).ok_or(Truncated)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b']' | b'}' => depth += 1,
                b'[' | b'{' => depth -= 1,
                _ => {}
            }
            self.at -= 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Consumes a string. A quote begins it unless an odd number of backslashes precedes the quote: outside of strings
    /// there are no backslashes.
    fn string(&mut self) -> Result<(), Truncated> {
        let mut end = self.at - 1;
        loop {
            let quote = memrchr(b'"', self.text.get(..end).ok_or(Truncated)?).ok_or(Truncated)?;
            let before = self.text.get(..quote).unwrap_or_default();
            let escapes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes == before.len() {
                // The first backslash may belong to a longer run.
                return Err(Truncated);
            }
            if escapes.is_multiple_of(2) {
                self.at = quote;
                return Ok(());
            }
            end = quote - escapes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &[u8], range: Range<usize>) -> &str {
        std::str::from_utf8(&text[range]).unwrap()
    }

    /// Reads an array or object from the end of `text`, and returns its elements in the order of the document.
    fn elements(text: &[u8], object: bool) -> Result<Vec<String>, Truncated> {
        let mut reader = ReverseReader::new(text, text.len());
        reader.enter()?;
        let mut found = Vec::new();
        while reader.has_previous()? {
            if object {
                let (name, value) = reader.member()?;
                found.push(format!("{}={}", slice(text, name), slice(text, value)));
            } else {
                found.push(slice(text, reader.value()?).to_owned());
            }
        }
        found.reverse();
        Ok(found)
    }

    const ARRAY: &str = r#"[ 1 , -2.5e+3,"a\"b\\" ,"\\\\\"", "]}[{" ,{"k":["x",{}] , "l" : "\"," } , [] ,null,"", true ,[[1],[2]]]"#;

    #[test]
    fn reverse_reader_finds_the_elements_of_an_array() {
        let found = elements(ARRAY.as_bytes(), false).unwrap();
        let expected = [
            "1",
            "-2.5e+3",
            r#""a\"b\\""#,
            r#""\\\\\"""#,
            r#""]}[{""#,
            r#"{"k":["x",{}] , "l" : "\"," }"#,
            "[]",
            "null",
            r#""""#,
            "true",
            "[[1],[2]]",
        ];
        assert_eq!(found, expected);
        assert_eq!(elements(b"[]", false).unwrap(), Vec::<String>::new());
        assert_eq!(elements(b" { } ", false).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn reverse_reader_finds_the_members_of_an_object() {
        let text = br#"{"a":1, "b\"" : "c:\"d" ,"e":{"f":[]} }"#;
        let expected = [r#""a"=1"#, r#""b\""="c:\"d""#, r#""e"={"f":[]}"#];
        assert_eq!(elements(text, true).unwrap(), expected);
    }

    #[test]
    fn reverse_reader_of_any_end_of_a_document_agrees_or_is_truncated() {
        let whole = elements(ARRAY.as_bytes(), false).unwrap();
        for start in 1..ARRAY.len() {
            let text = &ARRAY.as_bytes()[start..];
            let mut reader = ReverseReader::new(text, text.len());
            let mut found = Vec::new();
            let mut read = || -> Result<(), Truncated> {
                reader.enter()?;
                while reader.has_previous()? {
                    found.push(slice(text, reader.value()?).to_owned());
                }
                Ok(())
            };
            // The opening bracket is missing, so the end is never reached.
            assert_eq!(read(), Err(Truncated), "{start}");
            found.reverse();
            assert!(whole.ends_with(&found), "{start}: {found:?}");
        }
    }
}
