//! Memory that requests hold, all together: bodies, answers that are collected, and what lies behind links. A few
//! requests at once could otherwise take all that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Smaller things are not counted: `limits.requests` bounds them well enough.
const COUNTED: usize = 64 * 1024;

/// Memory budget of all bodies, in bytes (`limits.memory`).
#[derive(Clone, Debug)]
pub(super) struct BodyMemory {
    held: Arc<AtomicUsize>,
    limit: usize,
}

/// Memory permit of one body, in bytes. Returned to the budget when it is dropped.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    memory: BodyMemory,
    bytes: usize,
}

impl BodyMemory {
    /// Memory of which no more than `limit` bytes may be held.
    pub(super) fn new(limit: usize) -> Self {
        BodyMemory { held: Arc::default(), limit }
    }

    /// Notes that a body has grown to so many bytes. False when all of them together are more than the limit.
    pub(super) fn grow(&self, weight: &mut Option<MemoryPermit>, bytes: usize) -> bool {
        if bytes < COUNTED {
            return true;
        }
        let weight = weight.get_or_insert_with(|| MemoryPermit { memory: self.clone(), bytes: 0 });
        let more = bytes.saturating_sub(weight.bytes);
        weight.bytes += more;
        self.held.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= self.limit
    }

    /// Counts so many bytes of a body for as long as the body lives; `None` when that is more than the limit.
    pub(super) fn weigh(&self, body: Bytes, bytes: usize) -> Option<Bytes> {
        let mut weight = None;
        self.grow(&mut weight, bytes).then(|| sealed(body, weight))
    }

    /// Begins to count what is collected.
    pub(super) fn tally(&self, room: &Arc<Room>) -> Tally {
        Tally { memory: self.clone(), room: room.clone(), weight: None, bytes: 0 }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bound of what several reads collect for one request, in bytes. They share it while they are under way.
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Room(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Reason for which no more is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The request has no more room.
    Room,
    /// All requests together hold as much as they may.
    Memory,
}

/// Count of what one read collects, while it collects it.
#[derive(Debug)]
pub(super) struct Tally {
    memory: BodyMemory,
    room: Arc<Room>,
    weight: Option<MemoryPermit>,
    bytes: usize,
}

impl Tally {
    /// Counts some more bytes.
    ///
    /// # Errors
    /// They may not be collected.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Full> {
        if !self.room.take(bytes) {
            return Err(Full::Room);
        }
        self.bytes += bytes;
        if self.memory.grow(&mut self.weight, self.bytes) { Ok(()) } else { Err(Full::Memory) }
    }

    /// What was collected, counted for as long as it lives.
    pub(super) fn seal(self, body: Bytes) -> Bytes {
        sealed(body, self.weight)
    }
}

/// A body that is counted until its last part goes.
struct Weighed {
    body: Bytes,
    #[allow(dead_code, reason = "held until it is dropped")]
    weight: MemoryPermit,
}

impl AsRef<[u8]> for Weighed {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn sealed(body: Bytes, weight: Option<MemoryPermit>) -> Bytes {
    match weight {
        Some(weight) => Bytes::from_owner(Weighed { body, weight }),
        None => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: &BodyMemory) -> usize {
        memory.held.load(Ordering::Relaxed)
    }

    #[test]
    fn bodies_are_bounded_together_and_forgotten_one_by_one() {
        let memory = BodyMemory::new(4 * COUNTED);
        let (mut one, mut other, mut small) = (None, None, None);
        assert!(memory.grow(&mut small, COUNTED - 1) && small.is_none(), "not counted");
        assert!(memory.grow(&mut one, COUNTED));
        assert!(memory.grow(&mut one, 3 * COUNTED));
        assert!(memory.grow(&mut other, COUNTED));
        assert!(!memory.grow(&mut other, COUNTED + 1));
        drop(one);
        assert!(memory.grow(&mut other, 4 * COUNTED));
        drop(other);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn sealed_bodies_are_counted_until_their_last_part_goes() {
        let memory = BodyMemory::new(4 * COUNTED);
        let body = memory.weigh(Bytes::from(vec![b'x'; COUNTED]), COUNTED).unwrap();
        let part = body.slice(10..20);
        drop(body);
        assert_eq!((&part[..], held(&memory)), (&b"xxxxxxxxxx"[..], COUNTED));
        assert!(memory.weigh(Bytes::new(), 4 * COUNTED).is_none());
        drop(part);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn tallies_share_the_room_of_their_request() {
        let memory = BodyMemory::new(8 * COUNTED);
        let room = Room::new(3 * COUNTED);
        let (mut one, mut other) = (memory.tally(&room), memory.tally(&room));
        one.add(COUNTED).unwrap();
        other.add(2 * COUNTED).unwrap();
        assert_eq!(one.add(1), Err(Full::Room));
        let mut elsewhere = memory.tally(&Room::new(usize::MAX));
        assert_eq!(elsewhere.add(6 * COUNTED), Err(Full::Memory));
        drop(elsewhere);
        let body = one.seal(Bytes::from(vec![b'x'; COUNTED]));
        drop(other);
        assert_eq!(held(&memory), COUNTED);
        drop(body);
        assert_eq!(held(&memory), 0);
    }
}
