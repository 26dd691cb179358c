//! Automatic cache marks (`cache_control`) of a request body that is forwarded without decoding: edits of the body.
//!
//! The places are those of [`canonical::breakpoints`](crate::canonical::breakpoints). The encoder of translated
//! requests sets its marks at the same places. Source: Anthropic API, "Prompt caching"
//! (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, November 2026): which blocks may have a
//! mark, and at most four marks.
//!
//! The members of the body are known from the scan. Only the last tool, the last system block and the turns from the
//! last answered one on are read, from their ends, so that the cost does not grow with the conversation.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::request::is_blank;
use crate::canonical::breakpoints::TurnSearch;
use crate::canonical::{BreakpointRule, CacheBreakpoint, Role};
use crate::json::{Edit, JsonRope, JsonStr, ReverseReader, Truncated, ValueKind};
use crate::wire::Api;
use crate::wire::fields::{CONTENT, messages as m};
use crate::wire::request::Body;

/// Sizes in bytes of the end of a member that is read, per attempt. A body in several pieces is copied for that.
const WINDOWS: [usize; 4] = [8 * 1024, 64 * 1024, 1024 * 1024, usize::MAX];

/// Name of a cache mark, with its quotes. In a string it would have backslashes.
const MARK: &[u8] = b"\"cache_control\"";

/// Edits that set the automatic cache marks of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BreakpointEdits {
    /// Edits of the body, in ascending order. They only insert.
    pub edits: SmallVec<[Edit; 8]>,
    /// Number of marks.
    pub marks: u8,
}

/// Place of a cache mark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In an object, before the closing brace at this offset.
    Object(usize),
    /// In a text block that replaces the string in this range.
    String(Range<usize>),
}

impl Place {
    /// Returns the offset at which the marked prefix ends.
    fn end(&self) -> usize {
        match self {
            Place::Object(at) => *at,
            Place::String(range) => range.end,
        }
    }
}

