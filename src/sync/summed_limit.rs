//! Limit of a number that is the sum of what several threads count.

use super::PerThread;
use super::atomic::{AtomicUsize, Ordering};
use super::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// Limit of a number that is summed over all threads, such as [`DrainCount::requests`](super::DrainCount::requests).
///
/// A sum for each request would read what all threads write. So a thread that has formed the sum takes a part of what is
/// left as its grant, and needs no sum until the grant is used up. The admitted and all grants together never exceed the
/// limit. Near it the grants are taken back, and each request forms the sum.
#[derive(Debug)]
pub struct SummedLimit {
    limit: usize,
    grants: PerThread<AtomicUsize>,
    /// Held while a sum is formed and a grant made of it: two grants of the same sum would be too much.
    granting: Mutex<()>,
}

impl SummedLimit {
    /// Creates the limit: the number may not exceed it.
    pub fn new(limit: usize) -> Self {
        SummedLimit { limit, grants: PerThread::filled(AtomicUsize::default), granting: Mutex::new(()) }
    }

    /// Returns whether the number, in which this thread has counted one more, is within the limit. `sum` returns the
    /// number, and while it changes never less than it was.
    #[inline]
    pub fn admits(&self, sum: impl Fn() -> usize) -> bool {
        let grant = self.grants.own(AtomicUsize::default);
        // Release: a thread that sees the grant used sees what was counted before.
        let used = grant.fetch_update(Ordering::Release, Ordering::Relaxed, |left| left.checked_sub(1));
        used.is_ok() || self.admits_by_sum(grant, &sum)
    }

    #[cold]
    fn admits_by_sum(&self, own: &AtomicUsize, sum: &dyn Fn() -> usize) -> bool {
        let _alone = self.lock();
        // The grants first: one that is used in between is in the sum then, and not in neither.
        let granted = self.grants.iter().map(|grant| grant.load(Ordering::Acquire)).sum::<usize>();
        let room = self.limit.checked_sub(sum().saturating_add(granted));
        if let Some(room) = room {
            own.fetch_add(room / self.grants.iter().count(), Ordering::Relaxed);
            return true;
        }
        for grant in self.grants.iter() {
            grant.swap(0, Ordering::Acquire);
        }
        sum() <= self.limit
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.granting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(model_check)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::DrainCount;
    use super::*;

    #[test]
    fn summed_limit_is_exact_for_one_thread() {
        for limit in [1, 2, 3, 100, 16_384] {
            let (count, requests) = (DrainCount::default(), SummedLimit::new(limit));
            let enter = || {
                count.add_request();
                requests.admits(|| count.requests())
            };
            let leave = || assert!(!count.remove_request());
            for _ in 0..3 {
                assert!((0..limit).all(|_| enter()), "{limit}");
                assert!(!enter(), "{limit}");
                leave();
                leave();
                assert!(enter(), "{limit}");
                (0..limit).for_each(|_| leave());
            }
        }
    }

    #[test]
    fn summed_limit_is_kept_by_many_threads() {
        const LIMIT: usize = 40;
        let (count, limit) = (DrainCount::default(), SummedLimit::new(LIMIT));
        let (admitted, most, all) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let (count, limit, admitted, most, all) = (&count, &limit, &admitted, &most, &all);
                scope.spawn(move || {
                    let mut open = 0;
                    for step in 0..20_000 {
                        if (step / (7 + thread)) % 2 == 0 {
                            count.add_request();
                            if limit.admits(|| count.requests()) {
                                open += 1;
                                most.fetch_max(admitted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                                all.fetch_add(1, Ordering::Relaxed);
                            } else {
                                let _ = count.remove_request();
                            }
                        } else if open > 0 {
                            open -= 1;
                            admitted.fetch_sub(1, Ordering::SeqCst);
                            let _ = count.remove_request();
                        }
                    }
                    for _ in 0..open {
                        admitted.fetch_sub(1, Ordering::SeqCst);
                        let _ = count.remove_request();
                    }
                });
            }
        });
        let most = most.into_inner();
        assert!(most <= LIMIT, "{most} at a time");
        assert!(all.into_inner() > 1_000);
        assert!(count.is_idle());
    }
}
