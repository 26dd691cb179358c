//! The choice among targets: the first tier that has one to be asked, and in it what the policy says.
//!
//! Nothing here allocates, waits or asks a clock: time and chance are given.

use super::Nanos;
use super::affinity;
use super::target_handle::{Excluded, TargetHandle, TargetPermit};

/// Targets of a model at most: they are told apart by the bits of a number.
pub const MOST_TARGETS: usize = 64;

/// How a target is chosen within its tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// At random, by weight.
    #[default]
    Weight,
    /// The one with the fewest requests under way for its weight.
    Least,
    /// The quicker one of two, taken at random.
    Latency,
    /// The one that has seen the beginning of the conversation.
    Affinity,
}

impl Policy {
    /// All policies, in the order of the documentation.
    pub const ALL: [Policy; 4] = [Policy::Weight, Policy::Least, Policy::Latency, Policy::Affinity];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Weight => "weight",
            Policy::Least => "least",
            Policy::Latency => "latency",
            Policy::Affinity => "affinity",
        }
    }

    /// The policy of this name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Candidate targets of a request, in a stable order.
pub trait Candidates {
    /// How many there are; only the first [`MOST_TARGETS`] are seen.
    fn count(&self) -> usize;
    /// One of them.
    fn seat(&self, index: usize) -> Option<&TargetHandle>;
}

impl Candidates for [TargetHandle] {
    fn count(&self) -> usize {
        self.len()
    }

    fn seat(&self, index: usize) -> Option<&TargetHandle> {
        self.get(index)
    }
}

/// Selection input of the balancer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PickRequest {
    /// Now.
    pub now: Nanos,
    /// Input tokens that are expected.
    pub tokens: u64,
    /// Uniform over all of `u64`.
    pub point: u64,
    /// What stands for the conversation.
    pub conversation: Option<u64>,
    /// The targets that can serve the request, as bits.
    pub fitting: u64,
    /// Those of them that were tried.
    pub tried: u64,
}

/// Reason why no candidate can take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// None can serve the request, or all have been tried.
    Exhausted,
    /// All are at their limits, until then.
    RateLimited(Nanos),
}

/// The bits of the targets that `fits` says yes to.
pub fn mask<S: Candidates + ?Sized>(seats: &S, mut fits: impl FnMut(usize) -> bool) -> u64 {
    let mut mask = 0;
    for index in 0..seats.count().min(MOST_TARGETS) {
        if seats.seat(index).is_some_and(|seat| seat.weight > 0) && fits(index) {
            mask |= 1 << index;
        }
    }
    mask
}

/// The indexes of a mask's bits.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        usize::try_from(index).ok().filter(|index| *index < MOST_TARGETS)
    })
}

/// Picks a target and takes a place there.
///
/// # Errors
/// There is none.
pub fn pick<S: Candidates + ?Sized>(
    seats: &S,
    policy: Policy,
    ask: &PickRequest,
) -> Result<(usize, TargetPermit), NoTarget> {
    let untried = ask.fitting & !ask.tried;
    if untried == 0 {
        return Err(NoTarget::Exhausted);
    }
    if ask.fitting.is_power_of_two() {
        return only(seats, ask);
    }
    let mut left = untried;
    while let Some(tier) = bits(left).filter_map(|index| seats.seat(index)).map(|seat| seat.tier).min() {
        let mut able = 0;
        for index in bits(left) {
            let Some(seat) = seats.seat(index) else { continue };
            if seat.tier == tier {
                left &= !(1 << index);
                if seat.out(ask.now, ask.tokens).is_none() {
                    able |= 1 << index;
                }
            }
        }
        while let Some(index) = choose(seats, policy, ask, able) {
            if let Some(permit) = seats.seat(index).and_then(|seat| seat.enter(ask.now, ask.tokens, false)) {
                return Ok((index, permit));
            }
            // Somebody was quicker.
            able &= !(1 << index);
        }
    }
    last_resort(seats, ask, untried)
}

/// There is one that can serve the request: whatever is known of it, there is nowhere else to go.
fn only<S: Candidates + ?Sized>(seats: &S, ask: &PickRequest) -> Result<(usize, TargetPermit), NoTarget> {
    let index = bits(ask.fitting).next().unwrap_or(0);
    let seat = seats.seat(index).ok_or(NoTarget::Exhausted)?;
    match seat.enter(ask.now, ask.tokens, true) {
        Some(permit) => Ok((index, permit)),
        None => match seat.out(ask.now, ask.tokens) {
            Some(Excluded::Full(until)) => Err(NoTarget::RateLimited(until)),
            _ => Err(NoTarget::RateLimited(ask.now)),
        },
    }
}

