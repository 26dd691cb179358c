//! Global allocator that counts the allocations of the calling thread.
#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations of a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Number of allocations and reallocations.
    pub(crate) calls: u64,
    /// Bytes allocated; of a reallocation, the growth.
    pub(crate) bytes: u64,
}

struct Counting;

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(bytes: usize) {
    // While a thread is being destroyed, its counter is gone already and its allocations are not counted.
    let _ = COUNT.try_with(|count| {
        let Count { calls, bytes: before } = count.get();
        count.set(Count { calls: calls + 1, bytes: before + bytes as u64 });
    });
}

// SAFETY: every call goes to the system's allocator as it is; what is noted beside it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: what the caller promises is what the system's allocator demands.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: likewise.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: likewise.
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }

    // SAFETY: likewise.
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Runs `work` and counts its allocations.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (Count, T) {
    let before = COUNT.get();
    let result = work();
    let after = COUNT.get();
    (Count { calls: after.calls - before.calls, bytes: after.bytes - before.bytes }, result)
}
