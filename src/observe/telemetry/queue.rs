//! Bounded queue between the threads that finish requests and the thread that exports: encoded items in one buffer. A
//! full queue drops the newest item, and never waits.

use std::ops::Range;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Largest average size of an item, in bytes: bounds the memory of a queue by its number of items.
const MAX_ITEM: usize = 4 * 1024;
/// Capacity in bytes that a buffer keeps when it was emptied.
const RETAINED_CAPACITY: usize = 256 * 1024;

/// Items of one signal that were taken out of the queue: encoded, with the ends of the records.
#[derive(Debug, Default)]
pub(super) struct Taken {
    bytes: Vec<u8>,
    /// End of each record in `bytes`, and its number of items: a request's spans are one record.
    records: Vec<(usize, usize)>,
}

/// Part of [`Taken`] that is sent in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Records.
    pub(super) records: Range<usize>,
    /// Number of items in them.
    pub(super) items: u64,
}

impl Taken {
    /// Returns the batches: records in their order, with at most `size` items each, or a single record.
    pub(super) fn batches(&self, size: usize) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for (index, (_, items)) in self.records.iter().enumerate() {
            let items = *items as u64;
            match batches.last_mut() {
                Some(batch) if batch.items + items <= size as u64 => {
                    batch.items += items;
                    batch.records.end = index + 1;
                }
                _ => batches.push(Batch { records: index..index + 1, items }),
            }
        }
        batches
    }

    /// Halves a batch. `None` if it has one record only.
    pub(super) fn halves(&self, batch: &Batch) -> Option<[Batch; 2]> {
        let Range { start, end } = batch.records;
        if end - start < 2 {
            return None;
        }
        let middle = start + (end - start) / 2;
        let part = |records: Range<usize>| {
            let items =
                self.records.get(records.clone()).unwrap_or_default().iter().map(|(_, items)| *items as u64);
            Batch { records, items: items.sum() }
        };
        Some([part(start..middle), part(middle..end)])
    }

    /// Returns the encoded items of a batch.
    pub(super) fn bytes_of(&self, batch: &Batch) -> &[u8] {
        let end_of = |record: usize| self.records.get(record).map_or(0, |(end, _)| *end);
        let start = batch.records.start.checked_sub(1).map_or(0, end_of);
        let end = batch.records.end.checked_sub(1).map_or(0, end_of);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Appends a record that `write` encodes, of some items.
    pub(super) fn push_with(&mut self, items: usize, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.records.push((self.bytes.len(), items));
    }

    /// Returns the number of items.
    pub(super) fn items(&self) -> u64 {
        self.records.iter().map(|(_, items)| *items as u64).sum()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_CAPACITY);
        self.records.clear();
    }
}

/// Queue of one signal.
#[derive(Debug)]
pub(super) struct SignalQueue {
    state: Mutex<Queued>,
    /// Maximum number of items.
    limit: usize,
}

#[derive(Debug, Default)]
struct Queued {
    taken: Taken,
    items: usize,
}

/// What a queue did with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is queued, and so many items are.
    Queued(usize),
    /// The queue is full: the item is dropped.
    Full,
}

impl SignalQueue {
    pub(super) fn new(limit: usize) -> Self {
        SignalQueue { state: Mutex::default(), limit }
    }

    /// Appends a record of some items.
    pub(super) fn push(&self, encoded: &[u8], items: usize) -> Pushed {
        let mut state = self.state.lock();
        let bytes = state.taken.bytes.len() + encoded.len();
        if state.items + items > self.limit || bytes > self.limit.saturating_mul(MAX_ITEM) {
            return Pushed::Full;
        }
        state.items += items;
        state.taken.bytes.extend_from_slice(encoded);
        state.taken.records.push((bytes, items));
        Pushed::Queued(state.items)
    }

    /// Exchanges the queued items with an empty buffer, so that nothing is copied or allocated.
    pub(super) fn take(&self, empty: &mut Taken) {
        empty.clear();
        let mut state = self.state.lock();
        std::mem::swap(&mut state.taken, empty);
        state.items = 0;
    }

    /// Returns whether a quarter of the queue or less is free.
    pub(super) fn is_filling(&self) -> bool {
        self.state.lock().items.saturating_mul(4) >= self.limit.saturating_mul(3)
    }
}

/// Wakes the exporting thread, and stops it.
#[derive(Debug, Default)]
pub(super) struct ExporterSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct SignalState {
    ready: bool,
    stop: bool,
    ended: bool,
}

impl ExporterSignal {
    /// Wakes the thread: a batch is complete.
    pub(super) fn wake(&self) {
        self.state.lock().ready = true;
        self.changed.notify_all();
    }

    /// Waits for a batch, the end, or this time. Returns whether the thread must end.
    pub(super) fn wait(&self, within: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.ready && !state.stop {
            self.changed.wait_for(&mut state, within);
        }
        state.ready = false;
        state.stop
    }

    /// Waits for the end, or this time. Returns whether the thread must end.
    pub(super) fn wait_for_stop(&self, within: Duration) -> bool {
        let until = std::time::Instant::now() + within;
        let mut state = self.state.lock();
        while !state.stop && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.stop
    }

    /// Returns whether the thread must end.
    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// The thread has ended.
    pub(super) fn ended(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Stops the thread, and waits until it has ended, or this time.
    pub(super) fn stop(&self, within: Duration) {
        let until = std::time::Instant::now() + within;
        let mut state = self.state.lock();
        state.stop = true;
        self.changed.notify_all();
        while !state.ended && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_drops_the_newest_item_when_it_is_full() {
        let queue = SignalQueue::new(3);
        assert_eq!(queue.push(b"ab", 2), Pushed::Queued(2));
        assert_eq!(queue.push(b"cd", 2), Pushed::Full);
        assert_eq!(queue.push(b"e", 1), Pushed::Queued(3));
        assert!(queue.is_filling());
        let mut taken = Taken::default();
        queue.take(&mut taken);
        assert_eq!((taken.items(), &taken.bytes[..]), (3, &b"abe"[..]));
        assert_eq!(queue.push(&[0; 3 * MAX_ITEM], 1), Pushed::Queued(1));
        assert_eq!(queue.push(b"x", 1), Pushed::Full, "beyond its bytes");
    }

    #[test]
    fn batches_have_whole_records_in_their_order() {
        let queue = SignalQueue::new(100);
        for (text, items) in [("aa", 2), ("b", 1), ("cccc", 4), ("d", 1), ("e", 1)] {
            queue.push(text.as_bytes(), items);
        }
        let mut taken = Taken::default();
        queue.take(&mut taken);
        let batches = taken.batches(3);
        let texts: Vec<_> =
            batches.iter().map(|batch| std::str::from_utf8(taken.bytes_of(batch)).unwrap()).collect();
        assert_eq!(texts, ["aab", "cccc", "de"]);
        assert_eq!(batches.iter().map(|batch| batch.items).sum::<u64>(), taken.items());
        let [first, second] = taken.halves(&batches[0]).unwrap();
        assert_eq!((taken.bytes_of(&first), taken.bytes_of(&second)), (&b"aa"[..], &b"b"[..]));
        assert_eq!(taken.halves(&batches[1]), None);
    }
}
