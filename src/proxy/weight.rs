//! How much memory large request bodies take, all together: they are held whole, and a few clients at once could
//! otherwise take all that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smaller bodies are not counted: `limits.requests` bounds them well enough.
const COUNTED: usize = 64 * 1024;

/// What all bodies take, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<AtomicUsize>);

/// What one body takes; given back when it goes.
#[derive(Debug)]
pub(super) struct Weight {
    memory: Memory,
    bytes: usize,
}

impl Memory {
    /// Notes that a body has grown to so many bytes. False when all of them together are more than `limit`.
    pub(super) fn grow(&self, weight: &mut Option<Weight>, bytes: usize, limit: usize) -> bool {
        if bytes < COUNTED {
            return true;
        }
        let weight = weight.get_or_insert_with(|| Weight { memory: self.clone(), bytes: 0 });
        let more = bytes.saturating_sub(weight.bytes);
        weight.bytes += more;
        self.0.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= limit
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_bounded_together_and_forgotten_one_by_one() {
        let memory = Memory::default();
        let (mut one, mut other, mut small) = (None, None, None);
        assert!(memory.grow(&mut small, COUNTED - 1, 0), "not counted");
        assert!(memory.grow(&mut one, COUNTED, 4 * COUNTED));
        assert!(memory.grow(&mut one, 3 * COUNTED, 4 * COUNTED));
        assert!(memory.grow(&mut other, COUNTED, 4 * COUNTED));
        assert!(!memory.grow(&mut other, COUNTED + 1, 4 * COUNTED));
        drop(one);
        assert!(memory.grow(&mut other, 4 * COUNTED, 4 * COUNTED));
        drop(other);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
    }
}
