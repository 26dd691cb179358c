//! Tiers, open breakers, and the last resort when every target is excluded.

use proptest::prelude::*;

use super::{Dice, SECOND, target_handles};
use crate::route::blame::Blame;
use crate::route::breaker::BreakerRules;
use crate::route::pick::{NoTarget, PickRequest, Policy, mask, pick};
use crate::route::target_handle::{TargetHandle, TargetLimits, TargetPermit};

fn pick_request(targets: &[TargetHandle], now: i64) -> PickRequest {
    PickRequest { now, eligible: mask(targets, |_| true), ..PickRequest::default() }
}

fn picked(targets: &[TargetHandle], request: &PickRequest) -> Result<usize, NoTarget> {
    pick(targets, Policy::Weight, request).map(|(index, _)| index)
}

fn open_breaker(target: &TargetHandle, now: i64) {
    let rules = BreakerRules::default();
    for _ in 0..rules.failures {
        let permit: TargetPermit = target.acquire(now, 0, false).unwrap();
        let _ = permit.failed(Blame::Target, None, now, &rules, 0);
    }
}

#[test]
fn pick_uses_the_next_tier_when_earlier_ones_are_unavailable() {
    let targets = target_handles(&[(1, 0), (1, 1), (0, 1), (1, 2)]);
    let mut request = pick_request(&targets, 1);
    assert_eq!(request.eligible, 0b1011, "a weight of 0 takes a target out");
    assert_eq!(picked(&targets, &request), Ok(0));
    request.tried = 1;
    assert_eq!(picked(&targets, &request), Ok(1));
    open_breaker(&targets[0], 1);
    request.tried = 0;
    assert_eq!(picked(&targets, &request), Ok(1));
    targets[1].state.start_cooldown(9);
    assert_eq!(picked(&targets, &request), Ok(3));
    request.tried = 0b1010;
    assert_eq!(picked(&targets, &request), Ok(0), "a failing target is selected if no other is left");
    request.tried = 0b1011;
    assert_eq!(picked(&targets, &request), Err(NoTarget::Exhausted));
}

#[test]
fn pick_never_selects_a_target_at_its_limit() {
    let mut targets = target_handles(&[(1, 0), (1, 0)]);
    targets[0].limits = TargetLimits { requests_per_minute: Some(1), ..TargetLimits::default() };
    targets[1].state.start_cooldown(5 * SECOND);
    let request = pick_request(&targets, 1);
    assert_eq!(picked(&targets, &request), Ok(0));
    assert_eq!(picked(&targets, &request), Err(NoTarget::RateLimited(5 * SECOND)));
    assert_eq!(picked(&targets, &PickRequest { now: 5 * SECOND, ..request }), Ok(1));
}

#[test]
fn pick_forces_the_only_target_even_if_it_is_failing() {
    let targets = target_handles(&[(1, 0)]);
    open_breaker(&targets[0], 1);
    targets[0].state.start_cooldown(i64::MAX);
    let request = pick_request(&targets, 1);
    let (index, mut permit) = pick(&targets[..], Policy::Affinity, &request).unwrap();
    assert_eq!(index, 0);
    // A forced request that succeeds closes the breaker at once.
    permit.on_response(2);
    assert!(targets[0].state.breaker.would_admit(2));
}

#[test]
fn pick_probes_a_half_open_target_with_one_request_at_a_time() {
    let targets = target_handles(&[(1_000, 0), (1, 0)]);
    open_breaker(&targets[0], 1);
    let request = pick_request(&targets, BreakerRules::default().cooldown + 1);
    let (probe, _permit) =
        pick(&targets[..], Policy::Weight, &PickRequest { random_point: 1, ..request }).unwrap();
    assert_eq!(probe, 0);
    for point in 0..100 {
        assert_eq!(picked(&targets, &PickRequest { random_point: point << 56, ..request }), Ok(1));
    }
}

proptest! {
    /// For random target states and every policy: a selected target fits the request, no target is selected while a
    /// lower tier has one available, limits are never exceeded, and every permit is released.
    #[test]
    fn pick_invariants_hold_for_every_policy(
        shapes in prop::collection::vec((0..4u32, 0..3u8, 0..6u8), 1..12),
        policy in 0..4usize,
        seed: u64,
        tried: u64,
    ) {
        let mut all = target_handles(&shapes.iter().map(|shape| (shape.0, shape.1)).collect::<Vec<_>>());
        let now = 100;
        let mut held = Vec::new();
        for (target, shape) in all.iter_mut().zip(&shapes) {
            match shape.2 {
                1 => open_breaker(target, now),
                2 => target.state.start_cooldown(now + 5),
                3 => {
                    target.limits.concurrent = Some(1);
                    held.extend(target.acquire(now, 0, false));
                }
                4 => target.limits.tokens_per_minute = Some(10),
                _ => {}
            }
        }
        let mut dice = Dice(seed);
        let fitting = mask(&all[..], |_| true);
        let request = PickRequest {
            now,
            tokens: 10,
            random_point: dice.roll(),
            conversation: (seed % 2 == 0).then(|| dice.roll()),
            eligible: fitting,
            tried: tried & fitting,
        };
        let is_available = |index: usize| {
            fitting & !request.tried & 1 << index != 0 && all[index].exclusion(now, 10).is_none()
        };
        let best = (0..all.len()).filter(|index| is_available(*index)).map(|index| all[index].tier).min();
        let before: Vec<u32> = all.iter().map(|target| target.state.in_flight.get()).collect();
        match pick(&all[..], Policy::ALL[policy], &request) {
            Ok((index, permit)) => {
                prop_assert!(fitting & !request.tried & 1 << index != 0);
                if let Some(tier) = best {
                    prop_assert_eq!(all[index].tier, tier);
                }
                prop_assert_eq!(all[index].state.in_flight.get(), before[index] + 1);
                if let Some(most) = all[index].limits.concurrent {
                    prop_assert!(before[index] < most);
                }
                drop(permit);
            }
            Err(reason) => {
                prop_assert!(best.is_none());
                prop_assert_eq!(reason == NoTarget::Exhausted, fitting & !request.tried == 0);
            }
        }
        let after: Vec<u32> = all.iter().map(|target| target.state.in_flight.get()).collect();
        prop_assert_eq!(before, after);
    }
}
