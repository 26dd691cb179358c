//! Settings of the system allocator, and the return of freed memory to the system (glibc only).
//!
//! A request body is read whole, in pieces, and freed after it was sent. By default glibc returns the top of its heap
//! to the system whenever 128 KiB of it are free, and faults it in again, page by page, for the next body: with 5 MB
//! bodies that was a tenth of all CPU time. These settings keep more free memory and serve larger blocks from the heap.
//! What is free after a load has gone would then stay with the process for ever, so a background task returns it.

use std::sync::Arc;
use std::time::Duration;

use super::listener_service::ListenerHandle;
use super::{program_pages, worker_threads};
use observe::metrics::Metrics;

/// Time between two returns of freed memory. Pages that are in use again a moment later cost a fault each, so not more
/// often; a return takes a millisecond or two.
const TRIM_INTERVAL: Duration = Duration::from_secs(30);
/// Number of returns after the last sign of activity. They cover what is freed later than the last response: pooled
/// connections to providers (`limits.pool_idle`), and states of idle connections.
const TRIMS_WHEN_QUIET: u32 = 10;

/// Time after the start at which what only the start needed is no longer used: the background tasks that have a turn every few
/// seconds have had their first one, the last of them after two seconds.
const SETTLED: Duration = Duration::from_millis(2_500);

/// Configures the allocator for this many workers. Must be called before the process starts other threads.
///
/// Each of glibc's arenas keeps what was freed in it. Bodies are freed on other threads than those that allocated them,
/// and threads come and go with large bodies, so that with glibc's eight arenas for each processor four bodies of 5 MB
/// took 100 MB; with one for each worker they take 22 MB, and small requests cost the same.
///
/// glibc keeps small freed blocks apart ("fast bins"), and joins all of them whenever a block of a kilobyte or more is
/// allocated, which each request does. Without them a block is joined with its neighbors when it is freed. What it
/// saved is in docs/decisions/005.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator has no safe interface for this setting")]
pub(crate) fn set_up(workers: usize) {
    /// Free memory that glibc retains at the top of each arena's heap, in bytes.
    const KEPT: i32 = 64 << 20;
    /// Size from which glibc uses `mmap` for a block and returns it on free, in bytes: the largest value that it accepts.
    /// With `mmap`, the text of a large body, and what it is translated to, would be faulted in page by page each time.
    const LARGE: i32 = 32 << 20;
    let arenas = libc::c_int::try_from(workers).unwrap_or(libc::c_int::MAX).max(1);
    // SAFETY: `mallopt` takes two integers, touches no memory of ours, and ignores what it does not know.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        // No block is small enough for a fast bin.
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Does nothing: other allocators need no settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn set_up(_workers: usize) {}

/// Returns freed memory to the system. Blocks for some milliseconds, and so does an allocation from the part of the heap
/// that is being searched.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator has no safe interface for this call")]
pub(crate) fn trim() {
    // SAFETY: `malloc_trim` takes an integer, and releases only pages without allocated blocks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}

/// Returns freed memory to the system from time to time, until the process ends; and once nothing has happened for a while,
/// what the workers' threads keep for themselves, and the program's own pages. Rests while nothing happens.
pub(crate) async fn trim_periodically(metrics: Arc<Metrics>, listeners: Arc<ListenerHandle>) {
    let mut activity = Activity::default();
    let mut interval = tokio::time::interval(TRIM_INTERVAL);
    loop {
        interval.tick().await;
        let signs = Signs::of(&metrics);
        if activity.is_recent(signs) {
            // Not on a worker: the search of a large heap takes a while.
            let _ = tokio::task::spawn_blocking(trim).await;
        }
        if activity.has_rested() {
            if let Some(workers) = listeners.runtime() {
                worker_threads::replace(workers).await;
            }
            let _ = tokio::task::spawn_blocking(program_pages::release).await;
        }
    }
}

/// Values that change when the gateway does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signs {
    /// Requests that have ended.
    finished: u64,
    in_flight: i64,
    connections: i64,
}

impl Signs {
    fn of(metrics: &Metrics) -> Self {
        Signs {
            finished: metrics.overhead.count(),
            in_flight: metrics.in_flight(),
            connections: metrics.connections.get(),
        }
    }
}

/// Makes the program's pages that only the start needed leave the process, a moment after the start, when the background
/// tasks have had their first turns. If a client has come already, they stay: the next one needs what it needed.
pub(crate) async fn release_program_after_start(metrics: Arc<Metrics>) {
    tokio::time::sleep(SETTLED).await;
    if Signs::of(&metrics) == Signs::default() {
        let _ = tokio::task::spawn_blocking(program_pages::release).await;
    }
}

/// Recent activity of the process.
#[derive(Debug, Default)]
struct Activity {
    last: Signs,
    quiet: u32,
}

impl Activity {
    /// Returns whether something has happened since the last call or shortly before it.
    fn is_recent(&mut self, now: Signs) -> bool {
        self.quiet = if now == self.last { self.quiet.saturating_add(1) } else { 0 };
        self.last = now;
        self.quiet <= TRIMS_WHEN_QUIET
    }

    /// Returns whether nothing happened between the last three calls, and no request is in flight. True once in each time
    /// of rest: what the rest itself needs of the program is loaded again, and stays.
    fn has_rested(&self) -> bool {
        self.quiet == 2 && self.last.in_flight == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_returned_during_activity_and_for_a_while_after_it() {
        let mut activity = Activity::default();
        let busy = Signs { finished: 10, in_flight: 1, connections: 1 };
        assert!(activity.is_recent(busy));
        for _ in 0..TRIMS_WHEN_QUIET {
            assert!(activity.is_recent(busy));
        }
        assert!(!activity.is_recent(busy));
        assert!(!activity.is_recent(busy));
        assert!(activity.is_recent(Signs { connections: 0, ..busy }));
        assert!(activity.is_recent(Signs { finished: 11, ..busy }));
    }

    #[test]
    fn program_is_given_back_once_in_each_rest() {
        let mut activity = Activity::default();
        let mut rested = |signs, times| {
            (0..times)
                .filter(|_| {
                    activity.is_recent(signs);
                    activity.has_rested()
                })
                .count()
        };
        let busy = Signs { finished: 10, in_flight: 1, connections: 1 };
        assert_eq!(rested(busy, 20), 0, "a stream that is open");
        let idle = Signs { finished: 11, in_flight: 0, connections: 1 };
        assert_eq!(rested(idle, 2), 0);
        assert_eq!(rested(idle, 20), 1);
        assert_eq!(rested(Signs { finished: 12, ..idle }, 20), 1);
    }

    /// Returns the resident memory in pages (the second field of proc_pid_statm(5)).
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn resident_pages() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn trim_returns_the_memory_of_freed_blocks() {
        const BLOCKS: usize = 20_000;
        const SIZE: usize = 1_024;
        set_up(2);
        // Every block is written, and the last one stays, so that the heap cannot shrink from its end.
        let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; SIZE]).collect();
        let last = blocks.pop();
        drop(blocks);
        let before = resident_pages();
        trim();
        let after = resident_pages();
        // Half of it: other tests allocate meanwhile.
        let returned = before.saturating_sub(after) * 4_096;
        assert!(returned > (BLOCKS * SIZE / 2) as u64, "{returned} bytes were returned");
        drop(last);
    }
}
