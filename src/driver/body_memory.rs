//! Body memory: a budget, in bytes, for all request bodies, collected responses and fetched media together. Without it
//! a few large requests at once could exhaust the process's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

use json::Rope;

/// Smallest size that is counted, in bytes. `limits.requests` bounds smaller ones well enough.
const MIN_COUNTED: usize = 64 * 1024;

/// Memory budget of all bodies, in bytes (`limits.memory`).
#[derive(Clone, Debug)]
pub struct BodyMemory {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// Memory permit of one body, in bytes. Returned to the budget when it is dropped.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: BodyMemory,
    bytes: usize,
}

impl BodyMemory {
    /// Budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        BodyMemory { used: Arc::default(), limit }
    }

    /// Raises the permit of a body to `bytes`. Returns false if the budget is exceeded; the bytes count nevertheless,
    /// until the permit is dropped.
    pub fn grow(&self, weight: &mut Option<MemoryPermit>, bytes: usize) -> bool {
        if bytes < MIN_COUNTED {
            return true;
        }
        let weight = weight.get_or_insert_with(|| MemoryPermit { memory: self.clone(), bytes: 0 });
        let more = bytes.saturating_sub(weight.bytes);
        weight.bytes += more;
        self.used.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= self.limit
    }

    /// Sets a permit to `bytes`, however few: for what a connection holds between requests, which no limit of requests
    /// bounds. Returns false if the budget is exceeded; the bytes count nevertheless.
    pub fn set(&self, permit: &mut Option<MemoryPermit>, bytes: usize) -> bool {
        let permit = permit.get_or_insert_with(|| MemoryPermit { memory: self.clone(), bytes: 0 });
        let before = std::mem::replace(&mut permit.bytes, bytes);
        if bytes <= before {
            self.used.fetch_sub(before - bytes, Ordering::Relaxed);
            return true;
        }
        let more = bytes - before;
        self.used.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= self.limit
    }

    /// Counts `bytes` for the lifetime of a body. `None` if the budget is exceeded.
    pub fn charge(&self, body: Bytes, bytes: usize) -> Option<Bytes> {
        let mut weight = None;
        self.grow(&mut weight, bytes).then(|| with_permit(body, weight))
    }

    /// Counts a translated request body, of which `copied` bytes are not shared with the client's body of `received` bytes:
    /// what it adds to that one, which is freed unless a part of it is shared. Returns its pieces, `None` if the budget is
    /// exceeded.
    pub fn charge_translated(
        &self,
        body: Rope,
        copied: usize,
        received: usize,
    ) -> Option<SmallVec<[Bytes; 2]>> {
        let freed = if copied < body.len() { 0 } else { received };
        let mut pieces = body.into_pieces();
        if let Some(first) = pieces.first_mut() {
            *first = self.charge(std::mem::take(first), copied.saturating_sub(freed))?;
        }
        Some(pieces)
    }

    /// Starts the count of one read; `room` is the share of its request.
    pub fn tally(&self, room: &Arc<RequestBudget>) -> MemoryTally {
        MemoryTally { memory: self.clone(), room: room.clone(), permit: None, bytes: 0 }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bound of the bytes that several concurrent reads collect for one request.
#[derive(Debug)]
pub struct RequestBudget(AtomicUsize);

impl RequestBudget {
    /// Bound of this many bytes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(RequestBudget(AtomicUsize::new(bytes)))
    }

    /// Takes bytes of the bound. Returns false, and takes none, if so many are not left.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Reason why no more bytes may be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryExceeded {
    /// The bound of the request is reached.
    RequestLimit,
    /// The budget of all requests is exhausted.
    ProcessLimit,
}

/// Count of the bytes that one read collects.
#[derive(Debug)]
pub struct MemoryTally {
    memory: BodyMemory,
    room: Arc<RequestBudget>,
    permit: Option<MemoryPermit>,
    bytes: usize,
}

impl MemoryTally {
    /// Counts received bytes.
    ///
    /// # Errors
    /// Returns [`MemoryExceeded`] if a bound is exceeded.
    pub fn add(&mut self, bytes: usize) -> Result<(), MemoryExceeded> {
        if !self.room.take(bytes) {
            return Err(MemoryExceeded::RequestLimit);
        }
        self.bytes += bytes;
        if self.memory.grow(&mut self.permit, self.bytes) {
            Ok(())
        } else {
            Err(MemoryExceeded::ProcessLimit)
        }
    }

