//! What leaves for a provider is something that the model takes: for every model of the catalogue at every provider that offers
//! it, and everything that a request can hold, in the five formats of clients.
//!
//! The referee is the simulator, whose rules are written from the providers' pages and not from the catalogue. Requests of a
//! target's own format are adapted as at a target that the gateway chose: what a client chose for the model that it named passes
//! first, and is adapted after the refusal (docs/decisions/020-own-format.md).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "it is a test")]

mod facts;
mod openai;
mod others;
mod talk;
mod target;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use model_gateway::wire::Format;

use facts::FACTS;
use talk::{History, Talk};
use target::{Outcome, Target};

const FORMATS: [Format; 5] =
    [Format::Chat, Format::Messages, Format::Responses, Format::Generate, Format::Converse];
/// Random sets of facts for each target and format.
const SETS: usize = 12;
/// What clients of a target's own format can still ask of it and what it refuses, by the provider and what it says: the provider's
/// words are the answer. Values of settings that contradict each other, and budgets beyond the range of a model of Google.
const LEFT_TO_THE_PROVIDER: [(&str, &str); 7] = [
    ("Generate", "The thinking budget"),
    ("Generate", "Budget 0 is invalid"),
    ("Messages", "does not support assistant message prefill"),
    ("Messages", "when thinking is enabled or in adaptive mode"),
    ("Messages", "output_config.effort: 'max'"),
    ("Messages", "output_config.effort: 'xhigh'"),
    ("Converse", "extraneous key [toolResult]"),
];

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    /// Violations, by provider, API and what the referee says; with the first example and their number.
    violations: BTreeMap<String, (String, usize)>,
    sent: usize,
    refused: usize,
}

impl Found {
    fn add(&mut self, target: &Target, client: Format, what: &[&str], outcome: Outcome) {
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Taken => self.sent += 1,
            Outcome::Violation(why, body) => {
                self.sent += 1;
                let is_left =
                    |(api, says): &(&str, &str)| format!("{:?}", target.format) == *api && why.contains(says);
                if LEFT_TO_THE_PROVIDER.iter().any(is_left) {
                    return;
                }
                let key = format!("{} {:?}: {why}", target.provider_name, target.format);
                let example = || format!("{} from {client:?} with {what:?}: {body}", target.model);
                self.violations.entry(key).or_insert_with(|| (example(), 0)).1 += 1;
            }
        }
    }
}

fn check(target: &Target, number: usize, found: &mut Found) {
    let mut numbers = Numbers(number as u64);
    for (at, client) in FORMATS.into_iter().enumerate() {
        for (index, (name, fact)) in FACTS.iter().enumerate() {
            // Each fact in a document and in a stream, at the first turn and later; half of them for each target.
            let turn = number + at + index;
            let mut talk = Talk {
                history: if turn.is_multiple_of(2) { History::None } else { History::Calls },
                ..Talk::default()
            };
            fact(&mut talk);
            found.add(target, client, &[name], target.send(client, &talk, turn % 4 < 2));
        }
        for _ in 0..SETS {
            let mut talk = Talk::default();
            let mut names = Vec::new();
            for _ in 0..2 + numbers.below(4) {
                let (name, fact) = FACTS[numbers.below(FACTS.len())];
                fact(&mut talk);
                names.push(name);
            }
            let stream = numbers.below(2) == 0;
            found.add(target, client, &names, target.send(client, &talk, stream));
        }
    }
}

#[test]
fn what_leaves_for_a_provider_is_something_that_its_model_takes() {
    let targets = target::all();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Found::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut own = Found::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(target) = targets.get(number) else { break };
                    check(target, number, &mut own);
                }
                let mut all = found.lock().unwrap();
                all.sent += own.sent;
                all.refused += own.refused;
                for (key, (example, count)) in own.violations {
                    all.violations.entry(key).or_insert((example, 0)).1 += count;
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    println!("{} targets, {} requests sent, {} refused", targets.len(), found.sent, found.refused);
    assert!(targets.len() > 150 && found.sent > 40_000 && found.refused * 8 < found.sent);
    let lines: Vec<String> = found
        .violations
        .iter()
        .map(|(why, (example, count))| format!("{count} times, {why}\n    {example}"))
        .collect();
    assert!(lines.is_empty(), "{} kinds of violations:\n{}", lines.len(), lines.join("\n"));
}
