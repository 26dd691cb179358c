//! Which target a conversation belongs to, so that it finds its prompt cached there.
//!
//! Weighted rendezvous hashing: every target draws a number for the conversation, and the best one wins. When a target
//! joins or leaves, only the conversations that it wins or had won move. A target that has much more to do than its
//! share is passed over, and the next best one wins.

use super::seat::Seat;

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

/// What stands for a text, in every process the same: FNV-1a, eight bytes at a time, mixed at the end.
pub fn fingerprint(seed: u64, text: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325 ^ u64::try_from(text.len()).unwrap_or(0);
    let (words, rest) = text.as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
        // Multiplying moves nothing down.
        hash ^= hash >> 32;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    mix(hash, seed)
}

/// How well a target fits: `-weight / ln(u)`, whose largest falls to each with the probability of its weight.
fn score(conversation: u64, seat: &Seat) -> f64 {
    // 53 bits are what a float holds; never 0, whose logarithm there is not.
    let draw = (mix(conversation, seat.state.id) >> 11) as f64 + 0.5;
    let uniform = draw / (1u64 << 53) as f64;
    f64::from(seat.weight) / -uniform.ln()
}

/// Picks among targets of one tier.
pub(super) fn choose<'s>(
    conversation: u64,
    seats: impl Iterator<Item = (usize, &'s Seat)> + Clone,
) -> Option<usize> {
    let (mut requests, mut weights) = (1, 0);
    for (_, seat) in seats.clone() {
        requests += u64::from(seat.state.in_flight.get());
        weights += u64::from(seat.weight);
    }
    let mut best: Option<(f64, usize)> = None;
    let mut any: Option<(f64, usize)> = None;
    for (index, seat) in seats {
        let score = score(conversation, seat);
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
