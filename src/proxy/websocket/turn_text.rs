//! Text of a turn, which the next turn of its conversation repeats to a provider.

use bytes::{Bytes, BytesMut};

use super::response::FinishedTurn;
use codec::wire::responses::socket::{ContinuedFrom, Origin};

/// Text of a turn, while it is collected.
pub(super) struct TurnText {
    /// `None` once the turn is complete, or cannot be continued.
    pub(super) before: Option<ContinuedFrom>,
    pub(super) items: Bytes,
    /// Complete output items, joined with commas: for streams whose last event does not repeat them.
    pub(super) done: BytesMut,
    pub(super) limit: usize,
    pub(super) origin: Origin,
    /// Id and output of the response, once it has ended.
    pub(super) ended: Option<(Box<str>, BytesMut)>,
}

impl TurnText {
    /// Adds an output item.
    pub(super) fn push(&mut self, item: &str) {
        if self.done.len() + item.len() >= self.limit {
            // It could not be sent to a provider again.
            self.before = None;
        }
        if self.before.is_none() {
            self.done = BytesMut::new();
            return;
        }
        if !self.done.is_empty() {
            self.done.extend_from_slice(b",");
        }
        self.done.extend_from_slice(item.as_bytes());
    }

    /// Records the end of the response.
    pub(super) fn end(&mut self, id: &str, output: &str) {
        let done = std::mem::take(&mut self.done);
        let output = if output.is_empty() { done } else { BytesMut::from(output) };
        self.ended = Some((id.into(), output));
    }

    /// Puts items behind the output of the response that has ended: the next request has them before its own.
    pub(super) fn append<'i>(&mut self, items: impl Iterator<Item = &'i Bytes>) {
        let Some((_, output)) = &mut self.ended else { return };
        for items in items {
            join(output, items);
        }
    }

    /// Begins the successor of a steered response, whose output and input are part of its input.
    pub(super) fn succeed<'i>(&mut self, items: impl Iterator<Item = &'i Bytes>) {
        let Some((_, output)) = self.ended.take() else { return };
        let mut input = BytesMut::from(std::mem::take(&mut self.items));
        join(&mut input, &output);
        for items in items {
            join(&mut input, items);
        }
        if input.len() >= self.limit {
            self.before = None;
            return;
        }
        self.items = input.freeze();
    }

    /// Completes the turn; `None` if it cannot be continued.
    pub(super) fn finish(&mut self) -> Option<FinishedTurn> {
        let (id, output) = self.ended.take()?;
        let before = self.before.take()?;
        // An id with an escape is none of a provider's; it would have to be compared decoded.
        if id.is_empty() || id.contains('\\') {
            return None;
        }
        let texts = [std::mem::take(&mut self.items), output.freeze()];
        Some(FinishedTurn { lane: None, id, origin: self.origin, before, texts, turn_state: None })
    }
}

/// Appends elements of a JSON array to others.
fn join(to: &mut BytesMut, items: &[u8]) {
    if !to.is_empty() && !items.is_empty() {
        to.extend_from_slice(b",");
    }
    to.extend_from_slice(items);
}
