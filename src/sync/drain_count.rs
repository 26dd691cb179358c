//! Drain count: what a draining process waits for.

use super::atomic::{AtomicUsize, Ordering};

/// Bit of a process that drains; the others count the guards.
const DRAINING: usize = 1 << (usize::BITS - 1);

/// Number of drain guards, and whether the drain has begun, in one integer. With two, the last guard could miss the drain
/// while the drain misses that the guard is gone, and nothing would wake the waiters.
#[derive(Debug, Default)]
pub struct DrainCount(AtomicUsize);

impl DrainCount {
    /// Adds a guard.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a guard. Returns true if it was the last one of a process that drains: its waiters must be woken.
    #[must_use]
    pub fn remove(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == DRAINING | 1
    }

    /// Begins the drain. Returns true if there is no guard: the waiters must be woken.
    #[must_use]
    pub fn drain(&self) -> bool {
        self.0.fetch_or(DRAINING, Ordering::AcqRel) & !DRAINING == 0
    }

    /// Returns whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Acquire) & DRAINING != 0
    }

    /// Returns whether there is no guard.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) & !DRAINING == 0
    }
}