/// All that could be asked fail: the one that may be tried again first. Limits are kept.
fn last_resort<S: Candidates + ?Sized>(
    seats: &S,
    ask: &PickRequest,
    untried: u64,
) -> Result<(usize, TargetPermit), NoTarget> {
    let mut full: Option<Nanos> = None;
    let mut first: Option<(Nanos, usize)> = None;
    for index in bits(untried) {
        match seats.seat(index).map(|seat| seat.out(ask.now, ask.tokens)) {
            Some(Some(Excluded::Full(until))) => full = Some(full.map_or(until, |full| full.min(until))),
            Some(Some(Excluded::Failing(until))) if first.is_none_or(|(other, _)| until < other) => {
                first = Some((until, index));
            }
            Some(None) => first = Some((0, index)),
            _ => {}
        }
    }
    let forced =
        first.and_then(|(_, index)| Some((index, seats.seat(index)?.enter(ask.now, ask.tokens, true)?)));
    forced.ok_or(NoTarget::RateLimited(full.unwrap_or(ask.now)))
}

fn choose<S: Candidates + ?Sized>(seats: &S, policy: Policy, ask: &PickRequest, able: u64) -> Option<usize> {
    if able == 0 || able.is_power_of_two() {
        return bits(able).next();
    }
    match (policy, ask.conversation) {
        (Policy::Weight, _) => by_weight(seats, ask.point, able),
        (Policy::Latency, _) => by_latency(seats, ask, able),
        (Policy::Affinity, Some(conversation)) => {
            affinity::choose(conversation, bits(able).filter_map(|index| Some((index, seats.seat(index)?))))
        }
        (Policy::Least | Policy::Affinity, _) => by_load(seats, ask.point, able),
    }
}

/// Maps a point onto `[0, most)` without a division.
fn within(point: u64, most: u64) -> u64 {
    u64::try_from((u128::from(point) * u128::from(most)) >> 64).unwrap_or(0)
}

fn by_weight<S: Candidates + ?Sized>(seats: &S, point: u64, able: u64) -> Option<usize> {
    let weight = |index: usize| seats.seat(index).map_or(0, |seat| u64::from(seat.weight));
    let total: u64 = bits(able).map(weight).sum();
    let mut left = within(point, total);
    for index in bits(able) {
        let weight = weight(index);
        if left < weight {
            return Some(index);
        }
        left -= weight;
    }
    None
}

/// The fewest requests for its weight. Of several that are alike one is taken by weight, so that an idle gateway does
/// not ask the first one always.
fn by_load<S: Candidates + ?Sized>(seats: &S, point: u64, able: u64) -> Option<usize> {
    let load = |index: usize| {
        let seat = seats.seat(index)?;
        Some((u64::from(seat.state.in_flight.get()) + 1, u64::from(seat.weight.max(1))))
    };
    let mut best: Option<(u64, u64)> = None;
    let mut alike = 0;
    for index in bits(able) {
        let Some((requests, weight)) = load(index) else { continue };
        // Idle targets are all alike, whatever their weights.
        let order = match best {
            None => std::cmp::Ordering::Less,
            Some((1, _)) if requests == 1 => std::cmp::Ordering::Equal,
            Some((1, _)) => std::cmp::Ordering::Greater,
            Some(_) if requests == 1 => std::cmp::Ordering::Less,
            Some((others, other)) => (requests * other).cmp(&(others * weight)),
        };
        match order {
            std::cmp::Ordering::Less => {
                best = Some((requests, weight));
                alike = 1 << index;
            }
            std::cmp::Ordering::Equal => alike |= 1 << index,
            std::cmp::Ordering::Greater => {}
        }
    }
    by_weight(seats, point, alike)
}

/// Two at random, and of these the one where an answer is expected sooner.
fn by_latency<S: Candidates + ?Sized>(seats: &S, ask: &PickRequest, able: u64) -> Option<usize> {
    let first = by_weight(seats, ask.point, able)?;
    // The low bits of the point are as random as the high ones.
    let second = by_weight(seats, ask.point.rotate_left(32), able & !(1 << first))?;
    let cost = |index: usize| {
        seats.seat(index).map_or(f64::MAX, |seat| {
            seat.state.latency.mean(ask.now) * f64::from(seat.state.in_flight.get().saturating_add(1))
        })
    };
    Some(if cost(second) < cost(first) { second } else { first })
}
