//! Session stickiness: which target stores a response or conversation that only its provider can continue.
//!
//! A direct-mapped table of fixed size, in which newer entries overwrite older ones. It is lost on a restart; then
//! targets are tried in turn until one has the response.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of the table, 8 bytes each: half a MiB, allocated on first use.
const SLOTS: usize = 1 << 16;
/// Bits of a slot that hold the target id; the other 32 bits are the tag of the stored object.
const TARGET: u64 = 0xffff_ffff;

/// Sticky table: which target stores a response or a conversation.
#[derive(Debug, Default)]
pub struct StickyTable {
    slots: OnceLock<Box<[AtomicU64]>>,
}

impl StickyTable {
    /// Records the target of a stored object. Both arguments are evenly distributed hashes.
    pub fn record(&self, object: u64, target: u64) {
        let places = self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        if let Some(place) = slot(places, object) {
            place.store(object & !TARGET | target & TARGET, Ordering::Relaxed);
        }
    }

    /// Returns the target of a stored object, or `None` if the table has no entry for it.
    pub fn find(&self, object: u64) -> Option<StickyTarget> {
        let found = slot(self.slots.get()?, object)?.load(Ordering::Relaxed);
        // 0 marks an empty slot; a different tag belongs to another object with the same slot.
        (found != 0 && (found ^ object) & !TARGET == 0).then_some(StickyTarget(found & TARGET))
    }
}

/// Selects the slot by the low bits, which the tag does not contain, so that tag and slot are independent.
fn slot(places: &[AtomicU64], object: u64) -> Option<&AtomicU64> {
    places.get(usize::try_from(object & TARGET).ok()? % SLOTS)
}

/// Target that stores what a request continues from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StickyTarget(u64);

impl StickyTarget {
    /// Returns whether this is the target with this hash.
    pub fn matches(self, target: u64) -> bool {
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
    fn sticky_response_is_found_at_its_target_only() {
        let table = StickyTable::default();
        assert_eq!(table.find(number("resp_1")), None);
        let targets: Vec<u64> = (0..5).map(|index| number(&format!("target {index}"))).collect();
        for turn in 0..500_usize {
            table.record(number(&format!("resp_{turn}")), targets[turn % 5]);
        }
        let mut found = 0;
        for turn in 0..500_usize {
            let Some(sticky_target) = table.find(number(&format!("resp_{turn}"))) else { continue };
            let at: Vec<usize> = (0..5).filter(|index| sticky_target.matches(targets[*index])).collect();
            assert_eq!(at, [turn % 5]);
            found += 1;
        }
        assert!(found > 480, "only {found} of 500 are remembered");
        let unrecorded = (500..5_000).filter(|turn| table.find(number(&format!("resp_{turn}"))).is_some());
        assert_eq!(unrecorded.count(), 0, "an object that was not recorded is found");
    }

    #[test]
    fn sticky_conversation_that_moves_is_found_at_its_new_target() {
        let table = StickyTable::default();
        table.record(number("conv_1"), number("one"));
        table.record(number("conv_1"), number("two"));
        let sticky_target = table.find(number("conv_1")).unwrap();
        assert!(sticky_target.matches(number("two")) && !sticky_target.matches(number("one")));
    }
}
