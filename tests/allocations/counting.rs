//! An allocator that counts what the calling thread asks for.
#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Allocations, a larger place for one that is there included.
    pub(crate) calls: u64,
    /// Bytes of them; of a larger place, what it is larger by.
    pub(crate) bytes: u64,
}

struct Counting;

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(bytes: usize) {
    // A thread that ends has no count any more; nobody asks for it.
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

/// What `work` asks for.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (Count, T) {
    let before = COUNT.get();
    let result = work();
    let after = COUNT.get();
    (Count { calls: after.calls - before.calls, bytes: after.bytes - before.bytes }, result)
}
