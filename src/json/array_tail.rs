//! Array tails: where the last elements of the outermost object's arrays are, noted while a document is scanned.
//!
//! A reader that needs the end of a long array finds it here and reads a few bytes of the document, instead of searching
//! it backwards. Only objects and arrays are noted: the scanner passes strings and numbers in its fast path.

use std::ops::Range;

/// Number of last elements that are noted for each array.
pub const NOTED_ELEMENTS: usize = 4;

/// Number of containers around the values whose beginnings are kept: the outermost object, an array, an element, and a
/// member of the element.
const LEVELS: usize = 5;

/// Last elements of an array that is a member of the outermost object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayTail {
    /// Offset of the array in the document.
    pub start: usize,
    /// Number of its elements that are objects or arrays.
    pub count: usize,
    last: [ElementSpan; NOTED_ELEMENTS],
}

impl ArrayTail {
    /// Returns the last elements that are objects or arrays, at most [`NOTED_ELEMENTS`], from the last to the first.
    pub fn last(&self) -> impl Iterator<Item = &ElementSpan> {
        let noted = self.count.min(NOTED_ELEMENTS);
        (1..=noted).filter_map(move |back| self.last.get((self.count - back) % NOTED_ELEMENTS))
    }
}

/// Place of an element of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementSpan {
    /// Byte range in the document.
    pub range: Range<usize>,
    /// Whether it is an object instead of an array.
    pub is_object: bool,
    /// Number of its own members or elements that are objects or arrays.
    pub containers: usize,
    /// Range of the last object or array within these, one level below. Empty if there is none.
    pub last_inner: Range<usize>,
}

/// Collects array tails while a document is scanned.
#[derive(Default)]
pub(super) struct ArrayTails {
    /// Offset of the last container that was opened, by the number of containers around it.
    starts: [usize; LEVELS],
    /// Containers and last inner one of the current element.
    containers: usize,
    last_inner: Range<usize>,
    /// Array that is being read.
    current: ArrayTail,
    done: Vec<ArrayTail>,
}

impl ArrayTails {
    /// Notes the beginning of an object or array with `depth` containers around it.
    #[inline]
    pub(super) fn open(&mut self, depth: usize, at: usize) {
        if let Some(start) = self.starts.get_mut(depth) {
            *start = at;
        }
    }

    /// Notes the end of an object or array with `depth` containers around it. `is_wanted` is whether the member of the
    /// outermost object that it is, or is in, has a wanted name.
    #[inline]
    pub(super) fn close(&mut self, depth: usize, end: usize, is_object: bool, is_wanted: bool) {
        match depth {
            4 => self.last_inner = self.start(4)..end,
            3 => self.containers += 1,
            2 => self.end_element(end, is_object),
            1 => self.end_member(is_object, is_wanted),
            _ => {}
        }
    }

    fn start(&self, depth: usize) -> usize {
        self.starts.get(depth).copied().unwrap_or_default()
    }

    fn end_element(&mut self, end: usize, is_object: bool) {
        let range = self.start(2)..end;
        if let Some(slot) = self.current.last.get_mut(self.current.count % NOTED_ELEMENTS) {
            *slot = ElementSpan {
                range,
                is_object,
                containers: std::mem::take(&mut self.containers),
                last_inner: std::mem::take(&mut self.last_inner),
            };
        }
        self.current.count += 1;
    }

    fn end_member(&mut self, is_object: bool, is_wanted: bool) {
        if self.current.count == 0 {
            return;
        }
        // Only wanted members, whose number is bounded.
        if !is_object && is_wanted {
            self.current.start = self.start(1);
            self.done.push(self.current.clone());
        }
        self.current.count = 0;
    }

    /// Returns the tails of the wanted arrays that have an object or array, in the order of the document.
    pub(super) fn finish(self) -> Vec<ArrayTail> {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scanner, WantedMembers};
    use super::*;

    static WANTED: WantedMembers = WantedMembers::new(&["list", "other"], &[]).with_tails();

    fn tails(text: &str, piece: usize) -> Vec<ArrayTail> {
        let mut scan = Scanner::seeking(&WANTED);
        for piece in text.as_bytes().chunks(piece) {
            scan.push(piece).unwrap();
        }
        scan.check_end().unwrap();
        scan.into_found().1
    }

    #[test]
    fn array_tail_has_the_last_elements_at_every_split() {
        let text = r#"{"unknown":[{}],"list":[{"a":[{"b":1},{"c":{"d":[]}}],"e":"]}"},"x",1,[2,[3]], {} ],"other":[1]}"#;
        let slice = |range: &Range<usize>| &text[range.clone()];
        for piece in 1..=text.len() {
            let found = tails(text, piece);
            let [list] = &found[..] else { panic!("{found:?}") };
            assert_eq!((list.start, list.count), (text.find("[{\"a\"").unwrap(), 3), "{piece}");
            let elements: Vec<_> = list.last().collect();
            let described = elements.iter().map(|element| {
                (slice(&element.range), element.is_object, element.containers, slice(&element.last_inner))
            });
            let expected = [
                ("{}", true, 0, ""),
                ("[2,[3]]", false, 1, ""),
                (r#"{"a":[{"b":1},{"c":{"d":[]}}],"e":"]}"}"#, true, 1, r#"{"c":{"d":[]}}"#),
            ];
            assert!(described.eq(expected), "{piece}: {elements:?}");
        }
    }

    #[test]
    fn array_tail_of_a_long_array_has_its_end() {
        for length in 0..12 {
            let elements: Vec<String> = (0..length).map(|n| format!("{{\"n\":{n}}}")).collect();
            let text = format!("{{\"other\":[{}]}}", elements.join(","));
            let found = tails(&text, usize::MAX);
            let last: Vec<&str> =
                found.iter().flat_map(ArrayTail::last).map(|element| &text[element.range.clone()]).collect();
            let expected: Vec<&str> =
                elements.iter().rev().take(NOTED_ELEMENTS).map(String::as_str).collect();
            assert_eq!(last, expected);
            assert_eq!(found.iter().map(|tail| tail.count).sum::<usize>(), length);
        }
    }
}
