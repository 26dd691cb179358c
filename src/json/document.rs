//! Documents that are known to be UTF-8. The bytes are checked once, where they arrive, and the type carries the result,
//! so that no later reader checks them again.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};

use bytes::Bytes;
use smallvec::SmallVec;

use super::array_tail::ArrayTail;
use super::members::Member;
use super::rope::{Edit, Rope};
use super::scan::Scanner;
use super::scan_error::ScanError;
use super::surrogates::replace_lone;
use super::utf8::Utf8Error;
use super::wanted_members::WantedMembers;

/// Text of a document in one piece, known to be UTF-8. A clone shares the bytes.
///
/// ```
/// use model_gateway_json::JsonText;
/// let text = JsonText::new(bytes::Bytes::from_static(b"{\"n\":1}"))?;
/// assert_eq!(text.as_str(), "{\"n\":1}");
/// assert!(JsonText::new(bytes::Bytes::from_static(b"\xff")).is_err());
/// # Ok::<(), model_gateway_json::Utf8Error>(())
/// ```
#[derive(Clone, Default)]
pub struct JsonText(Bytes);

impl JsonText {
    /// Checks bytes that arrived. Nothing but UTF-8 is checked: a reader finds out whether the text is JSON.
    ///
    /// # Errors
    /// Returns an error without a position if the bytes are not UTF-8.
    pub fn new(bytes: Bytes) -> Result<Self, Utf8Error> {
        super::from_utf8(&bytes)?;
        Ok(JsonText(bytes))
    }

    /// Returns the text.
    #[inline]
    pub fn as_str(&self) -> &str {
        // The bytes were checked by `new`, are those of a `String`, or come from a `JsonRope`.
        known_utf8(&self.0)
    }

    /// Returns the bytes, shared.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for JsonText {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for JsonText {
    fn from(text: String) -> Self {
        JsonText(Bytes::from(text))
    }
}

impl From<&str> for JsonText {
    fn from(text: &str) -> Self {
        JsonText(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl AsRef<[u8]> for JsonText {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for JsonText {
    fn eq(&self, other: &T) -> bool {
        *self.0 == *other.as_ref()
    }
}

impl Eq for JsonText {}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Text of a document in the pieces in which it arrived, known to be UTF-8 as a whole. A character may straddle two
/// pieces. A clone shares the pieces.
#[derive(Clone, Debug, Default)]
pub struct JsonRope(Rope);

impl JsonRope {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pieces in order, as slices.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.0.pieces()
    }

    /// Returns the pieces in order, shared.
    pub fn into_pieces(self) -> SmallVec<[Bytes; 2]> {
        self.0.into_pieces()
    }

    /// Returns the text as one piece; copies only if there are several pieces.
    pub fn into_contiguous(self) -> JsonText {
        JsonText(self.0.into_contiguous())
    }

    /// Joins the pieces, and returns the text, shared; copies only if there are several pieces, which are freed.
    pub fn make_contiguous(&mut self) -> JsonText {
        let text = std::mem::take(&mut self.0).into_contiguous();
        self.0 = Rope::from(text.clone());
        JsonText(text)
    }

    /// Returns a range of the bytes, which may begin or end within a character; copies only if it straddles pieces. A
    /// range beyond the end is cut.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        self.0.slice(range)
    }

    /// Returns a range of the bytes, borrowed, which may begin or end within a character; copies only if it straddles
    /// pieces. A range beyond the end is cut.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        self.0.view(range)
    }

    /// Returns a range of the text, shared; copies only if it straddles pieces. Empty if the range begins or ends within
    /// a character.
    pub fn text(&self, range: Range<usize>) -> JsonText {
        let bytes = self.0.slice(range);
        if is_whole_characters(&bytes) { JsonText(bytes) } else { JsonText::default() }
    }

    /// Returns a range of the text, borrowed; copies only if it straddles pieces. Empty if the range begins or ends
    /// within a character, or is not within the text.
    #[inline]
    pub fn view(&self, range: Range<usize>) -> Cow<'_, str> {
        match self.0.view(range) {
            Cow::Borrowed(bytes) if is_whole_characters(bytes) => Cow::Borrowed(known_utf8(bytes)),
            Cow::Borrowed(_) => Cow::Borrowed(""),
            // Rare and short: a member that straddles two pieces is copied anyway.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).unwrap_or_default()),
        }
    }

