//! Load balancer: selects a target from the lowest tier that has capacity, by the policy of the model.
//!
//! Nothing here allocates, waits or reads a clock: the caller passes in time and randomness.

use super::Nanos;
use super::affinity;
use super::target_handle::{Excluded, TargetHandle, TargetPermit};

/// Maximum number of targets of a model: sets of targets are bit masks in a `u64`.
pub const MAX_TARGETS: usize = 64;

/// Load-balancing policy within a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Weighted random.
    #[default]
    Weight,
    /// Weighted least requests.
    Least,
    /// Power of two random choices, by expected latency.
    Latency,
    /// Conversation affinity, for prompt-cache hits: weighted rendezvous hashing with bounded loads.
    Affinity,
}

impl Policy {
    /// All policies, in the order of docs/routing.md.
    pub const ALL: [Policy; 4] = [Policy::Weight, Policy::Least, Policy::Latency, Policy::Affinity];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Weight => "weight",
            Policy::Least => "least",
            Policy::Latency => "latency",
            Policy::Affinity => "affinity",
        }
    }

    /// Returns the policy of this name, or `None` if there is no such policy.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Targets of a model, in a stable order.
pub trait TargetList {
    /// Returns the number of targets; only the first [`MAX_TARGETS`] are considered.
    fn count(&self) -> usize;
    /// Returns the target at `index`, or `None` beyond the end.
    fn handle(&self, index: usize) -> Option<&TargetHandle>;
}

impl TargetList for [TargetHandle] {
    fn count(&self) -> usize {
        self.len()
    }

    fn handle(&self, index: usize) -> Option<&TargetHandle> {
        self.get(index)
    }
}

/// Selection input of the balancer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PickRequest {
    /// Current time.
    pub now: Nanos,
    /// Expected input tokens.
    pub tokens: u64,
    /// Random number, uniform over all of `u64`.
    pub random_point: u64,
    /// Hash of the conversation, for [`Policy::Affinity`].
    pub conversation: Option<u64>,
    /// Bit mask of the targets that can serve the request.
    pub eligible: u64,
    /// Bit mask of the targets that were tried already.
    pub tried: u64,
}

/// Reason why no candidate can take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// No target can serve the request, or all have been tried.
    Exhausted,
    /// All targets are at their limits; capacity is expected at this time.
    RateLimited(Nanos),
}

/// Returns the bit mask of the targets with a positive weight for which `fits` returns true.
pub fn mask<S: TargetList + ?Sized>(targets: &S, mut fits: impl FnMut(usize) -> bool) -> u64 {
    let mut mask = 0;
    for index in 0..targets.count().min(MAX_TARGETS) {
        if targets.handle(index).is_some_and(|target| target.weight > 0) && fits(index) {
            mask |= 1 << index;
        }
    }
    mask
}

/// Returns the indexes of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        usize::try_from(index).ok().filter(|index| *index < MAX_TARGETS)
    })
}

/// Selects a target and acquires its permit. Returns the index of the target.
///
/// # Errors
/// Returns [`NoTarget`] if no candidate can take the request.
pub fn pick<S: TargetList + ?Sized>(
    targets: &S,
    policy: Policy,
    request: &PickRequest,
) -> Result<(usize, TargetPermit), NoTarget> {
    let untried = request.eligible & !request.tried;
    if untried == 0 {
        return Err(NoTarget::Exhausted);
    }
    // One fitting target, for example a model without alternatives: skip the selection.
    if request.eligible.is_power_of_two() {
        return pick_only(targets, request);
    }
    let mut left = untried;
    while let Some(tier) =
        bits(left).filter_map(|index| targets.handle(index)).map(|target| target.tier).min()
    {
        // Partition off this tier, and keep its targets that have capacity.
        let mut able = 0;
        for index in bits(left) {
            let Some(target) = targets.handle(index) else { continue };
            if target.tier == tier {
                left &= !(1 << index);
                if target.exclusion(request.now, request.tokens).is_none() {
                    able |= 1 << index;
                }
            }
        }
        // [`TargetHandle::exclusion`] takes nothing, so `acquire` can still fail. Then try the rest of the tier before
        // the next one.
        while let Some(index) = choose(targets, policy, request, able) {
            if let Some(permit) =
                targets.handle(index).and_then(|target| target.acquire(request.now, request.tokens, false))
            {
                return Ok((index, permit));
            }
            // A concurrent request took the last slot or the probe.
            able &= !(1 << index);
        }
    }
    last_resort(targets, request, untried)
}

