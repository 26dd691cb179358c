//! Traffic simulation in virtual time: arrivals, service times, and the resulting distribution over targets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Dice, SECOND, target_handles};
use crate::route::affinity::fingerprint;
use crate::route::pick::{PickRequest, Policy, mask, pick};
use crate::route::target_handle::{TargetHandle, TargetPermit};

/// Every simulation runs with each seed, so that no policy passes by luck.
const SEEDS: [u64; 4] = [1, 42, 4_711, 20_260_817];

/// Selection method of a simulation.
#[derive(Clone, Copy)]
enum By {
    Policy(Policy),
    /// Baseline for comparison.
    RoundRobin,
}

/// Requests of `conversations` conversations, at `rate` per second, for `span` seconds. `time` returns the mean service
/// time of a target, in seconds.
struct Traffic {
    rate: f64,
    span: f64,
    conversations: u64,
    time: fn(usize) -> f64,
}

/// Result: the latency of each request, and the number of requests at each target.
struct Outcome {
    times: Vec<f64>,
    counts: Vec<u64>,
}

impl Outcome {
    fn p99(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        self.times[self.times.len() * 99 / 100]
    }
}

fn run(targets: &[TargetHandle], by: By, traffic: &Traffic, seed: u64) -> Outcome {
    let mut dice = Dice(seed);
    let mut in_flight: BinaryHeap<Reverse<(i64, u64)>> = BinaryHeap::new();
    let mut permits: std::collections::HashMap<u64, TargetPermit, foldhash::fast::FixedState> =
        Default::default();
    let mut out = Outcome { times: Vec::new(), counts: vec![0; targets.len()] };
    let mut now = 0.0;
    let mut number = 0;
    while now < traffic.span {
        now += dice.exponential(1.0 / traffic.rate);
        let nanos = (now * 1e9) as i64;
        while in_flight.peek().is_some_and(|Reverse((at, _))| *at <= nanos) {
            let Reverse((at, number)) = in_flight.pop().unwrap();
            permits.remove(&number).unwrap().on_response(at);
        }
        let conversation = Some(fingerprint(7, &(dice.roll() % traffic.conversations).to_le_bytes()));
        let fitting = mask(targets, |_| true);
        let request = PickRequest {
            now: nanos,
            random_point: dice.roll(),
            conversation,
            eligible: fitting,
            ..PickRequest::default()
        };
        let (index, permit) = match by {
            By::Policy(policy) => pick(targets, policy, &request).unwrap(),
            By::RoundRobin => {
                let index = usize::try_from(number).unwrap() % targets.len();
                (index, targets[index].acquire(nanos, 0, false).unwrap())
            }
        };
        out.counts[index] += 1;
        // Service times are at least half of the mean.
        let mean = (traffic.time)(index);
        let took = mean / 2.0 + dice.exponential(mean / 2.0);
        out.times.push(took);
        in_flight.push(Reverse((nanos + (took * 1e9) as i64, number)));
        permits.insert(number, permit);
        number += 1;
    }
    out
}

#[test]
fn latency_policy_avoids_a_slow_target() {
    let one_slow = |index| if index == 3 { 4.0 } else { 0.2 };
    let traffic = Traffic { rate: 200.0, span: 120.0, conversations: 100, time: one_slow };
    for seed in SEEDS {
        let p99 = |by| run(&target_handles(&[(1, 0); 5]), by, &traffic, seed).p99();
        let (ours, random, robin) =
            (p99(By::Policy(Policy::Latency)), p99(By::Policy(Policy::Weight)), p99(By::RoundRobin));
        println!("seed {seed}: p99 {ours:.2} s by latency, {random:.2} s at random, {robin:.2} s by turns");
        assert!(ours < 1.0 && ours * 5.0 < random && ours * 5.0 < robin, "{ours} {random} {robin}");
        let least = p99(By::Policy(Policy::Least));
        assert!(least < random && least < robin, "{least} {random} {robin}");
    }
}

#[test]
fn latency_policy_returns_traffic_to_a_recovered_target() {
    let five = target_handles(&[(1, 0); 5]);
    let slow = |index| if index == 3 { 4.0 } else { 0.2 };
    let even = |_| 0.2;
    let traffic = |time| Traffic { rate: 200.0, span: 60.0, conversations: 100, time };
    let before = run(&five, By::Policy(Policy::Latency), &traffic(slow), 5);
    let total: u64 = before.counts.iter().sum();
    assert!(before.counts[3] * 50 < total, "{:?}", before.counts);
    // The permits of the first run are released; the observed latencies remain.
    let after = run(&five, By::Policy(Policy::Latency), &traffic(even), 6);
    let total: u64 = after.counts.iter().sum();
    assert!(after.counts[3] * 7 > total, "{:?}", after.counts);
}