    /// Replaces ASCII texts by others of the same length, so that the text stays UTF-8 and offsets into it stay valid.
    /// The edits must be sorted and must not overlap. Does nothing if one of them is of another kind.
    pub fn overwrite(&mut self, edits: &[Edit]) {
        let mut fits = |edit: &Edit| {
            let old = self.0.slice(edit.range.clone());
            old.len() == edit.range.len()
                && old.len() == edit.text.len()
                && old.is_ascii()
                && edit.text.is_ascii()
        };
        if edits.iter().all(&mut fits) {
            self.0 = std::mem::take(&mut self.0).edited(edits);
        }
    }

    /// Applies edits, which must be sorted and must not overlap. The unchanged text is shared, not copied.
    pub fn edited(self, edits: &[Edit]) -> Rope {
        self.0.edited(edits)
    }
}

/// Reader of a document that arrives in pieces: scans each piece and stores it.
pub struct DocumentReader {
    scan: Scanner,
    text: Rope,
}

/// Document that was read to its end: valid JSON, and an object.
#[derive(Debug)]
pub struct ScannedDocument {
    /// Text of the document. Lone halves of surrogate pairs are replaced, all else is unchanged.
    pub text: JsonRope,
    /// Members of the outermost object, in order.
    pub members: SmallVec<[Member; 12]>,
    /// Last elements of those of its wanted members that are arrays of objects or arrays.
    pub tails: Vec<ArrayTail>,
    /// Set of the words found: see [`Scanner::words_found`].
    pub words_found: u32,
}

impl DocumentReader {
    /// Creates a reader that reports these members, and notes which of these words occur.
    pub fn new(wanted: &'static WantedMembers) -> Self {
        DocumentReader { scan: Scanner::seeking(wanted), text: Rope::new() }
    }

    /// Returns the number of bytes received so far.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns true if no byte was received yet.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Joins the pieces of a document of `expected` bytes while they arrive: see [`Rope::join`].
    pub fn join(&mut self, expected: usize) {
        self.text.join(expected);
    }

    /// Returns the number of bytes that are held: see [`Rope::held`].
    pub fn held(&self) -> usize {
        self.text.held()
    }

    /// Scans the next piece and stores it.
    ///
    /// # Errors
    /// Returns [`ScanError`] if the document is invalid; every further call returns the same error.
    pub fn push(&mut self, piece: Bytes) -> Result<(), ScanError> {
        let scanned = self.scan.push(&piece);
        self.text.push(piece);
        scanned
    }

    /// Ends the document.
    ///
    /// # Errors
    /// Returns [`ScanError`] and the text if the document is invalid or incomplete, or if a member is duplicated.
    pub fn finish(mut self) -> Result<ScannedDocument, Box<(ScanError, Rope)>> {
        self.text.seal();
        if let Err(error) = self.scan.check_end() {
            return Err(Box::new((error, self.text)));
        }
        let words_found = self.scan.words_found();
        if self.scan.has_lone_surrogate() {
            // Escapes of ASCII are replaced by others of the same length: the offsets and the UTF-8 stay valid.
            let mut whole = self.text.into_contiguous().to_vec();
            replace_lone(&mut whole);
            self.text = Rope::from(Bytes::from(whole));
        }
        let (members, tails) = self.scan.into_found();
        // The scanner has checked the bytes of all pieces in order, which are those that the rope stores.
        Ok(ScannedDocument { text: JsonRope(self.text), members, tails, words_found })
    }
}

