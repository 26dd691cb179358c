//! Values that each thread has for itself.
//!
//! Threads that write to one cache line take it from each other: a counter that costs a nanosecond with one thread costs a
//! hundred with many. Here each thread writes to a value of its own, on cache lines of its own, and a reader combines the
//! values. The values stay when a thread ends; the next thread takes them over.

// Not those of loom: the place of a value is made once, and no model rests on the order.
use std::sync::{LazyLock, OnceLock};

use super::thread_index::thread_index;

/// Bounds of the number of values. A power of two each.
const MIN_SLOTS: usize = 4;
const MAX_SLOTS: usize = 128;

/// Number of values: two for each processor, because a worker's thread that is replaced lives for a while beside its
/// successor. In model checks, which number their threads themselves, two.
static SLOTS: LazyLock<usize> = LazyLock::new(|| {
    if cfg!(model_check) {
        return 2;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).next_power_of_two().clamp(MIN_SLOTS, MAX_SLOTS)
});

/// Values of which each thread uses one, made at its first use. More threads than values share them, so that a value must
/// be correct when several threads use it.
pub struct PerThread<T> {
    slots: Box<[Slot<T>]>,
}

type Slot<T> = OnceLock<Box<CacheLine<T>>>;

/// Value on cache lines of its own: 128 bytes, because processors fetch lines in pairs.
#[repr(align(128))]
struct CacheLine<T>(T);

impl<T> PerThread<T> {
    /// Creates a set without values.
    pub fn new() -> Self {
        PerThread { slots: (0..*SLOTS).map(|_| OnceLock::new()).collect() }
    }

    /// Creates a set that has all values, for readers that must not miss one that was made a moment ago.
    pub fn filled(make: impl Fn() -> T) -> Self {
        PerThread { slots: (0..*SLOTS).map(|_| OnceLock::from(Box::new(CacheLine(make())))).collect() }
    }

    /// Returns the value of this thread, which is made if there is none.
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "the mask keeps the index below the length, a power of two")]
    pub fn own(&self, make: impl FnOnce() -> T) -> &T {
        let slot = &self.slots[thread_index() & (self.slots.len() - 1)];
        match slot.get() {
            Some(value) => &value.0,
            None => &slot.get_or_init(|| Box::new(CacheLine(make()))).0,
        }
    }

    /// Returns the values of all threads, of those that have ended too.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.get().map(|value| &value.0))
    }
}

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        PerThread::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for PerThread<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(model_check)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn per_thread_values_are_shared_by_threads_beyond_their_number() {
        let threads = *SLOTS as u64 * 3;
        let (values, all) = (PerThread::<AtomicU64>::new(), Barrier::new(*SLOTS * 3));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    // All of them live at the same time: no index is given twice.
                    all.wait();
                    for _ in 0..1_000 {
                        values.own(AtomicU64::default).fetch_add(1, Ordering::Relaxed);
                    }
                    all.wait();
                });
            }
        });
        assert!(values.iter().count() <= *SLOTS);
        assert_eq!(values.iter().map(|value| value.load(Ordering::Relaxed)).sum::<u64>(), threads * 1_000);
    }

    #[test]
    fn per_thread_values_outlive_their_threads() {
        let values = Arc::new(PerThread::<AtomicU64>::new());
        for _ in 0..1_000 {
            let values = values.clone();
            let counting = move || values.own(AtomicU64::default).fetch_add(1, Ordering::Relaxed);
            thread::spawn(counting).join().unwrap();
        }
        assert_eq!(values.iter().map(|value| value.load(Ordering::Relaxed)).sum::<u64>(), 1_000);
    }

    /// A value that a thread's end uses is there, whatever of the thread has gone already.
    #[test]
    fn per_thread_value_is_found_while_the_thread_ends() {
        struct Last(Arc<PerThread<AtomicU64>>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.own(AtomicU64::default).fetch_add(1, Ordering::Relaxed);
            }
        }
        thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
        let values = Arc::new(PerThread::new());
        for index_first in [true, false] {
            let values = values.clone();
            let ending = move || {
                if index_first {
                    thread_index();
                }
                LAST.set(Some(Last(values.clone())));
                thread_index();
            };
            thread::spawn(ending).join().unwrap();
        }
        assert_eq!(values.iter().map(|value| value.load(Ordering::Relaxed)).sum::<u64>(), 2);
    }
}
