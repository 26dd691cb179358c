//! Numbers of blocks, and ids that are made for what has none.

/// What the blocks and ids of an answer are numbered by.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pub(super) seed: Box<str>,
    made: u64,
    blocks: u32,
}

impl Ids {
    pub(super) fn new(seed: &str) -> Self {
        Ids { seed: seed.into(), ..Ids::default() }
    }

    pub(super) fn next_block(&mut self) -> u32 {
        let index = self.blocks;
        self.blocks += 1;
        index
    }

    pub(super) fn next_made(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}
