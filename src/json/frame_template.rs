//! Speculative frame template: recognizes documents that equal the last one except in a few slots, as most frames of a
//! stream do.
//!
//! A reader that has parsed a document reports which of its parts vary; the rest becomes the template. A document that
//! matches the template has the same meaning with other slot contents, and needs no parsing.

use smallvec::SmallVec;

use super::run::string_end;
use super::{JsonStr, RawJson};

/// Maximum number of slots. A document with more of them gets no template.
const MAX_HOLES: usize = 16;

/// Speculative frame template: the last frame with slots for what varies.
#[derive(Clone, Debug, Default)]
pub struct FrameTemplate {
    /// Constant text of the template, without the slots.
    solid: String,
    holes: SmallVec<[TemplateSlot; 6]>,
}

#[derive(Clone, Copy, Debug)]
struct TemplateSlot {
    /// Byte offset in `solid`.
    at: usize,
    kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    /// Inside of the string that carries the content.
    Text,
    /// Inside of a string without meaning.
    Padding,
    /// Decimal digits.
    Digits,
}

/// Varying parts of a document, as slices of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateParts<'a> {
    /// Inside of the string that carries the content.
    pub text: JsonStr<'a>,
    /// Inside of a string without meaning.
    pub padding: JsonStr<'a>,
    /// JSON value in which only integers vary.
    pub numbers: Option<RawJson<'a>>,
}

/// Slots of a frame that matched the template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateMatch<'a> {
    document: &'a str,
    start: usize,
    end: usize,
}

impl<'a> TemplateMatch<'a> {
    /// Returns the content string, without its quotes.
    #[inline]
    pub fn text(&self) -> JsonStr<'a> {
        JsonStr::from_escaped(self.document.get(self.start..self.end).unwrap_or_default())
    }

    /// Returns the content string with its quotes.
    #[inline]
    pub fn value(&self) -> RawJson<'a> {
        RawJson::from_text(self.document.get(self.start - 1..self.end + 1).unwrap_or("\"\""))
    }

    /// Returns the document behind the content, from its closing quote.
    #[inline]
    pub fn rest(&self) -> &'a str {
        self.document.get(self.end..).unwrap_or_default()
    }
}

impl FrameTemplate {
    /// Removes the template: no document matches until the next [`take`](Self::take).
    #[inline]
    pub fn clear(&mut self) {
        self.holes.clear();
    }

    /// Builds the template from a parsed document; the parts must be slices of it. Without a text the template stays
    /// empty.
    pub fn take(&mut self, document: &str, varying: &TemplateParts<'_>) {
        self.clear();
        let mut places: SmallVec<[(usize, usize, SlotKind); MAX_HOLES]> = SmallVec::new();
        // A part that is not a slice of the document (decoded or joined text) cannot be a slot.
        for (part, kind) in [(varying.text, SlotKind::Text), (varying.padding, SlotKind::Padding)] {
            match place(document, part.escaped()) {
                Some(start) => places.push((start, start + part.escaped().len(), kind)),
                None if kind == SlotKind::Text => return,
                None => {}
            }
        }
        let numbers = varying.numbers.map_or("", RawJson::text);
        if let Some(from) = place(document, numbers) {
            digits(numbers, |start, end| places.push((from + start, from + end, SlotKind::Digits)));
        }
        if places.len() > MAX_HOLES {
            return;
        }
        places.sort_unstable_by_key(|(start, ..)| *start);
        self.solid.clear();
        let mut done = 0;
        for (start, end, kind) in places {
            self.solid.push_str(document.get(done..start).unwrap_or_default());
            self.holes.push(TemplateSlot { at: self.solid.len(), kind });
            done = end;
        }
        self.solid.push_str(document.get(done..).unwrap_or_default());
    }

