//! Counters for block indexes and for ids that the provider did not supply.

/// Counters of one response.
#[derive(Debug, Default)]
pub(super) struct IdCounters {
    pub(super) seed: Box<str>,
    made: u64,
    blocks: u32,
}

impl IdCounters {
    pub(super) fn new(seed: &str) -> Self {
        IdCounters { seed: seed.into(), ..IdCounters::default() }
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
