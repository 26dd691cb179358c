//! What the writer of a stream remembers of what it has written.

use crate::canonical::answer::Citation;

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
    pub(super) citations: Vec<(usize, Citation)>,
}

impl Choice {
    pub(super) fn next_detail(&mut self) -> u32 {
        self.details += 1;
        self.details - 1
    }
}
