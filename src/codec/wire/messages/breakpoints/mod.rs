//! Automatic cache marks (`cache_control`) of a request body that is forwarded without decoding: edits of the body.
//!
//! The places are those of [`canonical::breakpoints`](crate::canonical::breakpoints). The encoder of translated
//! requests sets its marks at the same places. Source: Anthropic API, "Prompt caching"
//! (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, November 2026): which blocks may have a
//! mark, and at most four marks.
//!
//! The members of the body and the last elements of its lists are known from the scan, so that a few bytes of the body
//! say where the marks go ([`noted`]). Where they do not, the list is read from its end ([`search`]). In both cases the
//! cost does not grow with the conversation.
//!
//! Must not live here: which turns and blocks are marked by their place in the conversation (`canonical::breakpoints`).

mod noted;
mod search;

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::canonical::{BreakpointRule, CacheBreakpoint};
use crate::wire::automatic_marks::is_blank;
use crate::wire::breakpoints::BreakpointEdits;
use crate::wire::fields::{CONTENT, messages as m};
use crate::wire::request::Body;
use json::{Edit, JsonStr, Member, ValueKind};

/// Name of a cache mark, with its quotes. In a string it would have backslashes.
const MARK: &[u8] = b"\"cache_control\"";

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

/// Adds the edits that set a mark at a place.
fn set(out: &mut BreakpointEdits, place: Place, lifetime: CacheBreakpoint) {
    let long = lifetime == CacheBreakpoint::Long;
    let mut insert = |at, text: &'static [u8]| {
        out.edits.push(Edit { range: at..at, text: Bytes::from_static(text) });
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
    out.marks += 1;
}

/// Returns the edits of a messages body: see [`Body::breakpoints`].
pub(in crate::wire) fn edits(body: &Body, rule: &BreakpointRule) -> BreakpointEdits {
    let mut out = BreakpointEdits::default();
    if body.has_marks() {
        return out;
    }
    let prompt = [m::TOOLS, m::SYSTEM, CONTENT].into_iter().filter_map(|index| body.member(index));
    if !rule.may_cache(prompt.map(|member| member.value.len()).sum()) {
        return out;
    }
    let mut prefix = 0;
    let list = |index| body.member(index).filter(|member| member.kind == ValueKind::Array);
    let mut places: SmallVec<[(Place, usize, CacheBreakpoint); 4]> = SmallVec::new();
    let mut has_tools = false;
    if let Some(tools) = list(m::TOOLS) {
        has_tools = body.tail(tools).is_some();
        prefix += tools.value.len();
        places.extend(body.last_tool(tools).map(|at| (Place::Object(at), prefix, rule.instructions)));
    }
    if let Some(system) = body.member(m::SYSTEM) {
        prefix += system.value.len();
        let place = match system.kind {
            ValueKind::String => body.system_text(system),
            ValueKind::Array => body.last_system_block(system).map(Place::Object),
            _ => None,
        };
        places.extend(place.map(|place| (place, prefix, rule.instructions)));
    }
    if let Some(turns) = list(CONTENT) {
        let start = turns.value.start;
        let noted = body.tail(turns).and_then(|tail| noted::last_turns(&body.text, tail, has_tools));
        let found = noted.or_else(|| search::last_turns(&body.text, turns.value.clone(), has_tools));
        for place in found.into_iter().flatten().flatten() {
            let prefix = prefix + (place.end() - start);
            places.push((place, prefix, rule.turns));
        }
    }
    for (place, _, lifetime) in places.into_iter().filter(|(_, prefix, _)| rule.may_cache(*prefix)) {
        set(&mut out, place, lifetime);
    }
    // The members of a body have any order, and a rope is edited in ascending order.
    out.edits.sort_by_key(|edit| edit.range.start);
    out
}

impl Body {
    /// Returns the offset of the closing brace of the last tool that can have a mark.
    fn last_tool(&self, tools: &Member) -> Option<usize> {
        let noted = self.tail(tools).filter(|_| self.words_found & m::DEFERRED == 0);
        let noted = noted.and_then(|tail| noted::last_object(&self.text, tail, tools.value.end));
        match noted {
            Some(tool) => Some(tool.end - 1),
            None => search::last_tool(&self.text, tools.value.clone()),
        }
    }

    /// Returns the place of a system prompt that is a string. `None` if it is blank.
    fn system_text(&self, system: &Member) -> Option<Place> {
        let range = system.value.clone();
        // Most texts begin with a letter, and only others are read as a whole.
        let first = self.text.bytes(range.start..range.end.min(range.start + 2));
        let is_text = matches!(*first, [b'"', byte] if is_plain_letter(byte))
            || !is_blank_string(&self.text.bytes(range.clone()));
        is_text.then_some(Place::String(range))
    }

    /// Returns the offset of the closing brace of the last system block that can have a mark.
    fn last_system_block(&self, system: &Member) -> Option<usize> {
        let noted = self.tail(system).and_then(|tail| {
            let block = noted::last_object(&self.text, tail, system.value.end)?;
            noted::closing_brace(&self.text, block)
        });
        noted.or_else(|| search::last_block(&self.text, system.value.clone()))
    }

    /// Returns whether the client has set a cache mark. The scan reports every mark, but sometimes one that is none.
    fn has_marks(&self) -> bool {
        // A word behind an escape is reported, but is none. The whole text is copied only for that.
        let is_reported = self.words_found & m::MARK != 0;
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
