//! Removal of members from a request body that is forwarded without decoding.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::Api;
use super::fields::{STREAM, messages};
use super::request::Body;
use json::Edit;

/// Longest white space between two members that is looked through, in bytes.
const MAX_GAP: usize = 4_096;

impl Body {
    /// Returns the edits that remove what the gateway states itself, in ascending order: with `stream`, the choice of a
    /// stream, for providers whose path has it; the member with the name `replacement`, for providers that have it
    /// in place of the model's name; and of a messages request the members that only cloud platforms have. None for
    /// members that the body does not have.
    pub fn removals(&self, stream: bool, replacement: Option<&str>) -> SmallVec<[Edit; 2]> {
        let states_version = stream || replacement.is_some();
        let replacement =
            replacement.and_then(|name| self.fields.sought.names().iter().position(|known| *known == name));
        const PLATFORM: [usize; 2] = [messages::VERSION, messages::BETAS];
        let is_messages = self.api == Api::Messages;
        let replacement = replacement.filter(|index| !is_messages || !PLATFORM.contains(index));
        // For a provider of Anthropic's own API the version stays as the client has it, but for that of InvokeModel, which
        // Anthropic's API refuses in a body.
        let keeps_version = !states_version && !self.is_invocation;
        let platform = PLATFORM
            .into_iter()
            .filter(|index| is_messages && !(keeps_version && *index == messages::VERSION));
        let indexes = stream.then_some(STREAM).into_iter().chain(replacement).chain(platform);
        let members = indexes.filter_map(|index| self.member(index));
        // With the quote before the name.
        let mut rest: SmallVec<[Range<usize>; 2]> =
            members.map(|member| member.name.start.saturating_sub(1)..member.value.end).collect();
        rest.sort_by_key(|range| range.start);
        let mut edits = SmallVec::new();
        while let Some(range) = rest.pop() {
            let range = match self.comma_behind(range.end) {
                Some(comma) => Some(range.start..comma + 1),
                None => self.start_of_last(range.start, &mut rest).map(|start| start..range.end),
            };
            edits.extend(range.map(|range| Edit { range, text: Bytes::new() }));
        }
        edits.reverse();
        edits
    }

    /// Returns where the removal of a last member begins that starts at `start`: at the comma before it. If that comma is
    /// behind another member to remove, the last of `rest`, the two go together. `None` if what is before the member is
    /// too far away.
    fn start_of_last(&self, mut start: usize, rest: &mut SmallVec<[Range<usize>; 2]>) -> Option<usize> {
        loop {
            let (before, byte) = self.byte_before(start)?;
            if byte != b',' {
                return Some(start);
            }
            match rest.last() {
                Some(other) if self.comma_behind(other.end) == Some(before) => {
                    start = other.start;
                    rest.pop();
                }
                _ => return Some(before),
            }
        }
    }

    /// Returns the offset of the comma behind a member that ends at `end`. `None` if it is the last one.
    fn comma_behind(&self, end: usize) -> Option<usize> {
        let behind = self.text.slice(end..self.text.len().min(end.saturating_add(MAX_GAP)));
        let at = behind.iter().position(|byte| !byte.is_ascii_whitespace())?;
        (behind.get(at) == Some(&b',')).then_some(end + at)
    }

    /// Returns the last byte before `start` that is no white space, and its offset. `None` if it is too far away.
    fn byte_before(&self, start: usize) -> Option<(usize, u8)> {
        let from = start.saturating_sub(MAX_GAP);
        let before = self.text.slice(from..start);
        let at = before.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
        Some((from + at, *before.get(at)?))
    }
}