    /// Matches a document against the template. Returns `None` if it does not match.
    #[inline]
    pub fn fit<'a>(&self, document: &'a str) -> Option<TemplateMatch<'a>> {
        let (bytes, solid) = (document.as_bytes(), self.solid.as_bytes());
        let (mut at, mut done, mut text) = (0, 0, None);
        for hole in &self.holes {
            // The constant text must match byte for byte: any other member or value means a frame that must be parsed.
            let part = solid.get(done..hole.at)?;
            let rest = bytes.get(at..)?.strip_prefix(part)?;
            at += part.len();
            done = hole.at;
            let length = match hole.kind {
                SlotKind::Digits => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
                // The string must end properly, because its content is copied into other frames without another check.
                SlotKind::Text | SlotKind::Padding => string_end(rest, 0).ok()?,
            };
            if hole.kind == SlotKind::Text {
                text = Some((at, at + length));
            }
            at += length;
        }
        let (start, end) = text?;
        (bytes.get(at..)? == solid.get(done..)?).then_some(TemplateMatch { document, start, end })
    }
}

/// Returns the byte offset of `part` in `document`, by pointer comparison. Returns `None` if `part` is empty or not a
/// slice of it.
fn place(document: &str, part: &str) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
    let found = document.get(start..start.checked_add(part.len())?)?;
    (!part.is_empty() && std::ptr::eq(found, part)).then_some(start)
}

/// Calls `each` with the byte range of every digit run outside of strings.
fn digits(json: &str, mut each: impl FnMut(usize, usize)) {
    let bytes = json.as_bytes();
    let (mut at, mut in_string) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'0'..=b'9' if !in_string => {
                let start = at;
                while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                    at += 1;
                }
                each(start, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: &str = r#"{"n":17,"delta":"one \"two\"","tokens":{"a": 3,"b":[40]},"pad":"xyz"}"#;

    /// Returns the parts of the frame that vary.
    fn varying(frame: &str) -> TemplateParts<'_> {
        let part = |from: &str, to: &str| {
            let start = frame.find(from).unwrap() + from.len();
            frame.get(start..start + frame.get(start..).unwrap().find(to).unwrap()).unwrap()
        };
        TemplateParts {
            text: JsonStr::from_escaped(part("\"delta\":\"", "\",\"tokens")),
            padding: JsonStr::from_escaped(part("\"pad\":\"", "\"}")),
            numbers: Some(RawJson::from_text(part("\"tokens\":", ",\"pad"))),
        }
    }

    fn mould() -> FrameTemplate {
        let mut mould = FrameTemplate::default();
        mould.take(FRAME, &varying(FRAME));
        mould
    }

    #[test]
    fn template_matches_a_document_that_differs_in_slots_only() {
        let next = r#"{"n":17,"delta":"\\","tokens":{"a": 0,"b":[1234]},"pad":""}"#;
        for (document, text) in [(FRAME, r#"one \"two\""#), (next, r"\\")] {
            let cast = mould().fit(document).unwrap();
            assert_eq!(cast.text().escaped(), text);
            assert_eq!(cast.value().as_str(), Some(cast.text()));
            assert!(cast.rest().starts_with("\",\"tokens\""));
        }
    }

    #[test]
    fn template_rejects_a_document_that_differs_outside_slots() {
        for (was, is) in [
            ("17", "18"),
            ("\"delta\"", "\"other\""),
            ("[40]", "[40,1]"),
            ("[40]", "[4.5]"),
            ("3,", "-3,"),
            ("one", "o\u{1}ne"),
            ("xyz\"}", "xyz\",\"error\":{}}"),
            ("xyz\"}", "xyz"),
            ("xyz\"}", "xyz\\"),
        ] {
            assert!(mould().fit(&FRAME.replace(was, is)).is_none(), "{is}");
        }
        for end in 0..FRAME.len() {
            assert!(mould().fit(FRAME.get(..end).unwrap()).is_none(), "{end}");
        }
    }

    #[test]
    fn template_without_a_text_slot_matches_nothing() {
        let mut mould = mould();
        mould.take(FRAME, &TemplateParts { text: JsonStr::from_escaped("one"), ..varying(FRAME) });
        assert!(mould.fit(FRAME).is_none());
        assert!(FrameTemplate::default().fit("").is_none());
    }
}
