//! Halves of surrogate pairs in escapes: `\ud83d` without `\ude00` behind it.
//!
//! The grammar of JSON permits them, but they stand for no character. Programs that cut a text between two UTF-16 units
//! write them, for example for the result of a tool that is cut within an emoji; most providers refuse the whole request
//! as invalid JSON. A lone half becomes U+FFFD, whose escape is as long, so that no offset changes.

use std::borrow::Cow;

/// Escape of U+FFFD.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Length of an escape.
const ESCAPE: usize = REPLACEMENT.len();

/// Pairs the halves of a text in their order. Stores no positions: there may be any number of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Halves {
    /// Start of a first half whose second half has not come yet.
    open: Option<usize>,
    has_lone: bool,
}

impl Halves {
    /// Notes the escape that starts at the offset `at` and stands for this UTF-16 unit.
    #[inline]
    pub(super) fn note(&mut self, at: usize, unit: u32) {
        if unit & 0xf800 == 0xd800 {
            self.note_half(at, unit);
        }
    }

    fn note_half(&mut self, at: usize, unit: u32) {
        let open = self.open.take();
        let is_first = unit < 0xdc00;
        let is_paired = !is_first && open.is_some_and(|open| open + ESCAPE == at);
        self.has_lone |= if is_first { open.is_some() } else { !is_paired };
        self.open = is_first.then_some(at);
    }

    /// Returns whether a half has no other half, now that all of the text was noted.
    pub(super) fn has_lone(self) -> bool {
        self.has_lone || self.open.is_some()
    }
}

/// Returns JSON text whose lone halves are replaced; borrowed if there are none.
///
/// ```
/// # use model_gateway_json::with_whole_characters;
/// assert_eq!(with_whole_characters(r#"["\ud83d\ude00", "\ud83d"]"#), r#"["\ud83d\ude00", "\ufffd"]"#);
/// ```
pub fn with_whole_characters(text: &str) -> Cow<'_, str> {
    // To prepare a search for two bytes would take longer than to look at most texts.
    let Some(at) = memchr::memchr(b'\\', text.as_bytes()) else { return Cow::Borrowed(text) };
    if memchr::memmem::find(text.as_bytes().get(at..).unwrap_or_default(), b"\\u").is_none() {
        return Cow::Borrowed(text);
    }
    let mut halves = Halves::default();
    each_half(text.as_bytes(), |at, unit| halves.note(at, unit));
    if !halves.has_lone() {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().to_vec();
    replace_lone(&mut bytes);
    // An escape is replaced by another one, both of ASCII.
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Replaces the lone halves of a JSON text.
pub(super) fn replace_lone(text: &mut [u8]) {
    let mut from = 0;
    while let Some((at, unit)) = next_half(text, from) {
        from = at + ESCAPE;
        let is_pair =
            unit < 0xdc00 && unit_at(text, from).is_some_and(|second| (0xdc00..0xe000).contains(&second));
        if is_pair {
            from += ESCAPE;
        } else if let Some(escape) = text.get_mut(at..from) {
            escape.copy_from_slice(REPLACEMENT);
        }
    }
}

fn each_half(text: &[u8], mut each: impl FnMut(usize, u32)) {
    let mut from = 0;
    while let Some((at, unit)) = next_half(text, from) {
        each(at, unit);
        from = at + ESCAPE;
    }
}

/// Returns the first escape of a half from an offset on, which is not within an escape: where it starts, and its unit.
fn next_half(text: &[u8], mut from: usize) -> Option<(usize, u32)> {
    loop {
        let at = from + memchr::memchr(b'\\', text.get(from..)?)?;
        match unit_at(text, at) {
            Some(unit) if unit & 0xf800 == 0xd800 => return Some((at, unit)),
            Some(_) => from = at + ESCAPE,
            // Another escape.
            None => from = at + 2,
        }
    }
}

/// Returns the UTF-16 unit of the `\u` escape at an offset. `None` if there is no such escape.
fn unit_at(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DocumentReader, WantedMembers};
    use bytes::Bytes;
    use proptest::prelude::*;

    static WANTED: WantedMembers = WantedMembers::new(&["model"], &[]);

    /// Reads a document that arrives in pieces.
    fn read(text: &str, step: usize) -> String {
        let mut reader = DocumentReader::new(&WANTED);
        for piece in text.as_bytes().chunks(step) {
            reader.push(Bytes::copy_from_slice(piece)).unwrap();
        }
        reader.finish().unwrap().text.into_contiguous().as_str().to_owned()
    }

    #[test]
    fn half_of_a_surrogate_pair_becomes_the_replacement_character() {
        for (text, expected) in [
            (r#"{"a":"cut \ud83d here"}"#, r#"{"a":"cut \ufffd here"}"#),
            (r#"{"a":"\uDE00\uD83D"}"#, r#"{"a":"\ufffd\ufffd"}"#),
            (r#"{"a":"\ud83d","b":"\ude00"}"#, r#"{"a":"\ufffd","b":"\ufffd"}"#),
            (r#"{"\ud83d":["\ud83d\ud83d\ude00\ude00"]}"#, r#"{"\ufffd":["\ufffd\ud83d\ude00\ufffd"]}"#),
            (r#"{"a":"\ud83dx\ude00","b":"\\ud83d"}"#, r#"{"a":"\ufffdx\ufffd","b":"\\ud83d"}"#),
            (r#"{"a":"\ud83d\ude00\ud7ff\ue000\\\ud83d"}"#, r#"{"a":"\ud83d\ude00\ud7ff\ue000\\\ufffd"}"#),
        ] {
            for step in 1..=text.len() {
                assert_eq!(read(text, step), expected, "in pieces of {step}");
            }
            assert_eq!(with_whole_characters(text), expected);
        }
    }

    proptest! {
        #[test]
        fn halves_are_replaced_wherever_they_stand(
            inside in r#"(\\ud83d|\\uDE00|\\u00e9|\\n|\\\\|[a-z]{0,3}|[a-z]{60,70}){0,24}"#,
            step in 1usize..200,
        ) {
            let text = format!("{{\"k\":\"{inside}\"}}");
            let read = read(&text, step);
            prop_assert_eq!(&read, &with_whole_characters(&text));
            prop_assert_eq!(read.len(), text.len());
            // The values are those of a reader that replaces them itself, and no half is left.
            let value = |text: &str| crate::RawJson::from_text(text.get(5..text.len() - 1).unwrap_or_default()).as_str().unwrap().decode().into_owned();
            prop_assert_eq!(value(&read), value(&text));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&read).is_ok(), "{}", read);
        }
    }
}