    /// Ends the count; the body holds its permit for as long as it lives.
    pub fn attach_permit(self, body: Bytes) -> Bytes {
        with_permit(body, self.permit)
    }
}

/// Body that holds its permit until its last slice is dropped.
struct PermittedBody {
    body: Bytes,
    #[allow(dead_code, reason = "held until it is dropped")]
    permit: MemoryPermit,
}

impl AsRef<[u8]> for PermittedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns the body with its permit, which it holds until its last slice is dropped.
pub fn with_permit(body: Bytes, weight: Option<MemoryPermit>) -> Bytes {
    match weight {
        Some(weight) => Bytes::from_owner(PermittedBody { body, permit: weight }),
        None => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: &BodyMemory) -> usize {
        memory.used.load(Ordering::Relaxed)
    }

    #[test]
    fn body_memory_limits_all_bodies_together() {
        let memory = BodyMemory::new(4 * MIN_COUNTED);
        let (mut one, mut other, mut small) = (None, None, None);
        assert!(memory.grow(&mut small, MIN_COUNTED - 1) && small.is_none(), "not counted");
        assert!(memory.grow(&mut one, MIN_COUNTED));
        assert!(memory.grow(&mut one, 3 * MIN_COUNTED));
        assert!(memory.grow(&mut other, MIN_COUNTED));
        assert!(!memory.grow(&mut other, MIN_COUNTED + 1));
        drop(one);
        assert!(memory.grow(&mut other, 4 * MIN_COUNTED));
        drop(other);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn body_memory_of_a_connection_grows_and_shrinks() {
        let memory = BodyMemory::new(1_000);
        let mut permit = None;
        assert!(memory.set(&mut permit, 10) && held(&memory) == 10);
        assert!(!memory.set(&mut permit, 1_001) && held(&memory) == 1_001);
        assert!(memory.set(&mut permit, 1_000) && memory.set(&mut permit, 0) && held(&memory) == 0);
        assert!(memory.set(&mut permit, 7));
        drop(permit);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn body_memory_counts_a_body_until_its_last_slice_is_dropped() {
        let memory = BodyMemory::new(4 * MIN_COUNTED);
        let body = memory.charge(Bytes::from(vec![b'x'; MIN_COUNTED]), MIN_COUNTED).unwrap();
        let part = body.slice(10..20);
        drop(body);
        assert_eq!((&part[..], held(&memory)), (&b"xxxxxxxxxx"[..], MIN_COUNTED));
        assert!(memory.charge(Bytes::new(), 4 * MIN_COUNTED).is_none());
        drop(part);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn body_memory_counts_what_a_translation_adds_to_the_body_or_to_its_shared_part() {
        let (memory, kilo) = (BodyMemory::new(64 * MIN_COUNTED), |count: usize| vec![b'x'; count * 1024]);
        // What was received is freed: only the surplus counts.
        let copied = memory.charge_translated(Bytes::from(kilo(200)).into(), 200 * 1024, 100 * 1024).unwrap();
        assert_eq!(held(&memory), 100 * 1024);
        drop(copied);
        // A part of what was received is held: what was copied counts beside it.
        let shared = memory.charge_translated(Bytes::from(kilo(400)).into(), 150 * 1024, 300 * 1024).unwrap();
        assert_eq!(held(&memory), 150 * 1024);
        drop(shared);
        assert_eq!(held(&memory), 0);
        let too_large = Bytes::from(kilo(65 * MIN_COUNTED / 1024));
        assert!(memory.charge_translated(too_large.into(), 65 * MIN_COUNTED, 0).is_none());
    }

    #[test]
    fn body_memory_tallies_share_the_limit_of_their_request() {
        let memory = BodyMemory::new(8 * MIN_COUNTED);
        let room = RequestBudget::new(3 * MIN_COUNTED);
        let (mut one, mut other) = (memory.tally(&room), memory.tally(&room));
        one.add(MIN_COUNTED).unwrap();
        other.add(2 * MIN_COUNTED).unwrap();
        assert_eq!(one.add(1), Err(MemoryExceeded::RequestLimit));
        let mut elsewhere = memory.tally(&RequestBudget::new(usize::MAX));
        assert_eq!(elsewhere.add(6 * MIN_COUNTED), Err(MemoryExceeded::ProcessLimit));
        drop(elsewhere);
        let body = one.attach_permit(Bytes::from(vec![b'x'; MIN_COUNTED]));
        drop(other);
        assert_eq!(held(&memory), MIN_COUNTED);
        drop(body);
        assert_eq!(held(&memory), 0);
    }
}
