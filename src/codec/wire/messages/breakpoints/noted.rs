//! Places of cache marks in lists whose last elements were noted by the scan: the beginnings and ends of these elements
//! say what they are, if they are written as most clients write them. `None` always means that the list must be read.

use std::borrow::Cow;
use std::ops::Range;

use super::{Place, is_blank_string, is_plain_letter};
use crate::canonical::Role;
use crate::canonical::breakpoints::TurnSearch;
use json::{ArrayTail, Cursor, ElementSpan, JsonRope, NOTED_ELEMENTS, ReverseReader};

/// Bytes that are read of the beginning or the end of an element: enough for its role or type, also with indentation.
const ENDS: usize = 128;

/// Returns the range of the last element of a list that ends at offset `list_end`, if it is an object with members.
pub(super) fn last_object<'t>(
    text: &JsonRope,
    tail: &'t ArrayTail,
    list_end: usize,
) -> Option<&'t Range<usize>> {
    let last = tail.last().next().filter(|last| last.is_object)?;
    let end = text.bytes(last.range.end.saturating_sub(ENDS).max(last.range.start + 1)..last.range.end - 1);
    end.iter().find(|byte| !byte.is_ascii_whitespace())?;
    (closing_bracket(text, last.range.end)? + 1 == list_end).then_some(&last.range)
}

/// Returns the offset of the bracket that ends a list behind an element that ends at `at`.
fn closing_bracket(text: &JsonRope, at: usize) -> Option<usize> {
    let mut head = Head::new(text, at..at.saturating_add(ENDS));
    head.byte(b']')?;
    Some(at + head.at - 1)
}

/// Returns the offset of the closing brace of a block that can have a mark.
pub(super) fn closing_brace(text: &JsonRope, block: &Range<usize>) -> Option<usize> {
    let mut head = Head::new(text, block.clone());
    if head.text.starts_with(br#"{"type":"tool_result","#) {
        return Some(block.end - 1);
    }
    head.byte(b'{')?;
    let can_have_mark = match head.name()? {
        b"\"type\"" => match head.string()? {
            b"\"text\"" => {
                head.byte(b',')?;
                head.name()? == b"\"text\"" && head.is_plain_text()
            }
            kind => is_markable(kind),
        },
        // Clients that sort members: the type is the last one.
        b"\"text\"" => head.is_plain_text() && last_member(text, block, b"\"type\"")? == b"\"text\"",
        _ => is_markable(&last_member(text, block, b"\"type\"")?),
    };
    can_have_mark.then_some(block.end - 1)
}

/// Returns whether blocks of this type, with its quotes, can have a mark whatever their content is.
pub(super) fn is_markable(kind: &[u8]) -> bool {
    matches!(kind, b"\"image\"" | b"\"document\"" | b"\"search_result\"" | b"\"tool_result\"")
}

/// Returns the places behind the last answered user turn and behind the last user turn, each `None` if there is none.
pub(super) fn last_turns(text: &JsonRope, tail: &ArrayTail, has_tools: bool) -> Option<[Option<Place>; 2]> {
    let mut search = TurnSearch::default();
    for message in tail.last().filter(|element| element.is_object) {
        let (role, content) = begin_message(text, &message.range)?;
        if search.wants(role) {
            search.set(place(text, message, content)?);
        }
        if search.is_complete() {
            return Some(search.finish(has_tools));
        }
    }
    (tail.count <= NOTED_ELEMENTS).then(|| search.finish(has_tools))
}

/// Beginnings of messages as most clients write them, up to the content.
const BEGINNINGS: [(&[u8], Role); 2] =
    [(br#"{"role":"user","content":"#, Role::User), (br#"{"role":"assistant","content":"#, Role::Assistant)];

/// Returns the role of a message, and the offset of its content.
fn begin_message(text: &JsonRope, message: &Range<usize>) -> Option<(Role, usize)> {
    let mut head = Head::new(text, message.clone());
    for (beginning, role) in BEGINNINGS {
        if head.text.starts_with(beginning) {
            return Some((role, message.start + beginning.len()));
        }
    }
    head.byte(b'{')?;
    let role = match head.name()? {
        b"\"role\"" => {
            let role = role(head.string()?)?;
            head.byte(b',')?;
            (head.name()? == b"\"content\"").then_some(role)?
        }
        b"\"content\"" => role(&last_member(text, message, b"\"role\"")?)?,
        _ => return None,
    };
    head.skip_space();
    Some((role, message.start + head.at))
}

fn role(word: &[u8]) -> Option<Role> {
    match word {
        b"\"user\"" => Some(Role::User),
        b"\"assistant\"" => Some(Role::Assistant),
        b"\"system\"" => Some(Role::System),
        _ => None,
    }
}

/// Returns the place behind the content of a message.
fn place(text: &JsonRope, message: &ElementSpan, content: usize) -> Option<Place> {
    match (text.bytes(content..content + 1).first()?, message.containers) {
        // No other member has objects, so that the last one is a block of the content.
        (b'[', 1) if !message.last_inner.is_empty() => {
            closing_bracket(text, message.last_inner.end)?;
            closing_brace(text, &message.last_inner).map(Place::Object)
        }
        (b'"', _) => {
            let rest = text.view(content..message.range.end);
            let mut json = Cursor::new(&rest);
            json.string().ok()?;
            let value = rest.get(..json.offset())?;
            (!is_blank_string(value.as_bytes())).then(|| Place::String(content..content + value.len()))
        }
        _ => None,
    }
}

/// Returns the value of the last member of an object, if it has this name, with its quotes.
fn last_member(text: &JsonRope, object: &Range<usize>, name: &[u8]) -> Option<Vec<u8>> {
    let window = text.bytes(object.end.saturating_sub(ENDS).max(object.start)..object.end);
    let mut reader = ReverseReader::new(&window, window.len());
    reader.enter().ok()?;
    if !reader.has_previous().ok()? {
        return None;
    }
    let (found, value) = reader.member().ok()?;
    (window.get(found)? == name).then(|| window.get(value).map(<[u8]>::to_vec))?
}

/// Reader of the beginning of a range of the text.
struct Head<'t> {
    text: Cow<'t, [u8]>,
    at: usize,
}

impl<'t> Head<'t> {
    fn new(text: &'t JsonRope, range: Range<usize>) -> Self {
        Head { text: text.bytes(range.start..range.end.min(range.start.saturating_add(ENDS))), at: 0 }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Consumes a byte, which must be this one.
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.text.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    /// Consumes a string without escapes, and returns it with its quotes.
    fn string(&mut self) -> Option<&[u8]> {
        self.skip_space();
        let rest = self.text.get(self.at..)?;
        let inner = rest.strip_prefix(b"\"")?;
        // Roles and types are short, so that a search byte by byte is the fastest.
        let end = inner.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        let length = (inner.get(end) == Some(&b'"')).then_some(end + 2)?;
        self.at += length;
        rest.get(..length)
    }

    /// Consumes the name of a member and the colon, and returns the name with its quotes.
    fn name(&mut self) -> Option<&[u8]> {
        let start = {
            self.skip_space();
            self.at
        };
        let length = self.string()?.len();
        self.byte(b':')?;
        self.text.get(start..start + length)
    }

    /// Returns whether a string follows that is certainly not blank.
    fn is_plain_text(&mut self) -> bool {
        self.byte(b'"').is_some() && self.text.get(self.at).is_some_and(|first| is_plain_letter(*first))
    }
}
