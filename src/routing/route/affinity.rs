//! Conversation affinity: weighted rendezvous hashing with bounded loads, for prompt-cache hits.
//!
//! Each target gets a score from the hash of conversation and target; the highest score wins. When a target joins or
//! leaves, only the conversations that it wins or had won move. A target whose load is well above its share is skipped,
//! and the next best score wins.

use super::target_handle::TargetHandle;

/// Load bound in percent of the target's share of all requests in flight.
const BOUND: u64 = 125;
/// Load bound in requests, if that is higher: a small number of requests is never evenly spread.
const SLACK: u64 = 8;

/// Mixes two numbers into an evenly distributed one (the finalizer of splitmix64). Must stay the same in every version
/// and process: it decides where conversations go.
fn mix(one: u64, other: u64) -> u64 {
    let mut mixed = one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Hashes a text, with the same result in every process: 16 bytes at a time, multiply and fold (the step of wyhash),
/// with a final mix.
pub fn fingerprint(seed: u64, text: &[u8]) -> u64 {
    const BLOCK: usize = 16;
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325 ^ u64::try_from(text.len()).unwrap_or(0);
    let mut step = |block: [u8; BLOCK]| {
        let (low, high) = halves(u128::from_le_bytes(block));
        let (low, high) = halves(u128::from(low ^ hash) * u128::from(high ^ 0x9e37_79b9_7f4a_7c15));
        hash = low ^ high;
    };
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    blocks.iter().for_each(|block| step(*block));
    if !rest.is_empty() {
        // Zero padding is unambiguous, because the length is part of the initial hash.
        let mut last = [0; BLOCK];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        step(last);
    }
    mix(hash, seed)
}

fn halves(word: u128) -> (u64, u64) {
    let half = |word: u128| u64::try_from(word & u128::from(u64::MAX)).unwrap_or(0);
    (half(word), half(word >> 64))
}

/// Computes the rendezvous score `-weight / ln(u)`: each target has the highest score with a probability proportional
/// to its weight. If all weights are equal (`alike`), `u` itself has the same order, and the logarithm is saved.
fn score(conversation: u64, target: &TargetHandle, alike: bool) -> f64 {
    // 53 bits fit an `f64` exactly. The 0.5 avoids 0, whose logarithm is infinite.
    let draw = (mix(conversation, target.state.id) >> 11) as f64 + 0.5;
    if alike {
        return draw;
    }
    let uniform = draw / (1u64 << 53) as f64;
    f64::from(target.weight) / -uniform.ln()
}

/// Selects among the targets of one tier. If all are above their load bounds, the highest score wins anyway. Returns
/// `None` if there are no targets.
pub(super) fn choose<'s>(
    conversation: u64,
    targets: impl Iterator<Item = (usize, &'s TargetHandle)> + Clone,
) -> Option<usize> {
    // Include the request to be placed, so that the bound is never 0.
    let (mut requests, mut weights) = (1, 0);
    let (mut alike, mut before) = (true, None);
    for (_, target) in targets.clone() {
        alike &= before.replace(target.weight).is_none_or(|before| before == target.weight);
        requests += u64::from(target.state.in_flight.get());
        weights += u64::from(target.weight);
    }
    let mut best: Option<(f64, usize)> = None;
    let mut any: Option<(f64, usize)> = None;
    for (index, target) in targets {
        let score = score(conversation, target, alike);
        if any.is_none_or(|(other, _)| score > other) {
            any = Some((score, index));
        }
        let share = (requests * u64::from(target.weight) * BOUND).div_ceil(weights.max(1) * 100);
        let below_bound = u64::from(target.state.in_flight.get()) < share.max(SLACK);
        if below_bound && best.is_none_or(|(other, _)| score > other) {
            best = Some((score, index));
        }
    }
    best.or(any).map(|(_, index)| index)
}
