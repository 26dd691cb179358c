//! Replacement of the workers' threads in a time of rest.
//!
//! glibc keeps some freed blocks of every size for the thread that freed them. After a load these lie on hundreds of
//! pages, none of which can be returned to the system until the thread ends: with two workers, a megabyte and a half. A
//! new thread in the place of the old one has none.

use std::time::Duration;

use tokio::runtime::Handle;

use driver::offload::run_blocking;

/// Time for which a thread does nothing, so that another one takes its place.
const HANDOVER: Duration = Duration::from_millis(20);

/// Lets new threads take the place of the workers' threads, which then end after the runtime's idle time (10 seconds).
/// For a time without requests: none is delayed, but each thread starts with cold caches.
pub(super) async fn replace(workers: &Handle) {
    // Which thread takes a turn is chance: with twice as many turns as workers, a thread that is left out is rare.
    let turns = workers.metrics().num_workers() * 2;
    let turns: Vec<_> = (0..turns).map(|_| workers.spawn(async { run_blocking(pause) })).collect();
    for turn in turns {
        // An error means that the runtime is shutting down.
        let _ = turn.await;
    }
}

#[allow(clippy::disallowed_methods, reason = "the thread is to wait: another one takes its place meanwhile")]
fn pause() {
    std::thread::sleep(HANDOVER);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier};
    use std::thread::{self, ThreadId};

    use super::*;

    const WORKERS: usize = 2;

    /// Returns the threads that run tasks: each of these tasks waits until all of them run.
    async fn threads(workers: &Handle) -> HashSet<ThreadId> {
        let all = Arc::new(Barrier::new(WORKERS));
        let tasks: Vec<_> = (0..WORKERS)
            .map(|_| {
                let all = all.clone();
                workers.spawn(async move {
                    all.wait();
                    thread::current().id()
                })
            })
            .collect();
        let mut ids = HashSet::new();
        for task in tasks {
            ids.insert(task.await.unwrap());
        }
        ids
    }

    #[tokio::test]
    async fn worker_threads_are_replaced() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).build().unwrap();
        let before = threads(runtime.handle()).await;
        assert_eq!(before.len(), WORKERS);
        let mut left = before.len();
        for _ in 0..20 {
            replace(runtime.handle()).await;
            let after = threads(runtime.handle()).await;
            left = before.intersection(&after).count();
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0);
        runtime.shutdown_background();
    }
}
