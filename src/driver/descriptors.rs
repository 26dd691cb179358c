//! File descriptors of the process. Some of them are reserved: at the limit, connections of clients and providers are refused,
//! so that the admin port, the store and the logs still have descriptors.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use pingora::protocols::Stream;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that connections of clients and providers leave free: for the admin port, the store, files that are read
/// again, and look-ups of names.
const RESERVE: u64 = 64;
/// Descriptors that the process needs besides connections: threads, listeners, logs and the store.
const OWN: u64 = 128;
/// Error code for a full table of descriptors.
const EMFILE: i32 = 24;
/// Error code for a full table of the system.
const ENFILE: i32 = 23;

/// First descriptor of the reserve. The system assigns the lowest free number: a connection with this one or a higher one
/// is among the last that the limit permits.
static FIRST_RESERVED: AtomicI32 = AtomicI32::new(i32::MAX);

/// Limit of open descriptors that is too low for the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowLimit {
    /// The limit.
    pub limit: u64,
    /// Descriptors that the configured connections need.
    pub needed: u64,
}

/// Raises the limit of open descriptors as far as the process may, and sets the reserve. Returns the limit if it is too low
/// for this many connections of clients, each of which may need one to a provider, and for the pool.
pub fn prepare(connections: usize, pool: usize) -> Option<LowLimit> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    // `None` is no limit.
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }?;
    // With few descriptors, a quarter is reserved.
    let first = limit.saturating_sub(RESERVE.min(limit / 4));
    FIRST_RESERVED.store(i32::try_from(first).unwrap_or(i32::MAX), Ordering::Relaxed);
    let needed = (connections as u64).saturating_mul(2).saturating_add(pool as u64).saturating_add(OWN);
    (limit < needed).then_some(LowLimit { limit, needed })
}

/// Returns whether a connection has a descriptor of the reserve, and must be closed.
pub fn is_reserved(stream: &Stream) -> bool {
    is_reserved_number(stream.id())
}

fn is_reserved_number(descriptor: RawFd) -> bool {
    descriptor >= FIRST_RESERVED.load(Ordering::Relaxed)
}

/// Error of a connection that would take a descriptor of the reserve.
pub fn exhausted() -> io::Error {
    io::Error::from_raw_os_error(EMFILE)
}

/// Returns whether an operation has failed because there are too many open descriptors, which is no fault of the other side.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}
