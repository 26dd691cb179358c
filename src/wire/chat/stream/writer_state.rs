//! What the writer of a stream remembers of what it has written.

use smallvec::SmallVec;

use crate::canonical::answer::CitationOwned;
use crate::canonical::{Index, Key};

/// A reasoning block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thought {
    pub(super) choice: u32,
    /// The first of its choice.
    pub(super) first: bool,
    pub(super) filled: bool,
    /// Its place in the list of details, once it has one.
    pub(super) place: Option<u32>,
}

/// Which member of a delta a text is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Content,
    Reasoning,
    Refusal,
    /// The input of the call in this block.
    Input(u32),
}

/// What must be remembered of a choice.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: u32,
    /// Calls whose first chunk was written.
    pub(super) calls: u32,
    pub(super) thoughts: u32,
    pub(super) images: u32,
    /// Elements of the list of details.
    pub(super) details: u32,
    /// Characters of text.
    pub(super) characters: u64,
    /// Sources, and the block that each belongs to. All go into one chunk, because SDKs cannot join them.
    pub(super) citations: Vec<(usize, CitationOwned)>,
}

/// The choices, each under its number.
#[derive(Debug, Default)]
pub(super) struct Choices {
    list: SmallVec<[Choice; 1]>,
    places: Index,
}

impl Choices {
    /// The choice of a number: most come in the order of their numbers.
    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Choice> {
        let usual = index as usize;
        let at = match self.list.get(usual) {
            Some(choice) if choice.index == index => usual,
            _ => self.places.first(Key::of(index))?,
        };
        self.list.get_mut(at)
    }

    pub(super) fn push(&mut self, choice: Choice) {
        self.places.push(Key::of(choice.index));
        self.list.push(choice);
    }
}

impl Choice {
    pub(super) fn next_detail(&mut self) -> u32 {
        self.details += 1;
        self.details - 1
    }
}
