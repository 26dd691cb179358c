//! Indexes of the threads that live: small numbers, of which a thread that ends gives its own back.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

struct Indexes {
    /// The lowest index that no thread has had.
    next: usize,
    free: BTreeSet<usize>,
}

static INDEXES: Mutex<Indexes> = Mutex::new(Indexes { next: 0, free: BTreeSet::new() });

/// Index of a thread, which is free again when the thread ends.
struct ThreadIndex(usize);

impl ThreadIndex {
    /// Takes the lowest index that is free: a thread in the place of another one has the same, and uses what that one used.
    fn take() -> Self {
        let mut indexes = INDEXES.lock().unwrap_or_else(PoisonError::into_inner);
        ThreadIndex(indexes.free.pop_first().unwrap_or_else(|| {
            indexes.next += 1;
            indexes.next - 1
        }))
    }
}

impl Drop for ThreadIndex {
    fn drop(&mut self) {
        INDEXES.lock().unwrap_or_else(PoisonError::into_inner).free.insert(self.0);
    }
}

thread_local! {
    static INDEX: ThreadIndex = ThreadIndex::take();
}

/// Returns the index of this thread; 0, which another thread has too, if it is ending and has given its own back.
#[inline]
pub(super) fn thread_index() -> usize {
    INDEX.try_with(|index| index.0).unwrap_or(0)
}