#[test]
fn weights_determine_the_load() {
    let weights = [1, 2, 3, 4];
    let traffic = Traffic { rate: 400.0, span: 300.0, conversations: 20_000, time: |_| 1.0 };
    for seed in SEEDS {
        for policy in [Policy::Weight, Policy::Least, Policy::Affinity] {
            let targets = target_handles(&weights.map(|weight| (weight, 0)));
            let out = run(&targets, By::Policy(policy), &traffic, seed);
            let total: u64 = out.counts.iter().sum();
            for (count, weight) in out.counts.iter().zip(weights) {
                let share = *count as f64 / total as f64;
                let due = f64::from(weight) / 10.0;
                let error = (share / due - 1.0).abs();
                assert!(error < 0.1, "seed {seed}, {}: {share:.3} instead of {due}", policy.name());
            }
        }
    }
}

/// Growing conversations: a turn is a hit if it goes to the target of the previous turn. Halfway through, a target
/// joins or leaves.
fn hits(seed: u64, before: &[usize], after: &[usize]) -> (f64, Vec<u64>) {
    const CONVERSATIONS: usize = 2_000;
    const TURNS: usize = 20;
    let all = target_handles(&[(1, 0); 6]);
    let mut dice = Dice(seed);
    let mut last = vec![None; CONVERSATIONS];
    let mut turns = [0; CONVERSATIONS];
    let (mut hits, mut repeated) = (0u64, 0u64);
    let mut counts = vec![0; all.len()];
    let mut in_flight: BinaryHeap<Reverse<(i64, u64)>> = BinaryHeap::new();
    let mut permits: std::collections::HashMap<u64, TargetPermit, foldhash::fast::FixedState> =
        Default::default();
    let mut now = 0;
    for number in 0..(CONVERSATIONS * TURNS) {
        now += (dice.exponential(0.01) * 1e9) as i64;
        while in_flight.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Reverse((at, number)) = in_flight.pop().unwrap();
            permits.remove(&number).unwrap().on_response(at);
        }
        let conversation = usize::try_from(dice.roll()).unwrap() % CONVERSATIONS;
        let there = if number < CONVERSATIONS * TURNS / 2 { before } else { after };
        let fitting = there.iter().fold(0, |mask, index| mask | 1 << index);
        let prompt = format!("The {conversation}th conversation begins so");
        let key = Some(fingerprint(0, prompt.as_bytes()));
        let request = PickRequest {
            now,
            random_point: dice.roll(),
            conversation: key,
            eligible: fitting,
            ..PickRequest::default()
        };
        let (index, permit) = pick(&all[..], Policy::Affinity, &request).unwrap();
        if turns[conversation] > 0 {
            repeated += 1;
            hits += u64::from(last[conversation] == Some(index));
        }
        turns[conversation] += 1;
        last[conversation] = Some(index);
        counts[index] += 1;
        // 2 s per response at 100 requests per second: 200 in flight.
        let number = u64::try_from(number).unwrap();
        in_flight.push(Reverse((now + (dice.exponential(2.0) * 1e9) as i64, number)));
        permits.insert(number, permit);
    }
    (hits as f64 / repeated as f64, counts)
}

#[test]
fn affinity_keeps_a_growing_conversation_at_its_target() {
    for seed in SEEDS {
        for (what, before, after) in [
            ("as it is", &[0, 1, 2, 3, 4][..], &[0, 1, 2, 3, 4][..]),
            ("one joins", &[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5]),
            ("one leaves", &[0, 1, 2, 3, 4], &[0, 1, 2, 4]),
        ] {
            let (rate, counts) = hits(seed, before, after);
            println!("seed {seed}, {what}: {:.2} % hits, {counts:?}", rate * 100.0);
            assert!(rate >= 0.95, "seed {seed}, {what}: {rate}");
        }
    }
}

#[test]
fn affinity_spreads_many_requests_of_one_conversation() {
    let five = target_handles(&[(1, 0); 5]);
    let fitting = mask(&five[..], |_| true);
    let request =
        PickRequest { now: SECOND, conversation: Some(9), eligible: fitting, ..PickRequest::default() };
    let permits: Vec<TargetPermit> =
        (0..500).map(|_| pick(&five[..], Policy::Affinity, &request).unwrap().1).collect();
    for target in &five {
        assert!(target.state.in_flight.get() <= 126, "{}", target.state.in_flight.get());
    }
    drop(permits);
}
