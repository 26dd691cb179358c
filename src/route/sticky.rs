//! Which target keeps what: responses and conversations that stay at the provider that made them, and that no other one
//! knows.
//!
//! As much as is likely to be gone on with is remembered, in a table of fixed size in which what is newer takes the
//! place of what is older. It is lost with the process: then targets are asked in turn until one knows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places in the table, each of 8 bytes: half a MiB, made when it is first needed.
const PLACES: usize = 1 << 16;
/// The bits of a place that tell the target; the others tell what is kept there.
const TARGET: u64 = 0xffff_ffff;

/// Sticky table: which target stores a response or a conversation.
#[derive(Debug, Default)]
pub struct StickyTable {
    places: OnceLock<Box<[AtomicU64]>>,
}

impl StickyTable {
    /// Remembers where something is kept. Both are numbers that stand for it, evenly spread.
    pub fn remember(&self, kept: u64, target: u64) {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU64::new(0)).collect());
        if let Some(place) = place(places, kept) {
            place.store(kept & !TARGET | target & TARGET, Ordering::Relaxed);
        }
    }

    /// Whether this target is where it is kept; nothing where that is not known.
    pub fn find(&self, kept: u64) -> Option<StickyTarget> {
        let found = place(self.places.get()?, kept)?.load(Ordering::Relaxed);
        (found != 0 && (found ^ kept) & !TARGET == 0).then_some(StickyTarget(found & TARGET))
    }
}

/// The low bits say which place, so that the others need not be told by it.
fn place(places: &[AtomicU64], kept: u64) -> Option<&AtomicU64> {
    places.get(usize::try_from(kept & TARGET).ok()? % PLACES)
}

/// Target that stores what a request continues from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickyTarget(u64);

impl StickyTarget {
    /// Whether it is the target that this number stands for.
    pub fn is(self, target: u64) -> bool {
        target & TARGET == self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::affinity::fingerprint;

    fn number(text: &str) -> u64 {
        fingerprint(0, text.as_bytes())
    }

    #[test]
    fn what_is_kept_somewhere_is_found_there_and_nowhere_else() {
        let homes = StickyTable::default();
        assert_eq!(homes.find(number("resp_1")), None);
        let targets: Vec<u64> = (0..5).map(|index| number(&format!("target {index}"))).collect();
        for turn in 0..500_usize {
            homes.remember(number(&format!("resp_{turn}")), targets[turn % 5]);
        }
        let mut found = 0;
        for turn in 0..500_usize {
            let Some(home) = homes.find(number(&format!("resp_{turn}"))) else { continue };
            let at: Vec<usize> = (0..5).filter(|index| home.is(targets[*index])).collect();
            assert_eq!(at, [turn % 5]);
            found += 1;
        }
        assert!(found > 480, "only {found} of 500 are remembered");
        let strange = (500..5_000).filter(|turn| homes.find(number(&format!("resp_{turn}"))).is_some());
        assert_eq!(strange.count(), 0, "what was never kept is found");
    }

    #[test]
    fn what_moves_is_found_at_its_new_place() {
        let homes = StickyTable::default();
        homes.remember(number("conv_1"), number("one"));
        homes.remember(number("conv_1"), number("two"));
        let home = homes.find(number("conv_1")).unwrap();
        assert!(home.is(number("two")) && !home.is(number("one")));
    }
}