/// Admits to the only target that can serve the request. Breakers, cooldowns and reported quota are overridden, since
/// no alternative exists; the configured limits still apply.
fn pick_only<S: TargetList + ?Sized>(
    targets: &S,
    request: &PickRequest,
) -> Result<(usize, TargetPermit), NoTarget> {
    let index = bits(request.eligible).next().unwrap_or(0);
    let target = targets.handle(index).ok_or(NoTarget::Exhausted)?;
    match target.acquire(request.now, request.tokens, true) {
        Some(permit) => Ok((index, permit)),
        None => match target.exclusion(request.now, request.tokens) {
            Some(Excluded::RateLimited(until)) => Err(NoTarget::RateLimited(until)),
            _ => Err(NoTarget::RateLimited(request.now)),
        },
    }
}

/// Fallback when every untried target is excluded: forces a request through the breaker that permits a probe first.
/// Limits still apply.
fn last_resort<S: TargetList + ?Sized>(
    targets: &S,
    request: &PickRequest,
    untried: u64,
) -> Result<(usize, TargetPermit), NoTarget> {
    let mut full: Option<Nanos> = None;
    let mut first: Option<(Nanos, usize)> = None;
    for index in bits(untried) {
        match targets.handle(index).map(|target| target.exclusion(request.now, request.tokens)) {
            Some(Some(Excluded::RateLimited(until))) => {
                full = Some(full.map_or(until, |full| full.min(until)))
            }
            Some(Some(Excluded::BreakerOpen(until))) if first.is_none_or(|(other, _)| until < other) => {
                first = Some((until, index));
            }
            // Became available since the tiers were tried.
            Some(None) => first = Some((0, index)),
            _ => {}
        }
    }
    let forced = first.and_then(|(_, index)| {
        Some((index, targets.handle(index)?.acquire(request.now, request.tokens, true)?))
    });
    forced.ok_or(NoTarget::RateLimited(full.unwrap_or(request.now)))
}

fn choose<S: TargetList + ?Sized>(
    targets: &S,
    policy: Policy,
    request: &PickRequest,
    able: u64,
) -> Option<usize> {
    // Zero or one target: no policy needed.
    if able == 0 || able.is_power_of_two() {
        return bits(able).next();
    }
    match (policy, request.conversation) {
        (Policy::Weight, _) => by_weight(targets, request.random_point, able),
        (Policy::Latency, _) => by_latency(targets, request, able),
        (Policy::Affinity, Some(conversation)) => affinity::choose(
            conversation,
            bits(able).filter_map(|index| Some((index, targets.handle(index)?))),
        ),
        // Affinity without a conversation balances by load.
        (Policy::Least | Policy::Affinity, _) => by_load(targets, request.random_point, able),
    }
}

/// Maps a uniform `u64` onto `[0, most)` without a division.
fn scale_to(point: u64, most: u64) -> u64 {
    u64::try_from((u128::from(point) * u128::from(most)) >> 64).unwrap_or(0)
}

fn by_weight<S: TargetList + ?Sized>(targets: &S, point: u64, able: u64) -> Option<usize> {
    let weight = |index: usize| targets.handle(index).map_or(0, |target| u64::from(target.weight));
    let total: u64 = bits(able).map(weight).sum();
    let mut left = scale_to(point, total);
    for index in bits(able) {
        let weight = weight(index);
        if left < weight {
            return Some(index);
        }
        left -= weight;
    }
    None
}

/// Weighted least requests. Ties are broken by weighted random choice: otherwise an idle gateway would always select
/// the first target.
fn by_load<S: TargetList + ?Sized>(targets: &S, point: u64, able: u64) -> Option<usize> {
    let load = |index: usize| {
        let target = targets.handle(index)?;
        Some((u64::from(target.state.in_flight.get()) + 1, u64::from(target.weight.max(1))))
    };
    let mut best: Option<(u64, u64)> = None;
    let mut alike = 0;
    for index in bits(able) {
        let Some((requests, weight)) = load(index) else { continue };
        // All idle targets tie, whatever their weights. `requests` includes the request to be sent, so 1 means idle.
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
    by_weight(targets, point, alike)
}

/// Power of two choices: of two targets drawn by weight, the one with the lower mean latency times requests in flight.
fn by_latency<S: TargetList + ?Sized>(targets: &S, request: &PickRequest, able: u64) -> Option<usize> {
    let first = by_weight(targets, request.random_point, able)?;
    // Reuse the random number: its low bits are as random as its high bits, which [`scale_to`] uses.
    let second = by_weight(targets, request.random_point.rotate_left(32), able & !(1 << first))?;
    let cost = |index: usize| {
        targets.handle(index).map_or(f64::MAX, |target| {
            target.state.latency.mean(request.now) * f64::from(target.state.in_flight.get().saturating_add(1))
        })
    };
    Some(if cost(second) < cost(first) { second } else { first })
}
