//! Places of cache marks in a list that is read from its end.

use std::ops::Range;

use super::noted::is_markable;
use super::{Place, is_blank_string};
use crate::canonical::Role;
use crate::canonical::breakpoints::TurnSearch;
use json::{JsonRope, ReverseReader, Truncated, read_from_end};

/// Returns the offset of the closing brace of the last tool that can have a mark. `None` if there is none.
pub(super) fn last_tool(text: &JsonRope, tools: Range<usize>) -> Option<usize> {
    read_from_end(text, tools, last_tool_in).flatten()
}

/// Returns the offset of the closing brace of the last block that can have a mark. `None` if there is none.
pub(super) fn last_block(text: &JsonRope, blocks: Range<usize>) -> Option<usize> {
    read_from_end(text, blocks, |reader, text, start| Ok(last_block_in(reader, text)?.map(|at| start + at)))
        .flatten()
}

/// Returns the places behind the last answered user turn and behind the last user turn, each `None` if there is none.
/// `None` if the list is malformed, which the scan rules out.
pub(super) fn last_turns(
    text: &JsonRope,
    turns: Range<usize>,
    has_tools: bool,
) -> Option<[Option<Place>; 2]> {
    read_from_end(text, turns, |reader, text, start| last_turns_in(reader, text, start, has_tools))
}

/// Returns the offset of the closing brace of the last tool that can have a mark: one that is not loaded on demand.
fn last_tool_in(
    reader: &mut ReverseReader<'_>,
    text: &[u8],
    start: usize,
) -> Result<Option<usize>, Truncated> {
    reader.enter()?;
    while reader.has_previous()? {
        if reader.peek()? != b'}' {
            return Ok(None);
        }
        reader.enter()?;
        let (brace, mut deferred, mut is_empty) = (reader.offset(), false, true);
        while reader.has_previous()? {
            let (name, value) = reader.member()?;
            is_empty = false;
            deferred |= is(text, name, "\"defer_loading\"") && is(text, value, "true");
        }
        // Behind the comma of a mark an object without members would not be JSON any more.
        if !deferred && !is_empty {
            return Ok(Some(start + brace));
        }
    }
    Ok(None)
}

/// Returns the places behind the last answered user turn and behind the last user turn, each `None` if there is none.
fn last_turns_in(
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
        // Also a turn without content is one.
        let is_wanted = search.wants(role);
        let Some(content) = content.filter(|_| is_wanted) else { continue };
        let place = match text.get(content.start) {
            Some(b'[') => {
                let mut blocks = ReverseReader::new(text, content.end);
                last_block_in(&mut blocks, text)?.map(|at| Place::Object(start + at))
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
fn last_block_in(reader: &mut ReverseReader<'_>, text: &[u8]) -> Result<Option<usize>, Truncated> {
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
            Some(kind) => is_markable(kind),
            None => false,
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
