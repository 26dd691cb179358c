//! Removal of members from a request body that is forwarded without decoding.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::fields::STREAM;
use super::request::Body;
use crate::json::Edit;

/// Longest white space between two members that is looked through, in bytes.
const MAX_GAP: usize = 4_096;

impl Body {
    /// Returns the edits that remove what the gateway states itself, in ascending order: with `stream`, the choice of a
    /// stream, for providers whose path has it; and the member with the name `replacement`, for providers that have it
    /// in place of the model's name. None for members that the body does not have.
    pub fn removals(&self, stream: bool, replacement: Option<&str>) -> SmallVec<[Edit; 2]> {
        let replacement =
            replacement.and_then(|name| self.fields.sought.names().iter().position(|known| *known == name));
        let indexes = stream.then_some(STREAM).into_iter().chain(replacement);
        let members = indexes.filter_map(|index| self.member(index));
        // With the quote before the name.
        let mut rest: SmallVec<[Range<usize>; 2]> =
            members.map(|member| member.name.start.saturating_sub(1)..member.value.end).collect();
        rest.sort_by_key(|range| range.start);
        let mut edits = SmallVec::new();
        while let Some(Range { mut start, mut end }) = rest.pop() {
            if let Some(comma) = self.comma_behind(end) {
                end = comma + 1;
            } else {
                // The last member takes the comma before it along. If that comma is behind another member to remove, the
                // two go together.
                while let Some(comma) = self.comma_before(start) {
                    start = comma;
                    match rest.last() {
                        Some(before) if self.comma_behind(before.end) == Some(comma) => {
                            start = before.start;
                            rest.pop();
                        }
                        _ => break,
                    }
                }
            }
            edits.push(Edit { range: start..end, text: Bytes::new() });
        }
        edits.reverse();
        edits
    }

    /// Returns the offset of the comma behind a member that ends at `end`. `None` if it is the last one.
    fn comma_behind(&self, end: usize) -> Option<usize> {
        let behind = self.text.slice(end..self.text.len().min(end.saturating_add(MAX_GAP)));
        let at = behind.iter().position(|byte| !byte.is_ascii_whitespace())?;
        (behind.get(at) == Some(&b',')).then_some(end + at)
    }

    /// Returns the offset of the comma before a member that starts at `start`. `None` if it is the first one.
    fn comma_before(&self, start: usize) -> Option<usize> {
        let from = start.saturating_sub(MAX_GAP);
        let before = self.text.slice(from..start);
        let at = before.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
        (before.get(at) == Some(&b',')).then_some(from + at)
    }
}