impl BreakpointEdits {
    fn set(&mut self, place: Place, lifetime: CacheBreakpoint) {
        let long = lifetime == CacheBreakpoint::Long;
        let mut insert = |at, text: &'static [u8]| {
            self.edits.push(Edit { range: at..at, text: Bytes::from_static(text) });
        };
        match place {
            Place::Object(at) if long => {
                insert(at, br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#);
            }
            Place::Object(at) => insert(at, br#","cache_control":{"type":"ephemeral"}"#),
            Place::String(range) => {
                insert(range.start, br#"[{"type":"text","text":"#);
                insert(
                    range.end,
                    if long {
                        br#","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#
                    } else {
                        br#","cache_control":{"type":"ephemeral"}}]"#
                    },
                );
            }
        }
        self.marks += 1;
    }
}

impl Body {
    /// Returns the edits that set the automatic cache marks. None for another API than messages, and if the client has
    /// set a mark anywhere: which prefix is stable is then the client's decision.
    pub fn breakpoints(&self, rule: &BreakpointRule) -> BreakpointEdits {
        let mut out = BreakpointEdits::default();
        if self.api != Api::Messages || self.has_marks() {
            return out;
        }
        let prompt = [m::TOOLS, m::SYSTEM, CONTENT].into_iter().filter_map(|index| self.member(index));
        if !rule.may_cache(prompt.map(|member| member.value.len()).sum()) {
            return out;
        }
        let mut text = self.text.clone();
        let mut prefix = 0;
        let list = |index| {
            let member = self.member(index).filter(|member| member.kind == ValueKind::Array)?;
            Some(member.value.clone())
        };
        let mut places: SmallVec<[(Place, usize); 4]> = SmallVec::new();
        let mut has_tools = false;
        if let Some(tools) = list(m::TOOLS) {
            has_tools = tools.len() > "[]".len();
            prefix += tools.len();
            if let Some(at) = find(&mut text, tools, last_tool).flatten() {
                places.push((Place::Object(at), prefix));
            }
        }
        if let Some(system) = self.member(m::SYSTEM) {
            let range = system.value.clone();
            prefix += range.len();
            let place = match system.kind {
                ValueKind::String => {
                    // Most texts begin with a letter, and only others are read as a whole.
                    let first = text.slice(range.start..range.end.min(range.start + 2));
                    let is_text = matches!(*first, [b'"', byte] if is_plain_letter(byte))
                        || !is_blank_string(&text.slice(range.clone()));
                    is_text.then_some(Place::String(range))
                }
                ValueKind::Array => find(&mut text, range, |reader, text, start| {
                    Ok(last_block(reader, text)?.map(|at| Place::Object(start + at)))
                })
                .flatten(),
                _ => None,
            };
            places.extend(place.map(|place| (place, prefix)));
        }
        if let Some(turns) = list(CONTENT) {
            let start = turns.start;
            let found = find(&mut text, turns, |reader, text, at| last_turns(reader, text, at, has_tools));
            for place in found.into_iter().flatten().flatten() {
                let prefix = prefix + (place.end() - start);
                places.push((place, prefix));
            }
        }
        for (place, _) in places.into_iter().filter(|(_, prefix)| rule.may_cache(*prefix)) {
            out.set(place, rule.lifetime);
        }
        // The members of a body have any order, and a rope is edited in ascending order.
        out.edits.sort_by_key(|edit| edit.range.start);
        out
    }

    /// Returns whether the client has set a cache mark. The scan reports every mark, but sometimes one that is none.
    fn has_marks(&self) -> bool {
        let is_reported = self.words_found & m::MARK != 0;
        // The whole text is copied only if a mark is reported and no piece has one.
        is_reported
            && (self.text.pieces().any(has_mark) || has_mark(self.text.clone().into_contiguous().as_bytes()))
    }
}

/// Returns whether a text has a member with the name of a cache mark.
fn has_mark(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, MARK).any(|at| {
        let behind = text.get(at + MARK.len()..).unwrap_or_default();
        behind.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
    })
}

/// Searches a member of the body from its end. `search` gets the reader, the text that it reads, and the offset of that
/// text in the body. `None` if the member is malformed, which the scan rules out.
fn find<T>(
    text: &mut JsonRope,
    range: Range<usize>,
    search: impl Fn(&mut ReverseReader<'_>, &[u8], usize) -> Result<T, Truncated>,
) -> Option<T> {
    for window in WINDOWS {
        let start = range.end.saturating_sub(window).max(range.start);
        // A window may begin within a character, so it is bytes and not text.
        let window = text.slice(start..range.end);
        match search(&mut ReverseReader::new(&window, window.len()), &window, start) {
            Ok(found) => return Some(found),
            Err(Truncated) if start == range.start => return None,
            Err(Truncated) => {}
        }
    }
    None
}

/// Returns the offset of the closing brace of the last tool that can have a mark: one that is not loaded on demand.
fn last_tool(reader: &mut ReverseReader<'_>, text: &[u8], start: usize) -> Result<Option<usize>, Truncated> {
    reader.enter()?;
    while reader.has_previous()? {
        if reader.peek()? != b'}' {
            return Ok(None);
        }
        reader.enter()?;
        let (brace, mut deferred) = (reader.offset(), false);
        while reader.has_previous()? {
            let (name, value) = reader.member()?;
            deferred |= is(text, name, "\"defer_loading\"") && is(text, value, "true");
        }
        if !deferred {
            return Ok(Some(start + brace));
        }
    }
    Ok(None)
}

/// Returns the places behind the last answered user turn and behind the last user turn, each `None` if there is none.
fn last_turns(
    reader: &mut ReverseReader<'_>,
    text: &[u8],
    start: usize,
    has_tools: bool,
) -> Result<[Option<Place>; 2], Truncated> {
    let mut search = TurnSearch::default();
    reader.enter()?;
    while !search.is_complete() && reader.has_previous()? {
        if reader.peek()? != b'}' {
            reader.value()?;
            continue;
        }
        reader.enter()?;
        let (mut role, mut content) = (Role::System, None);
        while reader.has_previous()? {
            let (name, value) = reader.member()?;
            if is(text, name.clone(), "\"role\"") {
                role = match text.get(value) {
                    Some(b"\"user\"") => Role::User,
                    Some(b"\"assistant\"") => Role::Assistant,
                    _ => Role::System,
                };
            } else if is(text, name, "\"content\"") {
                content = Some(value);
            }
        }
        let Some(content) = content.filter(|_| search.wants(role)) else { continue };
        let place = match text.get(content.start) {
            Some(b'[') => {
                let mut blocks = ReverseReader::new(text, content.end);
                last_block(&mut blocks, text)?.map(|at| Place::Object(start + at))
            }
            Some(b'"') if !is_blank_string(text.get(content.clone()).unwrap_or_default()) => {
                Some(Place::String(start + content.start..start + content.end))
            }
            _ => None,
        };
        if let Some(place) = place {
            search.set(place);
        }
    }
    Ok(search.finish(has_tools))
}

/// Returns the offset of the closing brace of the last block that can have a mark.
fn last_block(reader: &mut ReverseReader<'_>, text: &[u8]) -> Result<Option<usize>, Truncated> {
    reader.enter()?;
    while reader.has_previous()? {
        if reader.peek()? != b'}' {
            reader.value()?;
            continue;
        }
        reader.enter()?;
        let brace = reader.offset();
        let (mut kind, mut has_text) = (None, false);
        while reader.has_previous()? {
            let (name, value) = reader.member()?;
            if is(text, name.clone(), "\"type\"") {
                kind = text.get(value);
            } else if is(text, name, "\"text\"") {
                has_text = !is_blank_string(text.get(value).unwrap_or_default());
            }
        }
        let can_have_mark = match kind {
            // The provider refuses a mark on an empty text.
            Some(b"\"text\"") => has_text,
            Some(b"\"image\"" | b"\"document\"" | b"\"search_result\"" | b"\"tool_result\"") => true,
            _ => false,
        };
        if can_have_mark {
            return Ok(Some(brace));
        }
    }
    Ok(None)
}

fn is(text: &[u8], range: Range<usize>, word: &str) -> bool {
    text.get(range) == Some(word.as_bytes())
}

/// Returns whether a byte of a string is neither white space nor the beginning of an escape, nor the end.
fn is_plain_letter(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"')
}

/// Returns whether a value is an empty string, a string of white space only, or no string.
fn is_blank_string(value: &[u8]) -> bool {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or_default();
    match inner.first() {
        None => true,
        Some(first) if is_plain_letter(*first) => false,
        Some(_) => std::str::from_utf8(inner).is_ok_and(|text| is_blank(JsonStr::from_escaped(text))),
    }
}
