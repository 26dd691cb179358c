//! State of the stream encoder: facts about blocks and choices that it has already written.

use smallvec::SmallVec;

use crate::canonical::answer::CitationOwned;
use crate::canonical::{Index, IndexKey};

/// Reasoning block.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasoningBlock {
    pub(super) choice: u32,
    /// Whether it is the first reasoning block of its choice.
    pub(super) first: bool,
    pub(super) filled: bool,
    /// Index in `reasoning_details`. `None` until the block has an element there.
    pub(super) place: Option<u32>,
}

/// Member of a delta to which text is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeltaMember {
    Content,
    Reasoning,
    Refusal,
    /// Input of the tool call in the block with this index.
    Input(u32),
}

/// State of a choice.
#[derive(Debug)]
pub(super) struct ChoiceState {
    pub(super) index: u32,
    /// Number of calls whose first chunk is written.
    pub(super) calls: u32,
    pub(super) reasoning_blocks: u32,
    pub(super) images: u32,
    /// Number of elements written to `reasoning_details`.
    pub(super) details: u32,
    /// Characters of message text written so far. Citations without a range need it.
    pub(super) characters: u64,
    /// Citations with the index of their block. All go into one chunk, because SDKs cannot join them.
    pub(super) citations: Vec<(usize, CitationOwned)>,
}

/// Choices, found by their index.
#[derive(Debug, Default)]
pub(super) struct Choices {
    list: SmallVec<[ChoiceState; 1]>,
    places: Index,
}

impl Choices {
    /// Returns the choice with this index. `None` if it has not begun. Most providers send choices in index order, so
    /// the position is tried first and the hash index second.
    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut ChoiceState> {
        let usual = index as usize;
        let at = match self.list.get(usual) {
            Some(choice) if choice.index == index => usual,
            _ => self.places.first(IndexKey::of(index))?,
        };
        self.list.get_mut(at)
    }

    pub(super) fn push(&mut self, choice: ChoiceState) {
        self.places.push(IndexKey::of(choice.index));
        self.list.push(choice);
    }
}

impl ChoiceState {
    pub(super) fn next_detail(&mut self) -> u32 {
        self.details += 1;
        self.details - 1
    }
}
