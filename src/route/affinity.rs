//! Which target a conversation belongs to, so that it finds its prompt cached there.
//!
//! Weighted rendezvous hashing: every target draws a number for the conversation, and the best one wins. When a target
//! joins or leaves, only the conversations that it wins or had won move. A target that has much more to do than its
//! share is passed over, and the next best one wins.

use super::target_handle::TargetHandle;

/// A target may have so many hundredths of its share under way ...
const BOUND: u64 = 125;
/// ... and so many in any case: few requests are never evenly spread.
const SLACK: u64 = 8;

/// A number that two others stand for, evenly spread (the finaliser of splitmix64, whose output is fixed for ever).
fn mix(one: u64, other: u64) -> u64 {
    let mut mixed = one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What stands for a text, in every process the same: sixteen bytes at a time, each half multiplied with the other and
/// the product folded (the step of wyhash), mixed at the end.
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
        // The length tells what stands there from what does not.
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

/// How well a target fits: `-weight / ln(u)`, whose largest falls to each with the probability of its weight. Where all
/// weigh the same, `u` is in the same order.
fn score(conversation: u64, seat: &TargetHandle, alike: bool) -> f64 {
    // 53 bits are what a float holds; never 0, whose logarithm there is not.
    let draw = (mix(conversation, seat.state.id) >> 11) as f64 + 0.5;
    if alike {
        return draw;
    }
    let uniform = draw / (1u64 << 53) as f64;
    f64::from(seat.weight) / -uniform.ln()
}

/// Picks among targets of one tier.
pub(super) fn choose<'s>(
    conversation: u64,
    seats: impl Iterator<Item = (usize, &'s TargetHandle)> + Clone,
) -> Option<usize> {
    let (mut requests, mut weights) = (1, 0);
    let (mut alike, mut before) = (true, None);
    for (_, seat) in seats.clone() {
        alike &= before.replace(seat.weight).is_none_or(|before| before == seat.weight);
        requests += u64::from(seat.state.in_flight.get());
        weights += u64::from(seat.weight);
    }
    let mut best: Option<(f64, usize)> = None;
    let mut any: Option<(f64, usize)> = None;
    for (index, seat) in seats {
        let score = score(conversation, seat, alike);
        if any.is_none_or(|(other, _)| score > other) {
            any = Some((score, index));
        }
        let share = (requests * u64::from(seat.weight) * BOUND).div_ceil(weights.max(1) * 100);
        let room = u64::from(seat.state.in_flight.get()) < share.max(SLACK);
        if room && best.is_none_or(|(other, _)| score > other) {
            best = Some((score, index));
        }
    }
    best.or(any).map(|(_, index)| index)
}
