//! Order of the members of a body that is forwarded without decoding: the conversation behind all others.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::fields::CONTENT;
use super::request::Body;
use json::{Edit, JsonRope, Rope};

/// Longest white space that is looked through, in bytes.
const MAX_GAP: usize = 4_096;

impl Body {
    /// Returns the byte range of the conversation, with its name. `None` if the body has none.
    pub fn content_range(&self) -> Option<Range<usize>> {
        let member = self.member(CONTENT)?;
        // With the quote before the name.
        Some(member.name.start.saturating_sub(1)..member.value.end)
    }
}

/// Applies sorted edits to a body, and moves the member at `content`, edits within it included, behind all others. The
/// text is shared, not copied.
pub fn edited_content_last(text: JsonRope, edits: &[Edit], content: Range<usize>) -> Rope {
    let start = shifted(content.start, edits.iter().filter(|edit| edit.range.end <= content.start));
    let end = shifted(content.end, edits.iter().filter(|edit| edit.range.start < content.end));
    let text = text.edited(edits);
    let Some((comma, brace)) = ends(&text, end) else { return text };
    let all = text.len();
    let cut = |from: usize, to: usize| Edit { range: from..to, text: Bytes::new() };
    let moved = text.clone().edited(&[cut(0, start), cut(end, all)]).into_pieces();
    let mut order: SmallVec<[Edit; 6]> = SmallVec::new();
    order.push(cut(start, comma + 1));
    order.push(Edit { range: brace..brace, text: Bytes::from_static(b",") });
    order.extend(moved.into_iter().map(|piece| Edit { range: brace..brace, text: piece }));
    text.edited(&order)
}

/// Returns an offset after edits before it.
fn shifted<'e>(offset: usize, edits: impl Iterator<Item = &'e Edit>) -> usize {
    let (added, removed) = edits.fold((0, 0), |(added, removed): (usize, usize), edit| {
        (added + edit.text.len(), removed + edit.range.len())
    });
    (offset + added).saturating_sub(removed)
}

/// Returns the offsets of the comma behind a member that ends at `end`, and of the brace that ends the body. `None` if
/// the member is the last one, or they are too far away.
fn ends(text: &Rope, end: usize) -> Option<(usize, usize)> {
    let all = text.len();
    let behind = text.view(end..all.min(end.saturating_add(MAX_GAP)));
    let at = behind.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if behind.get(at) != Some(&b',') {
        return None;
    }
    let from = all.saturating_sub(MAX_GAP);
    let brace = text.view(from..all).iter().rposition(|byte| *byte == b'}')?;
    Some((end + at, from + brace))
}
