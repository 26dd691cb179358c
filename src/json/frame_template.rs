//! Documents that are like the last one but for a few places, which most frames of a stream are.
//!
//! A reader that has understood a document says which places of it vary and casts a mould of the rest. A document that
//! fits into the mould means the same, with another text, and need not be read.

use smallvec::SmallVec;

use super::run::string_end;
use super::{JsonStr, RawJson};

/// Places that may vary, at most. A document with more of them is no usual one.
const MAX_HOLES: usize = 16;

/// Speculative frame template: the last frame with slots for what varies.
#[derive(Clone, Debug, Default)]
pub struct FrameTemplate {
    /// What does not vary.
    solid: String,
    holes: SmallVec<[TemplateSlot; 6]>,
}

#[derive(Clone, Copy, Debug)]
struct TemplateSlot {
    /// Where in `solid` it stands.
    at: usize,
    kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    /// The inside of the string that matters.
    Text,
    /// The inside of a string that does not.
    Padding,
    /// Digits.
    Digits,
}

/// What varies in a document.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateParts<'a> {
    /// The inside of a string: what the document is about.
    pub text: JsonStr<'a>,
    /// The inside of a string that says nothing.
    pub padding: JsonStr<'a>,
    /// A value in which whole numbers vary and nothing else does.
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
    /// The text that the document is about.
    #[inline]
    pub fn text(&self) -> JsonStr<'a> {
        JsonStr::from_escaped(self.document.get(self.start..self.end).unwrap_or_default())
    }

    /// The same with its quotes.
    #[inline]
    pub fn value(&self) -> RawJson<'a> {
        RawJson::from_text(self.document.get(self.start - 1..self.end + 1).unwrap_or("\"\""))
    }

    /// What follows that text, from its closing quote.
    #[inline]
    pub fn rest(&self) -> &'a str {
        self.document.get(self.end..).unwrap_or_default()
    }
}

impl FrameTemplate {
    /// Nothing fits any more.
    #[inline]
    pub fn clear(&mut self) {
        self.holes.clear();
    }

    /// Takes the shape of a document that was read; the parts are slices of it. Without a text there is no shape.
    pub fn take(&mut self, document: &str, varying: &TemplateParts<'_>) {
        self.clear();
        let mut places: SmallVec<[(usize, usize, SlotKind); MAX_HOLES]> = SmallVec::new();
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

    /// Whether a document fits, and what stands in its holes then.
    #[inline]
    pub fn fit<'a>(&self, document: &'a str) -> Option<TemplateMatch<'a>> {
        let (bytes, solid) = (document.as_bytes(), self.solid.as_bytes());
        let (mut at, mut done, mut text) = (0, 0, None);
        for hole in &self.holes {
            let part = solid.get(done..hole.at)?;
            let rest = bytes.get(at..)?.strip_prefix(part)?;
            at += part.len();
            done = hole.at;
            let length = match hole.kind {
                SlotKind::Digits => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
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

/// Where a part of a document stands in it. An empty one stands nowhere.
fn place(document: &str, part: &str) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
    let found = document.get(start..start.checked_add(part.len())?)?;
    (!part.is_empty() && std::ptr::eq(found, part)).then_some(start)
}

/// The whole numbers among the values of JSON text.
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

    /// The parts of the frame that vary.
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
    fn a_document_that_differs_in_its_holes_fits() {
        let next = r#"{"n":17,"delta":"\\","tokens":{"a": 0,"b":[1234]},"pad":""}"#;
        for (document, text) in [(FRAME, r#"one \"two\""#), (next, r"\\")] {
            let cast = mould().fit(document).unwrap();
            assert_eq!(cast.text().escaped(), text);
            assert_eq!(cast.value().as_str(), Some(cast.text()));
            assert!(cast.rest().starts_with("\",\"tokens\""));
        }
    }

    #[test]
    fn a_document_that_differs_elsewhere_does_not_fit() {
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
    fn without_a_text_of_the_document_nothing_fits() {
        let mut mould = mould();
        mould.take(FRAME, &TemplateParts { text: JsonStr::from_escaped("one"), ..varying(FRAME) });
        assert!(mould.fit(FRAME).is_none());
        assert!(FrameTemplate::default().fit("").is_none());
    }
}
