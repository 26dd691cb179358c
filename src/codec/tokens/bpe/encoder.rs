//! Vocabulary in memory: finds the token of a byte string.

use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;

use super::merge;
use super::pretokenizer::{SplitPattern, TextPieces};

/// Bits of a slot that hold the token id plus one. The others hold bits of the hash, so that a wrong slot is recognized
/// without a look at the bytes.
const ID_BITS: u32 = 18;
const ID_MASK: u32 = (1 << ID_BITS) - 1;

/// Vocabulary in memory. A token's id is its rank: the lower, the earlier two tokens are merged to it.
pub(in crate::tokens) struct BpeEncoder {
    pattern: SplitPattern,
    /// Bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Start of each token in `bytes`, and the end of the last one.
    starts: Vec<u32>,
    /// Open-addressing hash table: hash bits and token id plus one; 0 for an empty slot.
    slots: Vec<u32>,
    /// Token of each pair of bytes; [`NONE`] where they form none. Each merge begins with all pairs of a piece.
    pairs: Vec<u32>,
    hasher: foldhash::fast::FixedState,
}

/// Rank of a pair that forms no token.
pub(super) const NONE: u32 = u32::MAX;

impl std::fmt::Debug for BpeEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BpeEncoder").field("pattern", &self.pattern).field("tokens", &self.len()).finish()
    }
}

impl BpeEncoder {
    /// Builds the table. `lengths` has the length of each token in bytes, `bytes` their bytes, both by id. `None` if the
    /// two do not agree, or there are more tokens than ids.
    pub(super) fn new(pattern: SplitPattern, lengths: &[u8], bytes: Vec<u8>) -> Option<BpeEncoder> {
        if lengths.len() >= ID_MASK as usize {
            return None;
        }
        let mut starts = Vec::with_capacity(lengths.len() + 1);
        let mut end = 0u32;
        starts.push(end);
        for length in lengths {
            end += u32::from(*length);
            starts.push(end);
        }
        if bytes.len() != end as usize {
            return None;
        }
        // At most half full: a search ends after a slot or two.
        let slots = vec![0; (lengths.len() * 2).next_power_of_two()];
        let hasher = foldhash::fast::FixedState::with_seed(0);
        let pairs = vec![NONE; 1 << 16];
        let mut encoder = BpeEncoder { pattern, bytes, starts, slots, pairs, hasher };
        for id in 0..u32::try_from(lengths.len()).ok()? {
            encoder.insert(id)?;
        }
        Some(encoder)
    }

    fn insert(&mut self, id: u32) -> Option<()> {
        let token = self.token(id)?;
        let hash = self.hash(token);
        if let [first, second] = *token {
            *self.pairs.get_mut(pair(first, second))? = id;
        }
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots.get_mut(at)?;
            if *slot == 0 {
                *slot = tag(hash) | (id + 1);
                return Some(());
            }
            at = (at + 1) & mask;
        }
    }

    fn hash(&self, token: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(token);
        hasher.finish()
    }

    /// Returns the number of tokens.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the bytes of a token. `None` for an unknown id.
    pub(super) fn token(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let range: Range<usize> = *self.starts.get(id)? as usize..*self.starts.get(id + 1)? as usize;
        self.bytes.get(range)
    }

    /// Returns the id of the token with these bytes. `None` if there is no such token.
    #[inline]
    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        let hash = self.hash(token);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = *self.slots.get(at)?;
            if slot == 0 {
                return None;
            }
            let id = (slot & ID_MASK) - 1;
            if slot & !ID_MASK == tag(hash) && self.token(id) == Some(token) {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the rank of a pair of bytes; [`NONE`] if they form no token.
    #[inline]
    pub(super) fn pair_rank(&self, first: u8, second: u8) -> u32 {
        self.pairs.get(pair(first, second)).copied().unwrap_or(NONE)
    }

    /// Returns the number of tokens of a text.
    pub(in crate::tokens) fn count(&self, text: &str) -> u64 {
        let mut scratch = merge::Scratch::default();
        TextPieces::of(text, self.pattern)
            .map(|piece| merge::count(self, piece.as_bytes(), &mut scratch))
            .sum()
    }

    /// Returns the text of a list of tokens. `None` if one is unknown, or the bytes are not UTF-8.
    pub(in crate::tokens) fn decode(&self, tokens: &[u32]) -> Option<String> {
        let mut bytes = Vec::new();
        for token in tokens {
            bytes.extend_from_slice(self.token(*token)?);
        }
        String::from_utf8(bytes).ok()
    }
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Returns the hash bits of a slot: others than those that select it.
#[allow(clippy::cast_possible_truncation, reason = "the upper half is shifted down first")]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !ID_MASK
}
