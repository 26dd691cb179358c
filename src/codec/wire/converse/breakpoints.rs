//! Automatic cache points of a request body that is forwarded without decoding: edits of the body.
//!
//! A cache point is an element of its own behind what it marks, so that each place is the end of a list: of the tools, of
//! the system prompt, and of the content of two user turns. Source: Amazon Bedrock API, `CachePointBlock`
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html>, November 2026).
//!
//! Must not live here: which turns are marked by their place in the conversation (`canonical::breakpoints`).

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::canonical::breakpoints::TurnSearch;
use crate::canonical::{BreakpointRule, CacheBreakpoint, Role};
use crate::wire::breakpoints::BreakpointEdits;
use crate::wire::fields::{CONTENT, converse as c};
use crate::wire::request::Body;
use json::{Cursor, Edit, JsonRope, ReverseReader, Truncated, ValueKind, read_from_end};

/// Name of a cache point, with its quotes. In a string it would have backslashes.
const MARK: &[u8] = b"\"cachePoint\"";

/// Returns the edits of a Converse body: see [`Body::breakpoints`].
pub(in crate::wire) fn edits(body: &Body, rule: &BreakpointRule) -> BreakpointEdits {
    let mut out = BreakpointEdits::default();
    let [tools, system, turns] = [c::TOOL_CONFIG, c::SYSTEM, CONTENT].map(|index| body.member(index));
    let length = [tools, system, turns].into_iter().flatten().map(|member| member.value.len()).sum();
    if !rule.may_cache(length) || has_marks(&body.text) {
        return out;
    }
    // Each place with the length of the prompt before it. The model reads tools, system prompt and turns in this order.
    let mut places: SmallVec<[(usize, usize, CacheBreakpoint); 4]> = SmallVec::new();
    let (mut prefix, mut has_tools) = (0, false);
    if let Some(config) = tools.filter(|config| config.kind == ValueKind::Object) {
        let end = tools_end(&body.text, config.value.clone());
        has_tools = end.is_some();
        prefix += config.value.len();
        places.extend(end.filter(|_| rule.tools).map(|at| (at, prefix, rule.instructions)));
    }
    if let Some(system) = system.filter(|system| system.kind == ValueKind::Array) {
        prefix += system.value.len();
        let end = list_end(&body.text, system.value.clone());
        places.extend(end.map(|at| (at, prefix, rule.instructions)));
    }
    if let Some(turns) = turns.filter(|turns| turns.kind == ValueKind::Array) {
        let range = turns.value.clone();
        let found = read_from_end(&body.text, range.clone(), |reader, text, start| {
            last_turns(reader, text, start, has_tools)
        });
        for at in found.into_iter().flatten().flatten() {
            places.push((at, prefix + (at - range.start), rule.turns));
        }
    }
    for (at, _, lifetime) in places.into_iter().filter(|(_, prefix, _)| rule.may_cache(*prefix)) {
        let text: &[u8] = match lifetime {
            CacheBreakpoint::Long => br#",{"cachePoint":{"type":"default","ttl":"1h"}}"#,
            CacheBreakpoint::Short => br#",{"cachePoint":{"type":"default"}}"#,
        };
        out.edits.push(Edit { range: at..at, text: Bytes::from_static(text) });
        out.marks += 1;
    }
    // The members of a body have any order, and a rope is edited in ascending order.
    out.edits.sort_by_key(|edit| edit.range.start);
    out
}

/// Returns whether the client has set a cache point. A member of a tool's schema with the same name counts as one.
fn has_marks(text: &JsonRope) -> bool {
    let mut from = 0;
    text.pieces().any(|piece| {
        from += piece.len();
        // The name may begin in this piece and end in the next one.
        let seam = from.saturating_sub(MARK.len())..text.len().min(from + MARK.len());
        memchr::memmem::find(piece, MARK).is_some()
            || (seam.end > from && memchr::memmem::find(&text.bytes(seam), MARK).is_some())
    })
}

/// Returns the end of the list of tools in `toolConfig`. `None` if there is no tool.
fn tools_end(text: &JsonRope, config: Range<usize>) -> Option<usize> {
    let view = text.view(config.clone());
    let mut json = Cursor::new(&view);
    // Cannot fail: the scan has validated the text.
    json.begin_object().ok()?;
    while let Some(name) = json.next_key().ok()? {
        let value = json.raw().ok()?;
        if name.is("tools") {
            let end = config.start + json.offset();
            return list_end(text, end - value.text().len()..end);
        }
    }
    None
}

/// Returns the offset of the closing bracket of a list. `None` if the list is empty, or no list.
fn list_end(text: &JsonRope, list: Range<usize>) -> Option<usize> {
    read_from_end(text, list, |reader, _, start| Ok(last_end(reader)?.map(|at| start + at))).flatten()
}

/// Returns the offset of the closing bracket of the list that ends here. `None` if the list is empty, or no list.
fn last_end(reader: &mut ReverseReader<'_>) -> Result<Option<usize>, Truncated> {
    if reader.peek()? != b']' {
        return Ok(None);
    }
    reader.enter()?;
    let at = reader.offset();
    Ok((reader.peek()? != b'[').then_some(at))
}

/// Returns the ends of the contents of the last answered user turn and of the last user turn, each `None` if there is
/// none.
fn last_turns(
    reader: &mut ReverseReader<'_>,
    text: &[u8],
    start: usize,
    has_tools: bool,
) -> Result<[Option<usize>; 2], Truncated> {
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
            match text.get(name) {
                Some(b"\"role\"") => {
                    role = match text.get(value) {
                        Some(b"\"user\"") => Role::User,
                        Some(b"\"assistant\"") => Role::Assistant,
                        _ => Role::System,
                    };
                }
                Some(b"\"content\"") => content = Some(value.end),
                _ => {}
            }
        }
        // Also a turn without content is one.
        let is_wanted = search.wants(role);
        if let Some(end) = content.filter(|_| is_wanted)
            && let Some(at) = last_end(&mut ReverseReader::new(text, end))?
        {
            search.set(start + at);
        }
    }
    Ok(search.finish(has_tools))
}
