//! Drain count: what a draining process waits for.

use super::PerThread;
use super::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Number of requests and of other drain guards, and whether the drain has begun. Each thread counts on a cache line of its
/// own; a guard may be removed by another thread than the one that added it.
///
/// Adding and removing are counted apart, because the sum of numbers that also go down is wrong if a guard moves between
/// two of them while they are read: the process could be taken for idle. Of numbers that only grow, those of the removed
/// guards are read first. A removal that is seen then belongs to an addition that is seen, so the difference is never below
/// the number of guards at the time between both readings, and it is 0 only if there was none.
#[derive(Debug)]
pub struct DrainCount {
    draining: AtomicBool,
    counts: PerThread<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AddedAndRemoved,
    others: AddedAndRemoved,
}

#[derive(Debug, Default)]
struct AddedAndRemoved {
    added: AtomicUsize,
    removed: AtomicUsize,
}

impl Default for DrainCount {
    fn default() -> Self {
        // All counts are there from the start: a reader that missed one could see a removal without its addition.
        DrainCount { draining: AtomicBool::new(false), counts: PerThread::filled(Counts::default) }
    }
}

impl DrainCount {
    /// Adds a guard that is no request.
    pub fn add(&self) {
        add(&self.own().others);
    }

    /// Removes a guard that is no request. Returns true if the process drains and there is no guard: the waiters must be
    /// woken.
    #[must_use]
    pub fn remove(&self) -> bool {
        self.remove_from(&self.own().others)
    }

    /// Adds a request.
    pub fn add_request(&self) {
        add(&self.own().requests);
    }

    /// Removes a request. Returns true if the process drains and there is no guard: the waiters must be woken.
    #[must_use]
    pub fn remove_request(&self) -> bool {
        self.remove_from(&self.own().requests)
    }

    /// Begins the drain. Returns true if there is no guard: the waiters must be woken.
    #[must_use]
    pub fn drain(&self) -> bool {
        self.draining.store(true, Ordering::Release);
        self.is_idle()
    }

    /// Returns whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns whether there is no guard.
    pub fn is_idle(&self) -> bool {
        // With the fence of a removal: of two that are the last, or of the last one and a waiter that has just
        // registered, one sees the other.
        fence(Ordering::SeqCst);
        let all = || self.counts.iter().flat_map(|counts| [&counts.requests, &counts.others]);
        difference(all) == 0
    }

    /// Returns the number of requests: while some come and go, never less than there are.
    pub fn requests(&self) -> usize {
        difference(|| self.counts.iter().map(|counts| &counts.requests))
    }

    fn own(&self) -> &Counts {
        self.counts.own(Counts::default)
    }

    fn remove_from(&self, count: &AddedAndRemoved) -> bool {
        // Release: a reader that sees the removal sees the addition too.
        count.removed.fetch_add(1, Ordering::Release);
        // Without the fence, the removal could be missed by the start of the drain, which is missed by this load.
        fence(Ordering::SeqCst);
        self.draining.load(Ordering::Relaxed) && self.is_idle()
    }
}

fn add(count: &AddedAndRemoved) {
    count.added.fetch_add(1, Ordering::Relaxed);
}

fn difference<'c, I: Iterator<Item = &'c AddedAndRemoved>>(all: impl Fn() -> I) -> usize {
    let removed = all().fold(0_usize, |sum, count| sum.wrapping_add(count.removed.load(Ordering::Acquire)));
    let added = all().fold(0_usize, |sum, count| sum.wrapping_add(count.added.load(Ordering::Relaxed)));
    added.wrapping_sub(removed)
}