/// Returns true if a part of a UTF-8 text begins and ends between characters, so that it is UTF-8 as well.
#[inline]
fn is_whole_characters(part: &[u8]) -> bool {
    let is_continuation = |byte: u8| byte.cast_signed() < -64;
    // Nearly every part begins and ends with ASCII.
    let (Some(&first), Some(&last)) = (part.first(), part.last()) else { return true };
    if is_continuation(first) {
        return false;
    }
    if last.is_ascii() {
        return true;
    }
    let length = match part.iter().rev().position(|byte| !is_continuation(*byte)) {
        Some(continuations) => continuations + 1,
        None => return false,
    };
    let lead = part.get(part.len() - length).copied().unwrap_or_default();
    length
        == if lead >= 0xf0 {
            4
        } else if lead >= 0xe0 {
            3
        } else {
            2
        }
}

/// Returns bytes as text without a check. They must be UTF-8.
#[inline]
#[allow(unsafe_code, reason = "a check of a large body costs as much as reading it")]
fn known_utf8(bytes: &[u8]) -> &str {
    // Tests, Miri and the fuzz targets have debug assertions, so that they find a caller that breaks the rule.
    debug_assert!(super::from_utf8(bytes).is_ok(), "text that is not UTF-8");
    // SAFETY: the bytes are UTF-8. Only this file calls this function, with
    // - the bytes of a `JsonText`. Its field is private to this file, which builds it from bytes that `from_utf8`
    //   accepted, from a `String`, from the whole of a `JsonRope`, or from a part of one for which `is_whole_characters`
    //   is true;
    // - a part of a `JsonRope` for which `is_whole_characters` is true.
    // A `JsonRope` is built from the pieces that a `Scanner` accepted to the end, which includes that all of them
    // together are UTF-8, or from a copy in which escapes of ASCII were replaced by such of the same length. `Bytes` do
    // not change.
    unsafe { std::str::from_utf8_unchecked(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static WANTED: WantedMembers = WantedMembers::new(&["model"], &[]);

    fn read(text: &str, step: usize) -> JsonRope {
        let mut reader = DocumentReader::new(&WANTED);
        for piece in text.as_bytes().chunks(step) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        reader.finish().unwrap().text
    }

    fn check_ranges(text: &str, rope: &JsonRope) {
        for start in 0..=text.len() {
            for end in start..=text.len() {
                let expected = text.get(start..end).unwrap_or_default();
                assert_eq!(rope.text(start..end).as_str(), expected, "{start}..{end} of {text}");
                assert_eq!(rope.view(start..end), expected, "{start}..{end} of {text}");
            }
        }
    }

    // Without a generator, so that it runs under Miri.
    #[test]
    fn document_ranges_are_text_or_empty() {
        let text = "{\"é\":\"€🌍x\"}";
        for step in [1, 3, 100] {
            assert_eq!(read(text, step).into_contiguous(), text);
            check_ranges(text, &read(text, step));
        }
        // Pieces of this size are not copied together, so characters straddle them.
        let long = format!("{{\"a\":\"{}\"}}", "x€".repeat(5_000));
        for step in [4_096, 4_097, 4_098, 9_000] {
            let rope = read(&long, step);
            for at in [4_095, 4_096, 4_097, 4_098, 8_192, 8_194] {
                let expected = long.get(at..at + 9).unwrap_or_default();
                assert_eq!((&*rope.text(at..at + 9), &*rope.view(at..at + 9)), (expected, expected));
            }
            assert_eq!(rope.into_contiguous().as_str(), long);
        }
    }

    #[test]
    fn document_that_is_not_utf8_is_refused() {
        for bytes in [&b"{\"a\":\"\xff\"}"[..], b"{\"a\":\"\xe2\x82\"}", b"{\"a\":\"\xed\xa0\x80\"}"] {
            assert!(JsonText::new(Bytes::copy_from_slice(bytes)).is_err());
            for step in 1..=bytes.len() {
                let mut reader = DocumentReader::new(&WANTED);
                for piece in bytes.chunks(step) {
                    let _ = reader.push(Bytes::copy_from_slice(piece));
                }
                assert!(reader.finish().is_err(), "{bytes:?} in pieces of {step}");
            }
        }
    }

    proptest! {
        #[test]
        fn document_ranges_of_any_text_are_text_or_empty(inside in "[a-zäé€🌍]{0,24}", step in 1usize..12) {
            let text = format!("{{\"k\":\"{inside}\"}}");
            check_ranges(&text, &read(&text, step));
        }
    }
}
