//! Tiers, what is left alone, and what happens when nobody is left.

use proptest::prelude::*;

use super::{Dice, SECOND, seats};
use crate::route::blame::Blame;
use crate::route::breaker::BreakerRules;
use crate::route::pick::{NoTarget, PickRequest, Policy, mask, pick};
use crate::route::target_handle::{TargetHandle, TargetLimits, TargetPermit};

fn ask(seats: &[TargetHandle], now: i64) -> PickRequest {
    PickRequest { now, fitting: mask(seats, |_| true), ..PickRequest::default() }
}

fn picked(seats: &[TargetHandle], ask: &PickRequest) -> Result<usize, NoTarget> {
    pick(seats, Policy::Weight, ask).map(|(index, _)| index)
}

fn open(seat: &TargetHandle, now: i64) {
    let rules = BreakerRules::default();
    for _ in 0..rules.failures {
        let permit: TargetPermit = seat.enter(now, 0, false).unwrap();
        let _ = permit.failed(Blame::Target, None, now, &rules, 0);
    }
}

#[test]
fn a_tier_is_asked_when_those_before_it_cannot_be() {
    let seats = seats(&[(1, 0), (1, 1), (0, 1), (1, 2)]);
    let mut ask = ask(&seats, 1);
    assert_eq!(ask.fitting, 0b1011, "a weight of 0 takes a target out");
    assert_eq!(picked(&seats, &ask), Ok(0));
    ask.tried = 1;
    assert_eq!(picked(&seats, &ask), Ok(1));
    open(&seats[0], 1);
    ask.tried = 0;
    assert_eq!(picked(&seats, &ask), Ok(1));
    seats[1].state.hold(9);
    assert_eq!(picked(&seats, &ask), Ok(3));
    ask.tried = 0b1010;
    assert_eq!(picked(&seats, &ask), Ok(0), "it fails, but there is nobody else");
    ask.tried = 0b1011;
    assert_eq!(picked(&seats, &ask), Err(NoTarget::Exhausted));
}

#[test]
fn who_is_full_is_not_asked_even_if_there_is_nobody_else() {
    let mut seats = seats(&[(1, 0), (1, 0)]);
    seats[0].limits = TargetLimits { requests_per_minute: Some(1), ..TargetLimits::default() };
    seats[1].state.hold(5 * SECOND);
    let ask = ask(&seats, 1);
    assert_eq!(picked(&seats, &ask), Ok(0));
    assert_eq!(picked(&seats, &ask), Err(NoTarget::RateLimited(5 * SECOND)));
    assert_eq!(picked(&seats, &PickRequest { now: 5 * SECOND, ..ask }), Ok(1));
}

#[test]
fn the_only_target_is_always_asked() {
    let seats = seats(&[(1, 0)]);
    open(&seats[0], 1);
    seats[0].state.hold(i64::MAX);
    let ask = ask(&seats, 1);
    let (index, mut permit) = pick(&seats[..], Policy::Affinity, &ask).unwrap();
    assert_eq!(index, 0);
    // What it answers is believed at once.
    permit.answered(2);
    assert!(seats[0].state.breaker.admits(2));
}

#[test]
fn half_open_targets_are_tried_by_one_request_at_a_time() {
    let seats = seats(&[(1_000, 0), (1, 0)]);
    open(&seats[0], 1);
    let ask = ask(&seats, BreakerRules::default().cooldown + 1);
    let (probe, _permit) = pick(&seats[..], Policy::Weight, &PickRequest { point: 1, ..ask }).unwrap();
    assert_eq!(probe, 0);
    for point in 0..100 {
        assert_eq!(picked(&seats, &PickRequest { point: point << 56, ..ask }), Ok(1));
    }
}

proptest! {
    /// Whatever state the targets are in, and by whichever policy: a target that is picked was asked for, and none is
    /// picked while one of an earlier tier could be; a limit is never exceeded; and everything that was taken is given
    /// back.
    #[test]
    fn a_pick_keeps_the_order(
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
                2 => seat.state.hold(now + 5),
                3 => {
                    seat.limits.concurrent = Some(1);
                    held.extend(seat.enter(now, 0, false));
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
            point: dice.roll(),
            conversation: (seed % 2 == 0).then(|| dice.roll()),
            fitting,
            tried: tried & fitting,
        };
        let able = |index: usize| {
            fitting & !ask.tried & 1 << index != 0 && all[index].out(now, 10).is_none()
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
