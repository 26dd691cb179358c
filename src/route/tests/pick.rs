//! Tiers, open breakers, and the last resort when every target is excluded.

use proptest::prelude::*;

use super::{Dice, SECOND, seats};
use crate::route::blame::Blame;
use crate::route::breaker::BreakerRules;
use crate::route::pick::{NoTarget, PickRequest, Policy, mask, pick};
use crate::route::target_handle::{TargetHandle, TargetLimits, TargetPermit};

fn ask(seats: &[TargetHandle], now: i64) -> PickRequest {
    PickRequest { now, eligible: mask(seats, |_| true), ..PickRequest::default() }
}

fn picked(seats: &[TargetHandle], ask: &PickRequest) -> Result<usize, NoTarget> {
    pick(seats, Policy::Weight, ask).map(|(index, _)| index)
}

fn open(seat: &TargetHandle, now: i64) {
    let rules = BreakerRules::default();
    for _ in 0..rules.failures {
        let permit: TargetPermit = seat.acquire(now, 0, false).unwrap();
        let _ = permit.failed(Blame::Target, None, now, &rules, 0);
    }
}

#[test]
fn pick_uses_the_next_tier_when_earlier_ones_are_unavailable() {
    let seats = seats(&[(1, 0), (1, 1), (0, 1), (1, 2)]);
    let mut ask = ask(&seats, 1);
    assert_eq!(ask.eligible, 0b1011, "a weight of 0 takes a target out");
    assert_eq!(picked(&seats, &ask), Ok(0));
    ask.tried = 1;
    assert_eq!(picked(&seats, &ask), Ok(1));
    open(&seats[0], 1);
    ask.tried = 0;
    assert_eq!(picked(&seats, &ask), Ok(1));
    seats[1].state.start_cooldown(9);
    assert_eq!(picked(&seats, &ask), Ok(3));
    ask.tried = 0b1010;
    assert_eq!(picked(&seats, &ask), Ok(0), "it fails, but there is nobody else");
    ask.tried = 0b1011;
    assert_eq!(picked(&seats, &ask), Err(NoTarget::Exhausted));
}

#[test]
fn pick_never_selects_a_target_at_its_limit() {
    let mut seats = seats(&[(1, 0), (1, 0)]);
    seats[0].limits = TargetLimits { requests_per_minute: Some(1), ..TargetLimits::default() };
    seats[1].state.start_cooldown(5 * SECOND);
    let ask = ask(&seats, 1);
    assert_eq!(picked(&seats, &ask), Ok(0));
    assert_eq!(picked(&seats, &ask), Err(NoTarget::RateLimited(5 * SECOND)));
    assert_eq!(picked(&seats, &PickRequest { now: 5 * SECOND, ..ask }), Ok(1));
}

#[test]
fn pick_forces_the_only_target_even_if_it_is_failing() {
    let seats = seats(&[(1, 0)]);
    open(&seats[0], 1);
    seats[0].state.start_cooldown(i64::MAX);
    let ask = ask(&seats, 1);
    let (index, mut permit) = pick(&seats[..], Policy::Affinity, &ask).unwrap();
    assert_eq!(index, 0);
    // A forced request that succeeds closes the breaker at once.
    permit.on_response(2);
    assert!(seats[0].state.breaker.would_admit(2));
}

#[test]
fn pick_probes_a_half_open_target_with_one_request_at_a_time() {
    let seats = seats(&[(1_000, 0), (1, 0)]);
    open(&seats[0], 1);
    let ask = ask(&seats, BreakerRules::default().cooldown + 1);
    let (probe, _permit) = pick(&seats[..], Policy::Weight, &PickRequest { random_point: 1, ..ask }).unwrap();
    assert_eq!(probe, 0);
    for point in 0..100 {
        assert_eq!(picked(&seats, &PickRequest { random_point: point << 56, ..ask }), Ok(1));
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
        let mut all = seats(&shapes.iter().map(|shape| (shape.0, shape.1)).collect::<Vec<_>>());
        let now = 100;
        let mut held = Vec::new();
        for (seat, shape) in all.iter_mut().zip(&shapes) {
            match shape.2 {
                1 => open(seat, now),
                2 => seat.state.start_cooldown(now + 5),
                3 => {
                    seat.limits.concurrent = Some(1);
                    held.extend(seat.acquire(now, 0, false));
                }
                4 => seat.limits.tokens_per_minute = Some(10),
                _ => {}
            }
        }
        let mut dice = Dice(seed);
        let fitting = mask(&all[..], |_| true);
        let ask = PickRequest {
            now,
            tokens: 10,
            random_point: dice.roll(),
            conversation: (seed % 2 == 0).then(|| dice.roll()),
            eligible: fitting,
            tried: tried & fitting,
        };
        let able = |index: usize| {
            fitting & !ask.tried & 1 << index != 0 && all[index].exclusion(now, 10).is_none()
        };
        let best = (0..all.len()).filter(|index| able(*index)).map(|index| all[index].tier).min();
        let before: Vec<u32> = all.iter().map(|seat| seat.state.in_flight.get()).collect();
        match pick(&all[..], Policy::ALL[policy], &ask) {
            Ok((index, permit)) => {
                prop_assert!(fitting & !ask.tried & 1 << index != 0);
                if let Some(tier) = best {
                    prop_assert_eq!(all[index].tier, tier);
                }
                prop_assert_eq!(all[index].state.in_flight.get(), before[index] + 1);
                if let Some(most) = all[index].limits.concurrent {
                    prop_assert!(before[index] < most);
                }
                drop(permit);
            }
            Err(nobody) => {
                prop_assert!(best.is_none());
                prop_assert_eq!(nobody == NoTarget::Exhausted, fitting & !ask.tried == 0);
            }
        }
        let after: Vec<u32> = all.iter().map(|seat| seat.state.in_flight.get()).collect();
        prop_assert_eq!(before, after);
    }
}
